/* Programs on the soft GPU: results, order, events, host functions. Each test is a child process;
 * all share one server. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "rig.h"

#define N 100000u

static void add_program(void *arg)
{
	uint32_t *a = malloc(N * 4), *b = malloc(N * 4), *c = malloc(N * 4), n = N;
	CUdeviceptr da, db, dc;
	CUfunction f;

	(void)arg;
	rig_context();
	f = rig_function("add");
	for (uint32_t i = 0; i < N; i++) {
		a[i] = i;
		b[i] = i * 7;
	}
	CU(cuMemAlloc_v2(&da, N * 4));
	CU(cuMemAlloc_v2(&db, N * 4));
	CU(cuMemAlloc_v2(&dc, N * 4));
	CU(cuMemcpyHtoD_v2(da, a, N * 4));
	CU(cuMemcpyHtoD_v2(db, b, N * 4));
	rig_launch(f, (N + 127) / 128, 128, NULL, (void *[]){ &da, &db, &dc, &n });
	CU(cuMemcpyDtoH_v2(c, dc, N * 4));
	for (uint32_t i = 0; i < N; i++) {
		CHECK(c[i] == i * 8);
	}
	CU(cuMemFree_v2(da));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(da));
}

static void a_kernel_adds_vectors(void **state)
{
	(void)state;
	assert_int_equal(rig_run(add_program, NULL), 0);
}

static void four_processes_at_once_get_right_results(void **state)
{
	pid_t p[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		p[i] = rig_spawn(add_program, NULL);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(rig_wait(p[i]), 0);
	}
}

static void big_copies_program(void *arg)
{
	size_t bytes = 11 * 1000 * 1000 + 13;
	uint8_t *h = malloc(bytes), *back = malloc(bytes), *pinned;
	CUdeviceptr d, e;

	(void)arg;
	rig_context();
	for (size_t i = 0; i < bytes; i++) {
		h[i] = (uint8_t)(i * 2654435761u >> 13);
	}
	CU(cuMemAlloc_v2(&d, bytes));
	CU(cuMemAlloc_v2(&e, bytes));
	CU(cuMemHostAlloc((void **)&pinned, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemcpyHtoD_v2(d, h, bytes));
	CU(cuMemcpyDtoD_v2(e, d, bytes));
	CU(cuMemcpyDtoHAsync_v2(pinned, e, bytes, NULL));
	CU(cuCtxSynchronize());
	CHECK(memcmp(pinned, h, bytes) == 0);
	CU(cuMemsetD8_v2(e, 0x5a, bytes));
	CU(cuMemcpyAsync(e + 1, (CUdeviceptr)(uintptr_t)pinned, bytes - 2, NULL));
	CU(cuMemcpyDtoH_v2(back, e, bytes));
	CHECK(back[0] == 0x5a && back[bytes - 1] == 0x5a && memcmp(back + 1, h, bytes - 2) == 0);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(d + 1, h, bytes));
	CU(cuMemFreeHost(pinned));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
}

static void copies_of_all_kinds_arrive(void **state)
{
	(void)state;
	assert_int_equal(rig_run(big_copies_program, NULL), 0);
}

static void pitched_program(void *arg)
{
	enum { W = 100, H = 37 };
	uint8_t src[H * 128], dst[H * 200], one[W * H];
	CUDA_MEMCPY2D c = { 0 };
	CUdeviceptr d;
	size_t pitch;

	(void)arg;
	rig_context();
	for (size_t i = 0; i < sizeof(src); i++) {
		src[i] = (uint8_t)(i * 31);
	}
	memset(dst, 0, sizeof(dst));
	CU(cuMemAllocPitch_v2(&d, &pitch, W, H, 4));
	CHECK(pitch >= W);
	c = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_HOST,
			     .srcHost = src,
			     .srcPitch = 128,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = d,
			     .dstPitch = pitch,
			     .WidthInBytes = W,
			     .Height = H };
	CU(cuMemcpy2D_v2(&c));
	c = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			     .srcDevice = d,
			     .srcPitch = pitch,
			     .dstMemoryType = CU_MEMORYTYPE_HOST,
			     .dstHost = dst,
			     .dstPitch = 200,
			     .dstXInBytes = 5,
			     .WidthInBytes = W,
			     .Height = H };
	CU(cuMemcpy2D_v2(&c));
	for (int y = 0; y < H; y++) {
		CHECK(memcmp(dst + y * 200 + 5, src + y * 128, W) == 0);
		CHECK(dst[y * 200 + 4] == 0);
	}
	CU(cuMemsetD2D16_v2(d, pitch, 0x1234, W / 2, H));
	c = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .srcDevice = d,
			     .srcPitch = pitch,
			     .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .dstDevice = (CUdeviceptr)(uintptr_t)one,
			     .dstPitch = W,
			     .WidthInBytes = W,
			     .Height = H };
	CU(cuMemcpy2DAsync_v2(&c, NULL));
	for (int i = 0; i < W * H; i += 2) {
		CHECK(one[i] == 0x34 && one[i + 1] == 0x12);
	}
}

static void pitched_copies_and_memsets_keep_to_their_rows(void **state)
{
	(void)state;
	assert_int_equal(rig_run(pitched_program, NULL), 0);
}

/* A stream waits for an event of another one, whose kernel ends only when the host sets a flag. */
static void order_program(void *arg)
{
	CUstream a, b, c;
	CUevent ev;
	uint32_t *flag;
	CUdeviceptr x, y, df;
	uint32_t out = 0;
	CUfunction until, first;

	(void)arg;
	rig_context();
	until = rig_function("until");
	first = rig_function("copy_first");
	CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreateWithPriority(&c, CU_STREAM_NON_BLOCKING, -2));
	CU(cuEventCreate(&ev, 0));
	CU(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	CU(cuMemHostGetDevicePointer_v2(&df, flag, 0));
	CU(cuMemAlloc_v2(&x, 4));
	CU(cuMemAlloc_v2(&y, 4));
	CU(cuMemsetD32_v2(x, 7, 1));
	CU(cuMemsetD32_v2(y, 0, 1));
	CU(cuCtxSynchronize());

	rig_launch(until, 1, 1, a, (void *[]){ &df });
	CU(cuMemsetD32Async(x, 42, 1, a));
	CU(cuEventRecord(ev, a));
	CU(cuStreamWaitEvent(b, ev, 0));
	rig_launch(first, 1, 1, b, (void *[]){ &y, &x });
	rig_launch(rig_function("empty"), 1, 1, c, NULL);
	CU(cuStreamSynchronize(c)); /* runs concurrently with the waiting kernel */
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
	CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(ev));
	store_release(flag, 1u);
	CU(cuStreamSynchronize(b));
	CU(cuEventQuery(ev));
	CU(cuMemcpyDtoH_v2(&out, y, 4));
	CHECK(out == 42);
	CU(cuStreamDestroy_v2(a));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(a));
}

