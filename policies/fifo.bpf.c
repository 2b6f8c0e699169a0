/* fifo: everything goes to the GPU in the order in which programs submit it. What the driver does without gBPF, but counted.
 *
 * Use it to compare with, to look at a machine (`gbpf ps`, `gbpf policy show`) without changing anything, and as the
 * smallest policy to start your own from. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

enum { KERNELS, OTHERS, BESIDE_LATENCY }; /* counters of gbpf_note: `gbpf policy show` prints them */

SEC("gbpf/submit")
int GBPF_PROG(fifo_submit, submit)
{
	gbpf_note(ctx->kind == GBPF_KIND_KERNEL ? KERNELS : OTHERS, 1);
	if (ctx->lc_open) {
		gbpf_note(BESIDE_LATENCY, 1); /* lc_first would have held this one */
	}
	return GBPF_GO;
}
