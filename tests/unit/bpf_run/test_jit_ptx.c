/* The PTX target: what it refuses, and raw programs of any kind. A raw program ends with the
 * result, memory and error of the checked interpreter, and no bytes make the kernel fault or hang.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "bpf/load/exec_ptx.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/interp/interp.h"
#include "bpf/run/map/map_type.h"
#include "ptx_engine.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define SEED UINT64_C(0x7074785f77696c64)
#define WILD 1500u
#define BYTES 3000u
#define FUEL 3000u
#define MEM_BYTES 64u

static struct asm_unit unit;
static uint64_t rng;

static uint64_t rnd(void)
{
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() % n);
}

static void assemble(const char *text)
{
	if (asm_text(&unit, text) < 0) {
		fail_msg("%s: %s", text, unit.error);
	}
}

/* ---- refusals ---- */

static void refused(const char *text, const struct test_env *t, const char *place,
		    const char *reason)
{
	struct ptx_batch b;
	struct report r;

	assemble(text);
	report_init(&r);
	ptx_batch_begin(&b);
	assert_int_equal(ptx_batch_add(&b, unit.insns, unit.n, &t->env, &r), -ENOTSUP);
	assert_string_equal(buf_text(&r.message), reason);
	assert_string_equal(buf_text(&r.place), place);
	report_finish(&r);
	ptx_batch_finish(&b);
}

static void what_has_no_ptx_is_refused_with_place_and_reason(void **state)
{
	static struct test_env t;

	test_env_init(&t);
	test_env_add(&t, "plain", 8, 4, 0, 0);
	assert_int_equal(test_env_bind(&t), 0);
	refused("mov r1, 0; call 1001; exit", &t, "insn 1", "no PTX for helper 1001");
	refused("ldfn r0, f; exit; f:; mov r0, 0; exit", &t, "insn 0",
		"no PTX for the address of a function, except for bpf_loop");
	refused("mov r2, 0; mov r1, 1; mov r3, 0; mov r4, 0; call 181; exit", &t, "insn 4",
		"no PTX for bpf_loop with a function that is not known");
	refused("ldmap r2, 0; mov r3, 0; call 12; mov r0, 0; exit", &t, "insn 3",
		"no PTX for helper 12");
	t.env.maps[0].flags |= GBPF_F_EPOCH;
	refused("ldmap r1, 0; mov r2, r10; add r2, -4; stw [r2], 0; call 1; exit", &t, "insn 5",
		"no PTX for a map that is not a plain array");
	test_env_finish(&t);
}

/* Returns the PTX of a verified program, which the caller frees. */
static char *text_of(const char *program)
{
	static const struct ebpf_env none;
	struct ptx_batch b;

	assemble(program);
	ptx_batch_begin(&b);
	assert_int_equal(ptx_batch_add(&b, unit.insns, unit.n, &none, NULL), 0);
	free(b.programs);
	return b.text.data;
}

/* The soft GPU executes atomics on local memory; a GPU does not. */
static void atomics_on_the_stack_are_plain_accesses(void **state)
{
	char *text = text_of("mov r1, 1; stdw [r10-8], 0; afadd64 [r10-8], r1; "
			     "aadd32 [r10-4], r1; axchg64 [r10-8], r1; mov r0, 0; exit");
	const char *branch, *atomic;

	assert_null(strstr(text, "atom."));
	assert_null(strstr(text, "red."));
	free(text);
	text = text_of("mov r2, 1; afadd64 [r1+8], r2; mov r0, 0; exit");
	branch = strstr(text, "isspacep.local %p0, %t0;\n\t@%p0 bra");
	atomic = strstr(text, "atom.acq_rel.sys.add.u64");
	assert_true(branch && atomic && branch < atomic);
	free(text);
}

