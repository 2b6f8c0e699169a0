/* Loads and stores of vectors; included by lane_alu.c only. Each aligned piece of up to 16 bytes is
 * one access of the host: other blocks see a store whole or not at all, as on a GPU, where a vector
 * is one transaction. Programs rely on it (CUB keeps the status and the value of a tile in one
 * vector). An aligned access of 16 bytes is atomic on every x86-64 processor with AVX. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_VECTOR_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_MEM_VECTOR_H

#include <string.h>

#include "soft/server/exec/op/lane_alu.h"

#define PIECE 16u /* the largest atomic access */

/* Volatile: the compiler may neither split an access nor repeat it. Unaligned in the host: local
 * memory and parameters, which belong to one thread. */
typedef uint32_t exec_piece_4 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t exec_piece_8 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t exec_piece_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t exec_piece_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t exec_piece_u64 __attribute__((aligned(1), may_alias));

/* bytes: 1 to 16, a power of two */
static ALWAYS_INLINE void exec_piece_read(void *to, const uint8_t *p, unsigned bytes)
{
	switch (bytes) {
	case 16:
		*(exec_piece_8 *)to = *(const volatile exec_piece_8 *)p;
		break;
	case 8:
		*(exec_piece_u64 *)to = *(const volatile exec_piece_u64 *)p;
		break;
	case 4:
		*(exec_piece_u32 *)to = *(const volatile exec_piece_u32 *)p;
		break;
	case 2:
		*(exec_piece_u16 *)to = *(const volatile exec_piece_u16 *)p;
		break;
	default:
		*(uint8_t *)to = *(const volatile uint8_t *)p;
		break;
	}
}

static ALWAYS_INLINE void exec_piece_write(uint8_t *p, const void *from, unsigned bytes)
{
	switch (bytes) {
	case 16:
		*(volatile exec_piece_8 *)p = *(const exec_piece_8 *)from;
		break;
	case 8:
		*(volatile exec_piece_u64 *)p = *(const exec_piece_u64 *)from;
		break;
	case 4:
		*(volatile exec_piece_u32 *)p = *(const exec_piece_u32 *)from;
		break;
	case 2:
		*(volatile exec_piece_u16 *)p = *(const exec_piece_u16 *)from;
		break;
	default:
		*(volatile uint8_t *)p = *(const uint8_t *)from;
		break;
	}
}

/* An element in a copied piece or in the parameters, which may be unaligned. */
static inline uint64_t exec_read_element(const uint8_t *p, unsigned size, bool is_signed)
{
	uint64_t v64;
	uint32_t v32;
	uint16_t v16;

	switch (size) {
	case 1:
		return is_signed ? (uint64_t)(int8_t)*p : *p;
	case 2:
		memcpy(&v16, p, sizeof(v16));
		return is_signed ? (uint64_t)(int16_t)v16 : v16;
	case 4:
		memcpy(&v32, p, sizeof(v32));
		return is_signed ? (uint64_t)(int32_t)v32 : v32;
	default:
		memcpy(&v64, p, sizeof(v64));
		return v64;
	}
}

static inline void exec_write_element(uint8_t *p, unsigned size, uint64_t v)
{
	const uint32_t v32 = (uint32_t)v;
	const uint16_t v16 = (uint16_t)v;

	switch (size) {
	case 1:
		*p = (uint8_t)v;
		break;
	case 2:
		memcpy(p, &v16, sizeof(v16));
		break;
	case 4:
		memcpy(p, &v32, sizeof(v32));
		break;
	default:
		memcpy(p, &v, sizeof(v));
		break;
	}
}

/* Returns how many components lie in one piece. */
static ALWAYS_INLINE unsigned exec_piece_count(const struct exec_op *o)
{
	return MIN((unsigned)o->n, PIECE / o->size);
}

