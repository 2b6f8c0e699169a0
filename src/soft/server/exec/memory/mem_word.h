/* Loads and stores of one 32-bit or 64-bit word per lane, the most frequent ones; included by
 * lane_alu.c only. Each half of the warp is classified by itself, since tiles are 16 wide: its
 * lanes access consecutive words, one word, or scattered words. All addresses are checked before
 * any data moves. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_WORD_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_WORD_H

#include "soft/server/exec/memory/mem.h"

#define HALF 16u

enum { HALF_NONE, HALF_SAME, HALF_ROW, HALF_ANY };
struct exec_half_warp {
	unsigned kind;
	uint8_t *p; /* address of lane 0 (row), of the word (same), or of offset 0 (any) */
	uint64_t at[HALF] ALIGNED(64); /* offsets for HALF_ANY */
};

struct exec_word_access {
	unsigned kind; /* HALF_ANY: see the halves */
	uint8_t *p;
	struct exec_half_warp h[2];
};

/* Returns true if each lane i of m is at base + i * step. */
static ALWAYS_INLINE bool exec_half_matches(const uint64_t *a, uint64_t base, uint64_t step,
					    uint32_t m)
{
#if defined(__AVX512F__)
	const __m512i ramp = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
	__m512i want = _mm512_add_epi64(_mm512_set1_epi64((long long)base),
					step == 4   ? _mm512_slli_epi64(ramp, 2)
					: step == 8 ? _mm512_slli_epi64(ramp, 3)
						    : _mm512_setzero_si512());
	__m512i more = _mm512_add_epi64(want, _mm512_set1_epi64((long long)(8 * step)));

	return (_mm512_mask_cmpneq_epi64_mask((__mmask8)m, _mm512_loadu_si512(a), want) |
		_mm512_mask_cmpneq_epi64_mask((__mmask8)(m >> 8), _mm512_loadu_si512(a + 8),
					      more)) == 0;
#else
	uint64_t off = 0;

	if (m == 0xffff) {
		for (unsigned i = 0; i < HALF; i++) {
			off |= a[i] ^ (base + i * step);
		}
	} else {
		for (unsigned i = 0; i < HALF; i++) {
			off |= m & exec_lane_bit[i] ? a[i] ^ (base + i * step) : 0;
		}
	}
	return off == 0;
#endif
}

/* Returns the host address of n bytes in the space, or NULL if they are not all valid. They lie in
 * at most two pages. */
static ALWAYS_INLINE uint8_t *exec_word_place(const struct exec_block *b,
					      enum exec_space_kind space, uint64_t address,
					      uint64_t n, bool write)
{
	const struct exec_space *s = b->launch.space;
	const uint8_t need = write ? 2 : 1;
	uint64_t off = address;

	if (space == SP_GENERIC && address >> EXEC_WINDOW_SHIFT) {
		off -= EXEC_WINDOW_SHARED;
		space = SP_SHARED;
	}
	if (space == SP_SHARED) {
		return off < b->shared_bytes && b->shared_bytes - off >= n ? b->shared + off : NULL;
	}
	off -= s->base;
	if (off >= s->bytes || s->bytes - off < n ||
	    !(s->pages[off / EXEC_PAGE_BYTES] & s->pages[(off + n - 1) / EXEC_PAGE_BYTES] & need)) {
		return NULL;
	}
	return s->host + off;
}

/* Lane by lane. Offsets are relative to the host address of offset 0 of the first lane's space. */
static ALWAYS_INLINE bool exec_half_anywhere(const struct exec_block *b, enum exec_space_kind space,
					     const uint64_t *a, uint64_t imm, uint64_t bytes,
					     uint32_t m, bool write, struct exec_half_warp *h)
{
	const struct exec_space *s = b->launch.space;
	const uint8_t need = write ? 2 : 1;
	uint64_t base, size, wrong = 0;
	uint8_t rights = need;

	if (space == SP_GENERIC) {
		space = (a[__builtin_ctz(m)] + imm) >> EXEC_WINDOW_SHIFT ? SP_SHARED : SP_GLOBAL;
		base = space == SP_SHARED ? EXEC_WINDOW_SHARED : s->base;
	} else {
		base = space == SP_SHARED ? 0 : s->base;
	}
	size = space == SP_SHARED ? b->shared_bytes : s->bytes;
	h->kind = HALF_ANY;
	h->p = space == SP_SHARED ? b->shared : s->host;
	if (size < bytes) {
		return false;
	}
	exec_each_lane (m, i) {
		uint64_t off = a[i] + imm - base;

		wrong |= (uint64_t)(off > size - bytes) | ((a[i] + imm) & (bytes - 1));
		h->at[i] = off;
	}
	if (wrong) {
		return false;
	}
	if (space != SP_SHARED) {
		exec_each_lane (m, i) {
			rights &= s->pages[h->at[i] / EXEC_PAGE_BYTES];
		}
	}
	return rights;
}

