/* A priority may be negative; being below 8 does not help. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 by_priority[8];

SEC("gbpf/submit") int GBPF_PROG(sort, submit)
{
	int p = ctx->priority;

	if (p < 8) {
		by_priority[p] += 1;
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
