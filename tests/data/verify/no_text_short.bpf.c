/* refuse: init: r5 */
#include "gbpf/gbpf.bpf.h"

/* A format that takes more values than are passed would print what a register happens to hold. */
SEC("gdev/enter") int GBPF_PROG(f, gdev_enter)
{
	static const char fmt[] = "block %llu %llu %llu";

	bpf_trace_printk(fmt, sizeof(fmt), ctx->block, ctx->block);
	return 0;
}

GBPF_LICENSE("GPL");
