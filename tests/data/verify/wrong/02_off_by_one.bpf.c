/* The last index of eight is 7, not 8. */
#include "gbpf/gbpf.bpf.h"

#define SLOTS 8
GBPF_TENANT u64 last[SLOTS];

SEC("gbpf/submit") int GBPF_PROG(remember, submit)
{
	u32 i = ctx->queue;

	if (i > SLOTS) {
		return GBPF_GO;
	}
	last[i] = ctx->now_ns;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
