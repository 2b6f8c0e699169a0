/* band: Gdev's BAND, its bandwidth-aware non-preemptive device scheduler. A virtual GPU is exhausted
 * when its credit is used up and its utilization is above its share. It then waits 500 us before
 * each launch, so that another one may take the device, and goes to the end of the list when its
 * launches have completed. A selected vGPU above its share waits likewise.
 *
 * Use it to compare with band2, which removes what costs accuracy and utilization here: wall time
 * instead of device time, credits that are zeroed, an idle device while it waits. Published for two
 * equal shares: 6.7 points mean error, 10.4 at most, at 89.9 % utilization. gdev/vgpus.h says what is
 * as in Gdev's source and what is not. */
#include "ahead.h"

#include "gdev/vgpus.h"

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(band_submit, submit)
{
	return arrive(ctx, 1);
}

SEC("gbpf/retire")
int GBPF_PROG(band_retire, retire)
{
	return complete(ctx);
}

static __always_inline int is_exhausted(const struct group *g)
{
	return g->credit_ns <= 0 && g->used > g->bandwidth;
}

/* The launches of the current one have completed, or it has given the device away. */
static __always_inline void select_next(struct group *g)
{
	u32 next;

	if (g && is_exhausted(g)) {
		g->rank = ++last_rank;
	}
	next = first_waiting();
	if (next < GROUPS && next != current && groups[next].used > groups[next].bandwidth) {
		expected = next; /* until the next tick one below its share may take the device */
		current = NOBODY;
		return;
	}
	select(next);
}

SEC("gbpf/tick")
int GBPF_PROG(band_tick, tick)
{
	struct group *g;
	u32 p;

	account_all(ctx);
	bpf_for (p, 0, GROUPS) {
		exhausted[p] = is_exhausted(&groups[p]);
	}
	adopt();
	g = current_group();
	if (expected != NOBODY) {
		select(current == NOBODY ? expected : current);
		expected = NOBODY;
	} else if (!g || !g->out || g->yield_ns > ticked_ns) {
		select_next(g);
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
