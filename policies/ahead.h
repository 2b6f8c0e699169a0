/* How far a program may launch ahead while no other one is there that would wait for it. Not
 * without limit: one that comes finds this much of its work on the GPU. */
#ifndef GBPF_POLICIES_AHEAD_H
#define GBPF_POLICIES_AHEAD_H

#include <gbpf/gbpf.bpf.h>

const volatile u64 ahead_limit_ns = 30000000; /* ns: work in flight then */
const volatile u32 ahead_launches = 128;      /* launches: the same while durations are unknown */

static __always_inline int may_go_ahead(const struct gbpf_submit_ctx *ctx)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= ahead_limit_ns
			   : ctx->inflight < ahead_launches;
}

#endif
