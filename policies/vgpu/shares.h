/* The division of GPU time by the shares of virtual GPUs, for vgpu_auto and examples/band2:
 * examples/band2.bpf.c says how it works. A policy has admit, submit, retire, tick and exit that call admit_new,
 * submit_by_share, charge, divide and give_back, and includes places.h first, so that a changed copy of
 * it takes effect. */
#ifndef GBPF_POLICIES_VGPU_SHARES_H
#define GBPF_POLICIES_VGPU_SHARES_H

#include "places.h"

const volatile u64 max_period_ns =
	160000000; /* ns: in which each program has had a slice: bounds the error of a second */
const volatile u64 min_slice_ns = 2000000; /* ns: of a program with a small share */
const volatile u64 adjust_ns = 100000000;  /* ns: between two corrections of slices */
const volatile u64 slack_ns = 2000000;	   /* ns: debt at which launches are deferred */
const volatile u64 switch_ns = 250000;	   /* ns: between the slices of two programs */
const volatile u64 inflight_limit_ns =
	8000000; /* ns: work in flight of a program in the shared lane */
const volatile u64 sliced_limit_ns =
	40000000; /* ns: the same in the process lane: a slice must not run dry */
const volatile u64 alone_limit_ns =
	10000000; /* ns: the same in turns, while no other vGPU competes: kernels that overlap, as
		     a collective and those next to it, count in full each */
const volatile u64 pause_ns =
	50000000; /* ns: longest pause of a vGPU that has used its most; half the hold limit */
const volatile u32 unknown_limit = 16; /* launches: the same while durations are unknown */
const volatile u64 stale_ns =
	50000000; /* ns: published values older than this (gbpfd is not running) are ignored */

enum { DEFERRED_FOR_SHARE, DEFERRED_FOR_CAP, SLICES_SET };

/* What is published of a vGPU, in addition to its credit. */
enum {
	CONTENDED = 1, /* another one with credit always has work */
	YIELDS = 2,    /* that one has a higher priority */
	CAPPED = 4,    /* its share is its most, and stated shares leave something over */
	PAUSES = 8,    /* capped, and it has used its most */
	ALONE = 16,    /* capped, and nobody waits for its turn to end */
};

struct account {
	u64 used_ns;	/* total GPU time */
	u64 put_off_ns; /* time of the last deferral */
	u64 out;	/* launches not retired, approximately */
};

