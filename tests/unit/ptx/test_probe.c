/* The probe pass: what a slice consists of, the table, what is refused and where, and the contract
 * of programs. Probed forms run in tests/unit/exec. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx/block.h"
#include "ptx/probe.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define REGS ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
#define BEGIN ".visible .entry k(.param .u64 k_p)\n{\n" REGS
#define ENTRY(body) BEGIN body "ret;\n}\n"
#define NO_FIELDS ".func g_f0 (.param .b64 env)\n{\nret;\n}\n"
#define BLOCK_ENTER 34
#define BLOCK_EXIT 35

static const struct ptx_probe counter = { .hook = BLOCK_ENTER, .name = "g", .text = NO_FIELDS };

struct result {
	struct ptx_probed p;
	struct report r;
	int err;
};

static void rewrite(struct result *t, const char *text, const struct ptx_probe *probes, uint32_t n)
{
	struct ptx_module *m = NULL;

	memset(t, 0, sizeof(*t));
	report_init(&t->r);
	assert_int_equal(ptx_module_parse(&m, text, strlen(text), "t", &t->r), 0);
	t->err = ptx_probe_rewrite(m, "k", probes, n, &t->p, &t->r);
	if (t->err && !t->r.message.len) {
		fail_msg("refused without a reason:\n%s", text);
	}
	ptx_module_free(m);
}

static void done(struct result *t)
{
	ptx_probed_finish(&t->p);
	report_finish(&t->r);
}

static bool has(const struct result *t, const char *part)
{
	return strstr(buf_text(&t->p.text), part) != NULL;
}

/* The result must be a module that parses. */
static struct ptx_module *parsed(const struct result *t)
{
	struct ptx_module *m = NULL;
	struct report r;

	report_init(&r);
	if (ptx_module_parse(&m, t->p.text.data, t->p.text.len, "form", &r) < 0) {
		fail_msg("%s: %s\n%s", buf_text(&r.place), buf_text(&r.message),
			 buf_text(&t->p.text));
	}
	report_finish(&r);
	return m;
}

static unsigned count(const struct ptx_module *m, enum ptx_item_kind kind)
{
	unsigned n = 0;

	ptx_each (&m->items, it) {
		n += it->kind == kind;
	}
	return n;
}

/* Whether a module that was prepared at load would not be refused. */
static bool is_late(const char *message)
{
	return strstr(message, "calls through a pointer") == message ||
	       strstr(message, "address of function") || strstr(message, "inside a body,");
}

/* As the seventh line of the text; wanted: part of the message, or NULL. */
static void assert_line(const char *line, const char *wanted)
{
	char text[2048];
	struct result t;

	snprintf(text, sizeof(text), "%s%s\nret;\n}\n", HEAD BEGIN, line);
	rewrite(&t, text, &counter, 1);
	if (!wanted) {
		if (t.err) {
			fail_msg("%s: %s\n%s", line, buf_text(&t.r.message), text);
		}
		ptx_module_free(parsed(&t));
	} else {
		assert_int_equal(t.err, -ENOTSUP);
		if (!strstr(buf_text(&t.r.message), wanted) ||
		    strcmp(buf_text(&t.r.place), "t:7") != 0 ||
		    !strstr(buf_text(&t.r.hint), "entry stub") ||
		    !strstr(buf_text(&t.r.hint), "--probes") == is_late(buf_text(&t.r.message))) {
			fail_msg("%s: %s: %s", line, buf_text(&t.r.place), buf_text(&t.r.message));
		}
	}
	done(&t);
}

/* ---- slices ---- */

#define WIDE                                                                                       \
	".global .align 4 .u32 unused;\n.visible .global .align 8 .u64 second;\n"                  \
	".const .align 4 .b8 first[16] = {1, 2};\n.shared .align 4 .b8 tile[64];\n"                \
	".shared .b32 other_tile;\n.extern .shared .align 16 .b8 dyn[];\n"                         \
	".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"                   \
	".extern .func elsewhere();\n"                                                             \
	".func helper();\n.func lonely()\n{\nret;\n}\n"                                            \
	".func deep()\n{\n.reg .b32 %r;\nld.global.u32 %r, [second+4];\nret;\n}\n"                 \
	".visible .entry other()\n{\nret;\n}\n"

static void a_slice_has_what_the_entry_reaches(void **state)
{
	struct result t;
	struct ptx_module *m;

	(void)state;
	rewrite(&t,
		HEAD WIDE ENTRY(
			"ld.const.u8 %r1, [first+3];\ncall helper;\n"
			"st.shared.u32 [tile], %r1;\nmov.u64 %d1, dyn;\n") ".func "
									   "helper()\n{\ncall "
									   "deep;\nret;\n}\n",
		&counter, 1);
	assert_int_equal(t.err, 0);
	m = parsed(&t);
	assert_int_equal(count(m, PTX_FUNCTION), 4); /* helper twice, deep, k */
	assert_int_equal(count(m, PTX_VARIABLE), 3); /* table, tile, dyn */
	assert_int_equal(t.p.n_variables, 2);
	assert_string_equal(t.p.variables[0], "first");
	assert_string_equal(t.p.variables[1], "second");
	assert_int_equal(t.p.sites[0], 1);
	assert_true(has(&t, ".visible .const .align 8 .b64 gbpf$table[3];\n"));
	assert_false(has(&t, "lonely") || has(&t, "other") || has(&t, "unused") ||
		     has(&t, "vprintf") || has(&t, "elsewhere"));
	ptx_module_free(m);
	done(&t);
}

static void variables_become_addresses(void **state)
{
	struct result t;

	(void)state;
	rewrite(&t,
		HEAD ".global .u64 v;\n.const .u32 c;\n" ENTRY(
			"@%p1 ld.const.u32 %r1, [c];\nmov.u64 %d1, v+8;\n"
			"cvta.const.u64 %d2, %d3;\nld.const.u32 %r2, [%d4];\n"
			"st.global.v2.u64 [v+16], {%d1, %d2};\n"),
		&counter, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "ld.const.b64 %probe0_v0, [gbpf$table+8];\n"
			    "\t@%p1 ld.global.u32 %r1, [%probe0_v0];\n"));
	assert_true(has(&t, "ld.const.b64 %probe0_v0, [gbpf$table+16];\n"
			    "\tadd.s64 %probe0_v0, %probe0_v0, 8;\n"
			    "\tmov.u64 %d1, %probe0_v0;\n"));
	assert_true(has(&t, "\tcvta.global.u64 %d2, %d3;\n\tld.global.u32 %r2, [%d4];\n"));
	assert_true(has(&t, "\tst.global.v2.u64 [%probe0_v0+16], {%d1, %d2};\n"));
	done(&t);
}

static void names_of_a_body_hide_those_of_the_module(void **state)
{
	struct result t;

	(void)state;
	rewrite(&t,
		HEAD ".global .u64 k_p;\n.global .u64 v;\n.global .u64 L;\n" ENTRY(
			"{ .shared .u64 v; ld.shared.u64 %d1, [v]; bra L; L: }\n"
			"ld.param.u64 %d1, [k_p];\nld.global.u64 %d1, [v];\n"),
		&counter, 1);
	assert_int_equal(t.err, 0);
	assert_int_equal(t.p.n_variables, 1);
	assert_true(has(&t, "\tld.shared.u64 %d1, [v];\n"));
	assert_true(has(&t, "\tld.param.u64 %d1, [k_p];\n"));
	done(&t);
}

static void line_information_stays_and_debug_sections_go(void **state)
{
	struct result t;

	(void)state;
	rewrite(&t,
		".version 6.0\n.target sm_90, debug\n.address_size 64\n" ENTRY(
			".loc 1 20 3, function_name $L__s0, inlined_at 1 7 1\n") ".file 1 "
										 "\"a.cu\"\n."
										 "section "
										 ".debug_str\n{\n$"
										 "L__s0:\n.b8 "
										 "95\n}\n"
										 ".section "
										 ".debug_info\n{\n."
										 "b64 "
										 "$L__begin\n}\n",
		&counter, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, ".version 6.2\n.target sm_90\n") && t.p.version_raised);
	assert_true(has(&t, ".loc 1 20 3, function_name $L__s0, inlined_at 1 7 1\n"));
	assert_true(has(&t, ".file 1 \"a.cu\"\n") && has(&t, "$L__s0:"));
	assert_false(has(&t, "debug_info"));
	done(&t);
}

static void what_cannot_be_sliced_is_refused(void **state)
{
	(void)state;
	assert_line("mov.u32 %r1, %ctaid.x; bar.sync 0; @%p1 exit;", NULL);
	assert_line("call (%r1), %d1, (%r2), proto;", "through a pointer");
	assert_line("@%p1 call %d1, proto; proto: .callprototype _ ();", "through a pointer");
	assert_line(".global .u32 inside;", "inside a body");
	assert_line(".const .u32 inside;", "inside a body");
	assert_line(".newthing 5;", "unknown directive");
	assert_line("ld.const.u32 %r1, [16];", "at a number");
	assert_line(".shared .u32 inside; .local .u32 own; .pragma \"nounroll\";", NULL);
}

