/* Calls of functions and helpers: the levels of results, of memory that they write, and of
 * arguments. */
#include "bpf/load/verify/simt/simt_int.h"

uint64_t ebpf_simt_callees(const struct ebpf_simt *s, uint32_t pc)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	if (in->src == EBPF_CALL_LOCAL) {
		return 1ull << ebpf_simt_func(s, ebpf_verify_target(in, pc));
	}
	if (in->imm != HELPER_bpf_loop) {
		return 0;
	}
	return ebpf_simt_place(s, pc, 1)->funcs;
}

unsigned ebpf_simt_out_bytes(const struct ebpf_simt *s, uint32_t pc, unsigned i)
{
	switch (ebpf_verify_helper(s->v->prog->insns[pc].imm)->args[i]) {
	case ARG_OUT64:
	case ARG_ITER_NEW:
	case ARG_ITER: /* next number; lanes that do not come here keep another */
		return 8;
	case ARG_MEM_UNINIT:
	case ARG_MAP_OUT:
		return EBPF_STACK_BYTES; /* at most */
	default:
		return 0;
	}
}

/* Enters the callee with the levels of its arguments, and takes what it has written. */
static void call(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st, unsigned g,
		 const struct ebpf_simt_set *args, uint8_t rounds)
{
	unsigned k = ebpf_simt_func(s, pc);
	uint8_t control = MAX(rounds, ebpf_simt_control(s, pc));
	struct ebpf_simt_block *entry = &s->blocks[s->block_of[s->v->prog->subprog[g]]];
	struct ebpf_simt_state in = { 0 }, own = s->foreign[g * s->n_funcs + k].levels;

	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		in.above[i].regs = args[i].regs;
	}
	if (ebpf_simt_join(&entry->in, &in)) {
		ebpf_simt_dirty(s, (uint32_t)(entry - s->blocks));
	}
	ebpf_simt_raise_set(&own, &s->foreign[g * s->n_funcs + k].wrote, rounds);
	ebpf_simt_join(st, &own);
	if (ebpf_simt_join(&s->funcs[k].seen, st)) {
		ebpf_simt_all_dirty(s);
	}
	if (s->funcs[g].control < control) {
		s->funcs[g].control = control;
		s->funcs[g].called_at = pc;
		ebpf_simt_all_dirty(s);
	}
	for (unsigned f = 0; f < s->n_funcs; f++) {
		const struct ebpf_simt_foreign *w = &s->foreign[g * s->n_funcs + f];

		if (f != k) {
			ebpf_simt_raise_foreign(s, k, f, &w->levels, &w->wrote,
						MAX(rounds, ebpf_simt_local_control(s, pc)));
		}
	}
}

static void call_local(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	unsigned g = ebpf_simt_func(s, ebpf_verify_target(&s->v->prog->insns[pc], pc));
	struct ebpf_simt_set args[LEVEL_LANE] = { 0 };

	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		args[i].regs = st->above[i].regs & 0x3e; /* r1-r5 */
	}
	call(s, pc, st, g, args, LEVEL_BLOCK);
	ebpf_simt_set_reg(st, 0, s->funcs[g].result);
}

/* bpf_loop(n, function, context, flags): the number of the round is the same for all lanes that are
 * in it. */
static void call_loop(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	struct ebpf_simt_set args[LEVEL_LANE] = { 0 };
	uint8_t rounds = ebpf_simt_rounds(s, pc, st), flags = ebpf_simt_reg(st, 4);

	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		args[i].regs = (uint16_t)((st->above[i].regs >> 3 & 1) << 2);
	}
	for (uint64_t left = ebpf_simt_callees(s, pc); left; left &= left - 1) {
		call(s, pc, st, (unsigned)__builtin_ctzll(left), args, rounds);
	}
	ebpf_simt_set_reg(st, 0, MAX(rounds, flags));
}

uint8_t ebpf_simt_rounds(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st)
{
	uint8_t level = ebpf_simt_reg(st, 1);

	for (uint64_t left = ebpf_simt_callees(s, pc); left; left &= left - 1) {
		level = MAX(level, s->funcs[__builtin_ctzll(left)].result);
	}
	return level;
}

uint8_t ebpf_simt_key(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st)
{
	const struct ebpf_simt_place *map = ebpf_simt_place(s, pc, 0);
	uint8_t key = ebpf_simt_memory(s, pc, st, map + 1, map->key_bytes, ebpf_simt_reg(st, 2));
	uint8_t handle = MAX(map->level, ebpf_simt_reg(st, 1));

	return MAX(key, handle);
}

/* Level of what a helper returns and stores, if it does not depend on the arguments. Results of
 * helpers that are not listed here or below vary. */
