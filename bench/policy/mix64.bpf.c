/* A hash of 64 bytes, word by word, with multiplications and rotations (as in the family of murmur and xxhash). */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

static __always_inline u64 rotate(u64 v, int n)
{
	return v << n | v >> (64 - n);
}

SEC("gbpf/tick")
int GBPF_PROG(mix64, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 a = 0x9e3779b97f4a7c15, b = 0xc2b2ae3d27d4eb4f;

	if (!in) {
		return 0;
	}
	for (u32 i = 0; i < 8; i += 2) {
		a = rotate(a + in->w[i] * 0xc2b2ae3d27d4eb4f, 31) * 0x9e3779b185ebca87;
		b = rotate(b + in->w[i + 1] * 0x165667b19e3779f9, 27) * 0xc2b2ae3d27d4eb4f;
		a ^= b >> 29;
		b ^= a >> 33;
	}
	a = (a ^ b ^ 64) * 0xff51afd7ed558ccd;
	in->out = a ^ a >> 33;
	return 0;
}
