/* A callback returns 0 to go on and 1 to stop; 2 means nothing. */
#include "gbpf/gbpf.bpf.h"

static long visit(u32 i, void *arg)
{
	u64 *sum = arg;

	*sum += i;
	return 2;
}

SEC("gbpf/submit") int GBPF_PROG(walk, submit)
{
	u64 sum = 0;

	bpf_loop(10, visit, &sum, 0);
	return sum > 5 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
