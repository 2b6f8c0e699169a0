/* Prints as print_blocks, with formats on the stack. */
#include <gbpf/gbpf.bpf.h>

/* As in bpf_helpers.h of libbpf with BPF_NO_GLOBAL_DATA. */
#define libbpf_printk(fmt, args...)                                                                \
	({                                                                                         \
		char ____fmt[] = fmt;                                                              \
		bpf_trace_printk(____fmt, sizeof(____fmt), ##args);                                \
	})

SEC("gdev/block_enter/scale")
int GBPF_PROG(block, gdev_block_enter)
{
	if (ctx->block == 6) {
		libbpf_printk("the last block");
	}
	if (ctx->block % 3 == 0) {
		libbpf_printk("block %llu of %u, or %x%%", ctx->block, ctx->grid_x, 255);
	}
	return 0;
}

SEC("gdev.lane/exit/scale")
int GBPF_PROG(lane, gdev_exit)
{
	if (ctx->warp == 1 && ctx->block == 0) {
		libbpf_printk("lane %02u\n", ctx->lane);
	}
	return 0;
}

GBPF_LICENSE("MIT");
