/* reef: reset at once. When a request comes everything of the others leaves the GPU; what may stay beside it is padding that
 * takes no multiprocessor from it.
 *
 * Use it when a request's first microseconds count for everything and batch may lose work time: the opposite end from fair.
 *
 * How: in the shared lane, and for what can be stopped between blocks in either, the blocks that have not begun are dropped
 * and launched again later: REEF's reset without its repetition, so kernels need not be idempotent. In the process lane what
 * cannot be stopped is switched off the hardware until the request ends. Padding is REEF's dynamic kernel padding with the
 * means that the hardware has: with pad_percent above 0 batch programs get so much of the multiprocessors in the shared lane,
 * and their short kernels go on beside a request. The cap is fixed when a program starts, so batch has no more when
 * the GPU is free either: 0, no padding, unless requests leave much of the GPU empty nearly always.
 *
 * After: Han and others, Microsecond-scale Preemption for Concurrent GPU-accelerated DNN Inferences, OSDI 2022. Nobody starves:
 * after the hold limit (100 ms) gBPF lets everybody have a minimum share. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 pad_longest_ns = 200000;	/* longer kernels are no padding */
const volatile u64 inflight_limit_ns = 500000;	/* of what cannot be stopped */
const volatile u32 unknown_limit = 2;		/* the same, in launches, while durations are not known */
const volatile u32 piece_blocks = 8192;		/* large grids in pieces: fewer blocks are dropped faster */
const volatile u64 off_after_ns = 100000;	/* what has left by itself by then need not be switched off */

enum { HELD_FOR_REQUEST, HELD_FOR_DRAIN, PADDING, SWITCHED_OFF };

/* Set by the operator (gbpf map set pad_percent 40): of the multiprocessors, for batch that starts in the shared lane from then
 * on; 0: no padding. */
u32 pad_percent;

SEC("gbpf/admit")
int GBPF_PROG(reef_admit, admit)
{
	if (ctx->lanes & 1 << GBPF_LANE_SHARED && ctx->class_id != GBPF_CLASS_NORMAL) {
		ctx->lane = GBPF_LANE_SHARED; /* both sides: preemption between contexts costs a switch */
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
			return GBPF_GO; /* at level HOLD: leases do not stop it */
		}
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_REQUEST, 1);
		}
		ctx->hold_ns = 5000000;
		return GBPF_HOLD;
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
