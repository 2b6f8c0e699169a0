/* Refused as a policy and as a tool: programs inside and outside kernels. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

SEC("gdev/enter")
int GBPF_PROG(inside, gdev_enter)
{
	return 0;
}

SEC("gbpf/submit")
int GBPF_PROG(outside, submit)
{
	return GBPF_GO;
}
