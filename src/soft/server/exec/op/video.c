/* Video instructions as the PTX manual defines them: parts of registers are widened, combined,
 * saturated, and accumulated with or merged into a third operand. */
#include "base/compiler.h"
#include "soft/server/exec/op/video.h"

#include "soft/server/exec/handlers.h"

static const struct {
	uint8_t at, bits;
} parts[PART_COUNT] = {
	{ 0, 32 }, { 0, 8 }, { 8, 8 }, { 16, 8 }, { 24, 8 }, { 0, 16 }, { 16, 16 }
};

static int64_t widen(uint64_t x, unsigned at, unsigned bits, bool is_signed)
{
	x = x >> at & ((UINT64_C(1) << bits) - 1);
	return is_signed && x >> (bits - 1) ? (int64_t)x - (INT64_C(1) << bits) : (int64_t)x;
}

static i128 clamp(i128 v, unsigned bits, bool is_signed)
{
	i128 max = ((i128)1 << (bits - is_signed)) - 1, min = is_signed ? -max - 1 : 0;

	return v > max ? max : v < min ? min : v;
}

static bool compare(unsigned cmp, int64_t x, int64_t y)
{
	switch (cmp) {
	case CMP_EQ:
		return x == y;
	case CMP_NE:
		return x != y;
	case CMP_LT:
		return x < y;
	case CMP_LE:
		return x <= y;
	case CMP_GT:
		return x > y;
	default:
		return x >= y;
	}
}

static i128 combine(const struct exec_op *o, int64_t x, int64_t y)
{
	switch ((enum exec_video_op)o->sub) {
	case VIDEO_ADD:
		return x + y;
	case VIDEO_SUB:
		return x - y;
	case VIDEO_ABSDIFF:
		return x > y ? x - y : y - x;
	case VIDEO_MIN:
		return x < y ? x : y;
	case VIDEO_MAX:
		return x > y ? x : y;
	case VIDEO_AVRG:
		return x + y >= 0 ? (x + y + 1) >> 1 : (x + y) >> 1;
	case VIDEO_SET:
		return compare(o->type, x, y);
	default:
		y = o->flags & VIDEO_CLAMP ? (y > 32 ? 32 : y) : y & 31;
		return o->sub == VIDEO_SHL ? (i128)x * ((i128)1 << y) : x >> y;
	}
}

/* a * b + c, shifted. The sum is unsigned if both factors are and nothing is negated. */
static uint32_t multiply_add(const struct exec_op *o, int64_t x, int64_t y, uint32_t c)
{
	bool is_signed = o->flags & (VIDEO_A_SIGNED | VIDEO_B_SIGNED) || o->type != NEGATED_NONE;
	i128 product = (i128)x * y, sum = is_signed ? (int64_t)(int32_t)c : (int64_t)c, v;

	v = (o->type == NEGATED_PRODUCT ? -product : product) + (o->type == NEGATED_C ? -sum : sum);
	v += o->flags & VIDEO_PLUS_ONE ? 1 : 0;
	v >>= o->flags & VIDEO_SHR7 ? 7 : o->flags & VIDEO_SHR15 ? 15 : 0;
	if (o->flags & VIDEO_SAT) {
		v = clamp(v, 32, is_signed);
	}
	return (uint32_t)v;
}

static uint32_t scalar(const struct exec_op *o, uint32_t a, uint32_t b, uint32_t c)
{
	unsigned pa = (unsigned)o->imm & 15, pb = (unsigned)(o->imm >> 32) & 15;
	int64_t x = widen(a, parts[pa].at, parts[pa].bits, o->flags & VIDEO_A_SIGNED);
	int64_t y = widen(b, parts[pb].at, parts[pb].bits, o->flags & VIDEO_B_SIGNED);
	unsigned at = parts[o->size].at, bits = parts[o->size].bits;
	bool is_signed = o->flags & VIDEO_D_SIGNED, less;
	uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1) << at, v;
	i128 wide;

	if (o->sub == VIDEO_MAD) {
		return multiply_add(o, x, y, c);
	}
	wide = combine(o, x, y);
	v = (uint32_t)(o->flags & VIDEO_SAT ? clamp(wide, bits, is_signed) : wide);
	less = is_signed ? (int32_t)v < (int32_t)c : v < c;
	switch ((enum exec_video_second)o->type2) {
	case SECOND_ADD:
		return v + c;
	case SECOND_MIN:
		return less ? v : c;
	case SECOND_MAX:
		return less ? c : v;
	case SECOND_MERGE:
		return (v << at & mask) | (c & ~mask);
	default:
		return v;
	}
}

/* Parts are selected from the bytes or halves of a and b together. */
static uint32_t vector(const struct exec_op *o, uint32_t a, uint32_t b, uint32_t c)
{
	uint64_t both = (uint64_t)b << 32 | a;
	unsigned bits = 32u / o->n;
	uint32_t sum = c, merged = 0;

	for (unsigned i = 0; i < o->n; i++) {
		unsigned pa = (unsigned)(o->imm >> 4 * i) & 15;
		unsigned pb = (unsigned)(o->imm >> (32 + 4 * i)) & 15;
		uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1) << bits * i;
		i128 v = combine(o, widen(both, pa * bits, bits, o->flags & VIDEO_A_SIGNED),
				 widen(both, pb * bits, bits, o->flags & VIDEO_B_SIGNED));

		if (o->flags & VIDEO_SAT) {
			v = clamp(v, bits, o->flags & VIDEO_D_SIGNED);
		}
		if (o->size >> i & 1) {
			sum += (uint32_t)v;
			merged |= (uint32_t)v << bits * i & mask;
		} else {
			merged |= c & mask;
		}
	}
	return o->type2 == SECOND_ADD ? sum : merged;
}

int exec_op_video(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint32_t a = (uint32_t)exec_lane_get(w, o->a, false, lane);
		uint32_t b = (uint32_t)exec_lane_get(w, o->b, false, lane);
		uint32_t c =
			o->type2 != SECOND_NONE ? (uint32_t)exec_lane_get(w, o->c, false, lane) : 0;

		exec_lane_set(w, o->d, false, lane,
			      o->n == 1 ? scalar(o, a, b, c) : vector(o, a, b, c));
	}
	return STEP_NEXT;
}
