/* Modules of brackets: which entries they have, how the programs get their fields, and what is
 * refused. On the soft GPU they run in tests/system/brackets.bats. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "ptx/probe_bracket.h"

#define BEGIN 43u /* ids of hooks.def */
#define END 44u
#define FIELD(i) (UINT64_C(1) << (i))
#define LAUNCH 24 /* fields of both */
#define BEGIN_NS 25

static const char counts[] = ".func p_f0 (.param .b64 env)\n{\nret;\n}\n";
static const char times[] = ".func t_f0 (.param .b64 env, .param .b32 grid_x, .param .b64 launch, "
			    ".param .b64 begin_ns)\n{\nret;\n}\n";

static const struct ptx_probe count_begin = { .hook = BEGIN, .name = "p", .text = counts };
static const struct ptx_probe count_end = { .hook = END, .name = "p", .text = counts };
static const struct ptx_probe time_end = { .hook = END,
					   .fields = FIELD(7) | FIELD(LAUNCH) | FIELD(BEGIN_NS),
					   .name = "t",
					   .text = times };

struct result {
	struct buf text;
	struct report r;
	struct ptx_bracket_parts parts;
	int err;
};

static struct result make(const struct ptx_probe *probes, uint32_t n, unsigned arch)
{
	struct result t = { .err = 0 };

	buf_init(&t.text);
	report_init(&t.r);
	t.err = ptx_probe_bracket(&t.text, arch, probes, n, &t.parts, &t.r);
	if (t.err && !t.r.message.len) {
		fail_msg("refused without a reason");
	}
	return t;
}

static void done(struct result *t)
{
	buf_finish(&t->text);
	report_finish(&t->r);
}

static bool has(const struct result *t, const char *part)
{
	return strstr(buf_text(&t->text), part) != NULL;
}

/* Parses the text and asserts which entries it has. */
static void entries(const struct ptx_probe *probes, uint32_t n, bool begin, bool end, bool keeps)
{
	struct result t = make(probes, n, 90);
	struct ptx_module *m = NULL;
	struct report r;

	report_init(&r);
	assert_int_equal(t.err, 0);
	assert_int_equal(ptx_module_parse(&m, t.text.data, t.text.len, "brackets", &r), 0);
	assert_int_equal(ptx_module_function(m, PTX_BRACKET_BEGIN) != NULL, begin);
	assert_int_equal(ptx_module_function(m, PTX_BRACKET_END) != NULL, end);
	assert_int_equal(t.parts.begin, begin);
	assert_int_equal(t.parts.end, end);
	assert_int_equal(t.parts.keeps_time, keeps);
	assert_int_equal(has(&t, "slots"), keeps);
	ptx_module_free(m);
	report_finish(&r);
	done(&t);
}

static void entries_are_those_that_programs_need(void **state)
{
	const struct ptx_probe both[] = { count_begin, time_end };
	struct ptx_probe first = count_begin;

	(void)state;
	first.sites = "#0";
	entries(&first, 1, true, false, false);
	entries(&count_begin, 1, true, false, false);
	entries(&count_end, 1, false, true, false);
	entries(&time_end, 1, true, true, true); /* begin keeps the time */
	entries(both, 2, true, true, true);
}

static void fields_come_from_the_argument(void **state)
{
	struct result t = make(&time_end, 1, 90);

	(void)state;
	assert_true(has(&t, "ld.param.u32 %gbpf$f7, [gbpf$launch+16];"));
	assert_true(has(&t, "ld.param.u64 %gbpf$f24, [gbpf$launch+0];"));
	assert_true(has(&t, "mov.u64 %gbpf$f25, %gbpf$begin;"));
	assert_true(has(&t, "call t_f0, (gbpf$e, gbpf$a7, gbpf$a24, gbpf$a25);"));
	done(&t);
}

/* Addresses of maps are parameters in front of the fields; the environment has them. */
static void maps_are_read_from_the_environment(void **state)
{
	static const struct ptx_probe mapped = {
		.hook = END,
		.fields = FIELD(LAUNCH),
		.name = "m",
		.text = ".func m_f0 (.param .b64 env, .param .b64 map0, .param .b64 map3, "
			".param .b64 launch)\n{\nret;\n}\n",
	};
	const struct ptx_probe both[] = { mapped, time_end };
	struct result t = make(both, 2, 90);

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "cvta.to.global.u64 %gbpf$d, %gbpf$e;\n"
			    "\tld.global.nc.b64 %gbpf$d, [%gbpf$d+0];\n"));
	assert_true(has(&t, "ld.global.nc.b64 %gbpf$d, [%gbpf$d+24];\n"
			    "\t.param .b64 gbpf$m1;\n\tst.param.b64 [gbpf$m1], %gbpf$d;\n"));
	assert_true(has(&t, "call m_f0, (gbpf$e, gbpf$m0, gbpf$m1, gbpf$a24);"));
	done(&t);
	entries(both, 2, true, true, true);
}

/* Launches of several kernels share a module, so the argument has the row. */
static void control_words_are_those_of_the_launch(void **state)
{
	static const struct ptx_probe set = {
		.hook = END,
		.name = "c",
		.text = ".func c_f0 (.param .b64 env, .param .b64 control)\n{\nret;\n}\n",
	};
	struct result t = make(&set, 1, 90);

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "ld.param.u64 %gbpf$d, [gbpf$launch+72];\n"
			    "\tadd.s64 %gbpf$d, %gbpf$d, %gbpf$e;\n"
			    "\t.param .b64 gbpf$m0;\n\tst.param.b64 [gbpf$m0], %gbpf$d;\n"));
	assert_true(has(&t, "call c_f0, (gbpf$e, gbpf$m0);"));
	done(&t);
}

