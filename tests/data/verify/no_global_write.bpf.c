/* refuse: readonly: store: .bss is global, and submit */
#include "gbpf/gbpf.bpf.h"

u64 total;

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	total = ctx->now_ns;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
