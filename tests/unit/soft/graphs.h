/* Helpers that the tests of graphs share. */
#ifndef GBPF_TESTS_SOFT_GRAPHS_H
#define GBPF_TESTS_SOFT_GRAPHS_H

#include "base/atomic.h"
#include "rig.h"

static CUstream s, t;
static CUdeviceptr d;
static CUgraph g;
static CUgraphExec x;

static inline void prepare(void)
{
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&d, 1u << 20));
	CU(cuMemsetD8_v2(d, 0, 1u << 20));
	CU(cuCtxSynchronize());
	CU(cuGraphCreate(&g, 0));
}

static inline void launch(CUgraphExec exec, CUstream stream)
{
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
}

static inline uint32_t word(CUdeviceptr p)
{
	uint32_t v;

	CU(cuMemcpyDtoH_v2(&v, p, 4));
	return v;
}

/* Adds a kernel node that draws a number and stores it. */
static inline CUgraphNode stamp_node(CUdeviceptr counter, CUdeviceptr out, const CUgraphNode *deps,
				     size_t n)
{
	CUDA_KERNEL_NODE_PARAMS p = { .func = rig_function("stamp"),
				      .gridDimX = 1,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 1,
				      .blockDimY = 1,
				      .blockDimZ = 1,
				      .kernelParams = (void *[]){ &counter, &out } };
	CUgraphNode node;

	CU(cuGraphAddKernelNode_v2(&node, g, deps, n, &p));
	return node;
}

static inline CUgraphNode set_node(CUdeviceptr p, unsigned value, size_t n, const CUgraphNode *deps,
				   size_t n_deps)
{
	CUDA_MEMSET_NODE_PARAMS m = {
		.dst = p, .value = value, .elementSize = 4, .width = n, .height = 1
	};
	CUgraphNode node;

	CU(cuGraphAddMemsetNode(&node, g, deps, n_deps, &m, NULL));
	return node;
}

static uint32_t seed = 12345;

static inline uint32_t draw(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

static uint32_t calls;

static inline void count(void *unused)
{
	(void)unused;
	add_acqrel(&calls, 1u);
}

#endif
