/* const volatile is set by the operator, not by the policy. */
#include "gbpf/gbpf.bpf.h"

const volatile u64 limit_ns = 1000000;

SEC("gbpf/tick") int GBPF_PROG(adapt, tick)
{
	*(volatile u64 *)&limit_ns = ctx->period_ns;
	return 0;
}

GBPF_LICENSE("GPL");
