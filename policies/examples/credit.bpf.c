/* credit: Gdev's CREDIT, after Xen's scheduler. A virtual GPU whose credit is used up goes to the end
 * of the list when its launches have completed; the first one with waiting launches has the device
 * next.
 *
 * Use it to compare: where only one vGPU waits it is selected at once, whatever it has used.
 * gdev/vgpus.h says what is as in Gdev's source and what is not. */
#include "ahead.h"

#include "gdev/vgpus.h"

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(credit_submit, submit)
{
	return arrive(ctx, 0);
}

SEC("gbpf/retire")
int GBPF_PROG(credit_retire, retire)
{
	return complete(ctx);
}

SEC("gbpf/tick")
int GBPF_PROG(credit_tick, tick)
{
	struct group *g;

	account_all(ctx);
	adopt();
	g = current_group();
	if (!g || !g->out) {
		if (g && g->credit_ns <= 0) {
			g->rank = ++last_rank;
		}
		select(first_waiting());
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
