/* Prints a line for each third block, and a line of each lane of its second warp. */
#include <gbpf/gbpf.bpf.h>

SEC("gdev/block_enter/scale")
int GBPF_PROG(block, gdev_block_enter)
{
	if (ctx->block % 3 == 0) {
		bpf_printk("block %llu of %u, %d or %x%%", ctx->block, ctx->grid_x, -1, 255);
	}
	return 0;
}

SEC("gdev.lane/exit/scale")
int GBPF_PROG(lane, gdev_exit)
{
	if (ctx->warp == 1 && ctx->block == 0) {
		bpf_printk("lane %02u\n", ctx->lane);
	}
	return 0;
}

GBPF_LICENSE("MIT");