static void what_a_name_means_may_be_refused(void **state)
{
	static const struct {
		const char *top, *use, *why;
	} cases[] = {
		{ ".extern .global .u32 x;", "ld.global.u32 %r1, [x];", "of another module" },
		{ ".common .global .u32 x;", "ld.global.u32 %r1, [x];", "common" },
		{ ".weak .global .u32 x;", "ld.global.u32 %r1, [x];", NULL },
		{ ".global .attribute(.managed) .u32 x;", "ld.global.u32 %r1, [x];", NULL },
		{ ".const[2] .u32 x;", "ld.const.u32 %r1, [x];", "bank" },
		{ ".global .texref x;", "tex.1d.v4.u32.s32 {%r1,%r2,%r3,%r4}, [x, {%r5}];",
		  "texture" },
		{ ".global .u32 x;", "mov.u32 %r1, x;", "less than 64 bits" },
		{ ".func x() { ret; }", "mov.u64 %d1, x;", "address of function" },
		{ ".func x() { ret; }", "call x;", NULL },
		{ ".extern .func x();", "call x;", "function of another module" },
		{ ".extern .func x(); .func y() { ret; } .alias x, y;", "call x;", "alias" },
		{ ".extern .func cudaDeviceSynchronize();", "call cudaDeviceSynchronize;",
		  "launches kernels" },
		{ ".entry x() { ret; }", "call x;", "is a kernel" },
		{ ".extern .func free(.param .b64 a);",
		  "{ .param .b64 a; st.param.b64 [a], %d1; call free, (a); }", NULL },
		{ ".const .u32 x;", "ld.const.u32 %r1, [x]; isspacep.global %p1, %d1;",
		  "tells constant" },
		{ ".global .u32 x;", "ld.global.u32 %r1, [x]; isspacep.global %p1, %d1;", NULL },
		{ ".func x() { exit; }", "call x;", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct result t;
		char text[2048];

		snprintf(text, sizeof(text), "%s%s\n%s%s\nret;\n}\n", HEAD, cases[i].top, BEGIN,
			 cases[i].use);
		rewrite(&t, text, &counter, 1);
		if (t.err != (cases[i].why ? -ENOTSUP : 0) ||
		    (cases[i].why && !strstr(buf_text(&t.r.message), cases[i].why))) {
			fail_msg("%s: %d %s", text, t.err, buf_text(&t.r.message));
		}
		if (t.err == 0) {
			ptx_module_free(parsed(&t));
		} else {
			assert_string_equal(buf_text(&t.r.place), "t:8");
		}
		done(&t);
	}
}

static void a_module_may_be_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
	} cases[] = {
		{ ".version 4.0\n.target sm_30\n.address_size 64\n" ENTRY(""), -ENOTSUP },
		{ ".version 4.1\n.target sm_30\n.address_size 64\n" ENTRY(""), 0 },
		{ ".version 9.9\n.target sm_90\n.address_size 64\n" ENTRY(""), 0 },
		{ ".version 10.0\n.target sm_90\n.address_size 64\n" ENTRY(""), -ENOTSUP },
		{ ".version 8.0\n.target sm_90\n.address_size 32\n" ENTRY(""), -ENOTSUP },
		{ HEAD ".newthing 5;\n" ENTRY(""), -ENOTSUP },
		{ HEAD ".visible .entry j() { ret; }", -ENOENT },
		{ HEAD ".func k() { ret; }", -ENOENT },
		{ HEAD ".global .u32 k;", -ENOENT },
		{ HEAD ".const .u32 gbpf$table;" ENTRY(""), -ENOTSUP },
		{ HEAD ".func g_f0() { ret; }" ENTRY(""), -EINVAL },
		{ HEAD ".func f() { ret; } .func f() { ret; }" ENTRY(""), -ENOTSUP },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct result t;

		rewrite(&t, cases[i].text, &counter, 1);
		if (t.err != cases[i].err) {
			fail_msg("%d: %s\n%s", t.err, buf_text(&t.r.message), cases[i].text);
		}
		done(&t);
	}
}

/* ---- programs ---- */

static void a_program_keeps_its_contract(void **state)
{
	static const struct {
		struct ptx_probe probe;
		int err;
	} cases[] = {
		{ { .hook = 34, .name = "g", .text = NO_FIELDS }, 0 },
		{ { .hook = 34, .name = "g", .text = NO_FIELDS NO_FIELDS }, -EINVAL },
		{ { .hook = 34, .name = "h", .text = NO_FIELDS }, -EINVAL },
		{ { .hook = 34, .name = "", .text = NO_FIELDS }, -EINVAL },
		{ { .hook = 34, .name = "g", .text = NO_FIELDS, .fields = 1 }, -EINVAL },
		{ { .hook = 34, .name = "g", .text = NO_FIELDS, .lanes = true }, -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .fields = UINT64_C(1) << 25,
		    .text = ".func g_f0 (.param .b64 e, .param .b64 x) { ret; }" },
		  -EINVAL }, /* it has 25 */
		{ { .hook = 34,
		    .name = "g",
		    .fields = 1 << 3 | 1 << 6,
		    .text = ".func g_f0 (.param .b64 e, .param .b64 block, .param .b32 z) { ret; "
			    "}" },
		  0 },
		{ { .hook = 34,
		    .name = "g",
		    .fields = 1 << 3 | 1 << 6,
		    .text = ".func g_f0 (.param .b64 e, .param .b32 block, .param .b32 z) { ret; "
			    "}" },
		  -EINVAL },
		{ { .hook = 5, .name = "g", .text = NO_FIELDS }, -EINVAL },
		{ { .hook = 99, .name = "g", .text = NO_FIELDS }, -EINVAL },
		{ { .hook = 34, .name = "g", .text = ".func g_f0 (.param .b64 e) { exit; }" },
		  -EINVAL },
		{ { .hook = 34, .name = "g", .text = ".func g_f0 (.param .b64 e) { bar.sync 0; }" },
		  -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; mov.u32 a, %ctaid.x; }" },
		  -EINVAL },
		{ { .hook = 32,
		    .lanes = true,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; .reg .pred p; "
			    "vote.sync.ballot.b32 a, p, 1; ret; }" },
		  0 },
		{ { .hook = 32,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; .reg .pred p; "
			    "vote.sync.ballot.b32 a, p, 1; ret; }" },
		  -EINVAL },
		{ { .hook = 32,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; .reg .pred p; "
			    "vote.ballot.b32 a, p; ret; }",
		    .lanes = true },
		  -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e, .param .b64 map1) { ret; }" },
		  0 },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e, .param .b64 map64) { ret; }" },
		  -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e, .param .b32 map1) { ret; }" },
		  -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e, .param .b64 map2, .param .b64 map1) { ret; "
			    "}" },
		  -EINVAL },
		{ { .hook = 32,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; "
			    "match.any.sync.b32 a, 0, 1; ret; }" },
		  -EINVAL },
		{ { .hook = 32,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .reg .b32 a; "
			    "redux.sync.add.u32 a, 0, 1; ret; }" },
		  -EINVAL },
		{ { .hook = 34,
		    .name = "g",
		    .text = ".func g_f0 (.param .b64 e) { .shared .b32 a; ret; }" },
		  -EINVAL },
		{ { .hook = 34, .name = "g", .text = ".global .u32 g_v;" NO_FIELDS }, -EINVAL },
		{ { .hook = 34, .name = "g", .text = ".version 9.0\n" NO_FIELDS }, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct result t;

		rewrite(&t, HEAD ENTRY(""), &cases[i].probe, 1);
		if (t.err != cases[i].err) {
			fail_msg("case %zu: %d: %s", i, t.err, buf_text(&t.r.message));
		}
		done(&t);
	}
}

static void programs_fit_older_targets(void **state)
{
	static const char text[] =
		"\n.reg .b64 %a, %b;\n"
		"red.relaxed.gpu.global.add.u64 [%a], 1;\nfence.sc.sys;\n"
		"atom.acq_rel.sys.cas.b64 %b, [%a], 1, 2;\nld.relaxed.sys.u64 %b, [%a];\n"
		"{ st.relaxed.gpu.global.u64 [%a], %b; }\nadd.s64 %a, %a, 1;\nret;\n}\n";
	static const struct {
		const char *target, *wanted;
	} cases[] = {
		{ "sm_70", "red.relaxed.gpu.global.add.u64 [%a], 1;" },
		{ "sm_61", "\tred.gpu.global.add.u64 [%a], 1;\n\tmembar.sys;\n"
			   "\tatom.sys.cas.b64 %b, [%a], 1, 2;\n\tmembar.sys;\n"
			   "\tld.volatile.u64 %b, [%a];\n\t{\n"
			   "\tst.volatile.global.u64 [%a], %b;\n\t}\n\tadd.s64 %a, %a, 1;\n" },
		{ "sm_52", "\tred.global.add.u64 [%a], 1;\n\tmembar.sys;\n"
			   "\tatom.cas.b64 %b, [%a], 1, 2;\n\tmembar.sys;\n" },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const size_t k = i / 2;
		struct ptx_probe probe = { .hook = BLOCK_ENTER, .name = "g" };
		char module[2048], program[2048];
		struct result t;

		/* One with a stack in memory is called. */
		snprintf(program, sizeof(program), ".func g_f0 (.param .b64 env)\n{\n%s%s",
			 i % 2 ? ".local .b64 stack;" : "", text);
		probe.text = program;
		snprintf(module, sizeof(module), ".version 6.0\n.target %s\n.address_size 64\n%s",
			 cases[k].target, ENTRY(""));
		rewrite(&t, module, &probe, 1);
		assert_int_equal(t.err, 0);
		assert_int_equal(has(&t, "call g_f0"), i % 2);
		if (!has(&t, cases[k].wanted) || !has(&t, cases[k].target)) {
			fail_msg("%s: %s", cases[k].target, buf_text(&t.p.text));
		}
		ptx_module_free(parsed(&t));
		done(&t);
	}
}

