/* Arithmetic on tristate numbers. */
#include "bpf/load/scalar/tnum.h"

struct ebpf_tnum ebpf_tnum_range(uint64_t min, uint64_t max)
{
	uint64_t differ = min ^ max, low;

	if (differ >> 63) {
		return TNUM_UNKNOWN;
	}
	low = differ ? (2ull << (63 - __builtin_clzll(differ))) - 1 : 0;
	return (struct ebpf_tnum){ min & ~low, low };
}

/* A carry into a bit is known if it is the same for the minimum and the maximum operands. */
struct ebpf_tnum ebpf_tnum_add(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t least = a.value + b.value, most = least + a.mask + b.mask;
	uint64_t unknown = (least ^ most) | a.mask | b.mask;

	return (struct ebpf_tnum){ least & ~unknown, unknown };
}

struct ebpf_tnum ebpf_tnum_sub(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t d = a.value - b.value;
	uint64_t unknown = ((d + a.mask) ^ (d - b.mask)) | a.mask | b.mask;

	return (struct ebpf_tnum){ d & ~unknown, unknown };
}

/* Adds shifted copies of b: a known 1 in a adds the unknown bits of b, an unknown bit in a adds all
 * possible bits of b. */
struct ebpf_tnum ebpf_tnum_mul(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t known = a.value * b.value;
	struct ebpf_tnum doubt = TNUM_CONST(0);

	for (; a.value || a.mask; a = ebpf_tnum_rsh(a, 1), b = ebpf_tnum_lsh(b, 1)) {
		if (a.value & 1) {
			doubt = ebpf_tnum_add(doubt, (struct ebpf_tnum){ 0, b.mask });
		} else if (a.mask & 1) {
			doubt = ebpf_tnum_add(doubt, (struct ebpf_tnum){ 0, b.value | b.mask });
		}
	}
	return ebpf_tnum_add(TNUM_CONST(known), doubt);
}

struct ebpf_tnum ebpf_tnum_and(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t ones = a.value & b.value;

	return (struct ebpf_tnum){ ones, (a.value | a.mask) & (b.value | b.mask) & ~ones };
}

struct ebpf_tnum ebpf_tnum_or(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t ones = a.value | b.value;

	return (struct ebpf_tnum){ ones, (a.mask | b.mask) & ~ones };
}

struct ebpf_tnum ebpf_tnum_xor(struct ebpf_tnum a, struct ebpf_tnum b)
{
	uint64_t unknown = a.mask | b.mask;

	return (struct ebpf_tnum){ (a.value ^ b.value) & ~unknown, unknown };
}

struct ebpf_tnum ebpf_tnum_lsh(struct ebpf_tnum a, unsigned n)
{
	return (struct ebpf_tnum){ a.value << n, a.mask << n };
}

struct ebpf_tnum ebpf_tnum_rsh(struct ebpf_tnum a, unsigned n)
{
	return (struct ebpf_tnum){ a.value >> n, a.mask >> n };
}

struct ebpf_tnum ebpf_tnum_arsh(struct ebpf_tnum a, unsigned n, int width)
{
	if (width == 32) {
		return (struct ebpf_tnum){ (uint32_t)((int32_t)a.value >> n),
					   (uint32_t)((int32_t)a.mask >> n) };
	}
	return (struct ebpf_tnum){ (uint64_t)((int64_t)a.value >> n),
				   (uint64_t)((int64_t)a.mask >> n) };
}

struct ebpf_tnum ebpf_tnum_low(struct ebpf_tnum a, unsigned bits)
{
	uint64_t keep = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;

	return (struct ebpf_tnum){ a.value & keep, a.mask & keep };
}

int ebpf_tnum_meet(struct ebpf_tnum a, struct ebpf_tnum b, struct ebpf_tnum *out)
{
	uint64_t unknown = a.mask & b.mask;

	if ((a.value ^ b.value) & ~a.mask & ~b.mask) {
		return 0;
	}
	*out = (struct ebpf_tnum){ (a.value | b.value) & ~unknown, unknown };
	return 1;
}

int ebpf_tnum_within(struct ebpf_tnum outer, struct ebpf_tnum inner)
{
	return !(inner.mask & ~outer.mask) && (inner.value & ~outer.mask) == outer.value;
}
