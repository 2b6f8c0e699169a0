/* Kernel nodes of graphs: their parameters are given with the entry stub's argument. The driver
 * copies them during the call. cuGraphKernelNodeGetParams returns the driver's pointers, of which
 * the program reads as many as it knows of. */
#include "shim/code/shim_code_int.h"

static const void *handle_of(const CUDA_KERNEL_NODE_PARAMS *p)
{
	return p->func ? (const void *)p->func : (const void *)p->kern;
}

/* Node parameters with the argument, if their kernel is patched. */
struct node {
	const CUDA_KERNEL_NODE_PARAMS_v1 *v1; /* for the driver */
	const CUDA_KERNEL_NODE_PARAMS *v2;
	CUDA_KERNEL_NODE_PARAMS_v1 copy_v1;
	CUDA_KERNEL_NODE_PARAMS copy_v2;
	struct shim_launch_args a;
};

static CUresult open_v1(struct node *n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	const struct cubin_kernel *k = p ? shim_code_kernel(p->func) : NULL;
	CUresult r;

	n->v1 = p;
	n->a.heap = NULL;
	if (!k) {
		return CUDA_SUCCESS;
	}
	r = shim_code_args_open(&n->a, k, NULL, p->kernelParams, p->extra);
	n->copy_v1 = *p;
	n->copy_v1.kernelParams = n->a.params;
	n->copy_v1.extra = n->a.extra;
	n->v1 = &n->copy_v1;
	return r;
}

static CUresult open_v2(struct node *n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct cubin_kernel *k = p ? shim_code_kernel(handle_of(p)) : NULL;
	CUresult r;

	n->v2 = p;
	n->a.heap = NULL;
	if (!k) {
		return CUDA_SUCCESS;
	}
	r = shim_code_args_open(&n->a, k, NULL, p->kernelParams, p->extra);
	n->copy_v2 = *p;
	n->copy_v2.kernelParams = n->a.params;
	n->copy_v2.extra = n->a.extra;
	n->v2 = &n->copy_v2;
	return r;
}

/* Makes the driver's call with the node's parameters unless they were refused. */
#define CALL(n, opened, call)                                                                      \
	__extension__({                                                                            \
		CUresult answer = (opened);                                                        \
                                                                                                   \
		if (answer == CUDA_SUCCESS) {                                                      \
			answer = (call);                                                           \
		}                                                                                  \
		shim_launch_args_close(&(n)->a);                                                   \
		answer;                                                                            \
	})

static CUresult add_v1(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n_after,
		       const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct node n;

	return CALL(&n, open_v1(&n, p),
		    shim_driver.cuGraphAddKernelNode(ret, g, after, n_after, n.v1));
}

static CUresult add_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n_after,
		       const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct node n;

	return CALL(&n, open_v2(&n, p),
		    shim_driver.cuGraphAddKernelNode_v2(ret, g, after, n_after, n.v2));
}

static CUresult set_v1(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct node n;

	return CALL(&n, open_v1(&n, p), shim_driver.cuGraphKernelNodeSetParams(node, n.v1));
}

static CUresult set_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct node n;

	return CALL(&n, open_v2(&n, p), shim_driver.cuGraphKernelNodeSetParams_v2(node, n.v2));
}

static CUresult exec_set_v1(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct node n;

	return CALL(&n, open_v1(&n, p),
		    shim_driver.cuGraphExecKernelNodeSetParams(exec, node, n.v1));
}

static CUresult exec_set_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct node n;

	return CALL(&n, open_v2(&n, p),
		    shim_driver.cuGraphExecKernelNodeSetParams_v2(exec, node, n.v2));
}

/* ---- nodes of any type ---- */

/* What adds nodes that are no kernels. */
static struct {
	CUresult (*v1)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *);
	CUresult (*v2)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
		       CUgraphNodeParams *);
} others;

/* Returns the program's parameters, or a copy with those of a patched kernel. The driver's answers
 * go into fields of other types only. */
static CUgraphNodeParams *any_node(struct node *n, CUgraphNodeParams *copy, CUgraphNodeParams *p,
				   CUresult *ret)
{
	n->a.heap = NULL;
	*ret = CUDA_SUCCESS;
	if (!p || p->type != CU_GRAPH_NODE_TYPE_KERNEL) {
		return p;
	}
	*ret = open_v2(n, &p->kernel);
	*copy = *p;
	copy->kernel = *n->v2;
	return copy;
}

static CUresult add_any(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n_after,
			CUgraphNodeParams *p)
{
	CUgraphNodeParams copy;
	struct node n;
	CUresult r;

	if (!p || p->type != CU_GRAPH_NODE_TYPE_KERNEL) {
		return others.v1(ret, g, after, n_after, p);
	}
	p = any_node(&n, &copy, p, &r);
	return CALL(&n, r, shim_driver.cuGraphAddNode(ret, g, after, n_after, p));
}

static CUresult add_any_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after,
			   const CUgraphEdgeData *edges, size_t n_after, CUgraphNodeParams *p)
{
	CUgraphNodeParams copy;
	struct node n;
	CUresult r;

	if (!p || p->type != CU_GRAPH_NODE_TYPE_KERNEL) {
		return others.v2(ret, g, after, edges, n_after, p);
	}
	p = any_node(&n, &copy, p, &r);
	return CALL(&n, r, shim_driver.cuGraphAddNode_v2(ret, g, after, edges, n_after, p));
}

static CUresult set_any(CUgraphNode node, CUgraphNodeParams *p)
{
	CUgraphNodeParams copy;
	struct node n;
	CUresult r;

	p = any_node(&n, &copy, p, &r);
	return CALL(&n, r, shim_driver.cuGraphNodeSetParams(node, p));
}

static CUresult exec_set_any(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	CUgraphNodeParams copy;
	struct node n;
	CUresult r;

	p = any_node(&n, &copy, p, &r);
	return CALL(&n, r, shim_driver.cuGraphExecNodeSetParams(exec, node, p));
}

void shim_code_lead_graphs(void)
{
	shim_real.cuGraphAddKernelNode = add_v1;
	shim_real.cuGraphAddKernelNode_v2 = add_v2;
	shim_real.cuGraphKernelNodeSetParams = set_v1;
	shim_real.cuGraphKernelNodeSetParams_v2 = set_v2;
	shim_real.cuGraphExecKernelNodeSetParams = exec_set_v1;
	shim_real.cuGraphExecKernelNodeSetParams_v2 = exec_set_v2;
	others.v1 = shim_real.cuGraphAddNode;
	others.v2 = shim_real.cuGraphAddNode_v2;
	shim_real.cuGraphAddNode = add_any;
	shim_real.cuGraphAddNode_v2 = add_any_v2;
	shim_real.cuGraphNodeSetParams = set_any;
	shim_real.cuGraphExecNodeSetParams = exec_set_any;
}
