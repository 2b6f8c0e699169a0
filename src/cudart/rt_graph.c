/* Nodes of graphs whose parameters differ between runtime and driver: kernels, copies, sets. */
#include "cudart/rt_api.h"
#include "cudart/rt_calls.h"
#include "cudart/rt_int.h"
#include "cudart/rt_registry.h"
#include "cudart/rt_shape.h"

static cudaError_t current(CUcontext *ret)
{
	return cudart_from_driver(cudart_driver.cuCtxGetCurrent(ret));
}

static cudaError_t kernel_params(CUDA_KERNEL_NODE_PARAMS *ret, const struct cudaKernelNodeParams *p)
{
	CUkernel k;
	cudaError_t e = p ? cudart_kernel(p->func, &k) : cudaErrorInvalidValue;

	if (e) {
		return e;
	}
	*ret = (CUDA_KERNEL_NODE_PARAMS){
		.kern = k,
		.gridDimX = p->gridDim.x,
		.gridDimY = p->gridDim.y,
		.gridDimZ = p->gridDim.z,
		.blockDimX = p->blockDim.x,
		.blockDimY = p->blockDim.y,
		.blockDimZ = p->blockDim.z,
		.sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams,
		.extra = p->extra,
	};
	return cudaSuccess;
}

cudaError_t cudart_graph_add_kernel_node(cudaGraphNode_t *ret, cudaGraph_t graph,
					 const cudaGraphNode_t *deps, size_t n,
					 const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS d;
	cudaError_t e = kernel_params(&d, p);

	return e ? e
		 : cudart_from_driver(
			   cudart_driver.cuGraphAddKernelNode_v2(ret, graph, deps, n, &d));
}

cudaError_t cudart_graph_kernel_node_set_params(cudaGraphNode_t node,
						const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS d;
	cudaError_t e = kernel_params(&d, p);

	return e ? e : cudart_from_driver(cudart_driver.cuGraphKernelNodeSetParams_v2(node, &d));
}

cudaError_t cudart_graph_exec_kernel_node_set_params(cudaGraphExec_t exec, cudaGraphNode_t node,
						     const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS d;
	cudaError_t e = kernel_params(&d, p);

	return e ? e
		 : cudart_from_driver(
			   cudart_driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &d));
}

cudaError_t cudart_graph_kernel_node_get_params(cudaGraphNode_t node,
						struct cudaKernelNodeParams *ret)
{
	CUDA_KERNEL_NODE_PARAMS d = { 0 };
	CUresult r = cudart_driver.cuGraphKernelNodeGetParams_v2(node, &d);
	const void *handle = d.kern ? (void *)d.kern : (void *)d.func;
	const void *host;

	if (r || !ret) {
		return r ? cudart_from_driver(r) : cudaErrorInvalidValue;
	}
	host = cudart_host_function(handle);
	ret->func = (void *)(uintptr_t)(host ? host : handle);
	ret->gridDim = (struct dim3){ d.gridDimX, d.gridDimY, d.gridDimZ };
	ret->blockDim = (struct dim3){ d.blockDimX, d.blockDimY, d.blockDimZ };
	ret->sharedMemBytes = d.sharedMemBytes;
	ret->kernelParams = d.kernelParams;
	ret->extra = d.extra;
	return cudaSuccess;
}

/* ---- copies ---- */

static cudaError_t add_copy(cudaGraphNode_t *ret, cudaGraph_t graph, const cudaGraphNode_t *deps,
			    size_t n, const CUDA_MEMCPY3D *c)
{
	CUcontext ctx;
	cudaError_t e = current(&ctx);

	return e ? e
		 : cudart_from_driver(
			   cudart_driver.cuGraphAddMemcpyNode(ret, graph, deps, n, c, ctx));
}

static cudaError_t set_copy(cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_MEMCPY3D *c)
{
	CUcontext ctx;
	cudaError_t e = current(&ctx);

	if (e || !exec) {
		return e ? e
			 : cudart_from_driver(cudart_driver.cuGraphMemcpyNodeSetParams(node, c));
	}
	return cudart_from_driver(cudart_driver.cuGraphExecMemcpyNodeSetParams(exec, node, c, ctx));
}

