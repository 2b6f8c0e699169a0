/* laxity: least laxity first. The laxity of a request is the time until its deadline less the GPU
 * time that it still needs.
 *
 * Use it instead of edf when requests differ in length: a request that is due later but needs much
 * more GPU time must start earlier. While all requests have laxity left, work without deadlines
 * runs, too: the GPU is not reserved for requests that have time.
 *
 * How: gbpfd learns the GPU time of a tenant's requests (from finished ones), and publishes every
 * millisecond the latest time at which each open request must get the GPU. The least of these runs;
 * others run as long as the guard is not reached and their work takes less than half of the
 * remaining laxity.
 *
 * After: least laxity first (Dertouzos and Mok, 1989), as XSched's LAX. A request that is late by
 * more than the grace time no longer counts. No tenant starves: after the hold limit (100 ms) gBPF
 * grants a minimum share. */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"
#include "alone.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 guard_ns = 2000000;		/* ns: with less laxity only the most urgent request runs */
const volatile u64 late_grace_ns = 20000000;	/* ns: a request later than this no longer counts as urgent */
const volatile u64 inflight_limit_ns = 4000000; /* ns: work without deadlines in flight, whatever the laxity */
const volatile u32 unknown_limit = 4;		/* launches: the same while durations are unknown */
const volatile u64 hold_ns = 1000000;		/* ns: a held launch asks again after this */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { HELD_FOR_TIGHTER, HELD_FOR_DRAIN, MISSED };

#define NONE (~0ull)

/* A tenant's requests. Published by tick. */
struct request {
	u64 latest_ns; /* time at which it must get the GPU to be done in time; NONE: none due */
	u64 work_ns;   /* GPU time of its requests, learned, ns */
	u64 busy_ns;   /* its GPU time when the open request began */
	u64 ended;     /* number of its finished requests at that time */
};
struct request request[1024];
u64 least_ns = NONE; /* smallest latest_ns */
u64 ticked_ns;

static __always_inline int goes_beside(struct gbpf_submit_ctx *ctx, u64 laxity)
{
	u64 bound = laxity / 2 < inflight_limit_ns ? laxity / 2 : inflight_limit_ns;

	if (alone) {
		return may_go_ahead(ctx);
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return 1;
	}
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return ctx->est_ns < bound || laxity == NONE;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= bound : ctx->inflight < unknown_limit;
}

SEC("gbpf/submit")
int GBPF_PROG(laxity_submit, submit)
{
	u64 now = ctx->now_ns, least = now < ticked_ns + stale_ns ? least_ns : NONE;
	u64 own = request[ctx->tenant & 1023].latest_ns;
	u64 left = least == NONE ? NONE : least > now ? least - now : 0;

	if (ctx->deadline_ns && !own) {
		own = ctx->deadline_ns; /* not seen by a tick yet */
	}
	if (own && own != NONE && own <= least) {
		return GBPF_GO;
	}
	if (!ctx->lc_open) {
		left = NONE; /* the published request has ended since */
	}
	if (left < guard_ns) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_TIGHTER, 1);
		}
		ctx->why = GBPF_WHY_DEADLINE;
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	if (ctx->class_id != GBPF_CLASS_LATENCY && !goes_beside(ctx, left)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Rank within a program: latency queues first, then the longest wait. */
SEC("gbpf/dispatch")
int GBPF_PROG(laxity_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* Learns the GPU time of finished requests, a moving average. */
static __always_inline void learn(struct request *r, u64 t)
{
	u64 busy = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS), ended = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS);
	u64 took;

	if (ended < r->ended || busy < r->busy_ns) {
		r->work_ns = 0; /* the tenant number was reused */
	} else if (ended == r->ended) {
		return;
	} else {
		took = (busy - r->busy_ns) / (ended - r->ended);
		r->work_ns = r->work_ns ? r->work_ns - r->work_ns / 4 + took / 4 : took;
	}
	r->busy_ns = busy;
	r->ended = ended;
}

/* Returns the time at which the request must get the GPU. */
static __always_inline u64 latest(const struct request *r, u64 t, u64 now)
{
	u64 deadline = gbpf_tenant_stat(t, GBPF_STAT_OPEN) ? gbpf_tenant_stat(t, GBPF_STAT_DEADLINE_NS) : 0;
	u64 had = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS) - r->busy_ns;
	u64 left = r->work_ns > had ? r->work_ns - had : 0, waiting = gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS);

	if (!deadline) {
		return NONE;
	}
	if (deadline + late_grace_ns <= now) {
		gbpf_note(MISSED, 1);
		return NONE;
	}
	left = left > waiting ? left : waiting;
	return deadline > left ? deadline - left : 1;
}

SEC("gbpf/tick")
int GBPF_PROG(laxity_tick, tick)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	u64 least = NONE;

	bpf_for (t, 0, n) {
		struct request *r = &request[t & 1023];

		learn(r, t);
		r->latest_ns = latest(r, t, ctx->now_ns);
		if (r->latest_ns < least) {
			least = r->latest_ns;
		}
	}
	look_for_others(ctx);
	least_ns = least;
	ticked_ns = ctx->now_ns;
	return 0;
}
