/* Rare integer instructions, computed lane by lane as the PTX manual defines them. */
#include "soft/server/exec/op/integer.h"

/* Returns the n-th set bit from base, upwards or downwards; all ones if there is none. */
static uint32_t find_nth(uint32_t mask, uint32_t base, int32_t offset)
{
	int32_t step = offset > 0 ? 1 : -1;
	uint32_t left = offset > 0 ? (uint32_t)offset : 0 - (uint32_t)offset;

	if (base > 31) {
		return ~0u;
	}
	if (offset == INT32_MIN) {
		return 0; /* as the hardware returns */
	}
	if (offset == 0) {
		return mask >> base & 1 ? base : ~0u;
	}
	for (int32_t pos = (int32_t)base; pos >= 0 && pos < 32; pos += step) {
		if (mask >> pos & 1 && --left == 0) {
			return (uint32_t)pos;
		}
	}
	return ~0u;
}

static uint32_t bit_mask(uint32_t a, uint32_t b, bool clamp)
{
	uint32_t from = a & 31, sum = from + (b & 31);
	uint32_t low = clamp && a > 31 ? 0 : ~0u << from;
	uint32_t high = sum > 31 || (clamp && (a > 31 || b > 31)) ? 0 : ~0u << sum;

	if (!(clamp && (a > 31 || b > 31)) && sum <= 31 && (b & 31) == 0) {
		high = ~0u;
	}
	return low & ~high;
}

static uint32_t extend(uint32_t a, uint32_t b, bool clamp, bool is_signed)
{
	uint32_t bits = b & 31, mask;

	if (clamp && b > 31) {
		return a;
	}
	mask = ~0u << bits;
	if (is_signed && bits && a >> (bits - 1) & 1) {
		return a | mask;
	}
	return a & ~mask;
}

static int32_t part(uint32_t x, unsigned at, unsigned bits, bool is_signed)
{
	x = x >> at & ((1u << bits) - 1);
	return is_signed && x >> (bits - 1) ? (int32_t)x - (1 << bits) : (int32_t)x;
}

/* type, type2: signedness of the two vectors. */
static uint32_t dot(const struct exec_op *o, uint32_t a, uint32_t b, uint32_t c)
{
	unsigned from = o->flags & INTEGER_HIGH ? 16 : 0;

	for (unsigned i = 0; i < 2; i++) {
		c += (uint32_t)(part(a, i * 16, 16, o->type == TY_S32) *
				part(b, from + i * 8, 8, o->type2 == TY_S32));
	}
	return c;
}

static uint32_t exec_saturate(int64_t x)
{
	return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

static int64_t low24(uint32_t x)
{
	return (int32_t)(x << 8) >> 8;
}

static uint32_t pair(const struct exec_op *o, uint32_t a, uint32_t b)
{
	bool is_signed = o->flags & INTEGER_SIGNED;
	uint32_t r = 0;

	for (unsigned at = 0; at < 32; at += 16) {
		int32_t x = part(a, at, 16, is_signed), y = part(b, at, 16, is_signed), v;

		v = o->sub == INTEGER_ADD2 ? x + y : (o->sub == INTEGER_MIN2) == (x < y) ? x : y;
		if (o->flags & INTEGER_RELU && v < 0) {
			v = 0;
		}
		r |= ((uint32_t)v & 0xffff) << at;
	}
	return r;
}

static uint32_t compute(const struct exec_op *o, uint32_t a, uint32_t b, uint32_t c)
{
	int32_t x = (int32_t)a, y = (int32_t)b, r;

	switch ((enum exec_integer_op)o->sub) {
	case INTEGER_FNS:
		return find_nth(a, b, (int32_t)c);
	case INTEGER_BMSK:
		return bit_mask(a, b, o->flags & INTEGER_CLAMP);
	case INTEGER_SZEXT:
		return extend(a, b, o->flags & INTEGER_CLAMP, o->flags & INTEGER_SIGNED);
	case INTEGER_DP2A:
		return dot(o, a, b, c);
	case INTEGER_MAD_HI_SAT:
		return exec_saturate(((int64_t)x * y >> 32) + (int32_t)c);
	case INTEGER_MAD24_HI_SAT:
		return exec_saturate((int64_t)(int32_t)(low24(a) * low24(b) >> 16) + (int32_t)c);
	case INTEGER_MIN_RELU:
		r = x < y ? x : y;
		return (uint32_t)(r < 0 ? 0 : r);
	case INTEGER_MAX_RELU:
		r = x > y ? x : y;
		return (uint32_t)(r < 0 ? 0 : r);
	default:
		return pair(o, a, b);
	}
}

/* dp4a dominates quantized networks: specialized, without branches inside. */
#define DEF_DP4A(name, TA, TB)                                                                     \
	static int name(struct exec_warp *w, const struct exec_op *o, uint32_t m)                  \
	{                                                                                          \
		const uint32_t *a = REF(const uint32_t, w, o->a),                                  \
			       *b = REF(const uint32_t, w, o->b);                                  \
		const uint32_t *c = REF(const uint32_t, w, o->c);                                  \
		uint32_t *d = REF(uint32_t, w, o->d);                                              \
                                                                                                   \
		for (unsigned i = 0; i < EXEC_LANES; i++) {                                        \
			int32_t v = (TA)a[i] * (TB)b[i] + (TA)(a[i] >> 8) * (TB)(b[i] >> 8) +      \
				    (TA)(a[i] >> 16) * (TB)(b[i] >> 16) +                          \
				    (TA)(a[i] >> 24) * (TB)(b[i] >> 24);                           \
                                                                                                   \
			d[i] = m >> i & 1 ? c[i] + (uint32_t)v : d[i];                             \
		}                                                                                  \
		return STEP_NEXT;                                                                  \
	}
DEF_DP4A(dp4a_uu, uint8_t, uint8_t)
DEF_DP4A(dp4a_us, uint8_t, int8_t)
DEF_DP4A(dp4a_su, int8_t, uint8_t)
DEF_DP4A(dp4a_ss, int8_t, int8_t)

exec_op_fn exec_integer_dp4a(enum exec_type a, enum exec_type b)
{
	return a == TY_S32 ? (b == TY_S32 ? dp4a_ss : dp4a_su) : b == TY_S32 ? dp4a_us : dp4a_uu;
}

int exec_op_integer(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint32_t a = (uint32_t)exec_lane_get(w, o->a, false, lane);
		uint32_t b = (uint32_t)exec_lane_get(w, o->b, false, lane);
		uint32_t c = o->n > 2 ? (uint32_t)exec_lane_get(w, o->c, false, lane) : 0;

		exec_lane_set(w, o->d, false, lane, compute(o, a, b, c));
	}
	return STEP_NEXT;
}

int exec_op_nonzero(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t q = w->preds[o->r] ^ (o->r_not ? ~0u : 0), bits = 0;

	exec_each_lane (m, lane) {
		bits |= (uint32_t)(exec_lane_get(w, o->a, false, lane) != 0) << lane;
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, o->sub == BOOL_AND ? bits & q : bits | q);
	}
	return STEP_NEXT;
}

int exec_op_pack_bytes(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		exec_lane_set(w, o->d, false, lane,
			      (exec_lane_get(w, o->a, false, lane) & 0xff) |
				      exec_lane_get(w, o->b, false, lane) << 8);
	}
	return STEP_NEXT;
}

int exec_op_unpack_byte(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		exec_lane_set(w, o->d, false, lane,
			      exec_lane_get(w, o->a, false, lane) >> o->imm & 0xff);
	}
	return STEP_NEXT;
}