static void events_order_streams(void **state)
{
	(void)state;
	assert_int_equal(rig_run(order_program, NULL), 0);
}

/* The legacy default stream and blocking streams wait for each other; non-blocking streams are
 * independent. */
static void legacy_program(void *arg)
{
	CUstream blocking, free_one;
	uint32_t *flag;
	CUdeviceptr df;
	CUfunction until, empty;

	(void)arg;
	rig_context();
	until = rig_function("until");
	empty = rig_function("empty");
	CU(cuStreamCreate(&blocking, 0));
	CU(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocHost_v2((void **)&flag, 4096));
	df = (CUdeviceptr)(uintptr_t)flag;

	*flag = 0;
	rig_launch(until, 1, 1, blocking, (void *[]){ &df });
	rig_launch(empty, 1, 1, NULL, NULL);
	rig_launch(empty, 1, 1, free_one, NULL);
	CU(cuStreamSynchronize(free_one));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	store_release(flag, 1u);
	CU(cuStreamSynchronize(NULL));

	*flag = 0;
	rig_launch(until, 1, 1, NULL, (void *[]){ &df });
	rig_launch(empty, 1, 1, blocking, NULL);
	rig_launch(empty, 1, 1, free_one, NULL);
	CU(cuStreamSynchronize(free_one));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
	store_release(flag, 1u);
	CU(cuCtxSynchronize());

	*flag = 0; /* the per-thread default stream is a blocking stream */
	CU(cuLaunchKernel_ptsz(until, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &df }, NULL));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(NULL));
	rig_launch(empty, 1, 1, NULL, NULL);
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	store_release(flag, 1u);
	CU(cuStreamSynchronize(NULL));
	CU(cuStreamQuery(CU_STREAM_PER_THREAD));
}

static void the_default_streams_synchronize_as_documented(void **state)
{
	(void)state;
	assert_int_equal(rig_run(legacy_program, NULL), 0);
}

