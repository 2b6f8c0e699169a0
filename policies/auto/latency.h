/* auto: what a scan learns of the latency tenants. The stages are loops of their own, so that the
 * verifier need not follow each path of one through each of the next. */
#ifndef GBPF_POLICIES_AUTO_LATENCY_H
#define GBPF_POLICIES_AUTO_LATENCY_H

#include "choice.h"
#include "close_delay.h"
#include "scan.h"

/* Returns the in-flight limit of launches that are not stoppable: a quarter of a request's
 * duration, twice that when requests take less than 5 % of the time, eight times below 1 %. */
static __always_inline u64 inflight_limit_for(const struct kind *k)
{
	u64 bound = k->mean_ns
			    ? (k->best_ns && k->best_ns < k->mean_ns ? k->best_ns : k->mean_ns) / 4
			    : inflight_initial_ns;

	if (k->mean_ns * 100 < k->gap_ns) {
		bound *= 8;
	} else if (k->mean_ns * 20 < k->gap_ns) {
		bound *= 2;
	}
	return bound < inflight_min_ns	 ? inflight_min_ns
	       : bound > inflight_max_ns ? inflight_max_ns
					 : bound;
}

/* Learns what the requests of tenant t are like. An unknown tenant gets the way that batch
 * suggests. */
static __always_inline void learn_requests(struct scan *l, struct tenant *x, u32 t)
{
	if (!x->kind.syncs16) {
		x->kind.way = batch_stops ? WAY_LEAVING : WAY_SLICED;
	} else if (l->changed) {
		set_way(&x->kind, batch_stops ? WAY_LEAVING : WAY_SLICED, l->now_ns);
	}
	learn_latency(x, t, l->now_ns);
}

/* Learns whether batch may fill the gaps of bursts. In the process lane slices are of another length
 * then, so what was measured says nothing any more. */
static __always_inline void learn_gaps(struct kind *k, u64 now)
{
	u32 gaps = has_gaps(k), changed = gaps != k->gaps;

	k->gaps = gaps;
	if (changed && batch_lane != GBPF_LANE_SHARED) {
		forget_ways(k, now);
	}
}

/* Returns how passing serves such requests, PASSING_*. It fails only next to requests that are bound by
 * the processor: most kernels of others would wait for batch whatever multiprocessors it has. And only
 * after a second trial, since one may fail by chance: the wait after it is longer than way_keep_ns.
 * Batch's progress is measured from one request to the next, so long pauses of a service hardly count. */
static __always_inline u32 passing_of(const struct kind *k)
{
	const struct ways *w = &k->ways;
	u64 held = w->progress[WAY_LEAVING];

	if (w->trial || w->batch != batch_programs || w->seen[WAY_PASSING] < trial_min_bursts ||
	    w->seen[WAY_LEAVING] < trial_min_bursts) {
		return PASSING_UNKNOWN; /* or of batch that was there before */
	}
	if (held > confined_never) {
		return PASSING_SELDOM;
	}
	if (k->way == WAY_PASSING) {
		return PASSING_SERVES;
	}
	return k->gaps && held < confined_below && w->tried == WAY_PASSING &&
			       w->wait_ns > way_keep_ns
		       ? PASSING_FAILS
		       : PASSING_UNKNOWN;
}

/* Adds to the scan what tenant t needs. */
static __always_inline void add_needs(struct scan *l, struct tenant *x, u32 t)
{
	struct kind *k = &x->kind;

	close_delay_floor_ns[t & 1023] = close_delay_floor(k, x->lane);
	l->inflight_limit_ns = min_u64(l->inflight_limit_ns, inflight_limit_for(k));
	if (!k->syncs16 && !gbpf_tenant_stat(t, GBPF_STAT_OPEN)) {
		return; /* it has had no request, so others decide */
	}
	l->judged++;
	learn_gaps(k, l->now_ns);
	l->often += !k->syncs16 || k->way == WAY_LEAVING;
	l->pausing += k->syncs16 >= hold_min_syncs_x16;
	l->leaving += k->way == WAY_LEAVING;
	l->tight += !k->gaps;
	l->passing[passing_of(k) & PASSING_SELDOM]++;
	l->shortest_ns = k->gaps ? min_u64(l->shortest_ns, k->best_ns) : l->shortest_ns;
	l->switching |=
		batch_stops && k->ways.changed_ns && l->now_ns < k->ways.changed_ns + way_switch_ns;
}

enum stage {
	LEARN_REQUESTS,
	CHANGE_BATCH,
	LEARN_WAY,
	LEARN_PROGRESS,
	CHOOSE_WAY,
	CLOSE_DELAY,
	ADD_NEEDS
};

static __always_inline void learn(struct scan *l, struct tenant *x, u32 t, enum stage stage)
{
	switch (stage) {
	case LEARN_REQUESTS:
		learn_requests(l, x, t);
		break;
	case CHANGE_BATCH:
		change_batch(x, l->now_ns);
		break;
	case LEARN_WAY:
		learn_way(x, l->now_ns);
		break;
	case LEARN_PROGRESS:
		learn_progress(x, l->now_ns);
		break;
	case CHOOSE_WAY:
		if (x->seen.n) {
			set_way(&x->kind, choose_way(&x->kind, l->now_ns), l->now_ns);
		}
		break;
	case CLOSE_DELAY:
		if (x->seen.n) {
			learn_close_delay(x);
		}
		break;
	case ADD_NEEDS:
		add_needs(l, x, t);
		break;
	}
}

static __always_inline void learn_all(struct scan *l, u32 n, enum stage stage)
{
	u32 i;

	bpf_for (i, 0, n) {
		u32 t = latency_list[i & (LATENCY_MAX - 1)];
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);

		if (x) {
			learn(l, x, t, stage);
		}
	}
}

/* Learns from what all latency tenants of the scan did, and chooses the way for each of them. */
static __always_inline void learn_latency_tenants(struct scan *l)
{
	u32 n = (u32)min_u64(l->latency, LATENCY_MAX); /* listed */

	l->often += l->latency > LATENCY_MAX; /* of the others nothing is learned */
	l->tight += l->latency > LATENCY_MAX;
	learn_all(l, n, LEARN_REQUESTS);
	learn_all(l, n, CHANGE_BATCH);
	learn_all(l, n, LEARN_WAY);
	learn_all(l, n, LEARN_PROGRESS);
	learn_all(l, n, CHOOSE_WAY);
	learn_all(l, n, CLOSE_DELAY);
	learn_all(l, n, ADD_NEEDS);
	if (!l->judged) { /* the first request may be of any kind */
		l->often = 1;
		l->leaving = batch_stops;
	}
}

#endif
