/* Graphs on the soft GPU: captured and built from nodes, launched, updated. Each test is a child
 * process; all share one server. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graphs.h"

#define N 1000u

/* c = a + b, captured together with its copies. */
static void captured_program(void *arg)
{
	uint32_t a[N], b[N], c[N], n = N;
	CUdeviceptr da, db, dc;
	CUfunction f;
	size_t count = 0;

	(void)arg;
	rig_context();
	f = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&db, sizeof(b)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemcpyHtoDAsync_v2(da, a, sizeof(a), s));
	CU(cuMemsetD32Async(db, 7, N, s));
	rig_launch(f, (N + 127) / 128, 128, s, (void *[]){ &da, &db, &dc, &n });
	CU(cuMemcpyDtoHAsync_v2(c, dc, sizeof(c), s));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphGetNodes(g, NULL, &count));
	CHECK(count == 4);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < N; i++) {
			a[i] = i * round;
		}
		memset(c, 0, sizeof(c));
		CU(cuGraphLaunch(x, s));
		CU(cuStreamSynchronize(s));
		for (uint32_t i = 0; i < N; i++) {
			CHECK(c[i] == i * round + 7);
		}
	}
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
}

static void a_captured_graph_runs_repeatedly(void **state)
{
	(void)state;
	assert_int_equal(rig_run(captured_program, NULL), 0);
}

static void ask_program(void *arg)
{
	CUgraphNode a, b, c, list[8], to[8], child;
	CUgraphEdgeData data[8];
	CUgraphNodeType type;
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_MEMSET_NODE_PARAMS m;
	CUgraph clone, inner;
	size_t n;

	(void)arg;
	prepare();
	a = set_node(d, 3, 4, NULL, 0);
	b = stamp_node(d, d + 64, &a, 1);
	CU(cuGraphAddEmptyNode(&c, g, (CUgraphNode[]){ a, b }, 2));
	n = 8;
	CU(cuGraphGetNodes(g, list, &n));
	CHECK(n == 3 && list[0] == a && list[2] == c);
	n = 8;
	CU(cuGraphGetRootNodes(g, list, &n));
	CHECK(n == 1 && list[0] == a && list[1] == NULL);
	n = 8;
	CU(cuGraphGetEdges_v2(g, list, to, data, &n));
	CHECK(n == 3);
	n = 8;
	CU(cuGraphNodeGetDependencies(c, list, &n));
	CHECK(n == 2 && list[0] == a && list[1] == b);
	n = 8;
	CU(cuGraphNodeGetDependentNodes(a, list, &n));
	CHECK(n == 2 && list[0] == b && list[1] == c);
	CU(cuGraphNodeGetType(b, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
	CU(cuGraphKernelNodeGetParams_v2(b, &k));
	CHECK(k.func == rig_function("stamp") && k.gridDimX == 1 &&
	      *(CUdeviceptr *)k.kernelParams[1] == d + 64);
	CU(cuGraphMemsetNodeGetParams(a, &m));
	CHECK(m.dst == d && m.value == 3);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(b, &m));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &b, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &a, 1));
	CU(cuGraphRemoveDependencies(g, &a, &c, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &a, &c, 1));
	CU(cuGraphClone(&clone, g));
	CU(cuGraphNodeFindInClone(&list[0], b, clone));
	CHECK(list[0] != b);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&list[1], list[0], g));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &list[0], 1));
	/* A graph with a cycle cannot be instantiated. */
	CU(cuGraphAddDependencies(g, &c, &a, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphRemoveDependencies(g, &c, &a, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, /* kernels cannot launch an empty node */
	      cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&x, g, 1u << 20));
	CU(cuGraphAddChildGraphNode(&child, g, &b, 1, clone));
	CU(cuGraphChildGraphNodeGetGraph(child, &inner));
	CHECK(inner != clone);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
	CU(cuGraphDestroyNode(b));
	n = 8;
	CU(cuGraphNodeGetDependencies(child, list, &n));
	CHECK(n == 0);
	CU(cuGraphDestroy(clone));
	CU(cuGraphDestroy(g));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(a, &type));
}

