/* Graphs as data: nodes, edges, copies and orders. graph_work.c implements the contents of nodes.
 */
#include "soft/client/graph/graph.h"
#include "soft/client/strict.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static uint64_t next_id(void)
{
	static uint64_t last;

	return add_relaxed(&last, 1u) + 1;
}

static void *new_object(enum soft_object_kind kind, size_t size)
{
	void *o;

	lock_take(&soft.lock);
	o = soft_object_create(kind, size);
	lock_release(&soft.lock);
	return o;
}

static void end_object(void *o)
{
	lock_take(&soft.lock);
	soft_object_destroy(o);
	lock_release(&soft.lock);
}

CUresult soft_graph_create(CUgraph *ret)
{
	CUgraph g = new_object(SOFT_OBJECT_GRAPH, sizeof(*g));

	if (!g) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	g->id = next_id();
	*ret = g;
	return CUDA_SUCCESS;
}

static void end_node(CUgraphNode n)
{
	soft_work_finish(&n->work);
	free(n->deps);
	n->deps = NULL;
	end_object(n);
}

void soft_graph_destroy(CUgraph g)
{
	if (!g) {
		return;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		end_node(g->nodes[i]);
	}
	free(g->nodes);
	soft_graph_users_release(g->users, g->n_users);
	end_object(g);
}

CUresult soft_graph_check(CUgraph g)
{
	CUresult e = soft_check();

	return e						    ? e
	       : soft_handle_is(g, SOFT_OBJECT_GRAPH) && !g->hidden ? CUDA_SUCCESS
								    : CUDA_ERROR_INVALID_VALUE;
}

void soft_graph_hide(CUgraph g)
{
	g->hidden = true;
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			soft_graph_hide(g->nodes[i]->work.child);
		}
	}
}

