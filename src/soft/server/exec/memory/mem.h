/* Loads and stores; included by lane_alu.c only, to be compiled for each instruction set. The
 * addresses of all lanes are computed and checked together: inactive lanes borrow the address of an
 * active one, so one range check suffices. Only if that fails, lanes are checked one by one to find
 * the faulting one. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_H

#include <string.h>

#include "soft/server/exec/memory/mem_vector.h"
#include "soft/server/exec/op/lane_alu.h"

#define PAGES_TOGETHER 64u

static ALWAYS_INLINE void exec_mem_addresses(struct exec_warp *w, const struct exec_op *o,
					     uint32_t m, uint64_t *at)
{
	uint64_t imm = (uint64_t)o->imm, first;

	if (o->wide & WIDE_A) {
		const uint64_t *a = REF(const uint64_t, w, o->a);

		LANES_LOOP
		{
			at[i] = a[i] + imm;
		}
	} else {
		const uint32_t *a = REF(const uint32_t, w, o->a);

		LANES_LOOP
		{
			at[i] = a[i] + imm;
		}
	}
	if (m != ~0u) {
		first = at[__builtin_ctz(m)];
		LANES_LOOP
		{
			at[i] = m & exec_lane_bit[i] ? at[i] : first;
		}
	}
}

struct exec_mem_span {
	uint64_t low, high; /* offsets of the lowest and highest first byte */
	bool sequential;    /* lane i accesses low + i * bytes, and all lanes are active */
	bool same;
};

/* Converts addresses to offsets. Returns false if some lane is misaligned. */
static ALWAYS_INLINE bool exec_mem_span(uint64_t *at, uint64_t base, uint64_t bytes, uint32_t m,
					struct exec_mem_span *ret)
{
	uint64_t low = ~UINT64_C(0), high = 0, any = 0, off_line = 0;

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		any |= at[i];
		at[i] -= base;
	}
	for (unsigned i = 0; i < EXEC_LANES; i++) {
		off_line |= at[i] ^ (at[0] + i * bytes);
	}
	if (off_line == 0) {
		/* The common case needs no minimum. A wrap-around at 2^64 makes high small; the
		 * range check refuses it. */
		ret->low = at[0];
		ret->high = at[EXEC_LANES - 1];
		if (ret->high < ret->low) {
			ret->high = ~UINT64_C(0);
		}
		ret->sequential = m == ~0u;
		ret->same = false;
		return (any & (bytes - 1)) == 0;
	}
	for (unsigned i = 0; i < EXEC_LANES; i++) {
		low = at[i] < low ? at[i] : low;
		high = at[i] > high ? at[i] : high;
	}
	ret->low = low;
	ret->high = high;
	ret->sequential = false;
	ret->same = low == high;
	return (any & (bytes - 1)) == 0;
}

static bool exec_mem_pages(const struct exec_space *s, const struct exec_mem_span *span,
			   const uint64_t *at, uint64_t bytes, uint8_t need)
{
	uint64_t first = span->low / EXEC_PAGE_BYTES,
		 last = (span->high + bytes - 1) / EXEC_PAGE_BYTES;
	uint8_t all = need;

	if (last - first < PAGES_TOGETHER) {
		for (uint64_t p = first; p <= last; p++) {
			all &= s->pages[p];
		}
		if (all & need) {
			return true;
		}
		all = need;
	}
	/* Aligned accesses of at most 32 bytes lie within one page. */
	for (unsigned i = 0; i < EXEC_LANES; i++) {
		all &= s->pages[at[i] / EXEC_PAGE_BYTES];
	}
	return all & need;
}

/* Finds the faulting lane and sets the fault. */
static NOINLINE int exec_mem_fault(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				   enum exec_space_kind space, bool write)
{
	unsigned bytes = o->size * (unsigned)o->n;

	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;

		if (!exec_lane_pointer(w, o, space, lane, at, bytes, write)) {
			return STEP_FAULT;
		}
	}
	/* The page was unmapped and is mapped again: retry the access. */
	w->pc = (uint32_t)(o - w->code);
	return STEP_SWITCH;
}

/* Returns the host address of offset 0 of the space, the same for every lane, or NULL if an access
 * is not valid. */
static ALWAYS_INLINE uint8_t *exec_mem_check(struct exec_warp *w, uint32_t m,
					     enum exec_space_kind space, uint64_t *at,
					     uint64_t bytes, bool write, struct exec_mem_span *span)
{
	const struct exec_block *b = w->block;

	if (space == SP_GLOBAL) {
		const struct exec_space *s = b->launch.space;

		if (!exec_mem_span(at, s->base, bytes, m, span) || span->high >= s->bytes ||
		    s->bytes - span->high < bytes ||
		    !exec_mem_pages(s, span, at, bytes, write ? 2 : 1)) {
			return NULL;
		}
		return s->host;
	}
	if (!exec_mem_span(at, 0, bytes, m, span) || span->high >= b->shared_bytes ||
	    b->shared_bytes - span->high < bytes) {
		return NULL;
	}
	return b->shared;
}

