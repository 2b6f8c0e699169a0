/* What the verifier knows of a number: its bits, and its range read as signed and unsigned, in 64
 * and in 32 bits. All five describe one set of values; scalar_sync lets each learn from the others.
 */
#ifndef GBPF_BPF_LOAD_SCALAR_SCALAR_H
#define GBPF_BPF_LOAD_SCALAR_SCALAR_H

#include <stdint.h>

#include "bpf/load/scalar/tnum.h"

struct scalar {
	struct tnum t;
	uint64_t umin, umax;
	int64_t smin, smax;
	uint32_t u32min, u32max; /* of the low half */
	int32_t s32min, s32max;
};

void scalar_unknown(struct scalar *s);
void scalar_const(struct scalar *s, uint64_t v);
/* What a load of that many bytes gives. */
void scalar_loaded(struct scalar *s, unsigned bytes, int sign_extend);
void scalar_urange(struct scalar *s, uint64_t min, uint64_t max);

static inline int scalar_is_const(const struct scalar *s)
{
	return s->t.mask == 0;
}

/* Lets every view learn from the others. 0 when they contradict each other: no value is possible.
 */
int scalar_sync(struct scalar *s);

/* Keeps the low bits, zero-extended. */
void scalar_truncate(struct scalar *s, unsigned bits);

/* d = d op s as the instruction computes it; off as in the instruction (signed division, sign
 * extension). */
void scalar_alu(unsigned op, int is64, int off, struct scalar *d, const struct scalar *s);
/* Byte order instructions. */
void scalar_end(uint8_t code, int bits, struct scalar *d);

/* Narrows a and b (which must not be the same object) to the values for which "a op b" came out as
 * outcome. 0 when there are none (a and b are then meaningless). op is a jump's; is64 0 compares
 * the low halves. */
int scalar_refine(unsigned op, int is64, int outcome, struct scalar *a, struct scalar *b);

int scalar_has(const struct scalar *s, uint64_t v);
/* Every value of inner belongs to outer. */
int scalar_within(const struct scalar *outer, const struct scalar *inner);
int scalar_same(const struct scalar *a, const struct scalar *b);

/* One width's view: 32-bit values are held sign- and zero-extended in 64 bits. For the .c files of
 * the scalar only. */
struct scalar_view {
	struct tnum t;
	uint64_t umin, umax;
	int64_t smin, smax;
};
void scalar_view_full(struct scalar_view *v, int width);
void scalar_view_get(const struct scalar *s, int width, struct scalar_view *v);
void scalar_view_put(struct scalar *s, int width, const struct scalar_view *v);

static inline uint64_t scalar_umax(int width)
{
	return width == 64 ? UINT64_MAX : UINT32_MAX;
}

static inline int64_t scalar_smin(int width)
{
	return width == 64 ? INT64_MIN : INT32_MIN;
}

static inline int64_t scalar_smax(int width)
{
	return width == 64 ? INT64_MAX : INT32_MAX;
}

#endif
