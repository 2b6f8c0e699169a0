/* Updating execs: single nodes, or all of them from another graph of the same shape. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/graph/graph_exec.h"
#include "soft/client/ring_submit.h"

/* Rebuilds the step's records. Waits first while a launch still uses the step's staging buffer. */
static CUresult rebuild_step(CUgraphExec x, struct soft_exec_step *st)
{
	if (st->staging && !soft_exec_ended(x)) {
		struct soft_stream_word *w = &soft.shared->streams[x->last_slot];
		CUresult e = soft_word_wait(&w->done, &w->waiters, x->last_target, st->staging_ctx);

		if (e) {
			return e;
		}
	}
	soft_exec_step_clear(st);
	return soft_exec_step_emit(x, st);
}

/* Returns whether an exec's node may change from old to new: CU_GRAPH_EXEC_UPDATE_*. */
static CUgraphExecUpdateResult check_change(const struct soft_work *old,
					    const struct soft_work *new)
{
	CUlaunchAttributeValue a, b;

	if (old->type != new->type) {
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	}
	switch (new->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		if (old->ctx != new->ctx) {
			return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
		}
		soft_work_get_attribute(old, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &a);
		soft_work_get_attribute(new, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &b);
		return !a.cooperative == !b.cooperative
			       ? CU_GRAPH_EXEC_UPDATE_SUCCESS
			       : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return old->ctx == new->ctx &&
				       old->copy.params.srcMemoryType ==
					       new->copy.params.srcMemoryType &&
				       old->copy.params.dstMemoryType ==
					       new->copy.params.dstMemoryType
			       ? CU_GRAPH_EXEC_UPDATE_SUCCESS
			       : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return old->ctx == new->ctx ? CU_GRAPH_EXEC_UPDATE_SUCCESS
					    : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return old->ctx == new->ctx && old->values.n == new->values.n
			       ? CU_GRAPH_EXEC_UPDATE_SUCCESS
			       : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	default:
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	}
}

/* Updates one node. e: the result of making w; takes w. */
static CUresult set(CUgraphExec x, CUgraphNode n, CUresult e, struct soft_work *w)
{
	struct soft_exec_step *st;

	if (e) {
		return e;
	}
	st = soft_exec_find_step(x, n);
	if (!st || check_change(&st->node->work, w) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		soft_work_finish(w);
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft_work_finish(&st->node->work);
	st->node->work = *w;
	return rebuild_step(x, st);
}

static CUresult check(CUgraphExec x, CUgraphNode n, CUgraphNodeType type, const void *p)
{
	CUresult e = soft_exec_check(x);
	struct soft_exec_step *st;

	e = e ? e : soft_graph_check_node(n);
	if (e) {
		return e;
	}
	st = soft_exec_find_step(x, n);
	return p && st && st->node->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec x, CUgraphNode n,
					   const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_KERNEL, p);
	struct soft_work w;

	e = e ? e : soft_work_kernel_update(&w, &soft_exec_find_step(x, n)->node->work, p);
	return set(x, n, e, &w);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec x, CUgraphNode n,
					const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS v2 = { 0 };

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(&v2, p, sizeof(*p));
	return cuGraphExecKernelNodeSetParams_v2(x, n, &v2);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_MEMCPY3D *p,
					CUcontext ctx)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_MEMCPY, p);
	struct soft_work w;

	e = e ? e : soft_work_memcpy(&w, p, ctx);
	return set(x, n, e, &w);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec x, CUgraphNode n,
					const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_MEMSET, p);
	struct soft_work w;

	e = e ? e : soft_work_memset(&w, p, ctx);
	return set(x, n, e, &w);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_HOST, p);
	struct soft_work w;

	e = e ? e : soft_work_host(&w, p->fn, p->userData);
	return set(x, n, e, &w);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec x, CUgraphNode n, CUevent ev)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ev);
	struct soft_work w;

	e = e ? e : soft_work_event(&w, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ev);
	return set(x, n, e, &w);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec x, CUgraphNode n, CUevent ev)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ev);
	struct soft_work w;

	e = e ? e : soft_work_event(&w, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ev);
	return set(x, n, e, &w);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec x, CUgraphNode n,
					    const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUresult e = check(x, n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, p);
	struct soft_work w;

	e = e ? e : soft_work_values(&w, p->ctx, p->count, p->paramArray, p->flags);
	return set(x, n, e, &w);
}

/* Returns the step of a node that can be enabled and disabled: one that does work itself. */
static struct soft_exec_step *switchable(CUgraphExec x, CUgraphNode n)
{
	struct soft_exec_step *st = soft_exec_find_step(x, n);

