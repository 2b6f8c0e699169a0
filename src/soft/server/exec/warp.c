/* The loop over one warp. Lanes at the same pc form a group and run together; usually there is one.
 * After divergence the group deepest in calls, then earliest in the code, runs until it reaches the
 * pc of another group and merges with it. So that lanes spinning on other lanes of their warp
 * cannot starve them, a group that has not run for long gets a turn. It then runs ahead of the
 * others, and may come to the end of a loop in another round than they: on NVIDIA's GPUs lanes wait
 * for each other there, so only what is far longer than a part of a loop counts as long. */
#include <string.h>

#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

#define STARVED 65536u /* operations of other groups, after which one has a turn */
#define TURN 2048u     /* length of a turn, and of the time until the next one, at least */

void exec_group_save(const struct exec_warp *w, struct exec_lane_group *g)
{
	*g = (struct exec_lane_group){ .pc = w->pc,
				       .mask = w->mask,
				       .depth = w->depth,
				       .off32 = w->off32,
				       .off64 = w->off64,
				       .off_pred = w->off_pred,
				       .frame = w->frame,
				       .state = w->state,
				       .barrier = w->barrier,
				       .stamp = w->clock };
}

void exec_frame_set(struct exec_warp *w)
{
	uint64_t *frame;

	exec_warp_base_set(w, REF_R32, w->mem32 + w->off32);
	exec_warp_base_set(w, REF_R64, w->mem64 + w->off64);
	w->preds = w->mem_pred + w->off_pred;
	frame = REF(uint64_t, w, REF_SLOT32(WARP_FRAME, REF_WARP));
	if (frame[0] != w->frame) {
		for (unsigned i = 0; i < EXEC_LANES; i++) {
			frame[i] = w->frame;
		}
	}
}

static void group_load(struct exec_warp *w, const struct exec_lane_group *g)
{
	w->pc = g->pc;
	w->mask = g->mask;
	w->depth = g->depth;
	w->off32 = g->off32;
	w->off64 = g->off64;
	w->off_pred = g->off_pred;
	w->frame = g->frame;
	w->state = GROUP_READY;
	exec_frame_set(w);
}

static bool same_place(const struct exec_lane_group *a, const struct exec_lane_group *b)
{
	return a->pc == b->pc && a->depth == b->depth && a->off32 == b->off32 &&
	       a->off64 == b->off64 && a->off_pred == b->off_pred && a->frame == b->frame &&
	       (a->state == GROUP_BARRIER) == (b->state == GROUP_BARRIER);
}

/* Merges groups at the same pc. A group that waited for other lanes is evaluated again. */
static void groups_merge(struct exec_warp *w)
{
	for (uint32_t i = 0; i < w->n_groups; i++) {
		for (uint32_t j = i + 1; j < w->n_groups;) {
			struct exec_lane_group *a = &w->groups[i], *b = &w->groups[j];

			if (!same_place(a, b) ||
			    (a->state == GROUP_BARRIER && a->barrier != b->barrier)) {
				j++;
				continue;
			}
			a->mask |= b->mask;
			a->stamp = MIN(a->stamp, b->stamp);
			if (a->state == GROUP_SYNC || b->state == GROUP_SYNC) {
				a->state = GROUP_READY;
				a->stamp = w->clock;
			}
			*b = w->groups[--w->n_groups];
		}
	}
}

static struct exec_lane_group *choose(struct exec_warp *w, enum exec_group_state state, bool oldest)
{
	struct exec_lane_group *best = NULL;

	for (uint32_t i = 0; i < w->n_groups; i++) {
		struct exec_lane_group *g = &w->groups[i];

		if (g->state != state) {
			continue;
		}
		if (!best || (oldest ? g->stamp < best->stamp
				     : g->depth > best->depth ||
					       (g->depth == best->depth && g->pc < best->pc))) {
			best = g;
		}
	}
	return best;
}

/* Returns true if it is another group's turn although the current one could go on. */
static bool is_unfair(const struct exec_warp *w)
{
	if (w->forced) {
		return false; /* the turn of such a group is over */
	}
	for (uint32_t i = 0; i < w->n_groups && w->look_at; i++) {
		if (w->groups[i].state == GROUP_READY && w->clock - w->groups[i].stamp >= STARVED) {
			return true;
		}
	}
	return !w->look_at; /* the current group waits */
}

/* Determines when to look for starved groups: later than now, so that the current one goes on. A
 * barrier may let others go meanwhile. */
static void set_look(struct exec_warp *w)
{
	uint64_t at = w->clock + STARVED;

	for (uint32_t i = 0; i < w->n_groups; i++) {
		if (w->groups[i].state == GROUP_READY) {
			at = MIN(at, w->groups[i].stamp + STARVED);
		}
	}
	w->look_at = MAX(MAX(at, w->next_turn), w->clock + 1);
}

