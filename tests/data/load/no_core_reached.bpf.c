/* refuse: relocation: struct gbpf_submit_ctx___new.from_the_future is not known to this gBPF (CO-RE) */
#include "gbpf/gbpf.bpf.h"

struct gbpf_submit_ctx___new {
	u64 from_the_future;
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return ((struct gbpf_submit_ctx___new *)ctx)->from_the_future & 1;
}

GBPF_LICENSE("GPL");
