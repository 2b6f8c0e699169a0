/* The set of executable graphs with event nodes. A graph's nodes are inspected once, at
 * instantiation. */
#include "shim/object/graph_events.h"

#include <stdlib.h>

#include "shim/object/handle_set.h"
#include "shim/shim.h"

#define MAX_NODES (1u << 20)
#define MAX_NESTING 8u

static struct shim_handle_set with_events = SHIM_HANDLE_SET_INIT;

bool shim_graph_has_events(CUgraphExec exec)
{
	return shim_handle_set_has(&with_events, exec);
}

static void child(void)
{
	shim_handle_set_after_fork(&with_events);
}

const struct shim_part shim_graph_part = { .child = child };

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

void shim_graph_instantiated(CUgraphExec exec, CUgraph g)
{
	if (has_events(g, 0)) {
		shim_handle_set_add(&with_events, exec);
	} else { /* a destroyed context may have had another graph with that handle */
		shim_handle_set_remove(&with_events, exec);
	}
}

void shim_graph_destroyed(CUgraphExec exec)
{
	shim_handle_set_remove(&with_events, exec);
}