/* Saves the current group and loads the one that should run. Returns false if none can. */
static bool regroup(struct exec_warp *w, bool oldest)
{
	struct exec_lane_group *g, chosen;

	if (oldest || w->forced) {
		w->next_turn = w->clock + TURN;
	}
	if (w->mask && w->n_groups == 0 && w->state == GROUP_READY) {
		w->stop_pc = UINT32_MAX; /* the last group to arrive at a barrier */
		w->forced = oldest;
		set_look(w);
		return true;
	}
	if (w->mask) {
		exec_group_save(w, &w->groups[w->n_groups++]);
		w->mask = 0;
	}
	groups_merge(w);
	g = choose(w, GROUP_READY, oldest);
	if (!g && (w->sync_forced || !choose(w, GROUP_BARRIER, false))) {
		/* Lanes that a .sync names will not arrive: continue with those that are here. */
		g = choose(w, GROUP_SYNC, false);
		w->sync_forced = g != NULL;
	}
	if (!g) {
		return false;
	}
	chosen = *g;
	*g = w->groups[--w->n_groups];
	group_load(w, &chosen);
	w->forced = oldest;
	set_look(w);
	w->stop_pc = UINT32_MAX;
	for (uint32_t i = 0; i < w->n_groups && !oldest; i++) {
		/* A group at this very pc that has not merged is in another frame. */
		if (w->groups[i].depth == w->depth && w->groups[i].pc > w->pc &&
		    w->groups[i].state != GROUP_BARRIER) {
			w->stop_pc = MIN(w->stop_pc, w->groups[i].pc);
		}
	}
	return true;
}

bool exec_warp_ready(const struct exec_warp *w)
{
	bool sync = false, barrier = false;

	if (w->mask) {
		return true;
	}
	for (uint32_t i = 0; i < w->n_groups; i++) {
		if (w->groups[i].state == GROUP_READY) {
			return true;
		}
		sync = sync || w->groups[i].state == GROUP_SYNC;
		barrier = barrier || w->groups[i].state == GROUP_BARRIER;
	}
	return sync && (!barrier || w->sync_forced);
}

/* The inner loop: runs until n operations are done, the group may merge with another one, or a
 * handler returns another step. A handler with tail calls executes several operations; its final pc
 * tells their number. */
static int run_group(struct exec_warp *w, uint64_t n, uint64_t *ret_done)
{
	const struct exec_op *code = w->code;
	const uint64_t lanes = exec_lane_count(w->mask);
	uint64_t done = 0;
	int step = STEP_NEXT;

	w->run_end = (uintptr_t)code + (uintptr_t)w->stop_pc * sizeof(*code);
	while (done < n && w->pc < w->stop_pc) {
		uint32_t pc = w->pc, m = w->mask;
		const struct exec_op *o = &code[pc];

		w->pc = pc + 1;
		if (o->guard != EXEC_NO_PRED) {
			m &= w->preds[o->guard] ^ (o->guard_not ? ~0u : 0);
			if (m == 0) {
				done++;
				continue;
			}
		}
		if (o->tail_calls) {
			if (n - done < EXEC_RUN_MAX) {
				w->run_end = 0;
			}
			step = o->fn(w, o, m);
			done += MAX(w->pc - pc, 1u);
		} else {
			step = o->fn(w, o, m);
			done++;
		}
		if (step != STEP_NEXT) {
			break;
		}
	}
	*ret_done = done;
	w->block->lanes += done * lanes;
	w->clock += done;
	return step;
}

enum exec_warp_stop exec_warp_run(struct exec_warp *w, uint64_t n, uint64_t *used)
{
	uint64_t done;
	int step = w->mask ? STEP_NEXT : STEP_SWITCH;

	while (n > 0) {
		bool look = w->n_groups > 0 && w->clock >= w->look_at;

		if (step == STEP_SWITCH || w->pc >= w->stop_pc || look) {
			if (!regroup(w, look && is_unfair(w))) {
				return w->n_groups ? WARP_WAITS : WARP_ENDED;
			}
		}
		step = run_group(w, w->n_groups ? MIN(n, w->look_at - w->clock) : n, &done);
		n -= done;
		*used += done;
		if (step == STEP_FAULT) {
			return WARP_FAULT;
		}
		if (step == STEP_YIELD) {
			return WARP_YIELDS;
		}
		if (step == STEP_LONG) {
			*used += n;
			n = 0;
			step = STEP_SWITCH;
		}
	}
	if (step == STEP_SWITCH && w->mask) {
		/* The next call must find waiting lanes as such. */
		exec_group_save(w, &w->groups[w->n_groups++]);
		w->mask = 0;
	}
	return WARP_QUANTUM;
}
