/* Turns on the GPUs for groups: processes that communicate across GPUs. Where groups share GPUs by
 * the hardware's time slices, ranks wait inside collectives for peers whose process is not on its GPU
 * at that moment, and occupy theirs. So each group has all its GPUs for a turn, and then the next one.
 *
 * GBPF_STAT_GROUP is a group's number only where groups that have the same GPUs share these with no
 * other work. There a period is divided by the groups' weights (the highest of each one's programs on
 * that GPU), in the order of their numbers, by the clock. So their GPUs take the same turns also where
 * none leads the others (docs/SCHEDULING.md, "Groups"), unless a group's programs differ in weight. In
 * the shared lane, where kernels of several processes run at once, there are no turns.
 *
 * A policy calls groups_divide() in tick, and group_decides() in submit about launches of other
 * classes than latency. */
#ifndef GBPF_POLICIES_GROUPS_H
#define GBPF_POLICIES_GROUPS_H

#include <gbpf/gbpf.bpf.h>

const volatile u64 group_period_ns = 60000000;	      /* ns: in which each group has a turn; below the hold limit */
const volatile u64 group_inflight_ns = 8000000;	      /* ns: work in flight of a program in its turn, */
const volatile u64 group_inflight_last_ns = 2000000;  /* and at the end of it, since it runs into the next one */
const volatile u32 group_unknown = 16;		      /* launches: the same while durations are unknown */
const volatile u64 group_ready_ns = 3000000;	      /* ns: a group without a launch for this time does not use its turn */
const volatile u64 group_stale_ns = 50000000;	      /* ns: turns older than this (gbpfd is not running) are ignored */

#define GROUPS 8  /* no turns if there are more, */
#define RANKS 128 /* or more programs in groups */
#define NO_GROUP 0

/* When the program has last asked whether it may launch. */
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} group_asked SEC(".maps");

/* Published by gbpfd. */
u32 groups_present; /* 1: there is a group, so programs record when they ask */
u32 group_turn;	    /* the group that has its turn; NO_GROUP: there are no turns */
u64 group_turn_end_ns;
u32 group_of_tenant[1024];
u64 groups_ticked_ns;

/* Of gbpfd alone. */
struct group_share {
	u32 number, weight, ready;
};
struct group_share group_list[GROUPS];
u32 n_groups, n_ranks, groups_shared; /* groups_shared: one has programs in the shared lane */
u32 ranks[RANKS]; /* the programs in groups */

/* Returns 1 if the program was in a group, and no other work on its GPUs, at the last tick. */
static __always_inline int is_of_group(const struct gbpf_submit_ctx *ctx)
{
	return group_of_tenant[ctx->tenant] != NO_GROUP;
}

/* Returns 1 if the program's group has no place for the launch next to its work in flight. */
static __always_inline int group_is_full(const struct gbpf_submit_ctx *ctx)
{
	u64 end = group_turn_end_ns, limit = end > ctx->now_ns ? end - ctx->now_ns : 0;

	if (!ctx->inflight) {
		return 0;
	}
	limit = limit > group_inflight_ns ? group_inflight_ns : limit;
	limit = limit < group_inflight_last_ns ? group_inflight_last_ns : limit;
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > limit : ctx->inflight >= group_unknown;
}

/* Returns 1 if turns decide on the launch, and sets *verdict then. DEFER stops the launch's group.
 * HOLD, for its own work on the device, does not, and counts also on a GPU that is led, where DEFER
 * does not; so it is the first answer also in another group's turn. */
static __always_inline int group_decides(struct gbpf_submit_ctx *ctx, u32 *verdict)
{
	u32 key = 0, own = group_of_tenant[ctx->tenant];
	u64 *asked;
	int full;

	if (!groups_present || ctx->class_id == GBPF_CLASS_LATENCY || ctx->kind >= GBPF_KIND_HOST ||
	    ctx->now_ns >= groups_ticked_ns + group_stale_ns) {
		return 0;
	}
	asked = bpf_map_lookup_elem(&group_asked, &key);
	if (asked) {
		*asked = ctx->now_ns;
	}
	if (group_turn == NO_GROUP || own == NO_GROUP) {
		return 0;
	}
	full = group_is_full(ctx);
	ctx->why = own == group_turn ? GBPF_WHY_INFLIGHT : GBPF_WHY_TURN;
	if (own == group_turn) {
		*verdict = full ? GBPF_HOLD : GBPF_GO;
		return 1;
	}
	ctx->hold_ns = 1000000;
	*verdict = full && !ctx->asked ? GBPF_HOLD : GBPF_DEFER;
	return 1;
}

