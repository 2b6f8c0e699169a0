/* The run list of one GPU: groups have it in turn, each for its slice. What a group runs beyond its
 * slice is a debt that its next slices pay, so shares are exact however long a block's turn is. A
 * group that has nothing to run gives the rest of its slice away. docs/ARCHITECTURE.md says why
 * nobody starves. */
#include "base/clock.h"
#include "soft/server/device.h"

/* A machine that stood still must not be paid for by who was unlucky enough to have the GPU. */
#define DEBT_MAX_NS 100000000u

void runlist_count(struct group *g, uint64_t now)
{
	struct gpu *gpu = g->gpu;

	if (gpu->current == g && now > gpu->since_ns) {
		g->counters.held_ns += now - gpu->since_ns;
		gpu->since_ns = now;
	}
}

/* The current group goes: it is last now, and owes what it took too much. */
static void depart(struct gpu *gpu, uint64_t now)
{
	struct group *g = gpu->current;

	runlist_count(g, now);
	if (now > gpu->slice_end_ns) {
		g->debt_ns = MIN(g->debt_ns + (now - gpu->slice_end_ns), DEBT_MAX_NS);
	}
	list_remove(&g->in_gpu);
	list_append(&gpu->groups, &g->in_gpu);
	g->departures++;
	gpu->current = NULL;
	gpu->leaving = false;
}

static void count_departure(struct group *g)
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

static void arrive(struct gpu *gpu, struct group *g, uint64_t now)
{
	gpu->ready_ns = now;
	if (gpu->loaded != g) {
		g->counters.switches_in++;
		gpu->switches++;
		gpu->ready_ns += gpu->loaded ? gpu->dev->opt.switch_ns : 0;
	}
	gpu->current = gpu->loaded = g;
	gpu->since_ns = gpu->ready_ns;
	gpu->slice_end_ns = gpu->ready_ns + g->slice_ns - g->debt_ns;
	g->debt_ns = 0;
}

/* Everybody who could run owes more than a slice: rounds in which nobody would run are skipped. */
static void skip_rounds(struct gpu *gpu)
{
	uint64_t rounds = UINT64_MAX;

	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (group_runnable(g)) {
			rounds = MIN(rounds, g->debt_ns / g->slice_ns);
		}
	}
	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (group_runnable(g)) {
			g->debt_ns -= rounds * g->slice_ns;
		}
	}
}

/* The first that can run and does not owe its whole slice; who owes it is passed over. */
static struct group *next_in_turn(struct gpu *gpu)
{
	struct list passed;
	struct group *found = NULL;
	bool any = false;

	list_init(&passed);
	list_each_safe(&gpu->groups, g, struct group, in_gpu)
	{
		if (!group_runnable(g)) {
			continue;
		}
		any = true;
		if (g->debt_ns < g->slice_ns) {
			found = g;
			break;
		}
		g->debt_ns -= g->slice_ns;
		list_remove(&g->in_gpu);
		list_append(&passed, &g->in_gpu);
	}
	while (!list_empty(&passed)) {
		struct group *g = list_first(&passed, struct group, in_gpu);

		list_remove(&g->in_gpu);
		list_append(&gpu->groups, &g->in_gpu);
	}
	if (found || !any) {
		return found;
	}
	skip_rounds(gpu);
	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (group_runnable(g) && g->debt_ns < g->slice_ns) {
			return g;
		}
	}
	return NULL;
}

static bool others_wait(const struct gpu *gpu)
{
	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (g != gpu->current && group_runnable(g)) {
			return true;
		}
	}
	return false;
}

struct group *runlist_choose(struct gpu *gpu, uint64_t now)
{
	struct group *cur = gpu->current, *next;
	bool ready = cur && group_runnable(cur);

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
	g->running_blocks++;
	g->running++;
}

void runlist_leave(struct group *g, uint64_t now)
{
	struct gpu *gpu = g->gpu;

	g->running--;
	g->running_blocks--;
	if (--gpu->running_blocks == 0) {
		gpu->busy_ns += now > gpu->busy_from_ns ? now - gpu->busy_from_ns : 0;
	}
	if (gpu->leaving && gpu->current == g && g->running_blocks == 0) {
		depart(gpu, now);
	}
	if (g->running_blocks == 0 && (g->dead || g->watchers)) {
		pthread_cond_broadcast(&gpu->dev->settled);
	}
}

void runlist_preempt(struct group *g)
{
	struct gpu *gpu = g->gpu;
	uint64_t now = clock_now_ns();

	if (gpu->current != g) {
		return;
	}
	count_departure(g);
	gpu->slice_end_ns = MIN(gpu->slice_end_ns, now);
	if (g->running_blocks) {
		gpu->leaving = true;
	} else {
		depart(gpu, now);
	}
}

void runlist_forget(struct group *g)
{
	struct gpu *gpu = g->gpu;

	if (gpu->current == g) {
		gpu->current = NULL;
		gpu->leaving = false;
		gpu->ready_ns = 0;
	}
	if (gpu->loaded == g) {
		gpu->loaded = NULL;
	}
	list_remove(&g->in_gpu);
}
