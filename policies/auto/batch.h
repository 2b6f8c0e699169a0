/* auto: what one scan learns of a tenant that is not of class latency. */
#ifndef GBPF_POLICIES_AUTO_BATCH_H
#define GBPF_POLICIES_AUTO_BATCH_H

#include "turns.h"

/* Marks a tenant as starved. Only a tenant that wants the GPU for the whole window can be. */
static __always_inline void check_share(struct tenant *x, u32 t, int wants, u64 now)
{
	u64 busy = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS);

	x->busy_seen_ns = busy;
	if (!wants) {
		x->starved = 0;
		x->since_ns = 0;
	}
	if (!x->since_ns || busy < x->busy_ns) {
		x->since_ns = now;
		x->busy_ns = busy;
	} else if (now >= x->since_ns + share_window_ns) {
		/* Tenants that stop have the hold limit instead. */
		x->starved = (!x->stoppable || slices_serve) && busy < x->busy_ns + share_min_ns;
		if (x->starved) {
			gbpf_note(NOTE_STARVED, 1);
			gbpf_preempt_now(t, GBPF_LEVEL_HOLD);
		}
		x->since_ns = now;
		x->busy_ns = busy;
	}
}

/* Returns 1 if nearly all recent GPU time of a tenant is stoppable. */
static __always_inline u32 is_stoppable(const struct tenant *x, const struct account *a)
{
	u32 percent = x->stoppable ? stays_stoppable_percent : shared_min_stoppable_percent;

	return a->recent_seen_ns && a->recent_block_ns * 100 >= a->recent_seen_ns * percent;
}

/* Adds a tenant to those next to which the ways are learned. */
static __always_inline void add_batch(struct scan *l, const struct tenant *x,
				      const struct account *a, int wants)
{
	l->longest_ns = max_u64(a->longest_ns, l->longest_ns);
	l->programs += x->program.command + x->sm_percent; /* which make it another program */
	l->known += a->recent_seen_ns != 0;
	l->stops += x->stoppable;
	l->busy_ns += x->busy_seen_ns;
	l->wants += wants != 0;
	l->mostly_short += a->recent_short_ns * 100 > a->recent_seen_ns * passing_min_short_percent;
	l->mostly_passing +=
		a->recent_passing_ns * 100 > a->recent_seen_ns * passing_min_short_percent;
}

/* Scans a tenant that is not of class latency: what it is like, its share, and whether it wants a
 * turn. */
static __always_inline void scan_batch(struct scan *l, struct tenant *x, u32 t, u32 lane)
{
	struct account *a;
	u32 key = 0;
	int wants;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!a) {
		return;
	}
	wants = gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS) ||
		a->held_ns + wants_after_hold_ns > l->now_ns;
	x->stoppable = is_stoppable(x, a);
	check_share(x, t, wants, l->now_ns);
	l->starved |= x->starved;
	if (lane == l->lane) {
		add_batch(l, x, a, wants);
	}
	if (lane == GBPF_LANE_PROCESS && wants) {
		turns_join(l, t);
	}
	x->takes_turns =
		lane == GBPF_LANE_SHARED && x->turns_gpu && a->threads >= shared_turns_min_threads;
	if (wants && x->takes_turns) {
		shared_turns_join(x, t);
	}
}

#endif