/* Adds a program to its group, which is added to the list if it is new. */
static __always_inline void group_join(u32 t, u32 number, u64 now)
{
	u32 i, at = GROUPS, key = 0;
	u64 *asked = gbpf_tenant_lookup(&group_asked, t, &key);
	long weight = gbpf_tenant_weight(t);
	struct group_share *g;

	bpf_for (i, 0, GROUPS) {
		if (i < n_groups && group_list[i & (GROUPS - 1)].number == number) {
			at = i;
		}
	}
	if (at == GROUPS) {
		at = n_groups++;
		if (at >= GROUPS) {
			return;
		}
		group_list[at & (GROUPS - 1)] = (struct group_share){ .number = number };
	}
	g = &group_list[at & (GROUPS - 1)];
	if (weight > 0 && g->weight < (u32)weight) {
		g->weight = (u32)weight; /* its ranks run together */
	}
	g->ready |= (asked && *asked + group_ready_ns > now) || gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS);
}

/* Lists the programs that are in groups. */
static __always_inline void groups_find(const struct gbpf_tick_ctx *ctx)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	n_ranks = groups_shared = 0;
	bpf_for (t, 0, n) {
		u32 number = gbpf_tenant_class(t) < 0 ? NO_GROUP : (u32)gbpf_tenant_stat(t, GBPF_STAT_GROUP);

		group_of_tenant[t & 1023] = number;
		if (number != NO_GROUP) {
			ranks[n_ranks++ & (RANKS - 1)] = t;
			groups_shared |= gbpf_tenant_stat(t, GBPF_STAT_LANE) == GBPF_LANE_SHARED;
		}
	}
}

/* The turn of the period in which a time is. */
struct group_turn_at {
	u32 number;
	u64 since_ns, left_ns;
};

/* Sets the turn at a time of the period (ns), which the groups' weights, of sum all, divide. */
static __always_inline void find_turn(struct group_turn_at *turn, u64 time, u64 all)
{
	u32 i, k;

	bpf_for (i, 0, GROUPS) {
		const struct group_share *g = &group_list[i & (GROUPS - 1)];
		u64 before = 0, begin, end;

		bpf_for (k, 0, GROUPS) {
			const struct group_share *other = &group_list[k & (GROUPS - 1)];

			before += other->number < g->number ? other->weight : 0;
		}
		begin = before * group_period_ns / all;
		end = (before + g->weight) * group_period_ns / all;
		if (time >= begin && time < end) {
			turn->number = g->number;
			turn->since_ns = time - begin;
			turn->left_ns = end - time;
		}
	}
}

/* Returns whose turn it is. One that its group does not use goes to the others that are ready, to
 * another one in each period. A group that others had stopped is not ready before it can launch. */
static __always_inline u32 user_of(const struct group_turn_at *turn, u64 period)
{
	u32 i, n = 0, skip, used = NO_GROUP;

	bpf_for (i, 0, GROUPS) {
		const struct group_share *g = &group_list[i & (GROUPS - 1)];

		n += g->ready;
		if (g->number == turn->number && (g->ready || turn->since_ns < group_ready_ns)) {
			used = turn->number;
		}
	}
	if (used != NO_GROUP || !n) {
		return turn->number;
	}
	skip = period % n;
	bpf_for (i, 0, GROUPS) {
		const struct group_share *g = &group_list[i & (GROUPS - 1)];
		u32 k, before = 0;

		bpf_for (k, 0, GROUPS) {
			const struct group_share *other = &group_list[k & (GROUPS - 1)];

			before += other->ready && other->number < g->number;
		}
		if (g->ready && before == skip) {
			used = g->number;
		}
	}
	return used;
}

/* Decides whose turn the next millisecond is. Not inlined, so that the verifier goes on with one
 * state. */
static __noinline void groups_divide(const struct gbpf_tick_ctx *ctx)
{
	struct group_turn_at turn = { .number = NO_GROUP };
	u32 i, most = 0, number = NO_GROUP;
	u64 all = 0;

	bpf_for (i, 0, GROUPS) {
		group_list[i & (GROUPS - 1)] = (struct group_share){};
	}
	n_groups = 0;
	groups_find(ctx);
	bpf_for (i, 0, RANKS) {
		if (i < n_ranks) {
			u32 t = ranks[i & (RANKS - 1)];

			group_join(t, group_of_tenant[t & 1023], ctx->now_ns);
		}
	}
	bpf_for (i, 0, GROUPS) {
		u32 weight = group_list[i & (GROUPS - 1)].weight;

		most = weight > most ? weight : most;
	}
	bpf_for (i, 0, GROUPS) { /* no turn is so short that it is all transition */
		struct group_share *g = &group_list[i & (GROUPS - 1)];

		g->weight = g->weight && g->weight < most / 8 ? most / 8 : g->weight;
		all += g->weight;
	}
	groups_present = n_ranks != 0;
	if (n_groups >= 2 && n_groups <= GROUPS && n_ranks <= RANKS && !groups_shared && all) {
		find_turn(&turn, ctx->now_ns % group_period_ns, all);
		number = user_of(&turn, ctx->now_ns / group_period_ns);
		group_turn_end_ns = ctx->now_ns + turn.left_ns;
	}
	group_turn = number;
	groups_ticked_ns = ctx->now_ns;
}

#endif
