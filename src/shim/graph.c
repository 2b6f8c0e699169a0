/* When a graph is made ready to run its nodes are looked at once. What the table of kept events
 * (event.c) cannot know of, launches of such graphs, then goes without being kept, after everything
 * that is. A graph that is destroyed ends behind its kept launches. */
#include "shim/graph.h"

#include <stdlib.h>

#include "cuabi/api.h"
#include "shim/event.h"

#define MAX_NODES (1u << 20)
#define MAX_NESTING 8u

uint32_t graph_events;

static bool has_events(CUgraph g, unsigned depth);

static bool node_has_events(CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
	CUgraph child;

	if (shim_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
		return false;
	}
	if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
		return shim_real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
		       has_events(child, depth + 1);
	}
	return type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

/* Too many to look at counts as yes. */
static bool has_events(CUgraph g, unsigned depth)
{
	CUgraphNode *nodes;
	bool found = false;
	size_t n = 0;

	if (depth > MAX_NESTING) {
		return true;
	}
	if (shim_real.cuGraphGetNodes(g, NULL, &n) != CUDA_SUCCESS || !n) {
		return false;
	}
	nodes = n <= MAX_NODES ? calloc(n, sizeof(nodes[0])) : NULL;
	if (!nodes) {
		return true;
	}
	if (shim_real.cuGraphGetNodes(g, nodes, &n) == CUDA_SUCCESS) {
		for (size_t i = 0; i < n && !found; i++) {
			found = node_has_events(nodes[i], depth);
		}
	}
	free(nodes);
	return found;
}

static CUresult ready(CUresult r, CUgraph g)
{
	if (r == CUDA_SUCCESS && shim_attached() && !graph_has_events() && has_events(g, 0)) {
		store_relaxed(&graph_events, 1u);
	}
	return r;
}

CUresult cuGraphInstantiate(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log, size_t bytes)
{
	return ready(shim_real.cuGraphInstantiate(ret, g, node, log, bytes), g);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log,
			       size_t bytes)
{
	return ready(shim_real.cuGraphInstantiate_v2(ret, g, node, log, bytes), g);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph g, unsigned long long flags)
{
	return ready(shim_real.cuGraphInstantiateWithFlags(ret, g, flags), g);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return ready(shim_real.cuGraphInstantiateWithParams(ret, g, p), g);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret, CUgraph g,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return ready(shim_real.cuGraphInstantiateWithParams_ptsz(ret, g, p), g);
}

void graph_settle(CUgraphExec exec)
{
	event_settle((CUevent)(void *)exec, EVENT_AWAIT, NULL);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (unlikely(shim_pending())) {
		if (event_doom_graph(exec)) {
			return CUDA_SUCCESS;
		}
		graph_settle(exec);
	}
	return shim_real.cuGraphExecDestroy(exec);
}