static void several_probes_have_different_names(void **state)
{
	struct ptx_probe two[2] = { counter, counter };
	struct result t;

	(void)state;
	rewrite(&t, HEAD ENTRY(""), two, 2);
	assert_int_equal(t.err, -EINVAL);
	done(&t);
	two[1].name = "h";
	two[0].text = ".func g_f0 (.param .b64 env)\n{\nmembar.gl;\n}\n";
	two[1].text = ".func h_f0 (.param .b64 env)\n{\nmembar.cta;\n}\n";
	rewrite(&t, HEAD ".global .u32 x;" ENTRY("ld.global.u32 %r1, [x];\n"), two, 2);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "gbpf$table[3]") && has(&t, "[gbpf$table+16]"));
	assert_true(has(&t, "ld.const.b64 %probe0_e, [gbpf$table+8];"));
	assert_true(strstr(strstr(t.p.text.data, "membar.gl"), "membar.cta") != NULL);
	done(&t);
	rewrite(&t, HEAD ENTRY(""), two, 0);
	assert_int_equal(t.err, -EINVAL);
	done(&t);
}

/* ---- programs as part of a body ---- */

static struct result with_program(const char *program, const char *body)
{
	struct ptx_probe probe = { .hook = 38, .name = "g", .text = program };
	char text[4096];
	struct result t;

	snprintf(text, sizeof(text), "%s%sret;\n}\n", HEAD BEGIN, body);
	rewrite(&t, text, &probe, 1);
	return t;
}

static void programs_become_part_of_the_body(void **state)
{
	struct ptx_probe probe = { .hook = 34, .name = "g", .fields = 1u << 3 };
	struct result t;

	(void)state;
	probe.text = ".func g_f0 (.param .b64 env, .param .b64 block)\n{\n"
		     ".reg .pred %p; .reg .b64 %d<3>;\nld.param.b64 %d1, [env];\n"
		     "ld.param.u64 %d2, [block];\n.pragma \"nounroll\";\n"
		     "L: setp.eq.u64 %p, %d2, 7;\n@%p ret;\n@!%p bra L;\n{ .reg .b64 %d1; ret; }"
		     "\n}\n";
	rewrite(&t, HEAD ENTRY("L: bra L;\n"), &probe, 1);
	assert_int_equal(t.err, 0);
	assert_false(has(&t, "call") || has(&t, ".func") || has(&t, "g_f0") || has(&t, "pragma"));
	assert_true(has(&t, "\tmov.b64 %d1, %probe0_e;\n\tmov.b64 %d2, %probe0_f3;\n"));
	assert_true(has(&t, "\t@%p bra $probe0_end2;\n\t@!%p bra L;\n"));
	assert_true(has(&t, "\tbra $probe0_end2;\n\t}\n$probe0_end2:\n\t}\n"));
	ptx_module_free(parsed(&t));
	done(&t);
}

