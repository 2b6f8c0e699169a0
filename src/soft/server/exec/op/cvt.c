/* Conversions between all pairs of types, with all roundings. The fast ones are in lane_alu.c. Here
 * a value is read exactly (a float as a double, an integer as 64 bits) and rounded once. */
#include "soft/server/exec/op/half.h"

#include "soft/server/exec/handlers.h"

struct exec_any {
	bool is_float, negative;
	double f;
	uint64_t u; /* magnitude of an integer */
};

static const struct {
	uint8_t bits;
	bool is_signed;
} ints[TY_COUNT] = { [TY_U8] = { 8, false },   [TY_S8] = { 8, true },	 [TY_U16] = { 16, false },
		     [TY_S16] = { 16, true },  [TY_U32] = { 32, false }, [TY_S32] = { 32, true },
		     [TY_U64] = { 64, false }, [TY_S64] = { 64, true } };

static enum exec_num_format format_of(unsigned type)
{
	switch (type) {
	case TY_F16:
		return NUM_F16;
	case TY_F32:
		return NUM_F32;
	case CVT_BF16:
		return NUM_BF16;
	case CVT_TF32:
		return NUM_TF32;
	case CVT_E4M3:
		return NUM_E4M3;
	case CVT_E5M2:
		return NUM_E5M2;
	default:
		return NUM_FORMATS;
	}
}

/* Truncates to the type's bits and extends by its sign. */
static uint64_t extend(uint64_t u, unsigned bits, bool is_signed)
{
	unsigned cut = 64 - bits;

	return is_signed ? (uint64_t)((int64_t)(u << cut) >> cut) : u << cut >> cut;
}

static struct exec_any read_any(unsigned type, uint64_t raw, bool ftz)
{
	struct exec_any v = { .is_float = true };
	enum exec_num_format f = format_of(type);

	if (type == TY_F64) {
		v.f = exec_num_double(raw);
	} else if (f != NUM_FORMATS) {
		if (ftz && f == NUM_F32 && !(raw & 0x7f800000)) {
			raw &= 0x80000000;
		}
		v.f = exec_num_read(f, (uint32_t)raw);
	} else {
		v.is_float = false;
		v.u = extend(raw, ints[type].bits, ints[type].is_signed);
		v.negative = ints[type].is_signed && (int64_t)v.u < 0;
		v.u = v.negative ? 0 - v.u : v.u;
	}
	return v;
}

static double to_whole(double f, unsigned mode)
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

/* Saturates values out of range. NaN gives 0; from f64 and to 64 bits the hardware returns the
 * highest bit. */
static uint64_t float_to_int(const struct exec_op *o, double f)
{
	unsigned bits = ints[o->type].bits;
	bool is_signed = ints[o->type].is_signed;
	/* the first value that is too large */
	double high = ldexp(1, (int)bits - (is_signed ? 1 : 0));
	uint64_t max = UINT64_MAX >> (64 - bits + is_signed);

	if (f != f) {
		return o->type2 == TY_F64 || bits == 64 ? UINT64_C(1) << (bits - 1) : 0;
	}
	if (f >= high) {
		return max;
	}
	if (is_signed) {
		return f < -high ? ~max : (uint64_t)(int64_t)f;
	}
	return f > 0 ? (uint64_t)f : 0;
}

static uint64_t int_to_int(const struct exec_op *o, const struct exec_any *v)
{
	unsigned bits = ints[o->type].bits;
	uint64_t max = UINT64_MAX >> (64 - bits + ints[o->type].is_signed);

	if (o->flags & FLAG_SAT) {
		if (v->negative) {
			return !ints[o->type].is_signed ? 0 : v->u > max + 1 ? ~max : 0 - v->u;
		}
		return v->u > max ? max : v->u;
	}
	return v->negative ? 0 - v->u : v->u;
}

static uint64_t to_integer(const struct exec_op *o, const struct exec_any *v)
{
	uint64_t u = v->is_float ? float_to_int(o, to_whole(v->f, o->n)) : int_to_int(o, v);

	return extend(u, ints[o->type].bits, ints[o->type].is_signed);
}

/* An integer, or a sum rounded to odd, as f64 in this rounding. */
static uint64_t int_to_double(const struct exec_any *v, unsigned mode)
{
	unsigned top = v->u ? 64 - (unsigned)__builtin_clzll(v->u) : 0, shift;
	uint64_t kept, unit;
	double d;

	if (top <= 53) {
		d = (double)v->u;
	} else {
		shift = top - 53;
		unit = UINT64_C(1) << shift;
		kept = v->u >> shift;
		kept += exec_num_round_up(kept, v->u & (unit - 1), unit >> 1, v->negative, mode);
		d = ldexp((double)kept, (int)shift);
	}
	return exec_num_bits(v->negative ? -d : d);
}

/* NaN between formats of which one is f64: sign and payload are kept, and it is made quiet; with
 * .ftz f32's is canonical. */
