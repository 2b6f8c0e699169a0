/* Results of single instructions: a second implementation, as plain as possible. */
#pragma GCC diagnostic ignored "-Wpedantic" /* statements as expressions */

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tree.h"

#define FORM(text, operands, value) { text, operands, __LINE__ },
const struct form forms[] = {
#include "forms.def"
};
#undef FORM
const unsigned n_forms = sizeof(forms) / sizeof(*forms);

static uint64_t wide(uint32_t v)
{
	return v;
}

static uint64_t clamp(int64_t v)
{
	return (uint32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

static int64_t low24(uint32_t v)
{
	return (int32_t)(v << 8) >> 8;
}

static uint32_t dot(uint32_t a, uint32_t b, bool signed_a, bool signed_b)
{
	int32_t sum = 0;

	for (int k = 0; k < 32; k += 8) {
		int32_t x = signed_a ? (int8_t)(a >> k) : (uint8_t)(a >> k);
		int32_t y = signed_b ? (int8_t)(b >> k) : (uint8_t)(b >> k);

		sum += x * y;
	}
	return (uint32_t)sum;
}

/* Computes the dot product of the two halves of a and the two low bytes of b. */
static uint32_t dot2(uint32_t a, uint32_t b, bool signed_a, bool signed_b)
{
	uint32_t sum = 0;

	for (int k = 0; k < 2; k++) {
		int32_t x = signed_a ? (int16_t)(a >> 16 * k) : (uint16_t)(a >> 16 * k);
		int32_t y = signed_b ? (int8_t)(b >> 8 * k) : (uint8_t)(b >> 8 * k);

		sum += (uint32_t)x * (uint32_t)y;
	}
	return sum;
}

static uint32_t permute(uint32_t a, uint32_t b, uint32_t select)
{
	uint64_t both = wide(b) << 32 | a;
	uint32_t r = 0;

	for (int k = 0; k < 4; k++) {
		uint32_t s = select >> 4 * k, byte = (uint32_t)(both >> 8 * (s & 7)) & 255;

		if (s & 8) {
			byte = byte & 128 ? 255 : 0;
		}
		r |= byte << 8 * k;
	}
	return r;
}

static uint32_t backward(uint32_t c)
{
	return (uint32_t[]){ 0x5670, 0x6701, 0x7012, 0x0123 }[c];
}

static uint32_t lop(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
	uint32_t r = 0;

	for (int k = 0; k < 32; k++) {
		uint32_t row = (a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1);

		r |= (table >> row & 1) << k;
	}
	return r;
}

static uint64_t reverse(uint64_t v)
{
	uint64_t r = 0;

	for (int k = 0; k < 64; k++) {
		r |= (v >> k & 1) << (63 - k);
	}
	return r;
}

static uint32_t find(uint64_t v, int top)
{
	for (int k = top; k >= 0; k--) {
		if (v >> k & 1) {
			return (uint32_t)k;
		}
	}
	return UINT32_MAX;
}

static uint64_t field(uint64_t v, unsigned at, unsigned n, unsigned bits, bool is_signed)
{
	uint64_t r = 0;
	unsigned top = at + n - 1 < bits ? at + n - 1 : bits - 1;
	bool sign = n != 0 && is_signed && (v >> top & 1);

	for (unsigned k = 0; k < bits; k++) {
		bool bit = k < n && at + k < bits ? v >> (at + k) & 1 : sign;

		r |= (uint64_t)bit << k;
	}
	return r;
}

static uint64_t insert(uint64_t v, uint64_t into, unsigned at, unsigned n, unsigned bits)
{
	for (unsigned k = 0; k < n && at + k < bits; k++) {
		into = (into & ~(UINT64_C(1) << (at + k))) | (v >> k & 1) << (at + k);
	}
	return into;
}

static float as_float(uint32_t v)
{
	float f;

	memcpy(&f, &v, sizeof(f));
	return f;
}

static double as_double(uint64_t v)
{
	double d;

	memcpy(&d, &v, sizeof(d));
	return d;
}

static uint64_t F(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return v != v ? 0x7fffffff : bits;
}

static uint64_t D(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return v != v ? UINT64_C(0x7ff8000000000000) : bits;
}

static float flush(float v)
{
	return fpclassify(v) == FP_SUBNORMAL ? copysignf(0, v) : v;
}

static uint64_t FZ(float v)
{
	return F(flush(v));
}

static uint64_t saturate(uint64_t bits)
{
	float v = as_float((uint32_t)bits);

	return F(!(v > 0) ? 0 : v > 1 ? 1 : v);
}

#define ROUND(mode, value)                                                                         \
	({                                                                                         \
		volatile uint64_t result_;                                                         \
		fesetround(mode);                                                                  \
		barrier();                                                                         \
		result_ = value;                                                                   \
		barrier();                                                                         \
		fesetround(FE_TONEAREST);                                                          \
		result_;                                                                           \
	})

/* A compiler barrier; sources of the value are volatile in form_value(). */
static void barrier(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Orders zeros by their signs. */
static double least64(double a, double b)
{
	if (a != a || b != b) {
		return a != a ? b : a;
	}
	return a < b || (a == b && signbit(a)) ? a : b;
}

static double most64(double a, double b)
{
	if (a != a || b != b) {
		return a != a ? b : a;
	}
	return a > b || (a == b && !signbit(a)) ? a : b;
}

#define least(a, b) ((__typeof__(a))least64(a, b))
#define most(a, b) ((__typeof__(a))most64(a, b))

static double rounded(double v, int mode)
{
	volatile double x = v, r;

	fesetround(mode);
	barrier();
	r = rint(x);
	barrier();
	fesetround(FE_TONEAREST);
	return r;
}

/* Converts to an integer within bounds; NaN becomes 0. */
static uint64_t whole(double v, int mode, int64_t low, int64_t high)
{
	double r = rounded(v, mode);

	return v != v		  ? 0
	       : r < (double)low  ? (uint64_t)low
	       : r > (double)high ? (uint64_t)high
				  : (uint64_t)(int64_t)r;
}

static uint64_t whole64(double v, int mode, bool is_signed)
{
	double r = rounded(v, mode);

	if (v != v) {
		return 0;
	}
	if (is_signed) {
		return r >= 0x1p63   ? INT64_MAX
		       : r < -0x1p63 ? (uint64_t)INT64_MIN
				     : (uint64_t)(int64_t)r;
	}
	return r >= 0x1p64 ? UINT64_MAX : r < 0 ? 0 : (uint64_t)r;
}

static double of_half(uint32_t v)
{
	int exponent = v >> 10 & 31, fraction = v & 0x3ff;
	double r = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
		   : exponent	  ? ldexp(1024 + fraction, exponent - 25)
				  : ldexp(fraction, -24);

	return v & 0x8000 ? -r : r;
}

static uint32_t half(double v, int mode)
{
	uint32_t sign = signbit(v) ? 0x8000 : 0;
	double magnitude = fabs(v), quantum, n;
	int e;

	if (v != v) {
		return 0x7fff;
	}
	if (isinf(v) || magnitude == 0) {
		return sign | (magnitude == 0 ? 0 : 0x7c00);
	}
	frexp(magnitude, &e);
	quantum = ldexp(1, (e - 1 < -14 ? -14 : e - 1) - 10);
	n = rounded(magnitude / quantum, mode);
	magnitude = n * quantum;
	if (magnitude > 65504) {
		return sign | (mode == FE_TOWARDZERO ? 0x7bff : 0x7c00);
	}
	if (magnitude < 0x1p-14) {
		return sign | (uint32_t)(magnitude * 0x1p24);
	}
	frexp(magnitude, &e);
	return sign | (uint32_t)((e + 14) << 10) | ((uint32_t)ldexp(magnitude, 11 - e) & 0x3ff);
}

/* The sum of an exact product is rounded to odd in double precision, then once to a half. */
static uint32_t half_fma(double a, double b, double c)
{
	volatile double product = a * b, add = c, toward;
	double nearest = product + add;

	fesetround(FE_TOWARDZERO);
	barrier();
	toward = product + add;
	barrier();
	fesetround(FE_TONEAREST);
	if (isfinite(nearest) && (__float128)product + add != (__float128)toward) {
		uint64_t bits;

		memcpy(&bits, (double[]){ toward }, sizeof(bits));
		return half(as_double(bits | 1), FE_TONEAREST);
	}
	return half(nearest, FE_TONEAREST);
}

static uint32_t brain(float v)
{
	uint32_t bits = (uint32_t)F(v);

	return v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint64_t form_value(const struct form *form, const uint64_t *x)
{
	uint64_t a = x[0], b = x[1], c = x[2], e = x[3];
	uint32_t ua = (uint32_t)a, ub = (uint32_t)b, uc = (uint32_t)c;
	int32_t sa = (int32_t)ua, sb = (int32_t)ub, sc = (int32_t)uc;
	uint64_t wa = a, wb = b, wc = c;
	int64_t la = (int64_t)a, lb = (int64_t)b;
	uint16_t ha = (uint16_t)a, hb = (uint16_t)b, hc = (uint16_t)c;
	int16_t ka = (int16_t)a, kb = (int16_t)b;
	volatile float fa = as_float(ua), fb = as_float(ub), fc = as_float(uc);
	volatile double da = as_double(a), db = as_double(b), dc = as_double(c);
	bool pa = a & 1, pb = b & 1, pc = c & 1;

	switch (form->line) {
#define FORM(text, operands, value)                                                                \
	case __LINE__:                                                                             \
		return (uint64_t)(value);
#include "forms.def"
#undef FORM
	}
	return 0;
}
