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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_addresses_are_followed),
		cmocka_unit_test(both_of_two_pointers_may_be_written),
		cmocka_unit_test(other_addresses_are_refused),
	};

	return cmocka_run_group_tests_name("pointers", tests, NULL, NULL);
}
