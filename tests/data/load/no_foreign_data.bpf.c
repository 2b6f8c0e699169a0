/* refuse: data section 'mine.data' is not supported */
#include "gbpf/gbpf.bpf.h"

SEC("mine.data") u64 x = 1;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
