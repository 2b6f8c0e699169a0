/* Bitmaps: queues with work in a bitmap, the lowest set bit by an ffs loop, and a population count. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

GBPF_TENANT u64 bits[4];
GBPF_TENANT u32 lowest, set;

static __always_inline u32 ffs64(u64 x)
{
	u32 n = 0;

	for (int i = 0; i < 64; i++) {
		if (x & 1) {
			break;
		}
		x >>= 1;
		n++;
	}
	return n;
}

SEC("gbpf/submit") int GBPF_PROG(mark, submit)
{
	u32 q = ctx->queue & 255;

	bits[q / 64] |= 1ULL << (q % 64);
	if (ctx->class_id == GBPF_CLASS_BATCH && set > 8 && q != lowest) {
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire") int GBPF_PROG(unmark, retire)
{
	u32 q = ctx->queue & 255, low = 256, n = 0;

	bits[q / 64] &= ~(1ULL << (q % 64));
	for (int w = 0; w < 4; w++) {
		u64 x = bits[w];

		if (x && low == 256) {
			low = w * 64 + ffs64(x);
		}
		for (int i = 0; i < 64 && x; i++) {
			x &= x - 1;
			n++;
		}
	}
	lowest = low;
	set = n;
	return 0;
}
