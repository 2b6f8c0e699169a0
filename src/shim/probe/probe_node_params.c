/* The parameters with which an executable graph runs its kernel nodes. They are those of its graph
 * at instantiation, until the program changes a node of either; right then the driver copies them
 * into a node of a graph of the shim's own, which is never launched. So they are known whenever a
 * tool comes, no layout of parameters has to be known, and launches pay nothing. */
#include "shim/probe/probe_graph_int.h"

#include <string.h>

#include "shim/object/green_context.h"

static const char green[] = "it runs in a green context";
static const char updatable[] = "kernels of the GPU may change the node";

static CUresult params_of(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret)
{
	memset(ret, 0, sizeof(*ret));
	return shim_driver.cuGraphKernelNodeGetParams_v2(node, ret);
}

/* Asks the driver for a node's kernel and context. A node of a green context is lost: a form
 * belongs to the primary context, so the node would leave the green context's multiprocessors. */
bool shim_probe_node_learn_from(struct shim_probe_node *n, CUgraphNode from)
{
	CUDA_KERNEL_NODE_PARAMS p;

	if (params_of(from, &p) != CUDA_SUCCESS) {
		return false;
	}
	n->handle = shim_kernel_noted(p.kern, p.func);
	n->ctx = p.ctx;
	if (p.ctx && shim_green_of(p.ctx)) {
		n->lost = green;
	}
	return true;
}

/* Of a node whose parameters are not known it asks the program's graph, for the report. */
void shim_probe_node_learn(const struct shim_probe_exec *x, struct shim_probe_node *n)
{
	const struct shim_probe_place *place;

	lock_take(&shim_probe_graphs_mutex);
	place = shim_probe_place(x, n->node);
	if (n->kept || x->copy || (place && !place->gone)) {
		(void)shim_probe_node_learn_from(n, n->kept ? n->saved : n->node);
	}
	n->learned = true;
	lock_release(&shim_probe_graphs_mutex);
}

/* Only the device knows the parameters of a node that kernels may change. */
static bool is_updatable(CUgraphNode node)
{
	CUlaunchAttributeValue v;

	memset(&v, 0, sizeof(v));
	return shim_driver.cuGraphKernelNodeGetAttribute(
		       node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &v) ==
		       CUDA_SUCCESS &&
	       v.deviceUpdatableKernelNode.deviceUpdatable;
}

/* Why the exec's node cannot be changed; NULL: it can. Under the lock the program's graph
 * keeps its parameters. */
static const char *why_lost(const struct shim_probe_exec *x, struct shim_probe_node *n)
	REQUIRES(shim_probe_graphs_mutex)
{
	const struct shim_probe_place *p = x->copy ? NULL : shim_probe_place(x, n->node);

	if (!x->copy && (!p || p->gone)) {
		return p ? "the node was destroyed" : "the graph has changed";
	}
	if (p && p->edited && !n->kept) {
		return "the node was changed before a tool asked for its kernel";
	}
	if (!n->checked && is_updatable(n->node)) {
		return updatable;
	}
	n->checked = true;
	return NULL;
}

/* Has the driver copy parameters to a node of the shim's, made by `set` and `add`. */
static CUresult copy(struct shim_probe_exec *x, struct shim_probe_node *n,
		     const CUDA_KERNEL_NODE_PARAMS *p,
		     CUresult (*set)(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *),
		     CUresult (*add)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
				     const CUDA_KERNEL_NODE_PARAMS *))
{
	CUresult r = x->own ? CUDA_SUCCESS : shim_driver.cuGraphCreate(&x->own, 0);

	if (r != CUDA_SUCCESS) {
		x->own = NULL;
	} else if (!n->saved || (r = set(n->saved, p)) != CUDA_SUCCESS) {
		r = add(&n->saved, x->own, NULL, 0, p);
		n->saved = r == CUDA_SUCCESS ? n->saved : NULL;
	}
	n->kept = r == CUDA_SUCCESS;
	if (!n->kept) {
		n->lost = "its parameters cannot be copied";
	}
	return r;
}

/* The same of another node's parameters. */
static CUresult copy_from(struct shim_probe_exec *x, struct shim_probe_node *n, CUgraphNode from)
	REQUIRES(shim_probe_graphs_mutex)
{
	CUDA_KERNEL_NODE_PARAMS p;
	CUresult r = params_of(from, &p);

	if (r != CUDA_SUCCESS) {
		n->lost = "the driver does not return its parameters";
		return r;
	}
	return copy(x, n, &p, shim_driver.cuGraphKernelNodeSetParams_v2,
		    shim_driver.cuGraphAddKernelNode_v2);
}

CUresult shim_probe_node_params(struct shim_probe_exec *x, struct shim_probe_node *n,
				CUDA_KERNEL_NODE_PARAMS *ret)
{
	CUresult r = CUDA_SUCCESS;

	lock_take(&shim_probe_graphs_mutex);
	n->lost = n->lost ? n->lost : why_lost(x, n);
	if (n->lost) {
		r = CUDA_ERROR_NOT_SUPPORTED;
	} else if (!n->kept) {
		r = copy_from(x, n, n->node);
	}
	lock_release(&shim_probe_graphs_mutex);
	return r == CUDA_SUCCESS ? params_of(n->saved, ret) : r;
}

