/* Framework for handlers over 32 lanes. Each loop runs over all lanes, so that the compiler
 * vectorizes it; inactive lanes keep their value. If every living lane is active no blending is
 * needed. Sources and destination may be the same register but never overlap otherwise: hence
 * ivdep. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_LANE_ALU_H
#define GBPF_SOFT_SERVER_EXEC_OP_LANE_ALU_H

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "soft/server/exec/handlers.h"

static const uint32_t exec_lane_bit[EXEC_LANES] = {
	1u << 0,  1u << 1,  1u << 2,  1u << 3,	1u << 4,  1u << 5,  1u << 6,  1u << 7,
	1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
	1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
	1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

#if defined(__clang__) /* clang compiles this for analysis and fuzzing only */
#define LANES_PRAGMA
#else
#define LANES_PRAGMA _Pragma("GCC ivdep")
#endif
#define LANES_LOOP LANES_PRAGMA for (unsigned i = 0; i < EXEC_LANES; i++)

#define STORE_ALL(D, expr)                                                                         \
	LANES_LOOP                                                                                 \
	{                                                                                          \
		d[i] = (D)(expr);                                                                  \
	}
#define STORE_SOME(D, expr)                                                                        \
	LANES_LOOP                                                                                 \
	{                                                                                          \
		D v_ = (D)(expr);                                                                  \
		d[i] = m & exec_lane_bit[i] ? v_ : d[i];                                           \
	}
#define STORE_LANES(D, expr)                                                                       \
	do {                                                                                       \
		if (likely((m | w->idle) == ~0u)) {                                                \
			STORE_ALL(D, expr)                                                         \
		} else {                                                                           \
			STORE_SOME(D, expr)                                                        \
		}                                                                                  \
	} while (0)

/* The section identifies handlers to handlers.c. */
#define HANDLER_SECTION __attribute__((section("exec_run")))
#define HANDLER(name)                                                                              \
	static HANDLER_SECTION int name(struct exec_warp *w, const struct exec_op *o, uint32_t m)

/* The end of every handler: a tail call of the next handler, or a return to the loop, which needs a
 * correct pc. Code that may read w->pc earlier must set it with exec_pc_advance(). */
static ALWAYS_INLINE void exec_pc_advance(struct exec_warp *w, const struct exec_op *o)
{
	w->pc = (uint32_t)(o - w->code) + 1;
}

static ALWAYS_INLINE int exec_next_op(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	if (likely(o->tail_calls && (uintptr_t)(o + 1) < w->run_end)) {
		return o[1].fn(w, o + 1, m);
	}
	exec_pc_advance(w, o);
#if defined(__AVX__)
	_mm256_zeroupper(); /* once per run: compiled with -mno-vzeroupper */
#endif
	return STEP_NEXT;
}
#define GO_ON return exec_next_op(w, o, m)

/* D: storage type of the destination; S: of the sources; T: type as which they are read. expr may
 * use x, y, z, type, utype. */
#define X ((T_)a[i])
#define Y ((T_)b[i])
#define Z ((T_)c[i])

/* Two functions, so that the common one, for all living lanes, stays small. */
#define DEF_LANES(name, D, operands, expr)                                                         \
	static NOINLINE HANDLER_SECTION int name##_some(struct exec_warp *w,                       \
							const struct exec_op *o, uint32_t m)       \
	{                                                                                          \
		operands;                                                                          \
		STORE_SOME(D, expr)                                                                \
		GO_ON;                                                                             \
	}                                                                                          \
	HANDLER(name)                                                                              \
	{                                                                                          \
		if (unlikely((m | w->idle) != ~0u)) {                                              \
			return name##_some(w, o, m);                                               \
		}                                                                                  \
		operands;                                                                          \
		STORE_ALL(D, expr)                                                                 \
		GO_ON;                                                                             \
	}
#define SOURCE(S, x) const S *x = REF(const S, w, o->x)

#define DEF1(name, D, S, T, expr)                                                                  \
	DEF_LANES(name, D, typedef T T_; SOURCE(S, a); D *d = REF(D, w, o->d), expr)
#define DEF2(name, D, S, T, expr)                                                                  \
	DEF_LANES(name, D, typedef T T_; SOURCE(S, a); SOURCE(S, b); D *d = REF(D, w, o->d), expr)
#define DEF3(name, D, S, T, expr)                                                                  \
	DEF_LANES(name, D, typedef T T_; SOURCE(S, a); SOURCE(S, b); SOURCE(S, c);                 \
		  D *d = REF(D, w, o->d), expr)
/* b is always a 32-bit register: the shift count. */
#define DEFSHIFT(name, S, T, expr)                                                                 \
	DEF_LANES(name, S, typedef T T_; SOURCE(S, a); SOURCE(uint32_t, b);                        \
		  S *d = REF(S, w, o->d), expr)

/* Packs one word per lane, -1 or 0, into a mask. */
static ALWAYS_INLINE uint32_t exec_pack_lanes(const int32_t *c)
{
#if defined(__AVX512DQ__)
	return (uint32_t)_mm512_movepi32_mask(_mm512_loadu_si512(c + 16)) << 16 |
	       (uint32_t)_mm512_movepi32_mask(_mm512_loadu_si512(c));
#elif defined(__AVX2__)
	uint32_t r = 0;

	for (unsigned i = 0; i < 4; i++) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(c + 8 * i));

		r |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(v)) << 8 * i;
	}
	return r;
#elif defined(__SSE2__)
	const __m128i *v = (const __m128i *)c;
	uint32_t r = 0;

	for (unsigned i = 0; i < 2; i++) {
		__m128i low =
			_mm_packs_epi32(_mm_loadu_si128(v + 4 * i), _mm_loadu_si128(v + 4 * i + 1));
		__m128i high = _mm_packs_epi32(_mm_loadu_si128(v + 4 * i + 2),
					       _mm_loadu_si128(v + 4 * i + 3));

		r |= (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) << 16 * i;
	}
	return r;
#else
	uint32_t r = 0;

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		r |= (uint32_t)(c[i] & 1) << i;
	}
	return r;
#endif
}

#endif
