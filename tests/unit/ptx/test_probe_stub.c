/* Entry stubs with programs: where they are, what their parameters and ends become, and what is
 * refused. Compiled ones are in tests/data/cubins; on the soft GPU they run in tests/unit/soft. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../cubin/probe_programs.h"

struct result {
	struct buf text;
	struct ptx_stub_form form;
	struct report r;
	int err;
};

/* The kernel's parameters: an address, a number, 12 bytes at 16, an empty one. */
static const struct ptx_kernel_param places[] = { { 0, 8 }, { 8, 4 }, { 16, 12 }, { 28, 0 } };
static const struct ptx_kernel_params all_params = { places, ARRAY_SIZE(places) };
static struct ptx_stub_kernel kernel = { "kernel", &all_params };

static struct result make(const struct ptx_probe *probes, uint32_t n)
{
	struct result t = { .err = 0 };

	buf_init(&t.text);
	report_init(&t.r);
	t.err = ptx_probe_stub(&t.text, 90, 64, &kernel, probes, probe_envs, n, &t.form, &t.r);
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

/* Returns the place of a part that the text must have. */
static size_t at(const struct result *t, const char *part)
{
	const char *found = strstr(buf_text(&t->text), part);

	if (!found) {
		fail_msg("no '%s' in\n%s", part, buf_text(&t->text));
	}
	return (size_t)(found - buf_text(&t->text));
}

static bool has(const struct result *t, const char *part)
{
	return strstr(buf_text(&t->text), part) != NULL;
}

static void programs_stand_between_gate_and_kernel(void **state)
{
	struct result t = make(probe_both, 2);
	struct ptx_module *m = NULL;
	struct report r;

	(void)state;
	assert_int_equal(t.err, 0);
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, t.text.data, t.text.len, "stub", &r), 0);
	ptx_module_free(m);
	report_finish(&r);
	assert_true(at(&t, "bar.red.or.pred") < at(&t, "0x7f1200345600"));
	assert_true(at(&t, "$run:") < at(&t, "0x7f1200345600"));
	assert_true(at(&t, "0x7f1200345600") < at(&t, "0x7f12f0001000")); /* blocks first */
	assert_true(at(&t, "0x7f12f0001000") < at(&t, "pmevent 13;"));
	done(&t);
}

/* Without programs' text it is the gate's. */
static void the_gate_is_unchanged(void **state)
{
	struct result t = make(probe_both, 2);
	struct buf gate;

	(void)state;
	buf_init(&gate);
	assert_int_equal(ptx_gate_stub(&gate, 90, 64), 0);
	gate.len -= strlen("pmevent 13;\nret;\n}\n");
	assert_memory_equal(t.text.data, gate.data, gate.len);
	assert_string_equal(buf_text(&t.text) + t.text.len - strlen("pmevent 13;\nret;\n}\n"),
			    "pmevent 13;\nret;\n}\n");
	buf_finish(&gate);
	done(&t);
}

static void a_body_has_neither_calls_nor_parameters(void **state)
{
	struct result t = make(probe_both, 2);
	const char *body;

	(void)state;
	body = strstr(buf_text(&t.text), "$run:");
	assert_null(strstr(body, ".param"));
	assert_null(strstr(body, "call"));
	assert_null(strstr(body, ".func"));
	assert_non_null(strstr(body, "mov.b64 %env, %gbpf$e;"));
	assert_non_null(strstr(body, "mov.b64 %c_block, %gbpf$f3;"));
	assert_non_null(strstr(body, "mov.b64 %c_time_ns, %gbpf$f1;"));
	assert_non_null(strstr(body, "mov.b32 %c_lanes, %gbpf$f21;"));
	assert_non_null(strstr(body, "bra $gbpf$end"));
	/* differs between lanes, for all that the compiler knows: see inline_program() */
	assert_non_null(strstr(body, "mov.u32 %gbpf$z, %tid.x;"));
	assert_non_null(strstr(body, "mov.u32 %gbpf$z, %laneid;"));
	assert_non_null(strstr(body, "cvt.u64.u32 %gbpf$e, %gbpf$z;"));
	done(&t);
}

/* Returns the stub's result for one program of the body and the fields. */
static struct result one(uint32_t hook, uint64_t fields, const char *params, const char *body)
{
	struct ptx_probe p = { .hook = hook, .fields = fields, .name = "p" };
	struct result t;
	struct buf text;

	buf_init(&text);
	buf_printf(&text, ".func p_f0 (.param .b64 env%s)\n{\n%s\n}\n", params, body);
	p.text = buf_text(&text);
	t = make(&p, 1);
	buf_finish(&text);
	return t;
}

