/* Memory of allocation nodes. It is allocated when the node is created, which fixes its address.
 * Allocation and free in a launch only change whether it may be used. */
#include <stdlib.h>

#include "base/atomic.h"
#include "soft/client/context/context.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"
#include "soft/client/memory/memory.h"
#include "soft/client/stream/stream.h"

static struct soft_graph_memory *all GUARDED_BY(soft.lock);
/* By device. */
static uint64_t used_high[SOFT_MAX_GPUS] GUARDED_BY(soft.lock);
static uint64_t reserved_high[SOFT_MAX_GPUS] GUARDED_BY(soft.lock);

static struct soft_graph_memory *find(uint64_t address) REQUIRES(soft.lock)
{
	struct soft_graph_memory *m = all;

	while (m && m->address != address) {
		m = m->next;
	}
	return m;
}

static void count(CUdevice dev, uint64_t *ret_used, uint64_t *ret_reserved) REQUIRES(soft.lock)
{
	*ret_used = *ret_reserved = 0;
	for (struct soft_graph_memory *m = all; m; m = m->next) {
		if (m->device == dev) {
			*ret_used += m->live ? m->bytes : 0;
			*ret_reserved += m->bytes;
		}
	}
	used_high[dev] = MAX(used_high[dev], *ret_used);
	reserved_high[dev] = MAX(reserved_high[dev], *ret_reserved);
}

void soft_graph_memory_ref(struct soft_graph_memory *m)
{
	lock_take(&soft.lock);
	m->refs++;
	lock_release(&soft.lock);
}

static void remove_from_list(struct soft_graph_memory *m)
{
	struct soft_graph_memory **at = &all;

	lock_take(&soft.lock);
	while (*at != m) {
		at = &(*at)->next;
	}
	*at = m->next;
	lock_release(&soft.lock);
}

/* The memory counts as reserved until it is free. */
void soft_graph_memory_unref(struct soft_graph_memory *m)
{
	bool last;

	if (!m) {
		return;
	}
	lock_take(&soft.lock);
	last = --m->refs == 0;
	lock_release(&soft.lock);
	if (!last) {
		return;
	}
	if (soft_object_is(m->ctx, SOFT_OBJECT_CONTEXT) && m->ctx->id == m->ctx_id) {
		soft_context_drain(m->ctx);
		soft_memory_delete(m->ctx, m->address, true);
	}
	remove_from_list(m);
	free(m);
}

CUresult soft_work_alloc(struct soft_work *w, const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct soft_range like = { .kind = SOFT_RANGE_DEVICE };
	struct soft_graph_memory *m;
	uint64_t used, reserved;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
	if (e) {
		return e;
	}
	if (p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->poolProps.handleTypes ||
	    p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    p->poolProps.location.id != ctx->device || !p->bytesize) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	m = calloc(1, sizeof(*m));
	if (!m) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = soft_memory_create(ctx, p->bytesize, &like, &m->address, NULL);
	if (e) {
		free(m);
		return e;
	}
	m->ctx = ctx;
	m->ctx_id = ctx->id;
	m->device = ctx->device;
	m->bytes = p->bytesize;
	m->refs = 1;
	lock_take(&soft.lock);
	m->next = all;
	all = m;
	count(m->device, &used, &reserved);
	lock_release(&soft.lock);
	w->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	w->ctx = ctx;
	w->alloc.params = *p;
	w->alloc.params.accessDescs = NULL;
	w->alloc.params.accessDescCount = 0;
	w->alloc.params.dptr = m->address;
	w->alloc.memory = m;
	return CUDA_SUCCESS;
}

CUresult soft_work_free(struct soft_work *w, CUdeviceptr address)
{
	bool known;

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	w->free = address;
	lock_take(&soft.lock);
	known = find(address) != NULL;
	lock_release(&soft.lock);
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_graph_check_copyable(CUgraph g)
{
	for (uint32_t i = 0; i < g->n; i++) {
		const struct soft_work *w = &g->nodes[i]->work;

		if (w->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    w->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		if (w->type == CU_GRAPH_NODE_TYPE_GRAPH && soft_graph_check_copyable(w->child)) {
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

CUresult soft_graph_memory_acquire(CUgraph g)
{
	CUresult e = CUDA_SUCCESS;

	lock_take(&soft.lock);
	for (uint32_t i = 0; i < g->n; i++) {
		const struct soft_work *w = &g->nodes[i]->work;

		if (w->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && w->alloc.memory->execs++) {
			e = CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	lock_release(&soft.lock);
	return e;
}

void soft_graph_memory_release(CUgraph g)
{
	lock_take(&soft.lock);
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
			g->nodes[i]->work.alloc.memory->execs--;
		}
	}
	lock_release(&soft.lock);
}

/* Marks the graph's memory as allocated by a launch. Fails if some already is, unless the exec
 * frees it automatically. Live memory holds a reference, so it outlives its graph. */
CUresult soft_graph_memory_launch(CUgraph g, bool auto_free)
{
	uint64_t used, reserved;
	CUresult e = CUDA_SUCCESS;

	if (!load_relaxed(&all)) {
		return e;
	}
	lock_take(&soft.lock);
	for (uint32_t i = 0; i < g->n && !e && !auto_free; i++) {
		const struct soft_work *w = &g->nodes[i]->work;

		if (w->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && w->alloc.memory->live) {
			e = CUDA_ERROR_INVALID_VALUE;
		}
	}
	for (uint32_t i = 0; i < g->n && !e; i++) {
		const struct soft_work *w = &g->nodes[i]->work;

		if (w->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !w->alloc.memory->live) {
			w->alloc.memory->live = true;
			w->alloc.memory->refs++;
			count(w->alloc.memory->device, &used, &reserved);
		}
	}
	lock_release(&soft.lock);
	return e;
}

/* Marks the memory as free. Returns whether it was live. */
static bool end_live(uint64_t address, bool *ret_known)
{
	struct soft_graph_memory *m;
	bool live;

	lock_take(&soft.lock);
	m = find(address);
	live = m && m->live;
	if (live) {
		m->live = false;
	}
	lock_release(&soft.lock);
	if (live) {
		soft_graph_memory_unref(m);
	}
	*ret_known = m != NULL;
	return live;
}

void soft_graph_memory_launched(CUgraph g)
{
	bool known;

	if (!load_relaxed(&all)) {
		return;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
			end_live(g->nodes[i]->work.free, &known);
		}
	}
}

bool soft_graph_memory_free_outside(uint64_t address, CUresult *ret_e)
{
	bool known = false;

	if (load_relaxed(&all)) {
		*ret_e = end_live(address, &known) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (!known) {
		*ret_e = CUDA_SUCCESS;
	}
	return known;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute what, void *ret)
{
	CUresult e = soft_context_check_device(dev);
	uint64_t used, reserved;

	if (e) {
		return e;
	}
	if (!ret || (unsigned)what > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft.lock);
	count(dev, &used, &reserved);
	*(uint64_t *)ret = what == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT	    ? used
			   : what == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH	    ? used_high[dev]
			   : what == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved
									    : reserved_high[dev];
	lock_release(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute what, void *value)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!value || *(uint64_t *)value ||
	    (what != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
	     what != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft.lock);
	if (what == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
		used_high[dev] = 0;
	} else {
		reserved_high[dev] = 0;
	}
	lock_release(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
	return soft_context_check_device(
		dev); /* nothing to trim: memory exists only while a graph refers to it */
}
