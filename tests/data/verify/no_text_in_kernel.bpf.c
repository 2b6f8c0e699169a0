/* refuse: helper: bpf_trace_vprintk: the format has a conversion 's' that cannot be printed */
#include "gbpf/gbpf.bpf.h"

#pragma clang diagnostic ignored "-Wformat" /* the verifier is to find it */

SEC("gdev/enter") int GBPF_PROG(f, gdev_enter)
{
	bpf_printk("block %llu of %s", ctx->block, 7ull);
	return 0;
}

GBPF_LICENSE("GPL");
