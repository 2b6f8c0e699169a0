/* Launches: from a ring record to blocks that workers can start, and to the retired operation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

#define WORKSPACE_BYTES 256u

struct softd_launch *softd_launch_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_launch *r)
{
	const struct softd_function *f =
		r->function < c->n_functions ? &c->functions[r->function] : NULL;
	struct softd_module *m = f && f->exec ? c->modules[f->module] : NULL;
	const struct exec_function_info *info;
	struct softd_launch *l;

	if (!m || m->group != g) {
		return NULL;
	}
	info = exec_function_info(f->exec);
	l = calloc(1, sizeof(*l) + r->param_bytes);
	if (!l) {
		return NULL;
	}
	l->threads = r->block[0] * r->block[1] * r->block[2];
	l->params = (uint8_t *)(l + 1);
	softd_list_init(&l->in_group);
	softd_list_init(&l->spare);
	if (r->param_bytes < info->param_bytes || info->param_bytes > SOFT_MAX_PARAM_BYTES ||
	    l->threads > info->max_threads ||
	    checked_add(info->shared_bytes, r->shared_bytes, &l->shared_bytes) ||
	    l->shared_bytes > SOFTD_DEVICE_SHARED_PER_BLOCK) {
		free(l);
		return NULL;
	}
	l->client = c;
	l->queued_bytes = sizeof(*l) + r->param_bytes;
	c->queued_bytes += l->queued_bytes;
	memcpy(l->params, r + 1, r->param_bytes);
	l->module = m->exec;
	exec_module_ref(l->module);
	l->total = (uint64_t)r->grid[0] * r->grid[1] * r->grid[2];
	l->exec.function = f->exec;
	memcpy(l->exec.grid, r->grid, sizeof(r->grid));
	memcpy(l->exec.block, r->block, sizeof(r->block));
	l->exec.dynamic_shared_bytes = r->shared_bytes;
	l->host_bytes = exec_block_bytes(&l->exec);
	l->exec.params = l->params;
	l->exec.space = &g->memory->space;
	l->exec.host = &g->host;
	l->exec.sm_count = c->sms;
	l->exec.clock_khz = c->machine->opt.clock_khz;
	l->cooperative = r->flags & SOFT_LAUNCH_COOPERATIVE;
	l->own_priority = r->flags & SOFT_LAUNCH_PRIORITY;
	l->priority = MAX(MIN(r->priority, 0), SOFT_PRIORITY_GREATEST);
	if (r->part && r->part <= SOFT_MAX_PARTS && c->sm_sets[r->part - 1]) {
		l->part = *c->sm_sets[r->part - 1];
	}
	l->exec.grid_id = c->machine->next_grid_id++;
	l->exec.ring_end = c->taken;
	return l;
}

void softd_launch_free(struct softd_launch *l)
{
	if (!l) {
		return;
	}
	if (l->op) { /* the launch has been appended to a stream */
		softd_place_remove_all(l);
	}
	softd_list_remove(&l->in_group);
	if (l->submitted) {
		softd_runlist_ended(l->op->stream->group->lane);
	}
	if (l->workspace) {
		struct softd_group *g = l->op->stream->group;

		softd_memory_free(g->memory, g->client->machine, l->workspace);
	}
	l->client->queued_bytes -= l->queued_bytes;
	exec_module_unref(l->module);
	free(l);
}

/* Allocates the memory of the grid barrier: word 0 holds its size, word 1 the barrier's count,
 * initially 0. */
static bool make_workspace(struct softd_group *g, struct softd_launch *l) REQUIRES(softd_lock)
{
	struct softd_machine *machine = g->client->machine;
	uint32_t *words;

	l->workspace = softd_memory_alloc(g->memory, machine, g->slot, WORKSPACE_BYTES,
					  SOFT_MEMORY_DEVICE, -1);
	words = l->workspace ? softd_memory_at(g->memory, l->workspace, WORKSPACE_BYTES, 2) : NULL;
	if (!words) {
		return false;
	}
	memset(words, 0, WORKSPACE_BYTES);
	words[0] = WORKSPACE_BYTES;
	l->exec.grid_workspace = l->workspace;
	return true;
}

static void refuse(struct softd_group *g, const struct softd_launch *l, CUresult error,
		   const char *why) REQUIRES(softd_lock)
{
	char text[256];

	snprintf(text, sizeof(text), "kernel %.80s: %s", exec_function_info(l->exec.function)->name,
		 why);
	softd_group_fail(g, error, text);
}

/* Returns true if the launch can run at all; otherwise fails the group. */
static bool may_run(struct softd_group *g, struct softd_launch *l) REQUIRES(softd_lock)
{
	uint64_t bytes = l->host_bytes;

	if (l->cooperative && l->total > softd_place_capacity(l)) {
		refuse(g, l, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		       "a cooperative launch has more blocks than can be resident at once");
		return false;
	}
	bytes *= l->cooperative ? l->total : 1;
	if (bytes > SOFT_BLOCK_BYTES_MAX) {
		refuse(g, l, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
		       "the registers and local memory of its blocks need more than 256 MiB of the "
		       "host's memory");
		return false;
	}
	if (l->cooperative && !make_workspace(g, l)) {
		refuse(g, l, CUDA_ERROR_OUT_OF_MEMORY, "no device memory for its grid barrier");
		return false;
	}
	return true;
}

void softd_launch_submit(struct softd_launch *l, int priority)
{
	struct softd_group *g = l->op->stream->group;

	if (!l->own_priority) {
		l->priority = priority;
	}
	l->level = (unsigned)(l->priority - SOFT_PRIORITY_GREATEST) +
		   (l->client->below_normal ? SOFTD_DEVICE_PRIORITIES : 0);
	g->client->machine->launches++;
	l->submitted = true;
	softd_runlist_launched(g->lane);
	if (may_run(g, l)) {
		softd_list_append(&g->launches[l->level], &l->in_group);
	}
}

void softd_launch_try_retire(struct softd_launch *l)
{
	struct softd_group *g = l->op->stream->group;

	if (l->running || (!l->aborted && l->ended < l->total)) {
		return;
	}
	if (!l->aborted) {
		g->counters.launches_done++;
	}
	softd_op_retire(l->op);
}