static void time_program(void *arg)
{
	uint32_t n = 200000, got = 0;
	CUevent a, b, never;
	CUdeviceptr out;
	float ms = -1;

	(void)arg;
	rig_context();
	CU(cuEventCreate(&a, 0));
	CU(cuEventCreate(&b, CU_EVENT_BLOCKING_SYNC));
	CU(cuEventCreate(&never, 0));
	CU(cuMemAlloc_v2(&out, 64));
	CU(cuEventQuery(never));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, b));
	CU(cuEventRecord(a, NULL));
	rig_launch(rig_function("spin"), 4, 32, NULL, (void *[]){ &out, &n });
	CU(cuEventRecord(b, NULL));
	CU(cuEventSynchronize(b));
	CU(cuEventElapsedTime(&ms, a, b));
	CHECK(ms > 0.1f && ms < 20000.0f);
	CU(cuMemcpyDtoH_v2(&got, out + 12, 4));
	CHECK(got == n);
}

static void events_measure_times(void **state)
{
	(void)state;
	assert_int_equal(rig_run(time_program, NULL), 0);
}

static uint32_t calls;

static void on_host(void *p)
{
	/* Each call sees the value that the previous one left, so they run in order. */
	if (calls == (uint32_t)(uintptr_t)p) {
		store_release(&calls, calls + 1);
	}
}

static void on_callback(CUstream s, CUresult r, void *p)
{
	(void)s;
	if (r == CUDA_SUCCESS) {
		on_host(p);
	}
}

static void host_program(void *arg)
{
	CUstream s;

	(void)arg;
	rig_context();
	CU(cuStreamCreate(&s, 0));
	for (uintptr_t i = 0; i < 200; i += 2) {
		CU(cuLaunchHostFunc(s, on_host, (void *)i));
		CU(cuStreamAddCallback(s, on_callback, (void *)(i + 1), 0));
	}
	CU(cuStreamSynchronize(s));
	CHECK(load_acquire(&calls) == 200);
}

static void host_functions_run_in_stream_order(void **state)
{
	(void)state;
	assert_int_equal(rig_run(host_program, NULL), 0);
}

static void value_program(void *arg)
{
	CUdeviceptr word, out;
	CUstream a, b;
	uint32_t got = 0, *pinned;

	(void)arg;
	rig_context();
	CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&word, 64));
	CU(cuMemAlloc_v2(&out, 64));
	CU(cuMemAllocHost_v2((void **)&pinned, 64));
	*pinned = 0;
	CU(cuMemsetD32_v2(word, 0, 16));
	CU(cuCtxSynchronize());
	CU(cuStreamWaitValue32_v2(a, word, 5, CU_STREAM_WAIT_VALUE_GEQ));
	CU(cuStreamWaitValue32_v2(a, (CUdeviceptr)(uintptr_t)pinned, 9, CU_STREAM_WAIT_VALUE_EQ));
	CU(cuMemsetD32Async(out, 77, 1, a));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	CU(cuStreamWriteValue32_v2(b, word, 6, 0));
	CU(cuStreamSynchronize(b));
	store_release(pinned, 9u);
	CU(cuStreamSynchronize(a));
	CU(cuMemcpyDtoH_v2(&got, out, 4));
	CHECK(got == 77);
}

static void streams_wait_for_values_in_memory(void **state)
{
	(void)state;
	assert_int_equal(rig_run(value_program, NULL), 0);
}

static void many_program(void *arg)
{
	uint32_t n = 3, out[64] = { 0 };
	CUstream s[40];
	CUdeviceptr d;
	CUfunction f;

	(void)arg;
	rig_context();
	f = rig_function("spin");
	CU(cuMemAlloc_v2(&d, 40 * 256));
	for (int i = 0; i < 40; i++) {
		CU(cuStreamCreateWithPriority(&s[i], i % 3 ? CU_STREAM_NON_BLOCKING : 0, -(i % 6)));
	}
	for (int i = 0; i < 20000; i++) { /* more than the ring holds */
		CUdeviceptr mine = d + (unsigned)(i % 40) * 256;

		rig_launch(f, 2, 33, s[i % 40], (void *[]){ &mine, &n });
	}
	CU(cuCtxSynchronize());
	for (unsigned i = 0; i < 40; i++) {
		CU(cuMemcpyDtoH_v2(out, d + i * 256, 8));
		CHECK(out[0] == 3 && out[1] == 3);
		CU(cuStreamDestroy_v2(s[i]));
	}
}

static void twenty_thousand_launches_in_forty_streams_all_run(void **state)
{
	(void)state;
	assert_int_equal(rig_run(many_program, NULL), 0);
}

