/* auto: parts of the decision on one launch: its level and gate, holds, and limits. */
#ifndef GBPF_POLICIES_AUTO_SUBMIT_H
#define GBPF_POLICIES_AUTO_SUBMIT_H

#include "stop.h"

/* Returns 1 if the launch keeps the tenant's work on the GPU within bound (ns). One launch may
 * always be in flight, so that a kernel longer than the limit runs, too. */
static __always_inline int fits_inflight(const struct gbpf_submit_ctx *ctx, u64 bound)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= bound
			   : ctx->inflight < inflight_max_unknown;
}

/* Holds the launch for ns, counts the note once, and gives the reason (GBPF_WHY_*). */
static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 note, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(note, 1);
	}
	ctx->why = why;
	ctx->hold_ns = ns;
	return GBPF_HOLD;
}

/* Chooses the block level. Returns 1. */
static __always_inline int go_at_block_level(struct gbpf_submit_ctx *ctx)
{
	gbpf_note(NOTE_BLOCK_LEVEL, 1);
	ctx->level = GBPF_LEVEL_BLOCK;
	return 1;
}

/* Chooses the block level and the gate's mode. Machine code that is not worth the block level goes
 * with its gate off, which costs nothing. Returns whether the launch needs no in-flight limit. */
static __always_inline int choose_level(struct gbpf_submit_ctx *ctx, const struct stop *s)
{
	if (s->worth) {
		return go_at_block_level(ctx);
	}
	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = GBPF_GATE_OFF;
	}
	return 0;
}

/* Returns the work in flight up to which a launch goes that is not stopped: bound, and more where
 * work in flight delays a request by little: in the shared lane priorities decide at the end of
 * each block, in the process lane time slices. More is needed to keep the GPU busy until the
 * program is awake again. */
static __always_inline u64 bound_of(const struct gbpf_submit_ctx *ctx, u64 bound)
{
	int shared = ctx->lane == GBPF_LANE_SHARED;

	if (waited_for(ctx)) {
		return max_u64(bound, inflight_group_ns);
	}
	if (is_short(ctx)) {
		return max_u64(bound, shared ? inflight_short_shared_ns : inflight_short_ns);
	}
	return shared && ctx->stop == GBPF_STOP_MACHINE_CODE && ctx->est_ns
		       ? max_u64(bound, inflight_code_shared_ns)
		       : bound;
}

/* Returns 1 if the launch waits for its tenant's turn. */
static __always_inline int waits_turn(const struct gbpf_submit_ctx *ctx)
{
	if (ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->lane == GBPF_LANE_PROCESS ? turn != NO_TURNS && turn != ctx->tenant
					      : waits_for_turn[ctx->tenant & 1023];
}

/* Decides on a launch that time slices or priorities alone get off the GPU: it goes as if it could
 * not be stopped, within the upper limit of work in flight. Short machine code joins the launches at
 * block level before it on its stream with its gate off, and is stopped with them as long as these
 * follow each other; a long launch waits until they are through instead. */
static __always_inline int go_unstopped(struct gbpf_submit_ctx *ctx)
{
	if (!fits_inflight(ctx, inflight_max_ns)) {
		return hold(ctx, NOTE_HELD_INFLIGHT, GBPF_WHY_INFLIGHT, ask_again_ns);
	}
	if (ctx->stop == GBPF_STOP_MACHINE_CODE && is_short(ctx)) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = GBPF_GATE_OFF;
	}
	return GBPF_GO;
}

/* Returns 1 if the launch goes even while a request is open. */
static __always_inline int passes(const struct gbpf_submit_ctx *ctx)
{
	return short_passes && ctx->lane == GBPF_LANE_SHARED &&
	       (is_short(ctx) || (have_gaps && has_passing_blocks(ctx))) &&
	       ctx->lc_next_ns == ~0ull && !waits_turn(ctx);
}

/* Returns 1 if the launch would still be on the GPU when an announced request arrives. */
static __always_inline int delays_announced(const struct gbpf_submit_ctx *ctx, const struct stop *s)
{
	u64 ahead = ctx->lane == GBPF_LANE_SHARED ? announce_lead_shared_ns : announce_lead_ns;
	u64 leaves = ctx->inflight_ns + ctx->est_ns;

	if (s->worth) {
		leaves = s->leaves_ns;
	}
	if (ctx->lc_next_ns == ~0ull || ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->lc_next_ns < ahead ||
	       (ctx->lc_next_ns < ahead + leaves && ctx->lc_next_ns < inflight_max_ns);
}

#endif
