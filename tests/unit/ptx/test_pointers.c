/* Which words of a kernel's arguments are known to be the addresses of all its accesses, and what
 * makes them unknown. */
#include "ptx/probe_pointers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                                                       \
	".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 total;\n.const .u32 step;\n"
#define KERNEL                                                                                     \
	".visible .entry k(.param .u64 a, .param .align 8 .b8 b[32], .param .u32 n)\n{\n"          \
	".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %q<8>;\n.shared .b32 own[32];\n"           \
	"ld.param.u64 %q0, [a];\nld.param.u64 %q1, [b+16];\nld.param.u32 %r0, [n];\n"

#define LOADS_HALVES KERNEL "ld.global.v2.u32 {%r1, %r2}, [%q0];\n"
#define STORES_AT_SUM "add.s64 %q6, %q2, %q1;\nst.global.u32 [%q6], %r0;\nret;\n}\n"

/* Returns 0 or the error; text: what the kernel does. */
static int find(const char *text, struct ptx_pointers *ret, struct buf *why)
{
	struct ptx_module *m = NULL;
	struct report r;
	char all[2048];
	int err;

	snprintf(all, sizeof(all), HEAD "%s", text);
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, all, strlen(all), "t", &r), 0);
	err = ptx_pointers_find(m, "k", ret, &r);
	if (err) {
		buf_init(why);
		report_text(&r, why);
	}
	report_finish(&r);
	ptx_module_free(m);
	return err;
}

static void known_addresses_are_followed(void **state)
{
	struct ptx_pointers p;
	struct buf why;

	(void)state;
	assert_int_equal(find(KERNEL
			      "cvta.to.global.u64 %q2, %q1;\nmad.wide.u32 %q3, %r0, 4, %q2;\n"
			      "ld.global.u64 %q4, [%q0+8];\nst.global.u64 [%q3], %q4;\n"
			      "st.shared.u32 [own], %r0;\nld.const.u32 %r1, [step];\n"
			      "ld.global.u32 %r2, [total];\nret;\n}\n",
			      &p, &why),
			 0);
	assert_int_equal(p.n, 2);
	assert_true(p.at[0].param == 0 && p.at[0].offset == 0 && !p.at[0].written);
	assert_true(p.at[1].param == 1 && p.at[1].offset == 16 && p.at[1].written);
	assert_int_equal(p.n_params, 3);
	assert_true(p.bytes[0] == 8 && p.bytes[1] == 32 && p.bytes[2] == 4);
	assert_int_equal(find(KERNEL
			      "atom.global.add.u32 %r1, [%q0], 1;\nred.global.add.u32 [%q1], 1;\n"
			      "ret;\n}\n",
			      &p, &why),
			 0);
	assert_true(p.n == 2 && p.at[0].written && p.at[1].written);
}

/* Returns the set of the only access of a kernel that stores to %q2. */
static struct ptx_pointer_set set_of(const char *text)
{
	struct ptx_pointers p;
	char all[1024];
	struct buf why;

	snprintf(all, sizeof(all), "%s%s\nst.global.u32 [%%q2], 1;\nret;\n}\n", KERNEL, text);
	assert_int_equal(find(all, &p, &why), 0);
	assert_true(p.n_sets == 1 || p.n_sets == 2);
	return p.set[p.n_sets - 1];
}

static void each_access_has_the_words_of_its_address(void **state)
{
	struct ptx_pointers p;
	struct buf why;

	(void)state;
	/* The argument at b+8 is not used: b+16 becomes the second word. */
	assert_int_equal(find(KERNEL "ld.param.u64 %q4, [b+8];\nld.global.f32 %r1, [%q0];\n"
				     "add.s64 %q2, %q0, %q1;\nst.global.u32 [%q2], %r0;\n"
				     "st.global.u32 [%q1], %r0;\nst.global.u32 [%q1+4], %r0;\n"
				     "ret;\n}\n",
			      &p, &why),
			 0);
	assert_int_equal(p.n, 2);
	assert_int_equal(p.n_sets, 3);
	assert_int_equal(p.set[0].words, 1);
	assert_int_equal(p.set[1].words, 3);
	assert_int_equal(p.set[2].words, 2);
}

