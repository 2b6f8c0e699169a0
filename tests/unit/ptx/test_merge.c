/* Merging of modules: names are resolved, local ones stay separate, and conflicts are named. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "ptx/merge.h"

#define HEAD ".version 7.8\n.target sm_75\n.address_size 64\n"

/* Merges texts (NULL ends the list). Returns the error; *out gets the text or the report's message.
 */
static int merge(struct buf *out, const char *first, ...)
{
	struct ptx_merge m;
	struct report r;
	unsigned n = 0;
	char name[16];
	va_list ap;
	int err = 0;

	report_init(&r);
	ptx_merge_init(&m, &r);
	va_start(ap, first);
	for (const char *t = first; t && err == 0; t = va_arg(ap, const char *)) {
		snprintf(name, sizeof(name), "%c.ptx", 'a' + (char)n++);
		err = ptx_merge_add(&m, t, strlen(t), name);
	}
	va_end(ap);
	err = err ? err : ptx_merge_finish(&m, out);
	ptx_merge_free(&m);
	if (err) {
		buf_clear(out);
		report_text(&r, out);
	} else {
		struct ptx_module *again = NULL;

		assert_int_equal(ptx_module_parse(&again, out->data, out->len, "merged", NULL), 0);
		ptx_module_free(again);
	}
	report_finish(&r);
	return err;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
		n++;
	}
	return n;
}

#define HAS(b, what)                                                                               \
	do {                                                                                       \
		if (!strstr(buf_text(b), what)) {                                                  \
			fail_msg("no %s in:\n%s", what, buf_text(b));                              \
		}                                                                                  \
	} while (0)

static void an_extern_function_and_variable_find_their_definitions(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD ".extern .func (.param .b32 r) twice(.param .b32 a);\n"
				    ".extern .global .align 4 .b8 table[];\n"
				    ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>;\n"
				    "mov.u64 %rd1, table;\ncall.uni (r), twice, (a);\nret;\n}\n",
			       ".version 8.0\n.target sm_80\n.address_size 64\n"
			       ".visible .global .align 4 .b8 table[16];\n"
			       ".visible .func (.param .b32 r) twice(.param .b32 a) { ret; }\n",
			       NULL),
			 0);
	HAS(&b, ".version 8.0");
	HAS(&b, ".target sm_80");
	assert_null(strstr(b.data, ".extern"));
	assert_int_equal(count(b.data, ".visible .func"), 2); /* prototype and definition */
	assert_int_equal(count(b.data, "table[16]"), 1);
	assert_int_equal(count(b.data, ".version"), 1);
	buf_finish(&b);
}

static void names_local_to_a_module_stay_apart(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD ".global .u32 count = 1;\n.func helper() { ret; }\n"
				    ".visible .entry a() { .reg .b64 %rd<2>; mov.u64 %rd1, count; "
				    "call.uni helper; ret; }\n",
			       HEAD ".global .u32 count = 2;\n.global .u64 at = generic(count)+4;\n"
				    ".func helper();\n.func helper() { ret; }\n"
				    ".visible .entry b() { .reg .b64 %rd<2>; mov.u64 %rd1, count; "
				    "ld.global.u32 %r, [count+4]; { .local .b32 count; "
				    "mov.u64 %rd1, count; } call.uni helper; ret; }\n",
			       NULL),
			 0);
	HAS(&b, ".global .u32 count = 1");
	HAS(&b, ".global .u32 $__part2_0$count = 2");
	HAS(&b, "generic($__part2_0$count)+4");
	HAS(&b, "[$__part2_0$count+4]");
	HAS(&b, "call.uni $__part2_0$helper");
	HAS(&b, ".local .b32 count"); /* a body's own name hides the module's */
	assert_int_equal(count(b.data, "mov.u64 %rd1, count;"), 2);
	assert_int_equal(count(b.data, "mov.u64 %rd1, $__part2_0$count;"), 1);
	buf_finish(&b);
}