/* As part of a body each of them could mean something of the kernel's, or would not be PTX. */
static void programs_that_do_not_fit_are_called(void **state)
{
	static const struct {
		const char *body;
		bool called;
	} cases[] = {
		{ ".reg .b64 %d1; mov.u64 %d1, 0;", false },
		{ "mov.u64 %d1, 0;", true },			/* the kernel's register */
		{ "mov.u64 %d1, 0; .reg .b64 %d1;", true },	/* still */
		{ "{ .reg .b64 %d1; } mov.u64 %d1, 0;", true }, /* still */
		{ ".reg .b64 %d<2>; mov.u64 %d1, 0;", false },
		{ ".reg .b64 %d<2>; mov.u64 %d2, 0;", true },
		{ ".reg .b64 %a; ld.u64 %a, [%d1];", true },
		{ ".reg .b64 %a; mov.b64 {%r1, %r2}, %a;", true },
		{ ".reg .b64 %a; @%p1 mov.u64 %a, 0;", true },
		{ ".reg .b64 %a; mov.u64 %a, k_p;", true },
		{ ".reg .b64 %a; mov.u64 %a, gbpf$table;", true },
		{ ".reg .b32 %a; mov.u32 %a, %laneid; mov.u32 %a, %tid.x;", false },
		{ ".reg .b32 %a; mov.u32 %a, %no_register;", true },
		{ "bra L;", true }, /* the kernel's label */
		{ "L: bra L;", false },
		{ "bra L; { L: }", true },
		{ "L: L: bra L;", true },
		{ "{ L: bra L; }", true },
		{ ".reg .b64 %probe0_e, %probe1_f1;", false }, /* others are taken around it */
		{ "$probe0_1: bra $probe0_1;", false },
		{ ".local .b32 stack; st.local.u32 [stack], 0;", true },
		{ ".reg .b64 env; ld.param.u64 env, [env];", true },
		{ ".reg .b64 %a; .param .b64 env; ld.param.u64 %a, [env];", true },
		{ ".reg .b32 %a; ld.param.u32 %a, [env];", true },
		{ ".reg .b64 %a; ld.param.u64 %a, [env+0];", false },
		{ ".reg .b64 %a; ld.param.u64 %a, [env+8];", true },
		{ ".reg .b32 %a; t: .branchtargets A, B; A: B: brx.idx %a, t;", true },
		{ ".reg .b64 %a; mov.u64 %a, g_f0;", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char program[512];
		struct result t;

		snprintf(program, sizeof(program), ".func g_f0 (.param .b64 env)\n{\n%s\nret;\n}\n",
			 cases[i].body);
		t = with_program(program, "L: ld.global.u64 %d1, [%d2];\n");
		if (t.err || has(&t, "call g_f0, (probe") != cases[i].called ||
		    has(&t, ".func g_f0") != cases[i].called) {
			fail_msg("%s: %s\n%s", cases[i].body, buf_text(&t.r.message),
				 buf_text(&t.p.text));
		}
		done(&t);
	}
}

/* The functions that the root calls remain functions. */
static void subprograms_are_called(void **state)
{
	struct result t =
		with_program(".func g_f1 (.param .b64 x);\n.func g_f0 (.param .b64 env)\n{\n"
			     "{ .reg .b64 %a; .param .b64 q; ld.param.b64 %a, [env];\n"
			     "st.param.b64 [q], %a;\ncall g_f1, (q); }\n}\n"
			     ".func g_f1 (.param .b64 x)\n{\nret;\n}\n",
			     "ld.global.u64 %d1, [%d2];\n");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(
		has(&t, "\tmov.b64 %a, %probe0_e;\n\tst.param.b64 [q], %a;\n\tcall g_f1, (q);"));
	assert_true(has(&t, ".func g_f1 (.param .b64 x)\n{"));
	assert_false(has(&t, "call g_f0"));
	ptx_module_free(parsed(&t));
	done(&t);
}

static unsigned occurrences(const struct result *t, const char *part)
{
	unsigned n = 0;

	for (const char *at = buf_text(&t->p.text); (at = strstr(at, part)); at++) {
		n++;
	}
	return n;
}

/* Parameters mapN are between the environment and the fields. */
#define WITH_MAPS                                                                                  \
	".func g_f0 (.param .b64 env, .param .b64 map2, .param .b64 map63, .param .b64 clock)\n"   \
	"{\n%s.reg .b64 %%a, %%b, %%c;\nld.param.u64 %%c, [clock];\nld.param.u64 %%a, [map2];\n"   \
	"ld.param.u64 %%b, [map63];\nret;\n}\n"

static struct result with_maps(const char *first, bool in_table)
{
	struct ptx_probe probes[2] = { { .hook = 34, .name = "h", .text = "" },
				       { .hook = 34, .name = "g", .fields = 1 } };
	char text[512];
	struct result t;

	snprintf(text, sizeof(text), WITH_MAPS, first);
	probes[0].text = ".func h_f0 (.param .b64 env, .param .b64 map0)\n{\n"
			 ".reg .b64 %a; ld.param.u64 %a, [map0];\n}\n";
	probes[1].text = text;
	probes[0].maps_in_table = probes[1].maps_in_table = in_table;
	probes[0].branches = probes[1].branches = PTX_PROBE_BRANCHES;
	rewrite(&t, HEAD ".global .u32 x;" ENTRY("ld.global.u32 %r1, [x];\n"), probes, 2);
	assert_int_equal(t.err, 0);
	ptx_module_free(parsed(&t));
	return t;
}

static void maps_are_in_the_table(void **state)
{
	struct result t = with_maps("", true);

	(void)state;
	assert_true(has(&t, "gbpf$table[6]"));
	assert_int_equal(t.p.n_maps, 3);
	assert_int_equal(t.p.maps[0].probe, 0);
	assert_int_equal(t.p.maps[0].map, 0);
	assert_int_equal(t.p.maps[1].probe, 1);
	assert_int_equal(t.p.maps[1].map, 2);
	assert_int_equal(t.p.maps[2].probe, 1);
	assert_int_equal(t.p.maps[2].map, 63);
	assert_true(has(&t, "\tld.const.b64 %a, [gbpf$table+24];\n"
			    "\tadd.s64 %a, %a, %probe0_zero;\n"));
	assert_true(has(&t, "\tmov.b64 %c, %probe0_f0;\n\tld.const.b64 %a, [gbpf$table+32];\n"
			    "\tadd.s64 %a, %a, %probe0_zero;\n"
			    "\tld.const.b64 %b, [gbpf$table+40];\n"));
	done(&t);
	t = with_maps(".local .b32 stack;", true);
	assert_true(has(&t,
			"\tld.const.b64 %probe0_d, [gbpf$table+40];\n"
			"\tadd.s64 %probe0_d, %probe0_d, %probe0_zero;\n\t.param .b64 probe0_m1;\n"
			"\tst.param.b64 [probe0_m1], %probe0_d;\n"));
	assert_true(has(&t, "\tcall g_f0, (probe0_e, probe0_m0, probe0_m1, probe0_a0);\n"));
	done(&t);
}

static void maps_are_in_the_environment(void **state)
{
	struct result t = with_maps("", false);

	(void)state;
	assert_true(has(&t, "gbpf$table[3]"));
	assert_int_equal(t.p.n_maps, 0);
	assert_true(has(&t, "\tcvta.to.global.u64 %b, %probe0_e;\n"
			    "\tld.global.nc.b64 %b, [%b+504];\n"));
	done(&t);
}

/* The programs of with_maps(). */
static void maps_may_be_constants(void **state)
{
	uint64_t at[PTX_PROBE_MAPS_MAX] = { [0] = 0x7000, [2] = 0x7f0012345600, [63] = 0xfff0 };
	char text[512];
	struct ptx_probe probes[2] = {
		{ .hook = 34,
		  .name = "h",
		  .text = ".func h_f0 (.param .b64 env, .param .b64 map0)\n{\n"
			  ".reg .b64 %a; ld.param.u64 %a, [map0];\n}\n",
		  .branches = PTX_PROBE_BRANCHES,
		  .maps_in_table = true },
		{ .hook = 34,
		  .name = "g",
		  .fields = 1,
		  .text = text,
		  .branches = PTX_PROBE_BRANCHES,
		  .maps_in_table = true,
		  .map_at = at,
		  .env_at = 0x7f0000001000,
		  .text_max = 16384 },
	};

	(void)state;
	for (unsigned called = 0; called < 2; called++) {
		struct result t;

		probes[1].text_max = 16384;
		snprintf(text, sizeof(text), WITH_MAPS, called ? ".local .b32 stack;" : "");
		rewrite(&t, HEAD ENTRY(""), probes, 2);
		assert_int_equal(t.err, 0);
		ptx_module_free(parsed(&t));
		assert_true(has(&t, "gbpf$table[3]"));
		assert_int_equal(t.p.n_maps, 1);
		assert_int_equal(t.p.maps[0].probe, 0);
		assert_true(has(&t, "\tld.const.b64 %a, [gbpf$table+16];\n"));
		assert_true(has(&t, called ? "\tadd.s64 %probe0_d, %probe0_zero, 0x7f0012345600;\n"
					   : "\tadd.s64 %a, %probe0_zero, 0x7f0012345600;\n"
					     "\tadd.s64 %b, %probe0_zero, 0xfff0;\n"));
		assert_true(has(&t, "\tmov.b64 %probe0_e, 0x7f0000001000;\n"));
		assert_true(t.p.has_addresses);
		done(&t);
		probes[1].text_max = 16;
		rewrite(&t, HEAD ENTRY(""), probes, 2);
		assert_int_equal(t.err, 0);
		assert_true(has(&t, "gbpf$table[5]"));
		assert_false(has(&t, "0x7f0012345600"));
		assert_false(t.p.has_addresses);
		done(&t);
	}
}

/* The address of a kernel's control words is one more, in front of those of maps. */
static void control_words_have_an_address_of_their_own(void **state)
{
	uint64_t at[PTX_PROBE_ADDRESSES] = { [2] = 0x7700, [PTX_PROBE_CONTROL] = 0x8800 };
	struct ptx_probe probe = {
		.hook = 34,
		.name = "g",
		.fields = 1,
		.text = ".func g_f0 (.param .b64 env, .param .b64 control, .param .b64 map2, "
			".param .b64 clock)\n{\n.reg .b64 %a, %b, %c;\nld.param.u64 %a, "
			"[control];\nld.param.u64 %b, [map2];\nld.param.u64 %c, "
			"[clock];\nret;\n}\n",
		.branches = PTX_PROBE_BRANCHES,
		.maps_in_table = true,
	};
	struct result t;

	(void)state;
	rewrite(&t, HEAD ENTRY(""), &probe, 1);
	assert_int_equal(t.err, 0);
	assert_int_equal(t.p.n_maps, 2);
	assert_int_equal(t.p.maps[0].map, PTX_PROBE_CONTROL);
	assert_int_equal(t.p.maps[1].map, 2);
	assert_true(has(&t, "\tld.const.b64 %a, [gbpf$table+8];\n"));
	assert_true(has(&t, "\tld.const.b64 %b, [gbpf$table+16];\n"));
	assert_true(has(&t, "\tmov.b64 %c, %probe0_f0;\n"));
	done(&t);
	probe.map_at = at;
	probe.env_at = 0x1000;
	probe.text_max = 16384;
	rewrite(&t, HEAD ENTRY(""), &probe, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tadd.s64 %a, %probe0_zero, 0x8800;\n"
			    "\tadd.s64 %b, %probe0_zero, 0x7700;\n"));
	done(&t);
	probe.map_at = NULL;
	probe.maps_in_table = false;
	rewrite(&t, HEAD ENTRY(""), &probe, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tmov.b64 %a, %probe0_e;\n"));
	done(&t);
}

/* 1025 instructions fit three times. */
static void long_programs_are_called_beyond_a_bound(void **state)
{
	struct buf text = { 0 };
	struct result t;

	(void)state;
	buf_puts(&text, ".func g_f0 (.param .b64 env)\n{\n");
	for (unsigned i = 0; i < 1024; i++) {
		buf_puts(&text, "membar.cta;\n");
	}
	buf_puts(&text, "ret;\n}\n");
	t = with_program(buf_text(&text), "ld.global.u64 %d1, [%d2];\nld.global.u64 %d1, [%d2];\n"
					  "ld.global.u64 %d1, [%d2];\nld.global.u64 %d1, [%d2];\n"
					  "ld.global.u64 %d1, [%d2];\n");
	assert_int_equal(t.err, 0);
	assert_int_equal(t.p.sites[0], 5);
	assert_int_equal(occurrences(&t, "call g_f0"), 2);
	assert_int_equal(occurrences(&t, "membar.cta;"), 4 * 1024); /* and the function */
	done(&t);
	buf_finish(&text);
}

/* ---- sites ---- */

#define BODY                                                                                       \
	".loc 1 10 1\nld.global.u32 %r1, [%d1];\n@!%p1 st.shared.v2.u64 [%r2+8], {%d1, %d2};\n"    \
	".loc 1 11 1\natom.add.u32 %r1, [%d1], 1;\nld.global.nc.v4.f32 {%r1,%r2,%r3,%r4}, "        \
	"[%d1];\n"                                                                                 \
	".loc 1 11 9\nred.global.add.u64 [%d1], %d2;\ncall helper;\n"                              \
	"cp.async.cg.shared.global [%r1], [%d1], 16;\n"                                            \
	"cp.async.commit_group;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, "     \
	"[%r5];\n"                                                                                 \
	"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], %r2, "    \
	"[%r3];\n"                                                                                 \
	"cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 64;\n"                          \
	"cp.async.bulk.wait_group 0;\n"                                                            \
	"mbarrier.init.shared.b64 [%r1], 1;\n"                                                     \
	"mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;\n"                                     \
	"@%p1 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;\n"                         \
	"mbarrier.test_wait.shared.b64 %p1, [%r1], %d1;\n"                                         \
	"ld.param.u64 %d1, [k_p];\nprefetch.global.L2 [%d1];\n"                                    \
	"fence.acq_rel.cta;\nmembar.sys;\n@%p1 bar.sync 0;\nbarrier.cta.arrive 1, 64;\n"           \
	"bar.warp.sync -1;\n@%p1 bra L;\nbra L;\n.loc 1 10 1\nL: .loc 1 10 1\n"

/* Returns the number of sites; -1: refused. */
static int sites_of(uint32_t hook, const char *filter)
{
	struct ptx_probe probe = counter;
	struct result t;
	int n;

	probe.hook = hook;
	probe.sites = filter;
	rewrite(&t,
		HEAD ".file 1 \"src/deep/a.cu\"\n.func helper()\n{\n.reg .pred %p;\n"
		     ".local .u32 v;\nst.local.u32 [v], 1;\n@%p ret;\nret;\n}\n" ENTRY(BODY),
		&probe, 1);
	n = t.err == 0 ? (int)t.p.sites[0] : t.err == -ENOENT ? 0 : -1;
	if (t.err == 0) {
		ptx_module_free(parsed(&t));
	}
	done(&t);
	return n;
}

static void filters_select_sites(void **state)
{
	static const struct {
		uint32_t hook;
		const char *filter;
		int n;
	} cases[] = {
		{ 38, NULL, 10 },
		{ 38, "global", 6 },
		{ 38, "global.load", 2 },
		{ 38, "load.global", 2 },
		{ 38, "store", 2 },
		{ 38, "store.shared", 1 },
		{ 38, "local", 1 },
		{ 38, "atomic", 2 },
		{ 38, "generic.atomic", 1 },
		{ 38, "async", 1 },
		{ 38, "bulk", 2 },
		{ 38, "matrix", 1 },
		{ 38, "16", 4 },
		{ 38, "16.load", 1 },
		{ 38, "constant", 0 },
		{ 38, "#0", 1 },
		{ 38, "#9", 1 },
		{ 38, "#10", 0 },
		{ 38, "a.cu:10", 2 },
		{ 38, "deep/a.cu:11", 7 },
		{ 38, "src/deep/a.cu:10", 2 },
		{ 38, "eep/a.cu:10", 0 },
		{ 38, "b.cu:10", 0 },
		{ 38, "a.cu:12", 0 },
		{ 38, "a.cu:", -1 },
		{ 38, ":12", -1 },
		{ 38, "before", -1 },
		{ 38, "global.", -1 },
		{ 38, ".global", -1 },
		{ 38, "#", -1 },
		{ 38, "#x", -1 },
		{ 38, "4294967295", -1 },
		{ 38, "99999999999999999999", -1 },
		{ 39, "", 2 },
		{ 39, "block", 1 },
		{ 39, "system", 1 },
		{ 39, "gpu", 0 },
		{ 40, "", 10 },
		{ 40, "before", 6 },
		{ 40, "after", 4 },
		{ 40, "#0", 2 },
		{ 40, "#1", 1 },
		{ 40, "block", 3 },
		{ 40, "mbarrier", 4 },
		{ 40, "mbarrier.after", 2 },
		{ 40, "arrive", 1 },
		{ 40, "after.arrive", 0 },
		{ 40, "copies", 2 },
		{ 40, "wait", -1 },
		{ 41, "", 1 },
		{ 41, "global", -1 },
		{ 42, "", 4 }, /* 10, 11, 10, and 10 behind a label */
		{ 42, "a.cu:10", 3 },
		{ 42, "a.cu:11", 1 },
		{ 36, "", 1 },
		{ 36, "helper", 1 },
		{ 36, "h*r", 1 },
		{ 36, "h?lp*", 1 },
		{ 36, "help", 0 },
		{ 36, "k", 0 },
		{ 37, "*", 2 },
		{ 37, "#0", 1 },
		{ 33, "", 1 },
		{ 33, "a.cu:10", 1 },
		{ 34, "a.cu:10", 1 },
		{ 34, "x", -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int n = sites_of(cases[i].hook, cases[i].filter);

		if (n != cases[i].n) {
			fail_msg("hook %u, '%s': %d sites, not %d", cases[i].hook,
				 cases[i].filter ? cases[i].filter : "NULL", n, cases[i].n);
		}
	}
}

/* ---- with the block pass ---- */

static void a_form_has_a_preemptible_clone(void **state)
{
	const struct ptx_probe exits = { .hook = BLOCK_EXIT, .name = "g", .text = NO_FIELDS };
	const struct ptx_block_entry *e;
	struct ptx_module *m;
	struct result t;
	struct report r;
	struct buf out;
	uint32_t n;

	(void)state;
	report_init(&r);
	buf_init(&out);
	rewrite(&t, HEAD ENTRY("@%p1 exit;\n"), &exits, 1);
	assert_int_equal(t.err, 0);
	assert_true(t.p.needs_shared);
	assert_int_equal(t.p.sites[0], 2);
	m = parsed(&t);
	assert_int_equal(ptx_block_run(m, &e, &n, &r), 0);
	assert_int_equal(n, 1);
	assert_int_equal(e[0].why, PROTO_BLOCK_OK);
	assert_int_equal(ptx_module_print(m, &out), 0);
	/* Its own bytes follow those of the form. */
	assert_true(strstr(buf_text(&out), "mov.u32 %gbpf$bytes, %dynamic_smem_size;\n"
					   "\tsub.u32 %gbpf$bytes, %gbpf$bytes, 16;\n"));
	buf_finish(&out);
	ptx_module_free(m);
	report_finish(&r);
	done(&t);
	rewrite(&t, HEAD ENTRY("mov.u32 %r1, %total_smem_size;\n"), &exits, 1);
	assert_int_equal(t.err, -ENOTSUP);
	done(&t);
}

/* ---- arguments of the kernel ---- */

#define PARAMS                                                                                     \
	".visible .entry k(.param .u8 a, .param .align 16 .b8 b[32], .param .f32 c)\n{\n" REGS
#define WITH_ARGS(params) ".func g_f0 (.param .b64 env" params ")\n{\nret;\n}\n"

#define READER(local)                                                                              \
	".func g_f0 (.param .b64 env, .param .b64 map3, .param .b64 clock, "                       \
	".param .b32 arg_0_1, .param .b64 arg_24_8, .param .b32 arg_34_2, "                        \
	".param .b32 arg_48_4)\n{\n" local                                                         \
	".reg .b32 %a, %c, %d;\n.reg .b64 %x, %b;\nld.param.b64 %x, [clock];\n"                    \
	"ld.param.b32 %a, [arg_0_1];\nld.param.b64 %b, [arg_24_8];\n"                              \
	"ld.param.b32 %c, [arg_34_2];\nld.param.b32 %d, [arg_48_4];\nret;\n}\n"

static struct result with_reader(const char *text)
{
	const struct ptx_probe reader = {
		.hook = BLOCK_ENTER, .fields = 1, .name = "g", .text = text
	};
	struct result t;

	rewrite(&t, HEAD PARAMS "ret;\n}\n", &reader, 1);
	if (t.err) {
		fail_msg("%s", buf_text(&t.r.message));
	}
	ptx_module_free(parsed(&t));
	assert_true(has(&t, "\tld.param.u8 %probe0_r0, [a+0];\n"));
	assert_true(has(&t, "\tld.param.u64 %probe0_r1, [b+8];\n"));
	assert_true(has(&t, "\tld.param.u16 %probe0_r2, [b+18];\n"));
	assert_true(has(&t, "\tld.param.u32 %probe0_r3, [c+0];\n"));
	return t;
}

static void arguments_are_loaded_from_the_kernels_parameters(void **state)
{
	struct result t = with_reader(READER(""));

	(void)state;
	assert_true(has(&t, "\tmov.b64 %x, %probe0_f0;\n\tmov.b32 %a, %probe0_r0;\n"
			    "\tmov.b64 %b, %probe0_r1;\n\tmov.b32 %c, %probe0_r2;\n"
			    "\tmov.b32 %d, %probe0_r3;\n"));
	assert_false(has(&t, "call"));
	done(&t);
	t = with_reader(READER(".local .b32 stack;"));
	assert_true(has(&t, "\t.param .b64 probe0_q1;\n\tst.param.b64 [probe0_q1], %probe0_r1;\n"));
	assert_true(has(&t, "\tcall g_f0, (probe0_e, probe0_m0, probe0_a0, probe0_q0, probe0_q1, "
			    "probe0_q2, probe0_q3);\n"));
	done(&t);
}

/* ---- accesses that are no sites ---- */

static void accesses_that_are_no_sites_are_counted(void **state)
{
	static const char body[] =
		"ld.global.u32 %r1, [%d1];\nld.param.u64 %d1, [k_p];\n" /* line 6: a site; none */
		"prefetch.global.L2 [%d1];\nmbarrier.arrive.shared.b64 %d1, [%r1];\n"
		"cp.async.wait_all;\nwmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%r1}, {%r1}, "
		"{%r1}, {%r1};\n"
		"tex.1d.v4.f32.s32 {%r1,%r1,%r1,%r1}, [%d1, {%r1}];\n"
		"sust.b.1d.b32.trap [%d1, {%r1}], {%r2};\nsuq.width.b32 %r1, [%d1];\n"
		"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, "
		"0;\n"
		"wgmma.fence.sync.aligned;\n"
		"tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, %p1;\n"
		"tcgen05.wait::ld.sync.aligned;\n"
		"wmma.load.a.sync.aligned.row.m3n3k3.f16 {%r1}, [%d1];\n"
		"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%d1], %d2;\n"
		"st.shared.u32 [%h1], %r1;\n";
	const struct ptx_probe seen = { .hook = 38, .name = "g", .text = NO_FIELDS };
	struct result t;
	char text[4096];

	(void)state;
	snprintf(text, sizeof(text), "%s%s%s", HEAD BEGIN, body, "ret;\n}\n");
	rewrite(&t, text, &seen, 1);
	if (t.err) {
		fail_msg("%s", buf_text(&t.r.message));
	}
	assert_int_equal(t.p.sites[0], 1);
	assert_int_equal(t.p.unseen, 7);
	done(&t);
	rewrite(&t, text, &counter, 1);
	assert_int_equal(t.err, 0);
	assert_int_equal(t.p.unseen, 0);
	done(&t);
}

/* Each of the first lines may access memory without being a site; none of the others does. */
static void what_may_access_memory_is_counted(void **state)
{
	static const char body[] =
		"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], %r2;\n"
		"tcgen05.shift.cta_group::1.down [%r1];\n"
		"clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%d1], "
		"[%d2];\n"
		"multimem.cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], %r2;\n"
		"frobnicate.b32 %r1, %d1;\n" /* line 11 */
		"cp.async.mbarrier.arrive.shared.b64 [%r1];\n"
		"cp.async.bulk.prefetch.L2.global [%d1], %r1;\n"
		"tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%d1];\n"
		"tensormap.replace.tile.rank.global.b1024.b32 [%d1], 1;\n"
		"applypriority.global.L2::evict_normal [%d1], 128;\n"
		"fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;\n"
		"ld.shared.u32 %r1, [%r2];\n";
	const struct ptx_probe access = { .hook = 38, .name = "g", .text = NO_FIELDS };
	struct result t;
	char text[4096];

	(void)state;
	snprintf(text, sizeof(text), "%s%s%s", HEAD BEGIN, body, "ret;\n}\n");
	rewrite(&t, text, &access, 1);
	if (t.err) {
		fail_msg("%s", buf_text(&t.r.message));
	}
	assert_int_equal(t.p.sites[0], 1);
	assert_int_equal(t.p.unseen, 5);
	assert_int_equal(t.p.unseen_line, 7);
	assert_int_equal(t.p.unknown, 1);
	assert_int_equal(t.p.unknown_line, 11);
	assert_non_null(strstr(buf_text(&t.p.text), "frobnicate.b32 %r1, %d1;"));
	done(&t);
	rewrite(&t, text, &counter, 1);
	assert_int_equal(t.p.unseen, 0);
	assert_int_equal(t.p.unknown, 1);
	done(&t);
}

#define ADDR_FIELD 24

/* A lane has the address of a row; matrices of .m16n16 have twice as many. */
static void the_first_lanes_have_addresses_of_rows(void **state)
{
	static const struct {
		const char *insn, *lanes; /* mask; NULL: all */
	} cases[] = {
		{ "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];", ", 255;" },
		{ "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r3}, [%r2];", ", 65535;" },
		{ "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r3}, [%r2];", ", 65535;" },
		{ "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r1,%r3,%r4,%r5}, [%r2];",
		  NULL },
	};
	const struct ptx_probe access = {
		.hook = 38,
		.name = "g",
		.fields = UINT64_C(1) << ADDR_FIELD,
		.text = ".func g_f0 (.param .b64 env, .param .b64 addr)\n{\nret;\n}\n",
	};
	struct result t;
	char text[1024];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "%s%s%s", HEAD BEGIN, cases[i].insn, "ret;\n}\n");
		rewrite(&t, text, &access, 1);
		if (t.err) {
			fail_msg("%s", buf_text(&t.r.message));
		}
		if (cases[i].lanes) {
			assert_non_null(strstr(buf_text(&t.p.text), cases[i].lanes));
		} else {
			assert_null(strstr(buf_text(&t.p.text), ", 65535;"));
			assert_null(strstr(buf_text(&t.p.text), ", 255;"));
		}
		done(&t);
	}
}

