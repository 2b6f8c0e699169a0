/* Streams, events and launches compared with the driver: attributes, memory operations,
 * interprocess events, occupancy. Each test is a child process; all share one server. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "rig.h"

#include "../eventually.h"

static void attributes_program(void *arg)
{
	CUstreamAttrValue v = { 0 };
	unsigned long long id, id2;
	unsigned flags;
	CUstream s, t;
	CUcontext ctx, own;
	CUdevice dev;
	int priority;

	(void)arg;
	own = rig_context();
	CU(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -2));
	CU(cuStreamCreateWithPriority(&t, 0, -100));
	CU(cuStreamGetPriority(s, &priority));
	CHECK(priority == -2);
	CU(cuStreamGetPriority(t, &priority));
	CHECK(priority == SOFT_PRIORITY_GREATEST);
	CU(cuStreamGetFlags(s, &flags));
	CHECK(flags == CU_STREAM_NON_BLOCKING);
	CU(cuStreamGetId(s, &id));
	CU(cuStreamGetId(t, &id2));
	CHECK(id != id2);
	CU(cuStreamGetCtx(s, &ctx));
	CHECK(ctx == own);
	CU(cuStreamGetDevice(s, &dev));
	CHECK(dev == 0);
	v.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
	CU(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v.syncPolicy = 99;
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v.accessPolicyWindow.num_bytes = 4096;
	CU(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	memset(&v, 0, sizeof(v));
	v.priority = -4;
	CU(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	CU(cuStreamCopyAttributes(t, s));
	CU(cuStreamGetAttribute(t, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	CHECK(v.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
	CU(cuStreamGetAttribute(t, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	CHECK(v.accessPolicyWindow.num_bytes == 4096);
	CU(cuStreamGetPriority(t, &priority));
	CHECK(priority == -4);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuStreamGetAttribute(t, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	rig_launch(rig_function("empty"), 1, 1, s, NULL);
	CU(cuStreamSynchronize(s));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&s, 8));
	CU(cuStreamDestroy_v2(t));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(t));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_LEGACY));
	/* Destroying a context destroys its streams and events. */
	CU(cuCtxDestroy_v2(own));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(s));
}

static void streams_keep_their_attributes(void **state)
{
	(void)state;
	assert_int_equal(rig_run(attributes_program, NULL), 0);
}

static void values_program(void *arg)
{
	CUstreamBatchMemOpParams ops[4] = { 0 };
	volatile uint32_t *word;
	CUdeviceptr p;
	CUstream s, t;

	(void)arg;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)(uintptr_t)&word, 4096, 0));
	memset((void *)(uintptr_t)word, 0, 4096);
	p = (CUdeviceptr)(uintptr_t)word;
	ops[0].value.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[0].value.address = p;
	ops[0].value.value = 5;
	ops[0].value.flags = CU_STREAM_WAIT_VALUE_EQ;
	ops[1].barrier.operation = CU_STREAM_MEM_OP_BARRIER;
	ops[2].barrier.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
	ops[3].value.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	ops[3].value.address = p + 8;
	ops[3].value.value64 = 1ull << 40;
	CU(cuStreamBatchMemOp_v2(s, 4, ops, 0));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	CU(cuStreamWriteValue32_v2(t, p, 5, 0));
	CU(cuStreamSynchronize(s));
	CHECK(((volatile uint64_t *)word)[1] == 1ull << 40);
	/* A batch with an invalid operation has no effect. */
	ops[0].value.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].value.value = 6;
	ops[0].value.flags = 0;
	ops[1].barrier.operation = 77;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(s, 4, ops, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(s, 256, ops, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(t, p + 2, 5, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(t, p, 5, 4));
	CU(cuStreamSynchronize(s));
	CHECK(word[0] == 5);
}

static void batches_of_memory_operations_are_done_whole(void **state)
{
	(void)state;
	assert_int_equal(rig_run(values_program, NULL), 0);
}

static void context_events_program(void *arg)
{
	uint32_t *flag, three = 3;
	CUdeviceptr p, out;
	CUstream s, t;
	CUevent ev, late;

	(void)arg;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&ev, CU_EVENT_BLOCKING_SYNC));
	CU(cuEventCreate(&late, CU_EVENT_DISABLE_TIMING));
	CU(cuMemHostAlloc((void **)&flag, 64, 0));
	CU(cuMemAlloc_v2(&out, 64));
	*flag = 0;
	p = (CUdeviceptr)(uintptr_t)flag;
	rig_launch(rig_function("until"), 1, 1, s, (void *[]){ &p });
	CU(cuCtxRecordEvent(NULL, ev));
	CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(ev));
	CU(cuEventRecord(late, s));
	CU(cuCtxWaitEvent(NULL, late));
	CU(cuMemsetD32Async(out, three, 1, t));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(t));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime((float[1]){ 0 }, late, ev));
	/* An event may be destroyed while its record is pending. */
	CU(cuEventDestroy_v2(late));
	store_release(flag, 1u);
	CU(cuEventSynchronize(ev));
	CU(cuStreamSynchronize(t));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(late));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&late, 16));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&late, CU_EVENT_INTERPROCESS));
}