static void graphs_report_their_contents(void **state)
{
	(void)state;
	assert_int_equal(rig_run(ask_program, NULL), 0);
}

/* Copies of all shapes between host, pinned and device memory, as nodes. */
static void copies_program(void *arg)
{
	enum { W = 1000, H = 70, D = 20 };
	static uint8_t from[D][H][1024], back[D][H][W];
	CUdeviceptr big;
	CUDA_MEMCPY3D up = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			     .srcHost = from,
			     .srcPitch = 1024,
			     .srcHeight = H,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstPitch = 2048,
			     .dstHeight = 100,
			     .dstXInBytes = 24,
			     .dstY = 3,
			     .WidthInBytes = W,
			     .Height = H,
			     .Depth = D };
	CUDA_MEMCPY3D down = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcPitch = 2048,
			       .srcHeight = 100,
			       .srcXInBytes = 24,
			       .srcY = 3,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = back,
			       .dstPitch = W,
			       .dstHeight = H,
			       .WidthInBytes = W,
			       .Height = H,
			       .Depth = D };
	CUDA_MEMCPY3D got;
	CUgraphNode a, b;

	(void)arg;
	prepare();
	CU(cuMemAlloc_v2(&big, 2048 * 100 * D));
	up.dstDevice = down.srcDevice = big;
	CU(cuGraphAddMemcpyNode(&a, g, NULL, 0, &up, NULL));
	CU(cuGraphAddMemcpyNode(&b, g, &a, 1, &down, NULL));
	CU(cuGraphMemcpyNodeGetParams(b, &got));
	CHECK(memcmp(&got, &down, sizeof(got)) == 0);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof(from); i++) {
			(&from[0][0][0])[i] = (uint8_t)(i * (2 * round + 31) >> 3);
		}
		launch(x, round & 1 ? s : t);
		for (int z = 0; z < D; z++) {
			for (int y = 0; y < H; y++) {
				CHECK(memcmp(back[z][y], from[z][y], W) == 0);
			}
		}
	}
	up.dstDevice = big + 2048 * 100 * D - 100;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&a, g, NULL, 0, &up, NULL));
}

static void copies_of_all_shapes_are_nodes(void **state)
{
	(void)state;
	assert_int_equal(rig_run(copies_program, NULL), 0);
}

static void update_program(void *arg)
{
	CUgraphNode a, b, h, other;
	CUdeviceptr out = d;
	CUgraphExecUpdateResultInfo info;
	CUDA_MEMSET_NODE_PARAMS m;
	CUDA_KERNEL_NODE_PARAMS k;
	CUgraph first, second;
	unsigned on;

	(void)arg;
	prepare();
	a = set_node(d, 1, 4, NULL, 0);
	b = stamp_node(d, d + 64, &a, 1);
	CU(cuGraphAddHostNode(&h, g, &b, 1, &(CUDA_HOST_NODE_PARAMS){ count, NULL }));
	first = g;
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	launch(x, s);
	CHECK(word(d) == 2 && word(d + 64) == 1 && load_acquire(&calls) == 1);
	/* Changes nodes of the exec. */
	CU(cuGraphMemsetNodeGetParams(a, &m));
	m.value = 10;
	CU(cuGraphExecMemsetNodeSetParams(x, a, &m, NULL));
	CU(cuGraphKernelNodeGetParams_v2(b, &k));
	out = d + 128;
	k.kernelParams = (void *[]){ k.kernelParams[0], &out };
	CU(cuGraphExecKernelNodeSetParams_v2(x, b, &k));
	launch(x, s);
	CHECK(word(d) == 11 && word(d + 128) == 10 && word(d + 64) == 1);
	/* The graph itself is unchanged. */
	CU(cuGraphMemsetNodeGetParams(a, &m));
	CHECK(m.value == 1);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(x, b, &m, NULL));
	CU(cuGraphNodeSetEnabled(x, b, 0));
	CU(cuGraphNodeGetEnabled(x, b, &on));
	CHECK(!on);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(x, h, 0));
	launch(x, s);
	CHECK(word(d) == 10);
	CU(cuGraphNodeSetEnabled(x, b, 1));
	/* Updates from another graph of the same shape. */
	CU(cuGraphCreate(&g, 0));
	second = g;
	a = set_node(d, 100, 4, NULL, 0);
	b = stamp_node(d, d + 256, &a, 1);
	CU(cuGraphAddHostNode(&h, g, &b, 1, &(CUDA_HOST_NODE_PARAMS){ count, NULL }));
	CU(cuGraphExecUpdate_v2(x, second, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	launch(x, s);
	CHECK(word(d) == 101 && word(d + 256) == 100);
	/* Updates from graphs of other shapes fail. */
	CU(cuGraphAddEmptyNode(&other, g, NULL, 0));
	CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(x, g, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && !info.errorNode);
	CU(cuGraphDestroyNode(other));
	CU(cuGraphRemoveDependencies(g, &b, &h, 1));
	CU(cuGraphAddDependencies(g, &a, &h, 1));
	CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(x, g, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && !info.errorNode);
	CU(cuGraphDestroyNode(h));
	CU(cuGraphAddEmptyNode(&other, g, &b, 1));
	CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(x, g, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED &&
	      info.errorNode == other);
	launch(x, s); /* unchanged */
	CHECK(word(d) == 101 && word(d + 256) == 100);
	CU(cuGraphDestroy(first));
	CU(cuGraphDestroy(second));
	launch(x, s);
	CHECK(word(d) == 101);
	CU(cuGraphExecDestroy(x));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(x, s));
}

