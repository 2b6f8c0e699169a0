/* auto: what one scan of all tenants finds, and what of it is published. tick fills it in this
 * order: batch tenants, then what latency tenants did next to them, then turns and slices. */
#ifndef GBPF_POLICIES_AUTO_SCAN_H
#define GBPF_POLICIES_AUTO_SCAN_H

#include "state.h"

struct scan {
	u64 now_ns;
	/* all tenants */
	u32 latency, lc_shared; /* latency tenants; those in the shared lane */
	u32 be, be_shared;	/* other tenants; those in the shared lane */
	u32 starved;		/* 1: some tenant is starved */
	/* batch in the lane of which the ways are learned */
	u32 lane;	    /* that lane */
	u64 longest_ns;	    /* longest time that a launch takes to leave */
	u64 busy_ns;	    /* GPU time */
	u64 programs;	    /* sum of the hashes of their programs */
	u32 known, stops;   /* those of which launches were seen; the stoppable ones */
	u32 wants;	    /* those that want the GPU */
	u32 mostly_short;   /* those that passing serves */
	u32 mostly_passing; /* those that it serves next to requests that are bound by the processor
			     */
	u32 changed;	    /* 1: batch has become stoppable, or is no longer */
	/* batch in the process lane */
	u32 wanting;	  /* those that want the GPU; */
	u32 first, next;  /* the first of them, and the first after the last turn */
	u32 holder_wants; /* 1: the tenant that has the turn is one of them */
	/* latency tenants */
	u64 inflight_limit_ns; /* smallest in-flight limit that one of them needs */
	u32 judged;	       /* those whose requests are known, or that have one now */
	u32 leaving;	       /* those of them whose way is leaving */
	u32 tight;	       /* those of them whose requests have no gaps that batch may fill */
	u64 shortest_ns;       /* the shortest request of one of the others */
	u32 switching;	       /* 1: for one of them the way has just changed */
	u32 passing[PASSING_SELDOM + 1]; /* those of each PASSING_* */
	u32 often;	       /* those for which holding pays, or of which nothing is known */
	u32 pausing;	       /* those for which it pays unless batch fills their gaps */
};

/* Of the running tick. A global, since on the stack the verifier would track each value apart. */
struct scan scan;
u32 latency_list[LATENCY_MAX]; /* the latency tenants that it has found */

static __always_inline void scan_begin(struct scan *l, u64 now)
{
	__builtin_memset(l, 0, sizeof(*l));
	l->now_ns = now;
	l->lane = latency_tenants && other_tenants && latency_shared == latency_tenants &&
				  other_shared == other_tenants
			  ? GBPF_LANE_SHARED
			  : GBPF_LANE_PROCESS; /* as of the last scan */
	l->inflight_limit_ns = inflight_max_ns;
	l->shortest_ns = ~0ull;
	l->next = l->first = NO_TURNS;
}

/* Publishes what the scan found of batch. */
static __always_inline void publish_batch(struct scan *l)
{
	u32 stops = l->known && (l->stops == l->known || l->lane == GBPF_LANE_SHARED);

	l->changed = l->known && stops != batch_stops;
	batch_stops = l->known ? stops : batch_stops;
	batch_lane = l->lane;
	way_percent = l->lane == GBPF_LANE_SHARED ? shared_percent()
						  : (u32)min_u64(way_process_percent, 1000);
	longest_ns = l->longest_ns;
	batch_busy_ns = l->busy_ns;
	batch_programs = l->programs;
	batch_wants = l->wants != 0;
	batch_short = l->mostly_short != 0;
	batch_passes = l->mostly_passing != 0;
	batch_alone = l->be - l->be_shared == 1;
}

/* Returns how passing serves all requests, PASSING_*. With several batch tenants it is not known which
 * of them it is. */
static __always_inline u32 passing_of_all(const struct scan *l)
{
	if (l->lane != GBPF_LANE_SHARED || l->be != 1 || !l->judged) {
		return PASSING_UNKNOWN;
	}
	return l->passing[PASSING_FAILS]		  ? PASSING_FAILS
	       : l->passing[PASSING_SELDOM] == l->judged ? PASSING_SELDOM
	       : l->passing[PASSING_SERVES] == l->judged ? PASSING_SERVES
							  : PASSING_UNKNOWN;
}

static __always_inline void publish(const struct scan *l)
{
	latency_seen_ns = l->latency ? l->now_ns : latency_seen_ns;
	passing = passing_of_all(l);
	latency_tenants = l->latency;
	latency_shared = l->lc_shared;
	other_tenants = l->be;
	other_shared = l->be_shared;
	have_gaps = !l->tight;
	passing_block_ns = max_u64(l->shortest_ns == ~0ull ? 0 : l->shortest_ns / passing_request_blocks,
				   passing_max_block_ns);
	hold_pays = l->often || (l->pausing && !have_gaps);
	short_passes = l->lane == GBPF_LANE_SHARED && l->judged && !l->leaving && !l->switching;
	slices_serve = l->lane == GBPF_LANE_PROCESS && l->latency && !hold_pays && !l->switching &&
		       !no_slices && batch_alone;
	inflight_limit_ns = l->inflight_limit_ns;
	judged_tenants = l->judged;
	way_in_force =
		l->leaving && (batch_stops || l->leaving == l->judged) ? WAY_LEAVING : WAY_SLICED;
	ticked_ns = l->now_ns;
}

#endif
