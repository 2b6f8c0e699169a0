/* edf: earliest deadline first, across all programs on the GPU.
 *
 * Use it when requests have different deadlines (gbpf_hint, GBPF_HINT): a frame due in 5 ms runs
 * before one due in 30 ms, whichever program they belong to. Work without a deadline runs when no
 * deadline is open. As long as the GPU can meet all deadlines, no other order meets more of them;
 * laxity also considers the remaining work.
 *
 * How: every millisecond gbpfd collects the deadlines of open requests and publishes the most
 * urgent ones; tenants with a later deadline, or none, hold. A request that has missed its deadline
 * by a grace time is treated as one without a deadline; otherwise, under overload, each late
 * request would make the next one late.
 *
 * After: Liu and Layland, Scheduling algorithms for multiprogramming in a hard-real-time
 * environment (1973); several at a time as in XSched's K-EDF. No tenant starves: after the hold
 * limit (100 ms) gBPF grants a minimum share. */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"
#include "alone.h"

GBPF_LICENSE("Apache-2.0");

const volatile u32 at_once = 1;			/* number of earliest deadlines that may run together, 1-4 */
const volatile u64 late_grace_ns = 20000000;	/* ns: a request later than this no longer counts as urgent */
const volatile u64 inflight_limit_ns = 1000000; /* ns: work without deadlines in flight: the longest wait of an urgent request */
const volatile u32 unknown_limit = 4;		/* launches: the same while durations are unknown */
const volatile u64 hold_ns = 1000000;		/* ns: a held launch asks again after this */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { HELD_FOR_EARLIER, HELD_FOR_DRAIN, MISSED };

#define NONE (~0ull)

/* Published by tick. */
u64 deadline_of[1024]; /* by tenant; NONE: no deadline, or missed */
u64 limit_ns = NONE;   /* tenants with a deadline up to this may run */
u64 ticked_ns;

/* Returns 1 if the launch does not delay an urgent request; at block level, blocks that have not
 * started exit at once. */
static __always_inline int goes_beside(struct gbpf_submit_ctx *ctx)
{
	if (alone) {
		return may_go_ahead(ctx);
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return 1;
	}
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1; /* one launch may always run; host functions take no GPU time */
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= inflight_limit_ns : ctx->inflight < unknown_limit;
}

SEC("gbpf/submit")
int GBPF_PROG(edf_submit, submit)
{
	u64 limit = ctx->now_ns < ticked_ns + stale_ns ? limit_ns : NONE;
	u64 own = ctx->deadline_ns && ctx->deadline_ns + late_grace_ns > ctx->now_ns ? ctx->deadline_ns : NONE;

	if (own <= limit && own != NONE) {
		return GBPF_GO; /* also with a deadline that no tick has seen yet */
	}
	if (ctx->lc_open && (limit != NONE || ctx->class_id != GBPF_CLASS_LATENCY)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_EARLIER, 1);
		}
		ctx->why = limit != NONE ? GBPF_WHY_DEADLINE : GBPF_WHY_LATENCY;
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD; /* gBPF wakes it when a request ends */
	}
	if (ctx->class_id != GBPF_CLASS_LATENCY && !goes_beside(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Rank within a program: latency queues first, then the longest wait. */
SEC("gbpf/dispatch")
int GBPF_PROG(edf_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* Returns the least deadline above the last one found. */
static __always_inline u64 next_above(u64 last, u32 n)
{
	u64 least = NONE;
	u32 t;

	bpf_for (t, 0, n) {
		u64 d = deadline_of[t & 1023];

		if (d > last && d < least) {
			least = d;
		}
	}
	return least;
}

SEC("gbpf/tick")
int GBPF_PROG(edf_tick, tick)
{
	u32 t, k, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	u64 limit = 0;

	bpf_for (t, 0, n) {
		u64 d = gbpf_tenant_stat(t, GBPF_STAT_OPEN) ? gbpf_tenant_stat(t, GBPF_STAT_DEADLINE_NS) : 0;

		if (d && d + late_grace_ns <= ctx->now_ns) {
			if (deadline_of[t & 1023] != NONE) {
				gbpf_note(MISSED, 1);
			}
			d = 0;
		}
		deadline_of[t & 1023] = d ? d : NONE;
	}
	bpf_for (k, 0, 4) {
		if (k < at_once) {
			limit = next_above(limit, n);
		}
	}
	look_for_others(ctx);
	limit_ns = limit;
	ticked_ns = ctx->now_ns;
	return 0;
}