static void execs_change_within_their_shape(void **state)
{
	(void)state;
	assert_int_equal(rig_run(update_program, NULL), 0);
}

/* Launches one exec in two streams: the launches run one after the other. The kernel waits for a
 * flag, so both are in flight together. */
static void itself_program(void *arg)
{
	CUDA_KERNEL_NODE_PARAMS k = { .gridDimX = 1,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 1,
				      .blockDimY = 1,
				      .blockDimZ = 1 };
	uint32_t *flag;
	CUgraphNode wait, node;
	CUdeviceptr p;

	(void)arg;
	prepare();
	CU(cuMemHostAlloc((void **)&flag, 64, 0));
	*flag = 0;
	p = (CUdeviceptr)(uintptr_t)flag;
	k.func = rig_function("until");
	k.kernelParams = (void *[]){ &p };
	CU(cuGraphAddKernelNode_v2(&wait, g, NULL, 0, &k));
	node = stamp_node(d, d + 4, &wait, 1);
	stamp_node(d, d + 8, &wait, 1);
	stamp_node(d, d + 12, &node, 1);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int i = 0; i < 10; i++) {
		CU(cuGraphLaunch(x, i & 1 ? s : t));
	}
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	/* Destroying the exec while it runs does not stop its launches. */
	CU(cuGraphExecDestroy(x));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	store_release(flag, 1u);
	CU(cuStreamSynchronize(s));
	CU(cuStreamSynchronize(t));
	/* The last launch drew the last three numbers. */
	CHECK(word(d) == 30 && word(d + 4) >= 27 && word(d + 8) >= 27 && word(d + 12) >= 27);
	CHECK(word(d + 4) < word(d + 12));
}

static void launches_of_one_exec_never_overlap(void **state)
{
	(void)state;
	assert_int_equal(rig_run(itself_program, NULL), 0);
}

static uint32_t ended;

static void end_object(void *p)
{
	add_acqrel(&ended, *(uint32_t *)p);
}

