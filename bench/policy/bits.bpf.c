/* Bit tricks: population count, bit reversal, Gray code, highest bit, interleaving. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

static __always_inline u64 ones(u64 v)
{
	v -= v >> 1 & 0x5555555555555555;
	v = (v & 0x3333333333333333) + (v >> 2 & 0x3333333333333333);
	v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return v * 0x0101010101010101 >> 56;
}

static __always_inline u64 reversed(u64 v)
{
	v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
	v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
	v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
	return __builtin_bswap64(v);
}

/* Returns the index of the highest bit: sets all bits below it, and looks the index up by a product
 * (de Bruijn). */
static __always_inline u32 highest(u32 v)
{
	v |= v >> 1;
	v |= v >> 2;
	v |= v >> 4;
	v |= v >> 8;
	v |= v >> 16;
	return (u32)((v - (v >> 1)) * 0x077cb531u) >> 27;
}

static __always_inline u64 interleaved(u64 v)
{
	v &= 0xffffffff;
	v = (v | v << 16) & 0x0000ffff0000ffff;
	v = (v | v << 8) & 0x00ff00ff00ff00ff;
	v = (v | v << 4) & 0x0f0f0f0f0f0f0f0f;
	v = (v | v << 2) & 0x3333333333333333;
	return (v | v << 1) & 0x5555555555555555;
}

SEC("gbpf/tick")
int GBPF_PROG(bits, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 sum = 0;

	if (!in) {
		return 0;
	}
	for (u32 i = 0; i < 4; i++) {
		u64 v = in->w[i];

		sum += ones(v) << 32 ^ reversed(v ^ v >> 1) ^ highest((u32)v) ^ interleaved(v);
	}
	in->out = sum;
	return 0;
}
