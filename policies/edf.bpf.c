/* edf: the earliest deadline first, across all programs on the GPU.
 *
 * Use it when requests come with deadlines (gbpf_hint, GBPF_HINT) that differ: a frame that is due in 5 ms goes before one
 * that is due in 30, whoever has them. Work without a deadline goes when no deadline is open. While the GPU can keep all
 * deadlines at all, no order keeps more of them; laxity also looks at how much work is left.
 *
 * How: each millisecond gbpfd looks whose requests are open and until when, and publishes the deadline of the most urgent
 * ones; who has a later one, or none, holds. A request that has missed its deadline by a grace is treated as one without
 * (else, when there is too much work, each late request would make the next one late).
 *
 * After: Liu and Layland, Scheduling algorithms for multiprogramming in a hard-real-time environment (1973); several at a
 * time as in XSched's K-EDF. Nobody starves: after the hold limit (100 ms) gBPF lets everybody have a minimum share. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u32 at_once = 1;			/* the so many earliest deadlines may go together, 1-4 */
const volatile u64 late_grace_ns = 20000000;	/* how late a request may be and still count as urgent */
const volatile u64 inflight_limit_ns = 1000000; /* of work without deadlines: an urgent request waits so long at most */
const volatile u32 unknown_limit = 4;		/* the same, in launches, while durations are not known */
const volatile u64 hold_ns = 1000000;		/* asks again after so long even if nothing changes */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) everybody just goes */

enum { HELD_FOR_EARLIER, HELD_FOR_DRAIN, MISSED };

#define NONE (~0ull)

/* Written by tick, read by all. */
u64 deadline_of[1024]; /* NONE: has none, or has missed it */
u64 limit_ns = NONE;   /* who is due by then may go */
u64 ticked_ns;

/* May this one go without making an urgent request wait? Block level: what has not begun leaves at once. */
static __always_inline int goes_beside(struct gbpf_submit_ctx *ctx)
{
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return 1;
	}
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1; /* one may always run, however long it is; host functions take no GPU time */
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= inflight_limit_ns : ctx->inflight < unknown_limit;
}

SEC("gbpf/submit")
int GBPF_PROG(edf_submit, submit)
{
	u64 limit = ctx->now_ns < ticked_ns + stale_ns ? limit_ns : NONE;
	u64 own = ctx->deadline_ns && ctx->deadline_ns + late_grace_ns > ctx->now_ns ? ctx->deadline_ns : NONE;

	if (own <= limit && own != NONE) {
		return GBPF_GO; /* also with a deadline that is so new that no tick has seen it */
	}
	if (ctx->lc_open && (limit != NONE || ctx->class_id != GBPF_CLASS_LATENCY)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_EARLIER, 1);
		}
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD; /* gBPF wakes it the moment a request ends */
	}
	if (ctx->class_id != GBPF_CLASS_LATENCY && !goes_beside(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Within a program the queue whose first launch has waited longest; latency queues before the others. */
SEC("gbpf/dispatch")
int GBPF_PROG(edf_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* The least of those above the last one found. */
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
	limit_ns = limit;
	ticked_ns = ctx->now_ns;
	return 0;
}