/* Random operations in streams of all kinds. Each kernel draws a number, and kernels that CUDA
 * orders must have drawn theirs in that order. */
enum { STREAMS = 7, STAMPS = 3000, EVENTS = 20 };

struct plan {
	CUstream streams[STREAMS]; /* 0: the legacy default stream, 1-3: blocking, 4-6: non-blocking
				    */
	int last[STREAMS]; /* newest stamp that the next one of each stream must follow, or -1 */
	int waits[STREAMS]
		 [STREAMS]; /* stamps awaited by waits that the stream's next stamp follows */
	CUevent events[EVENTS];
	int recorded[EVENTS][STREAMS]; /* stamps before the record; the first is the stream's own */
	int (*before)[2 * STREAMS];    /* for each stamp, stamps that must have lower numbers */
};

static bool blocking_stream(int s)
{
	return s < 4;
}

static void note(int *list, int n, int stamp)
{
	for (int i = 0; stamp >= 0 && i < n; i++) {
		if (list[i] < 0) {
			list[i] = stamp;
			return;
		}
	}
}

static void plan_stamp(struct plan *p, int s, int stamp)
{
	int *b = p->before[stamp];

	note(b, 2 * STREAMS, p->last[s]);
	for (int i = 0; i < STREAMS; i++) {
		note(b, 2 * STREAMS, p->waits[s][i]);
		p->waits[s][i] = -1;
		if (s == 0 && i > 0 && blocking_stream(i)) {
			note(b, 2 * STREAMS,
			     p->last[i]); /* the legacy stream waits for all blocking streams */
		}
	}
	if (s > 0 && blocking_stream(s)) {
		note(b, 2 * STREAMS, p->last[0]); /* and they wait for it */
	}
	p->last[s] = stamp;
}

static void dag_program(void *arg)
{
	uint64_t x = 2463534242u + *(unsigned *)arg;
	static int before[STAMPS][2 * STREAMS];
	static uint32_t got[STAMPS];
	CUdeviceptr counter, out;
	struct plan p;
	CUfunction f;

	memset(before, -1, sizeof(before));
	memset(&p, -1, sizeof(p));
	p.before = before;
	rig_context();
	f = rig_function("stamp");
	CU(cuMemAlloc_v2(&counter, 64));
	CU(cuMemAlloc_v2(&out, sizeof(got)));
	CU(cuMemsetD32_v2(counter, 0, 16));
	p.streams[0] = NULL;
	for (int i = 1; i < STREAMS; i++) {
		CU(cuStreamCreateWithPriority(
			&p.streams[i], blocking_stream(i) ? 0 : CU_STREAM_NON_BLOCKING, -(i % 4)));
	}
	for (int i = 0; i < EVENTS; i++) {
		CU(cuEventCreate(&p.events[i], CU_EVENT_DISABLE_TIMING));
	}
	CU(cuCtxSynchronize());
	for (int stamp = 0; stamp < STAMPS;) {
		int s, e;

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		s = (int)((x >> 33) % STREAMS);
		e = (int)((x >> 45) % EVENTS);
		if ((x >> 60) < 11) {
			CUdeviceptr mine = out + 4 * (unsigned)stamp;

			plan_stamp(&p, s, stamp++);
			rig_launch(f, 1, 1, p.streams[s], (void *[]){ &counter, &mine });
		} else if ((x >> 60) < 13) {
			for (int i = 0; i < STREAMS;
			     i++) { /* waits without a later stamp in their stream count too */
				p.recorded[e][i] = p.waits[s][i];
			}
			note(p.recorded[e], STREAMS, p.last[s]);
			CU(cuEventRecord(p.events[e], p.streams[s]));
		} else {
			for (int i = 0; i < STREAMS; i++) {
				note(p.waits[s], STREAMS, p.recorded[e][i]);
			}
			CU(cuStreamWaitEvent(p.streams[s], p.events[e], 0));
		}
	}
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(got, out, sizeof(got)));
	for (int i = 0; i < STAMPS; i++) {
		for (int k = 0; k < 2 * STREAMS && before[i][k] >= 0; k++) {
			CHECK(got[before[i][k]] < got[i]);
		}
	}
}

static void random_programs_keep_their_order(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 8; seed++) {
		assert_int_equal(rig_run(dag_program, &seed), 0);
	}
}

