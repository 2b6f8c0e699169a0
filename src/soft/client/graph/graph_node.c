/* The API of nodes: creation, queries and changes. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/graph/graph.h"

/* Checks the graph and the dependencies before the node's parameters, as the driver does. */
static CUresult check_place(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n)
{
	CUresult e = soft_graph_check(g);

	if (e || !ret || (n && !deps)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n; i++) {
		if (!soft_object_is(deps[i], SOFT_OBJECT_NODE) || deps[i]->graph != g) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps,
			  const CUgraphEdgeData *data, size_t n, struct soft_work *w)
{
	struct soft_graph_edge *edges = calloc(n + 1, sizeof(*edges));
	CUresult e;

	if (!edges) {
		soft_work_finish(w);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < n; i++) {
		edges[i].from = deps[i];
		if (data) {
			edges[i].data = data[i];
		}
	}
	e = soft_graph_add(g, edges, n, w, ret);
	free(edges);
	return e;
}

static CUresult add(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n, CUresult e,
		    struct soft_work *w)
{
	return e ? e : add_edges(ret, g, deps, NULL, n, w);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : p ? soft_work_kernel(&w, p) : CUDA_ERROR_INVALID_VALUE;
	return add(ret, g, deps, n, e, &w);
}

static CUDA_KERNEL_NODE_PARAMS kernel_v2(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS r = { 0 };

	memcpy(&r, p, sizeof(*p)); /* the common prefix */
	return r;
}

CUresult cuGraphAddKernelNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS v2;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	v2 = kernel_v2(p);
	return cuGraphAddKernelNode_v2(ret, g, deps, n, &v2);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : p ? soft_work_memcpy(&w, p, ctx) : CUDA_ERROR_INVALID_VALUE;
	return add(ret, g, deps, n, e, &w);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : p ? soft_work_memset(&w, p, ctx) : CUDA_ERROR_INVALID_VALUE;
	return add(ret, g, deps, n, e, &w);
}

CUresult cuGraphAddHostNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			    const CUDA_HOST_NODE_PARAMS *p)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : p ? soft_work_host(&w, p->fn, p->userData) : CUDA_ERROR_INVALID_VALUE;
	return add(ret, g, deps, n, e, &w);
}

static CUresult add_params(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			   const CUgraphNodeParams *p)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : soft_work_params(&w, p);
	return add(ret, g, deps, n, e, &w);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				  CUgraph child)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = child };

	return add_params(ret, g, deps, n, &p);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return add_params(ret, g, deps, n, &p);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				   CUevent ev)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord.event = ev };

	return add_params(ret, g, deps, n, &p);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				 CUevent ev)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait.event = ev };

	return add_params(ret, g, deps, n, &p);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				  const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUgraphNodeParams all = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	all.memOp = *p;
	return add_params(ret, g, deps, n, &all);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUgraphNodeParams all = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUresult e;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	all.alloc = *p;
	e = add_params(ret, g, deps, n, &all);
	if (!e) {
		p->dptr = (*ret)->work.alloc.params.dptr;
	}
	return e;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			       CUdeviceptr p)
{
	CUgraphNodeParams all = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free.dptr = p };

	return add_params(ret, g, deps, n, &all);
}

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps,
			   const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	CUresult e = check_place(ret, g, deps, n);
	struct soft_work w;

	e = e ? e : p ? soft_work_params(&w, p) : CUDA_ERROR_INVALID_VALUE;
	e = e ? e : add_edges(ret, g, deps, data, n, &w);
	if (!e && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		p->alloc.dptr = (*ret)->work.alloc.params.dptr;
	}
	return e;
}

CUresult cuGraphAddNode(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
			CUgraphNodeParams *p)
{
	return cuGraphAddNode_v2(ret, g, deps, NULL, n, p);
}