	return st && (st->node->work.type == CU_GRAPH_NODE_TYPE_KERNEL ||
		      st->node->work.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
		      st->node->work.type == CU_GRAPH_NODE_TYPE_MEMSET)
		       ? st
		       : NULL;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec x, CUgraphNode n, unsigned int on)
{
	CUresult e = soft_exec_check(x);
	struct soft_exec_step *st;

	e = e ? e : soft_graph_check_node(n);
	if (e) {
		return e;
	}
	st = switchable(x, n);
	if (!st) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	st->disabled = !on;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec x, CUgraphNode n, unsigned int *ret)
{
	CUresult e = soft_exec_check(x);
	struct soft_exec_step *st;

	e = e ? e : soft_graph_check_node(n);
	if (e) {
		return e;
	}
	st = switchable(x, n);
	if (!st || !ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = !st->disabled;
	return CUDA_SUCCESS;
}

/* ---- whole graphs ---- */

static bool same_dependency(const CUgraphNode old, const struct soft_graph_edge *d)
{
	for (uint32_t j = 0; j < old->n_deps; j++) {
		if (old->deps[j].from->index == d->from->index) {
			return true;
		}
	}
	return false;
}

static CUgraphExecUpdateResult compare(CUgraph old, CUgraph new, CUgraphExecUpdateResultInfo *info);

static CUgraphExecUpdateResult compare_node(const CUgraphNode old, const CUgraphNode new,
					    CUgraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResult r = check_change(&old->work, &new->work);

	if (r == CU_GRAPH_EXEC_UPDATE_SUCCESS && old->n_deps != new->n_deps) {
		r = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	for (uint32_t j = 0; j < new->n_deps &&r == CU_GRAPH_EXEC_UPDATE_SUCCESS; j++) {
		if (!same_dependency(old, &new->deps[j])) {
			r = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		}
	}
	if (r == CU_GRAPH_EXEC_UPDATE_SUCCESS && new->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
		r = compare(old->work.child, new->work.child, info);
	}
	if (r != CU_GRAPH_EXEC_UPDATE_SUCCESS && r != CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED &&
	    !info->errorNode) {
		info->errorNode = new;
	}
	return r;
}

/* Nodes correspond to each other by the order in which they were added. */
static CUgraphExecUpdateResult compare(CUgraph old, CUgraph new, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResult r = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (old->n != new->n) {
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	for (uint32_t i = 0; i < new->n &&r == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
		r = compare_node(old->nodes[i], new->nodes[i], info);
	}
	return r;
}

/* Moves the work of all nodes between graphs of the same shape. */
static CUresult adopt(CUgraph old, CUgraph new)
{
	CUresult e = CUDA_SUCCESS;

	for (uint32_t i = 0; i < new->n && !e; i++) {
		struct soft_work w;

		if (new->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			e = adopt(old->nodes[i]->work.child, new->nodes[i]->work.child);
			continue;
		}
		e = soft_work_copy(&w, &new->nodes[i]->work);
		if (!e) {
			soft_work_finish(&old->nodes[i]->work);
			old->nodes[i]->work = w;
		}
	}
	return e;
}

static CUresult child_params(CUgraphExec x, CUgraphNode n, CUgraph child)
{
	CUgraphExecUpdateResultInfo info = { 0 };
	struct soft_exec_step *st = NULL;
	CUgraph own = NULL;
	CUresult e;

	/* A child graph node has no step itself; search its graph. */
	for (uint32_t i = 0; i < x->graph->n; i++) {
		if (x->graph->nodes[i]->origin == n->id &&
		    x->graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			own = x->graph->nodes[i]->work.child;
		}
	}
	if (!own || compare(own, child, &info) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = adopt(own, child);
	for (uint32_t i = 0; i < x->n && !e; i++) {
		st = &x->steps[i];
		e = st->node ? rebuild_step(x, st) : CUDA_SUCCESS;
	}
	return e;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec x, CUgraphNode n, CUgraph child)
{
	CUresult e = soft_exec_check(x);

	e = e ? e : soft_graph_check_node(n);
	e = e ? e : soft_graph_check(child);
	return e ? e : child_params(x, n, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec x, CUgraphNode n, CUgraphNodeParams *p)
{
	CUresult e = soft_exec_check(x);
	struct soft_work w;

	e = e ? e : soft_graph_check_node(n);
	if (e || !p || p->type != n->work.type) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		return cuGraphExecChildGraphNodeSetParams(x, n, p->graph.graph);
	}
	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		return cuGraphExecKernelNodeSetParams_v2(x, n, &p->kernel);
	}
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = check(x, n, p->type, p);
	e = e ? e : soft_work_params(&w, p);
	return set(x, n, e, &w);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec x, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	CUresult e = soft_exec_check(x);

	e = e ? e : soft_graph_check(g);
	if (e || !info) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	*info = (CUgraphExecUpdateResultInfo){ 0 };
	info->result = compare(x->graph, g, info);
	if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	e = adopt(x->graph, g);
	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = x->steps[i].node ? rebuild_step(x, &x->steps[i]) : CUDA_SUCCESS;
	}
	if (e) {
		info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	}
	return e;
}

CUresult cuGraphExecUpdate(CUgraphExec x, CUgraph g, CUgraphNode *ret_node,
			   CUgraphExecUpdateResult *ret)
{
	CUgraphExecUpdateResultInfo info;
	CUresult e = ret_node && ret ? cuGraphExecUpdate_v2(x, g, &info) : CUDA_ERROR_INVALID_VALUE;

	if (!e || e == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
		*ret_node = info.errorNode;
		*ret = info.result;
	}
	return e;
}
