/* Prints a line for each third block, one more for the seventh, and a line of each lane of the second
 * warp of the first. */
#include <gbpf/gbpf.bpf.h>

/* As in bpf_helpers.h of libbpf, for at most three values. */
#define libbpf_printk(fmt, args...)                                 \
	({                                                          \
		static const char ____fmt[] = fmt;                  \
		bpf_trace_printk(____fmt, sizeof(____fmt), ##args); \
	})

SEC("gdev/block_enter/scale")
int GBPF_PROG(block, gdev_block_enter)
{
	static const char last[] = "the last block";

	if (ctx->block == 6) {
		bpf_puts(last);
	}
	if (ctx->block % 3 == 0) {
		bpf_printk("block %llu of %u, %d or %x%%", ctx->block, ctx->grid_x, -1, 255);
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
