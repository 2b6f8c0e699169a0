/* refuse: pointer:  */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 slots[8];

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	slots[ctx->queue] = ctx->now_ns;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