static void indexes_from_memory_are_known(void **state)
{
	static const char *const texts[] = {
		"ld.global.u32 %r1, [%q0];\nmul.wide.u32 %q3, %r1, 4;\nadd.s64 %q2, %q0, %q3;",
		"ld.global.s32 %r1, [%q0];\nmad.wide.s32 %q2, %r1, -8, %q0;",
		"ld.global.u16 %r1, [%q0];\ncvt.u64.u32 %q3, %r1;\nshl.b64 %q4, %q3, 2;\n"
		"add.s64 %q2, %q0, %q4;",
		/* a row and an element */
		"ld.global.u32 %r1, [%q0];\ncvt.s64.s32 %q3, %r1;\nmul.lo.s64 %q4, %q3, %q1;\n"
		"shl.b64 %q5, %q4, 2;\nadd.s64 %q2, %q0, %q5;",
		"atom.global.add.u32 %r1, [%q0], 1;\nmad.wide.u32 %q2, %r1, 4, %q0;",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct ptx_pointer_set s = set_of(texts[i]);

		print_message("%s\n", texts[i]);
		assert_true(s.words & 1);
		assert_true(s.from_memory);
	}
	assert_false(set_of("mad.wide.u32 %q2, %r0, 4, %q0;").from_memory);
}

/* Factors, masks, limits and small distances. */
static void other_constants_are_no_addresses(void **state)
{
	static const char *const texts[] = {
		"add.s64 %q2, %q0, -2147483648;",
		"add.s64 %q2, %q0, 4294967295;",
		"and.b64 %q2, %q0, -4294967296;",
		"setp.gt.u64 %p0, %q1, 4294967296;\nselp.b64 %q2, %q0, %q1, %p0;",
		"mov.u32 %r1, %tid.x;\ncvt.u64.u32 %q3, %r1;\n"
		"mul.lo.s64 %q4, %q3, -7046029254386353131;\n"
		"shr.u64 %q5, %q4, 40;\nadd.s64 %q2, %q0, %q5;",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		print_message("%s\n", texts[i]);
		assert_true(set_of(texts[i]).words & 1);
	}
}

static void both_of_two_pointers_may_be_written(void **state)
{
	struct ptx_pointers p;
	struct buf why;

	(void)state;
	assert_int_equal(find(KERNEL "setp.eq.u32 %p0, %r0, 0;\nselp.b64 %q2, %q0, %q1, %p0;\n"
				     "st.global.u32 [%q2], %r0;\nret;\n}\n",
			      &p, &why),
			 0);
	assert_true(p.n == 2 && p.at[0].written && p.at[1].written);
}