static void kinds_program(void *arg)
{
	uint32_t one = 1, ten = 10;
	CUgraphNode n, a, list[4];
	CUuserObject u, v;
	CUgraph inner;
	CUevent ev, ev2;
	CUstreamBatchMemOpParams ops[3] = { 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch = { .count = 3, .paramArray = ops };
	CUgraphNodeParams generic = { .type = CU_GRAPH_NODE_TYPE_HOST };
	CUlaunchAttributeValue value = { .priority = -3 };
	float ms;

	(void)arg;
	prepare();
	CU(cuEventCreate(&ev, 0));
	CU(cuEventCreate(&ev2, 0));
	CU(cuCtxGetCurrent(&batch.ctx));
	/* Stream memory operations, events, generic nodes, attributes, child graphs. */
	ops[0].value.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].value.address = d;
	ops[0].value.value = 77;
	ops[1].value.operation = CU_STREAM_MEM_OP_BARRIER;
	ops[2].value.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[2].value.address = d;
	ops[2].value.value = 77;
	CU(cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &batch));
	CU(cuGraphAddEventRecordNode(&a, g, &n, 1, ev));
	n = stamp_node(d, d + 4, &a, 1);
	CU(cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	value.priority = 0;
	CU(cuGraphKernelNodeGetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	CHECK(value.priority == -3);
	value.clusterDim.x = 2;
	value.clusterDim.y = value.clusterDim.z = 1;
	CU_IS(CUDA_ERROR_INVALID_CLUSTER_SIZE,
	      cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
	CU(cuGraphAddEventRecordNode(&a, g, &n, 1, ev2));
	generic.host.fn = count;
	CU(cuGraphAddNode_v2(&n, g, &a, NULL, 1, &generic));
	generic.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&n, g, &a, 1, &generic));
	inner = g;
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddChildGraphNode(&list[0], g, NULL, 0, inner));
	CU(cuGraphAddChildGraphNode(&list[1], g, list, 1, inner));
	/* User objects exist as long as a graph or an exec refers to them. */
	CU(cuUserObjectCreate(&u, &one, end_object, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU(cuUserObjectCreate(&v, &ten, end_object, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&v, &ten, end_object, 1, 0));
	CU(cuGraphRetainUserObject(g, u, 1, 0));
	CU(cuGraphRetainUserObject(g, v, 1, CU_GRAPH_USER_OBJECT_MOVE));
	CU(cuUserObjectRelease(u, 2));
	CU(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	launch(x, s);
	CHECK(word(d) == 78 && word(d + 4) == 77 && load_acquire(&calls) == 2);
	CU(cuEventQuery(ev));
	CU(cuEventElapsedTime(&ms, ev, ev2));
	CHECK(ms >= 0);
	CU(cuGraphDebugDotPrint(g, "/dev/null", CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	CU(cuGraphDestroy(g));
	CHECK(load_acquire(&ended) == 0);
	CU(cuGraphExecDestroy(x));
	CHECK(load_acquire(&ended) == 11);
}

static void nodes_of_all_kinds_run(void **state)
{
	(void)state;
	assert_int_equal(rig_run(kinds_program, NULL), 0);
}

static void memory_program(void *arg)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							.location = { CU_MEM_LOCATION_TYPE_DEVICE,
								      0 } },
					 .bytesize = 1u << 20 };
	CUgraphNode alloc, set, copy, end;
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = d,
			    .WidthInBytes = 64,
			    .Height = 1,
			    .Depth = 1 };
	CUgraphExec other;
	uint64_t used;
	CUgraph clone;

	(void)arg;
	prepare();
	CU(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p));
	CHECK(p.dptr);
	set = set_node(p.dptr, 9, 1000, &alloc, 1);
	c.dstDevice = d;
	c.srcDevice = p.dptr;
	CU(cuGraphAddMemcpyNode(&copy, g, &set, 1, &c, NULL));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	launch(x, s);
	CHECK(word(d + 60) == 9);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(x, s)); /* already allocated */
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 1u << 20);
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, g));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&other, g, 0));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	launch(x, s);
	launch(x, s);
	CU(cuGraphExecDestroy(x));
	CU(cuGraphAddMemFreeNode(&end, g, &copy, 1, p.dptr));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&end, g, &copy, 1, d));
	CU(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	launch(x, s);
	CU(cuGraphExecDestroy(x));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	launch(x, s);
	launch(x, s);
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 0);
}

static void graphs_have_memory_of_their_own(void **state)
{
	(void)state;
	assert_int_equal(rig_run(memory_program, NULL), 0);
}

