/* The division of copy bandwidth by the copy shares of virtual GPUs, for copy_fair and vgpu_auto:
 * copy_fair.bpf.c says how it works. A policy has admit, copy_enqueue and tick that call
 * admit_copier, enqueue_by_share and divide_copies, and includes places.h first, so that a changed
 * copy of it takes effect. */
#ifndef GBPF_POLICIES_VGPU_COPIES_H
#define GBPF_POLICIES_VGPU_COPIES_H

#include "places.h"

const volatile u64 copy_slack_bytes = 2097152;	 /* bytes: debt at which pieces are held */
const volatile u64 copy_credit_bytes = 67108864; /* bytes: bound of credit and debt */
const volatile u32 copy_piece_bytes =
	4194304; /* bytes: piece while no latency program is present */
const volatile u32 short_piece_bytes = 1048576; /* bytes: piece while one is */
const volatile u64 short_ahead_bytes =
	2097152;			      /* bytes: unfinished pieces of a copy while one is */
const volatile u64 copy_latency_ns = 2000000; /* ns: longest hold of a piece for latency requests */
const volatile u64 copy_ahead_bytes = 16777216; /* bytes: unfinished pieces of a copy else */
const volatile u64 copy_active_ns =
	60000000; /* ns: a copy that was not asked about for this time is stuck */
const volatile u64 copy_turn_ns = 2000000;   /* ns: shortest turn of a vGPU, credit permitting */
const volatile u64 copy_stale_ns = 50000000; /* ns: published values older than this are ignored */

enum { COPY_HELD_FOR_SHARE = 8, COPY_HELD_FOR_LATENCY };

/* Of a tenant, one way. */
struct copier {
	u64 bytes; /* let go, in all */
	u64 busy;  /* 1: its latest copy could have used more of the link when it was asked about */
	u64 until_ns; /* busy: until then, unless it is asked about again */
	u64 began_ns; /* its latest copy in pieces */
};

/* Of a vGPU, one way, as of the last tick. */
struct copy_group {
	s64 credit_bytes;
	u64 used_bytes; /* in this tick */
	u64 share;	/* of the vGPUs that copy, in 65536ths; 0: it does not copy */
	u32 percent;	/* stated; 0: none */
	u32 weight;	/* of its tenants that copy */
	u32 wants, demand;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct copier);
} copiers SEC(".maps"); /* by direction */

GBPF_STANDARD_MAP(IO_BUDGETS);

/* Published by gbpfd. */
struct copy_turn {
	u64 since_ns;
	u32 place;  /* whose turn it is: the vGPU's place plus 1; 0: nobody's */
	u32 rivals; /* number of vGPUs that wait for their share */
	u32 rival;  /* place of one of these */
} copy_turns[2];    /* by direction */
u64 copy_ticked_ns;
u32 copy_latency; /* number of latency programs */
struct copy_group copy_groups[2 * GROUPS];
u64 copy_seen[2 * 1024]; /* by direction and tenant: bytes at the last tick */

static __always_inline void admit_copier(struct gbpf_admit_ctx *ctx)
{
	if (!ctx->rejoin) {
		copy_seen[ctx->tenant & 1023] = copy_seen[1024 + (ctx->tenant & 1023)] = 0;
	}
}

/* Returns the number of the note for a hold, -1 if the piece may go. */
static __always_inline int reason_to_hold(struct gbpf_copy_enqueue_ctx *ctx, const struct copier *c)
{
	u32 way = ctx->direction & 1;
	u32 at = way * GROUPS + ctx->vgpu;
	s64 since = (s64)(c->bytes - copy_seen[way * 1024 + ctx->tenant]), slack;
	u32 turn = copy_turns[way].place;

	if (ctx->class_id != GBPF_CLASS_LATENCY && ctx->lc_open && ctx->held_ns < copy_latency_ns) {
		return COPY_HELD_FOR_LATENCY;
	}
	if (ctx->now_ns > copy_ticked_ns + copy_stale_ns || !turn || turn == ctx->vgpu + 1) {
		return -1;
	}
	/* The vGPU's other programs pay for what its latency programs copy, as far as they can. */
	slack = ctx->class_id == GBPF_CLASS_LATENCY ? (s64)copy_credit_bytes
						    : (s64)copy_slack_bytes;
	return copy_groups[at].credit_bytes - since < -slack ? COPY_HELD_FOR_SHARE : -1;
}

/* All of a copy is issued. The bytes on their way keep the link busy for as long as the copy's
 * speed so far suggests. */
