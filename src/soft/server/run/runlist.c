/* The run list of one GPU: lanes take turns, each for its time slice. Time used beyond the slice is
 * a debt deducted from the lane's next slices, so shares are exact even though a block's turn
 * cannot be interrupted. A lane without runnable blocks yields the rest of its slice.
 * docs/SOFTGPU-INTERNALS.md shows that no lane starves. */
#include "base/clock.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"

/* Upper limit of a debt: a pause of the whole host must not be charged to the lane that was
 * current. */
#define DEBT_MAX_NS 100000000u

void softd_runlist_account(struct softd_lane *lane, uint64_t now)
{
	struct softd_gpu *gpu = lane->gpu;

	if (gpu->current != lane || now <= gpu->since_ns) {
		return;
	}
	softd_list_each (&lane->members, g, struct softd_group, in_lane) {
		g->counters.held_ns += now - gpu->since_ns;
	}
	gpu->since_ns = now;
}

/* Moves the lane to the end of the run list, or makes it come in there when it has work. */
static void to_end(struct softd_lane *lane)
{
	lane->position = ++lane->gpu->positions;
	softd_list_remove(&lane->in_runlist);
	if (lane->launches) {
		softd_list_append(&lane->gpu->runlist, &lane->in_runlist);
	}
}

void softd_runlist_launched(struct softd_lane *lane)
{
	struct softd_list *at = &lane->gpu->runlist;

	if (lane->launches++) {
		return;
	}
	while (at->prev != &lane->gpu->runlist &&
	       container_of(at->prev, struct softd_lane, in_runlist)->position > lane->position) {
		at = at->prev;
	}
	softd_list_insert(at, &lane->in_runlist);
}

void softd_runlist_ended(struct softd_lane *lane)
{
	if (--lane->launches == 0) {
		softd_list_remove(&lane->in_runlist);
	}
}

/* Ends the current lane's slice: moves it to the end of the list and records its overrun as debt.
 */
static void depart(struct softd_gpu *gpu, uint64_t now) REQUIRES(softd_lock)
{
	struct softd_lane *lane = gpu->current;

	softd_runlist_account(lane, now);
	if (now > gpu->slice_end_ns) {
		lane->debt_ns = MIN(lane->debt_ns + (now - gpu->slice_end_ns), DEBT_MAX_NS);
	}
	to_end(lane);
	lane->departures++;
	gpu->current = NULL;
	gpu->departing = false;
}