static uint64_t nan_of(const struct exec_op *o, uint64_t raw)
{
	enum exec_num_format f = format_of(o->type2 == TY_F64 ? o->type : o->type2);
	const struct exec_num_shape *s = &exec_num_shapes[f];
	uint64_t wide = raw;

	if (o->type2 != TY_F64) {
		raw = o->flags & FLAG_FTZ ? s->nan : raw;
		wide = (raw >> (s->man_bits + s->exp_bits) & 1) << 63 | UINT64_C(0x7ff) << 52 |
		       (raw & ((UINT64_C(1) << s->man_bits) - 1)) << (52 - s->man_bits);
	}
	wide |= UINT64_C(1) << 51;
	if (o->type == TY_F64) {
		return wide;
	}
	return (wide >> 63 << (s->man_bits + s->exp_bits)) | (s->finite + 1) |
	       (wide & ((UINT64_C(1) << 52) - 1)) >> (52 - s->man_bits);
}

static uint64_t to_float(const struct exec_op *o, const struct exec_any *v)
{
	enum exec_num_format f = format_of(o->type);
	double d = v->is_float ? v->f : exec_num_int_odd(v->negative, v->u);
	uint32_t r;

	if (v->is_float && o->flags & FLAG_INT_ROUND) {
		d = to_whole(d, o->n);
	}
	if (o->flags & FLAG_SAT) {
		d = d > 0 ? (d < 1 ? d : 1) : 0;
	}
	if (o->flags & FLAG_RELU && d <= 0) {
		d = 0;
	}
	if (o->type == TY_F64) {
		if (!v->is_float && !(o->flags & FLAG_SAT)) {
			return int_to_double(v, o->n);
		}
		return exec_num_bits(d);
	}
	r = exec_num_round(f, d, o->flags & FLAG_INT_ROUND ? ROUND_RN : o->n,
			   o->flags & FLAG_FINITE);
	if (o->flags & FLAG_FTZ && f == NUM_F32 && !(r & 0x7f800000)) {
		r &= 0x80000000;
	}
	return r;
}

/* Infinity and NaN to tf32 with ties away from zero are truncated only; .satfinite subtracts one
 * step. */
static uint32_t tf32_not_finite(const struct exec_op *o, uint32_t raw)
{
	raw &= ~0x1fffu;
	return o->flags & FLAG_FINITE ? raw - 0x2000 : raw;
}

static uint64_t convert(const struct exec_op *o, uint64_t raw)
{
	unsigned changes = o->flags & (FLAG_SAT | FLAG_RELU | FLAG_INT_ROUND);
	struct exec_any v;

	if (o->type == CVT_TF32 && o->n == ROUND_RNA && (raw & 0x7f800000) == 0x7f800000) {
		return tf32_not_finite(o, (uint32_t)raw);
	}
	if (o->type == TY_F32 && o->type2 == CVT_BF16 && !changes) {
		return raw << 16; /* NaN keeps its bits */
	}
	v = read_any(o->type2, raw, o->flags & FLAG_FTZ);
	if (o->type < TY_COUNT && ints[o->type].bits) {
		return to_integer(o, &v);
	}
	if (v.is_float && v.f != v.f && !changes && (o->type == TY_F64) != (o->type2 == TY_F64)) {
		return nan_of(o, raw);
	}
	return to_float(o, &v);
}

int exec_op_cvt_any(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		exec_lane_set(w, o->d, o->wide & WIDE_D, lane,
			      convert(o, exec_lane_get(w, o->a, o->wide & WIDE_A, lane)));
	}
	return STEP_NEXT;
}

/* d = convert(a) above convert(b), or with FLAG_PAIR both parts of a. size: bits of a result part,
 * e: bits of a source part. */
int exec_op_cvt_pair(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint32_t x = (uint32_t)exec_lane_get(w, o->a, false, lane), y;
		struct exec_any high, low;

		if (o->flags & FLAG_PAIR) {
			y = x & ((1u << o->e) - 1);
			x = x >> o->e & ((1u << o->e) - 1);
		} else {
			y = (uint32_t)exec_lane_get(w, o->b, false, lane);
		}
		high = read_any(o->type2, x, false);
		low = read_any(o->type2, y, false);
		exec_lane_set(w, o->d, false, lane,
			      to_float(o, &high) << o->size | to_float(o, &low));
	}
	return STEP_NEXT;
}

/* cvt.pack.sat: two s32 saturated to imm bits, a above b, and above both the low bits of c. */
int exec_op_cvt_pack(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	unsigned bits = o->size;
	int64_t max = (INT64_C(1) << (bits - o->sub)) - 1, min = o->sub ? -max - 1 : 0;
	uint32_t mask = (1u << bits) - 1;

	exec_each_lane (m, lane) {
		int64_t x = (int32_t)exec_lane_get(w, o->a, false, lane);
		int64_t y = (int32_t)exec_lane_get(w, o->b, false, lane);
		uint32_t r =
			o->n == 3 ? (uint32_t)exec_lane_get(w, o->c, false, lane) << 2 * bits : 0;

		x = x > max ? max : x < min ? min : x;
		y = y > max ? max : y < min ? min : y;
		r |= ((uint32_t)x & mask) << bits | ((uint32_t)y & mask);
		exec_lane_set(w, o->d, false, lane, r);
	}
	return STEP_NEXT;
}
