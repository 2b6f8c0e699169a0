/* Merging of variables in shared memory: which become places, in which order, and which stay. What
 * merged kernels compute is in tests/ptx, shared.ptxt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx/probe_shared.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define TWO ".shared .align 4 .b8 a[12];\n.shared .align 16 .b8 b[32];\n"
#define ENTRY(body)                                                                                \
	".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n" body "ret;\n}" \
	"\n"
#define USES "st.shared.u32 [a+4], 1;\nmov.u32 %r1, b;\n"

static char result[8192];

/* Merges for k. Returns the number of variables that became one; result is the module's text. */
static uint32_t merged(const char *text)
{
	struct ptx_module *m = NULL;
	struct report r;
	struct buf out;
	uint32_t n = 99;

	report_init(&r);
	buf_init(&out);
	assert_int_equal(ptx_module_parse(&m, text, strlen(text), "t", &r), 0);
	assert_int_equal(ptx_shared_merge(m, "k", &n, &r), 0);
	assert_int_equal(ptx_module_print(m, &out), 0);
	snprintf(result, sizeof(result), "%s", buf_text(&out));
	buf_finish(&out);
	ptx_module_free(m);
	report_finish(&r);
	return n;
}

static bool has(const char *part)
{
	return strstr(result, part) != NULL;
}

static void greatest_alignment_is_first(void **state)
{
	(void)state;
	assert_int_equal(merged(HEAD TWO ENTRY(USES "cvta.shared.u64 %d1, a+8;\n")), 2);
	assert_true(has(".shared .align 16 .b8 shared0_all[44];\n"));
	assert_true(has("st.shared.u32 [shared0_all+36], 1;"));
	assert_true(has("mov.u32 %r1, shared0_all;"));
	assert_true(has("cvta.shared.u64 %d1, shared0_all+40;"));
	assert_false(has(" a[12]"));
}

static void variables_of_other_kernels_take_no_place(void **state)
{
	(void)state;
	assert_int_equal(merged(HEAD TWO
				".shared .b8 other[1000];\n"
				".entry j()\n{\nst.shared.u8 [other], 1;\nret;\n}\n" ENTRY(USES)),
			 2);
	assert_true(has(" shared0_all[44];"));
	assert_true(has("[other]"));
	assert_int_equal(merged(HEAD TWO ENTRY("st.shared.u32 [a+4], 1;\n")), 0);
}

static void functions_count_with_their_callers(void **state)
{
	static const char text[] =
		HEAD TWO ".func f()\n{\n.shared .u32 c;\nst.shared.u32 [c], 1;\nret;\n}\n" ENTRY(
			USES "{\ncall f;\n}\n");

	(void)state;
	assert_int_equal(merged(text), 3);
	assert_true(has(" shared0_all[48];"));
	assert_true(has("st.shared.u32 [shared0_all+44], 1;"));
}

static void inner_names_hide_outer_ones(void **state)
{
	(void)state;
	assert_int_equal(merged(HEAD TWO ENTRY(USES "{\n.reg .b32 a;\nmov.u32 a, 1;\n}\n"
						    "{\n.shared .u32 a;\nmov.u32 %r2, a;\n}\n"
						    "mov.u32 %r3, a;\n")),
			 3);
	assert_true(has("mov.u32 a, 1;"));
	assert_true(has("mov.u32 %r2, shared0_all+44;"));
	assert_true(has("mov.u32 %r3, shared0_all+32;"));
}

static void what_cannot_be_a_place_stays(void **state)
{
	static const char *const kept[] = {
		HEAD TWO ENTRY(USES "add.u32 %r1, %r1, a;\n"),
		HEAD TWO ENTRY(USES "mov.b64 %d1, {a, %r1};\n"),
		HEAD TWO ".global .u32 at = a;\n" ENTRY(USES),
		HEAD ".shared .v4 .u32 a;\n.shared .u32 b;\n" ENTRY(USES "mov.u32 %r1, a.x;\n"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		assert_int_equal(merged(kept[i]), 0);
		assert_true(has("[a+4]"));
		assert_false(has("_all"));
	}
}

static void kernels_that_depend_on_the_size_stay(void **state)
{
	(void)state;
	assert_int_equal(
		merged(HEAD TWO ".extern .shared .b8 dyn[];\n" ENTRY(USES "mov.u32 %r2, dyn;\n")),
		0);
	assert_int_equal(merged(HEAD TWO ".extern .shared .b8 dyn[];\n" ENTRY(USES)), 2);
	assert_int_equal(merged(HEAD TWO ENTRY(USES "mov.u32 %r2, %total_smem_size;\n")), 0);
	assert_int_equal(merged(HEAD TWO ENTRY(USES "mov.u32 %r2, %aggr_smem_size;\n")), 0);
	assert_int_equal(merged(HEAD TWO ENTRY(USES "t: .callprototype _();\ncall %d1, (), t;\n")),
			 0);
}

static void names_of_the_module_are_not_taken(void **state)
{
	(void)state;
	assert_int_equal(merged(HEAD TWO ENTRY(USES ".reg .b32 shared0_all;\n")), 2);
	assert_true(has("[shared1_all+36]"));
}

static void many_or_large_variables_stay(void **state)
{
	struct buf text;

	(void)state;
	assert_int_equal(merged(HEAD ".shared .b8 a[1048576];\n.shared .b32 b;\n" ENTRY(USES)), 0);
	buf_init(&text);
	buf_puts(&text, HEAD);
	for (unsigned i = 0; i < 1025; i++) {
		buf_printf(&text, ".shared .u32 x%u;\n", i);
	}
	buf_puts(&text, ENTRY("mov.u32 %r1, x1;\nmov.u32 %r1, x2;\n"));
	assert_int_equal(merged(buf_text(&text)), 0);
	buf_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greatest_alignment_is_first),
		cmocka_unit_test(variables_of_other_kernels_take_no_place),
		cmocka_unit_test(functions_count_with_their_callers),
		cmocka_unit_test(inner_names_hide_outer_ones),
		cmocka_unit_test(what_cannot_be_a_place_stays),
		cmocka_unit_test(kernels_that_depend_on_the_size_stay),
		cmocka_unit_test(names_of_the_module_are_not_taken),
		cmocka_unit_test(many_or_large_variables_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