CUresult soft_graph_check_node(CUgraphNode n)
{
	CUresult e = soft_check();

	return e ? e
	       : soft_handle_is(n, SOFT_OBJECT_NODE) && !n->graph->hidden
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static struct soft_graph_edge *find_edge(CUgraphNode to, CUgraphNode from)
{
	for (uint32_t i = 0; i < to->n_deps; i++) {
		if (to->deps[i].from == from) {
			return &to->deps[i];
		}
	}
	return NULL;
}

static CUresult check_edge(CUgraphNode to, CUgraphNode from, const CUgraphEdgeData *d)
{
	static const CUgraphEdgeData plain;

	if (from->graph != to->graph || from == to) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (memcmp(d->reserved, plain.reserved, sizeof(d->reserved)) != 0 || d->to_port ||
	    d->from_port > 2 || d->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((d->from_port || d->type) && from->work.type != CU_GRAPH_NODE_TYPE_KERNEL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return d->type && (to->work.type != CU_GRAPH_NODE_TYPE_KERNEL || !d->from_port)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

CUresult soft_graph_connect(CUgraphNode to, CUgraphNode from, CUgraphEdgeData data)
{
	CUresult e = check_edge(to, from, &data);

	if (e) {
		return e;
	}
	if (find_edge(to, from)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (to->n_deps == to->cap_deps) {
		uint32_t cap = to->cap_deps ? to->cap_deps * 2 : 4;
		struct soft_graph_edge *grown = realloc(to->deps, cap * sizeof(*grown));

		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		to->deps = grown;
		to->cap_deps = cap;
	}
	to->deps[to->n_deps++] = (struct soft_graph_edge){ from, data };
	return CUDA_SUCCESS;
}

bool soft_graph_disconnect(CUgraphNode to, CUgraphNode from)
{
	struct soft_graph_edge *d = find_edge(to, from);

	if (!d) {
		return false;
	}
	to->n_deps--;
	memmove(d, d + 1, (size_t)(to->deps + to->n_deps - d) * sizeof(*d));
	return true;
}

void soft_graph_remove(CUgraphNode n)
{
	CUgraph g = n->graph;

	for (uint32_t i = 0; i < g->n; i++) {
		soft_graph_disconnect(g->nodes[i], n);
	}
	g->n--;
	memmove(g->nodes + n->index, g->nodes + n->index + 1,
		(g->n - n->index) * sizeof(*g->nodes));
	for (uint32_t i = n->index; i < g->n; i++) {
		g->nodes[i]->index = i;
	}
	end_node(n);
}

static CUgraphNode append(CUgraph g)
{
	CUgraphNode n;

	if (g->n == g->cap) {
		uint32_t cap = g->cap ? g->cap * 2 : 8;
		CUgraphNode *grown =
			cap > SOFT_GRAPH_MAX_NODES ? NULL : realloc(g->nodes, cap * sizeof(*grown));

		if (!grown) {
			return NULL;
		}
		g->nodes = grown;
		g->cap = cap;
	}
	n = new_object(SOFT_OBJECT_NODE, sizeof(*n));
	if (n) {
		n->graph = g;
		n->id = next_id();
		n->index = g->n;
		g->nodes[g->n++] = n;
	}
	return n;
}

CUresult soft_graph_add(CUgraph g, const struct soft_graph_edge *deps, size_t n,
			struct soft_work *w, CUgraphNode *ret)
{
	CUgraphNode node = append(g);
	CUresult e = CUDA_SUCCESS;

	if (!node) {
		soft_work_finish(w);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	node->work = *w;
	if (w->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		w->child->owner = node;
	}
	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < n && !e; i++) {
		e = soft_graph_connect(node, deps[i].from, deps[i].data);
	}
	if (e) {
		soft_graph_remove(node);
		return e;
	}
	*ret = node;
	return CUDA_SUCCESS;
}

static CUresult clone_into(CUgraph to, CUgraph from)
{
	CUresult e = CUDA_SUCCESS;

	for (uint32_t i = 0; i < from->n && !e; i++) {
		CUgraphNode n = append(to);

		if (!n) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		n->origin = from->nodes[i]->id;
		e = soft_work_copy(&n->work, &from->nodes[i]->work);
		if (!e && n->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			n->work.child->owner = n;
		}
	}
	for (uint32_t i = 0; i < from->n && !e; i++) {
		const CUgraphNode old = from->nodes[i];

		for (uint32_t j = 0; j < old->n_deps && !e; j++) {
			e = soft_graph_connect(to->nodes[i], to->nodes[old->deps[j].from->index],
					       old->deps[j].data);
		}
	}
	return e ? e : soft_graph_users_copy(&to->users, &to->n_users, from->users, from->n_users);
}

CUresult soft_graph_clone(CUgraph from, CUgraph *ret)
{
	CUgraph g;
	CUresult e = soft_graph_create(&g);

	if (e) {
		return e;
	}
	g->origin = from->id;
	e = clone_into(g, from);
	if (e) {
		soft_graph_destroy(g);
		return e;
	}
	*ret = g;
	return CUDA_SUCCESS;
}

/* For each node: the number of nodes it waits for, and the index in `to` of the first of its
 * outgoing edges. */
struct adjacency {
	uint32_t *waits, *first, *to;
};

static void list_edges(CUgraph g, struct adjacency *l)
{
	for (uint32_t i = 0; i < g->n; i++) {
		l->waits[i] = g->nodes[i]->n_deps;
		for (uint32_t j = 0; j < g->nodes[i]->n_deps; j++) {
			l->first[g->nodes[i]->deps[j].from->index + 1]++;
		}
	}
	for (uint32_t i = 0; i < g->n; i++) {
		l->first[i + 1] += l->first[i];
	}
	for (uint32_t i = g->n; i-- > 0;) { /* fills each node's list from its end */
		for (uint32_t j = 0; j < g->nodes[i]->n_deps; j++) {
			l->to[--l->first[g->nodes[i]->deps[j].from->index + 1]] = i;
		}
	}
}

CUresult soft_graph_order(CUgraph g, uint32_t **ret)
{
	uint32_t n_edges = 0, put = 0;
	struct adjacency l = { 0 };
	CUresult e = CUDA_ERROR_OUT_OF_MEMORY;
	uint32_t *order;

	for (uint32_t i = 0; i < g->n; i++) {
		n_edges += g->nodes[i]->n_deps;
	}
	order = calloc(g->n + 1, sizeof(*order));
	l.waits = calloc(g->n + 1, sizeof(*l.waits));
	l.first = calloc(g->n + 2, sizeof(*l.first));
	l.to = calloc(n_edges + 1, sizeof(*l.to));
	if (!order || !l.waits || !l.first || !l.to) {
		goto out;
	}
	list_edges(g, &l);
	for (uint32_t i = 0; i < g->n; i++) {
		if (!l.waits[i]) {
			order[put++] = i;
		}
	}
	for (uint32_t at = 0; at < put; at++) {
		uint32_t end = order[at] + 1 < g->n ? l.first[order[at] + 2] : n_edges;

		for (uint32_t j = l.first[order[at] + 1]; j < end; j++) {
			if (--l.waits[l.to[j]] == 0) {
				order[put++] = l.to[j];
			}
		}
	}
	e = put == g->n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
out:
	free(l.waits);
	free(l.first);
	free(l.to);
	if (e) {
		free(order);
		order = NULL;
	}
	*ret = order;
	return e;
}

bool soft_graph_reachable(CUgraph g, const struct soft_graph_edge *edges, size_t n,
			  const struct soft_graph_edge *from, size_t n_from)
{
	CUgraphNode *todo = malloc((g->n + 1) * sizeof(*todo));
	uint32_t put = 0;
	bool all = todo != NULL;

	for (uint32_t i = 0; i < g->n; i++) {
		g->nodes[i]->mark = 0;
	}
	for (size_t i = 0; i < n_from && all; i++) {
		if (!from[i].from->mark) {
			from[i].from->mark = 1;
			todo[put++] = from[i].from;
		}
	}
	while (put && all) {
		CUgraphNode node = todo[--put];

		for (uint32_t j = 0; j < node->n_deps; j++) {
			if (!node->deps[j].from->mark) {
				node->deps[j].from->mark = 1;
				todo[put++] = node->deps[j].from;
			}
		}
	}
	for (size_t i = 0; i < n && all; i++) {
		all = edges[i].from->mark;
	}
	free(todo);
	return all;
}
