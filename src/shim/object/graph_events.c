/* The set of executable graphs with event nodes. A graph's nodes are inspected once, at
 * instantiation. */
#include "shim/object/graph_events.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/strmap.h"
#include "cuabi/api.h"
#include "shim/object/event_uses.h"
#include "shim/object/kernel_handle.h"

#define MAX_NODES (1u << 20)
#define MAX_NESTING 8u
#define MAX_GRAPHS 65536u

static pthread_mutex_t graphs_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct strmap graphs; /* graphs_mutex; those with events: handle in hexadecimal > itself */
static uint32_t n_graphs;    /* atomic */
static uint32_t any;

bool shim_graph_has_events(CUgraphExec exec)
{
	bool found;

	if (likely(!load_acquire(&n_graphs))) {
		return false;
	}
	pthread_mutex_lock(&graphs_mutex);
	found = load_relaxed(&any) || strmap_get(&graphs, shim_handle_key(exec).text);
	pthread_mutex_unlock(&graphs_mutex);
	return found;
}

static void remember(CUgraphExec exec)
{
	int err;

	pthread_mutex_lock(&graphs_mutex);
	err = graphs.live < MAX_GRAPHS ? strmap_add(&graphs, shim_handle_key(exec).text, exec)
				       : -ENOMEM;
	if (err && err != -EEXIST) {
		store_relaxed(&any, 1u);
	}
	store_release(&n_graphs, (uint32_t)graphs.live + load_relaxed(&any));
	pthread_mutex_unlock(&graphs_mutex);
}

static void forget(CUgraphExec exec)
{
	if (likely(!load_acquire(&n_graphs))) {
		return;
	}
	pthread_mutex_lock(&graphs_mutex);
	(void)strmap_del(&graphs, shim_handle_key(exec).text);
	store_release(&n_graphs, (uint32_t)graphs.live + load_relaxed(&any));
	pthread_mutex_unlock(&graphs_mutex);
}

void graph_forget(void)
{
	pthread_mutex_init(&graphs_mutex, NULL);
}

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

/* Returns true also if there are too many nodes to inspect. */
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

static CUresult ready(CUresult r, const CUgraphExec *exec, CUgraph g)
{
	if (r != CUDA_SUCCESS || !exec || !shim_attached()) {
		return r;
	}
	if (has_events(g, 0)) {
		remember(*exec);
	} else { /* of a context that has ended there may have been another with that handle */
		forget(*exec);
	}
	return r;
}

CUresult cuGraphInstantiate(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log, size_t bytes)
{
	return ready(shim_real.cuGraphInstantiate(ret, g, node, log, bytes), ret, g);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *ret, CUgraph g, CUgraphNode *node, char *log,
			       size_t bytes)
{
	return ready(shim_real.cuGraphInstantiate_v2(ret, g, node, log, bytes), ret, g);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph g, unsigned long long flags)
{
	return ready(shim_real.cuGraphInstantiateWithFlags(ret, g, flags), ret, g);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return ready(shim_real.cuGraphInstantiateWithParams(ret, g, p), ret, g);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret, CUgraph g,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return ready(shim_real.cuGraphInstantiateWithParams_ptsz(ret, g, p), ret, g);
}

void shim_graph_drain(CUgraphExec exec)
{
	shim_event_drain((CUevent)(void *)exec, SHIM_EVENT_AWAIT, NULL);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (unlikely(shim_pending())) {
		if (shim_event_defer_graph_destroy(exec)) {
			return CUDA_SUCCESS;
		}
		shim_graph_drain(exec);
	}
	forget(exec);
	return shim_real.cuGraphExecDestroy(exec);
}
