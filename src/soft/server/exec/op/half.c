/* f16 and bf16, one value or two per register. Each result is the exact one rounded once, by way of
 * doubles rounded to odd. */
#include "soft/server/exec/op/half.h"

#include "soft/server/exec/handlers.h"

static const uint8_t half_sources[ALU_COUNT] = {
	[ALU_ADD] = 2, [ALU_SUB] = 2, [ALU_MUL] = 2, [ALU_FMA] = 3, [ALU_MIN] = 2,
	[ALU_MAX] = 2, [ALU_ABS] = 1, [ALU_NEG] = 1, [ALU_EX2] = 1, [ALU_TANH] = 1
};

static uint16_t flush_half(enum exec_num_format f, uint16_t h)
{
	return h & (f == NUM_F16 ? 0x7c00 : 0x7f80) ? h : h & 0x8000;
}

static bool is_nan(enum exec_num_format f, uint16_t h)
{
	return (h & 0x7fff) > exec_num_shapes[f].finite + 1;
}

/* Maps bits to integers in the order of the values; -0 below +0. */
static int order(uint16_t h)
{
	return h & 0x8000 ? -(int)(h & 0x7fff) - 1 : h;
}

static uint16_t pick(const struct exec_op *o, enum exec_num_format f, uint16_t x, uint16_t y)
{
	uint16_t sign = (x ^ y) & 0x8000, r;
	bool x_nan = is_nan(f, x), y_nan = is_nan(f, y);

	if (o->flags & FLAG_NAN ? x_nan || y_nan : x_nan && y_nan) {
		return (uint16_t)exec_num_shapes[f].nan;
	}
	if (o->flags & FLAG_XORSIGN) {
		x &= 0x7fff;
		y &= 0x7fff;
	}
	if (x_nan || y_nan) {
		r = x_nan ? y : x;
	} else {
		r = (order(x) < order(y)) == (o->sub == ALU_MIN) ? x : y;
	}
	return o->flags & FLAG_XORSIGN ? (r & 0x7fff) | sign : r;
}

static double compute(const struct exec_op *o, double x, double y, double z)
{
	switch (o->sub) {
	case ALU_ADD:
		return exec_num_add_odd(x, y);
	case ALU_SUB:
		return exec_num_add_odd(x, -y);
	case ALU_MUL:
		return x * y; /* exact: at most 22 bits */
	case ALU_FMA:
		return exec_num_fma_odd(x, y, z);
	case ALU_EX2:
		return exp2(x);
	default:
		return tanh(x);
	}
}

static uint16_t one(const struct exec_op *o, enum exec_num_format f, uint16_t x, uint16_t y,
		    uint16_t z)
{
	double v;
	uint16_t r;

	if (o->flags & FLAG_FTZ) {
		x = flush_half(f, x);
		y = flush_half(f, y);
		z = flush_half(f, z);
	}
	switch (o->sub) {
	case ALU_NEG:
		return is_nan(f, x) ? (uint16_t)exec_num_shapes[f].nan : x ^ 0x8000;
	case ALU_ABS:
		return is_nan(f, x) ? (uint16_t)exec_num_shapes[f].nan : x & 0x7fff;
	case ALU_MIN:
	case ALU_MAX:
		return pick(o, f, x, y);
	default:
		break;
	}
	v = compute(o, exec_num_read(f, x), exec_num_read(f, y), exec_num_read(f, z));
	if (o->flags & FLAG_SAT) {
		v = v > 0 ? (v < 1 ? v : 1) : 0;
	}
	if (o->flags & FLAG_RELU && v <= 0) {
		v = 0;
	}
	r = (uint16_t)exec_num_round(f, v, ROUND_RN, false);
	return o->flags & FLAG_FTZ ? flush_half(f, r) : r;
}

