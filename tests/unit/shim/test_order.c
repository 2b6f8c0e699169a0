/* Synchronizations, queries, events, captures, host functions, and the end of objects. */
#include "fixture.h"
#include "variants.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptx/block.h"
#include "shim/entry/parts.h"

static CUstream named, other;
static CUevent event, late;

static void synchronization_submits_deferred_calls(void **state)
{
	struct sched_queue *q = fixture_defer_one(named);

	assert_int_equal(cuStreamSynchronize(named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_true(fixture_find(CUABI_IDX_cuLaunchKernel) <
		    fixture_find(CUABI_IDX_cuStreamSynchronize));
	assert_int_equal(q->drained, 1);
}

static void context_synchronization_drains_its_streams(void **state)
{
	fixture_defer_one(named);
	fixture_launch(other);
	assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(double_queue(named)->drained, 1);
	assert_int_equal(double_queue(other)->drained, 1);
}

/* The error of a deferred call is returned once, by the next synchronization. */
static void deferred_errors_are_returned_once(void **state)
{
	fixture_defer_one(named);
	fake->fail_with(CUABI_IDX_cuLaunchKernel, CUDA_ERROR_LAUNCH_FAILED);
	double_issue();
	assert_int_equal(cuStreamSynchronize(named), CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(cuStreamSynchronize(named), CUDA_SUCCESS);
}

static void queries_see_deferred_calls(void **state)
{
	fixture_defer_one(named);
	assert_int_equal(cuStreamQuery(named), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuStreamQuery(other), CUDA_SUCCESS);
	double_issue();
	assert_int_equal(cuStreamQuery(named), CUDA_SUCCESS);
	assert_int_equal(double_queue(named)->drained, 1);
}

static void events_with_deferred_records_are_not_ready(void **state)
{
	float ms;

	fixture_defer_one(named);
	assert_int_equal(cuEventRecord(event, named), CUDA_SUCCESS);
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuEventElapsedTime(&ms, event, event), CUDA_ERROR_NOT_READY);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 0);
	assert_int_equal(cuEventSynchronize(event), CUDA_SUCCESS);
	assert_true(fixture_find(CUABI_IDX_cuLaunchKernel) < fixture_find(CUABI_IDX_cuEventRecord));
	assert_true(fixture_find(CUABI_IDX_cuEventRecord) <
		    fixture_find(CUABI_IDX_cuEventSynchronize));
	assert_int_equal(cuEventQuery(event), CUDA_SUCCESS);
}

/* An await on another stream of a record that is deferred: the record reaches the driver before the
 * await, what follows the await stays behind it, and the caller does not block. */
static void awaits_follow_deferred_records(void **state)
{
	fixture_defer_one(named);
	cuEventRecord(event, named);
	assert_int_equal(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
	assert_int_equal(cuEventRecord(late, other), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuStreamWaitEvent), 0);
	assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuStreamSynchronize(other), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 2);
	assert_true(fixture_find(CUABI_IDX_cuEventRecord) <
		    fixture_find(CUABI_IDX_cuStreamWaitEvent));
}

static void records_elsewhere_follow_deferred_records(void **state)
{
	fixture_defer_one(named);
	cuEventRecord(event, named);
	cuEventRecord(event, other);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 0);
	double_issue();
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 2);
	assert_true(fake->get((unsigned)fixture_find(CUABI_IDX_cuEventRecord)).a[1] ==
		    (uintptr_t)named);
}

/* An await refers to the record before it, even if the event is recorded again elsewhere meanwhile.
 */
static void awaits_refer_to_the_preceding_record(void **state)
{
	CUstream apart = fixture_stream(1);

	fixture_defer_one(named);
	cuEventRecord(event, named);
	cuStreamWaitEvent(other, event, 0);
	cuEventRecord(event, apart);
	cuStreamWaitEvent(other, event, 0);
	double_issue();
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 2);
	assert_int_equal(fixture_count(CUABI_IDX_cuStreamWaitEvent), 2);
}

static void record_between(void)
{
	cuStreamWaitEvent(other, event, 0);
	cuEventRecord(event, named);
}

/* The thread that began later may be enqueued first: a later call must not be awaited by an earlier
 * one. */