static void parameters_are_read_by_number(void **state)
{
	const struct ptx_probe reader = {
		.hook = BLOCK_ENTER,
		.name = "g",
		.text = WITH_ARGS(
			", .param .b64 param_0, .param .b64 param_1, .param .b64 param_2, "
			".param .b64 param_3, .param .b32 param_bytes_1, "
			".param .b32 param_bytes_255, .param .b32 arg_0_1"),
	};
	struct result t;

	(void)state;
	rewrite(&t, HEAD PARAMS "ret;\n}\n", &reader, 1);
	if (t.err) {
		fail_msg("%s", buf_text(&t.r.message));
	}
	ptx_module_free(parsed(&t));
	assert_true(has(&t, "\tld.param.u8 %probe0_r0, [a];\n"));
	assert_true(has(&t, "\tld.param.u64 %probe0_r1, [b];\n"));
	assert_true(has(&t, "\tld.param.u32 %probe0_r2, [c];\n"));
	assert_true(has(&t, "\tmov.b64 %probe0_r3, 0;\n"));
	assert_true(has(&t, "\tmov.b32 %probe0_r4, 32;\n"));
	assert_true(has(&t, "\tmov.b32 %probe0_r5, 0;\n"));
	assert_true(has(&t, "\tld.param.u8 %probe0_r6, [a+0];\n"));
	done(&t);
	/* as many bytes as place and size allow: a at 0, b at 6, c at 16 */
	rewrite(&t,
		HEAD ".visible .entry k(.param .align 2 .b8 a[6], .param .b8 b[3], "
		     ".param .align 8 .b8 c[4])\n{\n" REGS "ret;\n}\n",
		&reader, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tld.param.u32 %probe0_r0, [a];\n"));
	assert_true(has(&t, "\tld.param.u16 %probe0_r1, [b];\n"));
	assert_true(has(&t, "\tld.param.u32 %probe0_r2, [c];\n"));
	assert_true(has(&t, "\tmov.b32 %probe0_r4, 3;\n"));
	done(&t);
}

static void arguments_that_are_not_there_are_refused(void **state)
{
	static const char *const programs[] = {
		WITH_ARGS(", .param .b32 arg_1_1"),  WITH_ARGS(", .param .b64 arg_8_8"),
		WITH_ARGS(", .param .b64 arg_48_8"), WITH_ARGS(", .param .b32 arg_52_4"),
		WITH_ARGS(", .param .b64 arg_44_8"),
	};
	struct ptx_probe reader = { .hook = BLOCK_ENTER, .name = "g" };
	struct result t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		reader.text = programs[i];
		rewrite(&t, HEAD PARAMS "ret;\n}\n", &reader, 1);
		assert_int_equal(t.err, -ENOTSUP);
		assert_non_null(strstr(buf_text(&t.r.message), "no parameter of the kernel"));
		assert_string_equal(buf_text(&t.r.place), "k");
		done(&t);
	}
	reader.text = WITH_ARGS(", .param .b32 arg_0_1");
	reader.hook = 36;
	rewrite(&t, HEAD ".func helper()\n{\nret;\n}\n" PARAMS "call helper;\nret;\n}\n", &reader,
		1);
	assert_int_equal(t.err, -ENOTSUP);
	assert_non_null(strstr(buf_text(&t.r.message), "in a device function"));
	done(&t);
	reader.hook = 38;
	rewrite(&t, HEAD PARAMS "{\n.param .b32 b;\nld.global.u32 %r1, [%d1];\n}\nret;\n}\n",
		&reader, 1);
	assert_int_equal(t.err, 0);
	done(&t);
	rewrite(&t, HEAD PARAMS "{\n.param .b32 a;\nld.global.u32 %r1, [%d1];\n}\nret;\n}\n",
		&reader, 1);
	assert_int_equal(t.err, -ENOTSUP);
	assert_non_null(strstr(buf_text(&t.r.message), "is another variable's"));
	done(&t);
}

