/* What needs no speed: directed rounding, unusual conversions, half precision, carries, clocks,
 * predicates. Compiled with -frounding-math, since it changes the rounding mode of the host thread
 * around single operations. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "soft/server/exec/handlers.h"

static const int host_modes[] = { [ROUND_RN] = FE_TONEAREST,
				  [ROUND_RZ] = FE_TOWARDZERO,
				  [ROUND_RM] = FE_DOWNWARD,
				  [ROUND_RP] = FE_UPWARD };

static float as_float(uint64_t x)
{
	uint32_t u = (uint32_t)x;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static double as_double(uint64_t x)
{
	double f;

	memcpy(&f, &x, sizeof(f));
	return f;
}

static uint32_t float_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static uint64_t double_bits(double f)
{
	uint64_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static uint32_t flush_bits(uint32_t u)
{
	return u & 0x7f800000 ? u : u & 0x80000000;
}

static uint32_t finish_float(float f, bool ftz, bool sat)
{
	uint32_t u = f == f ? float_bits(f) : 0x7fffffff;

	if (sat) {
		u = f > 0 ? (f < 1 ? u : 0x3f800000) : 0;
	}
	return ftz ? flush_bits(u) : u;
}

static float round_float(unsigned what, float x, float y, float z)
{
	volatile float a = x, b = y, r;

	switch (what) {
	case SLOW_ADD:
		r = a + b;
		break;
	case SLOW_SUB:
		r = a - b;
		break;
	case SLOW_MUL:
		r = a * b;
		break;
	case SLOW_FMA:
		r = fmaf(a, b, z);
		break;
	case SLOW_DIV:
		r = a / b;
		break;
	case SLOW_RCP:
		r = 1.0f / a;
		break;
	default:
		r = sqrtf(a);
		break;
	}
	return r;
}

static double round_double(unsigned what, double x, double y, double z)
{
	volatile double a = x, b = y, r;

	switch (what) {
	case SLOW_ADD:
		r = a + b;
		break;
	case SLOW_SUB:
		r = a - b;
		break;
	case SLOW_MUL:
		r = a * b;
		break;
	case SLOW_FMA:
		r = fma(a, b, z);
		break;
	case SLOW_DIV:
		r = a / b;
		break;
	case SLOW_RCP:
		r = 1.0 / a;
		break;
	default:
		r = sqrt(a);
		break;
	}
	return r;
}

/* How many sources each of enum slow_round has. */
static const uint8_t round_sources[] = { 2, 2, 2, 3, 2, 1, 1 };

int op_round(struct warp *w, const struct op *o, uint32_t m)
{
	bool wide = o->type == TY_F64, ftz = o->flags & FLAG_FTZ;
	uint64_t result[EXEC_LANES];

	fesetround(host_modes[o->n]);
	each_lane (m, lane) {
		uint64_t x = lane_get(w, o->a, wide, lane);
		uint64_t y = round_sources[o->sub] > 1 ? lane_get(w, o->b, wide, lane) : 0;
		uint64_t z = round_sources[o->sub] > 2 ? lane_get(w, o->c, wide, lane) : 0;

		if (wide) {
			result[lane] = double_bits(
				round_double(o->sub, as_double(x), as_double(y), as_double(z)));
			continue;
		}
		if (ftz) {
			x = flush_bits((uint32_t)x);
			y = flush_bits((uint32_t)y);
			z = flush_bits((uint32_t)z);
		}
		result[lane] =
			finish_float(round_float(o->sub, as_float(x), as_float(y), as_float(z)),
				     ftz, o->flags & FLAG_SAT);
	}
	fesetround(FE_TONEAREST);
	each_lane (m, i) {
		lane_set(w, o->d, wide, i, result[i]);
	}
	return STEP_NEXT;
}

