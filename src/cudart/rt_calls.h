/* Functions of the room that several lines of runtime.def call with different arguments. */
#ifndef GBPF_CUDART_RT_CALLS_H
#define GBPF_CUDART_RT_CALLS_H

#include <stdbool.h>

#include "cudart/rt_types.h"

cudaError_t cudart_launch_handle(cudaKernel_t k, struct dim3 grid, struct dim3 block, void **args,
				 size_t shared, cudaStream_t stream);

/* The driver's form of a launch configuration, for this stream. */
CUlaunchConfig cudart_driver_config(const cudaLaunchConfig_t *c, cudaStream_t stream);

/* data: of each edge, or NULL. */
cudaError_t cudart_graph_add_node(cudaGraphNode_t *ret, cudaGraph_t graph,
				  const cudaGraphNode_t *deps, const CUgraphEdgeData *data,
				  size_t n, struct cudaGraphNodeParams *p);

/* One-dimensional copies as nodes. exec: the instantiated graph that changes, or NULL: the node. */
cudaError_t cudart_graph_add_copy(cudaGraphNode_t *ret, cudaGraph_t graph,
				  const cudaGraphNode_t *deps, size_t n, void *dst, const void *src,
				  size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudart_graph_set_copy(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst,
				  const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudart_graph_set_to_symbol(cudaGraphExec_t exec, cudaGraphNode_t node,
				       const void *symbol, const void *src, size_t bytes,
				       size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudart_graph_set_from_symbol(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst,
					 const void *symbol, size_t bytes, size_t offset,
					 enum cudaMemcpyKind kind);

#endif
