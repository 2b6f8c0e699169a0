/* harvest: opportunistic jobs run in the gaps of production, and only there.
 *
 * Use it when production (class latency and normal) owns the GPU and must not notice that batch is there, also where it has
 * no requests: a training job of class normal, whose gaps are input and checkpoints, is production as much as a service is.
 *
 * How: every production program learns its own rhythm: how long the pauses inside its busy times are (between two launches
 * while nothing of it is on the GPU). gbpfd publishes the longest of these and when production was seen last. Batch goes when
 * no request is open and production has been quiet for longer than its pauses inside busy times usually are, twice over:
 * then this is a gap, not a pause. What goes is bounded: kernels that can be stopped between blocks go in small pieces, the
 * others one at a time, and none that is longer than gaps are, unless gaps have been long for a while.
 *
 * After the harvesting cases of TGS (NSDI 2023) and XSched (OSDI 2025). Production that never pauses leaves batch the minimum
 * share that gBPF gives to whoever is held for the hold limit (100 ms, then 2 %). */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 pause_least_ns = 100000;	/* gaps are longer than this, whatever was learned, */
const volatile u64 pause_most_ns = 5000000;	/* and pauses shorter than this */
const volatile u64 inflight_limit_ns = 300000;	/* of what cannot be stopped; one may always go */
const volatile u32 piece_blocks = 2048;
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) only requests count */

enum { HELD_FOR_PRODUCTION, HELD_FOR_LENGTH, HELD_FOR_BOUND, IN_GAPS };

/* What a production program knows of itself. */
struct rhythm {
	u64 seen_ns;  /* last launch, or last seen that one finished */
	u64 pause_ns; /* inside busy times, learned: rises at once, falls slowly */
	u64 gap_ns;   /* between busy times, an average */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct rhythm);
} rhythms SEC(".maps");

/* Written by tick, read by all. */
u64 production_ns; /* last seen */
u64 quiet_ns;	   /* after so long without production it is a gap */
u64 gap_ns;	   /* how long gaps are, the shortest average of all */
u64 ticked_ns;

/* Called when production launches: what was the time since it was seen last? */
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

static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(why, 1);
	}
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
		return hold(ctx, HELD_FOR_PRODUCTION, ctx->lc_open ? 5000000 : 200000);
	}
	if (ctx->block_ok) {
		gbpf_note(IN_GAPS, 1);
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->split_blocks = piece_blocks;
		return ctx->blocks > piece_blocks ? GBPF_SPLIT : GBPF_GO;
	}
	/* Longer than what is usually left of a gap: only in one that has lasted as long already. */
	if (ticking && gap_ns && ctx->est_ns > gap_ns / 4 && since < ctx->est_ns) {
		return hold(ctx, HELD_FOR_LENGTH, 500000);
	}
	if (ctx->inflight && (!ctx->est_ns || ctx->inflight_ns + ctx->est_ns > inflight_limit_ns)) {
		return hold(ctx, HELD_FOR_BOUND, 1000000);
	}
	gbpf_note(IN_GAPS, 1);
	return GBPF_GO;
}

/* Production that has long kernels is busy until they finish. */
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
			continue; /* not for 10 s: its rhythm does not matter */
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
