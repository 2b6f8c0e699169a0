/* harvest: batch runs in the gaps of production, and only there.
 *
 * Use it when production (class latency and normal) owns the GPU and must not notice batch, even
 * without requests: a training job of class normal, whose gaps are input and checkpoints, is
 * production just like a service.
 *
 * How: every production program learns its rhythm: the length of pauses inside its busy times
 * (between two launches while none of its work is on the GPU). gbpfd publishes the longest of
 * these, and when production was last seen. Batch runs when no request is open and production has
 * been quiet for twice the usual pause: then this is a gap, not a pause. Batch work is limited:
 * kernels that can be stopped between blocks run in small pieces, others one at a time, and none
 * longer than the usual gap unless gaps have been long for a while.
 *
 * After the harvesting cases of TGS (NSDI 2023) and XSched (OSDI 2025). If production never pauses,
 * batch has the minimum share that gBPF grants after the hold limit (100 ms, then 2 %). */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 pause_least_ns = 100000;	/* ns: a gap is longer than this, whatever was learned */
const volatile u64 pause_most_ns = 5000000;	/* ns: a pause is shorter than this */
const volatile u64 inflight_limit_ns = 300000;	/* ns: work in flight that cannot be stopped; one launch may always run */
const volatile u32 piece_blocks = 2048;
const volatile u64 stale_ns = 50000000;		/* ns: without a tick for this time (gbpfd is not running) only requests count */

enum { HELD_FOR_PRODUCTION, HELD_FOR_LENGTH, HELD_FOR_BOUND, IN_GAPS };

/* Rhythm of a production program, learned by its own programs. */
struct rhythm {
	u64 seen_ns;  /* time of the last launch or completion */
	u64 pause_ns; /* length of pauses inside busy times: rises at once, falls slowly */
	u64 gap_ns;   /* mean length of gaps between busy times */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct rhythm);
} rhythms SEC(".maps");

/* Published by tick. */
u64 production_ns; /* time at which production was last seen */
u64 quiet_ns;	   /* production quiet for longer than this: a gap */
u64 gap_ns;	   /* shortest mean gap of all production programs */
u64 ticked_ns;

/* Learns from the time between a production launch and the last sign of production. */
static __always_inline void learn(struct rhythm *r, u64 now, u32 inflight)
{
	u64 since = now > r->seen_ns ? now - r->seen_ns : 0;

	if (r->seen_ns && !inflight) {
		if (since >= pause_most_ns) {
			r->gap_ns = r->gap_ns ? r->gap_ns - r->gap_ns / 8 + since / 8 : since;
		} else if (since > r->pause_ns) {
			r->pause_ns = since;
		} else {
			r->pause_ns -= (r->pause_ns - since) / 64;
		}
	}
	r->seen_ns = now;
}

static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 note, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(note, 1);
	}
	ctx->why = why;
	ctx->hold_ns = ns;
	return GBPF_HOLD;
}

SEC("gbpf/submit")
int GBPF_PROG(harvest_submit, submit)
{
	int ticking = ctx->now_ns < ticked_ns + stale_ns;
	u64 quiet, since;
	struct rhythm *r;
	u32 key = 0;

	if (ctx->class_id != GBPF_CLASS_BATCH) {
		r = bpf_map_lookup_elem(&rhythms, &key);
		if (r) {
			learn(r, ctx->now_ns, ctx->inflight);
		}
		return GBPF_GO;
	}
	if (ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	quiet = ticking && quiet_ns > pause_least_ns ? quiet_ns : pause_least_ns;
	since = ctx->now_ns - production_ns < ctx->lc_idle_ns ? ctx->now_ns - production_ns : ctx->lc_idle_ns;
	if (ctx->lc_open || (production_ns && ticking && since < quiet) || ctx->lc_idle_ns < quiet) {
		return hold(ctx, HELD_FOR_PRODUCTION, ctx->lc_open ? GBPF_WHY_LATENCY : GBPF_WHY_GAP,
			    ctx->lc_open ? 5000000 : 200000);
	}
	if (ctx->block_ok) {
		gbpf_note(IN_GAPS, 1);
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->split_blocks = piece_blocks;
		return ctx->blocks > piece_blocks ? GBPF_SPLIT : GBPF_GO;
	}
	/* A launch longer than the usual rest of a gap runs only in a gap that has lasted as long
	 * already. */
	if (ticking && gap_ns && ctx->est_ns > gap_ns / 4 && since < ctx->est_ns) {
		return hold(ctx, HELD_FOR_LENGTH, GBPF_WHY_GAP, 500000);
	}
	if (ctx->inflight && (!ctx->est_ns || ctx->inflight_ns + ctx->est_ns > inflight_limit_ns)) {
		return hold(ctx, HELD_FOR_BOUND, GBPF_WHY_INFLIGHT, 1000000);
	}
	gbpf_note(IN_GAPS, 1);
	return GBPF_GO;
}

/* Production with long kernels is busy until they finish. */
SEC("gbpf/retire")
int GBPF_PROG(harvest_retire, retire)
{
	struct rhythm *r;
	u32 key = 0;

	if (ctx->class_id == GBPF_CLASS_BATCH) {
		return 0;
	}
	r = bpf_map_lookup_elem(&rhythms, &key);
	if (r && ctx->now_ns > r->seen_ns) {
		r->seen_ns = ctx->now_ns;
	}
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(harvest_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	u64 now = ctx->now_ns, last = 0, pause = 0, gap = 0;

	bpf_for (t, 0, n) {
		long class_id = gbpf_tenant_class(t);
		struct rhythm *r = gbpf_tenant_lookup(&rhythms, t, &key);

		if (!r || class_id < 0 || class_id == GBPF_CLASS_BATCH || !r->seen_ns) {
			continue;
		}
		if (gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS) || gbpf_tenant_stat(t, GBPF_STAT_OPEN)) {
			last = now; /* busy now */
		}
		last = r->seen_ns > last ? r->seen_ns : last;
		if (r->seen_ns + 10000000000 < now) {
			continue; /* absent for 10 s: ignore its rhythm */
		}
		pause = r->pause_ns > pause ? r->pause_ns : pause;
		gap = r->gap_ns && (!gap || r->gap_ns < gap) ? r->gap_ns : gap;
	}
	production_ns = last;
	quiet_ns = pause * 2;
	gap_ns = gap;
	ticked_ns = now;
	return 0;
}