CUresult shim_probe_node_kept_params(const struct shim_probe_node *n, CUDA_KERNEL_NODE_PARAMS *ret)
{
	return n->kept ? params_of(n->saved, ret) : CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- changes by the program ---- */

void shim_probe_node_set(struct shim_probe_exec *x, struct shim_probe_node *n,
			 const CUDA_KERNEL_NODE_PARAMS *p)
{
	n->lost = NULL;
	n->learned = false;
	(void)copy(x, n, p, SHIM_REAL(cuGraphKernelNodeSetParams_v2),
		   SHIM_REAL(cuGraphAddKernelNode_v2)); /* shim/code adds the stub's argument */
}

void shim_probe_node_keep(struct shim_probe_exec *x, struct shim_probe_node *n)
{
	const struct shim_probe_place *p;

	lock_take(&shim_probe_graphs_mutex);
	p = shim_probe_place(x, n->node);
	if (p && !p->edited && !p->gone && !n->kept && !n->lost) {
		(void)copy_from(x, n, n->node);
	}
	lock_release(&shim_probe_graphs_mutex);
}

/* ---- child graphs that the program replaces ---- */

#define CHAIN_MAX 64u

/* Nodes of a graph, each of which follows the one before it. */
struct chain {
	CUgraphNode v[CHAIN_MAX];
	size_t n;
};

static CUresult edges_of(CUgraph g, CUgraphNode from[CHAIN_MAX], CUgraphNode to[CHAIN_MAX],
			 size_t *n)
{
	CUgraphEdgeData data[CHAIN_MAX];

	return shim_driver.cuGraphGetEdges_v2 ? shim_driver.cuGraphGetEdges_v2(g, from, to, data, n)
					      : shim_driver.cuGraphGetEdges(g, from, to, n);
}

static CUgraphNode next_of(CUgraphNode node, CUgraphNode const *from, CUgraphNode const *to,
			   size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (from[i] == node) {
			return to[i];
		}
	}
	return NULL;
}

/* Orders n nodes, n > 1. Returns false if they are no chain. */
static bool order(CUgraph g, struct chain *c)
{
	CUgraphNode from[CHAIN_MAX] = { NULL }, to[CHAIN_MAX] = { NULL };
	size_t n_edges = CHAIN_MAX, i;

	if (edges_of(g, from, to, &n_edges) != CUDA_SUCCESS || n_edges != c->n - 1) {
		return false;
	}
	for (i = 0; i < c->n && next_of(c->v[i], to, from, n_edges); i++) {
	}
	if (i == c->n) {
		return false;
	}
	c->v[0] = c->v[i];
	for (i = 1; i < c->n;
	     i++) { /* n - 1 edges, no cycle: each node is met, or the chain ends */
		c->v[i] = next_of(c->v[i - 1], from, to, n_edges);
		if (!c->v[i]) {
			return false;
		}
	}
	return true;
}

static bool chain_of(CUgraph g, struct chain *ret)
{
	ret->n = 0;
	if (shim_driver.cuGraphGetNodes(g, NULL, &ret->n) != CUDA_SUCCESS || ret->n == 0 ||
	    ret->n > CHAIN_MAX || shim_driver.cuGraphGetNodes(g, ret->v, &ret->n) != CUDA_SUCCESS) {
		return false;
	}
	return ret->n == 1 || order(g, ret);
}

static void take_from(struct shim_probe_exec *x, CUgraphNode node, CUgraphNode from)
{
	struct shim_probe_node *n = shim_probe_exec_node(x, node);
	struct shim_probe_place *p;
	CUDA_KERNEL_NODE_PARAMS now;

	lock_take(&shim_probe_graphs_mutex);
	p = shim_probe_place(x, node);
	if (n && p) {
		n->lost = NULL;
		if (copy_from(x, n, from) == CUDA_SUCCESS &&
		    params_of(n->saved, &now) == CUDA_SUCCESS) {
			shim_probe_exec_recount(x, p, &now);
		}
	}
	lock_release(&shim_probe_graphs_mutex);
}

bool shim_probe_exec_pair(struct shim_probe_exec *x, CUgraph old, CUgraph from)
{
	struct chain a, b;

	if (!chain_of(old, &a) || !chain_of(from, &b) || a.n != b.n) {
		return false;
	}
	for (size_t i = 0; i < a.n; i++) {
		CUgraphNodeType type;

		if (shim_driver.cuGraphNodeGetType(a.v[i], &type) == CUDA_SUCCESS &&
		    type == CU_GRAPH_NODE_TYPE_KERNEL) {
			take_from(x, a.v[i], b.v[i]);
		}
	}
	return true;
}
