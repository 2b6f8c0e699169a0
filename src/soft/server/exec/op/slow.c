/* Handlers where speed does not matter: directed rounding, carries, clocks, predicates. Compiled
 * with -frounding-math, since it changes the host thread's rounding mode around single operations.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
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

/* Number of sources, indexed by enum exec_slow_round. */
static const uint8_t round_sources[] = { 2, 2, 2, 3, 2, 1, 1 };

int exec_op_round(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	bool wide = o->type == TY_F64, ftz = o->flags & FLAG_FTZ;
	uint64_t result[EXEC_LANES];

	fesetround(host_modes[o->n]);
	exec_each_lane (m, lane) {
		uint64_t x = exec_lane_get(w, o->a, wide, lane);
		uint64_t y = round_sources[o->sub] > 1 ? exec_lane_get(w, o->b, wide, lane) : 0;
		uint64_t z = round_sources[o->sub] > 2 ? exec_lane_get(w, o->c, wide, lane) : 0;

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
	exec_each_lane (m, i) {
		exec_lane_set(w, o->d, wide, i, result[i]);
	}
	return STEP_NEXT;
}

static double flush_double(double x)
{
	uint64_t u = double_bits(x);

	return as_double(u << 1 >> 53 ? u : u & UINT64_C(1) << 63);
}

/* Uses the upper word of a double only; the lower word of the result is 0. */
static uint64_t approx_upper(unsigned what, uint64_t raw)
{
	uint64_t u = raw & ~(uint64_t)UINT32_MAX;
	double x = flush_double(as_double(u));

	if (x != x) {
		return UINT64_C(0x7fffffff00000000);
	}
	u = double_bits(flush_double(what == APPROX_RCP64 ? 1.0 / x : 1.0 / sqrt(x)));
	if (u << 1 > UINT64_C(0x7ff) << 53) {
		return UINT64_C(0x7fffffff00000000);
	}
	return u & ~(uint64_t)UINT32_MAX;
}

/* The reciprocal of a divisor beyond 2^126 is not normal: the quotient is 0, for infinity NaN. */
static uint32_t approx_div(uint32_t a, uint32_t b, bool ftz)
{
	uint32_t sign = (a ^ b) & 0x80000000;
	volatile float x, y;

	if (ftz) {
		a = flush_bits(a);
		b = flush_bits(b);
	}
	x = as_float(a);
	y = as_float(b);
	if (fabsf(y) > 0x1p126f && !isinf(y) && x == x) {
		return isinf(x) ? 0x7fffffff : sign;
	}
	return finish_float(x / y, ftz, false);
}

int exec_op_approx(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		if (o->sub == APPROX_DIV) {
			exec_lane_set(w, o->d, false, lane,
				      approx_div((uint32_t)exec_lane_get(w, o->a, false, lane),
						 (uint32_t)exec_lane_get(w, o->b, false, lane),
						 o->flags & FLAG_FTZ));
		} else {
			exec_lane_set(w, o->d, true, lane,
				      approx_upper(o->sub, exec_lane_get(w, o->a, true, lane)));
		}
	}
	return STEP_NEXT;
}

int exec_op_testp(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	bool wide = o->type == TY_F64;
	uint32_t bits = 0;

	exec_each_lane (m, lane) {
		uint64_t raw = exec_lane_get(w, o->a, wide, lane);
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
			r = class == FP_NORMAL || class == FP_ZERO; /* as the hardware returns */
			break;
		default:
			r = class == FP_SUBNORMAL;
			break;
		}
		bits |= (uint32_t)r << lane;
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, bits);
	}
	return STEP_NEXT;
}

/* Returns the product's half that mad and madc add, before it is cut to the type's width. */
static uint64_t carry_product(const struct exec_op *o, uint64_t x, uint64_t y)
{
	bool wide = o->type == TY_U64 || o->type == TY_S64;
	u128 product = (u128)x * y;

	if (o->type == TY_S32 || o->type == TY_S64) {
		product = wide ? (u128)((i128)(int64_t)x * (int64_t)y)
			       : (uint64_t)((int64_t)(int32_t)x * (int32_t)y);
	}
	return (uint64_t)(product >> (o->sub == CARRY_MAD_HI ? (wide ? 64 : 32) : 0));
}

/* add, sub and mad that read or write the carry flag. x - y is the sum x + ~y + 1, whose carry is
 * NOT borrow: a subtraction leaves this in the flag and expects it there, as GPUs do, so that an
 * addition may read the flag of a subtraction and vice versa.
 */
int exec_op_carry(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	bool wide = o->type == TY_U64 || o->type == TY_S64;
	uint64_t limit = wide ? UINT64_MAX : UINT32_MAX;

	exec_each_lane (m, lane) {
		uint64_t x = exec_lane_get(w, o->a, wide, lane),
			 y = exec_lane_get(w, o->b, wide, lane);
		u128 sum;

		if (o->sub == CARRY_SUB) {
			y = ~y;
		} else if (o->sub != CARRY_ADD) {
			x = carry_product(o, x, y);
			y = exec_lane_get(w, o->c, wide, lane);
		}
		sum = (u128)(x & limit) + (y & limit);
		sum += o->flags & CARRY_IN ? w->carry >> lane & 1 : o->sub == CARRY_SUB;
		exec_lane_set(w, o->d, wide, lane, (uint64_t)sum);
		if (o->flags & CARRY_OUT) {
			w->carry = (w->carry & ~(1u << lane)) | (uint32_t)(sum > limit) << lane;
		}
	}
	return STEP_NEXT;
}

/* Cycles are host time at the reported clock rate, so differences measure time. */
int exec_op_clock(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint64_t v = o->sub >= CLOCK_TIMER ? clock_wall_ns() : clock_now_ns();
	uint32_t khz = w->block->launch.clock_khz;

	if (khz && o->sub < CLOCK_TIMER) {
		v = v / 1000000 * khz + v % 1000000 * khz / 1000000;
	}
	v = o->sub == CLOCK_CYCLES_HI || o->sub == CLOCK_TIMER_HI ? v >> 32 : v;
	exec_each_lane (m, lane) {
		exec_lane_set(w, o->d, o->wide & WIDE_D, lane, v);
	}
	return STEP_NEXT;
}

int exec_op_pred_logic(struct exec_warp *w, const struct exec_op *o, uint32_t m)
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
	exec_pred_set(w, o->p, m, a);
	return STEP_NEXT;
}

int exec_op_isspacep(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t bits = 0;

	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, true, lane);
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
		exec_pred_set(w, o->p, m, bits);
	}
	return STEP_NEXT;
}

int exec_op_fence(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	fence_seqcst();
	return STEP_NEXT;
}
