/* Lanes: the entries of the run list. Processes that named the same folder in
 * CUDA_MPS_PIPE_DIRECTORY share one, as clients of NVIDIA MPS share a hardware context: their
 * blocks run beside each other, urgent streams first, and none of them has slices of its own. */
#include <errno.h>
#include <stdlib.h>

#include "soft/server/machine.h"

static struct lane *find(struct gpu *gpu, uint64_t key)
{
	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (key && lane->key == key) {
			return lane;
		}
	}
	return NULL;
}

static struct lane *make(struct gpu *gpu, uint64_t key)
{
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!lane) {
		return NULL;
	}
	lane->sms = calloc(gpu->dev->opt.sms, sizeof(*lane->sms));
	if (!lane->sms) {
		free(lane);
		return NULL;
	}
	lane->gpu = gpu;
	lane->key = key;
	lane->slice_ns = gpu->dev->opt.slice_ns;
	list_init(&lane->members);
	list_append(&gpu->lanes, &lane->in_gpu);
	return lane;
}

int lane_join(struct group *g)
{
	uint64_t key = g->client->lane;
	struct lane *lane = find(g->gpu, key);

	if (!lane) {
		lane = make(g->gpu, key);
	}
	if (!lane) {
		return -ENOMEM;
	}
	list_append(&lane->members, &g->in_lane);
	lane->n_members++;
	g->lane = lane;
	return 0;
}

void lane_leave(struct group *g)
{
	struct lane *lane = g->lane;

	list_remove(&g->in_lane);
	if (--lane->n_members == 0) {
		runlist_forget(lane);
		free(lane->sms);
		free(lane);
	}
	g->lane = NULL;
}

bool lane_runnable(const struct lane *lane)
{
	list_each (&lane->members, g, struct group, in_lane) {
		if (group_runnable(g)) {
			return true;
		}
	}
	return false;
}