static void forms_program(void *arg)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1 };
	CUlaunchConfig config = { .gridDimX = 1,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 1,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .attrs = &attr,
				  .numAttrs = 1 };
	CUdeviceptr counter, out, params[2];
	size_t bytes = sizeof(params), global_bytes;
	uint32_t got[6], seven = 7;
	CUlibrary library;
	CUkernel kernel;
	CUfunction f, same;
	CUmodule m;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	unsigned n = 0;
	int value;

	(void)arg;
	rig_context();
	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuModuleGetFunction(&f, m, "stamp"));
	CU(cuModuleGetFunction(&same, m, "stamp"));
	CHECK(f == same);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&same, m, "nothing"));
	CU(cuModuleGetFunctionCount(&n, m));
	CHECK(n == 9);
	CU(cuModuleGetGlobal_v2(&counter, &global_bytes, m, "counter"));
	CHECK(global_bytes == 4);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&out, NULL, m, "nothing"));
	CU(cuMemcpyHtoD_v2(counter, &seven, 4));
	CU(cuMemAlloc_v2(&out, sizeof(got)));

	params[0] = counter;
	params[1] = out;
	CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &params[0], &params[1] },
			  NULL));
	params[1] = out + 4;
	CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	params[1] = out + 8;
	CU(cuLaunchKernelEx(&config, f, (void *[]){ &params[0], &params[1] }, NULL));
	CU(cuLibraryLoadData(&library, rig_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, library, "stamp"));
	params[1] = out + 12;
	CU(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL,
			  (void *[]){ &params[0], &params[1] }, NULL));
	params[1] = out + 16;
	CU(cuFuncSetBlockShape(f, 1, 1, 1));
	CU(cuParamSetSize(f, sizeof(params)));
	CU(cuParamSetv(f, 0, params, sizeof(params)));
	CU(cuLaunchGrid(f, 1, 1));
	CU(cuMemcpyDtoH_v2(got, out, 20));
	for (uint32_t i = 0; i < 5; i++) {
		CHECK(got[i] == 7 + i);
	}
	attr.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
	attr.value.cooperative = 1;
	config.gridDimX = 1000000;
	CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
	      cuLaunchKernelEx(&config, f, (void *[]){ &params[0], &params[1] }, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ 0, 0 }, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuLaunchKernel(f, 1, 1, 1, 2000, 1, 1, 0, NULL, (void *[]){ 0, 0 }, NULL));
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 256, 0));
	CHECK(value >= 1 && value <= 32);
	CU(cuLibraryUnload(library));
	CU(cuModuleUnload(m));
	CU_IS(CUDA_ERROR_INVALID_HANDLE,
	      cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ 0, 0 }, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(counter, &seven, 4));
}

static void launches_of_all_forms_run(void **state)
{
	(void)state;
	assert_int_equal(rig_run(forms_program, NULL), 0);
}

/* Threads of one process, each on its own default stream; their pageable copies share one staging
 * buffer. */
struct worker {
	pthread_t thread;
	CUcontext ctx;
	CUfunction add;
	unsigned index;
};

static void *thread_main(void *arg)
{
	struct worker *w = arg;
	uint32_t n = 200000 + w->index * 1000, *h = malloc(n * 4), *back = malloc(n * 4);
	CUdeviceptr a, b;

	CU(cuCtxSetCurrent(w->ctx));
	CU(cuMemAlloc_v2(&a, n * 4));
	CU(cuMemAlloc_v2(&b, n * 4));
	for (unsigned round = 0; round < 15; round++) {
		for (uint32_t i = 0; i < n; i++) {
			h[i] = i * (w->index + 1) + round;
		}
		CU(cuMemcpyHtoDAsync_v2_ptsz(a, h, n * 4, NULL));
		CU(cuLaunchKernel_ptsz(w->add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL,
				       (void *[]){ &a, &a, &b, &n }, NULL));
		CU(cuMemcpyDtoHAsync_v2_ptsz(back, b, n * 4, NULL));
		CU(cuStreamSynchronize_ptsz(NULL));
		for (uint32_t i = 0; i < n; i++) {
			CHECK(back[i] == 2 * h[i]);
		}
	}
	CU(cuMemFree_v2(a));
	CU(cuMemFree_v2(b));
	free(h);
	free(back);
	return NULL;
}

static void threads_program(void *arg)
{
	struct worker w[8];
	CUcontext ctx = rig_context();
	CUfunction add = rig_function("add");

	(void)arg;
	for (unsigned i = 0; i < 8; i++) {
		w[i] = (struct worker){ .ctx = ctx, .add = add, .index = i };
		CHECK(pthread_create(&w[i].thread, NULL, thread_main, &w[i]) == 0);
	}
	for (unsigned i = 0; i < 8; i++) {
		CHECK(pthread_join(w[i].thread, NULL) == 0);
	}
}

