/* The API of graphs: creation, destruction, queries and edges. graph_node.c implements that of
 * nodes. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/graph/graph.h"
#include "soft/client/strict.h"

CUresult cuGraphCreate(CUgraph *ret, unsigned int flags)
{
	CUresult e = soft_check();

	return e ? e : ret && !flags ? soft_graph_create(ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph g)
{
	CUresult e = soft_graph_check(g);

	if (!e && (g->owner || g->capturing)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	if (!e) {
		soft_handle_destroying(g);
		soft_graph_destroy(g);
	}
	return e;
}

CUresult cuGraphClone(CUgraph *ret, CUgraph g)
{
	CUresult e = soft_graph_check(g);

	e = e ? e : ret ? soft_graph_check_copyable(g) : CUDA_ERROR_INVALID_VALUE;
	return e ? e : soft_graph_clone(g, ret);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *ret, CUgraphNode n, CUgraph clone)
{
	CUresult e = soft_graph_check_node(n);

	e = e ? e : soft_graph_check(clone);
	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; i < clone->n; i++) {
		if (clone->nodes[i]->origin == n->id) {
			*ret = clone->nodes[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Lists in the driver's convention: without an array, the call returns the count. Otherwise it
 * fills the array, sets unused entries to NULL, and returns the number of entries filled. */
struct node_list {
	CUgraphNode *nodes, *to;
	CUgraphEdgeData *data;
	size_t cap, n;
	bool lossy; /* an edge has data that the caller cannot receive */
};

static void give(struct node_list *o, CUgraphNode node, CUgraphNode to, const CUgraphEdgeData *d)
{
	static const CUgraphEdgeData plain;

	if (o->nodes && o->n < o->cap) {
		o->nodes[o->n] = node;
		if (o->to) {
			o->to[o->n] = to;
		}
		if (o->data) {
			o->data[o->n] = *d;
		} else if (d && memcmp(d, &plain, sizeof(plain)) != 0) {
			o->lossy = true;
		}
	}
	o->n++;
}

static CUresult end(struct node_list *o, size_t *count)
{
	if (!o->nodes) {
		*count = o->n;
		return CUDA_SUCCESS;
	}
	for (size_t i = o->n; i < o->cap; i++) {
		o->nodes[i] = NULL;
		if (o->to) {
			o->to[i] = NULL;
		}
	}
	*count = MIN(o->n, o->cap);
	return o->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *count)
{
	CUresult e = soft_graph_check(g);
	struct node_list o = { .nodes = nodes };

	if (e || !count) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	o.cap = *count;
	for (uint32_t i = 0; i < g->n; i++) {
		give(&o, g->nodes[i], NULL, NULL);
	}
	return end(&o, count);
}

CUresult cuGraphGetRootNodes(CUgraph g, CUgraphNode *nodes, size_t *count)
{
	CUresult e = soft_graph_check(g);
	struct node_list o = { .nodes = nodes };

	if (e || !count) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	o.cap = *count;
	for (uint32_t i = 0; i < g->n; i++) {
		if (!g->nodes[i]->n_deps) {
			give(&o, g->nodes[i], NULL, NULL);
		}
	}
	return end(&o, count);
}

CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
			    size_t *count)
{
	CUresult e = soft_graph_check(g);
	struct node_list o = { .nodes = from, .to = to, .data = data };

	if (e || !count || !from != !to || (data && !from)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	o.cap = *count;
	for (uint32_t i = 0; i < g->n; i++) {
		for (uint32_t j = 0; j < g->nodes[i]->n_deps; j++) {
			const struct soft_graph_edge *d = &g->nodes[i]->deps[j];

			give(&o, d->from, g->nodes[i], &d->data);
		}
	}
	return end(&o, count);
}

CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return cuGraphGetEdges_v2(g, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode n, CUgraphNode *nodes, CUgraphEdgeData *data,
				       size_t *count)
{
	CUresult e = soft_graph_check_node(n);
	struct node_list o = { .nodes = nodes, .data = data };

	if (e || !count || (data && !nodes)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	o.cap = *count;
	for (uint32_t j = 0; j < n->n_deps; j++) {
		give(&o, n->deps[j].from, NULL, &n->deps[j].data);
	}
	return end(&o, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode n, CUgraphNode *nodes, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(n, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode n, CUgraphNode *nodes, CUgraphEdgeData *data,
					 size_t *count)
{
	CUresult e = soft_graph_check_node(n);
	struct node_list o = { .nodes = nodes, .data = data };

	if (e || !count || (data && !nodes)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	o.cap = *count;
	for (uint32_t i = 0; i < n->graph->n; i++) {
		const CUgraphNode to = n->graph->nodes[i];

		for (uint32_t j = 0; j < to->n_deps; j++) {
			if (to->deps[j].from == n) {
				give(&o, to, NULL, &to->deps[j].data);
			}
		}
	}
	return end(&o, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode n, CUgraphNode *nodes, size_t *count)
{
	return cuGraphNodeGetDependentNodes_v2(n, nodes, NULL, count);
}

/* Checks all edges before the caller adds the first. */
static CUresult check_pairs(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	CUresult e = soft_graph_check(g);

	if (e || (n && (!from || !to))) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n && !e; i++) {
		e = soft_graph_check_node(from[i]);
		e = e ? e : soft_graph_check_node(to[i]);
		e = e					       ? e
		    : from[i]->graph == g && to[i]->graph == g ? CUDA_SUCCESS
							       : CUDA_ERROR_INVALID_VALUE;
	}
	return e;
}

CUresult cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *data, size_t n)
{
	static const CUgraphEdgeData plain;
	CUresult e = check_pairs(g, from, to, n);
	size_t i = 0;

	for (; i < n && !e; i++) {
		e = soft_graph_connect(to[i], from[i], data ? data[i] : plain);
	}
	if (e && i) { /* the failed edge was not added */
		for (size_t j = 0; j + 1 < i; j++) {
			soft_graph_disconnect(to[j], from[j]);
		}
	}
	return e;
}

CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return cuGraphAddDependencies_v2(g, from, to, NULL, n);
}

static bool has_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
	for (uint32_t j = 0; j < to->n_deps; j++) {
		if (to->deps[j].from == from) {
			return !data || memcmp(data, &to->deps[j].data, sizeof(*data)) == 0;
		}
	}
	return false;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t n)
{
	CUresult e = check_pairs(g, from, to, n);

	for (size_t i = 0; i < n && !e; i++) {
		e = has_edge(from[i], to[i], data ? &data[i] : NULL) ? CUDA_SUCCESS
								     : CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n && !e; i++) {
		soft_graph_disconnect(to[i], from[i]);
	}
	return e;
}

CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				   size_t n)
{
	return cuGraphRemoveDependencies_v2(g, from, to, NULL, n);
}
