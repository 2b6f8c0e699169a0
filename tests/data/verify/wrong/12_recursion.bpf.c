/* Functions may not call themselves. */
#include "gbpf/gbpf.bpf.h"

static __attribute__((noinline)) u64 steps(u64 n)
{
	if (n < 2) {
		return n;
	}
	return steps(n - 1) + steps(n - 2);
}

SEC("gbpf/submit") int GBPF_PROG(fib, submit)
{
	return steps(ctx->inflight & 7) > 3 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
