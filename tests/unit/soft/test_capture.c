/* Stream capture on the soft GPU: which work is recorded, and every way in which a capture can
 * fail. Each test is a child process; all share one server. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static CUstream s, t;
static CUevent ev, back;
static CUdeviceptr d;
static CUgraph g;

static void prepare(unsigned flags)
{
	rig_context();
	CU(cuStreamCreate(&s, flags));
	CU(cuStreamCreate(&t, flags));
	CU(cuEventCreate(&ev, 0));
	CU(cuEventCreate(&back, 0));
	CU(cuMemAlloc_v2(&d, 4096));
}

static void begin(CUstreamCaptureMode mode)
{
	CU(cuStreamBeginCapture_v2(s, mode));
}

static size_t nodes(CUgraph graph)
{
	size_t n = 0;

	CU(cuGraphGetNodes(graph, NULL, &n));
	return n;
}

static CUstreamCaptureStatus status(CUstream stream)
{
	CUstreamCaptureStatus r;

	CU(cuStreamIsCapturing(stream, &r));
	return r;
}

/* Checks that the capture has failed: ending it returns the error, and afterwards it no longer
 * exists. */
static void end_invalidated(void)
{
	g = (CUgraph)&g;
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(d, 1, 4, s));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	CHECK(g == NULL);
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuMemsetD8Async(d, 1, 4, s));
	CU(cuStreamSynchronize(s));
}

static void fork_program(void *arg)
{
	const CUgraphNode *deps;
	const CUgraphEdgeData *edges;
	CUstreamCaptureStatus st;
	uint32_t got[3];
	uint64_t id, id2;
	size_t n;
	CUgraph seen;
	CUgraphExec x;

	(void)arg;
	prepare(CU_STREAM_DEFAULT);
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CHECK(status(t) == CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuMemsetD32Async(d, 5, 1, s));
	CU(cuEventRecord(ev, s));
	CU(cuStreamWaitEvent(t, ev, 0));
	CHECK(status(t) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU(cuMemcpyDtoDAsync_v2(d + 4, d, 4, t));
	CU(cuMemcpyDtoDAsync_v2(d + 8, d, 4, s));
	CU(cuEventRecord(back, t));
	CU(cuStreamWaitEvent(s, back, 0));
	CU(cuStreamGetCaptureInfo_v2(s, &st, &id, &seen, &deps, &n));
	CHECK(st == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 2 && deps[0] != deps[1]);
	CU(cuStreamGetCaptureInfo_v3(t, &st, &id2, NULL, &deps, &edges, &n));
	CHECK(id2 == id && n == 1 && edges[0].type == 0);
	CU(cuStreamGetCaptureInfo(s, &st, &id2));
	CHECK(id2 == id);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(seen));
	CU(cuMemcpyDtoHAsync_v2(got, d, sizeof(got), s));
	CU(cuStreamEndCapture(s, &g));
	CHECK(g == seen && nodes(g) == 4);
	CHECK(status(t) == CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuGraphGetEdges(g, NULL, NULL, &n));
	CHECK(n == 4);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int i = 0; i < 50; i++) {
		memset(got, 0, sizeof(got));
		CU(cuGraphLaunch(x, s));
		CU(cuStreamSynchronize(s));
		CHECK(got[0] == 5 && got[1] == 5 && got[2] == 5);
	}
}

static void forks_and_joins_become_edges(void **state)
{
	(void)state;
	assert_int_equal(rig_run(fork_program, NULL), 0);
}

