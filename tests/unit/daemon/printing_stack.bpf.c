/* A tool that prints with a format on the stack. */
#include <gbpf/gbpf.bpf.h>

SEC("gdev/block_enter") int GBPF_PROG(block, gdev_block_enter)
{
	char fmt[] = "block %llu";

	bpf_trace_printk(fmt, sizeof(fmt), ctx->block);
	return 0;
}

GBPF_LICENSE("MIT");
