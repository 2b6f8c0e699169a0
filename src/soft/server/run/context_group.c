/* Groups: one for each context. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "soft/server/machine.h"
#include "soft/server/finding.h"
#include "soft/server/output_ring.h"

struct group *group_create(struct client *c, struct gpu *gpu, uint32_t slot)
{
	struct device *dev = c->dev;
	struct group *g = calloc(1, sizeof(*g));

	if (!g) {
		return NULL;
	}
	g->client = c;
	g->gpu = gpu;
	if (lane_join(g) < 0) {
		free(g);
		return NULL;
	}
	if (memory_init(&g->memory, gpu, slot) < 0) {
		lane_leave(g);
		free(g);
		return NULL;
	}
	heap_init(&g->heap, g);
	g->host = (struct exec_host){ .print = print_text,
				      .complain = print_complaint,
				      .allocate = heap_allocate,
				      .release = heap_release,
				      .finding = finding_tell,
				      .arg = g };
	g->slot = slot;
	g->enabled = true;
	g->control = -1;
	list_init(&g->streams);
	for (unsigned i = 0; i < DEVICE_LEVELS; i++) {
		list_init(&g->launches[i]);
		list_init(&g->resident[i]);
	}
	list_append(&dev->groups, &g->in_device);
	list_init(&g->copies);
	list_append(&gpu->groups, &g->in_gpu);
	dev->contexts++;
	c->groups[slot] = g;
	store_release(&c->shared->context_error[slot], 0u);
	return g;
}

/* Started launches end as soon as no worker holds a block of theirs; copies when no worker copies.
 */
static void abort_running(struct group *g)
{
	list_each_safe(&g->streams, s, struct stream, in_group)
	{
		struct op *op;

		if (list_empty(&s->ops)) {
			continue;
		}
		op = list_first(&s->ops, struct op, in_stream);
		if (!op->started || op->running) {
			continue;
		}
		if (op->kind == SOFT_OP_LAUNCH) {
			op->launch->aborted = true;
			list_remove(&op->launch->in_group);
			launch_try_retire(op->launch);
		} else if (op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_SET ||
			   op->kind == SOFT_OP_VALUE) {
			op_retire(op);
		}
	}
}

void group_fail(struct group *g, CUresult error, const char *text)
{
	struct soft_notice n = { .op = SOFT_NOTICE_FAULT, .result = (int32_t)error };
	struct client *c = g->client;

	if (g->error) {
		return;
	}
	g->error = error;
	g->dirty = true;
	if (text) { /* before the error: who sees that may wait for this */
		strncpy(n.text, text, sizeof(n.text) - 1);
		log_info("process %d, context %u: %s", c->pid, g->slot, n.text);
		client_notice(c, &n, sizeof(n));
		finding_fault(g);
	}
	store_seqcst(&c->shared->context_error[g->slot], (uint32_t)error);
	abort_running(g);
}

bool group_runnable(const struct group *g)
{
	return g->enabled && !g->dead && place_ready(g);
}

static void drop_modules(struct client *c, struct group *g)
{
	for (uint32_t i = 0; i < c->n_modules; i++) {
		struct module *m = c->modules[i];

		if (m && m->group == g) {
			module_drop(c, i);
		}
	}
}

/* Copies of other contexts that read or write this one end here: theirs may be switched off. */
static void cut_copies(struct group *g)
{
	struct client *c = g->client;

	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		struct group *o = c->groups[i];

		if (!o) {
			continue;
		}
		list_each_safe(&o->copies, op, struct op, in_copies)
		{
			if (!op->running && (op->copy.dst_group == g || op->copy.src_group == g)) {
				op_retire(op);
			}
		}
	}
}

void group_destroy(struct group *g)
{
	struct client *c = g->client;
	struct device *dev = c->dev;

	g->dead = true;
	if (!g->error) {
		g->error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	abort_running(g);
	list_remove(&g->in_gpu);
	list_remove(&g->in_device);
	cut_copies(g);
	while (g->running) {
		pthread_cond_wait(&dev->settled, &dev->lock);
	}
	list_each_safe(&g->streams, s, struct stream, in_group)
	{
		uint32_t slot = s->slot, n = 0;

		list_each (&s->ops, op, struct op, in_stream) {
			(void)op;
			n++;
		}
		stream_destroy(s);
		c->done[slot] += n; /* whoever waits for them learns that they will not come */
		store_seqcst(&c->shared->streams[slot].done, c->done[slot]);
		futex_wake_shared(&c->shared->streams[slot].done, INT32_MAX);
	}
	drop_modules(c, g);
	c->groups[g->slot] = NULL;
	dev->contexts--;
	memory_finish(&g->memory, dev);
	heap_finish(&g->heap);
	fd_close(g->control);
	lane_leave(g);
	free(g);
}
