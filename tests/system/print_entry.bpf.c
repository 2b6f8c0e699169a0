/* Prints with formats on the stack where blocks begin, also in machine code. */
#include <gbpf/gbpf.bpf.h>

/* As in bpf_helpers.h of libbpf with BPF_NO_GLOBAL_DATA. */
#define libbpf_printk(fmt, args...)                                                                \
	({                                                                                         \
		char ____fmt[] = fmt;                                                              \
		bpf_trace_printk(____fmt, sizeof(____fmt), ##args);                                \
	})

SEC("gdev/block_enter")
int GBPF_PROG(block, gdev_block_enter)
{
	if (ctx->lane > 31) {
		libbpf_printk("no lane has this number: %u", ctx->lane);
	}
	if (ctx->block % 3 == 0) {
		libbpf_printk("block %llu of %u", ctx->block, ctx->grid_x);
	}
	return 0;
}

GBPF_LICENSE("MIT");