/* Predicts the access pattern from the first and last lane, to test only that one. */
static ALWAYS_INLINE unsigned exec_guess(const uint64_t *a, unsigned first, unsigned last,
					 uint64_t bytes)
{
	uint64_t apart = a[last] - a[first];

	return apart == 0 ? HALF_SAME : apart == (last - first) * bytes ? HALF_ROW : HALF_ANY;
}

/* Returns false if some lane's access is not valid or needs the slow path. */
static ALWAYS_INLINE bool exec_half_find(const struct exec_block *b, enum exec_space_kind space,
					 const uint64_t *a, uint64_t imm, uint64_t bytes,
					 uint32_t m, bool write, struct exec_half_warp *h)
{
	unsigned first, last, kind;
	uint64_t low;

	h->kind = HALF_NONE;
	h->p = NULL;
	if (m == 0) {
		return true;
	}
	first = (unsigned)__builtin_ctz(m);
	last = 31 - (unsigned)__builtin_clz(m);
	low = a[first];
	kind = exec_guess(a, first, last, bytes);
	if (kind == HALF_SAME && exec_half_matches(a, low, 0, m)) {
		h->kind = HALF_SAME;
		h->p = exec_word_place(b, space, low + imm, bytes, write);
		return h->p != NULL && ((low + imm) & (bytes - 1)) == 0;
	}
	if (kind == HALF_ROW && exec_half_matches(a, low - first * bytes, bytes, m)) {
		h->kind = HALF_ROW;
		h->p = exec_word_place(b, space, low + imm, (last - first + 1) * bytes, write);
		if (!h->p || (low + imm) & (bytes - 1)) {
			return false;
		}
		h->p -= first * bytes;
		return true;
	}
	return exec_half_anywhere(b, space, a, imm, bytes, m, write, h);
}

/* Classifies the warp as a whole, else its halves. 32-bit addresses are widened first. */
static ALWAYS_INLINE bool exec_words_find(struct exec_warp *w, const struct exec_op *o,
					  enum exec_space_kind space, uint64_t bytes, uint32_t m,
					  bool write, struct exec_word_access *r)
{
	const unsigned first = (unsigned)__builtin_ctz(m), last = 31 - (unsigned)__builtin_clz(m);
	const uint32_t low_half = m & 0xffff, high_half = m >> HALF;
	const uint64_t imm = (uint64_t)o->imm;
	uint64_t wide[EXEC_LANES] ALIGNED(64), low, base;
	const uint64_t *a;

	if (o->wide & WIDE_A) {
		a = REF(const uint64_t, w, o->a);
	} else {
		const uint32_t *narrow = REF(const uint32_t, w, o->a);

		LANES_LOOP
		{
			wide[i] = narrow[i];
		}
		a = wide;
	}
	low = a[first];
	r->kind = exec_guess(a, first, last, bytes);
	if (r->kind == HALF_SAME && exec_half_matches(a, low, 0, low_half) &&
	    exec_half_matches(a + HALF, low, 0, high_half)) {
		r->p = exec_word_place(w->block, space, low + imm, bytes, write);
		return r->p != NULL && ((low + imm) & (bytes - 1)) == 0;
	}
	base = low - first * bytes;
	if (r->kind == HALF_ROW && exec_half_matches(a, base, bytes, low_half) &&
	    exec_half_matches(a + HALF, base + HALF * bytes, bytes, high_half)) {
		r->p = exec_word_place(w->block, space, low + imm, (last - first + 1) * bytes,
				       write);
		if (!r->p || (low + imm) & (bytes - 1)) {
			return false;
		}
		r->p -= first * bytes;
		return true;
	}
	r->kind = HALF_ANY;
	return exec_half_find(w->block, space, a, imm, bytes, low_half, write, &r->h[0]) &&
	       exec_half_find(w->block, space, a + HALF, imm, bytes, high_half, write, &r->h[1]);
}

#if defined(__AVX512F__)
/* Registers are stored whole, because a load cannot be forwarded from a masked store. Memory is
 * touched only where lanes of m are. */
static ALWAYS_INLINE void exec_put_16(void *to, __m512i v, __mmask16 m)
{
	if (m != 0xffff) {
		v = _mm512_mask_mov_epi32(_mm512_loadu_si512(to), m, v);
	}
	_mm512_storeu_si512(to, v);
}

