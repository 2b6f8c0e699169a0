/* x % n is below n only where n is not 0. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 buckets[64];

SEC("gbpf/submit") int GBPF_PROG(spread, submit)
{
	u64 n = ctx->inflight;

	if (n > 64) {
		n = 64;
	}
	buckets[ctx->kernel % n] += 1;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
