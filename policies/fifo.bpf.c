/* fifo: all work goes to the GPU in the order of submission, as without gBPF, but counted.
 *
 * Use it for comparison, to observe a machine (`gbpf ps`, `gbpf policy show`) without changing
 * anything, and as the smallest policy to start from. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

enum { KERNELS, OTHERS, DURING_LATENCY }; /* numbers of gbpf_note(), shown by `gbpf policy show` */

SEC("gbpf/submit")
int GBPF_PROG(fifo_submit, submit)
{
	gbpf_note(ctx->kind == GBPF_KIND_KERNEL ? KERNELS : OTHERS, 1);
	if (ctx->lc_open) {
		gbpf_note(DURING_LATENCY, 1); /* lc_first would have held it */
	}
	return GBPF_GO;
}
