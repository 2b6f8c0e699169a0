/* The block pass: which entries get a clone and why others do not, the argument's offset, and the
 * rewritten text. The effect of clones is tested where kernels run. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx/block.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define REGS ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
#define BEGIN ".visible .entry k(.param .u64 k_p)\n{\n" REGS
#define ENTRY(body) BEGIN body "ret;\n}\n"

struct result {
	struct ptx_module *m;
	const struct ptx_block_entry *e;
	uint32_t n;
	struct buf text;
	int err;
};

static void pass(struct result *r, const char *text)
{
	struct report why;

	*r = (struct result){ 0 };
	report_init(&why);
	r->err = ptx_module_parse(&r->m, text, strlen(text), "t", &why);
	if (r->err == 0) {
		r->err = ptx_block_run(r->m, &r->e, &r->n, &why);
	}
	if (r->err == 0) {
		assert_int_equal(ptx_module_print(r->m, &r->text), 0);
	} else if (!why.message.len) {
		fail_msg("refused without a reason:\n%s", text);
	}
	report_finish(&why);
}

static void done(struct result *r)
{
	ptx_module_free(r->m);
	buf_finish(&r->text);
}

/* Checks the first entry's reason and its line in the text; 0: any line. */
static void assert_why(const char *text, enum proto_block_why why, uint32_t line)
{
	struct result r;

	pass(&r, text);
	assert_int_equal(r.err, 0);
	assert_true(r.n > 0);
	if (r.e[0].why != why || (line && r.e[0].line != line)) {
		fail_msg("\"%s\" at line %u, not \"%s\" at %u:\n%s",
			 proto_block_why_text(r.e[0].why), r.e[0].line, proto_block_why_text(why),
			 line, text);
	}
	assert_int_equal(strstr(r.text.data, "k$gbpf(") != NULL, why == PROTO_BLOCK_OK);
	done(&r);
}

/* As the seventh line of the text. */
static void assert_line(const char *line, enum proto_block_why why)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s%s\nret;\n}\n", HEAD BEGIN, line);
	assert_why(text, why, why == PROTO_BLOCK_OK ? 0 : 7);
}

static void reasons_against_a_clone(void **state)
{
	(void)state;
	assert_line("mov.u32 %r1, %ctaid.x;", PROTO_BLOCK_OK);
	assert_line("mov.u32 %r1, %smid; mov.u32 %r2, %clock; mov.u64 %d1, %globaltimer;",
		    PROTO_BLOCK_OK);
	assert_line("mov.u32 %r1, %gridid;", PROTO_BLOCK_GRID_ID);
	assert_line("mov.u64 %d1, %gridid;", PROTO_BLOCK_GRID_ID);
	assert_line("mov.b32 %r1, %envreg2;", PROTO_BLOCK_GRID_ID);
	assert_line("mov.u64 %d1, %current_graph_exec;", PROTO_BLOCK_GRID_ID);
	assert_line("mov.u32 %r1, %clusterid.x;", PROTO_BLOCK_CLUSTER);
	assert_line("mov.u32 %r1, %nclusterid.y;", PROTO_BLOCK_CLUSTER);
	assert_line("mov.u32 %r1, %cluster_ctarank;", PROTO_BLOCK_CLUSTER);
	assert_line("mov.pred %p1, %is_explicit_cluster;", PROTO_BLOCK_CLUSTER);
	assert_line("barrier.cluster.arrive.aligned;", PROTO_BLOCK_CLUSTER);
	assert_line("barrier.sync 0;", PROTO_BLOCK_OK);
	assert_line("mapa.u32 %r1, %r2, %r3;", PROTO_BLOCK_CLUSTER);
	assert_line("getctarank.shared::cluster.u32 %r1, %r2;", PROTO_BLOCK_CLUSTER);
	assert_line("clusterlaunchcontrol.try_cancel.async.shared::cta.b128 [%r1], [%r2];",
		    PROTO_BLOCK_CLUSTER);
	assert_line("griddepcontrol.wait;", PROTO_BLOCK_DEPENDENT);
	assert_line("@%p1 griddepcontrol.launch_dependents;", PROTO_BLOCK_DEPENDENT);
	assert_line("mov.u32 %r1, %dynamic_smem_size;", PROTO_BLOCK_SHARED);
	assert_line("mov.u32 %r1, %total_smem_size;", PROTO_BLOCK_SHARED);
	assert_line("mov.u32 %r1, %aggr_smem_size;", PROTO_BLOCK_SHARED);
	assert_line(".reg .u32 %ctaid;", PROTO_BLOCK_SOURCE);
	assert_line(".global .u32 once;", PROTO_BLOCK_SOURCE);
	assert_line(".shared .u32 here[4];", PROTO_BLOCK_OK);
	assert_line(".local .align 4 .b8 stack[16];", PROTO_BLOCK_OK);
	assert_line(".newthing 5;", PROTO_BLOCK_SOURCE);
	assert_line(".pragma \"nounroll\";", PROTO_BLOCK_OK);
	assert_line("{ { @%p1 mov.u32 %r1, %gridid; } }", PROTO_BLOCK_GRID_ID);
}

