/* reef: immediate reset. When a request arrives all other work leaves the GPU; only padding that
 * takes no SM from the request may stay.
 *
 * Use it when the first microseconds of a request count for everything and batch may lose working
 * time: the opposite of fair.
 *
 * How: in the shared lane, and in either lane for work that can be stopped between blocks, blocks
 * that have not started are dropped and launched again later: REEF's reset without its repetition,
 * so kernels need not be idempotent. In the process lane other work is switched off until the
 * request ends. Padding is REEF's dynamic kernel padding with the means that the hardware has: with
 * pad_percent above 0 batch programs get that share of the SMs in the shared lane, and their short
 * kernels continue next to a request. The cap is fixed when a program starts, so batch has no more
 * when the GPU is free either: use 0, no padding, unless requests nearly always leave much of the
 * GPU empty.
 *
 * After: Han and others, Microsecond-scale Preemption for Concurrent GPU-accelerated DNN
 * Inferences, OSDI 2022. No tenant starves: after the hold limit (100 ms) gBPF grants a minimum
 * share. */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 pad_longest_ns = 200000;	/* ns: longest kernel that counts as padding */
const volatile u64 inflight_limit_ns = 500000;	/* ns: work in flight that cannot be stopped */
const volatile u32 unknown_limit = 2;		/* launches: the same while durations are unknown */
const volatile u32 piece_blocks = 8192;		/* blocks per piece of a large grid: fewer blocks are dropped faster */
const volatile u64 off_after_ns = 100000;	/* ns: work that leaves by itself within this time is not switched off */

enum { HELD_FOR_REQUEST, HELD_FOR_DRAIN, PADDING, SWITCHED_OFF };

/* Share of the SMs for batch programs that start in the shared lane, in percent; 0: no padding. Set
 * by the operator: `gbpf map set pad_percent 40`. */
u32 pad_percent;

SEC("gbpf/admit")
int GBPF_PROG(reef_admit, admit)
{
	if (ctx->lanes & 1 << GBPF_LANE_SHARED && ctx->class_id != GBPF_CLASS_NORMAL) {
		ctx->lane = GBPF_LANE_SHARED; /* both classes: a preemption between contexts costs a switch */
	}
	if (ctx->class_id == GBPF_CLASS_BATCH && ctx->lane == GBPF_LANE_SHARED) {
		ctx->priority = 1;
		if (pad_percent && pad_percent < 100) {
			ctx->sm_percent = pad_percent;
		}
	}
	return GBPF_ADMIT;
}

static __always_inline int is_padding(const struct gbpf_submit_ctx *ctx)
{
	return pad_percent && ctx->lane == GBPF_LANE_SHARED && ctx->class_id == GBPF_CLASS_BATCH && ctx->est_ns &&
	       ctx->inflight_ns + ctx->est_ns <= pad_longest_ns;
}

SEC("gbpf/submit")
int GBPF_PROG(reef_submit, submit)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	if (ctx->lc_open || ctx->lc_next_ns < inflight_limit_ns) {
		if (is_padding(ctx)) {
			gbpf_note(PADDING, 1);
			return GBPF_GO; /* at level HOLD, where leases do not stop it */
		}
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_REQUEST, 1);
		}
		ctx->why = ctx->lc_open ? GBPF_WHY_LATENCY : GBPF_WHY_ANNOUNCED;
		ctx->hold_ns = 5000000;
		return GBPF_HOLD;
	}
	if (ctx->lc_idle_ns == ~0ull) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return may_go_ahead(ctx) ? GBPF_GO : GBPF_HOLD; /* no latency tenant has made a request */
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->split_blocks = piece_blocks;
		return ctx->blocks > piece_blocks ? GBPF_SPLIT : GBPF_GO;
	}
	if (ctx->inflight &&
	    (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/preempt")
int GBPF_PROG(reef_preempt, preempt)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY || ctx->waited_ns < off_after_ns) {
		return GBPF_LEVEL_NONE;
	}
	if (ctx->levels & 1 << GBPF_LEVEL_OFF && ctx->tried != GBPF_LEVEL_OFF) {
		gbpf_note(SWITCHED_OFF, 1);
		return GBPF_LEVEL_OFF;
	}
	if (ctx->levels & 1 << GBPF_LEVEL_BLOCK && ctx->tried == GBPF_LEVEL_NONE) {
		return GBPF_LEVEL_BLOCK;
	}
	return GBPF_LEVEL_NONE;
}
