/* The verifier's knowledge of a number: its bits, and its signed and unsigned ranges in 64 and 32
 * bits. All five describe one set of values; ebpf_scalar_sync() narrows each by the others. */
#ifndef GBPF_BPF_LOAD_SCALAR_SCALAR_H
#define GBPF_BPF_LOAD_SCALAR_SCALAR_H

#include <stdint.h>

#include "bpf/load/scalar/tnum.h"

struct ebpf_scalar {
	struct ebpf_tnum t;
	uint64_t umin, umax;
	int64_t smin, smax;
	uint32_t u32min, u32max; /* range of the low half */
	int32_t s32min, s32max;
};

void ebpf_scalar_unknown(struct ebpf_scalar *s);
void ebpf_scalar_const(struct ebpf_scalar *s, uint64_t v);
/* Sets s to the result of a load of that many bytes. */
void ebpf_scalar_loaded(struct ebpf_scalar *s, unsigned bytes, int sign_extend);
void ebpf_scalar_urange(struct ebpf_scalar *s, uint64_t min, uint64_t max);

static inline int ebpf_scalar_is_const(const struct ebpf_scalar *s)
{
	return s->t.mask == 0;
}

/* Narrows every view by the others. Returns 0 if they contradict each other, that is, no value is
 * possible. */
int ebpf_scalar_sync(struct ebpf_scalar *s);

/* Narrows a to the values that b has, too. Returns 0 and leaves a unchanged if there are none. */
int ebpf_scalar_meet(struct ebpf_scalar *a, const struct ebpf_scalar *b);

/* Keeps the low bits, zero-extended. */
void ebpf_scalar_truncate(struct ebpf_scalar *s, unsigned bits);

/* Computes d = d op s. off: as in the instruction (signed division, sign extension). */
void ebpf_scalar_alu(unsigned op, int is64, int off, struct ebpf_scalar *d,
		     const struct ebpf_scalar *s);
/* Computes a byte order instruction. */
void ebpf_scalar_end(uint8_t code, int bits, struct ebpf_scalar *d);

/* Narrows a and b (two distinct objects) to the values for which "a op b" has the given outcome.
 * Returns 0 if there are none; a and b are then undefined. op: operation of a jump; is64 0 compares
 * the low halves. */
int ebpf_scalar_refine(unsigned op, int is64, int outcome, struct ebpf_scalar *a,
		       struct ebpf_scalar *b);

/* Widens s until it has every value of other. */
void ebpf_scalar_unite(struct ebpf_scalar *s, const struct ebpf_scalar *other);

/* Stores the values of s in ascending order. Returns their number, or 0 if s may have more than max
 * values, or more than 64 candidates must be tried. */
unsigned ebpf_scalar_values(const struct ebpf_scalar *s, int64_t *ret, unsigned max);

int ebpf_scalar_has(const struct ebpf_scalar *s, uint64_t v);
/* Returns whether every value of inner belongs to outer. */
int ebpf_scalar_within(const struct ebpf_scalar *outer, const struct ebpf_scalar *inner);
int ebpf_scalar_same(const struct ebpf_scalar *a, const struct ebpf_scalar *b);

/* The view of one width: 32-bit values are held sign- and zero-extended in 64 bits. Used only by
 * scalar*.c. */
struct ebpf_scalar_view {
	struct ebpf_tnum t;
	uint64_t umin, umax;
	int64_t smin, smax;
};
void ebpf_scalar_view_full(struct ebpf_scalar_view *v, int width);
void ebpf_scalar_view_get(const struct ebpf_scalar *s, int width, struct ebpf_scalar_view *v);
void ebpf_scalar_view_put(struct ebpf_scalar *s, int width, const struct ebpf_scalar_view *v);

static inline uint64_t ebpf_scalar_umax(int width)
{
	return width == 64 ? UINT64_MAX : UINT32_MAX;
}

static inline int64_t ebpf_scalar_smin(int width)
{
	return width == 64 ? INT64_MIN : INT32_MIN;
}

static inline int64_t ebpf_scalar_smax(int width)
{
	return width == 64 ? INT64_MAX : INT32_MAX;
}

#endif