/* A vGPU as of the last tick. */
struct group {
	s64 credit_ns, cap_ns; /* cap: what is left of its share of the wall time */
	s64 mean_ns;	       /* credit over the last periods, without the course of a period */
	u64 used_ns;	       /* in this tick */
	u64 share;	       /* of the vGPUs that have work, in 65536ths; 0: it has no work */
	u32 weight;	       /* %, or what the others leave */
	u32 working;	       /* its programs that have work */
	u32 pauses;	       /* its turn has ended, and cap_ns is not back at 0 */
	u64 most_debt_ns;      /* of cap_ns, with the work of one of its programs on the device */
	u32 wants, demand;     /* demand: fraction of the last milliseconds in which it had work */
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
u32 flags[GROUPS];
u64 ticked_ns;
u64 debt_ns;   /* the debt at which launches are deferred where time slices are set */
u32 no_slices; /* 1: slices cannot be set on this machine */

/* Of gbpfd alone. */
struct group groups[GROUPS];
u64 seen_used_ns[1024]; /* by tenant: used_ns at the last tick */
u32 given[1024];	/* by tenant: its slice plus 1, us; 0: none was set */
u32 works[1024];	/* by tenant: as demand of a vGPU */
u64 adjusted_ns;
u32 adjusted_for; /* number of programs that had work then */

static __always_inline int admit_new(struct gbpf_admit_ctx *ctx)
{
	if (!ctx->rejoin) {
		seen_used_ns[ctx->tenant & 1023] = 0;
		works[ctx->tenant & 1023] = 0;
		given[ctx->tenant & 1023] = 0;
	}
	return GBPF_ADMIT;
}

static __always_inline int is_sliced(u32 lane)
{
	return lane == GBPF_LANE_PROCESS && !no_slices;
}

static __always_inline int too_much_in_flight(struct gbpf_submit_ctx *ctx)
{
	u64 limit = is_sliced(ctx->lane)       ? sliced_limit_ns
		    : flags[ctx->vgpu] & ALONE ? alone_limit_ns
					       : inflight_limit_ns;

	if (ctx->inflight < 2) {
		return 0; /* the second is there when the first ends */
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > limit
			   : ctx->inflight >= unknown_limit;
}

/* Its vGPU is in a pause, which class latency does not observe. */
static __always_inline int pauses(const struct gbpf_submit_ctx *ctx)
{
	return flags[ctx->vgpu] & PAUSES && ctx->class_id != GBPF_CLASS_LATENCY;
}

/* Returns the counter of the reason for which a launch must wait, -1 if there is none. The
 * tenant's use since the last tick, and its work on the device, count as used. */
static __always_inline int reason_to_wait(struct gbpf_submit_ctx *ctx, const struct account *a)
{
	const struct group *g = &groups[ctx->vgpu];
	s64 used = (s64)(a->used_ns - seen_used_ns[ctx->tenant] + ctx->inflight_ns),
	    slack = (s64)slack_ns;
	u32 f = flags[ctx->vgpu];

	if (pauses(ctx)) {
		return DEFERRED_FOR_CAP;
	}
	if (f & CAPPED && g->cap_ns - used < -(s64)g->most_debt_ns) {
		return DEFERRED_FOR_CAP;
	}
	if (!(f & CONTENDED)) {
		return -1;
	}
	if (is_sliced(ctx->lane)) { /* unless slices do not keep it to its share */
		return g->credit_ns < -(s64)(debt_ns) ? DEFERRED_FOR_SHARE : -1;
	}
	return g->credit_ns - used < (f & YIELDS ? 0 : -slack) ? DEFERRED_FOR_SHARE : -1;
}

/* A launch goes, unless its vGPU has had its share. */
static __always_inline int submit_by_share(struct gbpf_submit_ctx *ctx)
{
	u64 now = ctx->now_ns;
	struct account *a;
	u32 key = 0;
	int reason;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	reason = now < ticked_ns + stale_ns ? reason_to_wait(ctx, a) : -1;
	if (reason >= 0) {
		if (!ctx->asked) {
			gbpf_note((u64)reason, 1);
		}
		a->put_off_ns = now;
		ctx->why = reason == DEFERRED_FOR_CAP ? GBPF_WHY_CAP : GBPF_WHY_SHARE;
		ctx->hold_ns = 500000;
		/* In a pause its group stops at once. Otherwise it goes on when its work ends,
		 * which HOLD notices. */
		return pauses(ctx) || !ctx->inflight ? GBPF_DEFER : GBPF_HOLD;
	}
	if (too_much_in_flight(ctx)) {
		a->put_off_ns = now;
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

static __always_inline int charge(struct gbpf_retire_ctx *ctx)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return 0;
	}
	__sync_fetch_and_add(&a->used_ns, gbpf_used_ns(ctx));
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

/* ---- tick ---- */

/* Adds what a tenant used and wants to its vGPU. */
static __always_inline void add_tenant(u32 t, const struct account *a, u64 now)
{
	struct group *g = &groups[group_of(t)];
	u64 *seen = &seen_used_ns[t & 1023], used = a->used_ns;
	int wants = a->out || a->put_off_ns + 2000000 > now;

	g->used_ns += used > *seen ? used - *seen : 0;
	*seen = used;
	works[t & 1023] = average(works[t & 1023], wants);
	g->working += works[t & 1023] > WANTED / 16;
	g->wants |= wants;
}

/* Totals over the vGPUs that have work. In memory, like rivals: on the stack the verifier would
 * follow every value that they can have. */
struct totals {
	u64 used_ns;
	u32 stated, unstated; /* sum of the stated shares, %; number without one */
	u32 capped;	      /* of the stated: shares that are also the most */
	u32 working;
};
struct totals sum;

static __always_inline const struct gbpf_vslice_set *given_to(u32 place)
{
	return place < GBPF_VGPUS ? bpf_map_lookup_elem(&VSLICE_SET, &place) : NULL;
}

static __always_inline int is_capped(const struct gbpf_vslice_set *v)
{
	return v && v->compute_pct && !(v->flags & GBPF_VGPU_BURST);
}

static __always_inline void count(u32 place, struct group *g)
{
	const struct gbpf_vslice_set *v = given_to(place);

	g->demand = average(g->demand, g->wants);
	g->weight = v ? v->compute_pct : 0;
	sum.used_ns += g->used_ns;
	if (!g->working) {
		return;
	}
	sum.working += g->working;
	sum.stated += g->weight;
	sum.unstated += !g->weight;
	sum.capped += is_capped(v) ? g->weight : 0;
}

/* Sets the share of a vGPU that has work. While the stated shares leave something over, those that
 * are also the most stay as they are, and the other vGPUs divide the rest. */
static __always_inline void set_share(u32 place, struct group *g)
{
	const struct gbpf_vslice_set *v = given_to(place);
	u32 left = sum.stated < 95 ? 100 - sum.stated : 5,
	    rest = sum.capped < 100 ? 100 - sum.capped : 0;
	u32 others = sum.stated - sum.capped + (sum.unstated ? left : 0), weight = g->weight;

	if (!g->working) {
		g->share = 0;
		return;
	}
	weight = weight ? weight : left / sum.unstated;
	if (sum.stated + (sum.unstated ? left : 0) >= 100) {
		u32 all = sum.stated + (sum.unstated ? left : 0);

		g->share = ((u64)weight << 16) / all;
	} else if (is_capped(v)) {
		g->share = ((u64)weight << 16) / 100;
	} else {
		g->share = others ? ((u64)weight * rest << 16) / (100ull * others) : 0;
	}
}

static __always_inline s64 clamp(s64 value, s64 lowest, s64 highest)
{
	return value < lowest ? lowest : value > highest ? highest : value;
}

/* Grants a vGPU its share of what was used, and charges what it used. One that has a most uses it
 * in turns with pauses between them: kernel by kernel, those that would overlap run one after the
 * other, and the ranks of a group wait for each other in each collective. */
static __always_inline void settle(struct group *g, u64 elapsed_ns, u64 period_ns, u64 slice_ns,
				   int contended)
{
	s64 granted = (s64)(sum.used_ns * g->share >> 16), period = (s64)period_ns;
	u64 most_ns = elapsed_ns * g->weight / 100, owed_ns = pause_ns * g->weight / 100;

	g->credit_ns += granted - (s64)g->used_ns;
	if (!g->working) { /* nothing is saved, and a debt is forgiven after a period */
		g->credit_ns = g->credit_ns > 0 ? 0 : g->credit_ns + (s64)elapsed_ns;
		g->credit_ns = g->credit_ns > 0 ? 0 : g->credit_ns;
	}
	g->credit_ns = clamp(g->credit_ns, contended ? -period : -(s64)slack_ns, period);
	g->mean_ns += (g->credit_ns - g->mean_ns) >> 6;
	g->cap_ns += (s64)most_ns - (s64)g->used_ns;
	/* What accrues during the first kernel of a turn is not lost; what no pause within the hold
	 * limit would pay back is. */
	g->cap_ns = clamp(g->cap_ns, g->weight ? -2 * (s64)owed_ns : -period,
			  g->working ? period >> 1 : (s64)slack_ns);
	g->most_debt_ns = owed_ns + owed_ns / 2;
	if (g->working > 1) {
		g->most_debt_ns /= g->working;
	}
	owed_ns = owed_ns < slice_ns / 4 ? owed_ns : slice_ns / 4;
	g->pauses = g->cap_ns < (g->pauses ? 0 : -(s64)owed_ns);
	if (sum.stated >= 100) {
		g->cap_ns = (s64)slack_ns;
	} else if (sum.capped == sum.stated && !sum.unstated) {
		g->credit_ns = 0; /* nothing is divided: each has its most */
	}
}

/* ---- slices ---- */

static __always_inline void set_slice(u32 t, u64 period_ns, int correct)
{
	struct group *g = &groups[group_of(t)];
	u32 *have = &given[t & 1023];
	u64 length, us;
	s64 change;

	if (works[t & 1023] <= WANTED / 16 || !g->working || !g->share ||
	    gbpf_tenant_stat(t, GBPF_STAT_LANE) != GBPF_LANE_PROCESS) {
		return;
	}
	length = period_ns * g->share >> 16;
	if (correct) {
		length += (u64)clamp(g->mean_ns >> 2, -(s64)(length / 4), (s64)(length / 4));
	}
	length /= g->working;
	us = length < min_slice_ns ? min_slice_ns / 1000 : length / 1000;
	change = (s64)us + 1 - *have;
	change = change < 0 ? -change : change;
	if (*have && (u64)change <= us / 32) {
		return; /* a change costs a millisecond of gbpfd's control thread */
	}
	if (gbpf_slice_set(t, us) < 0) {
		no_slices = 1;
		return;
	}
	no_slices = 0;
	*have = (u32)us + 1;
	gbpf_note(SLICES_SET, 1);
}

/* Returns the sum of all slices. Whole periods fit into a second, so that it does not matter where
 * in a period a second begins: with half of one left over, shares of 50 % would be off by half a
 * slice. */
static __always_inline u64 period_of(u32 working, u64 slice_ns)
{
	u64 n = working < 2 ? 2 : working, switches = n * switch_ns;
	u64 wanted = n * slice_ns < max_period_ns ? n * slice_ns : max_period_ns;
	u64 whole = wanted + switches;

	whole = 1000000000 / ((1000000000 + whole / 2) / whole);
	return whole > switches * 2 ? whole - switches : wanted;
}

static __always_inline void set_slices(u32 tenants, u64 now, u64 period_ns)
{
	int changed = sum.working != adjusted_for;
	u32 t;

	if (!changed && now < adjusted_ns + adjust_ns) {
		return;
	}
	adjusted_ns = now;
	adjusted_for = sum.working;
	bpf_for (t, 0, tenants) {
		set_slice(t, period_ns, !changed);
	}
}

/* The vGPUs with credit that always have work: for them the others are deferred. */
struct rivals {
	u32 n, last;	   /* number, and one of them */
	s32 top, next_top; /* highest priority; that of the others */
	u32 top_place;
};
struct rivals rivals;

static __always_inline int competes(u32 place)
{
	const struct group *g = &groups[place];

	return g->demand > WANTED * 3 / 4 && g->credit_ns >= -(s64)slack_ns &&
	       (sum.stated >= 100 || (is_capped(given_to(place)) ? !g->pauses : g->cap_ns >= 0));
}

static __always_inline s32 priority_of(u32 place)
{
	const struct gbpf_vslice_set *v = given_to(place);

	return v ? v->priority : 0;
}

static __always_inline void add_rival(u32 place)
{
	struct rivals *r = &rivals;
	s32 priority = priority_of(place);

	r->n++;
	r->last = place;
	if (priority > r->top) {
		r->next_top = r->top;
		r->top = priority;
		r->top_place = place;
	} else if (priority > r->next_top) {
		r->next_top = priority;
	}
}

/* Divides the GPU for the next millisecond. slice_ns: mean length of a time slice. */
static __always_inline int divide(struct gbpf_tick_ctx *ctx, u64 slice_ns)
{
	u32 key = 0, t, p, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	u64 now = ctx->now_ns, period_ns;

	rivals = (struct rivals){ .top = -1, .next_top = -1, .top_place = GROUPS };
	sum = (struct totals){};
	bpf_for (p, 0, GROUPS) {
		groups[p].used_ns = 0;
		groups[p].working = groups[p].wants = 0;
	}
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (a) {
			add_tenant(t, a, now);
		}
	}
	bpf_for (p, 0, GROUPS) {
		count(p, &groups[p]);
	}
	period_ns = period_of(sum.working, slice_ns);
	debt_ns = period_ns - period_ns / 4;
	bpf_for (p, 0, GROUPS) {
		set_share(p, &groups[p]);
	}
	bpf_for (p, 0, GROUPS) {
		settle(&groups[p], ctx->period_ns, period_ns, slice_ns,
		       sum.working > groups[p].working);
	}
	bpf_for (p, 0, GROUPS) {
		if (competes(p)) {
			add_rival(p);
		}
	}
	bpf_for (p, 0, GROUPS) {
		s32 top = p == rivals.top_place ? rivals.next_top : rivals.top;
		u32 f = is_capped(given_to(p)) && sum.stated < 100 ? CAPPED : 0;

		f |= f && groups[p].pauses ? PAUSES : 0;
		if (rivals.n > 1 || (rivals.n == 1 && rivals.last != p)) {
			f |= CONTENDED | (priority_of(p) < top ? YIELDS : 0);
		} else if (f && slice_ns >= alone_limit_ns) { /* no latency programs */
			f |= ALONE;
		}
		flags[p] = f;
	}
	ticked_ns = now;
	set_slices(n, now, period_ns);
	return 0;
}

/* Gives back the time slices that the policy set. */
static __always_inline int give_back(struct gbpf_exit_ctx *ctx)
{
	u32 t;

	bpf_for (t, 0, 1024) {
		if (given[t & 1023] && ctx->reason != GBPF_EXIT_DAEMON) {
			gbpf_slice_set(t, 0);
		}
	}
	return 0;
}

#endif
