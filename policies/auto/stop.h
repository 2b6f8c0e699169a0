/* auto: what it costs to stop a launch between its blocks. It leaves the GPU when its running
 * blocks end and those that have not begun have exited (docs/POLICIES.md, "auto"). */
#ifndef GBPF_POLICIES_AUTO_STOP_H
#define GBPF_POLICIES_AUTO_STOP_H

#include "state.h"

/* Returns the time that blocks of the launch which have not begun take to begin and exit, ns. */
static __always_inline u64 exits_ns(const struct gbpf_submit_ctx *ctx)
{
	u64 blocks = ctx->persistent ? 0 : ctx->blocks;

	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		return blocks * exit_code_ns / 1000;
	}
	return min_u64(blocks, exit_clone_max) * exit_clone_ns / 1000;
}

/* How a launch stops. */
struct stop {
	u64 leaves_ns; /* until it has left the GPU under a lease, if it goes at block level, ns */
	u32 pays;      /* 1: it can be stopped between blocks, and gains from it */
	u32 worth;     /* 1: it is also long enough for the block level */
};

/* Returns 1 if the launch is never stopped because the GPUs of others would wait with it: its
 * program communicates across GPUs. All that follows in its stream would go through gBPF's thread,
 * which costs DDP a quarter of its speed next to requests, for a P99 that is a tenth lower (two
 * H200). In the shared lane, without time slices, it has to. */
static __always_inline int waited_for(const struct gbpf_submit_ctx *ctx)
{
	return ctx->group && ctx->lane == GBPF_LANE_PROCESS;
}

/* Returns 1 if the launch is shorter than what is worth the block level of machine code. */
static __always_inline int is_short(const struct gbpf_submit_ctx *ctx)
{
	return ctx->est_ns && ctx->est_ns < preempt_min_code_ns;
}

/* Returns 1 if priorities serve requests that are bound by the processor next to the launch. No block
 * is longer than the launch. */
static __always_inline int has_passing_blocks(const struct gbpf_submit_ctx *ctx)
{
	u64 block_ns = ctx->block_ns ? ctx->block_ns : ctx->est_ns;

	return ctx->est_ns && ctx->est_ns <= passing_max_ns && block_ns <= passing_block_ns;
}

/* Returns the duration from which machine code is worth the block level, ns. In the shared lane
 * the device places blocks of a request first, so a gate gains nothing in short blocks, and next to
 * none in a launch all of whose blocks run already. */
static __always_inline u64 min_code_ns(const struct gbpf_submit_ctx *ctx)
{
	int gains = !ctx->persistent && (!ctx->block_ns || ctx->block_ns >= short_block_shared_ns);

	return ctx->lane == GBPF_LANE_SHARED && !gains ? preempt_min_short_block_ns
						       : preempt_min_code_ns;
}

/* A launch gains nothing from being stopped if its blocks exit nearly as slowly as they run. */
static __always_inline struct stop stop_of(const struct gbpf_submit_ctx *ctx)
{
	u64 exits = exits_ns(ctx), min_ns = preempt_min_kernel_ns;
	struct stop s = { .leaves_ns = ctx->block_ns + exits };

	if (ctx->block_ns && ctx->block_ns < short_block_ns) {
		min_ns = preempt_min_short_block_ns;
	} else if (ctx->lane == GBPF_LANE_SHARED) {
		min_ns = preempt_min_kernel_shared_ns;
	}
	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		min_ns = max_u64(min_ns, min_code_ns(ctx));
	}
	s.pays = ctx->block_ok && !waited_for(ctx) && (!ctx->est_ns || 2 * exits <= ctx->est_ns);
	s.worth = s.pays && (!ctx->est_ns || ctx->est_ns >= min_ns);
	return s;
}

#endif