static __always_inline void end_of_copy(struct gbpf_copy_enqueue_ctx *ctx, struct copier *c)
{
	u64 done = ctx->bytes > ctx->unfinished ? ctx->bytes - ctx->unfinished : 1;
	u64 ns = ctx->unfinished / 1024 * (ctx->now_ns - c->began_ns) / (done / 1024 + 1);

	c->until_ns = ctx->now_ns + (ns < copy_active_ns ? ns : copy_active_ns);
	c->busy = c->busy && ctx->unfinished;
}

static __always_inline int enqueue_by_share(struct gbpf_copy_enqueue_ctx *ctx)
{
	u32 way = ctx->direction & 1;
	struct copier *c = bpf_map_lookup_elem(&copiers, &way);
	u64 piece = ctx->left;
	int reason;

	if (!c) {
		return GBPF_COPY_GO;
	}
	if (ctx->cut && !ctx->left) {
		end_of_copy(ctx, c);
		return GBPF_COPY_GO;
	}
	c->until_ns = ctx->now_ns + copy_active_ns;
	if (ctx->left == ctx->bytes && !ctx->asked) {
		c->began_ns = ctx->now_ns;
	}
	if (ctx->cut && (ctx->host == GBPF_HOST_PINNED || ctx->left == ctx->bytes)) {
		u32 wanted = copy_latency && ctx->class_id != GBPF_CLASS_LATENCY ? short_piece_bytes
										 : copy_piece_bytes;

		ctx->piece_bytes = ctx->host == GBPF_HOST_PINNED || wanted < ctx->piece_bytes
					   ? wanted
					   : ctx->piece_bytes;
	}
	if (ctx->cut && piece > ctx->piece_bytes) {
		piece = ctx->piece_bytes;
	}
	reason = ctx->forced ? -1 : reason_to_hold(ctx, c);
	if (reason >= 0) {
		if (!ctx->asked) {
			gbpf_note((u64)reason, 1);
		}
		c->busy = 1;
		ctx->why = reason == COPY_HELD_FOR_LATENCY ? GBPF_WHY_LATENCY : GBPF_WHY_SHARE;
		ctx->hold_ns = 200000;
		return GBPF_COPY_HOLD;
	}
	if (ctx->cut) {
		/* With less than two pieces on their way the copy is not slow for want of
		 * bandwidth. */
		c->busy = ctx->unfinished >= 2 * (u64)ctx->piece_bytes ||
			  (c->busy && ctx->unfinished);
		ctx->ahead_bytes = copy_ahead_bytes;
		if (copy_latency && ctx->class_id != GBPF_CLASS_LATENCY) {
			ctx->ahead_bytes = short_ahead_bytes;
			c->busy = ctx->unfinished != 0;
		}
		if (!ctx->forced && ctx->unfinished && ctx->unfinished + piece > ctx->ahead_bytes) {
			return GBPF_COPY_GO; /* waits, and is asked about again */
		}
	}
	__sync_fetch_and_add(&c->bytes, piece);
	return GBPF_COPY_GO;
}

/* ---- tick ---- */

static __always_inline void add_copier(u32 way, u32 t, u64 now)
{
	struct copier *c = gbpf_tenant_lookup(&copiers, t, &way);
	struct copy_group *g = &copy_groups[way * GROUPS + group_of(t)];
	u64 *seen = &copy_seen[way * 1024 + (t & 1023)], bytes;
	long weight = gbpf_tenant_weight(t);
	int wants;

	if (!c) {
		return;
	}
	bytes = c->bytes;
	wants = c->busy && c->until_ns > now;
	if (wants || bytes != *seen) {
		g->weight += weight > 0 ? (u32)weight : 1;
	}
	g->used_bytes += bytes > *seen ? bytes - *seen : 0;
	*seen = bytes;
	g->wants |= wants;
}

/* Totals of one way, over the vGPUs that copy. */
struct copy_totals {
	u64 used_bytes;
	s64 most_bytes; /* credit of the rival with the most */
	u32 stated, weight;
};
struct copy_totals copy_sum;

static __always_inline int copies_now(const struct copy_group *g)
{
	return g->demand > WANTED / 16 || g->used_bytes;
}

static __always_inline void count_copies(u32 place, struct copy_group *g)
{
	const struct gbpf_io_budgets *v =
		place < GBPF_VGPUS ? bpf_map_lookup_elem(&IO_BUDGETS, &place) : NULL;

	g->demand = average(g->demand, g->wants);
	g->percent = v ? v->copy_pct : 0;
	g->weight = g->weight ? g->weight : 1;
	copy_sum.used_bytes += g->used_bytes;
	if (copies_now(g)) {
		copy_sum.stated += g->percent;
		copy_sum.weight += g->percent ? 0 : g->weight;
	}
}