int exec_op_half(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	unsigned n = half_sources[o->sub];

	exec_each_lane (m, lane) {
		uint32_t x = (uint32_t)exec_lane_get(w, o->a, false, lane);
		uint32_t y = n > 1 ? (uint32_t)exec_lane_get(w, o->b, false, lane) : 0;
		uint32_t z = n > 2 ? (uint32_t)exec_lane_get(w, o->c, false, lane) : 0, r = 0;

		for (unsigned k = 0; k < 16u * o->n; k += 16) {
			r |= (uint32_t)one(o, (enum exec_num_format)o->type2, (uint16_t)(x >> k),
					   (uint16_t)(y >> k), (uint16_t)(z >> k))
			     << k;
		}
		exec_lane_set(w, o->d, false, lane, r);
	}
	return STEP_NEXT;
}

static bool compare(unsigned cmp, double x, double y)
{
	bool nan = x != x || y != y;

	switch (cmp) {
	case CMP_EQ:
		return x == y;
	case CMP_NE:
		return !nan && x != y;
	case CMP_LT:
		return x < y;
	case CMP_LE:
		return x <= y;
	case CMP_GT:
		return x > y;
	case CMP_GE:
		return x >= y;
	case CMP_EQU:
		return nan || x == y;
	case CMP_NEU:
		return nan || x != y;
	case CMP_LTU:
		return nan || x < y;
	case CMP_LEU:
		return nan || x <= y;
	case CMP_GTU:
		return nan || x > y;
	case CMP_GEU:
		return nan || x >= y;
	case CMP_NUM:
		return !nan;
	default:
		return nan;
	}
}

static uint32_t with_bool(const struct exec_op *o, uint32_t v, uint32_t r)
{
	switch (o->sub) {
	case BOOL_AND:
		return v & r;
	case BOOL_OR:
		return v | r;
	case BOOL_XOR:
		return v ^ r;
	default:
		return v;
	}
}

int exec_op_half_compare(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	enum exec_num_format f = (enum exec_num_format)o->type2;
	uint32_t r = o->sub != BOOL_NONE ? w->preds[o->r] ^ (o->r_not ? ~0u : 0) : 0;
	uint32_t bits[2] = { 0, 0 };

	exec_each_lane (m, lane) {
		uint32_t x = (uint32_t)exec_lane_get(w, o->a, false, lane);
		uint32_t y = (uint32_t)exec_lane_get(w, o->b, false, lane);

		for (unsigned k = 0; k < o->n; k++) {
			uint16_t hx = (uint16_t)(x >> 16 * k), hy = (uint16_t)(y >> 16 * k);

			if (o->flags & FLAG_FTZ) {
				hx = flush_half(f, hx);
				hy = flush_half(f, hy);
			}
			bits[k] |= (uint32_t)compare(o->type, exec_num_read(f, hx),
						     exec_num_read(f, hy))
				   << lane;
		}
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, with_bool(o, bits[0], r));
	}
	if (o->q != EXEC_NO_PRED) {
		exec_pred_set(w, o->q, m, with_bool(o, o->n == 2 ? bits[1] : ~bits[0], r));
	}
	return STEP_NEXT;
}

/* On magnitudes, with the sign of the product. */
int exec_op_minmax_xorsign(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint32_t x = (uint32_t)exec_lane_get(w, o->a, false, lane);
		uint32_t y = (uint32_t)exec_lane_get(w, o->b, false, lane);
		uint32_t sign = (x ^ y) & 0x80000000, r, low, high;
		bool x_nan, y_nan;

		x &= 0x7fffffff;
		y &= 0x7fffffff;
		if (o->flags & FLAG_FTZ) {
			x = x < 0x800000 ? 0 : x;
			y = y < 0x800000 ? 0 : y;
		}
		x_nan = x > 0x7f800000;
		y_nan = y > 0x7f800000;
		low = x < y ? x : y; /* magnitudes order as their bits, NaN above all */
		high = x < y ? y : x;
		r = o->sub == ALU_MIN || x_nan || y_nan ? low : high;
		r = (r & 0x7fffffff) | sign;
		if (o->flags & FLAG_NAN ? x_nan || y_nan : x_nan && y_nan) {
			r = 0x7fffffff;
		}
		exec_lane_set(w, o->d, false, lane, r);
	}
	return STEP_NEXT;
}