static void count_for(struct softd_group *g) REQUIRES(softd_lock)
{
	if (!softd_group_runnable(g)) {
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

static void count_departure(struct softd_lane *lane) REQUIRES(softd_lock)
{
	softd_list_each (&lane->members, g, struct softd_group, in_lane) {
		count_for(g);
	}
}

static void arrive(struct softd_gpu *gpu, struct softd_lane *lane, uint64_t now)
{
	gpu->ready_ns = now;
	if (gpu->loaded != lane) {
		softd_list_each (&lane->members, g, struct softd_group, in_lane) {
			g->counters.switches_in++;
		}
		gpu->switches++;
		gpu->ready_ns += gpu->loaded ? gpu->machine->opt.switch_ns : 0;
	}
	gpu->current = gpu->loaded = lane;
	gpu->since_ns = gpu->ready_ns;
	gpu->slice_end_ns = gpu->ready_ns + lane->slice_ns - lane->debt_ns;
	lane->debt_ns = 0;
}

/* Called when every runnable lane owes more than a slice: deducts at once the rounds in which none
 * of them would run. */
static void skip_rounds(struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	uint64_t rounds = UINT64_MAX;

	softd_list_each (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (softd_lane_runnable(lane)) {
			rounds = MIN(rounds, lane->debt_ns / lane->slice_ns);
		}
	}
	softd_list_each (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (softd_lane_runnable(lane)) {
			lane->debt_ns -= rounds * lane->slice_ns;
		}
	}
}

/* Returns the first runnable lane that owes less than its slice. Each lane passed over pays one
 * slice of its debt and moves to the end. */
static struct softd_lane *next_in_turn(struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	struct softd_list passed;
	struct softd_lane *found = NULL;
	bool any = false;

	softd_list_init(&passed);
	softd_list_each_safe (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (!softd_lane_runnable(lane)) {
			continue;
		}
		any = true;
		if (lane->debt_ns < lane->slice_ns) {
			found = lane;
			break;
		}
		lane->debt_ns -= lane->slice_ns;
		softd_list_remove(&lane->in_runlist);
		softd_list_append(&passed, &lane->in_runlist);
	}
	while (!softd_list_empty(&passed)) {
		to_end(softd_list_first(&passed, struct softd_lane, in_runlist));
	}
	if (found || !any) {
		return found;
	}
	skip_rounds(gpu);
	softd_list_each (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (softd_lane_runnable(lane) && lane->debt_ns < lane->slice_ns) {
			return lane;
		}
	}
	return NULL;
}

static bool others_wait(const struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	softd_list_each (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (lane != gpu->current && softd_lane_runnable(lane)) {
			return true;
		}
	}
	return false;
}

struct softd_lane *softd_runlist_choose(struct softd_gpu *gpu, uint64_t now)
{
	struct softd_lane *cur = gpu->current, *next;
	bool ready = cur && softd_lane_runnable(cur);

	if (now < gpu->ready_ns || gpu->departing) {
		return NULL;
	}
	if (cur && (ready || cur->running_blocks) && now < gpu->slice_end_ns) {
		return ready ? cur : NULL;
	}
	if (cur && !others_wait(gpu)) { /* no other lane is waiting: no debt arises */
		if (ready || cur->running_blocks) {
			softd_runlist_account(cur, now);
		}
		gpu->since_ns = MAX(gpu->since_ns, now); /* idle time is charged to no lane */
		gpu->slice_end_ns = now + cur->slice_ns;
		return ready ? cur : NULL;
	}
	if (gpu->running_blocks) { /* blocks of the departing lane, or of one that was destroyed */
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

void softd_runlist_enter(struct softd_group *g, uint64_t now)
{
	if (g->gpu->running_blocks++ == 0) {
		g->gpu->busy_from_ns = now;
	}
	g->lane->running_blocks++;
	g->running_blocks++;
	g->running++;
}

void softd_runlist_leave(struct softd_group *g, uint64_t now)
{
	struct softd_gpu *gpu = g->gpu;

	g->running--;
	g->running_blocks--;
	g->lane->running_blocks--;
	if (--gpu->running_blocks == 0) {
		gpu->busy_ns += now > gpu->busy_from_ns ? now - gpu->busy_from_ns : 0;
	}
	if (gpu->departing && gpu->current == g->lane && g->lane->running_blocks == 0) {
		depart(gpu, now);
	}
	if (g->running_blocks == 0 && (g->dead || g->watchers)) {
		pthread_cond_broadcast(&gpu->machine->quiescent);
	}
}

void softd_runlist_preempt(struct softd_lane *lane)
{
	struct softd_gpu *gpu = lane->gpu;
	uint64_t now = clock_now_ns();

	if (gpu->current != lane) {
		return;
	}
	count_departure(lane);
	gpu->slice_end_ns = MIN(gpu->slice_end_ns, now);
	if (lane->running_blocks) {
		gpu->departing = true;
	} else {
		depart(gpu, now);
	}
}

void softd_runlist_remove(struct softd_lane *lane)
{
	struct softd_gpu *gpu = lane->gpu;

	if (gpu->current == lane) {
		gpu->current = NULL;
		gpu->departing = false;
		gpu->ready_ns = 0;
	}
	if (gpu->loaded == lane) {
		gpu->loaded = NULL;
	}
	softd_list_remove(&lane->in_gpu);
	softd_list_remove(&lane->in_runlist);
}
