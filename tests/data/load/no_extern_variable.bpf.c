/* refuse: variable number is extern */
#include "gbpf/gbpf.bpf.h"

extern u64 number;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return number & 1;
}

GBPF_LICENSE("GPL");
