/* hold_ns has eight bytes; four of them are written. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(hold, submit)
{
	*(volatile u32 *)&ctx->hold_ns = 500000;
	return GBPF_HOLD;
}

GBPF_LICENSE("GPL");
