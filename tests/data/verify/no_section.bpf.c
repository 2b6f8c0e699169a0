/* refuse: data section 'mine' is not supported */
#include "gbpf/gbpf.bpf.h"

u64 x SEC("mine") = 1;

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return x & 1;
}

GBPF_LICENSE("GPL");
