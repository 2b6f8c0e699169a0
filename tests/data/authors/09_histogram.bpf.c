/* A log2 histogram of durations, written by hand as in tracing tools; long kernels are split. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

GBPF_TENANT u64 slots[32];
GBPF_TENANT u64 samples;

static __always_inline u32 log2(u64 v)
{
	u32 r = 0, hi = v >> 32;
	u32 x = hi ? hi : (u32)v;
	u32 shift;

	r = (x > 0xffff) << 4;
	x >>= r;
	shift = (x > 0xff) << 3;
	x >>= shift;
	r |= shift;
	shift = (x > 0xf) << 2;
	x >>= shift;
	r |= shift;
	shift = (x > 0x3) << 1;
	x >>= shift;
	r |= shift;
	r |= x >> 1;
	return hi ? r + 32 : r;
}

SEC("gbpf/retire") int GBPF_PROG(record, retire)
{
	u32 s = log2(ctx->duration_ns / 1000);

	if (s >= 32) {
		s = 31;
	}
	slots[s]++;
	samples++;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(split_long, submit)
{
	u64 sum = 0;
	int s;

	for (s = 0; s < 32; s++) {
		sum += slots[s];
		if (sum * 10 >= samples * 9) {
			break;
		}
	}
	if (s < 32 && ctx->est_ns > (1000ULL << s) * 4 && ctx->blocks > 64) {
		ctx->split_blocks = 64;
		return GBPF_SPLIT;
	}
	return GBPF_GO;
}
