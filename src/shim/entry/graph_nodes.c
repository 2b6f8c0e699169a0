/* Changes of graphs and executable graphs by the program. The driver makes them; the room for
 * probes is told, since the nodes of an executable graph may run probed forms, and swap_graphs.c
 * learns which memory they name. Deferred launches of an executable graph are submitted before it
 * changes. */
#include <string.h>

#include "cuabi/api.h"
#include "shim/entry/graph_calls.h"
#include "shim/mem/swap_graphs.h"
#include "shim/probe/shim_probe.h"
#include "shim/shim.h"

/* ---- graphs ---- */

CUresult cuGraphDestroy(CUgraph g)
{
	CUresult r = CUDA_SUCCESS;

	return shim_probe_graph_kept(g, &r) ? r : SHIM_REAL(cuGraphDestroy)(g);
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	shim_probe_graph_node_changing(node, true);
	return SHIM_REAL(cuGraphDestroyNode)(node);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	shim_probe_graph_node_changing(node, false);
	return SHIM_REAL(cuGraphKernelNodeSetParams)(node, p);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	shim_probe_graph_node_changing(node, false);
	return SHIM_REAL(cuGraphKernelNodeSetParams_v2)(node, p);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	shim_probe_graph_node_changing(node, false);
	return SHIM_REAL(cuGraphNodeSetParams)(node, p);
}

/* ---- executable graphs ---- */

static void drain(CUgraphExec exec)
{
	if (unlikely(shim_pending())) {
		shim_graph_drain(exec);
	}
}

static CUresult kernel_set(struct shim_probe_exec *x, CUgraphExec exec, CUgraphNode node,
			   const CUDA_KERNEL_NODE_PARAMS *p, CUresult r)
{
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (r == CUDA_SUCCESS && p) {
		shim_probe_exec_was_set(x, node, p);
		any.kernel = *p;
		shim_swap_graph_set_node(exec, node, &any);
	}
	shim_probe_exec_end(x);
	return r;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS v2;
	struct shim_probe_exec *x;

	memset(&v2, 0, sizeof(v2));
	if (p) {
		memcpy(&v2, p, sizeof(*p));
	}
	drain(exec);
	x = shim_probe_exec_begin_change(exec);
	return kernel_set(x, exec, node, &v2,
			  SHIM_REAL(cuGraphExecKernelNodeSetParams)(exec, node, p));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					   const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct shim_probe_exec *x;

	drain(exec);
	x = shim_probe_exec_begin_change(exec);
	return kernel_set(x, exec, node, p,
			  SHIM_REAL(cuGraphExecKernelNodeSetParams_v2)(exec, node, p));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	struct shim_probe_exec *x;
	CUresult r;

	drain(exec);
	x = shim_probe_exec_begin_change(exec);
	r = SHIM_REAL(cuGraphExecNodeSetParams)(exec, node, p);
	if (r == CUDA_SUCCESS && p && p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		shim_probe_exec_was_set(x, node, &p->kernel);
	} else if (r == CUDA_SUCCESS && p && p->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		shim_probe_exec_child_was_set(x, node, p->graph.graph);
	}
	if (r == CUDA_SUCCESS) {
		shim_swap_graph_set_node(exec, node, p);
	}
	shim_probe_exec_end(x);
	return r;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	struct shim_probe_exec *x;
	CUresult r;

	drain(exec);
	x = shim_probe_exec_begin_change(exec);
	r = SHIM_REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
	if (r == CUDA_SUCCESS) {
		shim_probe_exec_child_was_set(x, node, child);
		any.graph.graph = child;
		shim_swap_graph_set_node(exec, node, &any);
	}
	shim_probe_exec_end(x);
	return r;
}

static CUresult updated(struct shim_probe_exec *x, CUgraphExec exec, CUgraph g, CUresult r)
{
	if (r == CUDA_SUCCESS) {
		shim_probe_exec_was_updated(x, g);
		shim_swap_graph_learn(exec, g);
	}
	shim_probe_exec_end(x);
	return r;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph g, CUgraphNode *node,
			   CUgraphExecUpdateResult *ret)
{
	struct shim_probe_exec *x;

	drain(exec);
	x = shim_probe_exec_begin(exec);
	return updated(x, exec, g, SHIM_REAL(cuGraphExecUpdate)(exec, g, node, ret));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	struct shim_probe_exec *x;

	drain(exec);
	x = shim_probe_exec_begin(exec);
	return updated(x, exec, g, SHIM_REAL(cuGraphExecUpdate_v2)(exec, g, info));
}

/* ---- nodes of other types ---- */

static void note_memcpy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };

	if (p) {
		any.memcpy.copyParams = *p;
		shim_swap_graph_set_node(exec, node, &any);
	}
}

static void note_memset(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	if (p) {
		any.memset.dst = p->dst;
		shim_swap_graph_set_node(exec, node, &any);
	}
}

/* note: what follows a change that is made. */
#define CHANGE(name, parameters, note, ...)                                                        \
	CUresult name parameters                                                                   \
	{                                                                                          \
		struct shim_probe_exec *x;                                                         \
		CUresult r;                                                                        \
                                                                                                   \
		drain(exec);                                                                       \
		x = shim_probe_exec_begin_change(exec);                                            \
		r = SHIM_REAL(name)(exec, __VA_ARGS__);                                            \
		if (r == CUDA_SUCCESS) {                                                           \
			note;                                                                      \
		}                                                                                  \
		shim_probe_exec_end(x);                                                            \
		return r;                                                                          \
	}

CHANGE(cuGraphExecMemcpyNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext ctx),
       note_memcpy(exec, node, p), node, p, ctx)
CHANGE(cuGraphExecMemsetNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx),
       note_memset(exec, node, p), node, p, ctx)
CHANGE(cuGraphExecHostNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p), (void)0, node, p)
CHANGE(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
       (void)0, node, event)
CHANGE(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
       (void)0, node, event)
CHANGE(cuGraphExecExternalSemaphoresSignalNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p), (void)0,
       node, p)
CHANGE(cuGraphExecExternalSemaphoresWaitNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p), (void)0, node,
       p)
CHANGE(cuGraphExecBatchMemOpNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p), (void)0, node,
       p)
CHANGE(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned int on), (void)0, node,
       on)