static void guarded_returns_are_branches(void **state)
{
	struct result t = one(PROBE_ENTER, 0, "",
			      ".reg .pred %p; setp.eq.u32 %p, 1, 1; @%p ret; @!%p ret; ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(at(&t, "@%p bra $gbpf$end") < at(&t, "@!%p bra $gbpf$end"));
	done(&t);
}

/* A label is known in its scope, and in those within. */
static void labels_belong_to_their_scopes(void **state)
{
	struct result t =
		one(PROBE_ENTER, 0, "", "{ $a: { bra $a; } { $b: bra $b; } { $b: bra $b; } } ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	done(&t);
	t = one(PROBE_ENTER, 0, "", "{ $a: ret; } bra $a;");
	assert_int_equal(t.err, -EINVAL);
	assert_true(strstr(buf_text(&t.r.message), "does not declare") != NULL);
	done(&t);
	t = one(PROBE_ENTER, 0, "", "$a: { $a: ret; } bra $a;");
	assert_int_equal(t.err, -EINVAL);
	done(&t);
	t = one(PROBE_ENTER, 0, "", "{ $gbpf$end1: ret; }");
	assert_int_equal(t.err, -EINVAL);
	done(&t);
}

/* A stub has no table. */
static void maps_are_read_from_the_environment(void **state)
{
	struct result t =
		one(PROBE_ENTER, 0, ", .param .b64 map3", ".reg .b64 %a; ld.param.u64 %a, [map3];");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(
		has(&t, "\tcvta.to.global.u64 %a, %gbpf$e;\n\tld.global.nc.b64 %a, [%a+24];\n"));
	done(&t);
}

static void offsets_of_maps_are_constants(void **state)
{
	static const char text[] = ".func p_f0 (.param .b64 env, .param .b64 map1)\n{\n"
				   ".reg .b64 %a; ld.param.u64 %a, [map1];\n}\n";
	static const uint64_t offsets[PTX_PROBE_MAPS_MAX] = { 0x1000, 0x2000 };
	const struct ptx_probe p = {
		.hook = PROBE_ENTER, .name = "p", .text = text, .map_offsets = offsets
	};
	struct result t = make(&p, 1);

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tadd.s64 %a, %gbpf$e, 0x2000;\n"));
	assert_false(has(&t, "ld.global"));
	done(&t);
}

static void control_words_have_the_offset_of_their_row(void **state)
{
	static const char text[] = ".func p_f0 (.param .b64 env, .param .b64 control)\n{\n"
				   ".reg .b64 %a; ld.param.u64 %a, [control];\n}\n";
	uint64_t offsets[PTX_PROBE_ADDRESSES] = { [PTX_PROBE_CONTROL] = 0x2014 };
	const struct ptx_probe p = {
		.hook = PROBE_ENTER, .name = "p", .text = text, .map_offsets = offsets
	};
	struct result t = make(&p, 1);

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tadd.s64 %a, %gbpf$e, 0x2014;\n"));
	done(&t);
	offsets[PTX_PROBE_CONTROL] = 0;
	t = make(&p, 1);
	assert_true(has(&t, "\tmov.b64 %a, %gbpf$e;\n"));
	done(&t);
}

/* A map in host memory has no offset that all processes share. */
static void a_map_without_an_offset_is_read_from_the_environment(void **state)
{
	static const char text[] = ".func p_f0 (.param .b64 env, .param .b64 map0, "
				   ".param .b64 map1)\n{\n.reg .b64 %a, %b;\n"
				   "ld.param.u64 %a, [map0]; ld.param.u64 %b, [map1];\n}\n";
	static const uint64_t offsets[PTX_PROBE_MAPS_MAX] = { 0x1000, 0 };
	const struct ptx_probe p = {
		.hook = PROBE_ENTER, .name = "p", .text = text, .map_offsets = offsets
	};
	struct result t = make(&p, 1);

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "\tadd.s64 %a, %gbpf$e, 0x1000;\n"));
	assert_true(has(&t, "\tcvta.to.global.u64 %b, %gbpf$e;\n"
			    "\tld.global.nc.b64 %b, [%b+8];\n"));
	done(&t);
}