static double half_to_double(uint16_t h)
{
	int exponent = h >> 10 & 31;
	double v, fraction = h & 0x3ff;

	if (exponent == 31) {
		v = fraction != 0 ? NAN : INFINITY;
	} else if (exponent == 0) {
		v = ldexp(fraction, -24);
	} else {
		v = ldexp(fraction + 1024, exponent - 25);
	}
	return h & 0x8000 ? -v : v;
}

static uint16_t double_to_half(double v, unsigned mode)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	double magnitude = fabs(v), scaled, whole;
	bool up = (mode == ROUND_RP && !sign) || (mode == ROUND_RM && sign);
	int exponent;

	if (v != v) {
		return 0x7fff;
	}
	if (isinf(v)) {
		return sign | 0x7c00;
	}
	if (magnitude == 0) {
		return sign;
	}
	frexp(magnitude, &exponent);
	exponent = MAX(exponent - 1, -14);
	scaled = ldexp(magnitude, 10 - exponent); /* below 2048; exact */
	whole = floor(scaled);
	if (scaled != whole) {
		bool odd = fmod(whole, 2) != 0, more = scaled - whole > 0.5,
		     tie = scaled - whole == 0.5;

		if (mode == ROUND_RN ? more || (tie && odd) : up) {
			whole += 1;
		}
	}
	if (whole >= 2048) {
		whole /= 2;
		exponent++;
	}
	if (exponent > 15) {
		return sign | (mode == ROUND_RN || up ? 0x7c00 : 0x7bff);
	}
	if (whole < 1024) {
		return (uint16_t)(sign | (unsigned)whole); /* subnormal */
	}
	return (uint16_t)(sign | (unsigned)(exponent + 15) << 10 | ((unsigned)whole - 1024));
}

/* A value of any source type: exactly as a float, or as an integer. */
struct any {
	bool is_float;
	bool is_signed;
	double f;
	uint64_t u; /* sign extended */
};

static struct any read_any(const struct op *o, uint64_t raw)
{
	struct any v = { 0 };

	switch (o->type2) {
	case TY_U8:
		v.u = (uint8_t)raw;
		break;
	case TY_S8:
		v.u = (uint64_t)(int8_t)raw;
		v.is_signed = true;
		break;
	case TY_U16:
		v.u = (uint16_t)raw;
		break;
	case TY_S16:
		v.u = (uint64_t)(int16_t)raw;
		v.is_signed = true;
		break;
	case TY_U32:
		v.u = (uint32_t)raw;
		break;
	case TY_S32:
		v.u = (uint64_t)(int32_t)raw;
		v.is_signed = true;
		break;
	case TY_S64:
		v.u = raw;
		v.is_signed = true;
		break;
	case TY_F16:
		v.is_float = true;
		v.f = half_to_double((uint16_t)raw);
		break;
	case TY_F32:
		v.is_float = true;
		v.f = as_float(o->flags & FLAG_FTZ ? flush_bits((uint32_t)raw) : (uint32_t)raw);
		break;
	case TY_F64:
		v.is_float = true;
		v.f = as_double(raw);
		break;
	default:
		v.u = raw;
		break;
	}
	return v;
}

static double round_to_whole(double f, unsigned mode)
{
	switch (mode) {
	case ROUND_RZ:
		return trunc(f);
	case ROUND_RM:
		return floor(f);
	case ROUND_RP:
		return ceil(f);
	default:
		return nearbyint(f); /* the host rounds to nearest, ties to even */
	}
}

/* Into the range of an integer type of so many bits. */
static uint64_t float_to_int(double f, bool is_signed, unsigned bits)
{
	double low = is_signed ? -ldexp(1, (int)bits - 1) : 0;
	double high = ldexp(1, (int)bits - (is_signed ? 1 : 0)); /* the first that is too large */
	uint64_t max = is_signed    ? (UINT64_C(1) << (bits - 1)) - 1
		       : bits == 64 ? UINT64_MAX
				    : (UINT64_C(1) << bits) - 1;

	if (f != f) {
		return 0;
	}
	if (f >= high) {
		return max;
	}
	if (f < low) {
		return is_signed ? ~max : 0;
	}
	return is_signed ? (uint64_t)(int64_t)f : (uint64_t)f;
}