static void contexts_record_and_wait_for_events(void **state)
{
	(void)state;
	assert_int_equal(rig_run(context_events_program, NULL), 0);
}

/* Events of two processes: the first blocks its stream until the second has seen that. */
static int to_child[2], to_parent[2];

static void pipe_send(int fd, const void *p, size_t n)
{
	CHECK(write(fd, p, n) == (ssize_t)n);
}

static void pipe_receive(int fd, void *p, size_t n)
{
	CHECK(read(fd, p, n) == (ssize_t)n);
}

static void first_program(void *die)
{
	CUipcEventHandle h;
	CUdeviceptr p;
	uint32_t *flag;
	CUstream s;
	CUevent ev;
	char byte;

	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&ev, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CU(cuMemHostAlloc((void **)&flag, 64, 0));
	*flag = 0;
	p = (CUdeviceptr)(uintptr_t)flag;
	CU(cuIpcGetEventHandle(&h, ev));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&ev, h));
	rig_launch(rig_function("until"), 1, 1, s, (void *[]){ &p });
	CU(cuEventRecord(ev, s));
	CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(ev));
	pipe_send(to_child[1], &h, sizeof(h));
	pipe_receive(to_parent[0], &byte, 1);
	if (die) {
		kill(getpid(), SIGKILL);
	}
	store_release(flag, 1u);
	pipe_receive(to_parent[0], &byte, 1);
	CU(cuEventSynchronize(ev)); /* recorded by the other process */
	CU(cuEventDestroy_v2(ev));
}

static void second_program(void *die)
{
	CUipcEventHandle h, wrong;
	CUstream s;
	CUevent ev, other;
	uint32_t got = 0;
	CUdeviceptr out;

	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&out, 64));
	CU(cuMemsetD32Async(out, 1, 1, s));
	pipe_receive(to_child[0], &h, sizeof(h));
	wrong = h;
	wrong.reserved[0] ^= 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&other, wrong));
	wrong = h;
	wrong.reserved[9] ^= 1;
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&other, wrong));
	CU(cuIpcOpenEventHandle(&ev, h));
	CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(ev));
	CU(cuStreamWaitEvent(s, ev, 0));
	CU(cuMemsetD32Async(out, 2, 1, s));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	pipe_send(to_parent[1], "x", 1);
	CU(cuStreamSynchronize(s));
	CU(cuEventSynchronize(ev));
	CU(cuMemcpyDtoH_v2(&got, out, 4));
	CHECK(got == 2);
	CU(cuEventRecord(ev, s));
	if (!die) {
		pipe_send(to_parent[1], "x", 1);
	}
	CU(cuEventDestroy_v2(ev));
}

