/* auto: what a tenant's own hooks count in its account. gbpfd reads it once in each tick.
 * Approximate: threads of one tenant may lose updates. */
#ifndef GBPF_POLICIES_AUTO_ACCOUNT_H
#define GBPF_POLICIES_AUTO_ACCOUNT_H

#include "stop.h"

/* Counts the launches of a latency tenant that went by its queue's grant, as if no pause was between
 * them. Where the tenant's queues launch at unlike rates, one of them may have been given more than
 * what it launches in grant_request_ns. */
static __always_inline void count_granted(struct account *a, const struct gbpf_submit_ctx *ctx)
{
	u64 last = ctx->granted_last_ns;

	if (last > a->launch_ns) {
		a->span_ns += min_u64(last - a->launch_ns, burst_gap_ns + ctx->granted_ns);
		a->launch_ns = last;
	}
	a->end_ns = max_u64(a->end_ns + ctx->granted_ns, last);
	a->launches += ctx->granted;
	a->known += ctx->granted;
	a->known_ns += ctx->granted_ns;
}

/* Returns how many launches may follow this one of a latency tenant, which comes since_ns after the
 * one that was seen before it. */
static __always_inline u32 grant_in_request(const struct gbpf_submit_ctx *ctx, u64 since_ns)
{
	u64 each_ns = since_ns / (ctx->granted + 1u) + 1;

	return (u32)min_u64(grant_request_ns / each_ns, grant_request_launches);
}

/* Counts a launch of a latency tenant: a new burst if it follows a pause, else the time since the
 * launch before it. */
static __always_inline void count_burst(struct account *a, const struct gbpf_submit_ctx *ctx)
{
	u64 now = ctx->now_ns, end = a->end_ns;

	if (now > end + burst_gap_ns) {
		a->bursts++;
	} else if (now > a->launch_ns) {
		a->span_ns += now - a->launch_ns;
	}
	a->launch_ns = now;
	/* Estimates may be too long, for ever; gBPF knows what of them is still in flight. */
	a->end_ns = min_u64(max_u64(now, end), now + ctx->inflight_ns) + ctx->est_ns;
	a->launches++;
	a->known += ctx->est_ns != 0;
	a->known_ns += ctx->est_ns;
}

/* Keeps the size of a batch tenant's largest launches. */
static __always_inline void note_threads(struct account *a, const struct gbpf_submit_ctx *ctx)
{
	u64 threads = min_u64(ctx->blocks, 1 << 20) * ctx->threads;

	a->threads = threads > a->threads ? threads : a->threads - a->threads / 256;
}

/* Counts a launch of a batch tenant: its GPU time, how much of that leaves soon, stopped or not,
 * and how long it takes to leave. The launches that went by its queue's grant before it were short.
 */
static __always_inline void count_batch(struct account *a, const struct gbpf_submit_ctx *ctx,
					const struct stop *s)
{
	u64 est = ctx->est_ns || ctx->kind != GBPF_KIND_KERNEL ? ctx->est_ns : unknown_kernel_ns;
	u64 leaves = s->worth ? s->leaves_ns : est;
	u64 soon = leaves <= leave_max_ns ? est : 0;

	a->seen_ns += est + ctx->granted_ns;
	a->soon_ns += (ctx->block_ok || ctx->est_ns ? soon : 0) + ctx->granted_ns; /* short ones */
	if (a->recent_seen_ns >= 2 * recent_ns) {
		a->recent_seen_ns /= 2;
		a->recent_block_ns /= 2;
		a->recent_short_ns /= 2;
		a->recent_passing_ns /= 2;
	}
	a->recent_seen_ns += est;
	a->recent_block_ns += ctx->block_ok ? soon : 0;
	a->recent_short_ns += is_short(ctx) ? est : 0;
	a->recent_passing_ns += is_short(ctx) || has_passing_blocks(ctx) ? est : 0;
	if (ctx->now_ns >= a->window_ns + longest_window_ns) {
		a->longest_ns = a->window_longest_ns;
		a->window_longest_ns = 0;
		a->window_ns = ctx->now_ns;
	}
	a->window_longest_ns = max_u64(leaves, a->window_longest_ns);
	a->longest_ns = max_u64(leaves, a->longest_ns);
	note_threads(a, ctx);
}

#endif
