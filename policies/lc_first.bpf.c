/* lc_first: latency tenants first. While one of them has an open request, no other tenant submits.
 *
 * Use it when a service with a latency promise (gbpf run --class latency) shares the GPU with work
 * that can wait. The GPU finishes what it has started, so other tenants' work in flight is limited:
 * the smaller the limit, the sooner a request has the GPU for itself, and the more often the GPU
 * idles between the other tenants' kernels. Kernels that can be stopped between blocks need no
 * limit: blocks that have not started exit at once, and the kernel is resumed when the request has
 * ended. They run like this unless the kernel is too short to be worth it.
 *
 * No tenant starves: after the hold limit (100 ms) gBPF grants a minimum share (2 %). */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 inflight_limit_ns = 1000000; /* ns: work in flight per tenant that is not of class latency */
const volatile u32 unknown_limit = 2;		/* launches: the same while durations are unknown */
const volatile u64 hold_ns = 5000000;		/* ns: a held launch asks again after this */
const volatile u64 worth_ns = 20000;		/* ns: shortest kernel that runs at block level */

enum { HELD_FOR_LATENCY, HELD_FOR_DRAIN };

/* One launch may always be in flight, so that a kernel longer than the limit runs, too. Host
 * functions take no GPU time. */
static __always_inline int drains_quickly(struct gbpf_submit_ctx *ctx)
{
	if (ctx->inflight == 0 || ctx->kind >= GBPF_KIND_HOST) {
		return 1;
	}
	if (ctx->est_ns == 0 || ctx->inflight_ns == 0) {
		return ctx->inflight < unknown_limit;
	}
	return ctx->inflight_ns + ctx->est_ns <= inflight_limit_ns;
}

static __always_inline int stops_quickly(struct gbpf_submit_ctx *ctx)
{
	return ctx->block_ok && (!ctx->est_ns || ctx->est_ns >= worth_ns);
}

SEC("gbpf/submit")
int GBPF_PROG(lc_first_submit, submit)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_GO;
	}
	if (ctx->lc_open) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_LATENCY, 1);
		}
		ctx->why = GBPF_WHY_LATENCY;
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD; /* gBPF wakes the launch when the request ends */
	}
	if (ctx->lc_idle_ns == ~0ull && ctx->lc_next_ns == ~0ull) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return may_go_ahead(ctx) ? GBPF_GO : GBPF_HOLD; /* no latency tenant has made a request */
	}
	if (stops_quickly(ctx)) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return GBPF_GO; /* gBPF splits large grids */
	}
	if (!drains_quickly(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Rank in a process with several classes: latency queues first, then CUDA priority (lower is more
 * urgent), then the longest wait. */
SEC("gbpf/dispatch")
int GBPF_PROG(lc_first_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		rank += 500000;
	}
	if (ctx->priority < 0) {
		rank += 100000;
	}
	return rank;
}
