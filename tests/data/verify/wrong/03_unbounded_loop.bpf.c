/* The number of blocks of a launch is unknown, so the loop has no bound. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(weigh, submit)
{
	u64 sum = 0;

	for (u64 i = 0; i < ctx->blocks; i++) {
		sum = sum * 31 + (i ^ ctx->kernel);
	}
	return sum & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