static void a_stack_without_pointers_is_registers(void **state)
{
	char *text = text_of("stdw [r10-8], 1; sth [r10-30], 2; ldxb r0, [r10-29]; "
			     "aadd32 [r10-4], r0; exit");

	assert_null(strstr(text, ".local"));
	assert_non_null(strstr(text, ".reg .b64 %s<4>;"));
	free(text);
	/* an address may be moved and added to, as long as it is known where it is used */
	text = text_of("stdw [r10-16], 1; mov r1, r10; mov r2, r1; add r2, -24; sub r2, -8; "
		       "ldxb r0, [r2+1]; sth [r2+14], 7; jne r2, 0, out; mov r0, 1; out:; exit");
	assert_null(strstr(text, ".local"));
	assert_non_null(strstr(text, ".reg .b64 %s<2>;"));
	assert_non_null(strstr(text, "bfe.u64 %r0, %s1, 8, 8"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r1, r10; mov r2, 8; sub r1, r2; ldxb r0, [r1]; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r1, r10; and r1, 7; mov r0, r1; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r1, r10; jgt r1, 0, out; out:; mov r0, 0; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r2, r10; jeq r1, 0, o; add r2, -8; o:; stdw [r2-8], "
		       "1; mov r0, 0; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r2, r10; jeq r1, 0, o; mov r2, r1; o:; stdw [r2-8], "
		       "1; mov r0, 0; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	/* an argument that the function uses, and one that it does not */
	text = text_of("stdw [r10-8], 1; mov r1, r10; callf f; exit; f:; ldxdw r0, [r1-8]; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-8], 1; mov r1, r10; callf f; exit; f:; mov r0, r2; exit");
	assert_null(strstr(text, ".local"));
	free(text);
	/* an iterator, and one that is not aligned */
	text = text_of("mov r1, r10; add r1, -8; mov r2, 0; mov r3, 4; call 1010; mov r1, r10; "
		       "add r1, -8; call 1011; jeq r0, 0, out; ldxw r0, [r0]; out:; exit");
	assert_null(strstr(text, ".local"));
	free(text);
	text = text_of("mov r1, r10; add r1, -8; call 1011; jne r0, 0, out; exit; out:; "
		       "ldxw r0, [r0]; exit");
	assert_null(strstr(text, ".local"));
	free(text);
	text = text_of("mov r1, r10; add r1, -12; mov r2, 0; mov r3, 4; call 1010; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stxdw [r10-8], r10; mov r0, 0; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
	text = text_of("stdw [r10-12], 1; mov r0, 0; exit");
	assert_non_null(strstr(text, ".local"));
	free(text);
}

static void a_program_too_long_for_the_buffer_is_refused(void **state)
{
	const struct ebpf_code prog = { unit.insns, 2, NULL, 0 };
	uint8_t out[16];
	size_t len = 0;

	assemble("mov r0, 0; exit");
	assert_int_equal(ebpf_jit_compile(&ebpf_target_ptx, &prog, NULL, 0, out, sizeof(out), &len),
			 -ENOSPC);
	assert_int_equal(len, 0);
}

/* ---- raw programs ---- */

/* Memory at the address that the engine gives its second allocation, so that a program computes the
 * same from pointers to its memory. Pointers to the stack differ. */
static uint8_t *memory;
static uint64_t address_of_memory;

static void raw_gives(const char *text, int error, uint64_t r0)
{
	uint8_t mem[MEM_BYTES] = { 0 };
	uint64_t got = 0;

	assemble(text);
	assert_int_equal(ptx_run_checked(unit.insns, unit.n, mem, sizeof(mem), FUEL, &got), error);
	if (!error) {
		assert_int_equal(got, r0);
	}
}

static void accesses_are_checked_to_the_byte(void **state)
{
	raw_gives("ldxb r0, [r1+63]; exit", 0, 0);
	raw_gives("ldxb r0, [r1+64]; exit", -EFAULT, 0);
	raw_gives("ldxb r0, [r1-1]; exit", -EFAULT, 0);
	raw_gives("ldxdw r0, [r1+56]; exit", 0, 0);
	raw_gives("ldxdw r0, [r1+57]; exit", -EFAULT, 0);
	raw_gives("stxdw [r10-512], r2; ldxdw r0, [r10-512]; exit", 0, MEM_BYTES);
	raw_gives("stdw [r10-513], 1; mov r0, 0; exit", -EFAULT, 0);
	raw_gives("stdw [r10-7], 1; mov r0, 0; exit", -EFAULT, 0);
	raw_gives("mov r0, 1; aadd64 [r1+4], r0; exit", -EFAULT, 0);
	raw_gives("mov r0, 0; ldxb r0, [r0]; exit", -EFAULT, 0);
	raw_gives("lddw r0, 0xffffffffffffffff; ldxdw r0, [r0]; exit", -EFAULT, 0);
	/* the stack of a function that has returned, and of a running one */
	raw_gives("callf f; ldxdw r0, [r0-8]; exit; f:; mov r0, r10; exit", -EFAULT, 0);
	raw_gives("stdw [r10-8], 5; mov r1, r10; callf f; exit; f:; ldxdw r0, [r1-8]; exit", 0, 5);
	/* across two frames */
	raw_gives("callf f; exit; f:; ldxdw r0, [r10-516]; exit", -EFAULT, 0);
}

static void registers_and_stack_begin_as_zeros(void **state)
{
	raw_gives("or r0, r3; or r0, r4; or r0, r5; or r0, r6; or r0, r7; or r0, r8; or r0, r9; "
		  "ldxdw r1, [r10-8]; or r0, r1; ldxdw r1, [r10-512]; or r0, r1; exit",
		  0, 0);
	/* a function sees the registers of its caller, and leaves r0 to r5 */
	raw_gives("mov r6, 7; callf f; mov r0, r5; add r0, r6; exit; "
		  "f:; mov r5, r6; mov r6, 100; exit",
		  0, 14);
}

static void time_counts_instructions(void **state)
{
	/* 3 before the loop, 2 a round, 1 after it */
	raw_gives("mov r0, 0; mov r1, 1498; mov r2, 0; top:; add r0, 1; jne r0, r1, top; exit", 0,
		  1498);
	raw_gives("mov r0, 0; mov r1, 1499; mov r2, 0; top:; add r0, 1; jne r0, r1, top; exit",
		  -ETIME, 0);
	raw_gives("mov r0, 0; mov r1, 1498; mov r2, 0; top:; add r0, 1; jne r0, r1, top; "
		  "mov r0, 1; exit",
		  -ETIME, 0);
	raw_gives("top:; ja top", -ETIME, 0);
	raw_gives("top:; jeq r0, 0, top; exit", -ETIME, 0);
	raw_gives("top:; callf f; ja top; f:; exit", -ETIME, 0);
	raw_gives("callf f; exit; f:; callf f; exit", -ELOOP, 0);
	raw_gives("f:; callf f; exit", -ELOOP, 0);
	/* seven calls in each other, and eight */
	raw_gives("mov r3, 7; callf f; exit; "
		  "f:; sub r3, 1; mov r0, 5; jeq r3, 0, out; callf f; out:; exit",
		  0, 5);
	raw_gives("mov r3, 8; callf f; exit; "
		  "f:; sub r3, 1; mov r0, 5; jeq r3, 0, out; callf f; out:; exit",
		  -ELOOP, 0);
}

/* ---- wild programs ---- */

static int16_t wild_off(void)
{
	static const int16_t edges[] = { 0, 8, -8, 1, -1, 56, 57, 63, 64, -512, -513, -16, -3 };

	return below(8) ? edges[below(ARRAY_SIZE(edges))] : (int16_t)rnd();
}

static int32_t wild_imm(void)
{
	static const int32_t edges[] = { 0,  1,	 -1,	    2,	       7,  31, 32,
					 63, 64, INT32_MIN, INT32_MAX, 16, 255 };

	return below(4) ? edges[below(ARRAY_SIZE(edges))] : (int32_t)rnd();
}

static struct ebpf_insn wild_alu(void)
{
	static const uint8_t ops[] = {
		EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_DIV, EBPF_OR,  EBPF_AND,
		EBPF_LSH, EBPF_RSH, EBPF_MOD, EBPF_XOR, EBPF_MOV, EBPF_ARSH
	};
	unsigned op = ops[below(ARRAY_SIZE(ops))], class = below(2) ? EBPF_ALU : EBPF_ALU64;
	int by_reg = (int)below(2), is_div = op == EBPF_DIV || op == EBPF_MOD;

	return (struct ebpf_insn){ (uint8_t)(op | class | (by_reg ? EBPF_X : EBPF_K)),
				   below(10) & 15, by_reg ? below(10) & 15 : 0,
				   (int16_t)(is_div ? below(2) : 0), by_reg ? 0 : wild_imm() };
}

/* An access through any register: most fault, those of r1 and r10 may not. */
static struct ebpf_insn wild_access(void)
{
	static const uint8_t sizes[] = { EBPF_B, EBPF_H, EBPF_W, EBPF_DW };
	static const int32_t atomics[] = { EBPF_ADD,  EBPF_OR | EBPF_FETCH,  EBPF_AND,
					   EBPF_XCHG, EBPF_XOR | EBPF_FETCH, EBPF_CMPXCHG };
	unsigned size = sizes[below(4)], base = below(8) ? (below(2) ? 1 : 10) : below(10);

	switch (below(4)) {
	case 0:
		return (struct ebpf_insn){ (uint8_t)(EBPF_ST | EBPF_MEM | size), base & 15, 0,
					   wild_off(), wild_imm() };
	case 1:
		return (struct ebpf_insn){ (uint8_t)(EBPF_STX | EBPF_MEM | size), base & 15,
					   below(10) & 15, wild_off(), 0 };
	case 2:
		return (struct ebpf_insn){
			(uint8_t)(EBPF_STX | EBPF_ATOMIC | (below(2) ? EBPF_W : EBPF_DW)),
			base & 15, below(10) & 15, wild_off(), atomics[below(ARRAY_SIZE(atomics))]
		};
	default:
		return (struct ebpf_insn){ (uint8_t)(EBPF_LDX | EBPF_MEM | size), below(10) & 15,
					   base & 15, wild_off(), 0 };
	}
}

static struct ebpf_insn wild_jump(unsigned at, unsigned n)
{
	unsigned op = below(14) << 4, class = below(2) ? EBPF_JMP : EBPF_JMP32;
	int by_reg = (int)below(2);

	if (op == EBPF_CALL || op == EBPF_EXIT) {
		return (struct ebpf_insn){ (uint8_t)(EBPF_JMP | EBPF_CALL), 0, EBPF_CALL_LOCAL, 0,
					   (int32_t)below(n) - (int32_t)at - 1 };
	}
	if (op == EBPF_JA) {
		return (struct ebpf_insn){ .code = EBPF_JMP | EBPF_JA,
					   .off = (int16_t)((int)below(n) - (int)at - 1) };
	}
	return (struct ebpf_insn){ (uint8_t)(op | class | (by_reg ? EBPF_X : EBPF_K)),
				   below(10) & 15, by_reg ? below(10) & 15 : 0,
				   (int16_t)((int)below(n) - (int)at - 1),
				   by_reg ? 0 : wild_imm() };
}

/* Two functions of wild instructions; no instruction copies r10. */
static void generate(void)
{
	unsigned n = 4 + below(24), half = 2 + below(n - 2);

	unit.n = n;
	for (unsigned k = 0; k < n; k++) {
		unsigned from = k < half ? 0 : half, to = k < half ? half : n;

		if (k == half - 1 || k == n - 1) {
			unit.insns[k] = (struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT };
			continue;
		}
		switch (below(4)) {
		case 0:
			unit.insns[k] = wild_access();
			break;
		case 1:
			unit.insns[k] = wild_jump(k - from, to - from);
			if (unit.insns[k].code == (EBPF_JMP | EBPF_CALL)) {
				unit.insns[k].imm = (int32_t)(below(4) ? half : 0) - (int32_t)k - 1;
			}
			break;
		default:
			unit.insns[k] = wild_alu();
		}
	}
}

/* Returns the error; compares error, result and memory with the checked interpreter's. A program
 * without time left ends a few instructions later than in the interpreter. */
static int compare(unsigned number)
{
	uint8_t mem[MEM_BYTES], before[MEM_BYTES];
	struct ebpf_memory region = { address_of_memory, MEM_BYTES, 1 };
	struct ebpf_checked_run run = { .regions = &region,
					.n_regions = 1,
					.r1 = address_of_memory,
					.r2 = MEM_BYTES,
					.fuel = FUEL };
	uint64_t expected = 0, got = 0;
	int err, wanted;

	for (unsigned k = 0; k < MEM_BYTES; k++) {
		before[k] = mem[k] = (uint8_t)rnd();
	}
	err = ptx_run_checked(unit.insns, unit.n, mem, MEM_BYTES, FUEL, &got);
	if (err == -EINVAL || err == -ENOTSUP) {
		return err; /* refused as a whole */
	}
	memcpy(memory, before, MEM_BYTES);
	wanted = ebpf_interp_checked(unit.insns, unit.n, &run, &expected, NULL);
	if (err != wanted || got != expected ||
	    (err != -ETIME && memcmp(mem, memory, MEM_BYTES) != 0)) {
		fail_msg("program %u of seed 0x%llx: PTX gives %d, 0x%llx, the interpreter %d, "
			 "0x%llx; memory %s",
			 number, (unsigned long long)SEED, err, (unsigned long long)got, wanted,
			 (unsigned long long)expected,
			 memcmp(mem, memory, MEM_BYTES) ? "differs" : "is equal");
	}
	return err;
}

static void wild_programs_end_as_in_the_interpreter(void **state)
{
	unsigned ends[3] = { 0 };

	rng = SEED;
	for (unsigned i = 0; i < WILD; i++) {
		int err;

		generate();
		err = compare(i);
		ends[err == 0 ? 0 : err == -EFAULT ? 1 : 2]++;
	}
	/* each kind of end is common enough to prove something */
	assert_true(ends[0] > WILD / 20 && ends[1] > WILD / 20 && ends[2] > WILD / 50);
}

/* Any bytes: half of the programs are valid ones with some bytes changed. */
static void any_bytes_are_refused_or_end(void **state)
{
	unsigned ran = 0;

	rng = SEED + 1;
	for (unsigned i = 0; i < BYTES; i++) {
		uint8_t mem[MEM_BYTES] = { 0 };
		uint64_t r0;
		int err;

		generate();
		for (unsigned k = below(4) ? 1 + below(3) : unit.n * 8; k; k--) {
			((uint8_t *)unit.insns)[below(unit.n * 8)] = (uint8_t)rnd();
		}
		err = ptx_run_checked(unit.insns, unit.n, mem, sizeof(mem), FUEL, &r0);
		ran += err != -EINVAL && err != -ENOTSUP;
		assert_true(err == 0 || err == -EINVAL || err == -ENOTSUP || err == -EFAULT ||
			    err == -ETIME || err == -ELOOP);
	}
	assert_true(ran > BYTES / 50);
}

static int map_memory(void **state)
{
	void *at;

	address_of_memory = ptx_raw_address();
	at = mmap((void *)(uintptr_t)(address_of_memory & ~UINT64_C(4095)), 8192,
		  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	memory = (uint8_t *)(uintptr_t)address_of_memory;
	return at == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_has_no_ptx_is_refused_with_place_and_reason),
		cmocka_unit_test(atomics_on_the_stack_are_plain_accesses),
		cmocka_unit_test(a_stack_without_pointers_is_registers),
		cmocka_unit_test(a_program_too_long_for_the_buffer_is_refused),
		cmocka_unit_test(accesses_are_checked_to_the_byte),
		cmocka_unit_test(registers_and_stack_begin_as_zeros),
		cmocka_unit_test(time_counts_instructions),
		cmocka_unit_test(wild_programs_end_as_in_the_interpreter),
		cmocka_unit_test(any_bytes_are_refused_or_end),
	};

	return cmocka_run_group_tests_name("bpf ptx", tests, map_memory, NULL);
}