static void pair_of_processes(void *die)
{
	pid_t a, b;

	assert_int_equal(pipe(to_child), 0);
	assert_int_equal(pipe(to_parent), 0);
	a = rig_spawn(first_program, die);
	b = rig_spawn(second_program, die);
	assert_int_equal(rig_wait(b), 0);
	assert_int_equal(rig_wait(a), die ? 128 + SIGKILL : 0);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

static void processes_wait_for_each_others_events(void **state)
{
	(void)state;
	pair_of_processes(NULL);
}

static void a_killed_process_blocks_no_other(void **state)
{
	(void)state;
	pair_of_processes(to_child);
}

static void thousand_program(void *arg)
{
	CUevent ev;

	(void)arg;
	rig_context();
	for (int i = 0; i < 1000; i++) {
		CU(cuEventCreate(&ev, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	}
	kill(getpid(), SIGKILL);
}

static void shared_events_go_with_their_processes(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) { /* the server has 4096 */
		assert_int_equal(rig_run(thousand_program, NULL), 128 + SIGKILL);
		rig_stats_idle();
	}
}

static void launch_program(void *arg)
{
	CUlaunchAttribute a[2] = { 0 };
	CUlaunchConfig c = { .gridDimX = 1,
			     .gridDimY = 1,
			     .gridDimZ = 1,
			     .blockDimX = 32,
			     .blockDimY = 1,
			     .blockDimZ = 1,
			     .attrs = a,
			     .numAttrs = 1 };
	int blocks, block, grid, sms;
	size_t shared;
	CUfunction f;
	CUstream s;
	CUevent ev;

	(void)arg;
	rig_context();
	f = rig_function("empty");
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&ev, 0));
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, 0));
	CHECK(blocks >= 1);
	CU(cuLaunchCooperativeKernel(f, (unsigned)(blocks * sms), 1, 1, 128, 1, 1, 0, s, NULL));
	CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
	      cuLaunchCooperativeKernel(f, (unsigned)(blocks * sms) + 1, 1, 1, 128, 1, 1, 0, s,
					NULL));
	CU(cuStreamSynchronize(s));
	CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
	CHECK(block % 32 == 0 && grid % sms == 0 && grid >= sms);
	CU(cuOccupancyAvailableDynamicSMemPerBlock(&shared, f, 2, 64));
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 64, shared));
	CHECK(blocks >= 2);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 64, 0, 2));
	/* ---- attributes of launches ---- */
	c.hStream = s;
	a[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	a[0].value.clusterDim.x = a[0].value.clusterDim.y = a[0].value.clusterDim.z = 1;
	CU(cuLaunchKernelEx(&c, f, NULL, NULL));
	CU(cuOccupancyMaxActiveClusters(&blocks, f, &c));
	CHECK(blocks >= sms);
	a[0].value.clusterDim.x = 2;
	CU_IS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&c, f, NULL, NULL));
	a[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	a[0].value.launchCompletionEvent.event = ev;
	a[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	a[1].value.programmaticStreamSerializationAllowed = 1;
	c.numAttrs = 2;
	CU(cuLaunchKernelEx(&c, f, NULL, NULL));
	CU(cuEventSynchronize(ev));
	a[0].id = 99;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&c, f, NULL, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 70000, 1, 32, 1, 1, 0, s, NULL, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 60u << 10, s, NULL, NULL));
}

static void launches_and_occupancy_agree(void **state)
{
	(void)state;
	assert_int_equal(rig_run(launch_program, NULL), 0);
}

/* ---- a thread that is preempted before it wakes the server ---- */

enum { RINGS, BLOCK_NEXT, BLOCKED };
static uint32_t ringer; /* [atomic] */

/* Replaces libc's write, also for calls by the driver library. */
EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
	uint32_t next = BLOCK_NEXT;

	if (bytes == sizeof(uint64_t) && cas_acqrel(&ringer, &next, (uint32_t)BLOCKED)) {
		eventually(load_acquire(&ringer) != BLOCKED);
	}
	return syscall(SYS_write, fd, data, bytes);
}

static void *launches_until_it_stands(void *arg)
{
	CUcontext ctx = arg;
	CUfunction empty;
	CUstream s;

	CU(cuCtxSetCurrent(ctx));
	empty = rig_function("empty");
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamSynchronize(s));
	store_release(&ringer, (uint32_t)BLOCK_NEXT);
	/* While the server is awake, no doorbell is needed. */
	eventually((rig_launch(empty, 1, 32, s, NULL), load_acquire(&ringer) != BLOCK_NEXT));
	CU(cuStreamSynchronize(s));
	return NULL;
}