static uint64_t int_to_int(struct any v, bool is_signed, unsigned bits, bool sat)
{
	int64_t s = (int64_t)v.u;
	uint64_t max = is_signed    ? (UINT64_C(1) << (bits - 1)) - 1
		       : bits == 64 ? UINT64_MAX
				    : (UINT64_C(1) << bits) - 1;

	if (!sat) {
		return v.u;
	}
	if (v.is_signed && s < 0) {
		int64_t min = is_signed ? -(int64_t)max - 1 : 0;

		return (uint64_t)(s < min ? min : s);
	}
	return v.u > max ? max : v.u;
}

static uint64_t to_integer(const struct op *o, struct any v)
{
	static const struct {
		bool is_signed;
		uint8_t bits;
	} ints[] = { [TY_U8] = { false, 8 },   [TY_S8] = { true, 8 },	 [TY_U16] = { false, 16 },
		     [TY_S16] = { true, 16 },  [TY_U32] = { false, 32 }, [TY_S32] = { true, 32 },
		     [TY_U64] = { false, 64 }, [TY_S64] = { true, 64 } };
	bool is_signed = ints[o->type].is_signed;
	unsigned bits = ints[o->type].bits;
	uint64_t u = v.is_float ? float_to_int(round_to_whole(v.f, o->n), is_signed, bits)
				: int_to_int(v, is_signed, bits, o->flags & FLAG_SAT);

	/* Registers wider than the type get the value extended as the type says. */
	if (bits < 64) {
		u = is_signed ? (uint64_t)((int64_t)(u << (64 - bits)) >> (64 - bits))
			      : u & ((UINT64_C(1) << bits) - 1);
	}
	return u;
}

static double clamp_unit(double f)
{
	return f > 0 ? (f < 1 ? f : 1) : 0;
}

static uint64_t to_float(const struct op *o, struct any v)
{
	bool sat = o->flags & FLAG_SAT;
	volatile float narrow;
	volatile double wide;

	if (v.is_float && o->flags & FLAG_INT_ROUND) {
		v.f = round_to_whole(v.f, o->n);
	}
	if (sat && v.is_float) {
		v.f = clamp_unit(v.f);
	}
	if (o->type == TY_F16) {
		return double_to_half(v.is_float    ? v.f
				      : v.is_signed ? (double)(int64_t)v.u
						    : (double)v.u,
				      o->n);
	}
	if (!(o->flags & FLAG_INT_ROUND)) {
		fesetround(host_modes[o->n]);
	}
	narrow = v.is_float ? (float)v.f : v.is_signed ? (float)(int64_t)v.u : (float)v.u;
	wide = v.is_float ? v.f : v.is_signed ? (double)(int64_t)v.u : (double)v.u;
	fesetround(FE_TONEAREST);
	if (o->type == TY_F64) {
		return double_bits(wide);
	}
	return finish_float(narrow, o->flags & FLAG_FTZ, sat);
}

int op_cvt_any(struct warp *w, const struct op *o, uint32_t m)
{
	bool to_float_type = o->type == TY_F16 || o->type == TY_F32 || o->type == TY_F64;

	each_lane (m, lane) {
		struct any v = read_any(o, lane_get(w, o->a, o->wide & WIDE_A, lane));

		lane_set(w, o->d, o->wide & WIDE_D, lane,
			 to_float_type ? to_float(o, v) : to_integer(o, v));
	}
	return STEP_NEXT;
}

