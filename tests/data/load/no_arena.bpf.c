/* refuse: arena memory are not supported */
#include "gbpf/gbpf.bpf.h"

SEC(".addr_space.1") u64 far[4] = { 1 };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