static const struct {
	int32_t helper;
	uint8_t level;
} given[] = {
	{ HELPER_bpf_get_block_idx, LEVEL_BLOCK }, { HELPER_bpf_get_block_dim, LEVEL_BLOCK },
	{ HELPER_bpf_puts, LEVEL_BLOCK },	   { HELPER_bpf_trace_printk, LEVEL_BLOCK },
	{ HELPER_bpf_trace_vprintk, LEVEL_BLOCK }, { HELPER_bpf_get_grid_dim, LEVEL_BLOCK },
	{ HELPER_bpf_gpu_membar, LEVEL_BLOCK },	   { HELPER_gbpf_prefetch, LEVEL_BLOCK },
	{ HELPER_bpf_get_sm_id, LEVEL_WARP },	   { HELPER_bpf_get_warp_id, LEVEL_WARP },
	{ HELPER_gbpf_ballot, LEVEL_WARP },	   { HELPER_gbpf_warp_sum, LEVEL_WARP },
	{ HELPER_gbpf_warp_min, LEVEL_WARP },	   { HELPER_gbpf_warp_max, LEVEL_WARP },
};

static uint8_t given_level(const struct ebpf_simt *s, uint32_t pc)
{
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		if (given[i].helper == s->v->prog->insns[pc].imm) {
			return given[i].level;
		}
	}
	return ebpf_simt_vary(s, pc);
}

/* Returns whether the result of a look-up differs between lanes: the keys of a hash table change,
 * so it depends on the moment, and in a map with values of threads each lane finds its own. */
static bool look_up_varies(const struct ebpf_simt *s, uint32_t pc)
{
	const struct ebpf_simt_place *map = ebpf_simt_place(s, pc, 0);

	return map->varies;
}

static uint8_t helper_result(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	uint8_t a = ebpf_simt_reg(st, 1), b = ebpf_simt_reg(st, 2), c = ebpf_simt_reg(st, 3);

	switch (s->v->prog->insns[pc].imm) {
	case HELPER_bpf_map_lookup_elem:
		return look_up_varies(s, pc) ? ebpf_simt_vary(s, pc) : ebpf_simt_key(s, pc, st);
	case HELPER_bpf_map_delete_elem: /* one lane's result for all of them */
	case HELPER_gbpf_key_add:
		return MAX(ebpf_simt_key(s, pc, st), LEVEL_WARP);
	case HELPER_bpf_map_update_elem:
		a = MAX(ebpf_simt_key(s, pc, st), look_up_varies(s, pc) ? LEVEL_WARP : LEVEL_BLOCK);
		b = ebpf_simt_reg(st, 4);
		return MAX(a, b);
	case HELPER_gbpf_hist_add: /* whether there is such an element */
	case HELPER_gbpf_atomic_add:
		return MAX(a, b);
	case HELPER_bpf_map_push_elem:
	case HELPER_bpf_ringbuf_reserve: /* whether there is a record */
		return MAX(a, c);
	case HELPER_bpf_ringbuf_output:
		return MAX(MAX(a, c), ebpf_simt_reg(st, 4));
	case HELPER_bpf_perf_event_output:
		return MAX(b, ebpf_simt_reg(st, 5));
	case HELPER_gbpf_arg:
	case HELPER_gbpf_param:
	case HELPER_gbpf_param_bytes:
		return LEVEL_BLOCK;
	case HELPER_bpf_iter_num_new:
		return MAX(b, c);
	case HELPER_bpf_iter_num_next:
		return ebpf_simt_memory(s, pc, st, ebpf_simt_place(s, pc, 0), 8, a);
	case HELPER_gbpf_sample:
	case HELPER_gbpf_shuffle: /* no such lane: the caller's own value */
		return a;
	default:
		return given_level(s, pc);
	}
}

static void call_helper(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	uint8_t result = helper_result(s, pc, st);

	for (unsigned i = 0; i < 5; i++) {
		unsigned bytes = ebpf_simt_out_bytes(s, pc, i);

		if (bytes) {
			ebpf_simt_store(s, pc, st, ebpf_simt_place(s, pc, i), bytes, result,
					ebpf_simt_reg(st, i + 1));
		}
	}
	ebpf_simt_set_reg(st, 0, result);
}

void ebpf_simt_call(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	if (in->src == EBPF_CALL_LOCAL) {
		call_local(s, pc, st);
	} else if (in->imm == HELPER_bpf_loop) {
		call_loop(s, pc, st);
	} else {
		call_helper(s, pc, st);
	}
	for (unsigned i = 1; i <= 5; i++) {
		ebpf_simt_set_reg(st, i, LEVEL_BLOCK);
	}
}
