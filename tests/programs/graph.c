/* The same work as a captured graph and as one built from nodes. */
#include "program.h"

#include <string.h>

#define N 4096

static int out[N], again[N];

static CUgraphExec captured(struct program *p, CUdeviceptr a, CUdeviceptr b, CUdeviceptr o)
{
	int n = N, two = 2, seven = 7, five = 5, zero = 0;
	CUstream s, side;
	CUevent fork, join;
	CUgraph graph;
	CUgraphExec exec;

	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	LAUNCH3(program_kernel(p, "fill"), N / 256, 1, 1, 256, 1, 1, 0, s, &a, &five, &n);
	CU(cuEventRecord(fork, s));
	CU(cuStreamWaitEvent(side, fork, 0));
	CU(cuMemcpyDtoDAsync(b, a, N * sizeof(int), side));
	LAUNCH3(program_kernel(p, "affine"), N / 256, 1, 1, 256, 1, 1, 0, side, &b, &seven, &two,
		&n);
	LAUNCH3(program_kernel(p, "affine"), N / 256, 1, 1, 256, 1, 1, 0, s, &a, &two, &zero, &n);
	CU(cuEventRecord(join, side));
	CU(cuStreamWaitEvent(s, join, 0));
	LAUNCH3(program_kernel(p, "combine"), N / 256, 1, 1, 256, 1, 1, 0, s, &o, &a, &b, &n);
	CU(cuMemcpyDtoHAsync(out, o, N * sizeof(int), s));
	CU(cuStreamEndCapture(s, &graph));
	CU(cuGraphInstantiate(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	for (int i = 0; i < 3; i++) {
		CU(cuGraphLaunch(exec, s));
	}
	CU(cuStreamSynchronize(s));
	return exec;
}

static void by_nodes(struct program *p, CUdeviceptr a, CUdeviceptr b, CUdeviceptr o)
{
	int n = N, three = 3, nine = 9;
	CUgraphNode fills[2], sum;
	CUgraphExec exec;
	CUgraph graph;
	CUDA_KERNEL_NODE_PARAMS k = { .gridDimX = N / 256,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 256,
				      .blockDimY = 1,
				      .blockDimZ = 1 };
	size_t nodes = 0;

	CU(cuGraphCreate(&graph, 0));
	k.func = program_kernel(p, "fill");
	k.kernelParams = (void *[]){ &a, &three, &n };
	CU(cuGraphAddKernelNode(&fills[0], graph, NULL, 0, &k));
	k.kernelParams = (void *[]){ &b, &nine, &n };
	CU(cuGraphAddKernelNode(&fills[1], graph, NULL, 0, &k));
	k.func = program_kernel(p, "combine");
	k.kernelParams = (void *[]){ &o, &a, &b, &n };
	CU(cuGraphAddKernelNode(&sum, graph, fills, 2, &k));
	CU(cuGraphGetNodes(graph, NULL, &nodes));
	program_check(p, nodes == 3, "the number of nodes");
	CU(cuGraphInstantiate(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
}

int main(int argc, char **argv)
{
	CUdeviceptr a, b, o;
	CUgraphExec exec;
	bool right = true;
	struct program p;

	program_open(&p, "graph", argc, argv);
	a = program_zeros(sizeof(out));
	b = program_zeros(sizeof(out));
	o = program_zeros(sizeof(out));
	exec = captured(&p, a, b, o);
	by_nodes(&p, a, b, o);
	program_get(again, o, sizeof(again));
	for (int i = 0; i < N; i++) {
		right = right && out[i] == 10 * 31 + 37 && again[i] == 3 * 31 + 9;
	}
	program_check(&p, right, "what a graph computed");
	program_exact(&p, "captured", out, sizeof(out));
	program_exact(&p, "nodes", again, sizeof(again));
	CU(cuGraphExecDestroy(exec));
	return program_close(&p);
}
