/* bpf_loop goes round as often as a launch has blocks. */
#include "gbpf/gbpf.bpf.h"

static long visit(u32 i, void *arg)
{
	*(u64 *)arg += i;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(walk, submit)
{
	u64 sum = 0;

	bpf_loop(ctx->blocks, visit, &sum, 0);
	return sum & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
