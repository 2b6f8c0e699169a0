/* Lanes, the entries of the run list: one context, or all contexts of the processes that named the
 * same folder in CUDA_MPS_PIPE_DIRECTORY. Those share a lane as clients of NVIDIA MPS share a
 * hardware context: their blocks run concurrently, by stream priority, and the lane has one time
 * slice. */
#include <errno.h>
#include <stdlib.h>

#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"

static struct softd_lane *find(struct softd_gpu *gpu, uint64_t key)
{
	softd_list_each (&gpu->lanes, lane, struct softd_lane, in_gpu) {
		if (key && lane->key == key) {
			return lane;
		}
	}
	return NULL;
}

static struct softd_lane *make(struct softd_gpu *gpu, uint64_t key)
{
	struct softd_lane *lane = calloc(1, sizeof(*lane));

	if (!lane) {
		return NULL;
	}
	lane->sms = calloc(gpu->machine->opt.sms, sizeof(*lane->sms));
	if (!lane->sms) {
		free(lane);
		return NULL;
	}
	lane->gpu = gpu;
	lane->key = key;
	lane->slice_ns = gpu->machine->opt.slice_ns;
	softd_list_init(&lane->members);
	softd_list_append(&gpu->lanes, &lane->in_gpu);
	softd_list_init(&lane->in_runlist);
	lane->position = ++gpu->positions;
	return lane;
}

int softd_lane_join(struct softd_group *g)
{
	uint64_t key = g->client->lane;
	struct softd_lane *lane = find(g->gpu, key);

	if (!lane) {
		lane = make(g->gpu, key);
	}
	if (!lane) {
		return -ENOMEM;
	}
	softd_list_append(&lane->members, &g->in_lane);
	lane->n_members++;
	g->lane = lane;
	return 0;
}

void softd_lane_leave(struct softd_group *g)
{
	struct softd_lane *lane = g->lane;

	softd_list_remove(&g->in_lane);
	if (--lane->n_members == 0) {
		softd_runlist_remove(lane);
		free(lane->sms);
		free(lane);
	}
	g->lane = NULL;
}

bool softd_lane_runnable(const struct softd_lane *lane)
{
	softd_list_each (&lane->members, g, struct softd_group, in_lane) {
		if (softd_group_runnable(g)) {
			return true;
		}
	}
	return false;
}
