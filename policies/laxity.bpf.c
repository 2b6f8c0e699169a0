/* laxity: who can least afford to wait goes first. The laxity of a request is the time until its deadline less the GPU time
 * that it still needs.
 *
 * Use it instead of edf when requests differ in length: a request that is due later but needs much more must begin earlier.
 * And while all have laxity left, work without deadlines runs too: the GPU is not kept for those who have time.
 *
 * How: gbpfd learns how much GPU time a tenant's requests take (from what its finished ones took), and publishes each
 * millisecond when each open request must have the GPU at the latest. The least of these goes; others go as long as the
 * guard is not reached and what they put on the GPU takes less than half of the laxity that is left.
 *
 * After: least laxity first (Dertouzos and Mok, 1989), as XSched's LAX. A request that is late by more than the grace no
 * longer counts. Nobody starves: after the hold limit (100 ms) gBPF lets everybody have a minimum share. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 guard_ns = 2000000;		/* below so much laxity only the most urgent goes */
const volatile u64 late_grace_ns = 20000000;	/* how late a request may be and still count as urgent */
const volatile u64 inflight_limit_ns = 4000000; /* of work without deadlines, however much laxity there is */
const volatile u32 unknown_limit = 4;		/* the same, in launches, while durations are not known */
const volatile u64 hold_ns = 1000000;		/* asks again after so long even if nothing changes */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) everybody just goes */

enum { HELD_FOR_TIGHTER, HELD_FOR_DRAIN, MISSED };

#define NONE (~0ull)

/* What gbpfd knows of a tenant's requests: written by tick, read by all. */
struct request {
	u64 latest_ns; /* when it must have the GPU to be done in time; NONE: nothing is due */
	u64 work_ns;   /* GPU time that its requests take, learned */
	u64 busy_ns;   /* GPU time that it had had when the request now open began */
	u64 ended;     /* requests that had ended then */
};
struct request request[1024];
u64 least_ns = NONE; /* the least latest_ns */
u64 ticked_ns;

static __always_inline int goes_beside(struct gbpf_submit_ctx *ctx, u64 laxity)
{
	u64 bound = laxity / 2 < inflight_limit_ns ? laxity / 2 : inflight_limit_ns;

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
		own = ctx->deadline_ns; /* no tick has seen it yet */
	}
	if (own && own != NONE && own <= least) {
		return GBPF_GO;
	}
	if (!ctx->lc_open) {
		left = NONE; /* what was published has ended since */
	}
	if (left < guard_ns) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_TIGHTER, 1);
		}
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	if (ctx->class_id != GBPF_CLASS_LATENCY && !goes_beside(ctx, left)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Within a program: latency queues before the others, then who has waited longest. */
SEC("gbpf/dispatch")
int GBPF_PROG(laxity_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* What finished requests took, an average of the last ones. */
static __always_inline void learn(struct request *r, u64 t)
{
	u64 busy = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS), ended = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS);
	u64 took;

	if (ended < r->ended || busy < r->busy_ns) {
		r->work_ns = 0; /* another program has the number now */
	} else if (ended == r->ended) {
		return;
	} else {
		took = (busy - r->busy_ns) / (ended - r->ended);
		r->work_ns = r->work_ns ? r->work_ns - r->work_ns / 4 + took / 4 : took;
	}
	r->busy_ns = busy;
	r->ended = ended;
}

/* When the request must have the GPU. */
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
	least_ns = least;
	ticked_ns = ctx->now_ns;
	return 0;
}
