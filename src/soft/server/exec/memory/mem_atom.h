/* Atomic additions of 32-bit words, as in histograms and counters; included by lane_alu.c only. All
 * other atomics are in atom.c. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_ATOM_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_ATOM_H

#include "base/atomic.h"
#include "soft/server/exec/memory/mem.h"
#include "soft/server/exec/memory/atom.h"

/* Returns the sum over the lanes. */
static ALWAYS_INLINE uint32_t exec_lanes_sum(const uint32_t *v, uint32_t m)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		sum += m & exec_lane_bit[i] ? v[i] : 0;
	}
	return sum;
}

/* One host thread runs the block that owns the memory: lane by lane suffices. */
static ALWAYS_INLINE void exec_add_shared(struct exec_warp *w, const struct exec_op *o, uint32_t m,
					  uint8_t *p, const uint64_t *at, bool same)
{
	const uint32_t *b = REF(const uint32_t, w, o->b);
	uint32_t *d;

	if (!(o->flags & ATOM_OLD)) {
		if (same) {
			*(uint32_t *)(p + at[__builtin_ctz(m)]) += exec_lanes_sum(b, m);
			return;
		}
		exec_each_lane (m, i) {
			*(uint32_t *)(p + at[i]) += b[i];
		}
		return;
	}
	d = REF(uint32_t, w, o->d);
	exec_each_lane (m, i) {
		uint32_t *word = (uint32_t *)(p + at[i]), old = *word;

		*word = old + b[i];
		d[i] = old;
	}
}

static ALWAYS_INLINE void exec_add_global(struct exec_warp *w, const struct exec_op *o, uint32_t m,
					  uint8_t *p, const uint64_t *at, bool same)
{
	const uint32_t *b = REF(const uint32_t, w, o->b);
	uint32_t *d;

	if (!(o->flags & ATOM_OLD)) {
		if (same) {
			add_seqcst((uint32_t *)(p + at[__builtin_ctz(m)]), exec_lanes_sum(b, m));
			return;
		}
		exec_each_lane (m, i) {
			add_seqcst((uint32_t *)(p + at[i]), b[i]);
		}
		return;
	}
	d = REF(uint32_t, w, o->d);
	exec_each_lane (m, i) {
		d[i] = add_seqcst((uint32_t *)(p + at[i]), b[i]);
	}
}

#define ATOM_ADD_IN(name, kind, add)                                                               \
	static ALWAYS_INLINE int name##_at(struct exec_warp *w, const struct exec_op *o,           \
					   uint32_t m, uint64_t *at)                               \
	{                                                                                          \
		struct exec_mem_span span;                                                         \
		uint8_t *p = exec_mem_check(w, m, kind, at, 4, true, &span);                       \
                                                                                                   \
		if (unlikely(!p)) {                                                                \
			return -1;                                                                 \
		}                                                                                  \
		add(w, o, m, p, at, span.same);                                                    \
		return STEP_NEXT;                                                                  \
	}                                                                                          \
	AT_HANDLER(name, kind, true)
ATOM_ADD_IN(atom_add_global, SP_GLOBAL, exec_add_global)
ATOM_ADD_IN(atom_add_shared, SP_SHARED, exec_add_shared)

/* Lanes in several windows, or a fault: falls back to exec_op_atom, which cannot tail-call. */
HANDLER(atom_add_generic)
{
	uint64_t at[EXEC_LANES] ALIGNED(64);
	int window, r = -1;

	exec_mem_addresses(w, o, m, at);
	window = exec_same_window(at);
	if (window == (int)(EXEC_WINDOW_SHARED >> EXEC_WINDOW_SHIFT)) {
		LANES_LOOP
		{
			at[i] -= EXEC_WINDOW_SHARED;
		}
		r = atom_add_shared_at(w, o, m, at);
	} else if (window == 0) {
		r = atom_add_global_at(w, o, m, at);
	}
	if (r < 0) {
		exec_pc_advance(w, o);
		return exec_op_atom(w, o, m);
	}
	GO_ON;
}

#endif
