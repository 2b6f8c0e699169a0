/* After the loop, the index is what the callback has made of it. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 slots[8];

static long advance(u32 i, void *arg)
{
	*(u32 *)arg += 1;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(walk, submit)
{
	u32 at = 0;

	bpf_loop(20, advance, &at, 0);
	slots[at] = ctx->now_ns;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