CUresult cuGraphDestroyNode(CUgraphNode n)
{
	CUresult e = soft_graph_check_node(n);

	if (e) {
		return e;
	}
	if (n->graph->capturing) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (n->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    n->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	soft_graph_remove(n);
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType *ret)
{
	CUresult e = soft_graph_check_node(n);

	if (!e && ret) {
		*ret = n->work.type;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- parameters: a call for one type refuses nodes of others ---- */

static CUresult is(CUgraphNode n, CUgraphNodeType type, const void *p)
{
	CUresult e = soft_graph_check_node(n);

	return e ? e : p && n->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Replaces the node's work by w if e is 0. */
static CUresult replace_work(CUgraphNode n, CUresult e, struct soft_work *w)
{
	if (!e) {
		soft_work_finish(&n->work);
		n->work = *w;
		if (w->type == CU_GRAPH_NODE_TYPE_GRAPH) {
			w->child->owner = n;
		}
	}
	return e;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_KERNEL, p);
	const struct soft_record_launch *r;

	if (e) {
		return e;
	}
	r = &n->work.kernel.r;
	*p = (CUDA_KERNEL_NODE_PARAMS){ .gridDimX = r->grid[0],
					.gridDimY = r->grid[1],
					.gridDimZ = r->grid[2],
					.blockDimX = r->block[0],
					.blockDimY = r->block[1],
					.blockDimZ = r->block[2],
					.sharedMemBytes = r->shared_bytes,
					.kernelParams = n->work.kernel.pointers };
	if (soft_object_is(n->work.kernel.handle, SOFT_OBJECT_KERNEL)) {
		p->kern = (CUkernel)(void *)n->work.kernel.handle;
		p->ctx = n->work.ctx;
	} else {
		p->func = n->work.kernel.handle;
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS v2;
	CUresult e = p ? cuGraphKernelNodeGetParams_v2(n, &v2) : CUDA_ERROR_INVALID_VALUE;

	if (!e) {
		memcpy(p, &v2, sizeof(*p));
		p->func = n->work.kernel.handle;
	}
	return e;
}

/* Keeps the attributes of the old work. */
CUresult soft_work_kernel_update(struct soft_work *w, const struct soft_work *old,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult e = soft_work_kernel(w, p);

	if (!e && !p->ctx) {
		w->kernel.r.part = old->kernel.r.part;
	}
	for (uint32_t i = 0; i < old->kernel.n_attrs && !e; i++) {
		e = soft_work_set_attribute(w, old->kernel.attrs[i].id,
					    &old->kernel.attrs[i].value);
		if (e) {
			soft_work_finish(w);
		}
	}
	return e;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_KERNEL, p);
	struct soft_work w;

	e = e ? e : soft_work_kernel_update(&w, &n->work, p);
	return replace_work(n, e, &w);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS v2;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	v2 = kernel_v2(p);
	return cuGraphKernelNodeSetParams_v2(n, &v2);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode n, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *v)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_KERNEL, v);

	return e ? e : soft_work_set_attribute(&n->work, id, v);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode n, CUkernelNodeAttrID id,
				       CUkernelNodeAttrValue *v)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_KERNEL, v);

	return e					  ? e
	       : soft_work_get_attribute(&n->work, id, v) ? CUDA_SUCCESS
							  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	CUresult e = is(to, CU_GRAPH_NODE_TYPE_KERNEL, to);

	e = e ? e : is(from, CU_GRAPH_NODE_TYPE_KERNEL, from);
	for (uint32_t i = 0; !e && i < from->work.kernel.n_attrs; i++) {
		e = soft_work_set_attribute(&to->work, from->work.kernel.attrs[i].id,
					    &from->work.kernel.attrs[i].value);
	}
	return e;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode n, CUDA_MEMCPY3D *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEMCPY, p);

	if (!e) {
		*p = n->work.copy.params;
	}
	return e;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode n, const CUDA_MEMCPY3D *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEMCPY, p);
	struct soft_work w;

	e = e ? e : soft_work_memcpy(&w, p, n->work.ctx);
	return replace_work(n, e, &w);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEMSET, p);

	if (!e) {
		*p = n->work.set;
	}
	return e;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEMSET, p);
	struct soft_work w;

	e = e ? e : soft_work_memset(&w, p, n->work.ctx);
	return replace_work(n, e, &w);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode n, CUDA_HOST_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_HOST, p);

	if (!e) {
		*p = (CUDA_HOST_NODE_PARAMS){ n->work.host.fn, n->work.host.user };
	}
	return e;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_HOST, p);
	struct soft_work w;

	e = e ? e : soft_work_host(&w, p->fn, p->userData);
	return replace_work(n, e, &w);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode n, CUgraph *ret)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_GRAPH, ret);

	if (!e) {
		*ret = n->work.child;
	}
	return e;
}

static CUresult get_event(CUgraphNode n, CUgraphNodeType type, CUevent *ret)
{
	CUresult e = is(n, type, ret);

	if (!e) {
		*ret = n->work.event;
	}
	return e;
}

static CUresult set_event(CUgraphNode n, CUgraphNodeType type, CUevent ev)
{
	CUresult e = is(n, type, ev);
	struct soft_work w;

	e = e ? e : soft_work_event(&w, type, ev);
	return replace_work(n, e, &w);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode n, CUevent *ret)
{
	return get_event(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ret);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode n, CUevent ev)
{
	return set_event(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ev);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode n, CUevent *ret)
{
	return get_event(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ret);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode n, CUevent ev)
{
	return set_event(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ev);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode n, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, p);

	if (!e) {
		*p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ n->work.ctx, n->work.values.n,
						      n->work.values.ops, n->work.values.flags };
	}
	return e;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, p);
	struct soft_work w;

	e = e ? e : soft_work_values(&w, p->ctx, p->count, p->paramArray, p->flags);
	return replace_work(n, e, &w);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode n, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEM_ALLOC, p);

	if (!e) {
		*p = n->work.alloc.params;
	}
	return e;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode n, CUdeviceptr *p)
{
	CUresult e = is(n, CU_GRAPH_NODE_TYPE_MEM_FREE, p);

	if (!e) {
		*p = n->work.free;
	}
	return e;
}

CUresult cuGraphNodeSetParams(CUgraphNode n, CUgraphNodeParams *p)
{
	CUresult e = soft_graph_check_node(n);
	struct soft_work w;

	if (e || !p || p->type != n->work.type || p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    p->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = p->type == CU_GRAPH_NODE_TYPE_KERNEL ? soft_work_kernel_update(&w, &n->work, &p->kernel)
						 : soft_work_params(&w, p);
	return replace_work(n, e, &w);
}