/* % may only begin a name. */
static void a_local_name_may_begin_with_percent(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b, HEAD ".global .u32 %n = 1;\n", HEAD ".global .u32 %n = 2;\n",
			       HEAD ".global .u32 n = 3;\n", NULL),
			 0);
	HAS(&b, ".u32 %n = 1");
	HAS(&b, ".u32 $__part2_0$n = 2");
	HAS(&b, ".u32 n = 3");
	buf_finish(&b);
}

static void an_element_of_a_long_local_name_is_renamed_with_it(void **state)
{
	struct buf b = { 0 }, first = { 0 }, second = { 0 }, want = { 0 };
	char name[301] = { 0 };

	(void)state;
	memset(name, 'v', sizeof(name) - 1);
	buf_printf(&first, HEAD ".global .v4 .f32 %s;\n", name);
	buf_printf(&second, "%s.visible .entry k() { mov.f32 f, %s.x; ret; }\n", first.data, name);
	buf_printf(&want, "mov.f32 f, $__part2_0$%s.x;", name);
	assert_int_equal(merge(&b, first.data, second.data, NULL), 0);
	HAS(&b, want.data);
	buf_finish(&b);
	buf_finish(&first);
	buf_finish(&second);
	buf_finish(&want);
}

static void a_local_name_does_not_take_anothers_global_one(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(
		merge(&b, HEAD ".func f() { ret; }\n.visible .entry a() { call.uni f; ret; }\n",
		      HEAD ".visible .func f() { ret; }\n"
			   ".visible .entry b() { call.uni f; ret; }\n",
		      NULL),
		0);
	HAS(&b, ".func $__part1_0$f");
	HAS(&b, ".visible .func f");
	assert_int_equal(count(b.data, "call.uni $__part1_0$f;"), 1);
	assert_int_equal(count(b.data, "call.uni f;"), 1);
	buf_finish(&b);
}

static void weak_gives_way_and_common_is_merged(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(
		merge(&b,
		      HEAD ".weak .func f() { ret; }\n.common .global .align 4 .b8 c[4];\n"
			   ".weak .func g() { mov.u32 %r, 1; ret; }\n"
			   ".weak .global .u32 w = 1;\n",
		      HEAD ".visible .func f() { ret; }\n.common .global .align 4 .b8 c[8];\n"
			   ".weak .func g() { mov.u32 %r, 2; ret; }\n"
			   ".weak .global .u32 w = 2;\n",
		      HEAD
		      ".common .global .align 4 .b8 c[2];\n.extern .func g();\n"
		      ".visible .entry k() { call.uni f; call.uni g; ret; }\n.extern .func f();\n",
		      NULL),
		0);
	assert_int_equal(count(b.data, "c[8]"), 1);
	assert_int_equal(count(b.data, ".common"), 1);
	assert_null(strstr(b.data, ".weak .func f"));
	assert_int_equal(count(b.data, "mov.u32 %r"), 1);
	HAS(&b, "mov.u32 %r, 1");
	HAS(&b, "w = 1");
	assert_null(strstr(b.data, "w = 2"));
	buf_finish(&b);
}

static void dynamic_shared_memory_is_one_and_needs_no_definition(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD ".extern .shared .align 4 .b8 dyn[];\n"
				    ".visible .entry a() { mov.u32 %r, dyn; ret; }\n",
			       HEAD ".extern .shared .align 16 .b8 dyn[];\n"
				    ".visible .entry b() { mov.u32 %r, dyn; ret; }\n",
			       NULL),
			 0);
	assert_int_equal(count(b.data, ".extern .shared .align 16 .b8 dyn[]"), 1);
	assert_int_equal(count(b.data, ".extern"), 1);
	buf_finish(&b);
}

static void driver_functions_need_no_definition(void **state)
{
	static const char text[] =
		HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
		     ".extern .func never_called();\n"
		     ".visible .entry k() { call.uni (r), vprintf, (a, b); ret; }\n";
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b, text, HEAD, NULL), 0);
	HAS(&b, ".extern .func");
	HAS(&b, "vprintf(");
	assert_null(strstr(b.data, "never_called"));
	buf_finish(&b);
}

