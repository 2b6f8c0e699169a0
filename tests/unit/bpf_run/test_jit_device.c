/* Programs inside kernels as PTX: the parameters that their context becomes, what is refused, and
 * the instructions that remain of a probe. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/load/jit/ptx/jit_ptx.h"
#include "bpf/run/interp/interp.h"
#include "ptx_engine.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

#define CTX_BYTES 256u

static struct asm_unit unit;
static struct test_env t;
static uint8_t ctx[CTX_BYTES]; /* a different byte everywhere */

static void assemble(const char *text)
{
	if (asm_text(&unit, text) < 0) {
		fail_msg("%s: %s", text, unit.error);
	}
}

/* Returns the PTX of a program of a hook, which the caller frees. */
static char *text_of(const char *program, int hook, uint64_t *ret_fields)
{
	struct ptx_batch b;

	assemble(program);
	ptx_batch_begin(&b);
	assert_int_equal(ptx_batch_add_device(&b, unit.insns, unit.n, &t.env, hook, 0, NULL), 0);
	*ret_fields = b.programs[0].fields;
	free(b.programs);
	return b.text.data;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part)) {
		print_message("%s\n", text);
		fail_msg("not found: %s", part);
	}
}

static void has_not(const char *text, const char *part)
{
	if (strstr(text, part)) {
		fail_msg("found: %s\n%s", part, text);
	}
}

/* ---- the context ---- */

static void fields_are_parameters_in_the_order_of_the_table(void **state)
{
	uint64_t fields;
	char *text =
		text_of("ldxw r2, [r1+96]; ldxdw r3, [r1+8]; ldxw r4, [r1+88]; mov r0, 0; exit",
			HOOK_gdev_enter, &fields);

	has(text, ".func p0_f0 (.param .b64 env, .param .b64 time_ns, .param .b32 sm, "
		  ".param .b32 active)");
	assert_int_equal(fields, 1u << 1 | 1u << 18 | 1u << 20);
	free(text);
	text = text_of("mov r0, 0; exit", HOOK_gdev_enter, &fields);
	has(text, ".func p0_f0 (.param .b64 env)\n");
	assert_int_equal(fields, 0);
	free(text);
}

static void the_table_has_the_fields_of_each_hook(void **state)
{
	const struct ebpf_ptx_field *f = ebpf_ptx_field(HOOK_gdev_access, 24);

	assert_string_equal(f->name, "addr");
	assert_int_equal(f->offset, 112);
	assert_int_equal(f->bytes, 8);
	assert_string_equal(ebpf_ptx_field(HOOK_gdev_enter, 0)->name, "clock");
	assert_string_equal(ebpf_ptx_field(HOOK_gdev_enter, 23)->name, "line");
	assert_string_equal(ebpf_ptx_field(HOOK_gdev_enter, 24)->name, "launch");
	assert_string_equal(ebpf_ptx_field(HOOK_gdev_enter, 25)->name, "place");
	assert_null(ebpf_ptx_field(HOOK_gdev_enter, 26));
	assert_null(ebpf_ptx_field(HOOK_gdev_line, 26));
	assert_null(ebpf_ptx_field(HOOK_gdev_block_enter, 25));
	assert_null(ebpf_ptx_field(0, 0));
	assert_null(ebpf_ptx_field(1, 0));
	assert_null(ebpf_ptx_field(-1, 0));
	assert_null(ebpf_ptx_field(63, 0)); /* the last number; no hook has it */
}

/* Runs the batch with the context for one thread. */
static void run(struct ptx_batch *b)
{
	uint8_t copy[CTX_BYTES];
	uint64_t *ret = calloc(b->n, sizeof(*ret));

	memcpy(copy, ctx, sizeof(ctx));
	ptx_batch_run(b, &t, copy, sizeof(copy), sizeof(copy), 1, ret);
	assert_memory_equal(copy, ctx, sizeof(ctx));
	free(ret);
}

