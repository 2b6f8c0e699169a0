/* lc_first: latency-critical tenants first. While any of them has a request open, nobody else submits.
 *
 * Use it when a service with a latency promise (gbpf run --class latency) shares the GPU with work that can wait. The GPU
 * finishes what it has begun, so what the others may have in flight is bounded: the smaller the bound, the sooner a request
 * has the GPU for itself, and the more often the GPU runs dry between the others' kernels. Kernels that can be stopped
 * between blocks need no bound: what has not begun leaves at once, and goes on when the request has ended. They are launched
 * so unless the kernel is so short that it is not worth it.
 *
 * Nobody starves: after the hold limit (100 ms) gBPF itself lets the others have a minimum share (2 %). */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 inflight_limit_ns = 1000000; /* of one tenant that is not latency-critical */
const volatile u32 unknown_limit = 2;		/* launches in flight while durations are not known yet */
const volatile u64 hold_ns = 5000000;		/* asks again after so long even if nothing changes */
const volatile u64 worth_ns = 20000;		/* kernels shorter than this are not launched at block level */

enum { HELD_FOR_LATENCY, HELD_FOR_DRAIN };

/* One launch may always be on the GPU: a kernel longer than the bound must run too. Host functions and the like take no
 * time on it. */
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
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD; /* gBPF wakes the launch the moment the request ends */
	}
	if (stops_quickly(ctx)) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return GBPF_GO; /* gBPF cuts large grids */
	}
	if (!drains_quickly(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* In a process that has both kinds of streams: the latency-critical ones first, then by CUDA priority (lower is more
 * urgent), then who has waited longest. */
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
