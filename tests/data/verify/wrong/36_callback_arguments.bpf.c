/* bpf_loop gives its function two arguments, not three. */
#include "gbpf/gbpf.bpf.h"

static long visit(u32 i, void *arg, u64 *sum)
{
	*sum += i;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(walk, submit)
{
	u64 sum = 0;

	bpf_loop(10, visit, &sum, 0);
	return sum > 5 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