static void ringer_program(void *arg)
{
	CUcontext ctx = rig_context();
	CUfunction empty = rig_function("empty");
	pthread_t thread;
	CUstream s;

	(void)arg;
	alarm(EVENTUALLY_S);
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(pthread_create(&thread, NULL, launches_until_it_stands, ctx) == 0);
	eventually(load_acquire(&ringer) == BLOCKED);
	for (int i = 0; i < 3; i++) {
		rig_launch(empty, 1, 32, s, NULL);
		CU(cuStreamSynchronize(s));
	}
	store_release(&ringer, (uint32_t)RINGS);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void a_preempted_doorbell_writer_blocks_no_other_thread(void **state)
{
	(void)state;
	assert_int_equal(rig_run(ringer_program, NULL), 0);
}

/* Stops the server and returns when each of its threads has stopped: some may run on for a moment
 * after kill has returned. */
/* As the driver answers (H200): the legacy stream counts the work of all streams that it is ordered
 * with as its own, and they do not count its work. */
static void siblings_program(void *arg)
{
	CUstream blocking, free_one, gone;
	uint32_t *flag;
	CUdeviceptr df;
	CUfunction until;

	(void)arg;
	rig_context();
	until = rig_function("until");
	CU(cuStreamCreate(&blocking, 0));
	CU(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&gone, 0));
	CU(cuMemAllocHost_v2((void **)&flag, 4096));
	df = (CUdeviceptr)(uintptr_t)flag;
	for (unsigned i = 0; i < 5; i++) {
		const CUstream streams[] = { blocking, CU_STREAM_PER_THREAD, gone, free_one, NULL };
		CUresult busy = i == 3 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;

		*flag = 0;
		rig_launch(until, 1, 1, streams[i], (void *[]){ &df });
		if (streams[i] == gone) {
			CU(cuStreamDestroy_v2(gone));
		}
		CU_IS(busy, cuStreamQuery(NULL));
		CU_IS(busy, cuStreamQuery(CU_STREAM_LEGACY));
		CU_IS(i ? CUDA_SUCCESS : busy, cuStreamQuery(blocking));
		CU_IS(i == 1 ? busy : CUDA_SUCCESS, cuStreamQuery(CU_STREAM_PER_THREAD));
		if (i == 3) {
			CU(cuStreamSynchronize(NULL)); /* does not wait for it */
		}
		store_release(flag, 1u);
		CU(cuStreamSynchronize(NULL));
		if (i < 2) {
			CU(cuStreamQuery(streams[i]));
		}
		CU(cuCtxSynchronize());
	}
}

static void the_legacy_stream_counts_others_work(void **state)
{
	(void)state;
	assert_int_equal(rig_run(siblings_program, NULL), 0);
}

static void stop_server(void)
{
	char path[64], state;
	struct dirent *e;
	bool running = true;

	CHECK(kill(rig_server, SIGSTOP) == 0);
	while (running) {
		DIR *tasks;

		snprintf(path, sizeof(path), "/proc/%d/task", (int)rig_server);
		tasks = opendir(path);
		CHECK(tasks != NULL);
		running = false;
		while ((e = readdir(tasks)) != NULL) {
			FILE *f;

			snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)rig_server,
				 e->d_name);
			f = *e->d_name == '.' ? NULL : fopen(path, "r");
			if (f) {
				running |=
					fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && state != 'T';
				fclose(f);
			}
		}
		closedir(tasks);
	}
}

/* The server is stopped, so what was put into a stream cannot have been done. */
static void fresh_program(void *arg)
{
	CUfunction empty;
	CUstream s;
	CUresult fresh, used;

	(void)arg;
	rig_context();
	empty = rig_function("empty");
	stop_server();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	fresh = cuStreamQuery(s);
	rig_launch(empty, 1, 32, s, NULL);
	used = cuStreamQuery(s);
	CHECK(kill(rig_server, SIGCONT) == 0);
	CHECK(fresh == CUDA_SUCCESS && used == CUDA_ERROR_NOT_READY);
	CU(cuStreamSynchronize(s));
	CU(cuStreamQuery(s));
}

static void a_new_stream_has_no_work(void **state)
{
	(void)state;
	assert_int_equal(rig_run(fresh_program, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_preempted_doorbell_writer_blocks_no_other_thread),
		cmocka_unit_test(a_new_stream_has_no_work),
		cmocka_unit_test(streams_keep_their_attributes),
		cmocka_unit_test(the_legacy_stream_counts_others_work),
		cmocka_unit_test(batches_of_memory_operations_are_done_whole),
		cmocka_unit_test(contexts_record_and_wait_for_events),
		cmocka_unit_test(processes_wait_for_each_others_events),
		cmocka_unit_test(a_killed_process_blocks_no_other),
		cmocka_unit_test(shared_events_go_with_their_processes),
		cmocka_unit_test(launches_and_occupancy_agree),
	};

	return cmocka_run_group_tests_name("soft stream", tests, rig_begin_small, rig_end);
}
