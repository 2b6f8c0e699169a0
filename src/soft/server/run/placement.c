/* Placement of blocks on SMs: which block of a lane runs next, which SM a new block gets, and how
 * much host memory blocks may take. Priority decides, except in every sixteenth turn, so that a
 * spinning block cannot starve the block it waits for. A launch restricted to a set of SMs (green
 * contexts) may bypass launches that wait for other SMs. */
#include <stdlib.h>
#include <string.h>

#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"

/* after this many turns of a block, further blocks start before it continues */
#define LONG_TURNS 16u
#define FAIR_TURN 16u

/* The number of further blocks of the launch that fit on the SM. */
static uint32_t room_on(const struct softd_sm *sm, const struct softd_launch *l)
{
	uint32_t threads = ROUND_UP(l->threads, 32u);
	uint32_t shared = l->shared_bytes + SOFTD_DEVICE_SHARED_RESERVED;
	uint32_t n = SOFTD_DEVICE_BLOCKS_PER_SM - sm->blocks;

	n = MIN(n, (SOFTD_DEVICE_THREADS_PER_SM - sm->threads) / threads);
	return MIN(n, (SOFTD_DEVICE_SHARED_PER_SM - sm->shared) / shared);
}

uint64_t softd_place_capacity(const struct softd_launch *l)
{
	static const struct softd_sm empty;

	return (uint64_t)(l->part.n ? l->part.n : l->client->sms) * room_on(&empty, l);
}

static bool may_be_on(const struct softd_launch *l, uint32_t sm)
{
	return !l->part.n || (l->part.sms[sm / 64] >> sm % 64 & 1);
}

/* SMs that earlier launches are waiting for; later launches must not take them. */
struct softd_awaited {
	bool all, any;
	uint64_t sms[SOFTD_DEVICE_SM_WORDS];
};

static void add_awaited(struct softd_awaited *a, const struct softd_launch *l)
{
	a->all = a->all || !l->part.n;
	a->any = true;
	for (unsigned i = 0; i < SOFTD_DEVICE_SM_WORDS && !a->all; i++) {
		a->sms[i] |= l->part.sms[i];
	}
}

static bool may_bypass(const struct softd_launch *l, const struct softd_awaited *a)
{
	if (!a->any || a->all || !l->part.n) {
		return !a->any;
	}
	for (unsigned i = 0; i < SOFTD_DEVICE_SM_WORDS; i++) {
		if (l->part.sms[i] & a->sms[i]) {
			return false;
		}
	}
	return true;
}

/* Returns the SM with the most room, round-robin among equals, or -1 if none has room. A client
 * limited to a percentage of the SMs uses the lowest-numbered ones. */
static int find_sm(const struct softd_group *g, const struct softd_launch *l)
{
	uint32_t n = g->client->sms, best_room = 0;
	int best = -1;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (g->lane->next_sm + i) % n, room;

		if (!may_be_on(l, at)) {
			continue;
		}
		room = room_on(&g->lane->sms[at], l);
		if (room > best_room) {
			best = (int)at;
			best_room = room;
		}
	}
	return best;
}

static bool memory_for(const struct softd_group *g, uint64_t bytes)
{
	const struct softd_client *c = g->client;
	const struct softd_machine *machine = c->machine;

	if (c->block_bytes == 0 && bytes <= SOFTD_DEVICE_FIRST_BLOCK_BYTES) {
		return true;
	}
	return c->block_bytes + bytes <= SOFT_BLOCK_BYTES_MAX &&
	       machine->block_bytes + bytes <= machine->block_limit;
}

static void charge(struct softd_group *g, struct softd_launch *l, uint64_t bytes)
{
	l->charged += bytes;
	g->client->block_bytes += bytes;
	g->client->machine->block_bytes += bytes;
}

static void uncharge(struct softd_group *g, struct softd_launch *l, uint64_t bytes)
{
	l->charged -= bytes;
	g->client->block_bytes -= bytes;
	g->client->machine->block_bytes -= bytes;
}

static bool gang_fits(const struct softd_group *g, const struct softd_launch *l)
{
	uint64_t room = 0;

	for (uint32_t i = 0; i < g->client->sms; i++) {
		room += may_be_on(l, i) ? room_on(&g->lane->sms[i], l) : 0;
	}
	return room >= l->total && memory_for(g, l->total * l->host_bytes);
}

