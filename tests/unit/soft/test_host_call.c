/* Driver calls in code that the driver calls: stream callbacks, host functions, host nodes of
 * graphs and destructors of user objects. None may hang; src/cuabi/host_function.def says which are
 * carried out. Each test is a child process; all share one server. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "cuabi/names.h"
#include "rig.h"

#include "../eventually.h"

/* What the calls below work on. */
static struct {
	CUcontext ctx;
	CUstream carrier, stream; /* the first runs the host function */
	CUevent event;
	CUdeviceptr memory, freed;
	void *pinned;
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUuserObject user;
	int done; /* [atomic] */
} w;

enum way { WAY_CALLBACK, WAY_FUNCTION, WAY_NODE, WAY_DESTRUCTOR, WAYS };

static void (*body)(void);

static void run_body(void)
{
	body();
	store_release(&w.done, 1);
}

static void as_callback(CUstream s, CUresult status, void *unused)
{
	(void)unused;
	CHECK(s == w.carrier && status == CUDA_SUCCESS);
	run_body();
}

static void as_function(void *unused)
{
	(void)unused;
	run_body();
}

static void nothing(void *unused)
{
	(void)unused;
}

static void make_objects(void)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = nothing };

	memset(&w, 0, sizeof(w));
	w.ctx = rig_context();
	CU(cuStreamCreate(&w.carrier, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&w.stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&w.event, 0));
	CU(cuEventRecord(w.event, w.stream));
	CU(cuMemAlloc_v2(&w.memory, 4096));
	CU(cuMemAlloc_v2(&w.freed, 4096));
	CU(cuMemHostAlloc(&w.pinned, 4096, 0));
	CU(cuGraphCreate(&w.graph, 0));
	CU(cuGraphAddHostNode(&w.node, w.graph, NULL, 0, &p));
	CU(cuGraphInstantiateWithFlags(&w.exec, w.graph, 0));
	CU(cuUserObjectCreate(&w.user, NULL, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU(cuCtxSynchronize());
}

static void call(enum way way)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = as_function };
	CUgraph g;
	CUgraphNode n;
	CUgraphExec x;
	CUuserObject u;

	switch (way) {
	case WAY_CALLBACK:
		CU(cuStreamAddCallback(w.carrier, as_callback, NULL, 0));
		break;
	case WAY_FUNCTION:
		CU(cuLaunchHostFunc(w.carrier, as_function, NULL));
		break;
	case WAY_NODE:
		CU(cuGraphCreate(&g, 0));
		CU(cuGraphAddHostNode(&n, g, NULL, 0, &p));
		CU(cuGraphInstantiateWithFlags(&x, g, 0));
		CU(cuGraphLaunch(x, w.carrier));
		break;
	default:
		CU(cuUserObjectCreate(&u, NULL, as_function, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
		CU(cuUserObjectRelease(u, 1));
		break;
	}
	eventually(load_acquire(&w.done));
	CU(cuStreamSynchronize(w.carrier));
}

/* ---- all refused functions ---- */

static void call_all_refused(void)
{
	typedef CUresult (*entry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				  uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

	for (int i = 0; i < CUABI_COUNT; i++) {
		void *p = dlsym(RTLD_DEFAULT, cuabi_names[i]);
		CUresult e;
		entry f;

		memcpy(&f, &p, sizeof(f));
		if (!cuabi_gates[i].in_host) {
			e = f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
			rig_check_cu(e, CUDA_ERROR_NOT_PERMITTED, cuabi_names[i], __FILE__,
				     __LINE__);
		}
	}
}

static void refused_program(void *way)
{
	make_objects();
	body = call_all_refused;
	call((enum way)(uintptr_t)way);
}

static void all_other_functions_are_not_permitted(void **state)
{
	(void)state;
	for (uintptr_t way = 0; way < WAYS; way++) {
		assert_int_equal(rig_run(refused_program, (void *)way), 0);
	}
}

/* ---- with arguments that are right elsewhere ---- */

static void free_memory(void)
{
	CUdeviceptr base;
	CUdevice device;
	size_t bytes;

	/* As libgomp asks whether it is in a callback, and then defers the free. */
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuCtxGetDevice(&device));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuMemGetAddressRange_v2(&base, &bytes, w.freed));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuMemFree_v2(w.freed));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuMemFreeHost(w.pinned));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuCtxSetCurrent(w.ctx));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuCtxSynchronize());
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuCtxDestroy_v2(w.ctx));
}

static void free_program(void *way)
{
	make_objects();
	body = free_memory;
	call((enum way)(uintptr_t)way);
	CU(cuMemFree_v2(w.freed));
	CU(cuMemFreeHost(w.pinned));
	CU(cuCtxDestroy_v2(w.ctx));
}

static void a_refused_free_can_be_made_up_for(void **state)
{
	(void)state;
	for (uintptr_t way = 0; way < WAYS; way++) {
		assert_int_equal(rig_run(free_program, (void *)way), 0);
	}
}

/* ---- permitted functions ---- */

