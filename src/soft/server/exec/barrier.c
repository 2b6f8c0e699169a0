/* Barriers of a block. Threads arrive, lane by lane if a warp has diverged. Exited threads count as
 * arrived unless the barrier names the number of threads it expects. */
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

static bool is_complete(const struct exec_block *b, unsigned n)
{
	const struct exec_barrier *bar = &b->barriers[n];
	uint32_t threads = bar->extra;
	bool all = true, some = false;

	/* backwards: the last warps arrive last */
	for (uint32_t i = b->n_warps; i-- > 0;) {
		const struct exec_warp *w = &b->warps[i];
		uint32_t arrived = w->arrived[n];
		bool whole = (arrived | w->idle) == ~0u;

		if (!whole && !bar->expected) {
			return false;
		}
		some = some || arrived;
		all = all && whole;
		/* A warp counts as 32 threads even if it is the last, partial one. */
		threads += arrived && whole ? EXEC_LANES : exec_lane_count(arrived);
	}
	return bar->expected ? threads >= bar->expected : all && some;
}

struct exec_reduction {
	uint32_t count, total;
};

static void release(struct exec_warp *w, uint32_t pc, uint32_t mask, uint32_t off32,
		    uint32_t off_pred, const struct exec_reduction *red)
{
	const struct exec_op *o = &w->code[pc - 1];

	if (o->sub == BAR_RED_POPC) {
		uint32_t *d = (uint32_t *)(w->mem32 + off32 + (o->d & ~(uint32_t)REF_MASK));

		exec_each_lane (mask, lane) {
			d[lane] = red->count;
		}
	} else if (o->sub == BAR_RED_AND || o->sub == BAR_RED_OR) {
		bool v = o->sub == BAR_RED_AND ? red->count == red->total : red->count > 0;
		uint32_t *p = &w->mem_pred[off_pred + o->p];

		*p = (*p & ~mask) | (v ? mask : 0);
	}
}

static void open_barrier(struct exec_block *b, unsigned n)
{
	struct exec_reduction red = { 0 };

	for (uint32_t i = 0; i < b->n_warps; i++) {
		const struct exec_warp *w = &b->warps[i];

		red.total += exec_lane_count(w->arrived[n]);
		red.count += exec_lane_count(w->arrived[n] & w->red_in[n]);
	}
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct exec_warp *w = &b->warps[i];

		w->arrived[n] = 0;
		for (uint32_t k = 0; k < w->n_groups; k++) {
			struct exec_lane_group *g = &w->groups[k];

			if (g->state == GROUP_BARRIER && g->barrier == n) {
				g->state = GROUP_READY;
				g->stamp = w->clock;
				release(w, g->pc, g->mask, g->off32, g->off_pred, &red);
			}
		}
		if (w->mask && w->state == GROUP_BARRIER && w->barrier == n) {
			w->state = GROUP_READY;
			release(w, w->pc, w->mask, w->off32, w->off_pred, &red);
		}
	}
	exec_check_barrier(b);
	b->barriers[n] = (struct exec_barrier){ 0 };
	b->barriers_used &= ~(1u << n);
}

/* barrier.cluster: arrive and wait are separate, so threads may still have to wait after it opens.
 */
static void check_cluster(struct exec_block *b)
{
	for (uint32_t i = 0; i < b->n_warps; i++) {
		if ((b->warps[i].cluster_arrived | b->warps[i].idle) != ~0u) {
			return;
		}
	}
	b->barriers_used &= ~(1u << EXEC_BARRIER_CLUSTER);
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct exec_warp *w = &b->warps[i];

		w->cluster_passed = w->cluster_arrived;
		w->cluster_arrived = 0;
		for (uint32_t k = 0; k < w->n_groups; k++) {
			struct exec_lane_group *g = &w->groups[k];

			if (g->state == GROUP_BARRIER && g->barrier == EXEC_BARRIER_CLUSTER) {
				g->state = GROUP_READY;
				g->stamp = w->clock;
				w->cluster_passed &= ~g->mask;
			}
		}
	}
}

void exec_barrier_check(struct exec_block *b)
{
	exec_each_lane (b->barriers_used, n) {
		if (n == EXEC_BARRIER_CLUSTER) {
			check_cluster(b);
		} else if (is_complete(b, n)) {
			open_barrier(b, n);
		}
	}
}
