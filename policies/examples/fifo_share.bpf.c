/* fifo_share: Gdev's FIFO. One virtual GPU at a time has the device, in the order in which launches
 * arrive; shares are ignored.
 *
 * Use it to compare: a vGPU with long kernels gets nearly all of the time, whatever it was promised.
 * gdev/vgpus.h says what is as in Gdev's source and what is not. */
#include "ahead.h"

#include "gdev/vgpus.h"

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(fifo_share_submit, submit)
{
	return arrive(ctx, 0);
}

SEC("gbpf/retire")
int GBPF_PROG(fifo_share_retire, retire)
{
	return complete(ctx);
}

SEC("gbpf/tick")
int GBPF_PROG(fifo_share_tick, tick)
{
	const struct group *g;

	account_all(ctx);
	adopt();
	g = current_group();
	if (!g || !g->out) {
		select(longest_waiting());
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