/* Returns whether another vGPU waited for its share at the last tick. */
static __always_inline int is_contended(u32 way, u32 place)
{
	const struct copy_turn *turn = &copy_turns[way];

	return turn->rivals > 1 || (turn->rivals == 1 && turn->rival != place);
}

/* Sets the share of a vGPU, grants it its part of what was copied, and charges what it copied. */
static __always_inline void settle_copies(struct copy_group *g, int contended)
{
	u32 left = copy_sum.stated < 95 ? 100 - copy_sum.stated : 5;
	u32 all = copy_sum.stated + (copy_sum.weight ? left : 0);
	s64 limit = (s64)copy_credit_bytes, floor = contended ? -limit : -(s64)copy_slack_bytes;

	if (!copies_now(g)) { /* nothing is saved, and nothing is owed */
		g->share = 0;
		g->credit_bytes = 0;
		return;
	}
	g->share = g->percent ? ((u64)g->percent << 16) / all
			      : (((u64)left * g->weight) << 16) / ((u64)all * copy_sum.weight);
	g->credit_bytes += (s64)(copy_sum.used_bytes * g->share >> 16) - (s64)g->used_bytes;
	g->credit_bytes = g->credit_bytes < floor   ? floor
			  : g->credit_bytes > limit ? limit
						    : g->credit_bytes;
}

/* Returns whether a vGPU could use more than it gets most of the time, and has that much credit. */
static __always_inline int waits_for_share(const struct copy_group *g, s64 credit)
{
	return g->demand > WANTED / 2 && g->credit_bytes >= credit;
}

/* Returns whether a vGPU keeps its turn. Copies of two programs to the device share an engine with
 * kernels there, and a change between them costs as much as a change between kernels does. */
static __always_inline int keeps_turn(u32 way, u64 now)
{
	u32 place = copy_turns[way].place - 1;
	s64 least = now - copy_turns[way].since_ns < copy_turn_ns ? -(s64)(copy_credit_bytes / 2)
								  : -(s64)copy_slack_bytes;

	return place < GROUPS && waits_for_share(&copy_groups[way * GROUPS + place], least);
}

/* Finds the vGPUs that wait for their share, and whose turn it is: of those the one with the most
 * credit. It is held by nobody, so the link is never idle while a vGPU could use it. */
static __always_inline void find_turn(u32 way, u64 now)
{
	struct copy_turn *turn = &copy_turns[way];
	u32 p;

	turn->rivals = 0;
	bpf_for (p, 0, GROUPS) {
		const struct copy_group *g = &copy_groups[way * GROUPS + p];

		if (!waits_for_share(g, -(s64)copy_slack_bytes)) {
			continue;
		}
		if (!turn->rivals || g->credit_bytes > copy_sum.most_bytes) {
			turn->rival = p;
			copy_sum.most_bytes = g->credit_bytes;
		}
		turn->rivals++;
	}
	if (!keeps_turn(way, now)) {
		turn->place = turn->rivals ? turn->rival + 1 : 0;
		turn->since_ns = now;
	}
}

static __always_inline void divide_way(const struct gbpf_tick_ctx *ctx, u32 way)
{
	u32 base = way * GROUPS, tenants = ctx->tenants < 1024 ? ctx->tenants : 1024, p, t;
	u64 now = ctx->now_ns;

	copy_sum = (struct copy_totals){};
	bpf_for (p, 0, GROUPS) {
		copy_groups[base + p].used_bytes = 0;
		copy_groups[base + p].weight = copy_groups[base + p].wants = 0;
	}
	bpf_for (t, 0, tenants) {
		add_copier(way, t, now);
	}
	bpf_for (p, 0, GROUPS) {
		count_copies(p, &copy_groups[base + p]);
	}
	bpf_for (p, 0, GROUPS) {
		settle_copies(&copy_groups[base + p], is_contended(way, p));
	}
	find_turn(way, now);
}

/* Divides both ways for the next millisecond. latency: number of latency programs. A function of
 * its own: behind its return the verifier has one state, not one for each path through it. */
static __noinline int divide_copies(struct gbpf_tick_ctx *ctx, u32 latency)
{
	copy_latency = latency;
	divide_way(ctx, 0);
	divide_way(ctx, 1);
	copy_ticked_ns = ctx->now_ns;
	return 0;
}

#endif