static void sequence_numbers_grow_within_a_queue(void **state)
{
	fixture_defer_one(named);
	double_before_place = record_between;
	assert_int_equal(cuEventRecord(event, named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 4);
	double_issue();
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventRecord), 2);
	assert_int_equal(fixture_count(CUABI_IDX_cuStreamWaitEvent), 1);
}

/* An event destroyed while deferred calls use it is destroyed after them. */
static void destroyed_events_outlive_deferred_calls(void **state)
{
	CUevent mine = NULL;

	cuEventCreate(&mine, 0);
	fixture_defer_one(named);
	cuEventRecord(mine, named);
	cuStreamWaitEvent(other, mine, 0);
	assert_int_equal(cuEventDestroy_v2(mine), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuEventDestroy_v2), 0);
	double_issue();
	assert_true(fixture_find(CUABI_IDX_cuStreamWaitEvent) <
		    fixture_find(CUABI_IDX_cuEventDestroy_v2));
}

/* Launches of one graph are ordered, also on different streams. */
static void graph_launches_follow_deferred_ones(void **state)
{
	CUgraphExec exec = (CUgraphExec)(uintptr_t)0x5000;

	fixture_defer_one(named);
	assert_int_equal(cuGraphLaunch(exec, named), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuGraphLaunch), 0);
	assert_int_equal(cuGraphLaunch(exec, other), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuGraphLaunch), 2);
	assert_true(fake->get((unsigned)fixture_find(CUABI_IDX_cuGraphLaunch)).a[1] ==
		    (uintptr_t)named);
}

/* Changing a graph drains its launches; destroying it drains nothing. */
static void graphs_change_and_end_after_deferred_launches(void **state)
{
	CUgraphExec exec = (CUgraphExec)(uintptr_t)0x5000, idle = (CUgraphExec)(uintptr_t)0x6000;
	CUgraphExecUpdateResultInfo info;

	fixture_defer_one(named);
	assert_int_equal(cuGraphLaunch(exec, named), CUDA_SUCCESS);
	assert_int_equal(cuGraphExecUpdate_v2(idle, NULL, &info), CUDA_SUCCESS);
	assert_int_equal(cuGraphExecDestroy(idle), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuGraphExecDestroy), 1);
	assert_int_equal(double_deferred(), 2);
	assert_int_equal(cuGraphExecUpdate_v2(exec, NULL, &info), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	fixture_defer_one(named);
	assert_int_equal(cuGraphLaunch(exec, named), CUDA_SUCCESS);
	assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuGraphExecDestroy), 0);
	assert_int_equal(double_deferred(), 2);
	double_issue();
	assert_true(fixture_find(CUABI_IDX_cuGraphLaunch) <
		    fixture_find(CUABI_IDX_cuGraphExecDestroy));
}

