/* The run list of one GPU: lanes have it in turn, each for its slice. What a lane runs beyond its
 * slice is a debt that its next slices pay, so shares are exact however long a block's turn is. A
 * lane that has nothing to run gives the rest of its slice away. docs/ARCHITECTURE.md says why
 * nobody starves. */
#include "base/clock.h"
#include "soft/server/machine.h"

/* A machine that stood still must not be paid for by who was unlucky enough to have the GPU. */
#define DEBT_MAX_NS 100000000u

void runlist_count(struct lane *lane, uint64_t now)
{
	struct gpu *gpu = lane->gpu;

	if (gpu->current != lane || now <= gpu->since_ns) {
		return;
	}
	list_each (&lane->members, g, struct group, in_lane) {
		g->counters.held_ns += now - gpu->since_ns;
	}
	gpu->since_ns = now;
}

/* The current group goes: it is last now, and owes what it took too much. */
static void depart(struct gpu *gpu, uint64_t now)
{
	struct lane *lane = gpu->current;

	runlist_count(lane, now);
	if (now > gpu->slice_end_ns) {
		lane->debt_ns = MIN(lane->debt_ns + (now - gpu->slice_end_ns), DEBT_MAX_NS);
	}
	list_remove(&lane->in_gpu);
	list_append(&gpu->lanes, &lane->in_gpu);
	lane->departures++;
	gpu->current = NULL;
	gpu->leaving = false;
}

static void count_for(struct group *g)
{
	if (!group_runnable(g)) {
		g->counters.left_idle++;
		return;
	}
	g->counters.preempted++;
	if (g->resident_blocks) {
		g->counters.left_inside++;
	} else {
		g->counters.left_between++;
	}
}

static void count_departure(struct lane *lane)
{
	list_each (&lane->members, g, struct group, in_lane) {
		count_for(g);
	}
}

static void arrive(struct gpu *gpu, struct lane *lane, uint64_t now)
{
	gpu->ready_ns = now;
	if (gpu->loaded != lane) {
		list_each (&lane->members, g, struct group, in_lane) {
			g->counters.switches_in++;
		}
		gpu->switches++;
		gpu->ready_ns += gpu->loaded ? gpu->dev->opt.switch_ns : 0;
	}
	gpu->current = gpu->loaded = lane;
	gpu->since_ns = gpu->ready_ns;
	gpu->slice_end_ns = gpu->ready_ns + lane->slice_ns - lane->debt_ns;
	lane->debt_ns = 0;
}

/* Everybody who could run owes more than a slice: rounds in which nobody would run are skipped. */
static void skip_rounds(struct gpu *gpu)
{
	uint64_t rounds = UINT64_MAX;

	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (lane_runnable(lane)) {
			rounds = MIN(rounds, lane->debt_ns / lane->slice_ns);
		}
	}
	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (lane_runnable(lane)) {
			lane->debt_ns -= rounds * lane->slice_ns;
		}
	}
}

/* The first that can run and does not owe its whole slice; who owes it is passed over. */
static struct lane *next_in_turn(struct gpu *gpu)
{
	struct list passed;
	struct lane *found = NULL;
	bool any = false;

	list_init(&passed);
	list_each_safe(&gpu->lanes, lane, struct lane, in_gpu)
	{
		if (!lane_runnable(lane)) {
			continue;
		}
		any = true;
		if (lane->debt_ns < lane->slice_ns) {
			found = lane;
			break;
		}
		lane->debt_ns -= lane->slice_ns;
		list_remove(&lane->in_gpu);
		list_append(&passed, &lane->in_gpu);
	}
	while (!list_empty(&passed)) {
		struct lane *lane = list_first(&passed, struct lane, in_gpu);

		list_remove(&lane->in_gpu);
		list_append(&gpu->lanes, &lane->in_gpu);
	}
	if (found || !any) {
		return found;
	}
	skip_rounds(gpu);
	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (lane_runnable(lane) && lane->debt_ns < lane->slice_ns) {
			return lane;
		}
	}
	return NULL;
}

static bool others_wait(const struct gpu *gpu)
{
	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (lane != gpu->current && lane_runnable(lane)) {
			return true;
		}
	}
	return false;
}

struct lane *runlist_choose(struct gpu *gpu, uint64_t now)
{
	struct lane *cur = gpu->current, *next;
	bool ready = cur && lane_runnable(cur);

	if (now < gpu->ready_ns || gpu->leaving) {
		return NULL;
	}
	if (cur && (ready || cur->running_blocks) && now < gpu->slice_end_ns) {
		return ready ? cur : NULL;
	}
	if (cur && !others_wait(gpu)) { /* alone: nobody is kept waiting, so nothing is owed */
		if (ready || cur->running_blocks) {
			runlist_count(cur, now);
		}
		gpu->since_ns = MAX(gpu->since_ns, now); /* idle time is nobody's */
		gpu->slice_end_ns = now + cur->slice_ns;
		return ready ? cur : NULL;
	}
	if (gpu->running_blocks) { /* of the group that goes, or of one that was destroyed */
		return NULL;
	}
	if (cur) {
		count_departure(cur);
		depart(gpu, now);
	}
	next = next_in_turn(gpu);
	if (!next) {
		return NULL;
	}
	arrive(gpu, next, now);
	return gpu->ready_ns > now ? NULL : next;
}

void runlist_enter(struct group *g, uint64_t now)
{
	if (g->gpu->running_blocks++ == 0) {
		g->gpu->busy_from_ns = now;
	}
	g->lane->running_blocks++;
	g->running_blocks++;
	g->running++;
}

void runlist_leave(struct group *g, uint64_t now)
{
	struct gpu *gpu = g->gpu;

	g->running--;
	g->running_blocks--;
	g->lane->running_blocks--;
	if (--gpu->running_blocks == 0) {
		gpu->busy_ns += now > gpu->busy_from_ns ? now - gpu->busy_from_ns : 0;
	}
	if (gpu->leaving && gpu->current == g->lane && g->lane->running_blocks == 0) {
		depart(gpu, now);
	}
	if (g->running_blocks == 0 && (g->dead || g->watchers)) {
		pthread_cond_broadcast(&gpu->dev->settled);
	}
}

void runlist_preempt(struct lane *lane)
{
	struct gpu *gpu = lane->gpu;
	uint64_t now = clock_now_ns();

	if (gpu->current != lane) {
		return;
	}
	count_departure(lane);
	gpu->slice_end_ns = MIN(gpu->slice_end_ns, now);
	if (lane->running_blocks) {
		gpu->leaving = true;
	} else {
		depart(gpu, now);
	}
}

void runlist_forget(struct lane *lane)
{
	struct gpu *gpu = lane->gpu;

	if (gpu->current == lane) {
		gpu->current = NULL;
		gpu->leaving = false;
		gpu->ready_ns = 0;
	}
	if (gpu->loaded == lane) {
		gpu->loaded = NULL;
	}
	list_remove(&lane->in_gpu);
}
