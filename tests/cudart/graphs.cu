// Graphs: nodes by hand, stream capture, instantiation, changes, updates, clones, memory nodes.
#include "runtime.h"

__device__ int in_symbol;

__global__ void add(int *p, int n)
{
	*p += n;
}

static void host_function(void *user)
{
	++*(int *)user;
}

static int read(const int *p)
{
	int value;

	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	return value;
}

static void by_hand(cudaStream_t s)
{
	cudaGraph_t graph, clone;
	cudaGraphExec_t exec;
	cudaGraphNode_t set, kernel, host, copy, to_symbol, nodes[8], from[8], to[8];
	cudaMemsetParams m = {};
	cudaKernelNodeParams k = {}, got;
	CUDA_HOST_NODE_PARAMS h;
	CUgraphNodeType type;
	int *p, n = 3, calls = 0, out = 0;
	void *args[] = { &p, &n };
	size_t count = 8;

	OK(cudaMalloc((void **)&p, 4));
	OK(cudaGraphCreate(&graph, 0));
	m = { p, 4, 40, 4, 1, 1 };
	OK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &m));
	k.func = (void *)add;
	k.gridDim = { 1, 1, 1 };
	k.blockDim = { 1, 1, 1 };
	k.kernelParams = args;
	OK(cudaGraphAddKernelNode(&kernel, graph, &set, 1, &k));
	OK(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, &out, p, 4, cudaMemcpyDeviceToHost));
	OK(cudaGraphAddMemcpyNodeToSymbol(&to_symbol, graph, &kernel, 1, &in_symbol, p, 4, 0,
					  cudaMemcpyDeviceToDevice));
	h = { host_function, &calls };
	OK(cudaGraphAddHostNode(&host, graph, &copy, 1, &h));
	OK(cudaGraphKernelNodeGetParams(kernel, &got));
	CHECK(got.func == (void *)add && got.gridDim.x == 1 && *(int *)got.kernelParams[1] == 3);
	OK(cudaGraphNodeGetType(copy, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	OK(cudaGraphGetNodes(graph, nodes, &count));
	CHECK(count == 5);
	count = 8;
#if CUDART_ABI == 12
	OK(cudaGraphGetEdges(graph, from, to, &count));
#else
	OK(cudaGraphGetEdges(graph, from, to, nullptr, &count));
#endif
	CHECK(count == 4);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, s));
	OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	CHECK(out == 43 && calls == 2);
	OK(cudaMemcpyFromSymbol(&out, &in_symbol, 4, 0, cudaMemcpyDeviceToHost));
	CHECK(out == 43);

	n = 4;
	OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &k));
	OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	CHECK(read(p) == 44);
	OK(cudaGraphClone(&clone, graph));
	OK(cudaGraphDestroy(clone));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(p));
}

static void captured(cudaStream_t s)
{
	CUgraphExecUpdateResultInfo info;
	CUstreamCaptureStatus status;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaStream_t side;
	cudaEvent_t fork, join;
	int *p;

	OK(cudaMalloc((void **)&p, 8));
	OK(cudaMemset(p, 0, 8));
	OK(cudaStreamCreate(&side));
	OK(cudaEventCreate(&fork));
	OK(cudaEventCreate(&join));
	OK(cudaStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	add<<<1, 1, 0, s>>>(p, 1);
	OK(cudaEventRecord(fork, s));
	OK(cudaStreamWaitEvent(side, fork, 0));
	add<<<1, 1, 0, side>>>(p + 1, 2);
	OK(cudaEventRecord(join, side));
	OK(cudaStreamWaitEvent(s, join, 0));
	OK(cudaStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cudaStreamEndCapture(s, &graph));
	CHECK(read(p) == 0);
	OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 5; i++) {
		OK(cudaGraphLaunch(exec, s));
	}
	OK(cudaStreamSynchronize(s));
	CHECK(read(p) == 5 && read(p + 1) == 10);
	OK(cudaGraphDestroy(graph));

	OK(cudaStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	add<<<1, 1, 0, s>>>(p, 100);
	OK(cudaStreamEndCapture(s, &graph));
	FAILS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, graph, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	(void)cudaGetLastError();
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(p));
}

static void memory_nodes(cudaStream_t s)
{
	CUDA_MEM_ALLOC_NODE_PARAMS a = {};
	cudaGraphNodeParams k = {};
	cudaGraphNode_t alloc, kernel, copy, release;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	int n = 9, out = 0;

	OK(cudaGraphCreate(&graph, 0));
	a.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	a.poolProps.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	a.bytesize = 4;
	OK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &a));
	void *args[] = { &a.dptr, &n };
	k.type = CU_GRAPH_NODE_TYPE_KERNEL;
	k.kernel.func = (void *)add;
	k.kernel.gridDim = { 1, 1, 1 };
	k.kernel.blockDim = { 1, 1, 1 };
	k.kernel.kernelParams = args;
#if CUDART_ABI == 12
	OK(cudaGraphAddNode(&kernel, graph, &alloc, 1, &k));
#else
	OK(cudaGraphAddNode(&kernel, graph, &alloc, nullptr, 1, &k));
#endif
	OK(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, &out, (void *)a.dptr, 4, cudaMemcpyDeviceToHost));
	OK(cudaGraphAddMemFreeNode(&release, graph, &copy, 1, (void *)a.dptr));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	CHECK(out % 1000000 == 9 || out != 0); // the memory's first value is not defined
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

// The description of a node's copy is the one it was made with: elements of an array, slices, and the kind.
static void copies_of_arrays()
{
	cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
	cudaMemcpy3DParms p = {}, got;
	cudaGraph_t graph;
	cudaGraphNode_t node;
	cudaArray_t array;
	float *linear;

	OK(cudaMallocArray(&array, &desc, 8, 6, 0));
	OK(cudaMalloc((void **)&linear, 4096));
	OK(cudaGraphCreate(&graph, 0));
	p.srcArray = array;
	p.srcPos = { 2, 1, 0 };
	p.dstPtr = { linear, 64, 64, 6 };
	p.dstPos = { 8, 3, 0 };
	p.extent = { 3, 2, 1 };
	p.kind = cudaMemcpyDeviceToDevice;
	OK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &p));
	OK(cudaGraphMemcpyNodeGetParams(node, &got));
	CHECK(got.srcArray == array && got.srcPos.x == 2 && got.srcPos.y == 1 && got.dstArray == nullptr);
	CHECK(got.dstPtr.ptr == linear && got.dstPtr.pitch == 64 && got.dstPtr.ysize == 6);
	CHECK(got.dstPos.x == 8 && got.dstPos.y == 3 && got.dstPos.z == 0);
	CHECK(got.extent.width == 3 && got.extent.height == 2 && got.extent.depth == 1);
	CHECK(got.kind == cudaMemcpyDeviceToDevice);
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(linear));
	OK(cudaFreeArray(array));
}

int main()
{
	cudaStream_t s;

	OK(cudaStreamCreate(&s));
	by_hand(s);
	captured(s);
	memory_nodes(s);
	OK(cudaStreamDestroy(s));
	copies_of_arrays();
	return 0;
}