static void threads_share_a_context(void **state)
{
	(void)state;
	assert_int_equal(rig_run(threads_program, NULL), 0);
}

static void async_memory_program(void *arg)
{
	size_t before, after, total;
	CUdeviceptr p;

	(void)arg;
	rig_context();
	CU(cuMemGetInfo_v2(&before, &total));
	for (int i = 0; i < 300;
	     i++) { /* 300 times 16 MiB exceed the memory, so frees must take effect */
		CU(cuMemAllocAsync(&p, 16u << 20, NULL));
		CU(cuMemsetD8Async(p, 1, 4096, NULL));
		CU(cuMemFreeAsync(p, NULL));
	}
	CU(cuCtxSynchronize());
	CU(cuMemGetInfo_v2(&after, &total));
	CHECK(before == after && total == 256u << 20);
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 257u << 20));
}

static void stream_ordered_memory_is_reused(void **state)
{
	(void)state;
	rig_stats_idle(); /* memory of earlier programs has been freed */
	assert_int_equal(rig_run(async_memory_program, NULL), 0);
}

static void forked_program(void *arg)
{
	CUcontext ctx;
	pid_t pid;

	(void)arg;
	ctx = rig_context();
	pid = fork();
	if (pid == 0) {
		int n;

		CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
		CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
		CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSetCurrent(ctx));
		_exit(0);
	}
	CHECK(rig_wait(pid) == 0);
	rig_launch(rig_function("empty"), 1, 1, NULL, NULL);
	CU(cuCtxSynchronize());
}

static void a_forked_child_is_not_initialized(void **state)
{
	(void)state;
	assert_int_equal(rig_run(forked_program, NULL), 0);
}

static void contexts_program(void *arg)
{
	CUcontext a, b, now;
	CUdeviceptr pa, pb;
	uint32_t v = 5, got = 0;
	CUmodule m;

	(void)arg;
	CU(cuInit(0));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pa, 4));
	CU(cuDevicePrimaryCtxRetain(&a, 0));
	CU(cuCtxSetCurrent(a));
	CU(cuMemAlloc_v2(&pa, 4096));
	CU(cuMemcpyHtoD_v2(pa, &v, 4));
	CU(cuCtxCreate_v2(&b, 0, 0));
	CU(cuMemAlloc_v2(&pb, 4096));
	CHECK(pa != pb);
	CU(cuMemcpyDtoD_v2(pb, pa, 4));
	CU(cuMemcpyDtoH_v2(&got, pb, 4));
	CHECK(got == 5);
	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuCtxGetCurrent(&now));
	CHECK(now == b);
	CU(cuCtxDestroy_v2(b));
	CU(cuCtxGetCurrent(&now));
	CHECK(now == a);
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(b));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&pa, 4));
}

static void contexts_have_their_own_memory(void **state)
{
	(void)state;
	assert_int_equal(rig_run(contexts_program, NULL), 0);
}

static int start(void **state)
{
	const char *const args[] = { "--mem", "256M", "--sms", "4", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

static int start_three(void **state)
{
	const char *const args[] = { "--mem", "256M", "--sms", "2", "--workers", "3", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_of_all_kinds_arrive),
		cmocka_unit_test(pitched_copies_and_memsets_keep_to_their_rows),
		cmocka_unit_test(host_functions_run_in_stream_order),
		cmocka_unit_test(stream_ordered_memory_is_reused),
		cmocka_unit_test(streams_wait_for_values_in_memory),
		cmocka_unit_test(a_kernel_adds_vectors),
		cmocka_unit_test(four_processes_at_once_get_right_results),
		cmocka_unit_test(events_order_streams),
		cmocka_unit_test(the_default_streams_synchronize_as_documented),
		cmocka_unit_test(events_measure_times),
		cmocka_unit_test(twenty_thousand_launches_in_forty_streams_all_run),
		cmocka_unit_test(launches_of_all_forms_run),
		cmocka_unit_test(threads_share_a_context),
		cmocka_unit_test(random_programs_keep_their_order),
		cmocka_unit_test(a_forked_child_is_not_initialized),
		cmocka_unit_test(contexts_have_their_own_memory),
	};

	int failed = cmocka_run_group_tests_name("soft run", tests, start, rig_end);

	return failed +
	       cmocka_run_group_tests_name("soft run, three workers", tests, start_three, rig_end);
}
