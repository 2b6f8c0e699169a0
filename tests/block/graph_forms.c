/* graph_forms IMAGE: kernel nodes of machine code in every form that graphs give them (clones,
 * child graphs, updated executable graphs, disabled nodes, attributes), and launches with
 * parameters that the driver refuses or leaves alone. The output must be the same with and without
 * gBPF, whose nodes have one more parameter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define BLOCKS 96u
#define THREADS 64u
#define WORDS (BLOCKS * THREADS)
#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static struct program p;
static CUdeviceptr to, counter;
static uint32_t a = 3;
static uint16_t b = 5;
static void *params[] = { &to, &a, &b };
static CUstream stream;

/* Prints a checksum of the words and the number of blocks of count, and clears both. */
static void show(const char *way)
{
	static uint32_t words[WORDS];
	uint32_t n = 0;
	uint64_t sum = 0;

	SAY(cuStreamSynchronize(stream));
	program_get(words, to, sizeof(words));
	program_get(&n, counter, sizeof(n));
	for (uint32_t i = 0; i < WORDS; i++) {
		sum = sum * 31 + words[i];
	}
	printf("%s: %016llx %u\n", way, (unsigned long long)sum, n);
	SAY(cuMemsetD32(to, 0, WORDS));
	SAY(cuMemsetD32(counter, 0, 1));
	SAY(cuCtxSynchronize()); /* the stream is not ordered with the default stream */
}

static CUgraph graph_of(CUfunction f, CUfunction last, uint32_t factor)
{
	void *other[] = { &to, &factor, &b };
	CUDA_KERNEL_NODE_PARAMS n = { .func = f,
				      .gridDimX = BLOCKS,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = THREADS,
				      .blockDimY = 1,
				      .blockDimZ = 1,
				      .kernelParams = other };
	CUgraphNode node[2];
	CUgraph g = NULL;

	SAY(cuGraphCreate(&g, 0));
	SAY(cuGraphAddKernelNode(&node[0], g, NULL, 0, &n));
	n.func = last;
	n.kernelParams = NULL;
	SAY(cuGraphAddKernelNode(&node[1], g, &node[0], 1, &n));
	return g;
}

static void launch(CUgraph g, const char *form)
{
	CUgraphExec e = NULL;

	SAY(cuGraphInstantiate(&e, g, 0));
	SAY(cuGraphLaunch(e, stream));
	SAY(cuGraphLaunch(e, stream));
	show(form);
	SAY(cuGraphExecDestroy(e));
}

static void copies(CUfunction f, CUfunction count)
{
	CUgraph g = graph_of(f, count, 7), clone = NULL, outer = NULL;
	CUgraphNode child;

	launch(g, "graph");
	SAY(cuGraphClone(&clone, g));
	SAY(cuGraphCreate(&outer, 0));
	SAY(cuGraphAddChildGraphNode(&child, outer, NULL, 0, clone));
	SAY(cuGraphAddChildGraphNode(&child, outer, &child, 1, g));
	SAY(cuGraphDestroy(g));
	launch(clone, "clone");
	SAY(cuGraphDestroy(clone));
	launch(outer, "children");
	SAY(cuGraphDestroy(outer));
}

static void updates(CUfunction f, CUfunction count)
{
	CUgraph g = graph_of(f, count, 7), changed = graph_of(f, count, 9);
	CUgraph exchanged = graph_of(f, f, 9);
	CUgraphExecUpdateResultInfo info;
	CUgraphNode nodes[2];
	size_t n = 2;
	CUgraphExec e = NULL;

	SAY(cuGraphInstantiate(&e, g, 0));
	SAY(cuGraphExecUpdate_v2(e, changed, &info));
	SAY(cuGraphLaunch(e, stream));
	show("updated");
	SAY(cuGraphExecUpdate_v2(e, exchanged, &info));
	SAY(cuGraphGetNodes(g, nodes, &n));
	SAY(cuGraphKernelNodeCopyAttributes(nodes[0], nodes[1]));
	SAY(cuGraphNodeSetEnabled(e, nodes[0], 0));
	SAY(cuGraphLaunch(e, stream));
	show("disabled");
	SAY(cuGraphNodeSetEnabled(e, nodes[0], 1));
	SAY(cuGraphLaunch(e, stream));
	show("enabled");
	SAY(cuGraphExecDestroy(e));
	SAY(cuGraphDestroy(g));
	SAY(cuGraphDestroy(changed));
	SAY(cuGraphDestroy(exchanged));
}