static void shared_memory_is_refused(void **state)
{
	static const char text[] = ".func p_f0 (.param .b64 env, .param .b64 own0)\n{\n"
				   ".reg .b64 %a;\nld.param.u64 %a, [own0];\n}\n";
	static const uint32_t at[PTX_PROBE_MAPS_MAX];
	const struct ptx_probe p = { .hook = PROBE_ENTER,
				     .name = "p",
				     .text = text,
				     .scratch_at = at,
				     .scratch_bytes = 16 };
	struct result t = make(&p, 1);

	(void)state;
	assert_int_equal(t.err, -ENOTSUP);
	assert_non_null(strstr(buf_text(&t.r.message), "no shared memory for its WARP_SCRATCH"));
	done(&t);
}

/* The kernel's parameters begin where the padding does, and the stub's argument keeps a distance.
 */
static void arguments_are_read_from_the_padding(void **state)
{
	struct result t = one(PROBE_ENTER, 0, ", .param .b32 arg_6_2, .param .b64 arg_72_8",
			      ".reg .b32 %a; .reg .b64 %b; ld.param.b32 %a, [arg_6_2];\n"
			      "ld.param.b64 %b, [arg_72_8]; ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(at(&t, "pad[208]") < at(&t, "bar.red.or.pred"));
	assert_true(at(&t, "bra $gbpf$end") < at(&t, "ld.param.u16 %gbpf$r0, [pad+6];"));
	assert_true(has(&t, "ld.param.u64 %gbpf$r1, [pad+72];"));
	assert_int_equal(t.form.pad, 208);
	assert_int_equal(t.form.n_args, 2);
	assert_string_equal(t.form.args[1].program, "p");
	assert_int_equal(t.form.args[1].offset, 72);
	assert_int_equal(t.form.args[1].bytes, 8);
	done(&t);
	t = make(probe_both, 2); /* without arguments */
	assert_int_equal(t.form.pad, 64);
	assert_int_equal(t.form.n_args, 0);
	done(&t);
}

/* Where the gate's argument has something else only if the gate is used. */
static void the_launchs_number_is_read_from_the_argument(void **state)
{
	struct result t = one(PROBE_BLOCK_ENTER, PROBE_FIELD(24), ", .param .b64 launch",
			      ".reg .b64 %a; ld.param.b64 %a, [launch]; ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, "ld.param.u64 %gbpf$f24, [arg+16];"));
	done(&t);
	/* A block that has ended may be of another launch. */
	t = one(PROBE_BLOCK_EXIT, PROBE_FIELD(26), ", .param .b64 launch", "ret;");
	assert_int_equal(t.err, -ENOTSUP);
	assert_non_null(strstr(buf_text(&t.r.message), "the number (launch)"));
	done(&t);
	t = one(PROBE_BLOCK_EXIT, PROBE_FIELD(25), ", .param .b32 late", "ret;");
	assert_int_equal(t.err, 0);
	assert_false(has(&t, "[%gbpf$c+131072]")); /* none reads it */
	done(&t);
}

/* Sizes, and values of parameters that are not there, are constants. */
static void parameters_are_read_by_number(void **state)
{
	static const char list[] = ", .param .b64 param_1, .param .b32 param_bytes_2, "
				   ".param .b64 param_2, .param .b64 param_3, .param .b64 param_4, "
				   ".param .b32 param_bytes_4";
	struct result t = one(PROBE_ENTER, 0, list, "ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(has(&t, ".reg .b64 %gbpf$r0;\n\tld.param.u32 %gbpf$r0, [pad+8];"));
	assert_true(has(&t, ".reg .b32 %gbpf$r1;\n\tmov.b32 %gbpf$r1, 12;"));
	assert_true(has(&t, "ld.param.u64 %gbpf$r2, [pad+16];"));
	assert_true(has(&t, "mov.b64 %gbpf$r3, 0;"));
	assert_true(has(&t, "mov.b64 %gbpf$r4, 0;"));
	assert_true(has(&t, "mov.b32 %gbpf$r5, 0;"));
	assert_int_equal(t.form.pad, 64 + 24 + 64);
	assert_int_equal(t.form.n_args, 2); /* they are compared with the machine code's */
	assert_int_equal(t.form.args[1].offset, 16);
	assert_int_equal(t.form.args[1].bytes, 8);
	done(&t);
	kernel.params = NULL;
	t = one(PROBE_ENTER, 0, ", .param .b64 param_1", "ret;");
	assert_int_equal(t.err, -ENOTSUP);
	assert_non_null(strstr(buf_text(&t.r.message), "the driver does not report"));
	done(&t);
	t = one(PROBE_ENTER, 0, ", .param .b32 arg_8_4", "ret;");
	assert_int_equal(t.err, 0);
	done(&t);
	kernel.params = &all_params;
}

/* Fields are those that are known at entry; the lanes follow from the number of threads. */
static void each_field_of_the_hook_is_known(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 24; i++) {
		bool wide = i < 4;
		struct result t = one(PROBE_BLOCK_ENTER, PROBE_FIELD(i),
				      wide ? ", .param .b64 x" : ", .param .b32 x",
				      wide ? ".reg .b64 %x; ld.param.b64 %x, [x]; ret;"
					   : ".reg .b32 %x; ld.param.b32 %x, [x]; ret;");

		print_message("field %u\n", i);
		assert_int_equal(t.err, 0);
		assert_false(has(&t, "activemask"));
		assert_int_equal(has(&t, "4294967264"), i == 20 || i == 21);
		done(&t);
	}
}

static void refused(int err, const char *why, uint32_t hook, uint64_t fields, const char *params,
		    const char *body)
{
	struct result t = one(hook, fields, params, body);

	if (t.err != err || !strstr(buf_text(&t.r.message), why)) {
		fail_msg("%d, '%s' instead of '%s'", t.err, buf_text(&t.r.message), why);
	}
	done(&t);
}

static void what_a_stub_lacks_is_refused(void **state)
{
	(void)state;
	refused(-ENOTSUP, "beginning of blocks and warps", 33, 0, "", "ret;");
	refused(-ENOTSUP, "beginning of blocks and warps", 38, 0, "", "ret;");
	refused(-ENOTSUP, "calls functions", 32, 0, "", "{ call p_f1; } ret;");
	refused(-ENOTSUP, "stack is in memory", 32, 0, "", ".local .align 16 .b8 s[64]; ret;");
	refused(-EINVAL, "other than local", 32, 0, "", ".shared .b32 s; ret;");
	refused(-EINVAL, "may not end or wait", 32, 0, "", ".reg .b32 %m; activemask.b32 %m; ret;");
	refused(-EINVAL, "may not end", 32, 0, "", "exit;");
	refused(-EINVAL, "name of the code around it", 32, 0, "", ".reg .b64 %gbpf$e; ret;");
	refused(-EINVAL, "name of the code around it", 32, 0, "", "$gbpf$end1: ret;");
	refused(-EINVAL, "unknown form", 32, 0, "", ".reg .b32 %x; ld.param.b32 %x, [env]; ret;");
	refused(-EINVAL, "unknown form", 32, 0, "", ".reg .b64 %x; ld.param.b64 %x, [env+8]; ret;");
	refused(-EINVAL, "does not declare", 32, 0, "",
		".reg .b64 %x; ld.param.b64 %x, [other]; ret;");
	refused(-EINVAL, "does not declare", 32, 0, "", "st.param.b64 [env], 0; ret;");
	refused(-ENOTSUP, "too far behind", 32, 0, ", .param .b32 arg_4000_4", "ret;");
	refused(-ENOTSUP, "too far behind", 32, 0, ", .param .b64 arg_4294967288_8", "ret;");
	refused(-EINVAL, "not its fields", 32, PROBE_FIELD(3), "", "ret;");
}

static void lanes_and_sites_are_refused(void **state)
{
	struct ptx_probe p = probe_both[1];
	struct result t;

	(void)state;
	p.lanes = true;
	t = make(&p, 1);
	assert_int_equal(t.err, -ENOTSUP);
	done(&t);
	p.lanes = false;
	p.sites = "#3";
	t = make(&p, 1);
	assert_int_equal(t.err, -ENOTSUP);
	done(&t);
	p.sites = "add.cu:12";
	t = make(&p, 1);
	assert_int_equal(t.err, -ENOTSUP);
	done(&t);
	p.sites = "#0";
	t = make(&p, 1);
	assert_int_equal(t.err, 0);
	done(&t);
	t = make(&p, 0);
	assert_int_equal(t.err, -EINVAL);
	done(&t);
}

/* Only a program that asks for the kernel makes the text depend on it. */
static void the_kernel_is_a_constant(void **state)
{
	static const char text[] = ".func p_f0 (.param .b64 env, .param .b64 kernel)\n{\n"
				   ".reg .b64 %k; ld.param.b64 %k, [kernel]; ret;\n}\n";
	const struct ptx_probe p = {
		.hook = 34, .fields = PROBE_FIELD(2), .name = "p", .text = text
	};
	static const struct ptx_stub_kernel one = { "one", NULL }, two = { "two", NULL };
	struct buf a = { 0 }, b = { 0 };
	struct ptx_stub_form form;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct ptx_probe *probe = i ? &p : &probe_both[0];

		buf_clear(&a);
		buf_clear(&b);
		assert_int_equal(
			ptx_probe_stub(&a, 90, 64, &one, probe, probe_envs, 1, &form, NULL), 0);
		assert_int_equal(
			ptx_probe_stub(&b, 90, 64, &two, probe, probe_envs, 1, &form, NULL), 0);
		assert_int_equal(strcmp(buf_text(&a), buf_text(&b)) != 0, i);
	}
	buf_finish(&a);
	buf_finish(&b);
}

/* This block's time is read before the records are exchanged, and takes the place of that of the
 * block before behind them, so that a bracket which still finds the record finds its time. */
static void the_block_before_has_its_begin(void **state)
{
	struct result t = one(PROBE_BLOCK_EXIT, PROBE_FIELD(27), ", .param .b64 begin", "ret;");

	(void)state;
	assert_int_equal(t.err, 0);
	assert_true(at(&t, "mov.u64 %gbpf$g, %globaltimer;") <
		    at(&t, "atom.global.exch.b64 %gbpf$w"));
	assert_true(at(&t, "atom.global.exch.b64 %gbpf$w") < at(&t, "membar.gl;"));
	assert_true(at(&t, "membar.gl;") <
		    at(&t, "atom.global.exch.b64 %gbpf$v, [%gbpf$c+131072], %gbpf$g;"));
	assert_true(at(&t, "atom.global.exch.b64 %gbpf$v") <
		    at(&t, "setp.eq.u64 %gbpf$p, %gbpf$w, 0;"));
	assert_true(at(&t, "setp.eq.u64") < at(&t, "mov.u64 %gbpf$f27, %gbpf$v;"));
	done(&t);
}

/* The record is exchanged first; a launch without a number leaves the table alone. */
static void the_block_before_is_reported(void **state)
{
	struct result t = make(probe_late, 2);
	struct ptx_module *m = NULL;
	struct report r;

	(void)state;
	assert_int_equal(t.err, 0);
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, t.text.data, t.text.len, "stub", &r), 0);
	ptx_module_free(m);
	report_finish(&r);
	assert_true(at(&t, "$run:") < at(&t, "ld.param.u32 %gbpf$n, [arg+60];"));
	assert_true(at(&t, "setp.eq.u32 %gbpf$p, %gbpf$n, 0;") <
		    at(&t, "ld.param.u64 %gbpf$c, [arg+40];"));
	assert_true(at(&t, "[arg+40];") <
		    at(&t, "atom.global.exch.b64 %gbpf$w, [%gbpf$c], %gbpf$b;"));
	assert_true(at(&t, "atom.global.exch") < at(&t, "mov.u64 %gbpf$f3, %gbpf$b;"));
	assert_true(at(&t, "mov.u64 %gbpf$f3") < at(&t, "0x7f12f0001000")); /* before warps enter */
	done(&t);
}