static void parameters_that_are_no_arguments_break_the_contract(void **state)
{
	static const char *const programs[] = {
		WITH_ARGS(", .param .b64 arg_0_4"),	 WITH_ARGS(", .param .b32 arg_0_3"),
		WITH_ARGS(", .param .b32 arg_0_4x"),	 WITH_ARGS(", .param .b32 other"),
		WITH_ARGS(", .param .b32 arg_0_0"),	 WITH_ARGS(", .param .b32 param_0"),
		WITH_ARGS(", .param .b64 param_1x"),	 WITH_ARGS(", .param .b64 param_bytes_0"),
		WITH_ARGS(", .param .b32 param_bytes_"),
	};
	struct ptx_probe reader = { .hook = BLOCK_ENTER, .name = "g" };
	struct result t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		reader.text = programs[i];
		rewrite(&t, HEAD PARAMS "ret;\n}\n", &reader, 1);
		assert_int_equal(t.err, -EINVAL);
		done(&t);
	}
}

/* ---- predicates instead of branches ---- */

#define ADD "red.global.add.u64 [%e], %v;\n"
#define EIGHT(text) text text text text text text text text

/* Returns whether the program of an access has a branch around it. */
static bool has_branch(const char *program, const char *guard, bool wanted)
{
	struct ptx_probe probe = { .hook = 38,
				   .name = "g",
				   .branches = wanted ? PTX_PROBE_BRANCHES : PTX_PROBE_EITHER };
	char text[4096], kernel[512];
	struct result t;
	bool found;

	snprintf(text, sizeof(text),
		 ".func g_f0 (.param .b64 env)\n{\n.reg .b64 %%e, %%v; .reg .pred %%p, %%q;\n"
		 "ld.param.b64 %%e, [env];\nmov.b64 %%v, 1;\nsetp.eq.s64 %%p, %%e, 0;\n%sret;\n}\n",
		 program);
	snprintf(kernel, sizeof(kernel), "%s%s ld.global.u32 %%r1, [%%d1];\nret;\n}\n", HEAD BEGIN,
		 guard);
	probe.text = text;
	rewrite(&t, kernel, &probe, 1);
	assert_int_equal(t.err, 0);
	ptx_module_free(parsed(&t));
	found = has(&t, "\t@!%probe0_on bra");
	assert_int_equal(has(&t, "\t@%probe0_on red.") || has(&t, "\t@%probe0_at red."), !found);
	done(&t);
	return found;
}