cudaError_t cudart_graph_add_memcpy_node(cudaGraphNode_t *ret, cudaGraph_t graph,
					 const cudaGraphNode_t *deps, size_t n,
					 const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_of(&c, p);

	return e ? e : add_copy(ret, graph, deps, n, &c);
}

cudaError_t cudart_graph_memcpy_node_get_params(cudaGraphNode_t node, struct cudaMemcpy3DParms *ret)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_from_driver(cudart_driver.cuGraphMemcpyNodeGetParams(node, &c));

	return e || !ret ? (e ? e : cudaErrorInvalidValue) : cudart_shape_read(ret, &c);
}

cudaError_t cudart_graph_memcpy_node_set_params(cudaGraphNode_t node,
						const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_of(&c, p);

	return e ? e : set_copy(NULL, node, &c);
}

cudaError_t cudart_graph_exec_memcpy_node_set_params(cudaGraphExec_t exec, cudaGraphNode_t node,
						     const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = exec ? cudart_shape_of(&c, p) : cudaErrorInvalidValue;

	return e ? e : set_copy(exec, node, &c);
}

cudaError_t cudart_graph_add_copy(cudaGraphNode_t *ret, cudaGraph_t graph,
				  const cudaGraphNode_t *deps, size_t n, void *dst, const void *src,
				  size_t bytes, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_line(&c, dst, src, bytes, kind);

	return e ? e : add_copy(ret, graph, deps, n, &c);
}

cudaError_t cudart_graph_set_copy(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst,
				  const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_line(&c, dst, src, bytes, kind);

	return e ? e : set_copy(exec, node, &c);
}

