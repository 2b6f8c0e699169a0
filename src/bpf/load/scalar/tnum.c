/* Tristate arithmetic. */
#include "bpf/load/scalar/tnum.h"

struct tnum tnum_range(uint64_t min, uint64_t max)
{
	uint64_t differ = min ^ max, low;

	if (differ >> 63) {
		return TNUM_UNKNOWN;
	}
	low = differ ? (2ull << (63 - __builtin_clzll(differ))) - 1 : 0;
	return (struct tnum){ min & ~low, low };
}

/* A carry into a bit is known when it is the same for the least and for the greatest operands. */
struct tnum tnum_add(struct tnum a, struct tnum b)
{
	uint64_t least = a.value + b.value, most = least + a.mask + b.mask;
	uint64_t unknown = (least ^ most) | a.mask | b.mask;

	return (struct tnum){ least & ~unknown, unknown };
}

struct tnum tnum_sub(struct tnum a, struct tnum b)
{
	uint64_t d = a.value - b.value;
	uint64_t unknown = ((d + a.mask) ^ (d - b.mask)) | a.mask | b.mask;

	return (struct tnum){ d & ~unknown, unknown };
}

/* Sum of b's shifted copies: known ones of a add b's uncertainty, unknown bits of a add all of b's
 * possible bits. */
struct tnum tnum_mul(struct tnum a, struct tnum b)
{
	uint64_t known = a.value * b.value;
	struct tnum doubt = TNUM_CONST(0);

	for (; a.value || a.mask; a = tnum_rsh(a, 1), b = tnum_lsh(b, 1)) {
		if (a.value & 1) {
			doubt = tnum_add(doubt, (struct tnum){ 0, b.mask });
		} else if (a.mask & 1) {
			doubt = tnum_add(doubt, (struct tnum){ 0, b.value | b.mask });
		}
	}
	return tnum_add(TNUM_CONST(known), doubt);
}

struct tnum tnum_and(struct tnum a, struct tnum b)
{
	uint64_t ones = a.value & b.value;

	return (struct tnum){ ones, (a.value | a.mask) & (b.value | b.mask) & ~ones };
}

struct tnum tnum_or(struct tnum a, struct tnum b)
{
	uint64_t ones = a.value | b.value;

	return (struct tnum){ ones, (a.mask | b.mask) & ~ones };
}

struct tnum tnum_xor(struct tnum a, struct tnum b)
{
	uint64_t unknown = a.mask | b.mask;

	return (struct tnum){ (a.value ^ b.value) & ~unknown, unknown };
}

struct tnum tnum_lsh(struct tnum a, unsigned n)
{
	return (struct tnum){ a.value << n, a.mask << n };
}

struct tnum tnum_rsh(struct tnum a, unsigned n)
{
	return (struct tnum){ a.value >> n, a.mask >> n };
}

struct tnum tnum_arsh(struct tnum a, unsigned n, int width)
{
	if (width == 32) {
		return (struct tnum){ (uint32_t)((int32_t)a.value >> n),
				      (uint32_t)((int32_t)a.mask >> n) };
	}
	return (struct tnum){ (uint64_t)((int64_t)a.value >> n), (uint64_t)((int64_t)a.mask >> n) };
}

struct tnum tnum_low(struct tnum a, unsigned bits)
{
	uint64_t keep = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;

	return (struct tnum){ a.value & keep, a.mask & keep };
}

int tnum_meet(struct tnum a, struct tnum b, struct tnum *out)
{
	uint64_t unknown = a.mask & b.mask;

	if ((a.value ^ b.value) & ~a.mask & ~b.mask) {
		return 0;
	}
	*out = (struct tnum){ (a.value | b.value) & ~unknown, unknown };
	return 1;
}

int tnum_within(struct tnum outer, struct tnum inner)
{
	return !(inner.mask & ~outer.mask) && (inner.value & ~outer.mask) == outer.value;
}
