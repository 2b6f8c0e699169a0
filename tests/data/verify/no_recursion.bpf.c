/* refuse: recursion: function down calls itself */
#include "gbpf/gbpf.bpf.h"

static __attribute__((noinline)) u64 down(u64 n)
{
	u64 below = n > 1 ? down(n - 1) : 0;

	return below * n + bpf_get_prandom_u32();
}

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return down(ctx->now_ns & 3) & 1;
}

GBPF_LICENSE("GPL");
