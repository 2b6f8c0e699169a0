/* auto: what is known of pairs: a latency program next to certain batch programs. Batch that comes
 * and goes, or has a long kernel now and then, finds the ways as they were measured next to it, and
 * a trial that gained nothing is not repeated each time. */
#ifndef GBPF_POLICIES_AUTO_PAIRS_H
#define GBPF_POLICIES_AUTO_PAIRS_H

#include "cost.h"

struct pair_key {
	struct program program; /* the latency program */
	u64 batch;		/* sum of the hashes of the batch programs */
	u64 leaves;		/* magnitude() of how long they take to leave, in units of twice what
				 * requests may lose: of their mean, since of a new kind there is no
				 * shortest one yet */
	u32 stops;		/* 1: they are stoppable */
	u32 lane;		/* the latency program's lane */
};

struct pair {
	struct ways ways;
	u64 syncs16, launches16; /* the kind of requests for which they were measured */
	u64 way;
};

/* When it is full the least recently used pair makes room; the ways next to it are measured again.
 */
struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, struct pair_key);
	__type(value, struct pair);
} pairs SEC(".maps");

/* While they are used. Globals, since on the stack the verifier would track each value apart. */
struct pair_key pair_key;
struct pair pair_stored;

/* Returns n with all bits below the highest one set, so that numbers that differ by less than a factor
 * of two are mostly equal. Without branches, each of which would be a path for the verifier. */
static __always_inline u64 magnitude(u64 n)
{
	n |= n >> 1;
	n |= n >> 2;
	n |= n >> 4;
	n |= n >> 8;
	n |= n >> 16;
	return n | n >> 32;
}

/* Sets pair_key to the present pair of a latency tenant. */
static __always_inline void set_pair_key(const struct tenant *x)
{
	const struct ways *w = &x->kind.ways;
	u64 lose_ns = x->lane == GBPF_LANE_SHARED ? x->kind.mean_ns * shared_percent() / 100 : 0;

	pair_key.program = x->program;
	pair_key.batch = w->batch;
	pair_key.leaves = magnitude(w->leave_ns / (2 * max_u64(lose_ns, way_min_gain_ns)));
	pair_key.stops = w->stops;
	pair_key.lane = x->lane;
}

/* Stores what was measured next to the batch programs that were there until now. If little was, an
 * earlier measurement stays. */
static __always_inline void pair_store(const struct tenant *x)
{
	struct pair *p = &pair_stored;
	const struct kind *k = &x->kind;

	if (!x->program.command || !k->ways.batch || k->ways.batch == NO_PROGRAMS ||
	    k->ways.seen[k->way & 1] < way_min_seen) {
		return;
	}
	set_pair_key(x);
	p->ways = k->ways;
	p->syncs16 = k->syncs16;
	p->launches16 = k->launches16;
	p->way = k->way;
	bpf_map_update_elem(&pairs, &pair_key, p, BPF_ANY);
}

/* Takes over what is known of the ways next to the present batch programs. Returns 0 if nothing is
 * for such requests. */
static __always_inline int pair_recall(struct tenant *x, u64 now)
{
	struct kind *k = &x->kind;
	u64 leave_ns = k->ways.leave_ns, changed_ns = k->ways.changed_ns;
	const struct pair *p;

	if (!x->program.command) {
		return 0;
	}
	set_pair_key(x);
	p = bpf_map_lookup_elem(&pairs, &pair_key);
	if (!p || differs(p->syncs16, k->syncs16) || differs(p->launches16, k->launches16)) {
		return 0;
	}
	k->ways = p->ways;
	k->ways.leave_ns = leave_ns;
	k->ways.changed_ns = changed_ns;
	set_way(k, (u32)p->way, now);
	return 1;
}

#endif
