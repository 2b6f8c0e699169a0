/* gbpfd runs tick for all tenants, so a variable of a tenant has no single instance there. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 credit;

SEC("gbpf/tick") int GBPF_PROG(refill, tick)
{
	credit = 1000;
	return 0;
}

GBPF_LICENSE("GPL");
