/* Launches: from a record to blocks that workers take, and back to a retired operation. */
#include <stdlib.h>
#include <string.h>

#include "soft/server/device.h"

struct launch *launch_create(struct client *c, struct group *g, const struct soft_record_launch *r)
{
	const struct function *f = r->function < c->n_functions ? &c->functions[r->function] : NULL;
	struct module *m = f && f->exec ? c->modules[f->module] : NULL;
	const struct exec_function_info *info;
	struct launch *l;

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
	list_init(&l->in_group);
	list_init(&l->spare);
	if (r->param_bytes < info->param_bytes || info->param_bytes > SOFT_MAX_PARAM_BYTES ||
	    l->threads > info->max_threads ||
	    checked_add(info->shared_bytes, r->shared_bytes, &l->shared_bytes) ||
	    l->shared_bytes > DEVICE_SHARED_PER_BLOCK ||
	    (uint64_t)l->threads * info->local_bytes > SOFT_BLOCK_BYTES_MAX) {
		free(l);
		return NULL;
	}
	memcpy(l->params, r->params, r->param_bytes);
	l->module = m->exec;
	exec_module_ref(l->module);
	l->total = (uint64_t)r->grid[0] * r->grid[1] * r->grid[2];
	l->exec.function = f->exec;
	memcpy(l->exec.grid, r->grid, sizeof(r->grid));
	memcpy(l->exec.block, r->block, sizeof(r->block));
	l->exec.dynamic_shared_bytes = r->shared_bytes;
	l->host_bytes = exec_block_bytes(&l->exec);
	l->exec.params = l->params;
	l->exec.space = &g->memory.space;
	l->exec.sm_count = c->dev->opt.sms;
	l->exec.grid_id = c->dev->next_grid_id++;
	return l;
}

static void forget(struct group *g, struct launch *l, struct resident *b)
{
	list_remove(&b->in_group);
	g->resident_blocks--;
	g->resident_threads -= l->threads;
	g->resident_shared -= l->shared_bytes;
	g->resident_bytes -= l->host_bytes;
	l->resident--;
	exec_block_destroy(b->block);
	free(b);
}

/* Drops blocks that no worker holds. */
static void drop_blocks(struct launch *l)
{
	struct group *g = l->op->stream->group;

	list_each_safe(&g->resident, b, struct resident, in_group)
	{
		if (b->launch == l) {
			forget(g, l, b);
		}
	}
	list_each_safe(&l->spare, b, struct resident, in_group)
	{
		list_remove(&b->in_group);
		exec_block_destroy(b->block);
		free(b);
	}
}

void launch_free(struct launch *l)
{
	if (!l) {
		return;
	}
	drop_blocks(l);
	list_remove(&l->in_group);
	exec_module_unref(l->module);
	free(l);
}

void launch_submit(struct launch *l, int priority)
{
	struct group *g = l->op->stream->group;

	l->priority = priority;
	g->client->dev->launches++;
	list_each (&g->launches, other, struct launch, in_group) {
		if (other->priority > priority) { /* smaller is more urgent */
			list_insert(&other->in_group, &l->in_group);
			return;
		}
	}
	list_append(&g->launches, &l->in_group);
}

void launch_try_retire(struct launch *l)
{
	struct group *g = l->op->stream->group;

	if (l->running || (!l->aborted && l->ended < l->total)) {
		return;
	}
	if (!l->aborted) {
		g->counters.launches_done++;
	}
	op_retire(l->op);
}