static void attributes_drain_only_their_stream(void **state)
{
	CUstreamAttrValue value;

	memset(&value, 0, sizeof(value));
	fixture_defer_one(named);
	assert_int_equal(cuStreamSetAttribute(other, 1, &value), CUDA_SUCCESS);
	assert_int_equal(cuStreamCopyAttributes(other, named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	assert_int_equal(
		cuStreamSetAttribute(named, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
		CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	assert_int_equal(cuStreamSetAttribute(named, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &value),
			 CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	fixture_defer_one(named);
	assert_int_equal(cuStreamCopyAttributes(named, other), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
}

/* Streams that are not ordered with the deferred call's stream do not wait. */
static void unordered_streams_are_not_delayed(void **state)
{
	CUstream apart = fixture_stream(1);

	fixture_defer_one(named);
	assert_int_equal(fixture_launch(other), CUDA_SUCCESS);
	assert_int_equal(fixture_launch(apart), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	double_issue();
	fixture_launch(CU_STREAM_LEGACY);
	fixture_defer_one(CU_STREAM_LEGACY);
	assert_int_equal(fixture_launch(apart), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	assert_int_equal(fixture_launch(other), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 2);
	assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	double_issue();
	assert_int_equal(double_deferred(), 0);
}

/* Calls deferred on the default stream and on two streams ordered with it: each waits for earlier
 * ones on the other side and for no later ones. */
static void default_stream_order_is_preserved(void **state)
{
	CUstream order[] = {
		named, CU_STREAM_LEGACY, other, named, other, CU_STREAM_LEGACY, CU_STREAM_LEGACY,
		named
	};
	unsigned at[ARRAY_SIZE(order)], n = 0;

	fixture_defer_one(named);
	for (unsigned i = 1; i < ARRAY_SIZE(order); i++) {
		assert_int_equal(cuMemsetD32Async(4096, i, 1, order[i]), CUDA_SUCCESS);
	}
	assert_int_equal(double_deferred(), ARRAY_SIZE(order));
	double_issue();
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuMemsetD32Async), ARRAY_SIZE(order) - 1);
	for (unsigned i = 0; i < fake->count(); i++) {
		struct fake_record r = fake->get(i);

		if (r.index == CUABI_IDX_cuMemsetD32Async) {
			at[r.a[1]] = n++;
		}
	}
	assert_true(at[1] < at[2] && at[1] < at[3] && at[1] < at[4]);
	assert_true(at[2] < at[4] && at[3] < at[5] && at[4] < at[5]);
	assert_true(at[5] < at[6] && at[6] < at[7]);
}

/* A deferred call of the default stream behind another stream does not block this stream's thread.
 */
static void stream_without_deferred_calls_does_not_wait(void **state)
{
	fixture_defer_one(named);
	cuMemsetD32Async(4096, 1, 1, CU_STREAM_LEGACY);
	assert_int_equal(double_deferred(), 2);
	assert_int_equal(cuStreamSynchronize(other), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 2);
	assert_int_equal(cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
}

static void captures_are_not_held(void **state)
{
	struct sched_queue *q = double_queue(named);
	CUgraph graph;

	q->defer = true;
	assert_int_equal(cuStreamBeginCapture(named, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	assert_int_equal(fixture_launch(named), CUDA_SUCCESS);
	assert_int_equal(cuLaunchHostFunc(named, (CUhostFn)0x1234, (void *)0x5678), CUDA_SUCCESS);
	assert_int_equal(q->submits, 0);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fake->get((unsigned)fixture_find(CUABI_IDX_cuLaunchHostFunc)).a[1],
			 0x1234);
	double_queue(other)->defer = true;
	assert_int_equal(fixture_launch(other),
			 CUDA_SUCCESS); /* counted, but not held while another stream captures */
	assert_int_equal(double_queue(other)->submits, 1);
	assert_false(double_queue(other)->launch.may_hold);
	assert_int_equal(cuStreamEndCapture(named, &graph), CUDA_SUCCESS);
	assert_int_equal(fixture_launch(named), CUDA_SUCCESS);
	assert_int_equal(q->submits, 1);
	assert_int_equal(double_deferred(), 1);
}

static bool may_hold_inside;

static void host_function(void *user)
{
	fixture_launch(other);
	may_hold_inside = double_queue(other)->launch.may_hold;
	*(int *)user += 1;
}

static void launches_inside_host_functions_are_not_held(void **state)
{
	struct fake_record r;
	int called = 0;

	assert_int_equal(cuLaunchHostFunc(named, host_function, &called), CUDA_SUCCESS);
	r = fake->get((unsigned)fixture_find(CUABI_IDX_cuLaunchHostFunc));
	((CUhostFn)(uintptr_t)r.a[1])((void *)(uintptr_t)r.a[2]);
	assert_int_equal(called, 1);
	assert_false(may_hold_inside);
	fixture_launch(other);
	assert_true(double_queue(other)->launch.may_hold);
}

/* The call does not wait; the driver destroys the stream when nothing is deferred. */
static void stream_is_destroyed_after_its_deferred_calls(void **state)
{
	CUstream s = fixture_stream(0);

	fixture_defer_one(s);
	assert_int_equal(cuStreamDestroy(s), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	assert_true(fixture_find(CUABI_IDX_cuStreamDestroy_v2) < 0);
	assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_true(fixture_find(CUABI_IDX_cuLaunchKernel) <
		    fixture_find(CUABI_IDX_cuStreamDestroy_v2));
	assert_null(double_queue(s));
	assert_int_equal(fixture_launch(s),
			 CUDA_SUCCESS); /* the handle was reused: another queue */
	assert_non_null(double_queue(s));
	cuStreamDestroy(s);
}

static void ending_a_context_closes_its_queues(void **state)
{
	CUstream s = fixture_stream(0);

	fixture_launch(CU_STREAM_LEGACY);
	fixture_defer_one(s);
	assert_int_equal(cuCtxDestroy(FAKE_CTX), CUDA_SUCCESS);
	assert_true(fixture_find(CUABI_IDX_cuLaunchKernel) <
		    fixture_find(CUABI_IDX_cuCtxDestroy_v2));
	assert_null(double_queue(s));
	assert_null(double_queue(CU_STREAM_LEGACY));
	named = fixture_stream(0);
	other = fixture_stream(0);
}

/* Each context has its own default stream, on its device; synchronizing one context has no effect
 * on the other's queues. */
static void contexts_have_queues_of_their_own(void **state)
{
	CUcontext second = FAKE_CTX_OF(1), popped;
	struct sched_queue *a, *b;

	fixture_launch(CU_STREAM_LEGACY);
	shim_real.cuCtxPushCurrent_v2(second);
	fixture_launch(CU_STREAM_LEGACY);
	a = double_queue_in(CU_STREAM_LEGACY, FAKE_CTX);
	b = double_queue_in(CU_STREAM_LEGACY, second);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(a->gpu, 0);
	assert_int_equal(b->gpu, 1);
	assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
	assert_int_equal(a->drained, 0);
	assert_int_equal(b->drained, 1);
	b->defer = true;
	assert_int_equal(fixture_launch(CU_STREAM_LEGACY), CUDA_SUCCESS);
	shim_real.cuCtxPopCurrent_v2(&popped);
	assert_int_equal(fixture_launch(CU_STREAM_LEGACY), CUDA_SUCCESS); /* not ordered with it */
	assert_int_equal(double_deferred(), 1);
	double_issue();
	assert_ptr_equal(fake->get(fake->count() - 2).ctx, second);
	assert_int_equal(cuCtxDestroy(second), CUDA_SUCCESS);
	assert_null(double_queue_in(CU_STREAM_LEGACY, second));
	assert_non_null(double_queue_in(CU_STREAM_LEGACY, FAKE_CTX));
}

/* Reading results back is a synchronization. */
static void copies_to_the_host_drain(void **state)
{
	uint64_t value;

	fixture_launch(CU_STREAM_LEGACY);
	cuMemcpyDtoH(&value, 0xd0000000u, sizeof(value));
	assert_int_equal(double_queue(CU_STREAM_LEGACY)->drained, 1);
	cuMemcpyHtoD(0xd0000000u, &value, sizeof(value));
	assert_int_equal(double_queue(CU_STREAM_LEGACY)->drained, 1);
}

static void *launch_on_own(void *arg)
{
	fixture_launch(CU_STREAM_PER_THREAD);
	*(bool *)arg = double_queue(CU_STREAM_PER_THREAD) != NULL;
	return NULL;
}

static void thread_exit_closes_its_per_thread_stream(void **state)
{
	bool opened = false;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, launch_on_own, &opened), 0);
	pthread_join(t, NULL);
	assert_true(opened);
	assert_null(double_queue(CU_STREAM_PER_THREAD));
}

static void launch_records_describe_the_launch(void **state)
{
	struct sched_queue *q = double_queue(named);
	CUDA_MEMCPY3D m = { .WidthInBytes = 8, .Height = 4, .Depth = 2 };

	cuLaunchKernel(FAKE_FUNCTION, 4, 3, 2, 16, 2, 2, 128, named, NULL, NULL);
	assert_int_equal(q->launch.kind, GBPF_KIND_KERNEL);
	assert_int_equal(q->launch.blocks, 24);
	assert_int_equal(q->launch.threads, 64);
	assert_int_equal(q->launch.smem_bytes, 128);
	assert_string_equal((const char *)q->launch.kernel, "fake_kernel");
	cuLaunchCooperativeKernel(FAKE_FUNCTION, 4, 3, 2, 16, 2, 2, 128, named, NULL);
	assert_int_equal(q->launch.flags, GBPF_F_COOPERATIVE);
	cuMemsetD32Async(0xd0000000u, 1, 100, named);
	assert_int_equal(q->launch.kind, GBPF_KIND_MEMSET);
	assert_int_equal(q->launch.bytes, 400);
	cuMemsetD2D16Async(0xd0000000u, 64, 1, 10, 20, named);
	assert_int_equal(q->launch.bytes, 400);
	cuMemcpyDtoDAsync(0xd0000000u, 0xd1000000u, 77, named);
	assert_int_equal(q->launch.kind, GBPF_KIND_COPY);
	assert_int_equal(q->launch.bytes, 77);
	cuMemcpy3DAsync(&m, named);
	assert_int_equal(q->launch.bytes, 64);
	cuGraphLaunch((CUgraphExec)0x70, named);
	assert_int_equal(q->launch.kind, GBPF_KIND_GRAPH);
	assert_memory_equal((const char *)q->launch.kernel, "graph:", 6);
	assert_int_equal(double_why, PROTO_BLOCK_CAPTURE); /* for `gbpf ps --why` */
	cuMemcpyHtoD(0xd0000000u, &m, 10);
	assert_int_equal(double_queue(CU_STREAM_LEGACY)->launch.bytes, 10);
}

static void symbols_lead_to_the_shim(void **state)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;

	assert_int_equal(cuGetProcAddress("cuLaunchKernel", &p, 13000, 0, &status), CUDA_SUCCESS);
	assert_ptr_equal(p, shim_exports[CUABI_IDX_cuLaunchKernel]);
	cuGetProcAddress("cuLaunchKernel", &p, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
			 &status);
	assert_ptr_equal(p, shim_exports[CUABI_IDX_cuLaunchKernel_ptsz]);
	cuGetProcAddress("cuMemcpyHtoD", &p, 13000, 0, &status);
	assert_ptr_equal(p, shim_exports[CUABI_IDX_cuMemcpyHtoD_v2]);
	cuGetProcAddress("cuDeviceGetName", &p, 13000, 0, &status);
	assert_non_null(p);
	assert_ptr_equal(p, shim_real.cuDeviceGetName);
}

static void a_forked_child_passes_through(void **state)
{
	int status;
	pid_t pid;

	/* The fork handler that init.c registers is tested with a session; this tests the state
	 * that it leaves. */
	pid = fork();
	if (pid == 0) {
		shim_parts_child();
		shim.attached = 0;
		((struct sched_shared *)(void *)double_scheduler())->active = 0;
		fake->reset();
		_exit(fixture_launch(named) == CUDA_SUCCESS && fake->count() == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int setup(void **state)
{
	if (fixture_setup(state) != 0) {
		return -1;
	}
	named = fixture_stream(0);
	other = fixture_stream(0);
	cuEventCreate(&event, 0);
	cuEventCreate(&late, 0);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup(f, fixture_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(synchronization_submits_deferred_calls),
		TEST(context_synchronization_drains_its_streams),
		TEST(deferred_errors_are_returned_once),
		TEST(queries_see_deferred_calls),
		TEST(events_with_deferred_records_are_not_ready),
		TEST(awaits_follow_deferred_records),
		TEST(records_elsewhere_follow_deferred_records),
		TEST(awaits_refer_to_the_preceding_record),
		TEST(sequence_numbers_grow_within_a_queue),
		TEST(graph_launches_follow_deferred_ones),
		TEST(graphs_change_and_end_after_deferred_launches),
		TEST(attributes_drain_only_their_stream),
		TEST(destroyed_events_outlive_deferred_calls),
		TEST(unordered_streams_are_not_delayed),
		TEST(default_stream_order_is_preserved),
		TEST(stream_without_deferred_calls_does_not_wait),
		TEST(captures_are_not_held),
		TEST(launches_inside_host_functions_are_not_held),
		TEST(stream_is_destroyed_after_its_deferred_calls),
		TEST(ending_a_context_closes_its_queues),
		TEST(contexts_have_queues_of_their_own),
		TEST(copies_to_the_host_drain),
		TEST(thread_exit_closes_its_per_thread_stream),
		TEST(launch_records_describe_the_launch),
		TEST(symbols_lead_to_the_shim),
		TEST(a_forked_child_passes_through),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