static void what_is_not_known_of_the_block_before_is_refused(void **state)
{
	(void)state;
	for (uint32_t k = 4; k <= 12; k++) { /* block_x to threads_z */
		refused(-ENOTSUP, "not its coordinates or the launch's shape", PROBE_BLOCK_EXIT,
			PROBE_FIELD(k), ", .param .b32 f", "ret;");
	}
	refused(-ENOTSUP, "arguments of the kernel", PROBE_BLOCK_EXIT, 0, ", .param .b32 arg_0_4",
		"ret;");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_stand_between_gate_and_kernel),
		cmocka_unit_test(the_gate_is_unchanged),
		cmocka_unit_test(a_body_has_neither_calls_nor_parameters),
		cmocka_unit_test(guarded_returns_are_branches),
		cmocka_unit_test(labels_belong_to_their_scopes),
		cmocka_unit_test(maps_are_read_from_the_environment),
		cmocka_unit_test(offsets_of_maps_are_constants),
		cmocka_unit_test(shared_memory_is_refused),
		cmocka_unit_test(control_words_have_the_offset_of_their_row),
		cmocka_unit_test(a_map_without_an_offset_is_read_from_the_environment),
		cmocka_unit_test(arguments_are_read_from_the_padding),
		cmocka_unit_test(the_launchs_number_is_read_from_the_argument),
		cmocka_unit_test(parameters_are_read_by_number),
		cmocka_unit_test(each_field_of_the_hook_is_known),
		cmocka_unit_test(what_a_stub_lacks_is_refused),
		cmocka_unit_test(lanes_and_sites_are_refused),
		cmocka_unit_test(the_kernel_is_a_constant),
		cmocka_unit_test(the_block_before_is_reported),
		cmocka_unit_test(the_block_before_has_its_begin),
		cmocka_unit_test(what_is_not_known_of_the_block_before_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
