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

/* Holds the launch for ns, and counts the reason once. */
static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(why, 1);
	}
	ctx->hold_ns = ns;
	return GBPF_HOLD;
}

/* Chooses the block level. Returns 1. */
static __always_inline int go_at_block_level(struct gbpf_submit_ctx *ctx, struct account *a)
{
	gbpf_note(NOTE_BLOCK_LEVEL, 1);
	ctx->level = GBPF_LEVEL_BLOCK;
	a->ungated_ns = 0;
	return 1;
}

/* Chooses the block level and the gate's mode. Short launches of machine code go with their gate
 * off, which costs nothing; but one in ungated_max_ns is stoppable, so that a long queue of
 * them leaves as soon as its turn comes. Returns whether the launch needs no in-flight limit. */
static __always_inline int choose_level(struct gbpf_submit_ctx *ctx, struct account *a,
					const struct stop *s)
{
	int code = ctx->stop == GBPF_STOP_MACHINE_CODE;

	if (s->worth) {
		return go_at_block_level(ctx, a);
	}
	if (code) {
		a->ungated_ns += ctx->est_ns;
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = GBPF_GATE_OFF;
		if (a->ungated_ns >= ungated_max_ns) {
			ctx->gate = s->pays ? GBPF_GATE_TOGETHER : GBPF_GATE_OFF;
			a->ungated_ns = 0;
		}
	}
	return code && s->pays;
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

/* Decides on a launch that the hardware's time slices alone get off the GPU: it goes as if it could
 * not be stopped, within the upper limit of work in flight. */
static __always_inline int go_sliced(struct gbpf_submit_ctx *ctx)
{
	if (!fits_inflight(ctx, inflight_max_ns)) {
		return hold(ctx, NOTE_HELD_INFLIGHT, ask_again_ns);
	}
	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = GBPF_GATE_OFF;
	}
	return GBPF_GO;
}

/* Returns 1 if the launch would still be on the GPU when an announced request arrives. */
static __always_inline int delays_announced(const struct gbpf_submit_ctx *ctx, const struct stop *s)
{
	u64 ahead = ctx->lane == GBPF_LANE_SHARED ? announce_lead_shared_ns : announce_lead_ns;
	u64 leaves = ctx->inflight_ns + ctx->est_ns;

	if (s->worth) {
		leaves = s->leaves_ns;
	} else if (ctx->stop == GBPF_STOP_MACHINE_CODE && s->pays) {
		leaves = ungated_max_ns;
	}
	if (ctx->lc_next_ns == ~0ull || ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->lc_next_ns < ahead ||
	       (ctx->lc_next_ns < ahead + leaves && ctx->lc_next_ns < inflight_max_ns);
}

#endif
