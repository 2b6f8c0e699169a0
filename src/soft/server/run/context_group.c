/* Groups, one for each CUDA context (a TSG on hardware): creation, failure, destruction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "soft/server/connection.h"
#include "soft/server/finding.h"
#include "soft/server/output_ring.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

struct softd_group *softd_group_create(struct softd_client *c, struct softd_gpu *gpu, uint32_t slot)
{
	struct softd_machine *machine = c->machine;
	struct softd_group *g = calloc(1, sizeof(*g));

	if (!g || !softd_memory_charge(gpu, machine->opt.context_bytes)) {
		free(g);
		return NULL;
	}
	g->client = c;
	g->gpu = gpu;
	/* Before any list contains the group: this may release the lock. */
	g->memory = softd_client_window(c, gpu);
	if (!g->memory || softd_lane_join(g) < 0) {
		softd_memory_uncharge(gpu, machine->opt.context_bytes);
		free(g);
		return NULL;
	}
	softd_heap_init(&g->heap, g);
	g->host = (struct exec_host){ .print = softd_output_text,
				      .complain = softd_output_complaint,
				      .allocate = softd_heap_allocate,
				      .release = softd_heap_release,
				      .finding = softd_finding_report,
				      .arg = g };
	g->slot = slot;
	/* The client learns the slot later: records that name it already are an earlier context's.
	 */
	c->begins[slot] = c->taken + (uint32_t)(load_acquire(&c->shared->head) - c->tail);
	g->enabled = true;
	g->control = -1;
	softd_list_init(&g->streams);
	for (unsigned i = 0; i < SOFTD_DEVICE_LEVELS; i++) {
		softd_list_init(&g->launches[i]);
		softd_list_init(&g->resident[i]);
	}
	softd_list_append(&machine->groups, &g->in_machine);
	softd_list_init(&g->copies);
	softd_list_init(&g->in_dirty);
	softd_list_init(&g->in_copying);
	softd_list_append(&gpu->groups, &g->in_gpu);
	machine->contexts++;
	c->groups[slot] = g;
	store_release(&c->shared->context_error[slot], 0u);
	return g;
}

/* Drops the started operations of the group: launches end as soon as no worker holds a block of
 * theirs, copies as soon as no engine works on them. */
static void abort_running(struct softd_group *g) REQUIRES(softd_lock)
{
	softd_list_each_safe (&g->streams, s, struct softd_stream, in_group) {
		struct softd_op *op;

		if (softd_list_empty(&s->ops)) {
			continue;
		}
		op = softd_list_first(&s->ops, struct softd_op, in_stream);
		if (!op->started || op->running) {
			continue;
		}
		if (op->kind == SOFT_OP_LAUNCH) {
			op->launch->aborted = true;
			softd_list_remove(&op->launch->in_group);
			softd_launch_try_retire(op->launch);
		} else if (op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_SET ||
			   op->kind == SOFT_OP_VALUE) {
			softd_op_retire(op);
		}
	}
}

void softd_group_touch(struct softd_group *g)
{
	g->dirty = true;
	if (softd_list_empty(&g->in_dirty) && !g->dead) {
		softd_list_append(&g->client->machine->dirty, &g->in_dirty);
	}
}

void softd_group_fail(struct softd_group *g, CUresult error, const char *text)
{
	struct soft_notice n = { .op = SOFT_NOTICE_FAULT, .result = (int32_t)error };
	struct softd_client *c = g->client;

	if (g->error) {
		return;
	}
	g->error = error;
	softd_group_touch(g);
	if (text) {
		/* Before context_error: a client that sees the error may wait for this notice. */
		strncpy(n.text, text, sizeof(n.text) - 1);
		log_info("process %d, context %u: %s", c->pid, g->slot, n.text);
		softd_client_notice(c, &n, sizeof(n));
		softd_finding_count_fault(g);
	}
	store_seqcst(&c->shared->context_error[g->slot], (uint32_t)error);
	abort_running(g);
}

bool softd_group_runnable(const struct softd_group *g)
{
	return g->enabled && !g->dead && softd_place_ready(g);
}

static void drop_modules(struct softd_client *c, struct softd_group *g) REQUIRES(softd_lock)
{
	for (uint32_t i = 0; i < c->n_modules; i++) {
		struct softd_module *m = c->modules[i];

		if (m && m->group == g) {
			softd_module_drop(c, i);
		}
	}
}

/* Retires copies of the client's other contexts that read or write this one. Those contexts may be
 * disabled and would not finish them. */
static void retire_copies_of(struct softd_group *g) REQUIRES(softd_lock)
{
	struct softd_client *c = g->client;

	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		struct softd_group *o = c->groups[i];

		if (!o) {
			continue;
		}
		softd_list_each_safe (&o->copies, op, struct softd_op, in_copies) {
			if (!op->running && (op->copy.dst_group == g || op->copy.src_group == g)) {
				softd_op_retire(op);
			}
		}
	}
}

void softd_group_destroy(struct softd_group *g)
{
	struct softd_client *c = g->client;
	struct softd_machine *machine = c->machine;

	g->dead = true;
	if (!g->error) {
		g->error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	abort_running(g);
	softd_list_remove(&g->in_gpu);
	softd_list_remove(&g->in_machine);
	softd_list_remove(&g->in_dirty);
	retire_copies_of(g);
	while (g->running) {
		softd_machine_wait(machine, &machine->quiescent);
	}
	softd_list_each_safe (&g->streams, s, struct softd_stream, in_group) {
		uint32_t slot = s->slot, n = 0;

		softd_list_each (&s->ops, op, struct softd_op, in_stream) {
			(void)op;
			n++;
		}
		softd_stream_destroy(s);
		c->done[slot] += n; /* wakes waiters: these operations count as ended */
		store_seqcst(&c->shared->streams[slot].done, c->done[slot]);
		futex_wake_shared(&c->shared->streams[slot].done, INT32_MAX);
	}
	drop_modules(c, g);
	softd_list_remove(&g->in_copying);
	machine->contexts--;
	if (!c->leaving) { /* the slot stays taken meanwhile */
		softd_memory_drop(g->memory, machine, g->slot);
	}
	softd_memory_uncharge(g->gpu, machine->opt.context_bytes);
	c->groups[g->slot] = NULL;
	softd_heap_finish(&g->heap);
	fd_close(g->control);
	softd_lane_leave(g);
	free(g);
}
