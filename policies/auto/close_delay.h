/* auto: the close delay of a latency tenant: how long a request stays open after its last work. */
#ifndef GBPF_POLICIES_AUTO_CLOSE_DELAY_H
#define GBPF_POLICIES_AUTO_CLOSE_DELAY_H

#include "state.h"

/* Doubles the close delay of a latency tenant while it has more requests than bursts, that is,
 * while requests end too early, and shrinks it slowly otherwise. At most four times what one piece
 * of a burst takes (after longer pauses batch may return), and in the shared lane at most what a
 * return of batch costs. */
static __always_inline void correct_close_delay(struct kind *k, u32 lane, u64 requests, u64 bursts,
						u64 took_ns)
{
	u64 limit = lane == GBPF_LANE_SHARED ? close_delay_shared_max_ns : close_delay_max_ns;
	u64 most = 4 * (took_ns / requests), ns = k->close_delay_ns;

	most = min_u64(most, limit);
	k->single_burst = requests * 16 <= bursts * 18;
	if (requests * 16 > bursts * 20) {
		ns = ns ? 2 * ns : close_delay_min_ns;
	} else if (k->single_burst) {
		ns -= ns / 8;
	}
	k->close_delay_ns = min_u64(ns, most);
}

/* Returns the minimum close delay of a latency tenant, ns. */
static __always_inline u32 close_delay_floor(const struct kind *k, u32 lane)
{
	int short_is_right = lane == GBPF_LANE_SHARED ||
			     (k->single_burst && k->syncs16 && k->syncs16 < hold_min_syncs_x16);

	return (u32)(short_is_right || k->close_delay_ns > close_delay_process_min_ns
			     ? k->close_delay_ns
			     : close_delay_process_min_ns);
}

/* Corrects the close delay from some bursts at a time. */
static __always_inline void learn_close_delay(struct tenant *x)
{
	x->close_requests += x->seen.requests;
	x->close_bursts += x->seen.n;
	x->close_took_ns += x->seen.took_ns;
	if (x->close_bursts >= 8 && x->close_requests) {
		correct_close_delay(&x->kind, x->lane, x->close_requests, x->close_bursts,
				    x->close_took_ns);
		x->close_requests = x->close_bursts = x->close_took_ns = 0;
	}
}

#endif