static uint64_t out(unsigned i)
{
	uint64_t v;

	memcpy(&v, t.env.maps[0].data + 8 * (size_t)i, 8);
	return v;
}

static void add(struct ptx_batch *b, int hook)
{
	struct report r;

	report_init(&r);
	if (ptx_batch_add_device(b, unit.insns, unit.n, &t.env, hook, 0, &r)) {
		fail_msg("%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
}

/* Loads size bytes at off of the context, by the interpreter's rules. */
static uint64_t part(unsigned off, unsigned size, int sign)
{
	uint64_t v = 0;

	memcpy(&v, ctx + off, size);
	return sign ? (uint64_t)((int64_t)(v << (64 - 8 * size)) >> (64 - 8 * size)) : v;
}

static void add_part(struct ptx_batch *b, int hook, unsigned off, unsigned size, int sign)
{
	static const uint8_t codes[] = { 0, EBPF_B, EBPF_H, 0, EBPF_W, 0, 0, 0, EBPF_DW };

	assemble("mov r2, 0; ldval r3, 0, 0; stxdw [r3], r2; mov r0, 0; exit");
	unit.insns[0] = (struct ebpf_insn){ (uint8_t)(EBPF_LDX | (sign ? EBPF_MEMSX : EBPF_MEM) |
						      codes[size]),
					    2, 1, (int16_t)off, 0 };
	unit.insns[2].imm = (int32_t)(8 * b->n);
	add(b, hook);
}

static void each_part_of_each_field_has_its_value(void **state)
{
	static const int hooks[] = { HOOK_gdev_access, HOOK_gdev_block_exit, HOOK_gdev_retprobe };
	const struct ebpf_ptx_field *f;

	for (unsigned h = 0; h < ARRAY_SIZE(hooks); h++) {
		struct ptx_batch b;
		uint64_t expected[1024];

		test_env_reset(&t);
		ptx_batch_begin(&b);
		for (unsigned i = 0; (f = ebpf_ptx_field(hooks[h], i)); i++) {
			for (unsigned size = 1; size <= f->bytes; size *= 2) {
				for (unsigned at = 0; at < f->bytes; at += size) {
					for (int sign = 0; sign <= (size < 8); sign++) {
						assert_true(b.n < ARRAY_SIZE(expected));
						expected[b.n] = part(f->offset + at, size, sign);
						add_part(&b, hooks[h], f->offset + at, size, sign);
						assert_int_equal(b.programs[b.n - 1].fields,
								 UINT64_C(1) << i);
					}
				}
			}
		}
		assert_true(b.n > 300);
		for (unsigned k = 0, n = b.n; k < n; k++) {
			if (!k) {
				run(&b);
			}
			if (out(k) != expected[k]) {
				fail_msg("hook %d, program %u: 0x%llx, not 0x%llx", hooks[h], k,
					 (unsigned long long)out(k),
					 (unsigned long long)expected[k]);
			}
		}
	}
}

static void gives(const char *program, uint64_t expected)
{
	struct ptx_batch b;

	test_env_reset(&t);
	assemble(program);
	ptx_batch_begin(&b);
	add(&b, HOOK_gdev_access);
	run(&b);
	if (out(0) != expected) {
		fail_msg("%s gives 0x%llx, not 0x%llx", program, (unsigned long long)out(0),
			 (unsigned long long)expected);
	}
}

#define STORE "ldval r3, 0, 0; stxdw [r3], r2; mov r0, 0; exit;"

static void the_context_may_be_moved_spilled_and_passed(void **state)
{
	uint64_t clock = part(0, 8, 0), sm = part(88, 4, 0), lane = part(92, 4, 0);

	gives("mov r6, r1; mov r1, 5; ldxdw r2, [r6]; " STORE, clock);
	gives("stxdw [r10-8], r1; mov r1, 5; ldxdw r4, [r10-8]; ldxw r2, [r4+88]; " STORE, sm);
	/* on a stack in memory, over a call of a helper */
	gives("stxdw [r10-8], r1; mov r6, r10; stdw [r10-16], 3; mov r1, 0; mov r2, 1; call 1003; "
	      "ldxdw r4, [r10-8]; ldxw r2, [r4+88]; ldxdw r5, [r6-16]; add r2, r5; " STORE,
	      sm + 3);
	/* in a word whose address is known, which a store then overwrites */
	gives("mov r2, r10; add r2, -16; stxdw [r2+8], r1; ldxdw r4, [r10-8]; ldxw r5, [r4+88]; "
	      "stxdw [r10-8], r5; ldxdw r2, [r2+8]; " STORE,
	      sm);
	gives("mov r2, r1; mov r1, 7; callf f; mov r2, r0; " STORE
	      "f:; ldxw r0, [r2+88]; ldxw r3, [r2+92]; add r0, r3; exit",
	      sm + lane);
	/* two levels, and a function without it between calls */
	gives("mov r6, r1; mov r1, 9; callf h; mov r7, r0; mov r1, r6; callf f; add r0, r7; "
	      "mov r2, r0; " STORE "f:; mov r5, r1; callf g; exit; g:; ldxdw r0, [r5]; exit; "
	      "h:; mov r0, r1; mul r0, 2; exit",
	      clock + 18);
	/* a callback's second argument */
	gives("mov r3, r1; mov r1, 4; ldfn r2, f; mov r4, 0; call 181; ldval r3, 0, 0; "
	      "ldxdw r2, [r3]; " STORE
	      "f:; ldval r3, 0, 0; ldxw r4, [r2+92]; aadd64 [r3], r4; mov r0, 0; exit",
	      4 * lane);
	/* on both paths to an instruction */
	gives("mov r6, r1; ldxw r2, [r1+88]; jeq r2, 0, other; mov r6, r1; other:; "
	      "ldxdw r2, [r6]; " STORE,
	      clock);
}

/* A pointer into the context holds an offset, which selects a field. */
static void an_offset_selects_the_field(void **state)
{
	uint64_t odd = part(88, 4, 0) & 1, fields;
	char *text;

	gives("add r1, 8; ldxdw r2, [r1]; " STORE, part(8, 8, 0));
	gives("add r1, -8; ldxdw r2, [r1+16]; " STORE, part(8, 8, 0));
	for (unsigned flip = 0; flip < 2; flip++) {
		uint64_t bit = odd ^ flip;
		char program[256];

		/* by a branch; the load overwrites its base */
		snprintf(program, sizeof(program),
			 "ldxw r3, [r1+88]; and r3, 1; xor r3, %u; mov r2, 24; jeq r3, 0, o; "
			 "mov r2, 8; o:; add r1, r2; ldxdw r1, [r1]; mov r2, r1; " STORE,
			 flip);
		gives(program, bit ? part(8, 8, 0) : part(24, 8, 0));
		/* by arithmetic, a part with its sign, in a function */
		snprintf(program, sizeof(program),
			 "ldxw r3, [r1+88]; and r3, 1; xor r3, %u; lsh r3, 2; add r1, r3; "
			 "callf f; mov r2, r0; " STORE "f:; ldsxh r0, [r1+90]; exit",
			 flip);
		gives(program, bit ? part(94, 2, 1) : part(90, 2, 1));
		/* downward */
		snprintf(program, sizeof(program),
			 "ldxw r3, [r1+88]; and r3, 1; xor r3, %u; lsh r3, 4; sub r1, r3; "
			 "ldxdw r2, [r1+24]; " STORE,
			 flip);
		gives(program, bit ? part(8, 8, 0) : part(24, 8, 0));
		/* by way of a place outside of the context, which the data flow does not follow */
		snprintf(program, sizeof(program),
			 "ldxw r3, [r1+88]; and r3, 1; xor r3, %u; lsh r3, 3; add r1, -300; "
			 "add r1, r3; ldxdw r2, [r1+300]; " STORE,
			 flip);
		gives(program, bit ? part(8, 8, 0) : part(0, 8, 0));
	}
	/* the fields at other offsets are no parameters */
	text = text_of("ldxw r3, [r1+96]; mov r2, 24; jeq r3, 0, o; mov r2, 8; o:; add r1, r2; "
		       "ldxdw r2, [r1]; mov r0, 0; exit",
		       HOOK_gdev_enter, &fields);
	has(text, ".func p0_f0 (.param .b64 env, .param .b64 time_ns, .param .b64 block, "
		  ".param .b32 active)");
	free(text);
}

static void stacks_hold_their_values(void **state)
{
	/* a function's own frame and its caller's */
	gives("stdw [r10-8], 5; mov r1, r10; callf f; mov r2, r0; " STORE
	      "f:; stdw [r10-8], 9; ldxdw r0, [r1-8]; stdw [r1-8], 11; exit",
	      5);
	/* an iterator in registers */
	gives("mov r7, 100; mov r1, r10; add r1, -24; mov r2, 3; mov r3, 7; call 1010; top:; "
	      "mov r1, r10; add r1, -24; call 1011; jeq r0, 0, out; ldxw r2, [r0]; add r7, r2; "
	      "ja top; out:; mov r1, r10; add r1, -24; call 1012; ldxdw r2, [r10-24]; "
	      "add r2, r7; " STORE,
	      118);
	/* the context in a register of the stack, over a call */
	gives("stxdw [r10-8], r1; mov r1, 5; callf f; ldxdw r4, [r10-8]; ldxw r2, [r4+88]; "
	      "add r2, r0; " STORE "f:; mov r0, 3; exit",
	      part(88, 4, 0) + 3);
	/* parts of words */
	gives("lddw r3, 0x1122334455667788; stxdw [r10-16], r3; stb [r10-15], 0x99; "
	      "sth [r10-12], 0x1234; mov r4, r10; add r4, -16; ldxw r2, [r4+4]; ldxw r5, [r4]; "
	      "lsh r2, 32; or r2, r5; stw [r4+4], -1; ldsxw r5, [r10-12]; add r2, r5; " STORE,
	      0x1122123455669988 - 1);
}

static void refused(const char *program, const char *place, const char *reason)
{
	struct ptx_batch b;
	struct report r;

	assemble(program);
	report_init(&r);
	ptx_batch_begin(&b);
	assert_int_equal(
		ptx_batch_add_device(&b, unit.insns, unit.n, &t.env, HOOK_gdev_enter, 0, &r),
		-ENOTSUP);
	assert_string_equal(buf_text(&r.message), reason);
	assert_string_equal(buf_text(&r.place), place);
	report_finish(&r);
	ptx_batch_finish(&b);
}

static void other_uses_of_the_context_are_refused(void **state)
{
	const char *use = "no PTX for this use of the context: it is not in memory";

	refused("mul r1, 8; ldxdw r2, [r1]; mov r0, 0; exit", "insn 0", use);
	refused("ldval r2, 0, 0; stxdw [r2], r1; mov r0, 0; exit", "insn 2", use);
	refused("ldxw r4, [r1+88]; and r4, 8; mov r2, r10; sub r2, r4; stxdw [r2-8], r1; "
		"mov r0, 0; exit",
		"insn 4", use);
	refused("stxw [r10-8], r1; mov r0, 0; exit", "insn 0", use);
	refused("stxdw [r10-8], r1; ldxw r2, [r10-8]; mov r0, 0; exit", "insn 1", use);
	refused("mov32 r2, r1; mov r0, 0; exit", "insn 0", use);
	refused("jeq r1, 0, out; out:; mov r0, 0; exit", "insn 0", use);
	refused("mov r0, r1; exit", "insn 1", use);
	refused("stw [r1], 0; mov r0, 0; exit", "insn 0", use);
	refused("mov r2, 1; aadd64 [r1], r2; mov r0, 0; exit", "insn 1", use);
	refused("mov r2, r1; call 1003; mov r0, 0; exit", "insn 1", use);
	refused("callf f; mov r0, 0; exit; f:; mov r0, r1; exit", "insn 4", use);
	/* on one path only */
	refused("mov r6, r10; ldxw r2, [r1]; jeq r2, 0, o; mov r6, r1; o:; ldxdw r2, [r6-8]; "
		"mov r0, 0; exit",
		"insn 4", use);
	/* spilled, and perhaps overwritten since */
	refused("stxdw [r10-8], r1; ldxw r4, [r1+88]; and r4, 8; mov r2, r10; sub r2, r4; "
		"stxdw [r2-8], r10; ldxdw r3, [r10-8]; ldxw r4, [r3]; mov r0, 0; exit",
		"insn 7", use);
	refused("stxdw [r10-8], r1; mov r1, r10; callf f; ldxdw r3, [r10-8]; ldxw r4, [r3]; "
		"mov r0, 0; exit; f:; ldxb r0, [r1-1]; mov r0, 0; exit",
		"insn 4", use);
	refused("ldxdw r2, [r1+32]; mov r0, 0; exit", "insn 0",
		"no PTX for a load of no single field");
	refused("ldxw r2, [r1+128]; mov r0, 0; exit", "insn 0",
		"no PTX for a load of no single field");
	/* a stale argument register is no use */
	assemble("call 5; mov r0, 0; exit");
	{
		struct ptx_batch b;

		ptx_batch_begin(&b);
		add(&b, HOOK_gdev_enter);
		ptx_batch_finish(&b);
	}
}

static void other_targets_refuse_such_programs(void **state)
{
	const struct ebpf_jit_options o = { .device_hook = HOOK_gdev_enter };
	struct ebpf_code prog = { unit.insns, 2, NULL, 0 };
	uint8_t code[256];
	size_t len = 0;

	assemble("mov r0, 0; exit");
	assert_int_equal(ebpf_jit_compile_with(&ebpf_target_x86, &o, &prog, NULL, 0, code,
					       sizeof(code), &len),
			 -ENOTSUP);
}

/* ---- the code of a probe ---- */

/* Map 1 is an array of 132 counters in memory of the GPU. */
static void a_counter_is_a_few_instructions(void **state)
{
	static const char body[] = "\tcvta.to.global.u64 %genv, %env;\n"
				   "\t.reg .b32 %c_sm;\n"
				   "\tld.param.b32 %c_sm, [sm];\n"
				   "\tmov.b64 %r1, 0;\n"
				   "\tmov.b64 %r10, 512;\n"
				   "\tcvt.u64.u32 %r6, %c_sm;\n"
				   "\tmov.b64 %t1, %r6;\n"
				   "\tmov.b64 {%h0, %h1}, %s0;\n"
				   "\tcvt.u32.u64 %h1, %t1;\n"
				   "\tmov.b64 %s0, {%h0, %h1};\n"
				   "\tcvt.u32.u64 %w0, %r6;\n"
				   "\tmov.b64 %r0, 0;\n"
				   "\tsetp.ge.u32 %p0, %w0, 132;\n"
				   "\t@%p0 bra $L10;\n"
				   "\tld.param.u64 %t0, [map1];\n"
				   "\tmad.wide.u32 %r0, %w0, 8, %t0;\n"
				   "$M2:\n"
				   "\tmov.b64 %r1, 1;\n"
				   "\tadd.s64 %t0, %r0, 0;\n"
				   "\tcvta.to.global.u64 %t0, %t0;\n"
				   "\tred.relaxed.gpu.global.add.u64 [%t0], %r1;\n"
				   "$L10:\n";
	uint64_t fields;
	char *text = text_of("ldxw r6, [r1+88]; stxw [r10-4], r6; mov r2, r10; add r2, -4; "
			     "ldmap r1, 1; call 1; jeq r0, 0, out; mov r1, 1; "
			     "afadd64 [r0], r1; out:; mov r0, 0; exit",
			     HOOK_gdev_block_enter, &fields);

	has(text, body);
	has(text, ".func p0_f0 (.param .b64 env, .param .b64 map1, .param .b32 sm)");
	free(text);
}

static void values_are_accessed_where_their_map_is(void **state)
{
	uint64_t fields;
	char *text = text_of("ldval r2, 1, 0; ldxw r3, [r2+4]; stxdw [r2], r3; mov r4, 1; "
			     "afadd64 [r2], r4; mov r0, r4; axchg32 [r2+4], r0; mov r0, 0; exit",
			     HOOK_gdev_enter, &fields);

	has(text, "ld.relaxed.gpu.global.u32 %r3, [%t0+4]");
	has(text, "st.relaxed.gpu.global.u64 [%t0+0], %t1");
	has(text, "fence.sc.gpu");
	has(text, "atom.acq_rel.gpu.global.add.u64 %t1, [%t0], %r4");
	has_not(text, "isspacep");
	has_not(text, "setp");
	free(text);
	/* a map that other devices reach */
	text = text_of("ldval r2, 2, 0; ldxw r3, [r2+4]; mov r4, 1; aadd64 [r2], r4; "
		       "mov r0, 0; exit",
		       HOOK_gdev_enter, &fields);
	has(text, "ld.relaxed.sys.u32 %r3, [%t0+4]");
	has(text, "red.relaxed.sys.add.u64 [%t0], %r4");
	has_not(text, ".global.add");
	has_not(text, "isspacep");
	free(text);
	/* a stack is no memory of atomics */
	text = text_of("mov r2, r10; stdw [r2-8], 1; mov r4, 1; aadd64 [r2-8], r4; mov r0, 0; exit",
		       HOOK_gdev_enter, &fields);
	has_not(text, "red.");
	has_not(text, "isspacep");
	free(text);
	/* whether the place is aligned follows from how it was computed */
	text = text_of("ldxw r3, [r1+88]; and r3, 7; lsh r3, 2; ldval r2, 1, 0; add r2, r3; "
		       "ldxw r4, [r2]; ldxdw r5, [r2]; mov r0, 0; exit",
		       HOOK_gdev_enter, &fields);
	has(text, "ld.relaxed.gpu.global.u32 %r4, [%t0+0]");
	has_not(text, "ld.relaxed.gpu.global.u64 %r5");
	free(text);
}

static void a_result_that_is_not_read_is_none(void **state)
{
	uint64_t fields;
	char *text = text_of("ldval r2, 1, 0; mov r4, 1; afadd64 [r2], r4; mov r4, 2; "
			     "afor32 [r2], r4; mov r0, 0; exit",
			     HOOK_gdev_enter, &fields);

	has(text, "red.relaxed.gpu.global.add.u64 [%t0], %r4");
	has(text, "red.relaxed.gpu.global.or.b32 [%t0], %w1");
	has_not(text, "atom.");
	free(text);
}

/* Map 1 has 132 values. What is known of a key decides whether the code compares it with that. */
static void keys_are_compared_if_they_may_be_too_large(void **state)
{
	static const struct {
		const char *program; /* stores the key at r10 - 8; r6 is any number of 32 bits */
		int compared;
	} cases[] = {
		{ "stxw [r10-8], r6", 1 },
		{ "stw [r10-8], 131", 0 },
		{ "stw [r10-8], 132", 1 },
		{ "stw [r10-8], -1", 1 },
		{ "and r6, 127; stxw [r10-8], r6", 0 },
		{ "and r6, 255; stxw [r10-8], r6", 1 },
		{ "and32 r6, 131; stxw [r10-8], r6", 0 },
		{ "and r6, -2; stxw [r10-8], r6", 1 },
		{ "mov r7, 100; and r7, r6; stxw [r10-8], r7", 0 },
		{ "and r6, 127; add r6, 4; stxw [r10-8], r6", 0 },
		{ "and r6, 127; add r6, 5; stxw [r10-8], r6", 1 },
		{ "and r6, 127; sub r6, 1; stxw [r10-8], r6", 1 },
		{ "and r6, 127; neg r6; stxw [r10-8], r6", 1 },
		{ "and r6, 65; mul r6, 2; stxw [r10-8], r6", 0 },
		{ "and r6, 66; mul r6, 2; stxw [r10-8], r6", 1 },
		{ "and r6, 65; lsh r6, 1; stxw [r10-8], r6", 0 },
		{ "and r6, 66; lsh r6, 1; stxw [r10-8], r6", 1 },
		{ "mov r7, 1; lsh r7, r6; stxw [r10-8], r7", 1 },
		{ "and r6, 1023; rsh r6, 3; stxw [r10-8], r6", 0 },
		{ "rsh32 r6, 25; stxw [r10-8], r6", 0 },
		{ "rsh32 r6, 24; stxw [r10-8], r6", 1 },
		{ "rsh r6, 57; stxw [r10-8], r6", 0 },
		{ "arsh r6, 57; stxw [r10-8], r6", 1 },
		{ "mod r6, 132; stxw [r10-8], r6", 0 },
		{ "mod r6, 133; stxw [r10-8], r6", 1 },
		{ "and r6, 127; mod r6, 1000; stxw [r10-8], r6", 0 },
		{ "and r6, 127; div r6, 3; stxw [r10-8], r6", 0 },
		{ "and r6, 127; mov r7, -1; sdiv r6, r7; stxw [r10-8], r6", 1 },
		{ "smod r6, 100; stxw [r10-8], r6", 1 },
		{ "and r6, 100; or r6, 3; stxw [r10-8], r6", 0 },
		{ "and r6, 100; xor r6, 128; stxw [r10-8], r6", 1 },
		{ "and r6, 127; mov32 r7, r6; stxw [r10-8], r7", 0 },
		{ "and r6, 127; stxdw [r10-8], r6", 0 },
		{ "and r6, 127; stxdw [r10-16], r6; ldxdw r7, [r10-16]; stxw [r10-8], r7", 0 },
		{ "and r6, 127; stxw [r10-12], r6; ldxw r7, [r10-12]; stxw [r10-8], r7", 0 },
		{ "and r6, 127; stxw [r10-8], r6; stw [r10-4], -1", 0 },
		{ "and r6, 127; stxw [r10-4], r6; stw [r10-8], -1", 1 },
		{ "and r6, 127; stxw [r10-8], r6; stb [r10-7], 1", 1 },
		{ "and r6, 127; stxw [r10-8], r6; mov r7, 500; aadd32 [r10-8], r7", 1 },
		{ "stdw [r10-8], 0; mov r1, r10; add r1, -8; mov r2, r10; add r2, -16; "
		  "mov r3, r10; add r3, -24; call 503",
		  1 },
		{ "mov r7, 5; jeq r6, 0, x; mov r7, 100; x:; stxw [r10-8], r7", 0 },
		{ "mov r7, 5; jeq r6, 0, x; mov r7, r6; x:; stxw [r10-8], r7", 1 },
		{ "mov r7, 0; again:; add r7, 1; jlt r7, 100, again; stxw [r10-8], r7", 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t fields;
		char program[512], *text;

		snprintf(program, sizeof(program),
			 "ldxw r6, [r1+88]; %s; mov r2, r10; add r2, -8; ldmap r1, 1; call 1; "
			 "mov r0, 0; exit",
			 cases[i].program);
		text = text_of(program, HOOK_gdev_enter, &fields);
		if (cases[i].compared != (strstr(text, "setp.ge.u32 %p0, %w0, 132;") != NULL)) {
			fail_msg("%s\n%s", cases[i].program, text);
		}
		free(text);
	}
}

static void arguments_of_the_kernel_are_parameters(void **state)
{
	const char *why = "no PTX for gbpf_arg, unless its offset and size are numbers in the call";
	uint64_t fields;
	char *text =
		text_of("ldxw r6, [r1+88]; mov r1, 16; mov r2, 2; call 1121; mov r7, r0; "
			"mov r1, 8; mov r2, 8; call 1121; add r7, r0; callf f; mov r0, 0; exit; "
			"f:; mov r2, 2; mov r1, 16; call 1121; exit",
			HOOK_gdev_enter, &fields);

	has(text, ".func p0_f0 (.param .b64 env, .param .b32 sm, .param .b32 arg_16_2, "
		  ".param .b64 arg_8_8)");
	has(text, "cvt.u64.u32 %r0, %c_arg_16_2");
	has(text, "mov.b64 %r0, %c_arg_8_8");
	has(text, ".param .b64 env, .param .b32 sm, .param .b32 arg_16_2, .param .b64 arg_8_8)\n{");
	free(text);
	refused("ldxw r6, [r1+88]; mov r1, 8; mov r2, 4; jeq r6, 0, b; b:; call 1121; mov r0, 0; "
		"exit",
		"insn 4", why);
	refused("mov r1, 8; mov r2, 4; mov r3, 4; mov r2, r3; call 1121; mov r0, 0; exit", "insn 4",
		why);
}

static void parameters_of_the_kernel_are_parameters(void **state)
{
	uint64_t fields;
	char *text = text_of("mov r1, 3; call 1122; mov r7, r0; mov r1, 3; call 1123; add r7, r0; "
			     "mov r1, 3; call 1122; mov r1, 0; call 1123; mov r0, 0; exit",
			     HOOK_gdev_enter, &fields);

	(void)state;
	has(text, ".func p0_f0 (.param .b64 env, .param .b64 param_3, .param .b32 param_bytes_3, "
		  ".param .b32 param_bytes_0)");
	has(text, "mov.b64 %r0, %c_param_3");
	has(text, "cvt.u64.u32 %r0, %c_param_bytes_3");
	free(text);
	refused("ldxw r6, [r1+88]; mov r1, 8; jeq r6, 0, b; b:; call 1122; mov r0, 0; exit",
		"insn 3", "no PTX for gbpf_param, unless its index is a number in the call");
}

static int setup(void **state)
{
	test_env_init(&t);
	test_env_add(&t, "out", 8192, 1, 0, 1);
	test_env_add(&t, "counters", 8, 132, 0, 0);
	test_env_add(&t, "host", 64, 1, 0, 1);
	if (test_env_bind(&t) < 0) {
		return -1;
	}
	t.env.maps[1].flags |= GBPF_F_DEVICE;
	for (unsigned i = 0; i < CTX_BYTES; i++) {
		ctx[i] = (uint8_t)(i * 37 + 0x81);
	}
	return 0;
}

static int teardown(void **state)
{
	test_env_finish(&t);
	return 0;
}

/* --keep-ptx FOLDER: also writes each module that runs to a file there. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_parameters_in_the_order_of_the_table),
		cmocka_unit_test(the_table_has_the_fields_of_each_hook),
		cmocka_unit_test(each_part_of_each_field_has_its_value),
		cmocka_unit_test(the_context_may_be_moved_spilled_and_passed),
		cmocka_unit_test(an_offset_selects_the_field),
		cmocka_unit_test(stacks_hold_their_values),
		cmocka_unit_test(other_uses_of_the_context_are_refused),
		cmocka_unit_test(other_targets_refuse_such_programs),
		cmocka_unit_test(a_counter_is_a_few_instructions),
		cmocka_unit_test(values_are_accessed_where_their_map_is),
		cmocka_unit_test(arguments_of_the_kernel_are_parameters),
		cmocka_unit_test(parameters_of_the_kernel_are_parameters),
		cmocka_unit_test(a_result_that_is_not_read_is_none),
		cmocka_unit_test(keys_are_compared_if_they_may_be_too_large),
	};

	ptx_folder = argc > 2 && strcmp(argv[1], "--keep-ptx") == 0 ? argv[2] : NULL;
	return cmocka_run_group_tests_name("bpf ptx device", tests, setup, teardown);
}