static void directives_around_the_body_count(void **state)
{
	static const struct {
		const char *tuning;
		enum proto_block_why why;
	} cases[] = {
		{ "", PROTO_BLOCK_OK },
		{ ".maxntid 256, 1, 1\n.minnctapersm 2\n.maxnreg 64\n", PROTO_BLOCK_OK },
		{ ".reqntid 32\n.pragma \"x\";\n", PROTO_BLOCK_OK },
		{ ".explicitcluster\n.reqnctapercluster 2, 1, 1\n", PROTO_BLOCK_CLUSTER },
		{ ".maxclusterrank 4\n", PROTO_BLOCK_CLUSTER },
		{ ".somethingelse 4\n", PROTO_BLOCK_SOURCE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[512];

		snprintf(text, sizeof(text), HEAD ".visible .entry k()\n%s{ ret; }\n",
			 cases[i].tuning);
		assert_why(text, cases[i].why, 0);
	}
	assert_why(".version 4.0\n.target sm_30\n.address_size 64\n.entry k() { ret; }\n",
		   PROTO_BLOCK_SOURCE, 0);
	assert_why(".version 6.0\n.target sm_30\n.address_size 32\n.entry k() { ret; }\n",
		   PROTO_BLOCK_SOURCE, 0);
	assert_why(".version 10.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n",
		   PROTO_BLOCK_SOURCE, 0);
	assert_why(HEAD ".entry .attribute(.unified(1, 2)) k() { ret; }\n", PROTO_BLOCK_SOURCE, 0);
	assert_why(HEAD ".func %f() { ret; }\n.entry k() { ret; }\n", PROTO_BLOCK_SOURCE, 0);
}

static void reasons_come_through_calls(void **state)
{
	(void)state;
	/* g reads its block index: it is copied. h must not be called. */
	assert_why(HEAD ".func g() {\n" REGS "mov.u32 %r1, %ctaid.x;\nret;\n}\n" ENTRY("call g;\n"),
		   PROTO_BLOCK_OK, 0);
	assert_why(HEAD ".func h() {\n" REGS
			"mov.u32 %r1, %gridid;\nret;\n}\n.func g() { call h; ret; }\n" ENTRY(
				"call g;\n"),
		   PROTO_BLOCK_GRID_ID, 6);
	assert_why(HEAD ".func h() {\n" REGS "mov.u32 %r1, %gridid;\nret;\n}\n" ENTRY(""),
		   PROTO_BLOCK_OK, 0);
	/* Recursion terminates. */
	assert_why(HEAD ".func a();\n.func b() { call a; ret; }\n.func a() {\n" REGS
			"mov.u32 %r1, %nctaid.y; call b; call a; ret;\n}\n" ENTRY("call a;\n"),
		   PROTO_BLOCK_OK, 0);
	assert_why(HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
			".extern .func free(.param .b64 a);\n" ENTRY(
				"call (%r1), vprintf, (%d1, %d2); call free, (%d1);\n"),
		   PROTO_BLOCK_OK, 0);
	assert_why(HEAD ".extern .func other();\n" ENTRY("call other;\n"), PROTO_BLOCK_EXTERN, 8);
	assert_why(HEAD ".extern .func other();\n" ENTRY(""), PROTO_BLOCK_OK, 0);
	assert_why(HEAD ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, "
			".param .b64 b);\n" ENTRY("call (%r1), cudaLaunchDeviceV2, (%d1, %d2);\n"),
		   PROTO_BLOCK_DEVICE_RUNTIME, 8);
}

static void pointers_may_lead_to_code_without_block_index_only(void **state)
{
#define KNOWS ".func g() {\n" REGS "mov.u32 %r1, %ctaid.x; ret;\n}\n"
#define BLIND ".func g() { ret; }\n"
#define POINTER "mov.u64 %d1, g; p: .callprototype _ (); call %d1, p;\n"
	(void)state;
	assert_why(HEAD BLIND ENTRY(POINTER), PROTO_BLOCK_OK, 0);
	assert_why(HEAD KNOWS ENTRY(POINTER), PROTO_BLOCK_CALL, 0);
	/* The address is taken elsewhere. */
	assert_why(HEAD KNOWS ".global .u64 table[1] = { g };\n" ENTRY(
			   "p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_CALL, 12);
	/* Taken by a function that it calls. */
	assert_why(HEAD KNOWS ".func h() { call g; ret; }\n.global .u64 table[1] = { h };\n" ENTRY(
			   "p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_CALL, 0);
	/* Called by name only. */
	assert_why(HEAD KNOWS ENTRY("call g; p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_OK, 0);
	/* A pointer that is not called. */
	assert_why(HEAD KNOWS ENTRY("mov.u64 %d1, g;\n"), PROTO_BLOCK_OK, 0);
	/* A register with the function's name. */
	assert_why(
		HEAD KNOWS ENTRY("{ .reg .b64 g; p: .callprototype _ (); call g, p; } call g;\n"),
		PROTO_BLOCK_OK, 0);
	/* Other modules may use its address or provide theirs. */
	assert_why(HEAD ".extern .global .u64 pointer;\n" ENTRY(
			   "ld.global.u64 %d1, [pointer]; p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_CALL, 8);
	assert_why(HEAD ".extern .func o();\n" ENTRY(
			   "mov.u64 %d1, o; p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_CALL, 0);
}

static void the_argument_lies_behind_the_parameters(void **state)
{
	struct result r;

	(void)state;
	pass(&r, HEAD
	     ".entry k(.param .u8 a, .param .u16 b, .param .align 16 .b8 c[20], .param .v2 .f32 d,"
	     ".param .u64 .ptr .global .align 4 e, .param .f32 f)\n.reqntid 8, 4\n{ ret; }\n"
	     ".entry none() .maxntid 64, 2, 2 { ret; }\n.entry declared();\n");
	assert_int_equal(r.err, 0);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.e[0].name, "k");
	assert_int_equal(r.e[0].n_params, 6);
	assert_int_equal(r.e[0].param_offset[1], 2);
	assert_int_equal(r.e[0].param_offset[2], 16);
	assert_int_equal(r.e[0].param_bytes[2], 20);
	assert_int_equal(r.e[0].param_offset[3], 40);
	assert_int_equal(r.e[0].param_bytes[3], 8);
	assert_int_equal(r.e[0].param_offset[4], 48);
	assert_int_equal(r.e[0].param_offset[5], 56);
	assert_int_equal(r.e[0].arg_offset, 64);
	assert_int_equal(r.e[0].max_threads, 32);
	assert_int_equal(r.e[1].arg_offset, 0);
	assert_int_equal(r.e[1].max_threads, 256);
	assert_non_null(strstr(r.text.data, ".align 8 .b8 gbpf0_arg[56]"));
	done(&r);
}

static void no_room_for_the_argument(void **state)
{
	static const struct {
		const char *head;
		unsigned bytes;
		enum proto_block_why why;
	} cases[] = {
		{ ".version 8.0\n.target sm_90\n", 4352 - 56, PROTO_BLOCK_OK },
		{ ".version 8.0\n.target sm_90\n", 4352 - 55, PROTO_BLOCK_PARAMETERS },
		{ ".version 8.1\n.target sm_90\n", 4352, PROTO_BLOCK_OK },
		{ ".version 8.1\n.target sm_60\n", 4352, PROTO_BLOCK_PARAMETERS },
		{ ".version 8.1\n.target sm_70\n", 32764 - 60, PROTO_BLOCK_OK },
		{ ".version 8.1\n.target sm_70\n", 32764 - 59, PROTO_BLOCK_PARAMETERS },
		{ ".version 8.1\n.target sm_70\n", 4000000000u, PROTO_BLOCK_PARAMETERS },
	};
	char text[8192];
	size_t at;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "%s.entry k(.param .b8 p[%u]) { ret; }\n",
			 cases[i].head, cases[i].bytes);
		assert_why(text, cases[i].why, 0);
	}
	at = (size_t)snprintf(text, sizeof(text), HEAD ".entry k(.param .u8 p0");
	for (unsigned i = 1; i <= PTX_BLOCK_MAX_PARAMS; i++) {
		at += (size_t)snprintf(text + at, sizeof(text) - at, ", .param .u8 p%u", i);
	}
	snprintf(text + at, sizeof(text) - at, ") { ret; }\n");
	assert_why(text, PROTO_BLOCK_PARAMETERS, 0);
	assert_why(HEAD ".entry k(.param .texref t) { ret; }\n", PROTO_BLOCK_SOURCE, 0);
}

static void assert_has(const char *source, const char *part)
{
	struct result r;

	pass(&r, source);
	assert_int_equal(r.err, 0);
	if (!strstr(r.text.data, part)) {
		fail_msg("no \"%s\" in:\n%s", part, r.text.data);
	}
	done(&r);
}

static void reads_of_the_index_become_registers(void **state)
{
	(void)state;
	assert_has(HEAD ENTRY("mov.u32 %r1, %ctaid.x;\n"), "mov.u32 %r1, %gbpf0_x;");
	assert_has(HEAD ENTRY("@!%p1 mov.b32 %r1, %ctaid.z;\n"), "@!%p1 mov.b32 %r1, %gbpf0_z;");
	assert_has(HEAD ENTRY("cvt.u64.u32 %d1, %nctaid.y;\n"), "cvt.u64.u32 %d1, %gbpf0_gy;");
	assert_has(HEAD ENTRY("mov.u16 %h1, %ctaid.x;\n"), "cvt.u16.u32 %h1, %gbpf0_x;");
	assert_has(HEAD ENTRY("mov.u32 %r1, %ctaid.w;\n"), "mov.u32 %r1, 0;");
	assert_has(HEAD ENTRY("@%p1 mov.v4.u32 {%r1, _, %r3, %r4}, %ctaid;\n"),
		   "\t@%p1 mov.u32 %r1, %gbpf0_x;\n\t@%p1 mov.u32 %r3, %gbpf0_z;\n"
		   "\t@%p1 mov.u32 %r4, 0;\n");
	assert_has(HEAD ENTRY("mov.v4.u32 {%r1, %r2, %r3, %r4}, %nctaid;\n"),
		   "\tmov.u32 %r1, %gbpf0_gx;\n\tmov.u32 %r2, %gbpf0_gy;\n");
	/* Unchanged in the original. */
	assert_has(HEAD ENTRY("mov.u32 %r1, %ctaid.x;\n"), "mov.u32 %r1, %ctaid.x;");
	assert_why(HEAD ENTRY("p: .callprototype _ ();\ncall %gridid, p;\n"), PROTO_BLOCK_SOURCE,
		   0);
	assert_why(HEAD ENTRY("p: .callprototype _ ();\ncall %ctaid, p;\n"), PROTO_BLOCK_SOURCE, 0);
	assert_why(HEAD ENTRY(".reg .v4 .u32 %v;\nmov.v4.u32 %v, %ctaid;\n"), PROTO_BLOCK_SOURCE,
		   8);
}

static void copies_of_functions_stand_where_the_functions_stand(void **state)
{
	const char *source =
		HEAD ".visible .func (.param .b32 r) g(.param .b32 a);\n.func s() { ret; }\n" ENTRY(
			"call (%r1), g, (%r2); call s;\n") ".visible .func (.param .b32 r) "
							   "g(.param .b32 a)\n{\n" REGS
							   "mov.u32 %r1, %ctaid.x;\nst.param.b32 "
							   "[r], %r1;\nret;\n}\n";

	(void)state;
	assert_has(source, "\n.func (\n\t.param .b32 r\n) g$gbpf(\n\t.param .b32 a\n);\n");
	assert_has(source, "call (%r1), g$gbpf, (%r2);\n\tcall s;\n");
	assert_has(source, "call (%r1), g, (%r2);\n\tcall s;\n");
	assert_has(source, "mov.u32 %r1, %gbpf0_x;\n\tst.param.b32 [r], %r1;");
}

static void an_alias_is_its_definition(void **state)
{
	(void)state;
	assert_has(HEAD KNOWS ".func a();\n.alias a, g;\n" ENTRY("call a;\n"), "call g$gbpf;\n");
	assert_why(HEAD KNOWS ".func a();\n.alias a, g;\n" ENTRY(
			   "mov.u64 %d1, a; p: .callprototype _ (); call %d1, p;\n"),
		   PROTO_BLOCK_CALL, 0);
	assert_why(HEAD ".func a();\n.alias a, nothing;\n" ENTRY("call a;\n"), PROTO_BLOCK_EXTERN,
		   9);
	assert_why(HEAD ".func a();\n.alias a;\n.alias\t, ;\n" ENTRY("call a;\n"),
		   PROTO_BLOCK_EXTERN, 0);
}

static void names_do_not_collide(void **state)
{
	struct result r;

	(void)state;
	/* A name of any kind that begins with the stem changes the stem. */
	assert_has(HEAD ENTRY(".reg .b32 %gbpf0_x;\n"), "mov.u32 %gbpf1_at, gbpf1_shared;");
	assert_has(HEAD ENTRY("{ $gbpf4_wait: }\n"), "gbpf5_shared");
	assert_has(HEAD ".global .u32 gbpf7_shared;\n" ENTRY(""), "gbpf8_shared");
	assert_has(HEAD ".entry k(.param .u32 gbpf_arg) { ret; }\n", "gbpf1_arg");
	assert_has(HEAD ENTRY(".reg .b32 %gbpf<20>;\n"), "gbpf1_shared");
	assert_why(HEAD ENTRY(".reg .b32 %gbpf123456789123;\n"), PROTO_BLOCK_SOURCE, 0);
	/* A clone's name that is in use; clones get no clones. */
	assert_why(HEAD ".entry k() { ret; }\n.global .u32 k$gbpf;\n", PROTO_BLOCK_SOURCE, 4);
	assert_why(HEAD ".func g() {\n" REGS
			"mov.u32 %r1, %ctaid.x; ret;\n}\n.func g$gbpf() { ret; "
			"}\n" ENTRY("call g;\n"),
		   PROTO_BLOCK_SOURCE, 4);
	pass(&r, HEAD ".entry k() { ret; }\n");
	{
		struct result again;

		pass(&again, r.text.data);
		assert_int_equal(again.err, 0);
		assert_int_equal(again.n, 2);
		assert_int_equal(again.e[0].why, PROTO_BLOCK_SOURCE);
		assert_int_equal(again.e[1].why, PROTO_BLOCK_SOURCE);
		assert_string_equal(again.text.data, r.text.data);
		done(&again);
	}
	done(&r);
}

static void every_entry_has_its_reason(void **state)
{
	struct result r;

	(void)state;
	pass(&r, HEAD ".entry a() { ret; }\n.entry b() { griddepcontrol.wait; ret; }\n"
		      ".entry c() { ret; }\n");
	assert_int_equal(r.n, 3);
	assert_int_equal(r.e[0].why, PROTO_BLOCK_OK);
	assert_int_equal(r.e[1].why, PROTO_BLOCK_DEPENDENT);
	assert_int_equal(r.e[2].why, PROTO_BLOCK_OK);
	assert_null(strstr(r.text.data, "b$gbpf"));
	done(&r);
	for (int i = 0; i < PROTO_BLOCK_WHYS; i++) {
		const char *text = proto_block_why_text((enum proto_block_why)i);

		if (i && text == proto_block_why_text(PROTO_BLOCK_UNKNOWN)) {
			fail_msg("reason %d has no text in block_why.c", i);
		}
		assert_true(strlen(text) > 3);
	}
	assert_non_null(proto_block_why_text((enum proto_block_why) - 1));
	pass(&r, HEAD ".entry a() { ret; }\n.entry a() { ret; }\n");
	assert_int_equal(r.err, -EINVAL);
	done(&r);
	pass(&r, HEAD ".global .u32 x;\n");
	assert_int_equal(r.err, 0);
	assert_int_equal(r.n, 0);
	done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reasons_against_a_clone),
		cmocka_unit_test(directives_around_the_body_count),
		cmocka_unit_test(reasons_come_through_calls),
		cmocka_unit_test(pointers_may_lead_to_code_without_block_index_only),
		cmocka_unit_test(the_argument_lies_behind_the_parameters),
		cmocka_unit_test(no_room_for_the_argument),
		cmocka_unit_test(reads_of_the_index_become_registers),
		cmocka_unit_test(copies_of_functions_stand_where_the_functions_stand),
		cmocka_unit_test(an_alias_is_its_definition),
		cmocka_unit_test(names_do_not_collide),
		cmocka_unit_test(every_entry_has_its_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
