/* The bound of the verifier's effort, on programs whose paths end before they walk an instruction:
 * thousands of jumps, each to a place of its own, inside loops in three functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>

#include "bpf/load/verify/verify.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum { JUMPS = 16000, LOOPS = 7, FUNCTIONS = 3, TICK = 6, GDEV_ENTER = 32, THREAD_X = 68 };

struct text {
	struct ebpf_insn insns[2 * JUMPS + 200];
	uint32_t n;
};

static void emit(struct text *t, unsigned code, unsigned dst, unsigned src, uint32_t off, int imm)
{
	t->insns[t->n++] =
		(struct ebpf_insn){ (uint8_t)code, dst & 15, src & 15, (int16_t)off, imm };
}

static void set(struct text *t, unsigned dst, int imm)
{
	emit(t, EBPF_ALU64 | EBPF_MOV | EBPF_K, dst, 0, 0, imm);
}

/* Jumps to places whose order is that of the last jump first. */
static void jumps(struct text *t)
{
	uint32_t first = t->n;

	for (uint32_t i = 0; i < JUMPS; i++) {
		emit(t, EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 2 * (JUMPS - i) - 1, (int)i);
	}
	assert_int_equal(t->n, first + JUMPS);
	set(t, 8, 1);
	for (uint32_t i = 0; i < JUMPS; i++) {
		emit(t, EBPF_ALU64 | EBPF_MOV | EBPF_X, 8, 0, 0, 0);
	}
}

/* A function with nested loops around a call of the next function, or around the jumps. */
static void function(struct text *t, int last)
{
	uint32_t head[LOOPS];

	emit(t, EBPF_ALU64 | EBPF_MOV | EBPF_X, 6, 1, 0, 0);
	set(t, 9, 0);
	for (unsigned i = 0; i < LOOPS; i++) {
		head[i] = t->n;
		emit(t, EBPF_ALU64 | EBPF_ADD | EBPF_K, 9, 0, 0, 1);
	}
	if (last) {
		emit(t, EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 6, 0, 0);
		jumps(t);
	} else { /* the next function begins behind this one's two jumps a loop, and its end */
		emit(t, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 6, 0, 0);
		emit(t, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 2 * LOOPS + 2);
	}
	for (unsigned i = LOOPS; i-- > 0;) {
		emit(t, EBPF_JMP | EBPF_JGT | EBPF_K, 9, 0, 1, 100000);
		emit(t, EBPF_JMP32 | EBPF_JA, 0, 0, 0, (int)head[i] - (int)t->n - 1);
	}
	set(t, 0, 0);
	emit(t, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

static void effort_is_bounded_where_paths_only_wait(void **state)
{
	static struct text t;
	static struct ebpf_prog p = { .hook = TICK, .insns = t.insns, .n_subprogs = FUNCTIONS };
	struct ebpf_verify_stats merged = { 0 }, all = { 0 };

	for (unsigned i = 0; i < FUNCTIONS; i++) {
		p.subprog[i] = t.n;
		function(&t, i + 1 == FUNCTIONS);
	}
	p.n_insns = t.n;
	assert_int_equal(ebpf_verify(&p, NULL, 0, EBPF_VERIFY_MERGE, &merged, NULL), -E2BIG);
	assert_in_range(merged.visited, JUMPS, 2 * JUMPS); /* the jumps were reached */
	assert_in_range(merged.effort, 0, EBPF_VERIFY_MAX_EFFORT / 2);
	assert_int_equal(ebpf_verify(&p, NULL, 0, 0, &all, NULL), -E2BIG);
	assert_in_range(all.effort, merged.effort, EBPF_VERIFY_MAX_EFFORT);
}

/* Branches on bits of one number, each over several others. */
static void ladder(struct text *t, uint32_t rungs)
{
	emit(t, EBPF_LDX | EBPF_MEM | EBPF_W, 7, 1, THREAD_X, 0);
	for (uint32_t i = 0; i < rungs; i++) {
		uint32_t over = i + 7 < rungs ? 7 : rungs - 1 - i;

		emit(t, EBPF_JMP | EBPF_JSET | EBPF_K, 7, 0, 2 * over + 1, 1 << i % 31);
		set(t, 3 + i % 3, (int)i);
	}
	set(t, 0, 0);
	emit(t, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* Its paths are too many to be walked one by one, but they merge. */
static void a_ladder_of_branches_in_a_kernel_takes_little_effort(void **state)
{
	static struct text t;
	static struct ebpf_prog p = { .hook = GDEV_ENTER, .insns = t.insns, .n_subprogs = 1 };

	for (int lane = 0; lane < 2; lane++) {
		struct ebpf_verify_stats stats = { 0 };

		t.n = 0;
		ladder(&t, lane ? 120 : 500);
		p.n_insns = t.n;
		p.lane = lane != 0;
		assert_int_equal(ebpf_verify(&p, NULL, 0, 0, &stats, NULL), 0);
		assert_in_range(stats.effort, 1, 1500000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(effort_is_bounded_where_paths_only_wait),
		cmocka_unit_test(a_ladder_of_branches_in_a_kernel_takes_little_effort),
	};

	return cmocka_run_group_tests_name("verifier effort", tests, NULL, NULL);
}