/* All lanes at once for the common shapes: at[] holds offsets from p. */
#define LOAD_AS(D, T)                                                                              \
	do {                                                                                       \
		D *d = REF(D, w, o->d);                                                            \
                                                                                                   \
		STORE_LANES(D, (D) * (const T *)(p + at[i]));                                      \
	} while (0)

static NOINLINE void exec_load_lanes(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				     const uint8_t *p, const uint64_t *at)
{
	unsigned shape = (unsigned)o->size << 2 | (o->flags & 1) << 1 | (o->sub & 1);

	if (o->n > 1) {
		exec_load_vectors(w, o, m, p, at);
		return;
	}
	if (o->d == ~0u) {
		return;
	}
	switch (shape) {
	case 1 << 2:
		LOAD_AS(uint32_t, uint8_t);
		break;
	case 1 << 2 | 1:
		LOAD_AS(uint32_t, int8_t);
		break;
	case 2 << 2:
		LOAD_AS(uint32_t, uint16_t);
		break;
	case 2 << 2 | 1:
		LOAD_AS(uint32_t, int16_t);
		break;
	case 4 << 2:
	case 4 << 2 | 1:
		LOAD_AS(uint32_t, uint32_t);
		break;
	case 8 << 2 | 2:
	case 8 << 2 | 3:
		LOAD_AS(uint64_t, uint64_t);
		break;
	default:
		exec_each_lane (m, i) {
			exec_load_lane(w, o, i, p + at[i]);
		}
		break;
	}
}

#define STORE_AS(T)                                                                                \
	do {                                                                                       \
		const T *v = REF(const T, w, o->d);                                                \
                                                                                                   \
		exec_each_lane (m, i) {                                                            \
			*(T *)(p + at[i]) = v[i];                                                  \
		}                                                                                  \
	} while (0)

static NOINLINE void exec_store_lanes(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				      uint8_t *p, const uint64_t *at)
{
	if (o->n > 1) {
		exec_store_vectors(w, o, m, p, at);
	} else if (o->size == 4 && !o->flags) {
		STORE_AS(uint32_t);
	} else if (o->size == 8 && o->flags) {
		STORE_AS(uint64_t);
	} else {
		exec_each_lane (m, i) {
			exec_store_lane(w, o, i, p + at[i]);
		}
	}
}

/* The handler of name##_at(), which takes the lanes' addresses. */
#define AT_HANDLER(name, kind, write)                                                              \
	HANDLER(name)                                                                              \
	{                                                                                          \
		uint64_t at[EXEC_LANES] ALIGNED(64);                                               \
                                                                                                   \
		exec_mem_addresses(w, o, m, at);                                                   \
		if (unlikely(name##_at(w, o, m, at) < 0)) {                                        \
			return exec_mem_fault(w, o, m, kind, write);                               \
		}                                                                                  \
		GO_ON;                                                                             \
	}

#define ANY_SIZE(name, kind, write, all)                                                           \
	static ALWAYS_INLINE int name##_at(struct exec_warp *w, const struct exec_op *o,           \
					   uint32_t m, uint64_t *at)                               \
	{                                                                                          \
		struct exec_mem_span span;                                                         \
		uint8_t *p =                                                                       \
			exec_mem_check(w, m, kind, at, o->size * (unsigned)o->n, write, &span);    \
                                                                                                   \
		if (unlikely(!p)) {                                                                \
			return -1;                                                                 \
		}                                                                                  \
		all(w, o, m, p, at);                                                               \
		return STEP_NEXT;                                                                  \
	}                                                                                          \
	AT_HANDLER(name, kind, write)
ANY_SIZE(load_global, SP_GLOBAL, false, exec_load_lanes)
ANY_SIZE(load_shared, SP_SHARED, false, exec_load_lanes)
ANY_SIZE(store_global, SP_GLOBAL, true, exec_store_lanes)
ANY_SIZE(store_shared, SP_SHARED, true, exec_store_lanes)

#define BY_LANE(name, kind, write, one)                                                            \
	HANDLER(name)                                                                              \
	{                                                                                          \
		unsigned bytes = o->size * (unsigned)o->n;                                         \
                                                                                                   \
		exec_each_lane (m, i) {                                                            \
			uint64_t at =                                                              \
				exec_lane_get(w, o->a, o->wide & WIDE_A, i) + (uint64_t)o->imm;    \
			uint8_t *p = exec_lane_pointer(w, o, kind, i, at, bytes, write);           \
                                                                                                   \
			if (!p) {                                                                  \
				return STEP_FAULT;                                                 \
			}                                                                          \
			one(w, o, i, p);                                                           \
		}                                                                                  \
		GO_ON;                                                                             \
	}

