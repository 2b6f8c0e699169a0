/* Executable graphs. Launches of graphs with event nodes, whose events the table of event_uses.c
 * cannot know, are never deferred but follow everything that is. A graph that is destroyed ends
 * after its deferred launches. */
#include "shim/entry/graph_calls.h"

#include "cuabi/api.h"
#include "shim/mem/graphs.h"
#include "shim/mem/swap_graphs.h"
#include "shim/object/event_uses.h"
#include "shim/object/graph_events.h"
#include "shim/probe/shim_probe.h"

static CUresult instantiated(CUresult r, const CUgraphExec *exec, CUgraph g, uint64_t flags)
{
	if (r == CUDA_SUCCESS && exec && shim_attached()) {
		shim_graph_instantiated(*exec, g);
		shim_mem_graph_instantiated(*exec, g);
		shim_swap_graph_learn(*exec, g);
		shim_probe_graph_instantiated(*exec, g, flags);
	}
	return r;
}

CUresult cuGraphInstantiate(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log, size_t bytes)
{
	return instantiated(shim_real.cuGraphInstantiate(ret, g, node, log, bytes), ret, g, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log,
			       size_t bytes)
{
	return instantiated(shim_real.cuGraphInstantiate_v2(ret, g, node, log, bytes), ret, g, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph g, unsigned long long flags)
{
	return instantiated(shim_real.cuGraphInstantiateWithFlags(ret, g, flags), ret, g, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return instantiated(shim_real.cuGraphInstantiateWithParams(ret, g, p), ret, g,
			    p ? p->flags : 0);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret, CUgraph g,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return instantiated(shim_real.cuGraphInstantiateWithParams_ptsz(ret, g, p), ret, g,
			    p ? p->flags : 0);
}

void shim_graph_drain(CUgraphExec exec)
{
	shim_event_drain((CUevent)(void *)exec, SHIM_EVENT_AWAIT, NULL);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	/* Deferred launches use swapped memory where it is then. */
	shim_swap_graph_forget(exec);
	if (unlikely(shim_pending())) {
		if (shim_event_defer_graph_destroy(exec)) {
			return CUDA_SUCCESS;
		}
		shim_graph_drain(exec);
	}
	shim_graph_destroyed(exec);
	shim_mem_graph_exec_destroyed(exec);
	return SHIM_REAL(cuGraphExecDestroy)(exec);
}