/* A node whose parameters lack what the kernel needs. */
static void refused_nodes(CUfunction f)
{
	CUDA_KERNEL_NODE_PARAMS n = { .func = f,
				      .gridDimX = BLOCKS,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = THREADS,
				      .blockDimY = 1,
				      .blockDimZ = 1 };
	void *end[] = { CU_LAUNCH_PARAM_END };
	CUgraphNode node;
	CUgraph g = NULL;

	SAY(cuGraphCreate(&g, 0));
	SAY(cuGraphAddKernelNode(&node, g, NULL, 0, &n));
	n.extra = end;
	SAY(cuGraphAddKernelNode(&node, g, NULL, 0, &n));
	n.kernelParams = params;
	SAY(cuGraphAddKernelNode(&node, g, NULL, 0, &n));
	n.extra = NULL;
	n.gridDimX = 0;
	SAY(cuGraphAddKernelNode(&node, g, NULL, 0, &n));
	SAY(cuGraphDestroy(g));
}

static CUresult with_extra(CUfunction f, void **list, void **pointers)
{
	return cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, pointers, list);
}

static void refused_launches(CUfunction f, CUfunction count)
{
	unsigned char buffer[16] = { 0 };
	size_t bytes = 14, zero = 0;
	void *end[] = { CU_LAUNCH_PARAM_END };
	void *pointer[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END };
	void *size[] = { CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	void *empty[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &zero, CU_LAUNCH_PARAM_END };
	void *unknown[] = { (void *)5, buffer, CU_LAUNCH_PARAM_END };
	void *hole[] = { &to, NULL, &b };

	memcpy(buffer, &to, sizeof(to));
	SAY(with_extra(f, NULL, NULL));
	SAY(with_extra(f, end, NULL));
	SAY(with_extra(f, end, params));
	SAY(with_extra(f, size, NULL));
	SAY(with_extra(f, unknown, NULL));
	SAY(with_extra(f, NULL, hole));
	SAY(with_extra(count, end, NULL));
	SAY(with_extra(count, pointer, NULL));
	SAY(with_extra(count, empty, NULL));
	SAY(with_extra(count, NULL, params));
	SAY(with_extra(NULL, NULL, params));
	SAY(cuLaunchKernel(f, 0, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	SAY(cuLaunchKernel(f, 1, 65536, 1, THREADS, 1, 1, 0, stream, params, NULL));
	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, 1025, 1, 1, 0, stream, params, NULL));
	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 1u << 20, stream, params, NULL));
	show("refused");
}

/* A launch that the driver refuses between others of its stream. */
static void refused_in_a_run(CUfunction f, CUfunction count)
{
	for (unsigned i = 0; i < 12; i++) {
		SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
		SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 1u << 20, stream, params, NULL));
		SAY(cuLaunchKernel(f, BLOCKS, 1, 1, 64, 32, 1, 0, stream, params, NULL));
		SAY(cuLaunchKernel(count, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, NULL));
	}
	show("refused in between");
}

static void answers(CUfunction f)
{
	size_t bytes = 0;
	int v = 0, n = 0;

	for (int threads = 64; threads <= 1024; threads *= 4) {
		SAY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&v, f, threads, 4096, 0));
		SAY(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 2, threads));
		printf("%d %zu\n", v, bytes);
	}
	SAY(cuOccupancyMaxPotentialBlockSize(&v, &n, f, NULL, 0, 0));
	printf("%d %d\n", v, n);
	SAY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	SAY(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
	printf("%d\n", v);
	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 65536, stream, params, NULL));
	show("dynamic shared memory");
}

int main(int argc, char **argv)
{
	CUfunction f, count;
	size_t bytes;

	program_open(&p, "graph_forms", argc, argv);
	f = program_kernel(&p, "add");
	count = program_kernel(&p, "count");
	to = program_zeros(WORDS * sizeof(uint32_t));
	SAY(cuModuleGetGlobal(&counter, &bytes, p.module, "counter"));
	SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	program_settle(to);
	SAY(cuMemsetD32(to, 0, WORDS));
	SAY(cuCtxSynchronize());
	refused_in_a_run(f, count);
	refused_launches(f, count);
	refused_nodes(f);
	copies(f, count);
	updates(f, count);
	answers(f);
	return program_close(&p);
}