static double half_op(const struct op *o, double x, double y, double z)
{
	switch (o->sub) {
	case ALU_ADD:
		return x + y;
	case ALU_SUB:
		return x - y;
	case ALU_MUL:
		return x * y;
	case ALU_FMA:
		/* Exact in double: 22 bits of product, and an exponent range of 40 + 22 that still
		 * fits 53 bits nearly always; what is lost lies below half of the last place. */
		return fma(x, y, z);
	case ALU_MIN:
		return fmin(x, y);
	case ALU_MAX:
		return fmax(x, y);
	case ALU_NEG:
		return -x;
	default:
		return fabs(x);
	}
}

int op_f16(struct warp *w, const struct op *o, uint32_t m)
{
	each_lane (m, lane) {
		uint32_t x = (uint32_t)lane_get(w, o->a, false, lane), y = 0, z = 0, r = 0;

		if (o->sub != ALU_NEG && o->sub != ALU_ABS) {
			y = (uint32_t)lane_get(w, o->b, false, lane);
		}
		if (o->sub == ALU_FMA) {
			z = (uint32_t)lane_get(w, o->c, false, lane);
		}
		for (unsigned k = 0; k < o->n; k++) {
			double v = half_op(o, half_to_double((uint16_t)(x >> 16 * k)),
					   half_to_double((uint16_t)(y >> 16 * k)),
					   half_to_double((uint16_t)(z >> 16 * k)));
			uint16_t h =
				double_to_half(o->flags & FLAG_SAT ? clamp_unit(v) : v, ROUND_RN);

			if (o->flags & FLAG_FTZ && !(h & 0x7c00)) {
				h &= 0x8000;
			}
			r |= (uint32_t)h << 16 * k;
		}
		lane_set(w, o->d, false, lane, r);
	}
	return STEP_NEXT;
}

int op_testp(struct warp *w, const struct op *o, uint32_t m)
{
	bool wide = o->type == TY_F64;
	uint32_t bits = 0;

	each_lane (m, lane) {
		uint64_t raw = lane_get(w, o->a, wide, lane);
		int class = wide ? fpclassify(as_double(raw)) : fpclassify(as_float(raw));
		bool r;

		switch (o->sub) {
		case TEST_FINITE:
			r = class != FP_INFINITE && class != FP_NAN;
			break;
		case TEST_INFINITE:
			r = class == FP_INFINITE;
			break;
		case TEST_NUMBER:
			r = class != FP_NAN;
			break;
		case TEST_NAN:
			r = class == FP_NAN;
			break;
		case TEST_NORMAL:
			r = class == FP_NORMAL;
			break;
		default:
			r = class == FP_SUBNORMAL;
			break;
		}
		bits |= (uint32_t)r << lane;
	}
	if (o->p != EXEC_NO_PRED) {
		pred_set(w, o->p, m, bits);
	}
	return STEP_NEXT;
}

int op_carry(struct warp *w, const struct op *o, uint32_t m)
{
	bool wide = o->type == TY_U64 || o->type == TY_S64;
	uint64_t limit = wide ? UINT64_MAX : UINT32_MAX;
	bool is_signed = o->type == TY_S32 || o->type == TY_S64;

	each_lane (m, lane) {
		uint64_t x = lane_get(w, o->a, wide, lane), y = lane_get(w, o->b, wide, lane);
		unsigned __int128 sum, in = o->flags & CARRY_IN ? w->carry >> lane & 1 : 0;
		bool carry;

		if (o->sub == CARRY_SUB) {
			sum = (unsigned __int128)x - y - in;
			carry = (unsigned __int128)y + in > x;
		} else {
			if (o->sub != CARRY_ADD) {
				unsigned __int128 product = (unsigned __int128)x * y;

				if (is_signed) {
					product =
						wide ? (unsigned __int128)((__int128)(int64_t)x *
									   (int64_t)y)
						     : (uint64_t)((int64_t)(int32_t)x * (int32_t)y);
				}
				product >>= o->sub == CARRY_MAD_HI ? (wide ? 64 : 32) : 0;
				x = (uint64_t)product & limit;
				y = lane_get(w, o->c, wide, lane);
			}
			sum = (unsigned __int128)x + y + in;
			carry = sum > limit;
		}
		lane_set(w, o->d, wide, lane, (uint64_t)sum);
		if (o->flags & CARRY_OUT) {
			w->carry = (w->carry & ~(1u << lane)) | (uint32_t)carry << lane;
		}
	}
	return STEP_NEXT;
}

