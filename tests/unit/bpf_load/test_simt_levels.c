/* Levels that the analysis of uniformity gives to results of helpers, and its work on a large
 * program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <time.h>

#include "base/compiler.h"
#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/run/map/map_type.h"
#include "gen_lanes.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

struct one_level {
	uint32_t pc;
	unsigned reg;
	uint8_t level;
};

static void take_level(void *arg, struct ebpf_simt *s)
{
	struct one_level *l = arg;
	struct ebpf_simt_state st;

	ebpf_simt_at(s, l->pc, &st);
	l->level = ebpf_simt_reg(&st, l->reg);
}

static void put(struct ebpf_prog *p, unsigned code, unsigned dst, unsigned src, int off, int imm)
{
	p->insns[p->n_insns++] = (struct ebpf_insn){ .code = (uint8_t)code,
						     .dst = (uint8_t)(dst & 15),
						     .src = (uint8_t)(src & 15),
						     .off = (int16_t)off,
						     .imm = imm };
}

/* Gives the helper constants: a map, a key or places of the stack where it needs them. */
static uint8_t level_of_result(int32_t id, const struct ebpf_map_def *map)
{
	const struct ebpf_verify_helper *h = ebpf_verify_helper(id);
	struct ebpf_insn insns[32] = { { 0 } };
	struct ebpf_prog p = { .hook = 32, .lane = 1, .n_subprogs = 1, .insns = insns };
	struct one_level l = { .reg = 0, .level = UINT8_MAX };

	put(&p, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, -8, 1);
	for (unsigned i = 0; i < 5 && h->args[i] != ARG_NONE; i++) {
		if (h->args[i] == ARG_CONST_MAP) {
			put(&p, EBPF_LD_IMM64, i + 1, EBPF_PSEUDO_MAP, 0, 0);
			put(&p, 0, 0, 0, 0, 0);
		} else if (h->args[i] == ARG_SCALAR) {
			put(&p, EBPF_ALU64 | EBPF_MOV, i + 1, 0, 0, 1);
		} else {
			put(&p, EBPF_ALU64 | EBPF_MOV | EBPF_X, i + 1, 10, 0, 0);
			put(&p, EBPF_ALU64 | EBPF_ADD, i + 1, 0, 0, -8);
		}
	}
	put(&p, EBPF_JMP | EBPF_CALL, 0, 0, 0, id);
	l.pc = p.n_insns;
	put(&p, EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0);
	put(&p, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
	assert_int_equal(ebpf_verify_levels(&p, map, 1, 0, NULL, take_level, &l), 0);
	return l.level;
}

static void helpers_have_their_levels(void **state)
{
	static const struct {
		int32_t helper;
		uint8_t level;
	} helpers[] = {
		{ HELPER_bpf_ktime_get_ns, LEVEL_LANE },
		{ HELPER_bpf_get_prandom_u32, LEVEL_LANE },
		{ HELPER_bpf_get_globaltimer, LEVEL_LANE },
		{ HELPER_gbpf_clock, LEVEL_LANE },
		{ HELPER_bpf_get_lane_id, LEVEL_LANE },
		{ HELPER_bpf_get_thread_idx, LEVEL_LANE },
		{ HELPER_bpf_get_sm_id, LEVEL_WARP },
		{ HELPER_bpf_get_warp_id, LEVEL_WARP },
		{ HELPER_gbpf_ballot, LEVEL_WARP },
		{ HELPER_gbpf_warp_sum, LEVEL_WARP },
		{ HELPER_gbpf_warp_min, LEVEL_WARP },
		{ HELPER_gbpf_warp_max, LEVEL_WARP },
		{ HELPER_bpf_get_block_idx, LEVEL_BLOCK },
		{ HELPER_bpf_get_block_dim, LEVEL_BLOCK },
		{ HELPER_bpf_get_grid_dim, LEVEL_BLOCK },
		{ HELPER_bpf_gpu_membar, LEVEL_BLOCK },
		{ HELPER_gbpf_prefetch, LEVEL_BLOCK },
		{ HELPER_gbpf_sample, LEVEL_BLOCK },
		{ HELPER_gbpf_shuffle, LEVEL_BLOCK },
		{ HELPER_gbpf_atomic_add, LEVEL_BLOCK },
		{ HELPER_bpf_map_lookup_elem, LEVEL_BLOCK },
	};
	struct ebpf_map_def map = { "m", GBPF_MAP_ARRAY, 4, 8, 4, GBPF_F_DEVICE, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		print_message("helper %d\n", helpers[i].helper);
		assert_int_equal(level_of_result(helpers[i].helper, &map), helpers[i].level);
	}
	map = (struct ebpf_map_def){ "m", GBPF_MAP_SM_RING, 0, 8, 64, GBPF_F_DEVICE, 0 };
	assert_int_equal(level_of_result(HELPER_bpf_map_push_elem, &map), LEVEL_BLOCK);
	map = (struct ebpf_map_def){ "m", GBPF_MAP_ARRAY, 4, 8, 4, GBPF_F_DEVICE, 0 };
	map.type = GBPF_MAP_SM_ARRAY; /* each multiprocessor has its elements */
	assert_int_equal(level_of_result(HELPER_bpf_map_lookup_elem, &map), LEVEL_WARP);
}

static void count_work(void *arg, struct ebpf_simt *s)
{
	*(uint64_t *)arg = s->work;
}

static uint64_t processor_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Prints the processor time of a large program, and bounds the work, which does not depend on the
 * machine. */
static void a_large_program_takes_little_work(void **state)
{
	static struct ebpf_insn insns[LANES_WIDE_INSNS];
	static struct ebpf_prog prog;
	uint64_t best = UINT64_MAX, work = 0;
	struct ebpf_verify_stats stats;

	gen_lanes_wide(insns, &prog);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t start = processor_ns();

		assert_int_equal(ebpf_verify(&prog, NULL, 0, 0, &stats, NULL), 0);
		best = MIN(best, processor_ns() - start);
	}
	assert_int_equal(ebpf_verify_levels(&prog, NULL, 0, 0, NULL, count_work, &work), 0);
	print_message("%u instructions: %llu us; walked %u, levels computed of %llu\n",
		      LANES_WIDE_INSNS, (unsigned long long)best / 1000, stats.visited,
		      (unsigned long long)work);
	assert_true(stats.visited <= 4 * LANES_WIDE_INSNS);
	assert_true(work <= 2 * (uint64_t)LANES_WIDE_INSNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(helpers_have_their_levels),
		cmocka_unit_test(a_large_program_takes_little_work),
	};

	return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