/* One lane; bit k of o->flags: the k-th value is a 64-bit register. */
static inline void exec_load_lane(struct exec_warp *w, const struct exec_op *o, unsigned lane,
				  const uint8_t *p)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	const unsigned each = exec_piece_count(o);
	uint8_t piece[PIECE];

	for (unsigned k = 0; k < o->n; k++) {
		const unsigned in = k % each;

		if (in == 0) {
			exec_piece_read(piece, p + k * o->size, each * o->size);
		}
		if (refs[k] != ~0u) {
			exec_lane_set(w, refs[k], o->flags >> k & 1, lane,
				      exec_read_element(piece + in * o->size, o->size, o->sub));
		}
	}
}

static inline void exec_store_lane(struct exec_warp *w, const struct exec_op *o, unsigned lane,
				   uint8_t *p)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	const unsigned each = exec_piece_count(o);
	uint8_t piece[PIECE];

	for (unsigned k = 0; k < o->n; k++) {
		const unsigned in = k % each;

		exec_write_element(piece + in * o->size, o->size,
				   exec_lane_get(w, refs[k], o->flags >> k & 1, lane));
		if (in + 1 == each) {
			exec_piece_write(p + (k - in) * o->size, piece, each * o->size);
		}
	}
}

/* Component k of all lanes; words: 32-bit words of a piece in the buffer. */
#define SPREAD(T, words_per_lane)                                                                  \
	do {                                                                                       \
		for (unsigned k = 0; k < o->n; k++) {                                              \
			const T *from = (const T *)(const void *)raw + k;                          \
			T *d = refs[k] == ~0u ? NULL : REF(T, w, refs[k]);                         \
                                                                                                   \
			if (d) {                                                                   \
				STORE_LANES(T, from[(size_t)i * (words_per_lane)]);                \
			}                                                                          \
		}                                                                                  \
	} while (0)

/* Lanes that are not in m have a valid address, too: that of a lane which is. */
#define FETCH(bytes)                                                                               \
	for (unsigned i = 0; i < EXEC_LANES; i++) {                                                \
		exec_piece_read(raw + (size_t)i * (bytes), p + at[i], bytes);                      \
	}

static NOINLINE void exec_load_vectors(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				       const uint8_t *p, const uint64_t *at)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	uint8_t raw[EXEC_LANES * PIECE] ALIGNED(64);

	if (o->size == 4 && !o->flags && o->n == 4) {
		FETCH(16)
		SPREAD(uint32_t, 4);
	} else if (o->size == 4 && !o->flags && o->n == 2) {
		FETCH(8)
		SPREAD(uint32_t, 2);
	} else if (o->size == 8 && o->flags == 3 && o->n == 2) {
		FETCH(16)
		SPREAD(uint64_t, 2);
	} else {
		exec_each_lane (m, i) {
			exec_load_lane(w, o, i, p + at[i]);
		}
	}
}

/* Lane by lane, so that the highest lane's whole vector remains where lanes collide. */
static NOINLINE void exec_store_vectors(struct exec_warp *w, const struct exec_op *o, uint32_t m,
					uint8_t *p, const uint64_t *at)
{
	if (o->size == 4 && !o->flags && o->n == 4) {
		const uint32_t *x = REF(const uint32_t, w, o->d), *y = REF(const uint32_t, w, o->b);
		const uint32_t *z = REF(const uint32_t, w, o->c), *u = REF(const uint32_t, w, o->e);

		exec_each_lane (m, i) {
			const exec_piece_4 piece = { x[i], y[i], z[i], u[i] };

			exec_piece_write(p + at[i], &piece, 16);
		}
	} else if (o->size == 4 && !o->flags && o->n == 2) {
		const uint32_t *x = REF(const uint32_t, w, o->d), *y = REF(const uint32_t, w, o->b);

		exec_each_lane (m, i) {
			const uint64_t piece = x[i] | (uint64_t)y[i] << 32;

			exec_piece_write(p + at[i], &piece, 8);
		}
	} else if (o->size == 8 && o->flags == 3 && o->n == 2) {
		const uint64_t *x = REF(const uint64_t, w, o->d), *y = REF(const uint64_t, w, o->b);

		exec_each_lane (m, i) {
			const exec_piece_8 piece = { x[i], y[i] };

			exec_piece_write(p + at[i], &piece, 16);
		}
	} else {
		exec_each_lane (m, i) {
			exec_store_lane(w, o, i, p + at[i]);
		}
	}
}

#endif