/* A graph with kernels of two contexts on two GPUs, launched in streams of either. */
static void contexts_program(void *arg)
{
	CUcontext first, second;
	CUmodule m;
	CUfunction f;
	CUdeviceptr e, out;
	CUgraphNode a, b;
	CUstream u;
	CUDA_KERNEL_NODE_PARAMS p = { .gridDimX = 1,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 1,
				      .blockDimY = 1,
				      .blockDimZ = 1 };
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .WidthInBytes = 4,
			    .Height = 1,
			    .Depth = 1 };

	(void)arg;
	prepare();
	CU(cuCtxGetCurrent(&first));
	CU(cuCtxCreate_v2(&second, 0, 1));
	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuModuleGetFunction(&f, m, "stamp"));
	CU(cuMemAlloc_v2(&e, 64));
	CU(cuMemsetD32_v2(e, 0, 16));
	CU(cuStreamCreate(&u, CU_STREAM_NON_BLOCKING));
	a = stamp_node(d, d + 4, NULL, 0); /* first: d + 4 = n */
	c.srcDevice = d + 4;
	c.dstDevice = e;
	CU(cuGraphAddMemcpyNode(&b, g, &a, 1, &c,
				first)); /* d + 4 to the second context's counter */
	out = e + 4;
	p.func = f;
	p.kernelParams = (void *[]){ &e, &out };
	CU(cuGraphAddKernelNode_v2(&a, g, &b, 1, &p)); /* second: e + 4 = n, e = n + 1 */
	c.srcDevice = e;
	c.dstDevice = d + 64;
	CU(cuGraphAddMemcpyNode(&b, g, &a, 1, &c, second));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t i = 0; i < 40; i++) {
		CUstream in = i & 1 ? u : s;

		CU(cuGraphLaunch(x, in));
		CU(cuStreamSynchronize(in));
		CHECK(word(d + 64) == i + 1 && word(e + 4) == i);
	}
	/* After the second context is destroyed the exec cannot be launched, and everything else
	 * still works. */
	CU(cuCtxDestroy_v2(second));
	CU(cuCtxSetCurrent(first));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(x, s));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	CU(cuStreamSynchronize(s));
}

static void a_graph_may_span_contexts(void **state)
{
	(void)state;
	assert_int_equal(rig_run(contexts_program, NULL), 0);
}

/* A fault in a graph is sticky in its context: synchronization reports it, and the exec can be
 * destroyed. */
static void fault_program(void *arg)
{
	CUDA_KERNEL_NODE_PARAMS p = { .gridDimX = 1,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 1,
				      .blockDimY = 1,
				      .blockDimZ = 1 };
	CUgraphNode a, b;
	CUcontext ctx;

	(void)arg;
	prepare();
	CU(cuCtxGetCurrent(&ctx));
	p.func = rig_function("wild");
	CU(cuGraphAddKernelNode_v2(&a, g, NULL, 0, &p));
	stamp_node(d, d + 4, &a, 1);
	CU(cuGraphAddHostNode(&b, g, &a, 1, &(CUDA_HOST_NODE_PARAMS){ count, NULL }));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphLaunch(x, s));
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(s));
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuGraphLaunch(x, s));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	CU(cuCtxDestroy_v2(ctx));
	CHECK(load_acquire(&calls) == 0);
}

static void faults_in_graphs_end_them(void **state)
{
	(void)state;
	assert_int_equal(rig_run(fault_program, NULL), 0);
}

static int start(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *const[]){ "--mem", "256M", "--sms", "2", "--gpus", "2", NULL });
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_captured_graph_runs_repeatedly),
		cmocka_unit_test(graphs_report_their_contents),
		cmocka_unit_test(copies_of_all_shapes_are_nodes),
		cmocka_unit_test(execs_change_within_their_shape),
		cmocka_unit_test(launches_of_one_exec_never_overlap),
		cmocka_unit_test(nodes_of_all_kinds_run),
		cmocka_unit_test(graphs_have_memory_of_their_own),
		cmocka_unit_test(a_graph_may_span_contexts),
		cmocka_unit_test(faults_in_graphs_end_them),
	};

	return cmocka_run_group_tests_name("soft graph", tests, start, rig_end);
}