static ALWAYS_INLINE void exec_put_8(void *to, __m512i v, __mmask8 m)
{
	if (m != 0xff) {
		v = _mm512_mask_mov_epi64(_mm512_loadu_si512(to), m, v);
	}
	_mm512_storeu_si512(to, v);
}

static ALWAYS_INLINE void exec_take_row_4(void *to, const void *from, uint32_t m)
{
	exec_put_16(to, _mm512_maskz_loadu_epi32((__mmask16)m, from), (__mmask16)m);
}

static ALWAYS_INLINE void exec_take_row_8(void *to, const void *from, uint32_t m)
{
	const uint8_t *high = (const uint8_t *)from + 64;

	exec_put_8(to, _mm512_maskz_loadu_epi64((__mmask8)m, from), (__mmask8)m);
	exec_put_8((uint8_t *)to + 64, _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), high),
		   (__mmask8)(m >> 8));
}

static ALWAYS_INLINE void exec_give_row_4(void *to, const void *from, uint32_t m)
{
	if (m == 0xffff) {
		_mm512_storeu_si512(to, _mm512_loadu_si512(from));
	} else {
		_mm512_mask_storeu_epi32(to, (__mmask16)m, _mm512_loadu_si512(from));
	}
}

static ALWAYS_INLINE void exec_give_row_8(void *to, const void *from, uint32_t m)
{
	const uint8_t *high = (const uint8_t *)from + 64;

	_mm512_mask_storeu_epi64(to, (__mmask8)m, _mm512_loadu_si512(from));
	_mm512_mask_storeu_epi64((uint8_t *)to + 64, (__mmask8)(m >> 8), _mm512_loadu_si512(high));
}

static ALWAYS_INLINE void exec_fill_row_4(void *to, uint32_t v, uint32_t m)
{
	exec_put_16(to, _mm512_set1_epi32((int)v), (__mmask16)m);
}

static ALWAYS_INLINE void exec_fill_row_8(void *to, uint64_t v, uint32_t m)
{
	__m512i all = _mm512_set1_epi64((long long)v);

	exec_put_8(to, all, (__mmask8)m);
	exec_put_8((uint8_t *)to + 64, all, (__mmask8)(m >> 8));
}
#else
/* Touches only memory that lanes of m name. */
#define DEF_ROW(size, T)                                                                           \
	static ALWAYS_INLINE void exec_move_row_##size(void *to, const void *from, uint32_t m)     \
	{                                                                                          \
		if (m == 0xffff) {                                                                 \
			memcpy(to, from, HALF * sizeof(T));                                        \
			return;                                                                    \
		}                                                                                  \
		exec_each_lane (m, i) {                                                            \
			((T *)to)[i] = ((const T *)from)[i];                                       \
		}                                                                                  \
	}                                                                                          \
	static ALWAYS_INLINE void exec_fill_row_##size(void *to, T v, uint32_t m)                  \
	{                                                                                          \
		T *d = to;                                                                         \
                                                                                                   \
		for (unsigned i = 0; i < HALF; i++) {                                              \
			d[i] = m & exec_lane_bit[i] ? v : d[i];                                    \
		}                                                                                  \
	}
DEF_ROW(4, uint32_t)
DEF_ROW(8, uint64_t)
#define exec_take_row_4 exec_move_row_4
#define exec_take_row_8 exec_move_row_8
#define exec_give_row_4 exec_move_row_4
#define exec_give_row_8 exec_move_row_8
#endif

#define DEF_WORDS(size, T)                                                                         \
	static ALWAYS_INLINE void load_half_##size(T *d, const struct exec_half_warp *h,           \
						   uint32_t m)                                     \
	{                                                                                          \
		if (h->kind == HALF_ROW) {                                                         \
			exec_take_row_##size(d, h->p, m);                                          \
		} else if (h->kind == HALF_SAME) {                                                 \
			exec_fill_row_##size(d, *(const T *)h->p, m);                              \
		} else if (h->kind == HALF_ANY) {                                                  \
			exec_each_lane (m, i) {                                                    \
				d[i] = *(const T *)(h->p + h->at[i]);                              \
			}                                                                          \
		}                                                                                  \
	}                                                                                          \
	static ALWAYS_INLINE void store_half_##size(const T *d, const struct exec_half_warp *h,    \
						    uint32_t m)                                    \
	{                                                                                          \
		if (h->kind == HALF_ROW) {                                                         \
			exec_give_row_##size(h->p, d, m);                                          \
		} else if (h->kind == HALF_SAME) {                                                 \
			*(T *)h->p = d[31 - (unsigned)__builtin_clz(m)];                           \
		} else if (h->kind == HALF_ANY) {                                                  \
			exec_each_lane (m, i) {                                                    \
				*(T *)(h->p + h->at[i]) = d[i];                                    \
			}                                                                          \
		}                                                                                  \
	}