static void order_program(void *arg)
{
	CUstreamCaptureStatus st;

	(void)arg;
	prepare(CU_STREAM_DEFAULT);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	      cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture_v2(s, 3));
	CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &g));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &st));
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 0);
	CU(cuGraphDestroy(g));
	/* A forked stream cannot end the capture, and must be joined before it ends. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuEventRecord(ev, s));
	CU(cuStreamWaitEvent(t, ev, 0));
	CU(cuMemsetD8Async(d, 1, 4, t));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &g));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuEventRecord(ev, s));
	CU(cuStreamWaitEvent(t, ev, 0));
	CU(cuMemsetD8Async(d, 1, 4, t));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
	CHECK(!g && status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
	/* A forked stream may be destroyed once it is joined. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuEventRecord(ev, s));
	CU(cuStreamWaitEvent(t, ev, 0));
	CU(cuMemsetD8Async(d, 1, 4, t));
	CU(cuEventRecord(back, t));
	CU(cuStreamDestroy_v2(t));
	CU(cuStreamWaitEvent(s, back, 0));
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 1);
	/* Destroying the origin stream ends its capture. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemsetD8Async(d, 1, 4, s));
	CU(cuStreamDestroy_v2(s));
	CU(cuCtxSynchronize());
}

static void captures_begin_and_end_where_they_must(void **state)
{
	(void)state;
	assert_int_equal(rig_run(order_program, NULL), 0);
}

static void mixing_program(void *arg)
{
	(void)arg;
	prepare(CU_STREAM_DEFAULT);
	/* Two captures cannot be merged. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuEventRecord(ev, t));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(s, ev, 0));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(t, &g));
	end_invalidated();
	/* A captured stream cannot wait for work from before the capture. */
	CU(cuEventRecord(ev, t));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, ev, 0));
	end_invalidated();
	/* The legacy stream synchronizes with blocking streams, so it cannot be used. */
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(d, 1, 4, NULL));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyDtoD_v2(d, d + 8, 8));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuEventRecord(ev, s));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamWaitEvent(NULL, ev, 0));
	end_invalidated();
	/* An event of a capture that has ended belongs to no capture. */
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(t, ev, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuEventQuery(ev));
	CU(cuEventRecord(ev, t));
	CU(cuEventSynchronize(ev));
}

static void free_program(void *arg)
{
	(void)arg;
	prepare(CU_STREAM_NON_BLOCKING);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuMemsetD8Async(d, 1, 4, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuStreamSynchronize(t));
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 0);
	/* In the other modes a capturing thread may not wait at all. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemsetD8Async(d, 1, 4, NULL));
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(t));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(NULL));
	end_invalidated();
}

static void captures_do_not_mix_with_other_work(void **state)
{
	(void)state;
	assert_int_equal(rig_run(mixing_program, NULL), 0);
	assert_int_equal(rig_run(free_program, NULL), 0);
}

static void callback(CUstream stream, CUresult e, void *user)
{
	(void)stream;
	(void)e;
	(void)user;
}

static void waiting_program(void *arg)
{
	float ms;

	(void)arg;
	prepare(CU_STREAM_DEFAULT);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(s));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(s, callback, NULL, 0));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuEventRecord(ev, s));
	CU_IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(ev));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuEventRecord(ev, s));
	CU_IS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(ev));
	end_invalidated();
	CU(cuEventRecord(back, t));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(&ms, back, ev));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuEventRecord(ev, s));
	CU_IS(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&ms, back, ev));
	CU(cuStreamEndCapture(s, &g));
	CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuEventRecordWithFlags(ev, s, CU_EVENT_RECORD_EXTERNAL));
	CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamWaitEvent(s, back, CU_EVENT_WAIT_EXTERNAL));
}

static void captured_work_is_not_waited_for(void **state)
{
	(void)state;
	assert_int_equal(rig_run(waiting_program, NULL), 0);
}

/* Results of calls by another thread. */
static CUcontext context;
static CUstreamCaptureMode thread_mode;

static void *allocates(void *unused)
{
	CUdeviceptr p;
	CUresult e;

	(void)unused;
	CU(cuCtxSetCurrent(context));
	CU(cuThreadExchangeStreamCaptureMode(&thread_mode));
	e = cuMemAlloc_v2(&p, 64);
	return (void *)(uintptr_t)e;
}

static void *ends(void *unused)
{
	(void)unused;
	CU(cuCtxSetCurrent(context));
	return (void *)(uintptr_t)cuStreamEndCapture(s, &g);
}

static CUresult in_thread(void *(*fn)(void *))
{
	pthread_t thread;
	void *r;

	CHECK(pthread_create(&thread, NULL, fn, NULL) == 0);
	CHECK(pthread_join(thread, &r) == 0);
	return (CUresult)(uintptr_t)r;
}

