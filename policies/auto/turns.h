/* auto: turns of several batch tenants. Process lane: one at a time launches, since slices of
 * microseconds would only switch contexts. Shared lane: two wide ones at a time run on each GPU. */
#ifndef GBPF_POLICIES_AUTO_TURNS_H
#define GBPF_POLICIES_AUTO_TURNS_H

#include "scan.h"

/* Turns of wide batch tenants in the shared lane of one GPU: two run at a time while there are
 * many. */
struct shared_turns {
	u64 since_ns;	 /* start of the newer turn */
	u64 many_ns;	 /* last time at which there were shared_turns_min_tenants */
	u32 turn[2];	 /* tenants that have the two turns, or NO_TURNS */
	u32 older, last; /* index of the older turn; tenant that got a turn last */
	/* of this scan: */
	u32 wanting, have; /* tenants that want the GPU; bit mask of turns still wanted */
	u32 first, next;   /* first tenant that wants a turn; the one after the last turn */
};

struct shared_turns shared_turns_of[SHARED_TURNS_GPUS];

static __always_inline void shared_turns_begin(void)
{
	u32 i;

	bpf_for (i, 0, SHARED_TURNS_GPUS) {
		struct shared_turns *c = &shared_turns_of[i & (SHARED_TURNS_GPUS - 1)];

		c->wanting = c->have = 0;
		c->first = c->next = NO_TURNS;
	}
}

/* Counts a tenant that takes turns in the shared lane and wants the GPU. */
static __always_inline void shared_turns_join(const struct tenant *x, u32 t)
{
	struct shared_turns *c = &shared_turns_of[(x->turns_gpu - 1) & (SHARED_TURNS_GPUS - 1)];

	c->wanting++;
	if (t == c->turn[0] || t == c->turn[1]) {
		c->have |= t == c->turn[0] ? 1 : 2;
		return;
	}
	if (c->first == NO_TURNS) {
		c->first = t;
	}
	if (c->next == NO_TURNS && t > c->last) {
		c->next = t;
	}
}

/* Passes on at most one turn per scan: one that is no longer wanted, or the older one when its time
 * is over. The tenants count as many for a while after they were, since one that waits for its own
 * results is back at once. */
static __always_inline void shared_turns_advance(struct shared_turns *c, u32 latency, u64 now)
{
	u32 next = c->next != NO_TURNS ? c->next : c->first, slot;
	u64 length = turn_round_ns / (c->wanting ? c->wanting : 1);

	length = min_u64(length, shared_turn_ns / 2);
	if (shared_turns_min_tenants && c->wanting >= shared_turns_min_tenants) {
		c->many_ns = now;
	}
	if (!latency || !c->many_ns || now > c->many_ns + shared_turn_ns) {
		c->turn[0] = c->turn[1] = NO_TURNS;
	} else if (next != NO_TURNS && (c->have != 3 || now >= c->since_ns + length)) {
		slot = !(c->have & 1) ? 0 : !(c->have & 2) ? 1 : c->older & 1;
		c->turn[slot] = c->last = next;
		c->older = slot ^ 1;
		c->since_ns = now;
	}
}

static __always_inline void shared_turns_advance_all(u32 latency, u64 now)
{
	u32 i;

	bpf_for (i, 0, SHARED_TURNS_GPUS) {
		shared_turns_advance(&shared_turns_of[i & (SHARED_TURNS_GPUS - 1)], latency, now);
	}
}

/* Returns 1 if others than t have the two turns. */
static __always_inline u8 waits_shared(const struct tenant *x, u32 t)
{
	const struct shared_turns *c =
		&shared_turns_of[(x->turns_gpu - 1) & (SHARED_TURNS_GPUS - 1)];

	return c->turn[0] != NO_TURNS && t != c->turn[0] && t != c->turn[1];
}

/* Counts a tenant that wants the GPU in the process lane. */
static __always_inline void turns_join(struct scan *l, u32 t)
{
	l->wanting++;
	l->holder_wants |= t == turn;
	if (l->first == NO_TURNS) {
		l->first = t;
	}
	if (l->next == NO_TURNS && t > last_turn) {
		l->next = t;
	}
}

/* Passes the turn in the process lane on when it is over: first no tenant launches, until all but
 * turn_overlap_ns of the previous tenant's work has finished. Without short slices there are no
 * turns. */
static __always_inline void turns_advance(const struct scan *l)
{
	u64 length = turn_round_ns / (l->wanting ? l->wanting : 1);
	u32 next = l->next != NO_TURNS ? l->next : l->first;

	length = min_u64(length, turn_max_ns);
	if (!l->latency || l->be - l->be_shared < 2 || no_slices) {
		turn = NO_TURNS;
		turn_ending = TURN_FREE;
		return;
	}
	if (turn == NO_TURNS) {
		turn = TURN_FREE;
	}
	if (turn != TURN_FREE && next != turn && next != NO_TURNS &&
	    (l->now_ns >= turn_since_ns + length || !l->holder_wants)) {
		turn_ending = turn;
		turn = TURN_FREE;
		turn_since_ns = l->now_ns;
	}
	if (turn == TURN_FREE && next != NO_TURNS &&
	    (gbpf_tenant_stat(turn_ending, GBPF_STAT_INFLIGHT_NS) <= turn_overlap_ns ||
	     l->now_ns >= turn_since_ns + turn_drain_max_ns)) {
		turn = last_turn = next;
		turn_ending = TURN_FREE;
		turn_since_ns = l->now_ns;
	}
}

#endif
