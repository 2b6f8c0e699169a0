/* paths IMAGE: launches kernels of machine code in every way that the driver offers, by handles of
 * every origin, and prints results and answers. The output must be the same with and without gBPF,
 * whose launches of patched code pass one more parameter. */
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

	SAY(cuCtxSynchronize());
	program_get(words, to, sizeof(words));
	program_get(&n, counter, sizeof(n));
	for (uint32_t i = 0; i < WORDS; i++) {
		sum = sum * 31 + words[i];
	}
	printf("%s: %016llx %u\n", way, (unsigned long long)sum, n);
	cuMemsetD32(to, 0, WORDS);
	cuMemsetD32(counter, 0, 1);
	SAY(cuCtxSynchronize()); /* the stream is not ordered with the default stream */
}

/* ---- launches ---- */

static CUlaunchConfig config_of(CUlaunchAttribute *attrs, unsigned n)
{
	return (CUlaunchConfig){ .gridDimX = BLOCKS,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = THREADS,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream,
				 .attrs = attrs,
				 .numAttrs = n };
}

static void by_extra(CUfunction f, size_t bytes)
{
	struct {
		uint64_t to;
		uint32_t a;
		uint16_t b, more[9];
	} buffer = { to, a, b, { 0xffff, 0xffff, 0xffff } };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, extra));
	show("extra");
}

static void plain(CUfunction f, const char *origin)
{
	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	show(origin);
	SAY(cuLaunchKernel_ptsz(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	show("per-thread stream");
}

static void with_attributes(CUfunction f)
{
	CUlaunchAttribute attrs[] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
		{ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 1, 1, 1 } },
		{ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 },
	};

	for (unsigned n = 0; n <= 3; n++) {
		CUlaunchConfig config = config_of(attrs, n);

		config.gridDimX = n == 3 ? 8 : BLOCKS;
		SAY(cuLaunchKernelEx(&config, f, params, NULL));
		show("attributes");
	}
	SAY(cuLaunchCooperativeKernel(f, 8, 1, 1, THREADS, 1, 1, 0, stream, params));
	show("cooperative");
}

static void several_devices(CUfunction f)
{
	CUDA_LAUNCH_PARAMS list = { .function = f,
				    .gridDimX = 8,
				    .gridDimY = 1,
				    .gridDimZ = 1,
				    .blockDimX = THREADS,
				    .blockDimY = 1,
				    .blockDimZ = 1,
				    .hStream = stream,
				    .kernelParams = params };

	SAY(cuLaunchCooperativeKernelMultiDevice(&list, 1, 0));
	show("several devices");
}

static void legacy(CUfunction f)
{
	SAY(cuFuncSetBlockShape(f, THREADS, 1, 1));
	SAY(cuParamSetSize(f, 14));
	SAY(cuParamSetv(f, 0, &to, sizeof(to)));
	SAY(cuParamSeti(f, 8, a));
	SAY(cuParamSetv(f, 12, &b, sizeof(b)));
	SAY(cuLaunch(f));
	show("cuLaunch");
	SAY(cuLaunchGrid(f, BLOCKS, 1));
	show("cuLaunchGrid");
	SAY(cuLaunchGridAsync(f, BLOCKS, 1, stream));
	show("cuLaunchGridAsync");
}

/* ---- graphs ---- */

static CUDA_KERNEL_NODE_PARAMS node_of(CUfunction f, CUkernel k)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = f,
					  .gridDimX = BLOCKS,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = THREADS,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = params,
					  .kern = k };
}

static void launch_graph(CUgraph g, CUgraphNode changed, const CUDA_KERNEL_NODE_PARAMS *n)
{
	uint32_t other = 11;
	void *new_params[] = { &to, &other, &b };
	CUDA_KERNEL_NODE_PARAMS c = *n;
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUgraphExec e = NULL;

	SAY(cuGraphInstantiate(&e, g, 0));
	SAY(cuGraphLaunch(e, stream));
	SAY(cuGraphLaunch(e, stream));
	show("graph twice");
	c.kernelParams = new_params;
	SAY(cuGraphExecKernelNodeSetParams_v2(e, changed, &c));
	SAY(cuGraphLaunch(e, stream));
	show("changed in the executable graph");
	other = 13;
	any.kernel = c;
	SAY(cuGraphExecNodeSetParams(e, changed, &any));
	SAY(cuGraphLaunch(e, stream));
	show("changed as any node");
	SAY(cuGraphExecDestroy(e));
}