/* Returns the address of the part of a variable. */
static cudaError_t part(const void *symbol, size_t bytes, size_t offset, void **ret)
{
	CUdeviceptr p;
	size_t all;
	cudaError_t e = cudart_symbol(symbol, &p, &all);

	if (e) {
		return e;
	}
	*ret = (void *)(p + offset);
	return offset > all || bytes > all - offset ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudart_graph_add_memcpy_node_to_symbol(cudaGraphNode_t *ret, cudaGraph_t graph,
						   const cudaGraphNode_t *deps, size_t n,
						   const void *symbol, const void *src,
						   size_t bytes, size_t offset,
						   enum cudaMemcpyKind kind)
{
	void *dst;
	cudaError_t e = part(symbol, bytes, offset, &dst);

	return e ? e : cudart_graph_add_copy(ret, graph, deps, n, dst, src, bytes, kind);
}

cudaError_t cudart_graph_add_memcpy_node_from_symbol(cudaGraphNode_t *ret, cudaGraph_t graph,
						     const cudaGraphNode_t *deps, size_t n,
						     void *dst, const void *symbol, size_t bytes,
						     size_t offset, enum cudaMemcpyKind kind)
{
	void *src;
	cudaError_t e = part(symbol, bytes, offset, &src);

	return e ? e : cudart_graph_add_copy(ret, graph, deps, n, dst, src, bytes, kind);
}

cudaError_t cudart_graph_set_to_symbol(cudaGraphExec_t exec, cudaGraphNode_t node,
				       const void *symbol, const void *src, size_t bytes,
				       size_t offset, enum cudaMemcpyKind kind)
{
	void *dst;
	cudaError_t e = part(symbol, bytes, offset, &dst);

	return e ? e : cudart_graph_set_copy(exec, node, dst, src, bytes, kind);
}

cudaError_t cudart_graph_set_from_symbol(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst,
					 const void *symbol, size_t bytes, size_t offset,
					 enum cudaMemcpyKind kind)
{
	void *src;
	cudaError_t e = part(symbol, bytes, offset, &src);

	return e ? e : cudart_graph_set_copy(exec, node, dst, src, bytes, kind);
}

/* ---- sets ---- */

cudaError_t cudart_graph_add_memset_node(cudaGraphNode_t *ret, cudaGraph_t graph,
					 const cudaGraphNode_t *deps, size_t n,
					 const struct cudaMemsetParams *p)
{
	CUcontext ctx;
	cudaError_t e = current(&ctx);

	return e ? e
		 : cudart_from_driver(cudart_driver.cuGraphAddMemsetNode(
			   ret, graph, deps, n, (const CUDA_MEMSET_NODE_PARAMS *)(const void *)p,
			   ctx));
}

cudaError_t cudart_graph_exec_memset_node_set_params(cudaGraphExec_t exec, cudaGraphNode_t node,
						     const struct cudaMemsetParams *p)
{
	CUcontext ctx;
	cudaError_t e = current(&ctx);

	return e ? e
		 : cudart_from_driver(cudart_driver.cuGraphExecMemsetNodeSetParams(
			   exec, node, (const CUDA_MEMSET_NODE_PARAMS *)(const void *)p, ctx));
}

cudaError_t cudart_graph_conditional_handle_create(CUgraphConditionalHandle *ret, cudaGraph_t graph,
						   unsigned int value, unsigned int flags)
{
	CUcontext ctx;
	cudaError_t e = current(&ctx);

	return e ? e
		 : cudart_from_driver(cudart_driver.cuGraphConditionalHandleCreate(ret, graph, ctx,
										   value, flags));
}

/* ---- nodes of any type ---- */

/* Fills the driver's parameters from the runtime's: most have the same layout. */
static cudaError_t any_params(CUgraphNodeParams *ret, const struct cudaGraphNodeParams *p)
{
	cudaError_t e = cudaSuccess;
	CUDA_MEMSET_NODE_PARAMS_v2 set;
	CUcontext ctx;

	if (!p) {
		return cudaErrorInvalidValue;
	}
	e = current(&ctx);
	_Static_assert(sizeof(*ret) == sizeof(*p), "the same layout");
	__builtin_memcpy(ret, p, sizeof(*ret));
	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		e = e ? e : kernel_params(&ret->kernel, &p->kernel);
	} else if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		ret->memcpy = (CUDA_MEMCPY_NODE_PARAMS){ .copyCtx = ctx };
		e = e ? e : cudart_shape_of(&ret->memcpy.copyParams, &p->memcpy.copyParams);
	} else if (p->type == CU_GRAPH_NODE_TYPE_MEMSET) {
		set = (CUDA_MEMSET_NODE_PARAMS_v2){
			.dst = (CUdeviceptr)p->memset.dst,
			.pitch = p->memset.pitch,
			.value = p->memset.value,
			.elementSize = p->memset.elementSize,
			.width = p->memset.width,
			.height = p->memset.height,
			.ctx = ctx,
		};
		ret->memset = set;
	}
	return e;
}

cudaError_t cudart_graph_add_node(cudaGraphNode_t *ret, cudaGraph_t graph,
				  const cudaGraphNode_t *deps, const CUgraphEdgeData *data,
				  size_t n, struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams d;
	cudaError_t e = any_params(&d, p);

	e = e ? e
	      : cudart_from_driver(cudart_driver.cuGraphAddNode_v2(ret, graph, deps, data, n, &d));
	if (!e && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		p->alloc.dptr = d.alloc.dptr;
	}
	return e;
}

cudaError_t cudart_graph_node_set_params(cudaGraphNode_t node, struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams d;
	cudaError_t e = any_params(&d, p);

	return e ? e : cudart_from_driver(cudart_driver.cuGraphNodeSetParams(node, &d));
}

cudaError_t cudart_graph_exec_node_set_params(cudaGraphExec_t exec, cudaGraphNode_t node,
					      struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams d;
	cudaError_t e = any_params(&d, p);

	return e ? e : cudart_from_driver(cudart_driver.cuGraphExecNodeSetParams(exec, node, &d));
}
