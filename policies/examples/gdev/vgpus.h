/* What fifo_share, credit and band share: Gdev's virtual devices (Kato and others, USENIX ATC
 * 2012), as its source implements them, except for what follows from where gBPF's programs run:
 *
 * - A virtual device is a vGPU; its bandwidth is the vGPU's compute share, 100 % if none is stated.
 *   Programs in no vGPU are one more device.
 * - gbpfd selects, once a millisecond; Gdev does when launches complete. So a vGPU whose launches
 * have all completed waits for the next tick, up to a millisecond, and nothing runs meanwhile.
 * - Launches are entities of their process; a process may have 32 launches outstanding and then
 *   waits until all have completed, so that there are completions with asynchronous programs, too.
 *
 * One vGPU at a time is current and has the device. The others wait. When the launches of the
 * current one have completed the next one is selected. The charge is wall time, from the first
 * launch of a process to the completion of all it has outstanding.
 *
 * A policy includes ahead.h first: a copy of this file elsewhere does not know where that is. */
#ifndef GBPF_POLICIES_GDEV_VGPUS_H
#define GBPF_POLICIES_GDEV_VGPUS_H

#include <gbpf/gbpf.bpf.h>

#define GROUPS (GBPF_VGPUS + 1) /* one more for programs in no vGPU */
#define NOBODY 0xffffffffu

const volatile u64 period_ns = 30000000;    /* ns: between two replenishments */
const volatile u64 threshold_ns = 30000000; /* ns: a credit beyond it, up or down, becomes zero */
const volatile u64 window_ns = 1000000000;  /* ns: of the utilization */
const volatile u64 wait_ns = 500000;	    /* ns: time buffering */
const volatile u32 instances = 32;	    /* launches that a process may have outstanding */
const volatile u64 stale_ns =
	50000000; /* ns: published values older than this (gbpfd is not running) are ignored */

enum { WAITED, YIELDED, SELECTED, ZEROED };

struct account {
	u64 span_ns;	/* total wall time with launches outstanding */
	u64 begin_ns;	/* of the present span */
	u64 out;	/* launches not retired, approximately */
	u64 drained_ns; /* when it last had none */
	u64 since_ns;	/* its first waiting launch began to wait; 0: none waits */
	u64 seen_ns;	/* last call of a launch that waits */
	u64 yield_ns;	/* last time that it gave the device away */
	u64 draining;	/* it had its launches outstanding and waits until they have completed */
};