static void undefined_names_are_reported(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD
			       ".extern .func gone();\n.extern .global .u32 lost;\n"
			       ".visible .entry k() { mov.u64 %rd, lost; call.uni gone; ret; }\n",
			       HEAD, NULL),
			 -ENOENT);
	HAS(&b, "Undefined reference to 'gone' in 'a.ptx'");
	HAS(&b, "Undefined reference to 'lost' in 'a.ptx'");
	buf_finish(&b);
}

static void conflicts_are_reported_with_both_places(void **state)
{
	static const struct {
		const char *a, *b, *message;
	} cases[] = {
		{ HEAD ".visible .func f() { ret; }\n", HEAD "\n.visible .func f() { ret; }\n",
		  "b.ptx:5: Multiple definition for 'f', first seen in a.ptx:4" },
		{ HEAD ".visible .entry k() { ret; }\n", HEAD ".visible .entry k() { ret; }\n",
		  "Multiple definition for 'k'" },
		{ HEAD ".visible .global .u32 v;\n", HEAD ".extern .const .u32 v;\n",
		  "Memory space doesn't match for 'v'" },
		{ HEAD ".visible .global .u32 v;\n", HEAD ".extern .global .u64 v;\n",
		  "Size doesn't match for 'v'" },
		{ HEAD ".visible .global .u32 v;\n", HEAD ".extern .func v();\n",
		  "Memory space doesn't match for 'v'" },
		{ HEAD ".visible .func f(.param .b32 a) { ret; }\n", HEAD ".extern .func f();\n",
		  "Prototype doesn't match for 'f'" },
		{ HEAD ".visible .func f(.param .b32 a) { ret; }\n",
		  HEAD ".extern .func f(.param .b64 a);\n", "Prototype doesn't match for 'f'" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = { 0 };

		assert_int_equal(merge(&b, cases[i].a, cases[i].b, NULL), -EEXIST);
		HAS(&b, cases[i].message);
		buf_finish(&b);
	}
}

static void text_that_is_no_ptx_is_reported_with_its_line(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b, HEAD, HEAD "foo\n", NULL), -EINVAL);
	HAS(&b, "b.ptx:4");
	assert_int_equal(merge(&b, NULL), -EINVAL);
	buf_finish(&b);
}

static void lines_of_other_texts_and_debug_sections_are_dropped(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD ".file 1 \"a.cu\"\n.visible .entry a() { .loc 1 2 3\nret; }\n"
				    ".section .debug_info {\n.b8 1\n}\n",
			       HEAD
			       ".file 1 \"b.cu\"\n.visible .entry b() { { .loc 1 2 3\n} ret; }\n",
			       NULL),
			 0);
	assert_null(strstr(b.data, ".loc"));
	assert_null(strstr(b.data, ".file"));
	assert_null(strstr(b.data, ".section"));
	buf_finish(&b);
}

static void an_alias_defines_its_name(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(merge(&b,
			       HEAD ".func body() { ret; }\n.visible .func other();\n"
				    ".alias other, body;\n",
			       HEAD ".func body() { ret; }\n.extern .func other();\n"
				    ".visible .entry k() { call.uni other; ret; }\n",
			       HEAD ".func body() { ret; }\n.visible .func third();\n"
				    ".alias third, body;\n",
			       NULL),
			 0);
	HAS(&b, ".alias other, body;");
	HAS(&b, ".alias third, $__part3_0$body;");
	buf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_extern_function_and_variable_find_their_definitions),
		cmocka_unit_test(names_local_to_a_module_stay_apart),
		cmocka_unit_test(a_local_name_may_begin_with_percent),
		cmocka_unit_test(an_element_of_a_long_local_name_is_renamed_with_it),
		cmocka_unit_test(a_local_name_does_not_take_anothers_global_one),
		cmocka_unit_test(weak_gives_way_and_common_is_merged),
		cmocka_unit_test(dynamic_shared_memory_is_one_and_needs_no_definition),
		cmocka_unit_test(driver_functions_need_no_definition),
		cmocka_unit_test(undefined_names_are_reported),
		cmocka_unit_test(conflicts_are_reported_with_both_places),
		cmocka_unit_test(text_that_is_no_ptx_is_reported_with_its_line),
		cmocka_unit_test(lines_of_other_texts_and_debug_sections_are_dropped),
		cmocka_unit_test(an_alias_defines_its_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