static void other_addresses_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ KERNEL "ld.global.u64 %q2, [%q0];\nst.global.u32 [%q2], %r0;\nret;\n}\n",
		  "may not come from an argument: st" },
		{ KERNEL "ld.global.u64 %q2, [%q0];\nld.global.u32 %r1, [%q2];\nret;\n}\n",
		  "may not come from an argument: ld" },
		/* a loop: the value of a later round */
		{ KERNEL "again:\nst.global.u32 [%q0], %r0;\nmov.u64 %q0, %q3;\n"
			 "ld.global.u64 %q3, [%q1];\nbra again;\n}\n",
		  "may not come from an argument: st" },
		{ KERNEL "st.global.u32 [total], %r0;\nret;\n}\n", "may write a variable, total" },
		{ KERNEL "mov.u64 %q2, total;\nst.global.u32 [%q2], %r0;\nret;\n}\n",
		  "may not come from an argument" },
		{ KERNEL "st.global.u32 [4096], %r0;\nret;\n}\n", "may not come from an argument" },
		{ KERNEL "mov.u64 %q2, 4096;\nst.global.u32 [%q2], %r0;\nret;\n}\n",
		  "may not come from an argument" },
		{ KERNEL "ld.global.v2.u32 {%r1, %r2}, [%q0];\nmov.b64 %q2, {%r1, %r2};\n"
			 "st.global.u32 [%q2], %r0;\nret;\n}\n",
		  "may not come from an argument: st" },
		{ KERNEL "ld.shared.u64 %q2, [own];\nst.global.u32 [%q2], %r0;\nret;\n}\n",
		  "may not come from an argument" },
		{ ".func f(.param .u64 at)\n{\n.reg .b64 %q<2>;\nld.param.u64 %q0, [at];\n"
		  "st.global.u32 [%q0], 1;\nret;\n}\n" KERNEL
		  "{ .param .u64 p; st.param.u64 [p], %q0; call f, (p); }\nret;\n}\n",
		  "may not come from an argument: st" },
		{ ".extern .func f;\n" KERNEL "call f;\nret;\n}\n", "calls a function" },
		/* a register as the result of a call */
		{ ".func (.reg .b64 %o) f ()\n{\nmov.u64 %o, 4096;\nret;\n}\n" KERNEL
		  "call (%q2), f, ();\nadd.s64 %q2, %q2, %q0;\nst.global.u32 [%q2], 1;\nret;\n}\n",
		  "may not come from an argument: st" },
		{ ".func (.param .u64 o) f ()\n{\nst.param.u64 [o], 0;\nret;\n}\n" KERNEL
		  "{ .param .u64 o; call (o), f, (); ld.param.u64 %q2, [o]; }\n"
		  "add.s64 %q2, %q2, %q0;\nst.global.u32 [%q2], 1;\nret;\n}\n",
		  "may not come from an argument: st" },
		/* the halves of an address, and a number */
		{ LOADS_HALVES "cvt.u64.u32 %q5, %r1;\ncvt.u64.u32 %q3, %r2;\n"
			       "shl.b64 %q4, %q3, 32;\nor.b64 %q2, %q5, %q4;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES
		  "mul.wide.u32 %q3, %r2, 65536;\nshl.b64 %q2, %q3, 4;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES
		  "mul.wide.u32 %q3, %r2, 32768;\nshl.b64 %q2, %q3, 5;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES "mov.b64 %q2, {%r1, %r2};\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES "mov.b64 {%r3, %r4}, %q0;\nmov.b64 %q2, {%r1, %r4};\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES "cvt.u64.u32 %q4, %r2;\nmov.u64 %q3, 4294967296;\n"
			       "mul.lo.u64 %q2, %q4, %q3;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES "cvt.u64.u32 %q3, %r2;\nmov.u32 %r3, 32;\n"
			       "shl.b64 %q2, %q3, %r3;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ LOADS_HALVES
		  "cvt.u64.u32 %q3, %r2;\nbfi.b64 %q2, %q3, %q0, 32, 32;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ KERNEL "atom.global.add.u32 %r1, [%q0], 1;\ncvt.u64.u32 %q3, %r1;\n"
			 "shl.b64 %q2, %q3, 32;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		/* its bytes */
		{ KERNEL
		  "mov.u64 %q2, 0;\nagain:\nld.global.u8 %r1, [%q0];\ncvt.u64.u32 %q3, %r1;\n"
		  "shl.b64 %q2, %q2, 4;\nor.b64 %q2, %q2, %q3;\nbra again;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		/* the halves of an argument */
		{ KERNEL
		  "ld.param.v2.u32 {%r1, %r2}, [a];\nmov.b64 %q2, {%r1, %r2};\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ KERNEL "ld.param.u32 %r2, [a+4];\ncvt.u64.u32 %q3, %r2;\nshl.b64 %q2, %q3, "
			 "32;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		/* addresses in the code, and a number or another pointer */
		{ KERNEL "add.s64 %q2, %q1, 140187732541440;\nst.global.u32 [%q2], 1;\nret;\n}\n",
		  "may not come from an argument: st" },
		{ KERNEL "mov.u64 %q2, 4294967296;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ KERNEL "mad.wide.u32 %q2, %r0, 4, 140187732541440;\n" STORES_AT_SUM,
		  "may not come from an argument: st" },
		{ KERNEL "setp.eq.u64 %p0, %q1, 0;\nselp.b64 %q2, 140187732541440, %q1, %p0;\n"
			 "st.global.u32 [%q2], 1;\nret;\n}\n",
		  "may not come from an argument: st" },
		{ KERNEL "st.global.u32 [%q1+4294967296], 1;\nret;\n}\n",
		  "may not come from an argument: st" },
		/* names that are declared twice */
		{ KERNEL
		  "{ .param .u64 a; ld.param.u64 %q2, [a]; st.global.u32 [%q2], 1; }\nret;\n}\n",
		  "declares a name twice, a" },
		{ KERNEL "{ .reg .b64 total; ld.global.u32 %r1, [total]; }\nret;\n}\n",
		  "declares a name twice, total" },
		{ ".global .u32 t1;\n" KERNEL
		  "{ .reg .b64 t<2>; ld.global.u32 %r1, [t1]; }\nret;\n}\n",
		  "declares a name twice, t" },
		{ ".func f(.reg .b64 total)\n{\n.reg .b32 %r<2>;\nld.global.u32 %r0, [total];\n"
		  "ret;\n}\n" KERNEL "call f, (%q0);\nret;\n}\n",
		  "declares a name twice, total" },
		/* which another image has, or the program */
		{ ".extern .global .u32 far;\n" KERNEL "ld.global.u32 %r1, [far];\nret;\n}\n",
		  "not of its image, far" },
		/* registers that functions share */
		{ ".reg .b64 %g;\n" KERNEL
		  "add.s64 %q2, %q0, %g;\nst.global.u32 [%q2], 1;\nret;\n}\n",
		  "share registers" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptx_pointers p;
		struct buf why;

		print_message("%s\n", cases[i].why);
		assert_int_equal(find(cases[i].text, &p, &why), -ENOTSUP);
		assert_non_null(strstr(buf_text(&why), cases[i].why));
		buf_finish(&why);
	}
}

static void a_definition_behind_a_declaration_counts(void **state)
{
	struct ptx_pointers p;
	struct buf why;

	(void)state;
	assert_int_equal(find(".func f;\n" KERNEL "call f;\nst.global.u32 [%q0], 1;\nret;\n}\n"
			      ".func f\n{\nret;\n}\n",
			      &p, &why),
			 0);
	assert_int_equal(p.n, 1);
}

static void the_names_of_a_module_answer_for_all_its_entries(void **state)
{
	static const char text[] =
		HEAD ".entry reads(.param .u64 a)\n{\n.reg .b64 %q;\n.reg .b32 %r;\n"
		     "ld.param.u64 %q, [a];\nld.global.u32 %r, [%q];\nld.global.u32 %r, [total];\n"
		     "ret;\n}\n"
		     ".entry writes(.param .u64 a)\n{\nst.global.u32 [total], 1;\nret;\n}\n";
	struct ptx_pointer_names names;
	struct ptx_module *m = NULL;
	struct ptx_pointers p;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, text, strlen(text), "t", &r), 0);
	assert_int_equal(ptx_pointer_names_open(&names, m), 0);
	assert_int_equal(ptx_pointers_of(m, &names, "reads", &p, &r), 0);
	assert_int_equal(p.n, 1);
	assert_int_equal(ptx_pointers_of(m, &names, "writes", &p, &r), -ENOTSUP);
	assert_int_equal(ptx_pointers_of(m, &names, "total", &p, &r), -ENOENT);
	ptx_pointer_names_close(&names);
	report_finish(&r);
	ptx_module_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_addresses_are_followed),
		cmocka_unit_test(each_access_has_the_words_of_its_address),
		cmocka_unit_test(indexes_from_memory_are_known),
		cmocka_unit_test(other_constants_are_no_addresses),
		cmocka_unit_test(both_of_two_pointers_may_be_written),
		cmocka_unit_test(other_addresses_are_refused),
		cmocka_unit_test(a_definition_behind_a_declaration_counts),
		cmocka_unit_test(the_names_of_a_module_answer_for_all_its_entries),
	};

	return cmocka_run_group_tests_name("pointers", tests, NULL, NULL);
}
