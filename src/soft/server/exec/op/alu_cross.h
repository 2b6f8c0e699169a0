/* Shuffles; included by lane_alu.c only. Warp reductions are chains of shuffles, so all lanes are
 * permuted at once. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_ALU_CROSS_H
#define GBPF_SOFT_SERVER_EXEC_OP_ALU_CROSS_H

#include "soft/server/exec/op/lane_alu.h"

/* Returns the union of the lanes' member masks. */
static ALWAYS_INLINE uint32_t exec_members_named(const struct exec_warp *w, const struct exec_op *o,
						 uint32_t m)
{
	const uint32_t *members = REF(const uint32_t, w, o->e);
	uint32_t all = 0;

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		all |= m & exec_lane_bit[i] ? members[i] : 0;
	}
	return all;
}

/* to[i] = from[index[i]]; index is below 32. */
static ALWAYS_INLINE void exec_pick_lanes(uint32_t *to, const uint32_t *from, const uint32_t *index)
{
#if defined(__AVX512F__)
	__m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + 16);

	for (unsigned i = 0; i < EXEC_LANES; i += 16) {
		__m512i k = _mm512_loadu_si512(index + i);

		_mm512_storeu_si512(to + i, _mm512_permutex2var_epi32(low, k, high));
	}
#else
	for (unsigned i = 0; i < EXEC_LANES; i++) {
		to[i] = from[index[i]];
	}
#endif
}

/* d = value of the lane selected by mode, b and c; p = whether it is in range. e: members, with
 * FLAG_VOTE_SYNC. low and high: ends of the lane's segment. */
#define DEF_SHFL(name, from_expr, ok_expr)                                                         \
	HANDLER(name)                                                                              \
	{                                                                                          \
		const uint32_t *a = REF(const uint32_t, w, o->a);                                  \
		const uint32_t *b = REF(const uint32_t, w, o->b);                                  \
		const uint32_t *c = REF(const uint32_t, w, o->c);                                  \
		uint32_t index[EXEC_LANES] ALIGNED(64), value[EXEC_LANES] ALIGNED(64);             \
		int32_t ok[EXEC_LANES] ALIGNED(64);                                                \
		uint32_t *d;                                                                       \
                                                                                                   \
		exec_pc_advance(w, o);                                                             \
		if (o->flags & FLAG_VOTE_SYNC &&                                                   \
		    !exec_sync_ready(w, exec_members_named(w, o, m))) {                            \
			return STEP_SWITCH;                                                        \
		}                                                                                  \
		for (int32_t i = 0; i < (int32_t)EXEC_LANES; i++) {                                \
			int32_t by = b[i] & 31, clamp = c[i] & 31, segment = c[i] >> 8 & 31;       \
			int32_t low = i & segment, high = low | (clamp & ~segment);                \
			int32_t from = (from_expr);                                                \
			bool in = (ok_expr);                                                       \
                                                                                                   \
			index[i] = (uint32_t)(in ? from : i) & 31;                                 \
			ok[i] = in ? -1 : 0;                                                       \
		}                                                                                  \
		exec_pick_lanes(value, a, index);                                                  \
		d = REF(uint32_t, w, o->d);                                                        \
		STORE_LANES(uint32_t, value[i]);                                                   \
		if (o->p != EXEC_NO_PRED) {                                                        \
			exec_pred_set(w, o->p, m, exec_pack_lanes(ok));                            \
		}                                                                                  \
		GO_ON;                                                                             \
	}
DEF_SHFL(shfl_up, i - by, from >= high)
DEF_SHFL(shfl_down, i + by, from <= high)
DEF_SHFL(shfl_bfly, i ^ by, from <= high)
DEF_SHFL(shfl_idx, low | (by & ~segment), from <= high)

#endif
