/* Requests about the machine that need no HELLO: the GPUs and the contexts on them, and counts of
 * calls to unsupported functions. */
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "cuabi/names.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/request/client_request.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"

_Static_assert(CUABI_COUNT <= SOFT_MAX_NAMES, "the shared page has a count for each function");

/* Returns the bytes of an extent that the client has created on the GPU, unless this walk has
 * counted it. */
static uint64_t count_once(struct softd_extent *x, const struct softd_client *c,
			   const struct softd_gpu *gpu, uint64_t walk)
{
	if (!x || x->maker != c->number || x->gpu != gpu || x->walk == walk) {
		return 0;
	}
	x->walk = walk;
	return x->bytes;
}

/* Returns what the client has of its memory of cuMemCreate on the GPU: by a handle, or a mapping.
 * What it has left to processes that have imported it is theirs. */
static uint64_t created_by(const struct softd_client *c, const struct softd_gpu *gpu)
	REQUIRES(softd_lock)
{
	const struct softd_memory *m = c->windows[gpu->index];
	static uint64_t walks; /* guarded by the machine's lock */
	uint64_t bytes = 0, walk = ++walks;

	for (uint32_t i = 0; i < c->n_handles; i++) {
		bytes += count_once(c->handles[i], c, gpu, walk);
	}
	for (uint32_t i = 0; m && i < m->n_maps; i++) {
		bytes += count_once(m->maps[i].extent, c, gpu, walk);
	}
	return bytes;
}

/* Memory of cuMemCreate belongs to no context: it is shown with the process's first one on the GPU.
 */
static uint64_t created_bytes(const struct softd_group *g) REQUIRES(softd_lock)
{
	softd_list_each (&g->gpu->groups, o, struct softd_group, in_gpu) {
		if (o->client == g->client) {
			return o == g ? created_by(g->client, g->gpu) : 0;
		}
	}
	return 0;
}

static void fill_group(struct soft_group_info *out, const struct softd_group *g)
	REQUIRES(softd_lock)
{
	*out = (struct soft_group_info){
		.pid = g->client->pid,
		.context = g->slot,
		.memory_bytes = g->memory->owned_bytes[g->slot] +
				g->gpu->machine->opt.context_bytes + created_bytes(g),
		.slice_us = g->lane->slice_ns / 1000,
		.run_ns = g->counters.run_ns,
		.switches_in = g->counters.switches_in,
		.launches_done = g->counters.launches_done,
		.bytes_copied = g->counters.bytes_copied,
		.error = (int32_t)g->error,
		.enabled = g->enabled,
		.blocks_resident = g->resident_blocks,
	};
}

CUresult softd_request_gpus(struct softd_machine *machine, const struct soft_request *q,
			    struct softd_answer *a)
{
	struct soft_gpu_info *out = &a->reply.gpu;
	uint64_t now = clock_now_ns();
	struct softd_gpu *gpu;

	if (q->index >= machine->opt.gpus) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	gpu = &machine->gpus[q->index];
	softd_machine_lock(machine);
	*out = (struct soft_gpu_info){
		.gpus = machine->opt.gpus,
		.sms = machine->opt.sms,
		.workers = machine->opt.workers,
		.copy_engines = machine->opt.copy_engines,
		.clock_khz = machine->opt.clock_khz,
		.pid = (uint32_t)machine->pid,
		.memory_bytes = machine->opt.memory_bytes,
		.memory_used = gpu->memory_used,
		.copy_bytes_s = machine->opt.copy_bytes_s,
		.slice_us = machine->opt.slice_ns / 1000,
		.switch_us = machine->opt.switch_ns / 1000,
		.now_ns = now,
		.busy_ns = gpu->busy_ns + (gpu->running_blocks && now > gpu->busy_from_ns
						   ? now - gpu->busy_from_ns
						   : 0),
		.bytes_copied = gpu->bytes_copied,
		.switches = gpu->switches,
	};
	softd_list_each (&gpu->groups, g, struct softd_group, in_gpu) {
		if (out->groups++ >= q->value && out->n < SOFT_GPU_GROUPS) {
			fill_group(&out->group[out->n++], g);
		}
	}
	softd_machine_unlock(machine);
	a->len += offsetof(struct soft_gpu_info, group) + out->n * sizeof(out->group[0]);
	return CUDA_SUCCESS;
}

/* Returns the client's count for function i, or 0 if its library was built from another list of
 * functions. */
static uint32_t unsupported_calls(const struct softd_client *c, uint32_t i)
{
	return load_relaxed(&c->shared->names) == CUABI_COUNT
		       ? load_relaxed(&c->shared->unsupported[i])
		       : 0;
}

static uint64_t calls_of(struct softd_machine *machine, uint64_t pid, uint32_t i)
{
	uint64_t n = pid ? 0 : machine->unsupported[i];

	softd_list_each (&machine->clients, c, struct softd_client, in_machine) {
		if (!pid || (uint64_t)c->pid == pid) {
			n += unsupported_calls(c, i);
		}
	}
	return n;
}

CUresult softd_request_unsupported(struct softd_machine *machine, const struct soft_request *q,
				   struct softd_answer *a)
{
	struct soft_unsupported_info *out = &a->reply.unsupported;
	uint32_t i = q->index;

	softd_machine_lock(machine);
	for (; i < CUABI_COUNT && out->n < SOFT_UNSUPPORTED_NAMES; i++) {
		uint64_t n = calls_of(machine, q->value, i);

		if (n) {
			strncpy(out->entry[out->n].name, cuabi_names[i],
				sizeof(out->entry[0].name) - 1);
			out->entry[out->n++].calls = n;
		}
	}
	softd_machine_unlock(machine);
	a->reply.value32 = i < CUABI_COUNT ? i : 0;
	a->len += offsetof(struct soft_unsupported_info, entry) + out->n * sizeof(out->entry[0]);
	return CUDA_SUCCESS;
}

void softd_request_save_unsupported(struct softd_client *c)
{
	for (uint32_t i = 0; i < CUABI_COUNT; i++) {
		c->machine->unsupported[i] += unsupported_calls(c, i);
	}
}