/* A cancelled launch frees its slot and runs no program. */
static void cancellation_stands_between_slot_and_programs(void **state)
{
	struct result t = make(&time_end, 1, 90);
	const char *text = buf_text(&t.text), *end = strstr(text, ".entry " PTX_BRACKET_END);
	const char *freed = strstr(end, "st.volatile.global.u64 [%gbpf$slot], 0;");
	const char *asked = strstr(end, "[gbpf$launch+44]"), *run = strstr(end, "call t_f0");

	(void)state;
	assert_true(freed && asked && run && freed < asked && asked < run);
	done(&t);
}

static void refused(struct ptx_probe p, int err, const char *why, unsigned arch)
{
	struct result t = make(&p, 1, arch);

	if (t.err != err || !strstr(buf_text(&t.r.message), why)) {
		fail_msg("%d, '%s' instead of '%s'", t.err, buf_text(&t.r.message), why);
	}
	done(&t);
}

static void what_is_no_bracket_is_refused(void **state)
{
	struct ptx_probe p = count_begin;

	(void)state;
	refused(p, -ENOTSUP, "need sm_70", 61);
	p.sites = "#1";
	refused(p, -ENOTSUP, "site #0", 90);
	p.sites = "a.cu:3";
	refused(p, -ENOTSUP, "site #0", 90);
	p = count_begin;
	p.lanes = true;
	refused(p, -EINVAL, "no lane mode", 90);
	p = count_begin;
	p.hook = 32;
	refused(p, -EINVAL, "not a program of begin or end", 90);
	p = count_begin;
	p.text = ".func p_f0 (.param .b64 env, .param .b32 arg_0_4)\n{\nret;\n}\n";
	refused(p, -ENOTSUP, "arguments of the kernel", 90);
	p.text = ".func p_f0 (.param .b64 env)\n{\nexit;\n}\n";
	refused(p, -EINVAL, "may not end", 90);
}

/* The blocks that no other has followed; a record is taken before the programs run for it. */
static void the_last_blocks_are_reported_between_kernel_and_end(void **state)
{
	static const struct ptx_probe late = {
		.hook = 35,
		.fields = FIELD(3) | FIELD(17) | FIELD(18),
		.name = "l",
		.text = ".func l_f0 (.param .b64 env, .param .b64 block, .param .b32 slot, "
			".param .b32 sm)\n{\nret;\n}\n",
	};
	const struct ptx_probe both[] = { late, count_end };
	struct result t = make(both, 2, 90);
	struct ptx_module *m = NULL;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(t.err, 0);
	assert_int_equal(ptx_module_parse(&m, t.text.data, t.text.len, "brackets", &r), 0);
	assert_non_null(ptx_module_function(m, PTX_BRACKET_LATE));
	assert_true(t.parts.late && t.parts.end && !t.parts.begin && !t.parts.keeps_time);
	assert_true(has(&t, "mov.u64 %gbpf$f3, %gbpf$block;"));
	assert_true(has(&t, "mov.u32 %gbpf$f17, %gbpf$warp;"));
	assert_true(has(&t, "mov.u32 %gbpf$f18, %gbpf$sm;"));
	assert_true(strstr(buf_text(&t.text), "atom.global.cas.b64") <
		    strstr(buf_text(&t.text), "call l_f0"));
	assert_false(has(&t, "$gbpf$counted")); /* `end` counts */
	ptx_module_free(m);
	report_finish(&r);
	done(&t);
	t = make(&late, 1, 90);
	assert_true(t.err == 0 && t.parts.late && !t.parts.end);
	assert_true(has(&t, "$gbpf$counted"));
	assert_false(has(&t, "membar"));
	done(&t);
}

/* The time is read before the record is taken: then a block may begin in the place. */
static void the_last_blocks_have_their_begin(void **state)
{
	static const struct ptx_probe late = {
		.hook = 35,
		.fields = FIELD(27),
		.name = "l",
		.text = ".func l_f0 (.param .b64 env, .param .b64 begin)\n{\nret;\n}\n",
	};
	struct result t = make(&late, 1, 90);
	const char *text = buf_text(&t.text);

	(void)state;
	assert_true(t.err == 0 && !t.parts.keeps_time);
	assert_true(has(&t, "ld.volatile.global.u64 %gbpf$begin, [%gbpf$slot+131072];"));
	assert_true(has(&t, "mov.u64 %gbpf$f27, %gbpf$begin;"));
	assert_true(strstr(text, "+131072]") < strstr(text, "membar.gl"));
	assert_true(strstr(text, "membar.gl") < strstr(text, "atom.global.cas.b64"));
	done(&t);
}

/* They run in no kernel of the program. */
static void a_form_has_no_such_program(void **state)
{
	static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				   ".visible .entry k()\n{\nret;\n}\n";
	struct ptx_module *m = NULL;
	struct ptx_probed form;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, text, strlen(text), "k", &r), 0);
	assert_int_equal(ptx_probe_rewrite(m, "k", &count_begin, 1, &form, &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "before or behind the launch"));
	ptx_module_free(m);
	report_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_those_that_programs_need),
		cmocka_unit_test(fields_come_from_the_argument),
		cmocka_unit_test(maps_are_read_from_the_environment),
		cmocka_unit_test(control_words_are_those_of_the_launch),
		cmocka_unit_test(cancellation_stands_between_slot_and_programs),
		cmocka_unit_test(what_is_no_bracket_is_refused),
		cmocka_unit_test(the_last_blocks_are_reported_between_kernel_and_end),
		cmocka_unit_test(the_last_blocks_have_their_begin),
		cmocka_unit_test(a_form_has_no_such_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
