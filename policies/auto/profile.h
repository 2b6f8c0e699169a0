/* auto: what is kept of a program for its next start, and the lane that follows from it. A tenant's
 * lane cannot change while it runs, so `auto` applies what it learned in earlier runs. */
#ifndef GBPF_POLICIES_AUTO_PROFILE_H
#define GBPF_POLICIES_AUTO_PROFILE_H

#include "pairs.h"

/* Returns 1 if the profile belongs in the shared lane, 0 if not, -1 if it is not known. */
static __always_inline int leaving_profile(const struct profile *p)
{
	if (!p || p->seen_ns < profile_min_ns) {
		return -1;
	}
	return p->soon_ns * 100 >= p->seen_ns * shared_min_stoppable_percent;
}

/* Returns the lane of a batch tenant with this profile. The tenants that the last tick saw may have
 * exited: there are no ticks while no tenant is active. */
static __always_inline u32 lane_of_new_batch(const struct gbpf_admit_ctx *ctx,
					     const struct profile *p)
{
	int leaves = leaving_profile(p);

	if (!(leaves < 0 ? start_shared : (u32)leaves)) {
		return GBPF_LANE_PROCESS;
	}
	return ctx->latency_tenants && latency_tenants && !latency_shared ? GBPF_LANE_PROCESS
									  : GBPF_LANE_SHARED;
}

/* Returns the lane of a latency tenant: that of the batch tenants; else that of other latency
 * tenants; else the one that the last batch program will get when it starts again, which may not be
 * the one that it had. */
