/* A global variable is written in the tenant's process. */
#include "gbpf/gbpf.bpf.h"

u64 launches;

SEC("gbpf/submit") int GBPF_PROG(count, submit)
{
	launches += 1;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