DEF_WORDS(4, uint32_t)
DEF_WORDS(8, uint64_t)

/* otherwise: the fallback that finds the faulting lane or handles other cases. */
#define LOAD_WORD(name, space, size, T, otherwise)                                                 \
	HANDLER(name)                                                                              \
	{                                                                                          \
		struct exec_word_access r;                                                         \
		T *d;                                                                              \
                                                                                                   \
		if (unlikely(!exec_words_find(w, o, space, sizeof(T), m, false, &r))) {            \
			return otherwise;                                                          \
		}                                                                                  \
		d = REF(T, w, o->d);                                                               \
		if (r.kind == HALF_SAME) {                                                         \
			const T v = *(const T *)r.p;                                               \
                                                                                                   \
			STORE_LANES(T, v);                                                         \
		} else if (r.kind == HALF_ROW) {                                                   \
			exec_take_row_##size(d, r.p, m & 0xffff);                                  \
			exec_take_row_##size(d + HALF, r.p + HALF * sizeof(T), m >> HALF);         \
		} else {                                                                           \
			load_half_##size(d, &r.h[0], m & 0xffff);                                  \
			load_half_##size(d + HALF, &r.h[1], m >> HALF);                            \
		}                                                                                  \
		GO_ON;                                                                             \
	}
/* If lanes store to one address, the highest lane's value remains. */
#define STORE_WORD(name, space, size, T, otherwise)                                                \
	HANDLER(name)                                                                              \
	{                                                                                          \
		struct exec_word_access r;                                                         \
		const T *d;                                                                        \
                                                                                                   \
		if (unlikely(!exec_words_find(w, o, space, sizeof(T), m, true, &r))) {             \
			return otherwise;                                                          \
		}                                                                                  \
		d = REF(const T, w, o->d);                                                         \
		if (r.kind == HALF_SAME) {                                                         \
			*(T *)r.p = d[31 - (unsigned)__builtin_clz(m)];                            \
		} else if (r.kind == HALF_ROW) {                                                   \
			exec_give_row_##size(r.p, d, m & 0xffff);                                  \
			exec_give_row_##size(r.p + HALF * sizeof(T), d + HALF, m >> HALF);         \
		} else {                                                                           \
			store_half_##size(d, &r.h[0], m & 0xffff);                                 \
			store_half_##size(d + HALF, &r.h[1], m >> HALF);                           \
		}                                                                                  \
		GO_ON;                                                                             \
	}
LOAD_WORD(load_global_4, SP_GLOBAL, 4, uint32_t, exec_mem_fault(w, o, m, SP_GLOBAL, false))
LOAD_WORD(load_global_8, SP_GLOBAL, 8, uint64_t, exec_mem_fault(w, o, m, SP_GLOBAL, false))
LOAD_WORD(load_shared_4, SP_SHARED, 4, uint32_t, exec_mem_fault(w, o, m, SP_SHARED, false))
LOAD_WORD(load_shared_8, SP_SHARED, 8, uint64_t, exec_mem_fault(w, o, m, SP_SHARED, false))
LOAD_WORD(load_generic_4, SP_GENERIC, 4, uint32_t, load_generic(w, o, m))
LOAD_WORD(load_generic_8, SP_GENERIC, 8, uint64_t, load_generic(w, o, m))
STORE_WORD(store_global_4, SP_GLOBAL, 4, uint32_t, exec_mem_fault(w, o, m, SP_GLOBAL, true))
STORE_WORD(store_global_8, SP_GLOBAL, 8, uint64_t, exec_mem_fault(w, o, m, SP_GLOBAL, true))
STORE_WORD(store_shared_4, SP_SHARED, 4, uint32_t, exec_mem_fault(w, o, m, SP_SHARED, true))
STORE_WORD(store_shared_8, SP_SHARED, 8, uint64_t, exec_mem_fault(w, o, m, SP_SHARED, true))
STORE_WORD(store_generic_4, SP_GENERIC, 4, uint32_t, store_generic(w, o, m))
STORE_WORD(store_generic_8, SP_GENERIC, 8, uint64_t, store_generic(w, o, m))

#endif