static void use_handles(void)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = nothing };
	CUstreamCaptureStatus capturing;
	CUuserObject u;
	CUgraphNode n;
	CUcontext ctx;
	const char *text;
	unsigned flags;
	int version;
	float ms;

	CU(cuDriverGetVersion(&version));
	CU(cuGetErrorString(CUDA_ERROR_NOT_PERMITTED, &text));
	CU(cuEventSynchronize(w.event));
	CU(cuEventQuery(w.event));
	CU(cuEventElapsedTime(&ms, w.event, w.event));
	CU(cuStreamQuery(w.stream));
	CU(cuStreamSynchronize(w.stream));
	CU(cuStreamGetFlags(w.stream, &flags));
	CU(cuStreamGetCtx(w.stream, &ctx));
	CHECK(ctx == w.ctx && flags == CU_STREAM_NON_BLOCKING);
	CU(cuStreamIsCapturing(w.stream, &capturing));
	CU(cuLaunchHostFunc(w.stream, nothing, NULL));
	CU(cuGraphLaunch(w.exec, w.stream));
	CU(cuMemsetD8Async(w.memory, 7, 16, w.stream));
	CU(cuStreamWriteValue32_v2(w.stream, w.memory + 16, 5, 0));
	CU(cuStreamWaitEvent(w.stream, w.event, 0));
	CU(cuEventRecord(w.event, w.stream));
	CU(cuGraphAddEmptyNode(&n, w.graph, NULL, 0));
	CU(cuGraphAddHostNode(&n, w.graph, NULL, 0, &p));
	CU(cuUserObjectCreate(&u, NULL, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU(cuUserObjectRelease(u, 1));
	CU(cuUserObjectRelease(w.user, 1));
}

static void handles_program(void *way)
{
	uint32_t got[5] = { 0 };

	make_objects();
	body = use_handles;
	call((enum way)(uintptr_t)way);
	CU(cuStreamSynchronize(w.stream));
	CU(cuEventSynchronize(w.event));
	CU(cuMemcpyDtoH_v2(got, w.memory, sizeof(got)));
	CHECK(got[0] == 0x07070707 && got[4] == 5);
}

static void events_and_streams_work_by_their_handles(void **state)
{
	(void)state;
	/* A destructor runs on a thread of the program, as one that calls no driver function. */
	for (uintptr_t way = 0; way < WAYS; way++) {
		assert_int_equal(rig_run(handles_program, (void *)way), 0);
	}
}

static void use_default_streams(void)
{
	static CUstream const none[] = { NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD };

	for (int i = 0; i < 3; i++) {
		CU_IS(CUDA_ERROR_NOT_PERMITTED, cuEventRecord(w.event, none[i]));
		CU_IS(CUDA_ERROR_NOT_PERMITTED, cuStreamSynchronize(none[i]));
		CU_IS(CUDA_ERROR_NOT_PERMITTED, cuLaunchHostFunc(none[i], nothing, NULL));
	}
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)(void *)w.event));
}

static void default_program(void *way)
{
	make_objects();
	body = use_default_streams;
	call((enum way)(uintptr_t)way);
}

static void default_streams_are_not_permitted(void **state)
{
	(void)state;
	for (uintptr_t way = 0; way < WAYS; way++) {
		assert_int_equal(rig_run(default_program, (void *)way), 0);
	}
}

/* ---- waits ---- */

static void wait_for_itself(void)
{
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(w.carrier));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuStreamSynchronize(w.carrier));
	CU(cuEventRecord(w.event, w.carrier));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuEventSynchronize(w.event));
}

static void wait_program(void *way)
{
	make_objects();
	body = wait_for_itself;
	call((enum way)(uintptr_t)way);
	CU(cuEventSynchronize(w.event));
}

static void waits_for_work_that_cannot_end_are_refused(void **state)
{
	(void)state;
	for (uintptr_t way = 0; way < WAY_DESTRUCTOR; way++) {
		assert_int_equal(rig_run(wait_program, (void *)way), 0);
	}
}

/* Submits until the ring is full. */
static void fill_ring(void)
{
	CUresult e = CUDA_SUCCESS;

	for (int i = 0; i < 1000000 && !e; i++) {
		e = cuLaunchHostFunc(w.carrier, nothing, NULL);
	}
	CHECK(e == CUDA_ERROR_NOT_PERMITTED);
}

static void full_program(void *way)
{
	make_objects();
	body = fill_ring;
	call((enum way)(uintptr_t)way);
	CU(cuLaunchHostFunc(w.carrier, nothing, NULL));
	CU(cuCtxSynchronize());
}

static void a_full_queue_is_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(full_program, (void *)(uintptr_t)WAY_FUNCTION), 0);
}

/* The host function runs while another thread waits for room that only its return can make. */
static int submitted; /* [atomic] */

static void wait_for_submitter(void)
{
	/* The submitter is the main thread. */
	eventually(load_acquire(&submitted) >= 1000 && thread_is_blocked(getpid()));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuEventRecord(w.event, w.stream));
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuLaunchHostFunc(w.stream, nothing, NULL));
	store_release(&w.done, 1);
}

static void submitter_program(void *unused)
{
	(void)unused;
	make_objects();
	body = wait_for_submitter;
	CU(cuLaunchHostFunc(w.carrier, as_function, NULL));
	while (!load_acquire(&w.done)) {
		CU(cuLaunchHostFunc(w.carrier, nothing, NULL));
		add_relaxed(&submitted, 1);
	}
	CU(cuCtxSynchronize());
}

static void a_waiting_submitter_blocks_no_host_function(void **state)
{
	(void)state;
	assert_int_equal(rig_run(submitter_program, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_other_functions_are_not_permitted),
		cmocka_unit_test(a_refused_free_can_be_made_up_for),
		cmocka_unit_test(events_and_streams_work_by_their_handles),
		cmocka_unit_test(default_streams_are_not_permitted),
		cmocka_unit_test(waits_for_work_that_cannot_end_are_refused),
		cmocka_unit_test(a_full_queue_is_refused),
		cmocka_unit_test(a_waiting_submitter_blocks_no_host_function),
	};

	return cmocka_run_group_tests_name("soft host call", tests, rig_begin_small, rig_end);
}
