/* Refused as a policy and as a tool: programs inside kernels and of a hook that only policies have. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

SEC("gdev/enter")
int GBPF_PROG(inside, gdev_enter)
{
	return 0;
}

SEC("gbpf/queue_create")
int GBPF_PROG(outside, queue_create)
{
	return 0;
}