static void short_programs_have_no_branches(void **state)
{
	static const struct {
		const char *program;
		bool branch;
	} cases[] = {
		{ ADD, false },
		{ "@%p bra L;\n" ADD "L:\n", false },
		{ "@%p ret;\n" ADD, false },
		{ "bra L;\nL:\n" ADD, false },
		{ "@!%p bra L;\n" ADD "bra M;\nL: add.s64 %e, %e, 8;\n" ADD "M:\n", false },
		{ "@%p mov.b64 %v, 2;\n" ADD, false },
		{ EIGHT(EIGHT("add.s64 %v, %e, 1;\n")) ADD, false }, /* all but one are not read */
		{ "L:\n" ADD "@%p bra L;\n", true },
		{ "ld.global.u64 %v, [%e];\n" ADD, true },
		{ "atom.global.add.u64 %v, [%e], 1;\n" ADD, true },
		{ "div.u64 %v, %v, %e;\n" ADD, true },
		{ "{\n" ADD "}\n", true },
		{ EIGHT(EIGHT("add.s64 %e, %e, 1;\n")) ADD, true },
		{ EIGHT("@%p bra L;\n") "@%p ret;\n" ADD "L:\n", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (has_branch(cases[i].program, "", false) != cases[i].branch) {
			fail_msg("%s", cases[i].program);
		}
	}
	assert_true(has_branch(ADD, "", true));
	assert_true(has_branch(ADD, "@%p1", false));
}

/* ---- the place at the entry ---- */

#define LEAD                                                                                       \
	".loc 1 7 1\nld.param.u64 %d1, [k_p];\n.loc 1 8 1\nmov.u32 %r1, %tid.x;\n"                 \
	"mad.lo.u32 %r2, %r1, 3, %r1;\n"

#define MARKED(params) ".func g_f0 (.param .b64 env" params ")\n{\nmembar.cta;\nret;\n}\n"
#define MARKED_READING(name)                                                                       \
	".func g_f0 (.param .b64 env)\n{\n.reg .b64 %a;\nmembar.cta;\nmov.u64 %a, " name           \
	";\nret;\n}\n"
#define LINE_FIELD 23

/* Returns whether the program stands in front of this part of the form, maybe with one of lines
 * next to it. */
static bool stands_before(const struct ptx_probe *probe, const char *body, const char *part)
{
	const struct ptx_probe line = { .hook = 42,
					.name = "l",
					.text = ".func l_f0 (.param .b64 env)\n{\nret;\n}\n" };
	struct ptx_probe probes[2] = { *probe, line };
	const char *program, *at;
	char text[1024];
	struct result t;

	snprintf(text, sizeof(text), "%s.func helper()\n{\nret;\n}\n%s%s%sret;\n}\n", HEAD, BEGIN,
		 LEAD, body);
	rewrite(&t, text, probes, probe->sites ? 2 : 1);
	assert_int_equal(t.err, 0);
	ptx_module_free(parsed(&t));
	program = strstr(buf_text(&t.p.text), "\tmembar.cta;");
	at = strstr(buf_text(&t.p.text), part);
	assert_true(program && at);
	done(&t);
	return program < at;
}

static void programs_of_the_entry_follow_computations(void **state)
{
	static const struct {
		const char *body, *part;
	} ends[] = {
		{ "ld.global.u32 %r3, [%d1];\n", "ld.global.u32 %r3" },
		{ "st.shared.u32 [%r1], %r2;\n", "st.shared.u32 [%r1]" },
		{ "@%p1 mov.u32 %r3, 0;\n", "@%p1 mov.u32 %r3" },
		{ "@%p1 bra L;\nL:\n", "@%p1 bra L" },
		{ "L: add.u32 %r3, %r3, 1;\n", "L:" },
		{ "bar.sync 0;\n", "bar.sync 0" },
		{ "{ .reg .b32 %in; }\n", ".reg .b32 %in" },
		{ "call helper;\n", "call helper" },
		{ "mov.u64 %d2, %clock64;\n", "%clock64" },
		{ "mov.u32 %r3, %smid;\n", "%smid" },
		{ "activemask.b32 %r3;\n", "activemask" },
		{ "", "\tret;" },
	};
	struct ptx_probe probe = { .hook = BLOCK_ENTER, .name = "g", .text = MARKED("") };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		assert_false(stands_before(&probe, ends[i].body, "mad.lo.u32 %r2"));
		assert_true(stands_before(&probe, ends[i].body, ends[i].part));
	}
	probe.hook = 32; /* enter */
	assert_false(stands_before(&probe, "", "mad.lo.u32 %r2"));
}

/* With times, and next to programs of lines, which may begin before it. */
static void programs_of_the_entry_may_have_to_be_first(void **state)
{
	const struct ptx_probe clock = {
		.hook = BLOCK_ENTER, .name = "g", .fields = 1, .text = MARKED(", .param .b64 clock")
	};
	struct ptx_probe probe = { .hook = BLOCK_ENTER, .name = "g" };

	(void)state;
	assert_true(stands_before(&clock, "", "ld.param.u64 %d1"));
	probe.text = MARKED_READING("%globaltimer");
	assert_true(stands_before(&probe, "", "ld.param.u64 %d1"));
	probe.text = MARKED_READING("%clock64");
	assert_true(stands_before(&probe, "", "ld.param.u64 %d1"));
	probe.text = MARKED_READING("0");
	assert_false(stands_before(&probe, "", "ld.param.u64 %d1"));
	probe.sites = ""; /* next to a program of lines */
	assert_true(stands_before(&probe, "", "ld.param.u64 %d1"));
}

static void the_line_of_the_entry_is_its_first(void **state)
{
	struct result t;
	struct ptx_probe probe = { .hook = BLOCK_ENTER,
				   .name = "g",
				   .fields = UINT64_C(1) << LINE_FIELD,
				   .text = MARKED(", .param .b32 line") };

	(void)state;
	rewrite(&t, HEAD ENTRY(LEAD), &probe, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, ", 7;\n"));
	assert_false(has(&t, ", 8;\n"));
	done(&t);
}

/* ---- places ---- */

#define ACCESS 38
#define PLACE_FIELD_OF_ACCESS 33
#define LINES                                                                                      \
	HEAD ".file 1 \"/src/deep/a.cu\"\n.file 2 \"/src/b.cu\"\n" ENTRY(                          \
		"ld.global.u32 %r1, [%d1];\n.loc 1 10 1\nld.global.u32 %r1, [%d1+4];\n"            \
		"ld.global.u32 %r1, [%d1+8];\n.loc 2 10 1\nst.global.u32 [%d1], %r1;\n"            \
		".loc 1 10 7\nst.global.u32 [%d1+4], %r1;\n")

/* Numbers the places as 100 + line, as 200 + line in b.cu, and as 300 + site without a line. */
static uint32_t number_of(void *arg, const struct ptx_probe_place *p)
{
	unsigned *asked = arg;
	bool b = p->file && p->file_len >= 4 && memcmp(p->file + p->file_len - 4, "b.cu", 4) == 0;

	assert_string_equal(p->kernel, "k");
	assert_int_equal(p->hook, ACCESS);
	assert_int_equal(p->file != NULL, p->line != 0);
	assert_true(!p->file ||
		    p->file_len == (b ? strlen("/src/b.cu") : strlen("/src/deep/a.cu")));
	(*asked)++;
	return p->line ? (b ? 200 : 100) + p->line : 300 + p->site;
}