static bool can_start(const struct softd_group *g, const struct softd_launch *l)
{
	if (l->gang) {
		return true;
	}
	if (l->cooperative) {
		return gang_fits(g, l);
	}
	return find_sm(g, l) >= 0 && (!softd_list_empty(&l->spare) || memory_for(g, l->host_bytes));
}

static void occupy(struct softd_group *g, const struct softd_launch *l, uint32_t at)
{
	struct softd_sm *sm = &g->lane->sms[at];

	sm->blocks++;
	sm->threads += ROUND_UP(l->threads, 32u);
	sm->shared += l->shared_bytes + SOFTD_DEVICE_SHARED_RESERVED;
	g->lane->next_sm = at + 1;
}

static void vacate(struct softd_group *g, const struct softd_launch *l, uint32_t at)
{
	struct softd_sm *sm = &g->lane->sms[at];

	sm->blocks--;
	sm->threads -= ROUND_UP(l->threads, 32u);
	sm->shared -= l->shared_bytes + SOFTD_DEVICE_SHARED_RESERVED;
}

_Static_assert(SOFTD_DEVICE_THREADS_PER_SM <= 64 * 32, "softd_sm.warps has a bit for each");

/* Returns the lowest free warp slots of the SM for a block that it has room for, and takes them. */
static uint64_t take_warps(struct softd_sm *sm, const struct softd_launch *l)
{
	uint64_t taken = 0;

	for (uint32_t n = ROUND_UP(l->threads, 32u) / 32u; n; n--) {
		uint64_t bit = ~sm->warps & (sm->warps + 1);

		sm->warps |= bit;
		taken |= bit;
	}
	return taken;
}

/* Reserves the places of all blocks of a cooperative launch at once. */
static bool place_gang(struct softd_group *g, struct softd_launch *l)
{
	l->gang = calloc(l->total, sizeof(*l->gang));
	if (!l->gang) {
		return false;
	}
	for (uint64_t i = 0; i < l->total; i++) {
		l->gang[i] = (uint32_t)find_sm(g, l);
		occupy(g, l, l->gang[i]);
	}
	charge(g, l, l->total * l->host_bytes);
	return true;
}

static struct softd_resident_block *block_for(struct softd_group *g, struct softd_launch *l)
{
	struct softd_resident_block *b;

	if (!softd_list_empty(&l->spare)) {
		b = softd_list_first(&l->spare, struct softd_resident_block, in_group);
		softd_list_remove(&b->in_group);
		return b;
	}
	b = calloc(1, sizeof(*b));
	if (b) {
		softd_list_init(&b->in_group);
		b->launch = l;
		if (!l->gang) {
			charge(g, l, l->host_bytes);
		}
	}
	return b;
}

static bool start_block(struct softd_group *g, struct softd_launch *l, struct softd_work *w)
{
	struct softd_resident_block *b;

	if (l->cooperative && !l->gang && !place_gang(g, l)) {
		return false;
	}
	b = block_for(g, l);
	if (!b) {
		return false;
	}
	w->index = l->next++;
	w->fresh = true;
	w->block = b;
	b->turns = 0;
	if (l->gang) {
		b->sm = l->gang[w->index];
	} else {
		b->sm = (uint32_t)find_sm(g, l);
		occupy(g, l, b->sm);
	}
	b->warps = take_warps(&g->lane->sms[b->sm], l);
	l->resident++;
	g->resident_blocks++;
	if (l->next == l->total) {
		softd_list_remove(&l->in_group);
	}
	return true;
}

/* Returns the oldest launch of the level that can start a block without taking SMs that earlier
 * launches wait for, or NULL. Adds the launches before it to *a. */
static struct softd_launch *startable(const struct softd_group *g, unsigned level,
				      struct softd_awaited *a)
{
	softd_list_each (&g->launches[level], l, struct softd_launch, in_group) {
		if (may_bypass(l, a) && can_start(g, l)) {
			return l;
		}
		add_awaited(a, l);
		if (a->all) {
			break;
		}
	}
	return NULL;
}

static struct softd_resident_block *waiting(const struct softd_group *g, unsigned level)
{
	const struct softd_list *l = &g->resident[level];

	return softd_list_empty(l) ? NULL
				   : softd_list_first(l, struct softd_resident_block, in_group);
}