static __always_inline u32 lane_of_new_latency(const struct gbpf_admit_ctx *ctx)
{
	struct program last = last_batch;
	int leaves;

	if (other_tenants && ctx->tenants > ctx->latency_tenants) {
		return other_shared < other_tenants ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	if (latency_tenants && ctx->latency_tenants) {
		return latency_shared < latency_tenants ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	leaves = batch_seen && last.command ? leaving_profile(bpf_map_lookup_elem(&profiles, &last))
					    : -1;
	if (leaves >= 0) {
		return (u32)leaves;
	}
	return batch_seen ? last_batch_lane : start_shared & 1;
}

/* Returns the part of the multiprocessors that a batch program which starts has, in percent; 0: all.
 * Next to no latency program all of them serve it best; one that was there a while ago is starting
 * again, too. */
static __always_inline u32 part_of_new_batch(const struct gbpf_admit_ctx *ctx,
					     const struct profile *p)
{
	int expected = latency_seen_ns && ctx->now_ns < latency_seen_ns + confined_after_ns;

	if (ctx->lane != GBPF_LANE_SHARED) {
		return 0;
	}
	if (batch_sm_percent) {
		return batch_sm_percent < 100 ? batch_sm_percent : 0;
	}
	return p && p->part == PART_CONFINED && (ctx->latency_tenants || expected) ? confined_percent
										   : 0;
}

/* Returns the part of the multiprocessors that a program has which is admitted once more, 0: all: what
 * it was given when it started, whatever is known now. kept: as was known of the tenant. */
static __always_inline u32 part_of_running(const struct gbpf_admit_ctx *ctx, u32 kept)
{
	if (ctx->lane != GBPF_LANE_SHARED) {
		return 0;
	}
	return ctx->sm_percent < 100 ? ctx->sm_percent : kept;
}

/* Returns which multiprocessors a batch program has at its next start, PART_*, after a run with the
 * part that auto chose, 0: all. before: what was known of it. */
static __always_inline u64 next_part(u64 before, u32 sm_percent)
{
	if (sm_percent) {
		return passing == PASSING_FAILS	   ? PART_USELESS
		       : passing == PASSING_SERVES ? PART_CONFINED
		       : passing == PASSING_SELDOM ? PART_ALL
						   : before;
	}
	return passing == PASSING_SERVES				? PART_ALL
	       : passing == PASSING_FAILS && before != PART_USELESS ? PART_CONFINED
								    : before;
}

/* Returns 1 if auto has chosen the part of the multiprocessors that a tenant has. */
static __always_inline int is_auto_part(const struct tenant *x)
{
	return x->lane == GBPF_LANE_SHARED && !batch_sm_percent && !x->part_lost &&
	       (!x->sm_percent || x->sm_percent == confined_percent);
}

/* Says which multiprocessors batch tenant t has, and what changes at its next start. */
static __always_inline void explain_part(u32 t, u32 sm_percent, u64 next)
{
	if (sm_percent) {
		gbpf_explain(t, "has %u %% of the multiprocessors, so that requests find others free",
			     sm_percent);
	} else if (next == PART_CONFINED) {
		gbpf_explain(t, "is held in requests; at its next start it has %u %% of the "
				"multiprocessors",
			     confined_percent);
	}
}

/* Takes over what the last run of a latency program taught. Costs and durations depend on the
 * lane, so they are of use in the same one only. What the ways cost is kept of the pair, too: a program
 * that starts has bursts of other kinds, and its requests find them again after these. */
static __always_inline void recall(struct tenant *t, const struct profile *p, u32 lane)
{
	if (!p || !p->kind.syncs16) {
		return;
	}
	t->kind = p->kind;
	t->kind.bursts = t->kind.odd_bursts = 0;
	t->lane = lane;
	if (p->kind.lane == lane) {
		pair_store(t);
	} else {
		t->kind.mean_ns = t->kind.best_ns = t->kind.ends_ns = 0;
		t->kind.close_delay_ns = 0;
		t->kind.way = lane == GBPF_LANE_SHARED ? WAY_LEAVING : WAY_SLICED;
		__builtin_memset(&t->kind.ways, 0, sizeof(t->kind.ways));
	}
}

/* Undoes a trial in a copy of what is known: the next run begins with the way from before. */
static __always_inline void forget_trial(struct kind *k)
{
	if (k->ways.trial) {
		k->ways.trial = k->ways.seen[k->ways.tried & 1] = 0;
		k->way = (k->ways.tried ^ 1) & 1;
	}
}

#define EXPLAIN(t, k, way, in_force, other)                                                         \
	do {                                                                                        \
		const struct ways *w = &(k)->ways;                                                  \
                                                                                                    \
		if (w->seen[(way) ^ 1]) {                                                           \
			gbpf_explain(t,                                                             \
				     in_force " requests, which take %llu + %llu us; batch has "    \
					      "%llu %% of the time; " other " + %llu us, %llu %%",  \
				     (k)->best_ns / 1000, w->cost_ns[way] / 1000,                   \
				     w->progress[way] * 100 / 1024, w->cost_ns[(way) ^ 1] / 1000,   \
				     w->progress[(way) ^ 1] * 100 / 1024);                          \
		} else {                                                                            \
			gbpf_explain(t,                                                             \
				     in_force " requests, which take %llu + %llu us; batch has "    \
					      "%llu %% of the time",                                \
				     (k)->best_ns / 1000, w->cost_ns[way] / 1000,                   \
				     w->progress[way] * 100 / 1024);                                \
		}                                                                                   \
	} while (0)

/* Says which way was chosen for the requests of tenant t, how much longer than the shortest they take
 * under each, and batch's part of the time then. */
static __always_inline void explain_way(u32 t, const struct kind *k, u32 lane)
{
	if (!k->ways.seen[k->way & 1]) {
		gbpf_explain(t, "requests next to batch were not measured yet");
	} else if (lane == GBPF_LANE_SHARED && k->way == WAY_PASSING) {
		EXPLAIN(t, k, WAY_PASSING, "batch passes", "if held");
	} else if (lane == GBPF_LANE_SHARED) {
		EXPLAIN(t, k, WAY_LEAVING, "batch is held in", "if passing");
	} else if (k->way == WAY_SLICED) {
		EXPLAIN(t, k, WAY_SLICED, "batch has slices in", "if held");
	} else {
		EXPLAIN(t, k, WAY_LEAVING, "batch is held in", "with slices");
	}
}

struct profile stored; /* while it is copied into the map */

/* Stores for the next start of a program what was learned of it: the GPU time of a batch tenant, or
 * the requests of a latency tenant. */
static __always_inline void remember(u32 t)
{
	struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
	struct profile *p = &stored, *before;
	long class_id = gbpf_tenant_class(t);
	struct account *a;
	u32 key = 0;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (x && class_id == GBPF_CLASS_LATENCY) {
		explain_way(t, &x->kind, x->lane);
	}
	if (!x || !a || class_id < 0 || !x->program.command) {
		return;
	}
	if (class_id == GBPF_CLASS_LATENCY ? x->kind.bursts < way_min_seen
					   : a->seen_ns < profile_min_ns) {
		return;
	}
	before = bpf_map_lookup_elem(&profiles, &x->program); /* as of both classes */
	if (before) {
		*p = *before;
	} else {
		__builtin_memset(p, 0, sizeof(*p));
	}
	if (class_id == GBPF_CLASS_LATENCY) {
		p->kind = x->kind;
		forget_trial(&p->kind);
	} else {
		p->seen_ns = a->seen_ns;
		p->soon_ns = a->soon_ns;
		if (is_auto_part(x) && class_id == GBPF_CLASS_BATCH) {
			p->part = next_part(p->part, x->sm_percent);
			explain_part(t, x->sm_percent, p->part);
		}
	}
	bpf_map_update_elem(&profiles, &x->program, p, BPF_ANY);
}

#endif