static void modes_program(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	(void)arg;
	prepare(CU_STREAM_DEFAULT);
	CU(cuCtxGetCurrent(&context));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&p, 64));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree_v2(d));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(ev));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuMemAlloc_v2(&p, 64));
	CU(cuStreamEndCapture(s, &g));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemAlloc_v2(&p, 64));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuStreamEndCapture(s, &g));
	/* Only global captures restrict other threads, and only those in global mode. */
	thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK(in_thread(allocates) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CHECK(in_thread(allocates) == CUDA_SUCCESS);
	CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&p, 64));
	end_invalidated();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	thread_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	CHECK(in_thread(allocates) == CUDA_SUCCESS);
	CHECK(in_thread(ends) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
	CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &g));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(in_thread(ends) == CUDA_SUCCESS);
	CHECK(g && status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void modes_forbid_what_they_say(void **state)
{
	(void)state;
	assert_int_equal(rig_run(modes_program, NULL), 0);
}

static void count(void *n)
{
	++*(unsigned *)n;
}

static void into_program(void *arg)
{
	CUgraphNode first, last[2], none[1];
	const CUgraphNode *deps;
	CUstreamCaptureStatus st;
	CUDA_HOST_NODE_PARAMS host;
	unsigned calls = 0;
	size_t n;
	CUgraphExec x;

	(void)arg;
	prepare(CU_STREAM_NON_BLOCKING);
	host = (CUDA_HOST_NODE_PARAMS){ count, &calls };
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddHostNode(&first, g, NULL, 0, &host));
	CU(cuStreamBeginCaptureToGraph(s, g, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuLaunchHostFunc(s, count, &calls));
	CU(cuStreamGetCaptureInfo_v2(s, &st, NULL, NULL, &deps, &n));
	CHECK(n == 1);
	last[0] = deps[0];
	CU(cuGraphNodeGetDependencies(last[0], none, (n = 1, &n)));
	CHECK(n == 1 && none[0] == first);
	/* A node added to the graph by hand, then added to the stream's dependencies. */
	CU(cuGraphAddHostNode(&last[1], g, &first, 1, &host));
	CU(cuStreamUpdateCaptureDependencies(s, &last[1], 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	CU(cuLaunchHostFunc(s, count, &calls));
	CU(cuStreamGetCaptureInfo_v2(s, &st, NULL, NULL, &deps, &n));
	CU(cuGraphNodeGetDependencies(deps[0], NULL, &n));
	CHECK(n == 2);
	CU(cuStreamUpdateCaptureDependencies(s, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	CU(cuEventRecordWithFlags(ev, s, CU_EVENT_RECORD_EXTERNAL));
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 5);
	CU_IS(CUDA_ERROR_ILLEGAL_STATE,
	      cuStreamUpdateCaptureDependencies(s, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CHECK(calls == 4);
	CU(cuEventQuery(ev)); /* recorded by the graph */
	/* A graph launched into a capture becomes a child graph. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuGraphLaunch(x, s));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 2);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CHECK(calls == 12);
}

static void captures_go_on_in_graphs(void **state)
{
	(void)state;
	assert_int_equal(rig_run(into_program, NULL), 0);
}

static void memory_program(void *arg)
{
	CUdeviceptr p, outside;
	uint32_t got = 0;
	CUgraphExec x;

	(void)arg;
	prepare(CU_STREAM_NON_BLOCKING);
	CU(cuMemAllocAsync(&outside, 64, s));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemAllocAsync(&p, 4096, s));
	CU(cuMemsetD32Async(p, 11, 1024, s));
	CU(cuMemcpyDtoHAsync_v2(&got, p + 4092, 4, s));
	CU(cuMemFreeAsync(p, s));
	CU(cuStreamEndCapture(s, &g));
	CHECK(nodes(g) == 4);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int i = 0; i < 3; i++) {
		got = 0;
		CU(cuGraphLaunch(x, s));
		CU(cuStreamSynchronize(s));
		CHECK(got == 11);
	}
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, s)); /* already freed by the graph */
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	/* Memory that a graph has allocated remains until it is freed, even after the graph is
	 * destroyed. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemAllocAsync(&p, 4096, s));
	CU(cuMemsetD32Async(p, 12, 1024, s));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	CU(cuMemcpyDtoH_v2(&got, p, 4));
	CHECK(got == 12);
	CU(cuMemFreeAsync(p, s));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&got, p, 4));
	CU(cuMemFreeAsync(outside, s));
	CU(cuStreamSynchronize(s));
}

static void stream_ordered_memory_becomes_nodes(void **state)
{
	(void)state;
	assert_int_equal(rig_run(memory_program, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forks_and_joins_become_edges),
		cmocka_unit_test(captures_begin_and_end_where_they_must),
		cmocka_unit_test(captures_do_not_mix_with_other_work),
		cmocka_unit_test(captured_work_is_not_waited_for),
		cmocka_unit_test(modes_forbid_what_they_say),
		cmocka_unit_test(captures_go_on_in_graphs),
		cmocka_unit_test(stream_ordered_memory_becomes_nodes),
	};

	return cmocka_run_group_tests_name("soft capture", tests, rig_begin_small, rig_end);
}
