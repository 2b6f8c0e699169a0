/* A tool that prints. Its maps are .rodata, which begins with the format, and the ring of lines. */
#include <gbpf/gbpf.bpf.h>

SEC("gdev/block_enter") int GBPF_PROG(block, gdev_block_enter)
{
	bpf_printk("block %llu", ctx->block);
	return 0;
}

GBPF_LICENSE("MIT");
