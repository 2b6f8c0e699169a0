/* Modules that are prepared for probes: what bodies declare becomes the module's, and functions
 * whose addresses are taken are listed. That prepared kernels compute the same is tested by
 * run_probe. */
#include "ptx/prepare.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

/* Prepares a text; returns the new text, which the caller frees, or NULL if it stays. */
static char *prepared(const char *text)
{
	struct ptx_module *m = NULL, *again = NULL;
	struct buf out;
	char *copy = NULL;
	int changed;

	buf_init(&out);
	assert_int_equal(ptx_module_parse(&m, text, strlen(text), "t", NULL), 0);
	changed = ptx_prepare(m, 0xabc);
	assert_true(changed >= 0);
	if (changed) {
		assert_int_equal(ptx_module_print(m, &out), 0);
		copy = strdup(buf_text(&out));
		assert_int_equal(ptx_module_parse(&again, copy, strlen(copy), "t", NULL), 0);
		assert_true(ptx_module_equal(m, again));
		assert_int_equal(ptx_prepare(again, 0xabc), 0); /* once */
		ptx_module_free(again);
	}
	buf_finish(&out);
	ptx_module_free(m);
	return copy;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part)) {
		fail_msg("no '%s' in\n%s", part, text);
	}
}

static void modules_without_either_stay(void **state)
{
	static const char *const texts[] = {
		HEAD ".visible .entry k() { ret; }",
		HEAD
		".global .u32 g; .func f() { ret; }\n"
		".visible .entry k() { .reg .u64 %r; .shared .u32 s; mov.u64 %r, g; call f; ret; }",
		HEAD ".visible .entry k() { .extern .global .u32 e; ret; }",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_null(prepared(texts[i]));
	}
}

static void variables_of_bodies_are_moved_with_their_uses(void **state)
{
	char *t = prepared(HEAD ".visible .entry k() {\n.reg .u32 %r; .reg .u64 %d;\n"
				".global .u32 x = 5; .const .u32 c = 6;\n"
				"ld.global.u32 %r, [x+4]; ld.const.u32 %r, [c];\n"
				"{ .global .u64 at = x; mov.u64 %d, at; st.global.u32 [x], 1; }\n"
				"ret; }");

	(void)state;
	has(t, ".global .u32 gbpf$own_0000000000000abc_0 = 5;");
	has(t, ".const .u32 gbpf$own_0000000000000abc_1 = 6;");
	has(t, ".global .u64 gbpf$own_0000000000000abc_2 = gbpf$own_0000000000000abc_0;");
	has(t, "[gbpf$own_0000000000000abc_0+4]");
	has(t, "[gbpf$own_0000000000000abc_1]");
	has(t, "st.global.u32 [gbpf$own_0000000000000abc_0], 1;");
	free(t);
}

/* An inner declaration of the name is another variable, or hides it. */
static void hidden_names_are_told_apart(void **state)
{
	char *t =
		prepared(HEAD ".visible .entry k() {\n.reg .u32 %r;\n.global .u32 x;\n"
			      "{ .global .u32 x; st.global.u32 [x], 1; }\n"
			      "{ .reg .u32 x; mov.u32 x, 2; }\n"
			      "st.global.u32 [x], 3; ret; }\n"
			      ".visible .entry l() { .global .u32 x; st.global.u32 [x], 4; ret; }");

	(void)state;
	has(t, "[gbpf$own_0000000000000abc_1], 1;");
	has(t, "mov.u32 x, 2;");
	has(t, "[gbpf$own_0000000000000abc_0], 3;");
	has(t, "[gbpf$own_0000000000000abc_2], 4;");
	free(t);
}

static void functions_are_listed_once_in_the_order_of_the_text(void **state)
{
	char *t = prepared(
		HEAD ".func b() { ret; }\n.func a() { ret; }\n.func direct() { ret; }\n"
		     ".global .u64 table[2] = {a, b};\n"
		     ".visible .entry k() { .reg .u64 %d; mov.u64 %d, a; call direct; ret; }");

	(void)state;
	has(t, ".visible .global .align 8 .u64 gbpf$functions_0000000000000abc[2] = {b, a};");
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modules_without_either_stay),
		cmocka_unit_test(variables_of_bodies_are_moved_with_their_uses),
		cmocka_unit_test(hidden_names_are_told_apart),
		cmocka_unit_test(functions_are_listed_once_in_the_order_of_the_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