static void sites_of_one_line_have_one_place(void **state)
{
	unsigned asked = 0;
	struct ptx_probe probe = { .hook = ACCESS,
				   .name = "g",
				   .fields = UINT64_C(1) << PLACE_FIELD_OF_ACCESS,
				   .text = MARKED(", .param .b32 place"),
				   .place = number_of,
				   .place_arg = &asked };
	struct result t;

	(void)state;
	rewrite(&t, LINES, &probe, 1);
	assert_int_equal(t.err, 0);
	assert_int_equal(t.p.sites[0], 5);
	assert_int_equal(asked, 5);
	assert_int_equal(occurrences(&t, ", 110;\n"), 4); /* the first line is that in front, too */
	assert_int_equal(occurrences(&t, ", 210;\n"), 1);
	ptx_module_free(parsed(&t));
	done(&t);
	rewrite(&t, HEAD ENTRY("ld.global.u32 %r1, [%d1];\nld.global.u32 %r1, [%d1+4];\n"), &probe,
		1);
	assert_int_equal(t.err, 0);
	assert_int_equal(occurrences(&t, ", 300;\n"), 1);
	assert_int_equal(occurrences(&t, ", 301;\n"), 1);
	done(&t);
}

static void a_place_that_is_not_numbered_is_beyond_all(void **state)
{
	struct ptx_probe probe = { .hook = ACCESS,
				   .name = "g",
				   .fields = UINT64_C(1) << PLACE_FIELD_OF_ACCESS,
				   .text = MARKED(", .param .b32 place") };
	struct result t;

	(void)state;
	rewrite(&t, LINES, &probe, 1);
	assert_int_equal(t.err, 0);
	assert_int_equal(occurrences(&t, ", 4294967295;\n"), 5);
	done(&t);
}

/* ---- the launch's number ---- */

#define LAUNCH_FIELD 24		/* of block_enter */
#define LAUNCH_FIELD_OF_CALL 25 /* of probe */
#define READS_LAUNCH ".func g_f0 (.param .b64 env, .param .b64 launch)\n{\nret;\n}\n"

static const struct ptx_probe numbers = { .hook = BLOCK_ENTER,
					  .name = "g",
					  .fields = UINT64_C(1) << LAUNCH_FIELD,
					  .text = READS_LAUNCH };

static void the_number_is_a_parameter_behind_the_kernels(void **state)
{
	static const struct {
		const char *params;
		uint32_t n, end, offset;
	} cases[] = {
		{ ".param .u64 a", 1, 8, 8 },
		{ "", 0, 0, 0 },
		{ ".param .u64 a, .param .u32 b", 2, 12, 16 },
		{ ".param .u8 a, .param .align 16 .b8 b[20]", 2, 36, 40 },
	};
	struct result t;
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "%s.visible .entry k(%s)\n{\nret;\n}\n", HEAD,
			 cases[i].params);
		rewrite(&t, text, &numbers, 1);
		assert_int_equal(t.err, 0);
		assert_true(has(&t, "\t.param .b64 probe0_number\n)"));
		assert_true(has(&t, "ld.param.b64 %probe0_f24, [probe0_number];"));
		assert_true(t.p.number.passed);
		assert_int_equal(t.p.number.n_params, cases[i].n);
		assert_int_equal(t.p.number.end, cases[i].end);
		assert_int_equal(t.p.number.offset, cases[i].offset);
		ptx_module_free(parsed(&t));
		done(&t);
	}
	rewrite(&t, HEAD ENTRY(""), &counter, 1);
	assert_false(has(&t, "number") || t.p.number.passed);
	done(&t);
}

static void a_number_needs_room_behind_the_parameters(void **state)
{
	static const struct {
		const char *version;
		unsigned bytes;
		bool fits;
	} cases[] = {
		{ "8.0", 4344, true },	{ "8.0", 4345, false },	 { "8.1", 4345, true },
		{ "8.1", 32752, true }, { "8.1", 32753, false },
	};
	struct result t;
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text),
			 ".version %s\n.target sm_90\n.address_size 64\n"
			 ".visible .entry k(.param .b8 a[%u])\n{\nret;\n}\n",
			 cases[i].version, cases[i].bytes);
		rewrite(&t, text, &numbers, 1);
		assert_int_equal(t.err, cases[i].fits ? 0 : -ENOTSUP);
		if (!cases[i].fits) {
			assert_string_equal(buf_text(&t.r.place), "t:4");
			assert_non_null(strstr(buf_text(&t.r.message), "leave no room"));
			assert_non_null(strstr(buf_text(&t.r.hint), "begin or end"));
		}
		done(&t);
	}
}

static void calls_pass_the_number_on_if_a_function_reads_it(void **state)
{
	static const char text[] =
		HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
		     ".global .u32 x;\n"
		     ".func deep()\n{\nld.global.u32 _, [x];\nret;\n}\n"
		     ".func (.param .b32 r) once(.param .b32 a)\n{\ncall deep;\nret;\n}\n" BEGIN
		     "{ .param .b32 q; .param .b32 p; st.param.b32 [p], 1;\n"
		     "@%p1 call.uni (q), once, (p); }\n"
		     "{ .param .b32 q; .param .b64 p; call (q), vprintf, (p, p); }\nret;\n}\n";
	struct ptx_probe calls = { .hook = 36,
				   .name = "g",
				   .fields = UINT64_C(1) << LAUNCH_FIELD_OF_CALL,
				   .text = READS_LAUNCH,
				   .sites = "deep" };
	struct result t;

	(void)state;
	rewrite(&t, text, &calls, 1);
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "k_p,\n\t.param .b64 probe0_number\n)"));
	assert_true(has(&t, ".param .b32 a,\n\t.param .b64 probe0_number\n)"));
	assert_true(has(&t, ".func deep(\n\t.param .b64 probe0_number\n)"));
	assert_true(has(&t, "@%p1 call.uni (q), once, (p, probe0_passed);"));
	assert_true(has(&t, "call deep, (probe0_passed);"));
	assert_true(has(&t, "call (q), vprintf, (p, p);"));
	assert_true(has(&t, "mov.b64 %probe0_f25, %probe0_number;"));
	ptx_module_free(parsed(&t));
	done(&t);
	rewrite(&t, text, &numbers, 1); /* read in the entry alone */
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "call deep;") && !has(&t, "%probe0_number"));
	done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_has_what_the_entry_reaches),
		cmocka_unit_test(variables_become_addresses),
		cmocka_unit_test(names_of_a_body_hide_those_of_the_module),
		cmocka_unit_test(line_information_stays_and_debug_sections_go),
		cmocka_unit_test(what_cannot_be_sliced_is_refused),
		cmocka_unit_test(what_a_name_means_may_be_refused),
		cmocka_unit_test(a_module_may_be_refused),
		cmocka_unit_test(a_program_keeps_its_contract),
		cmocka_unit_test(programs_fit_older_targets),
		cmocka_unit_test(several_probes_have_different_names),
		cmocka_unit_test(programs_become_part_of_the_body),
		cmocka_unit_test(programs_that_do_not_fit_are_called),
		cmocka_unit_test(subprograms_are_called),
		cmocka_unit_test(maps_are_in_the_table),
		cmocka_unit_test(maps_are_in_the_environment),
		cmocka_unit_test(maps_may_be_constants),
		cmocka_unit_test(control_words_have_an_address_of_their_own),
		cmocka_unit_test(long_programs_are_called_beyond_a_bound),
		cmocka_unit_test(filters_select_sites),
		cmocka_unit_test(a_form_has_a_preemptible_clone),
		cmocka_unit_test(arguments_are_loaded_from_the_kernels_parameters),
		cmocka_unit_test(accesses_that_are_no_sites_are_counted),
		cmocka_unit_test(what_may_access_memory_is_counted),
		cmocka_unit_test(the_first_lanes_have_addresses_of_rows),
		cmocka_unit_test(parameters_are_read_by_number),
		cmocka_unit_test(arguments_that_are_not_there_are_refused),
		cmocka_unit_test(parameters_that_are_no_arguments_break_the_contract),
		cmocka_unit_test(short_programs_have_no_branches),
		cmocka_unit_test(programs_of_the_entry_follow_computations),
		cmocka_unit_test(programs_of_the_entry_may_have_to_be_first),
		cmocka_unit_test(the_line_of_the_entry_is_its_first),
		cmocka_unit_test(sites_of_one_line_have_one_place),
		cmocka_unit_test(a_place_that_is_not_numbered_is_beyond_all),
		cmocka_unit_test(the_number_is_a_parameter_behind_the_kernels),
		cmocka_unit_test(a_number_needs_room_behind_the_parameters),
		cmocka_unit_test(calls_pass_the_number_on_if_a_function_reads_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