int op_dp4a(struct warp *w, const struct op *o, uint32_t m)
{
	each_lane (m, lane) {
		uint32_t a = (uint32_t)lane_get(w, o->a, false, lane),
			 b = (uint32_t)lane_get(w, o->b, false, lane);
		uint32_t r = (uint32_t)lane_get(w, o->c, false, lane);

		for (unsigned k = 0; k < 32; k += 8) {
			int32_t x = o->type == TY_S32 ? (int8_t)(a >> k) : (uint8_t)(a >> k);
			int32_t y = o->type2 == TY_S32 ? (int8_t)(b >> k) : (uint8_t)(b >> k);

			r += (uint32_t)(x * y);
		}
		lane_set(w, o->d, false, lane, r);
	}
	return STEP_NEXT;
}

/* Cycles are nanoseconds of the host, so that differences mean time. */
int op_clock(struct warp *w, const struct op *o, uint32_t m)
{
	uint64_t v = o->sub >= CLOCK_TIMER ? clock_wall_ns() : clock_now_ns();

	v = o->sub == CLOCK_CYCLES_HI || o->sub == CLOCK_TIMER_HI ? v >> 32 : v;
	each_lane (m, lane) {
		lane_set(w, o->d, o->wide & WIDE_D, lane, v);
	}
	return STEP_NEXT;
}

int op_pred_logic(struct warp *w, const struct op *o, uint32_t m)
{
	uint32_t a = w->preds[o->r] ^ (o->r_not ? ~0u : 0), b = 0;

	if (o->sub >= LOGIC_AND && o->sub <= LOGIC_XOR) {
		b = w->preds[o->q] ^ (o->flags ? ~0u : 0);
	}
	switch (o->sub) {
	case LOGIC_MOV:
		break;
	case LOGIC_NOT:
		a = ~a;
		break;
	case LOGIC_AND:
		a &= b;
		break;
	case LOGIC_OR:
		a |= b;
		break;
	case LOGIC_XOR:
		a ^= b;
		break;
	default:
		a = o->imm ? ~0u : 0;
		break;
	}
	pred_set(w, o->p, m, a);
	return STEP_NEXT;
}

int op_isspacep(struct warp *w, const struct op *o, uint32_t m)
{
	uint32_t bits = 0;

	each_lane (m, lane) {
		uint64_t at = lane_get(w, o->a, true, lane);
		uint64_t window = at >> EXEC_WINDOW_SHIFT << EXEC_WINDOW_SHIFT;
		bool r;

		switch (o->space) {
		case SP_SHARED:
			r = window == EXEC_WINDOW_SHARED;
			break;
		case SP_LOCAL:
			r = window == EXEC_WINDOW_LOCAL;
			break;
		case SP_PARAM:
			r = window == EXEC_WINDOW_PARAM;
			break;
		default:
			r = window != EXEC_WINDOW_SHARED && window != EXEC_WINDOW_LOCAL &&
			    window != EXEC_WINDOW_PARAM;
			break;
		}
		bits |= (uint32_t)r << lane;
	}
	if (o->p != EXEC_NO_PRED) {
		pred_set(w, o->p, m, bits);
	}
	return STEP_NEXT;
}

int op_nop(struct warp *w, const struct op *o, uint32_t m)
{
	return STEP_NEXT;
}

int op_fence(struct warp *w, const struct op *o, uint32_t m)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return STEP_NEXT;
}