static void by_hand(CUfunction f, CUkernel k)
{
	CUDA_KERNEL_NODE_PARAMS n = node_of(f, NULL), of_kernel = node_of(NULL, k), got;
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUgraphNode node[4];
	CUgraph g = NULL;

	SAY(cuGraphCreate(&g, 0));
	SAY(cuGraphAddKernelNode(&node[0], g, NULL, 0, &n));
	SAY(cuGraphAddKernelNode(&node[1], g, &node[0], 1, &of_kernel));
	any.kernel = n;
	SAY(cuGraphAddNode(&node[2], g, &node[1], 1, &any));
	memset(&got, 0, sizeof(got));
	SAY(cuGraphKernelNodeGetParams_v2(node[0], &got));
	printf("%u %u %d %u %u\n", got.gridDimX, got.blockDimX, got.func == f,
	       got.kernelParams ? *(uint32_t *)got.kernelParams[1] : 0,
	       got.kernelParams ? *(uint16_t *)got.kernelParams[2] : 0);
	SAY(cuGraphAddKernelNode(&node[3], g, &node[2], 1, &got));
	SAY(cuGraphKernelNodeSetParams_v2(node[3], &got));
	any.kernel = n;
	SAY(cuGraphNodeSetParams(node[2], &any));
	launch_graph(g, node[0], &n);
	SAY(cuGraphDestroy(g));
}

static void captured(CUfunction f)
{
	CUDA_KERNEL_NODE_PARAMS n = node_of(f, NULL);
	CUgraphNode node = NULL;
	size_t count = 1;
	CUgraph g = NULL;

	SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	SAY(cuStreamEndCapture(stream, &g));
	SAY(cuGraphGetNodes(g, &node, &count));
	launch_graph(g, node, &n);
	SAY(cuGraphDestroy(g));
}

/* ---- answers ---- */

static void answers(CUfunction f, CUkernel k)
{
	const char *name = NULL;
	size_t offset, bytes;
	int v;

	for (size_t i = 0; i < 5; i++) {
		offset = bytes = 0;
		SAY(cuFuncGetParamInfo(f, i, &offset, &bytes));
		printf("%zu %zu\n", offset, bytes);
		SAY(cuKernelGetParamInfo(k, i, &offset, &bytes));
		printf("%zu %zu\n", offset, bytes);
	}
	for (int what = 0; what <= 15; what++) {
		v = -1;
		SAY(cuFuncGetAttribute(&v, (CUfunction_attribute)what, f));
		printf("%d: %d\n", what, v);
		v = -1;
		SAY(cuKernelGetAttribute(&v, (CUfunction_attribute)what, k, p.device));
		printf("%d: %d\n", what, v);
	}
	for (int threads = 32; threads <= 1024; threads *= 2) {
		v = -1;
		SAY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, threads, 0));
		printf("%d\n", v);
	}
	SAY(cuFuncGetName(&name, f));
	SAY(cuKernelGetName(&name, k));
	printf("%s\n", name);
}

/* ---- handles ---- */

static CUfunction enumerated(const char *wanted)
{
	CUfunction all[8] = { NULL };
	const char *name = NULL;
	unsigned n = 0;

	SAY(cuModuleGetFunctionCount(&n, p.module));
	SAY(cuModuleEnumerateFunctions(all, 8, p.module));
	for (unsigned i = 0; i < n && i < 8; i++) {
		if (cuFuncGetName(&name, all[i]) == CUDA_SUCCESS && strcmp(name, wanted) == 0) {
			return all[i];
		}
	}
	return NULL;
}

static void library(const char *path)
{
	CUfunction f = NULL, g = NULL;
	CUkernel k = NULL, all[8] = { NULL };
	CUlibrary l = NULL;
	CUmodule m = NULL;
	size_t bytes;
	char *image = program_read(path, &bytes);

	SAY(cuLibraryLoadData(&l, image, NULL, NULL, 0, NULL, NULL, 0));
	SAY(cuLibraryGetKernel(&k, l, "add"));
	plain((CUfunction)(void *)k, "kernel");
	SAY(cuKernelGetFunction(&f, k));
	plain(f, "function of a kernel");
	SAY(cuLibraryGetModule(&m, l));
	SAY(cuModuleGetFunction(&g, m, "add"));
	plain(g, "function of a library's module");
	SAY(cuLibraryEnumerateKernels(all, 8, l));
	by_hand(f, k);
	answers(f, k);
	SAY(cuLibraryUnload(l));
	SAY(cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0));
	SAY(cuLibraryGetKernel(&k, l, "add"));
	plain((CUfunction)(void *)k, "kernel of a file");
	SAY(cuLibraryUnload(l));
	free(image);
}

int main(int argc, char **argv)
{
	CUfunction f, none;
	size_t bytes;

	program_open(&p, "paths", argc, argv);
	f = program_kernel(&p, "add");
	none = program_kernel(&p, "count");
	to = program_zeros(WORDS * sizeof(uint32_t));
	SAY(cuModuleGetGlobal(&counter, &bytes, p.module, "counter"));
	SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SAY(cuCtxSynchronize());
	plain(f, "function");
	plain(enumerated("add"), "enumerated function");
	SAY(cuLaunchKernel(none, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, NULL));
	show("no parameters");
	by_extra(f, 14);
	by_extra(f, 16);
	with_attributes(f);
	several_devices(f);
	legacy(f);
	captured(f);
	library(argv[1]);
	return program_close(&p);
}
