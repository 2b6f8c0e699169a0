/* The small float formats (f16, bf16, tf32, e4m3, e5m2), read into and rounded from doubles. Every
 * value of these formats is a double. Sums that are not doubles are rounded to odd, so that a
 * second rounding gives the same result as a single rounding of the exact value. Independent of the
 * host's rounding mode and flags. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_NUMBER_H
#define GBPF_SOFT_SERVER_EXEC_OP_NUMBER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "soft/server/exec/op.h"

enum exec_num_format { NUM_F16, NUM_BF16, NUM_TF32, NUM_F32, NUM_E4M3, NUM_E5M2, NUM_FORMATS };
enum {
	ROUND_RNA = ROUND_RP + 1
}; /* to nearest, ties away from zero; in addition to ROUND_* of op.h */

struct exec_num_shape {
	uint8_t man_bits, exp_bits;
	uint8_t shift;	 /* bits below the mantissa in a register */
	uint32_t finite; /* the largest finite value */
	uint32_t nan;	 /* the canonical NaN, as register bits */
};
static const struct exec_num_shape exec_num_shapes[NUM_FORMATS] = {
	[NUM_F16] = { 10, 5, 0, 0x7bff, 0x7fff },
	[NUM_BF16] = { 7, 8, 0, 0x7f7f, 0x7fff },
	[NUM_TF32] = { 10, 8, 13, 0x3fbff, 0x7fffe000 },
	[NUM_F32] = { 23, 8, 0, 0x7f7fffff, 0x7fffffff },
	[NUM_E4M3] = { 3, 4, 0, 0x7e, 0x7f }, /* no infinities */
	[NUM_E5M2] = { 2, 5, 0, 0x7b, 0x7f },
};

static inline uint64_t exec_num_bits(double v)
{
	uint64_t u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

static inline double exec_num_double(uint64_t u)
{
	double v;

	memcpy(&v, &u, sizeof(v));
	return v;
}

static inline uint32_t exec_num_float_bits(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

static inline float exec_num_float(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof(v));
	return v;
}

static inline int exec_num_bias(const struct exec_num_shape *s)
{
	return (1 << (s->exp_bits - 1)) - 1;
}

/* Returns the value of a register's bits; all NaNs become one. */
static inline double exec_num_read(enum exec_num_format f, uint32_t u)
{
	const struct exec_num_shape *s = &exec_num_shapes[f];
	uint32_t body = u >> s->shift & ((1u << (s->man_bits + s->exp_bits)) - 1);
	uint64_t sign = (uint64_t)(u >> (s->shift + s->man_bits + s->exp_bits) & 1) << 63;
	int exponent = (int)(body >> s->man_bits);
	uint64_t man = body & ((1u << s->man_bits) - 1);
	int scale = 1 - exec_num_bias(s) - s->man_bits; /* of a subnormal's last place */

	if (body > s->finite) {
		return f != NUM_E4M3 && man == 0 ? exec_num_double(sign | UINT64_C(0x7ff) << 52)
						 : NAN;
	}
	if (exponent == 0) {
		double v = (double)man * exec_num_double((uint64_t)(1023 + scale) << 52);

		return sign ? -v : v;
	}
	return exec_num_double(sign | (uint64_t)(exponent - exec_num_bias(s) + 1023) << 52 |
			       man << (52 - s->man_bits));
}

static inline bool exec_num_round_up(uint64_t kept, uint64_t rest, uint64_t half, bool negative,
				     unsigned mode)
{
	switch (mode) {
	case ROUND_RN:
		return rest > half || (rest == half && kept & 1);
	case ROUND_RNA:
		return rest >= half;
	case ROUND_RP:
		return rest && !negative;
	case ROUND_RM:
		return rest && negative;
	default:
		return false;
	}
}

/* Returns register bits, without a sign above the format's own. finite: values that are too large,
 * and infinity, become the largest finite value. */
static inline uint32_t exec_num_round(enum exec_num_format f, double v, unsigned mode, bool finite)
{
	const struct exec_num_shape *s = &exec_num_shapes[f];
	uint64_t u = exec_num_bits(v), man = u & ((UINT64_C(1) << 52) - 1), kept, unit;
	bool negative = u >> 63, large;
	int e = (int)(u >> 52 & 0x7ff) - 1023, low = 1 - exec_num_bias(s);
	unsigned shift = 52u - s->man_bits;
	uint32_t sign = (uint32_t)negative << (s->man_bits + s->exp_bits);
	uint32_t infinity = f == NUM_E4M3 ? s->nan : s->finite + 1;

	if (v != v) {
		return s->nan;
	}
	if (e == 1024) {
		return (sign | (finite ? s->finite : infinity)) << s->shift;
	}
	man |= e > -1023 ? UINT64_C(1) << 52 : 0;
	if (e < low) {
		shift = (unsigned)(low - e) + shift > 62 ? 62 : (unsigned)(low - e) + shift;
	}
	unit = UINT64_C(1) << shift;
	kept = man >> shift;
	kept += exec_num_round_up(kept, man & (unit - 1), unit >> 1, negative, mode);
	if (e >= low) { /* a carry out of the mantissa increments the exponent */
		kept += (uint64_t)(e - low) << s->man_bits;
	}
	large = kept > s->finite;
	if (large) {
		bool stays = mode == ROUND_RZ || (mode == ROUND_RP && negative) ||
			     (mode == ROUND_RM && !negative);

		kept = finite || stays ? s->finite : infinity;
	}
	return (sign | (uint32_t)kept) << s->shift;
}

/* Rounds v to odd; left is the error of v's own rounding. */
static inline double exec_num_odd(double v, double left)
{
	uint64_t u = exec_num_bits(v);

	if ((left > 0 || left < 0) && !(u & 1)) {
		u += (left > 0) == (v > 0) ? 1 : UINT64_MAX;
	}
	return exec_num_double(u);
}

static inline double exec_num_add_odd(double x, double y)
{
	double s = x + y, t = s - x;

	return exec_num_odd(s, (x - (s - t)) + (y - t));
}

/* The product must be exact: factors of at most 26 bits. */
static inline double exec_num_fma_odd(double x, double y, double z)
{
	return exec_num_add_odd(x * y, z);
}

static inline double exec_num_int_odd(bool negative, uint64_t magnitude)
{
	double v;

	if (magnitude >> 53) {
		magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0));
		v = (double)magnitude * 2048;
	} else {
		v = (double)magnitude;
	}
	return negative ? -v : v;
}

#endif