/* A virtual device as of the last tick. */
struct group {
	s64 credit_ns;
	u64 time_ns, begin_ns;	   /* utilization: of the window */
	u64 out, waiting_since_ns; /* 0: none waits */
	u64 yield_ns;
	u32 bandwidth, used; /* %: its share, and what it had in the window */
	u32 users;
	u32 rank; /* place in the list, from the head */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

GBPF_STANDARD_MAP(VSLICE_SET);

/* Published by gbpfd. */
u32 current = NOBODY;
u32 exhausted[GROUPS];
u32 expected = NOBODY; /* selected, but over its share: one with less may take the device first */
u32 devices;	       /* virtual devices with users */
u64 ticked_ns;

/* Of gbpfd alone. */
struct group groups[GROUPS];
u64 seen_span_ns[1024]; /* by tenant: at the last tick */
u64 replenished_ns;
u32 last_rank;

static __always_inline u32 group_of(u32 tenant)
{
	long place = gbpf_tenant_vgpu(tenant);

	return place < 0 || place > GBPF_VGPUS ? GBPF_VGPUS : (u32)place;
}

/* ---- a launch arrives ---- */

static __always_inline int wait(struct gbpf_submit_ctx *ctx, struct account *a, int note, u32 why)
{
	if (!ctx->asked) {
		gbpf_note((u64)note, 1);
	}
	a->since_ns = a->since_ns ? a->since_ns : ctx->now_ns;
	a->seen_ns = ctx->now_ns;
	ctx->why = why;
	ctx->hold_ns = wait_ns;
	return GBPF_DEFER;
}

/* Returns whether launches of a vGPU wait for another one, which has the device or is about to. */
static __always_inline int is_in_the_way(u32 cur, u32 vgpu)
{
	if (cur != NOBODY) {
		return cur != vgpu;
	}
	return expected != NOBODY && (expected == vgpu || exhausted[vgpu]);
}

/* yields: whether an exhausted vGPU gives the device away for a moment. */
static __always_inline int arrive(struct gbpf_submit_ctx *ctx, int yields)
{
	u64 now = ctx->now_ns;
	struct account *a;
	u32 key = 0, cur = current, alone = devices < 2, free;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || ctx->kind >= GBPF_KIND_HOST || now >= ticked_ns + stale_ns) {
		return GBPF_GO;
	}
	free = alone && may_go_ahead(ctx);
	if (!ctx->inflight || free) {
		a->draining = 0;
	}
	if (!free && (ctx->inflight >= instances || a->draining)) {
		a->draining = 1;
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	if (!alone &&
	    (is_in_the_way(cur, ctx->vgpu) || (!ctx->inflight && a->drained_ns > ticked_ns))) {
		return wait(ctx, a, WAITED, GBPF_WHY_TURN);
	}
	if (yields && !alone && cur == ctx->vgpu && exhausted[ctx->vgpu] && !ctx->asked) {
		a->yield_ns = now;
		return wait(ctx, a, YIELDED, GBPF_WHY_SHARE);
	}
	if (!a->out) {
		a->begin_ns = now;
	}
	a->since_ns = 0;
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

/* ---- launches have completed ---- */

static __always_inline int complete(struct gbpf_retire_ctx *ctx)
{
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || !a->out) {
		return 0;
	}
	a->out = a->out > ctx->count ? a->out - ctx->count : 0;
	if (!a->out) {
		a->span_ns += ctx->now_ns - a->begin_ns;
		a->drained_ns = ctx->now_ns;
	}
	return 0;
}

/* ---- gbpfd ---- */

static __always_inline void add_tenant(u32 t, const struct account *a, u64 now)
{
	struct group *g = &groups[group_of(t)];
	u64 *seen = &seen_span_ns[t & 1023], used = a->span_ns > *seen ? a->span_ns - *seen : 0;
	u64 since = a->since_ns;

	*seen = a->span_ns;
	used = used < window_ns ? used : window_ns;
	g->credit_ns -= (s64)used;
	g->time_ns += used;
	g->out += a->out;
	g->users++;
	if (since && a->seen_ns + 4 * wait_ns > now &&
	    (!g->waiting_since_ns || since < g->waiting_since_ns)) {
		g->waiting_since_ns = since;
	}
	g->yield_ns = a->yield_ns > g->yield_ns ? a->yield_ns : g->yield_ns;
}

static __always_inline void measure(u32 p, struct group *g, u64 now)
{
	const struct gbpf_vslice_set *v =
		p < GBPF_VGPUS ? bpf_map_lookup_elem(&VSLICE_SET, &p) : NULL;
	u64 elapsed = now - g->begin_ns, used;

	g->bandwidth = v && v->compute_pct ? v->compute_pct : 100;
	used = elapsed ? g->time_ns * 100 / elapsed : 0;
	g->used = used < 100 ? (u32)used : 100;
	if (elapsed >= window_ns) {
		g->begin_ns = now;
		g->time_ns = 0;
	}
	devices += g->users != 0;
}

/* Not clamped: a credit beyond the threshold is lost, and a debt is forgiven. */
static __always_inline void replenish(struct group *g)
{
	s64 most = (s64)threshold_ns;

	g->credit_ns += (s64)(period_ns * g->bandwidth / 100);
	if (g->credit_ns > most || g->credit_ns < -most) {
		g->credit_ns = 0;
		gbpf_note(ZEROED, 1);
	}
}

/* Counts tenants, charges vGPUs, and replenishes them when their period is over. */
static __always_inline void account_all(struct gbpf_tick_ctx *ctx)
{
	u32 key = 0, t, p, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	int due = ctx->now_ns >= replenished_ns + period_ns;

	devices = 0;
	bpf_for (p, 0, GROUPS) {
		groups[p].out = groups[p].waiting_since_ns = groups[p].yield_ns = 0;
		groups[p].users = 0;
	}
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (a) {
			add_tenant(t, a, ctx->now_ns);
		}
	}
	bpf_for (p, 0, GROUPS) {
		measure(p, &groups[p], ctx->now_ns);
		if (due) {
			replenish(&groups[p]);
		}
	}
	if (due) {
		replenished_ns = ctx->now_ns;
	}
}

/* The search for a vGPU with waiting launches. In memory: on the stack the verifier would follow
 * every value. */
struct search {
	u32 found, rank;
	u64 since_ns;
};
struct search search;

/* If none was current, one whose launches were submitted meanwhile becomes it. */
static __always_inline void adopt(void)
{
	u32 p;

	search = (struct search){ .found = NOBODY, .rank = NOBODY };
	bpf_for (p, 0, GROUPS) {
		if (groups[p].out && groups[p].rank < search.rank) {
			search.found = p;
			search.rank = groups[p].rank;
		}
	}
	current = current == NOBODY ? search.found : current;
}

/* Finds the first one of the list with waiting launches. */
static __always_inline u32 first_waiting(void)
{
	u32 p;

	search = (struct search){ .found = NOBODY, .rank = NOBODY };
	bpf_for (p, 0, GROUPS) {
		struct group *g = &groups[p];

		if (g->waiting_since_ns && g->rank < search.rank) {
			search.found = p;
			search.rank = g->rank;
		}
	}
	return search.found;
}

/* Finds the one whose launch has waited longest. */
static __always_inline u32 longest_waiting(void)
{
	u32 p;

	search = (struct search){ .found = NOBODY, .since_ns = ~0ull };
	bpf_for (p, 0, GROUPS) {
		struct group *g = &groups[p];

		if (g->waiting_since_ns && g->waiting_since_ns < search.since_ns) {
			search.found = p;
			search.since_ns = g->waiting_since_ns;
		}
	}
	return search.found;
}

static __always_inline struct group *current_group(void)
{
	u64 c = current;

	if (c >= GROUPS) {
		return NULL;
	}
	asm volatile("" : "+r"(c)); /* the compiler adds it to the address after the comparison */
	return &groups[c];
}

static __always_inline void select(u32 next)
{
	if (next != current && next != NOBODY) {
		gbpf_note(SELECTED, 1);
	}
	current = next;
}

#endif