bool softd_place_ready(const struct softd_group *g)
{
	struct softd_awaited a = { 0 };

	for (unsigned i = 0; i < SOFTD_DEVICE_LEVELS; i++) {
		if (waiting(g, i)) {
			return true;
		}
	}
	for (unsigned i = 0; i < SOFTD_DEVICE_LEVELS && !a.all; i++) {
		if (startable(g, i, &a)) {
			return true;
		}
	}
	return false;
}

/* Prefers a started block over a new one, unless it has run for LONG_TURNS turns: then it may be
 * spinning on a block that has not started, and new and started blocks alternate, so that short
 * launches that never run out cannot keep it from running. The blocks of a cooperative launch all
 * start before any continues. */
static bool choose_of(struct softd_group *g, unsigned level, const struct softd_awaited *before,
		      struct softd_work *w)
{
	struct softd_resident_block *old = waiting(g, level);
	struct softd_awaited a = *before;
	struct softd_launch *l = a.all ? NULL : startable(g, level, &a);
	bool pass = old && old->turns >= LONG_TURNS && !g->passed[level];

	if (l && (!old || pass || l->gang) && start_block(g, l, w)) {
		g->passed[level] = true;
		return true;
	}
	if (old) {
		softd_list_remove(&old->in_group);
		w->block = old;
		g->passed[level] = false;
	}
	return old;
}

/* Asks the lane's members in turn; a member that supplies a block moves to the end. */
static struct softd_group *choose_at(struct softd_lane *lane, unsigned level,
				     const struct softd_awaited *before, struct softd_work *w)
{
	softd_list_each_safe (&lane->members, g, struct softd_group, in_lane) {
		if (g->enabled && !g->dead && choose_of(g, level, before, w)) {
			softd_list_remove(&g->in_lane);
			softd_list_append(&lane->members, &g->in_lane);
			return g;
		}
	}
	return NULL;
}

static void await_level(const struct softd_lane *lane, unsigned level, struct softd_awaited *a)
{
	softd_list_each (&lane->members, g, struct softd_group, in_lane) {
		if (g->enabled && !g->dead && !a->all) {
			softd_list_each (&g->launches[level], l, struct softd_launch, in_group) {
				add_awaited(a, l);
			}
		}
	}
}

bool softd_place_choose(struct softd_lane *lane, struct softd_work *w)
{
	static const struct softd_awaited nobody;
	bool fair = ++lane->turns % FAIR_TURN == 0;
	struct softd_awaited a = { 0 };
	unsigned first = fair ? (unsigned)(lane->turns / FAIR_TURN % SOFTD_DEVICE_LEVELS) : 0;
	struct softd_group *g = NULL;

	for (unsigned i = 0; i < SOFTD_DEVICE_LEVELS && !g; i++) {
		unsigned level = (first + i) % SOFTD_DEVICE_LEVELS;

		g = choose_at(lane, level, fair ? &nobody : &a, w);
		await_level(lane, level, &a);
	}
	if (!g) {
		return false;
	}
	w->group = g;
	w->launch = w->block->launch;
	return true;
}

void softd_place_remove(struct softd_resident_block *b, bool keep)
{
	struct softd_launch *l = b->launch;
	struct softd_group *g = l->op->stream->group;

	softd_list_remove(&b->in_group);
	g->lane->sms[b->sm].warps &= ~b->warps;
	if (!l->gang) {
		vacate(g, l, b->sm);
	}
	g->resident_blocks--;
	l->resident--;
	if (keep && b->block && !l->gang) {
		softd_list_append(&l->spare, &b->in_group);
		return;
	}
	if (!l->gang) {
		uncharge(g, l, l->host_bytes);
	}
	exec_block_destroy(b->block);
	free(b);
}

void softd_place_remove_all(struct softd_launch *l)
{
	struct softd_group *g = l->op->stream->group;

	softd_list_each_safe (&g->resident[l->level], b, struct softd_resident_block, in_group) {
		if (b->launch == l) {
			softd_place_remove(b, false);
		}
	}
	softd_list_each_safe (&l->spare, b, struct softd_resident_block, in_group) {
		softd_list_remove(&b->in_group);
		uncharge(g, l, l->host_bytes);
		exec_block_destroy(b->block);
		free(b);
	}
	if (l->gang) { /* no worker holds a block of it */
		for (uint64_t i = 0; i < l->total; i++) {
			vacate(g, l, l->gang[i]);
		}
		uncharge(g, l, l->charged);
		free(l->gang);
		l->gang = NULL;
	}
}