/* Local memory: each lane has its own piece, all of one size. at[]: offsets in the piece. */
#define IN_LOCAL(name, write, all)                                                                 \
	static ALWAYS_INLINE int name##_at(struct exec_warp *w, const struct exec_op *o,           \
					   uint32_t m, uint64_t *at)                               \
	{                                                                                          \
		const uint64_t stride = w->block->f->local_stride;                                 \
		const unsigned bytes = o->size * (unsigned)o->n;                                   \
		uint8_t *p = w->block->local + w->index * EXEC_LANES * stride;                     \
		struct exec_mem_span span;                                                         \
                                                                                                   \
		if (unlikely(!exec_mem_span(at, 0, bytes, m, &span) || span.high >= stride ||      \
			     stride - span.high < bytes)) {                                        \
			return -1;                                                                 \
		}                                                                                  \
		LANES_LOOP                                                                         \
		{                                                                                  \
			at[i] += i * stride;                                                       \
		}                                                                                  \
		all(w, o, m, p, at);                                                               \
		return STEP_NEXT;                                                                  \
	}                                                                                          \
	AT_HANDLER(name, SP_LOCAL, write)
IN_LOCAL(load_local, false, exec_load_lanes)
IN_LOCAL(store_local, true, exec_store_lanes)
BY_LANE(load_param_lanes, SP_PARAM, false, exec_load_lane)
BY_LANE(load_generic_lanes, SP_GENERIC, false, exec_load_lane)
BY_LANE(store_generic_lanes, SP_GENERIC, true, exec_store_lane)

/* The address is nearly always constant: one check, then a broadcast. */
HANDLER(load_param)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	unsigned bytes = o->size * (unsigned)o->n;
	uint64_t at;
	const uint8_t *p;

	if ((o->a & REF_MASK) != REF_CONST) {
		return load_param_lanes(w, o, m);
	}
	at = REF(const uint64_t, w, o->a)[0] + (uint64_t)o->imm;
	p = (const uint8_t *)w->block->launch.params + at;
	if (unlikely(at & (bytes - 1) || at >= w->block->f->info.param_bytes ||
		     w->block->f->info.param_bytes - at < bytes)) {
		return load_param_lanes(w, o, m);
	}
	for (unsigned k = 0; k < o->n; k++) {
		uint64_t v = exec_read_element(p + k * o->size, o->size, o->sub);

		if (refs[k] == ~0u) {
			continue;
		}
		if (o->flags >> k & 1) {
			uint64_t *d = REF(uint64_t, w, refs[k]);

			STORE_LANES(uint64_t, v);
		} else {
			uint32_t *d = REF(uint32_t, w, refs[k]);

			STORE_LANES(uint32_t, v);
		}
	}
	GO_ON;
}

/* Returns the window that all lanes access, or -1: the fast paths. */
static ALWAYS_INLINE int exec_same_window(const uint64_t *at)
{
	uint64_t any = 0, differ = 0;

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		any |= at[i];
		differ |= at[i] ^ at[0];
	}
	if (differ >> EXEC_WINDOW_SHIFT) {
		return -1;
	}
	return (int)(any >> EXEC_WINDOW_SHIFT);
}

#define GENERIC(name, shared, local, global, lanes)                                                \
	HANDLER(name)                                                                              \
	{                                                                                          \
		uint64_t at[EXEC_LANES] ALIGNED(64), window;                                       \
		int r = -1;                                                                        \
                                                                                                   \
		exec_mem_addresses(w, o, m, at);                                                   \
		window = (uint64_t)exec_same_window(at) << EXEC_WINDOW_SHIFT;                      \
		if (window == EXEC_WINDOW_SHARED || window == EXEC_WINDOW_LOCAL) {                 \
			LANES_LOOP                                                                 \
			{                                                                          \
				at[i] -= window;                                                   \
			}                                                                          \
			r = window == EXEC_WINDOW_SHARED ? shared##_at(w, o, m, at)                \
							 : local##_at(w, o, m, at);                \
		} else if (window == 0) {                                                          \
			r = global##_at(w, o, m, at);                                              \
		}                                                                                  \
		if (r < 0) {                                                                       \
			return lanes(w, o, m);                                                     \
		}                                                                                  \
		GO_ON;                                                                             \
	}
GENERIC(load_generic, load_shared, load_local, load_global, load_generic_lanes)
GENERIC(store_generic, store_shared, store_local, store_global, store_generic_lanes)

#endif
