/* gates IMAGE value|function|kernel|stay CASE: work is queued behind an operation that only the
 * host completes, later. No call made meanwhile may wait for that work unless the driver's own call
 * does. Cases: `wait`, `again`, `destroy`, `stream` (its destruction), `graph` (captures), `calls`,
 * `many`, `memory` (mappings and pools that are created and destroyed), `legacy` (the default
 * stream behind the closed one), `default` (the default stream is closed, ahead of others), `busy`
 * (the default stream while another one is always busy). Exits by itself with 3 if a call has not
 * returned. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"

#define WORDS 16384u
#define BATCHED 0x5a5au

static struct program p;
static CUfunction await;
static CUstream s[3];
static CUdeviceptr data, counter, flag_device;
static uint32_t *flag; /* pinned */
static uint32_t expected;
static atomic_uint host_gate;
static const char *_Atomic at = "beginning";

static void *watch(void *arg)
{
	(void)arg;
	sleep(EVENTUALLY_S); /* reached only by a stuck test: main() ends the process before */
	fprintf(stderr, "gates: stuck: %s\n", at);
	_exit(3);
}

static void launch(CUfunction f, uint32_t blocks, CUstream on)
{
	uint32_t v = 0;
	void *params[] = { &flag_device, &v, &counter };

	expected += blocks;
	CU(cuLaunchKernel(f, blocks, 1, 1, 32, 1, 1, 0, on, params, NULL));
}

/* Blocks that find the flag already raised: kernels that become resumable runs. */
static void work(CUstream on, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		launch(await, 200, on);
	}
}

static void spin(CUstream on, uint32_t blocks)
{
	uint32_t v = 1;
	void *params[] = { &flag_device, &v, &counter };

	expected += blocks;
	CU(cuLaunchKernel(await, blocks, 1, 1, 32, 1, 1, 0, on, params, NULL));
}

static void wait_for_host(void *arg)
{
	(void)arg;
	eventually(atomic_load(&host_gate));
}

/* Enqueues the operation that closes the first stream. */
static void close_gate(const char *how)
{
	at = "closing the gate";
	if (strcmp(how, "value") == 0) {
		CU(cuStreamWaitValue32(s[0], flag_device, 1, CU_STREAM_WAIT_VALUE_GEQ));
	} else if (strcmp(how, "function") == 0) {
		CU(cuLaunchHostFunc(s[0], wait_for_host, NULL));
	} else {
		spin(s[0], 3000);
		return;
	}
	work(s[0], 3);
}

/* A kernel without a clone fills the device before any launch at block level: what runs need in a
 * context cannot be created while it runs, and no launch may wait for that. */
static void stay(CUfunction f)
{
	uint32_t v = 1;
	void *params[] = { &flag_device, &v, &counter };

	expected += 4096;
	at = "launches during a kernel that does not end";
	CU(cuLaunchKernel(f, 4096, 1, 1, 32, 1, 1, 0, s[2], params, NULL));
	usleep(300000); /* the process's age at which it launches at block level; it has no state */
	for (unsigned i = 0; i < 20; i++) {
		work(s[i % 2], 1);
	}
	CU(cuStreamQuery(s[1]) == CUDA_ERROR_NOT_READY ? 0 : 1);
}

static void open_gate(void)
{
	__atomic_store_n(flag, 1u, __ATOMIC_SEQ_CST);
	atomic_store(&host_gate, 1u);
}

/* Enqueues more calls than the driver is given while it makes no progress. */
static void many(unsigned n)
{
	at = "many calls";
	for (unsigned i = 0; i < n; i++) {
		CU(cuMemsetD32Async(data, i, 64, s[0]));
	}
}

/* No queued work uses this memory, so these calls need not wait for it. */
static void memory(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemPoolProps pool_prop = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle h;
	size_t granule = 0;
	CUdeviceptr range, freed;
	CUmemoryPool pool;

	CU(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	for (unsigned i = 0; i < 20;
	     i++) { /* so often that a wait of 1 s in each would exceed the time limit */
		CU(cuMemCreate(&h, granule, &prop, 0));
		CU(cuMemAddressReserve(&range, granule, 0, 0, 0));
		CU(cuMemMap(range, granule, 0, h, 0));
		at = "cuMemSetAccess";
		CU(cuMemSetAccess(range, granule, &access, 1));
		at = "cuMemUnmap";
		CU(cuMemUnmap(range, granule));
		at = "cuMemRelease";
		CU(cuMemRelease(h));
		at = "cuMemAddressFree";
		CU(cuMemAddressFree(range, granule));
	}
	at = "memory pools";
	CU(cuMemPoolCreate(&pool, &pool_prop));
	CU(cuMemAllocFromPoolAsync(&freed, 4096, pool, s[0]));
	CU(cuMemsetD32Async(freed, 1, 64, s[0]));
	CU(cuMemFreeAsync(freed, s[0]));
	CU(cuMemPoolTrimTo(pool, 0));
	CU(cuMemPoolDestroy(pool));
}

/* The closed stream and `on` are ordered through the default stream; `apart` is ordered with
 * neither. */
static void behind(CUstream on, CUstream apart, const char *which)
{
	static uint8_t pageable[4096];
	CUevent e;

	CU(cuEventCreate(&e, 0));
	for (unsigned i = 0; i < 2; i++) {
		at = which;
		work(on, 3);
		CU(cuMemsetD32Async(data, 1, WORDS, on));
		CU(cuMemcpyHtoDAsync(data, pageable, sizeof(pageable), on));
		if (!on) { /* these return before the work is done, although they name no stream */
			CU(cuMemsetD32(data, 1, WORDS));
			CU(cuMemsetD2D8_v2(data, 64, 1, 32, 32));
			CU(cuMemcpyDtoD(data + 4096, data, 4096));
			CU(cuMemcpy(data + 4096, data, 4096));
		}
		CU(cuLaunchHostFunc(on, wait_for_host, NULL));
		CU(cuEventRecord(e, on));
		CU(cuStreamQuery(on) == CUDA_ERROR_NOT_READY ? 0 : 1);
		CU(cuEventQuery(e) == CUDA_ERROR_NOT_READY ? 0 : 1);
		at = "the closed stream again";
		CU(cuStreamWaitEvent(s[0], e, 0));
		work(s[0], 3);
		CU(cuMemsetD32Async(data, 1, WORDS, s[0]));
	}
	at = "a stream apart";
	work(apart, 3);
	CU(cuStreamSynchronize(apart));
	CU(cuEventDestroy(e));
}

static atomic_bool enough, busy;

/* Keeps the second stream busy without enqueueing more than a sanitizer's build can run in the time
 * limit. */
static void *keep_busy(void *arg)
{
	CUevent e[4];

	CU(cuCtxSetCurrent(p.context));
	for (unsigned i = 0; i < 4; i++) {
		CU(cuEventCreate(&e[i], 0));
	}
	for (unsigned i = 0; !atomic_load(&enough); i++) {
		CU(cuEventSynchronize(e[i % 4]));
		work(s[1], 4);
		CU(cuEventRecord(e[i % 4], s[1]));
		atomic_store(&busy, true);
	}
	return arg;
}

/* Waiting for the default stream waits only for what the other streams had at the call. */
static void next_to_a_busy_stream(void)
{
	uint32_t word;
	pthread_t t;

	if (pthread_create(&t, NULL, keep_busy, NULL)) {
		exit(2);
	}
	at = "waiting for work on the busy stream";
	eventually(atomic_load(&busy));
	at = "waiting for the default stream";
	CU(cuStreamSynchronize(NULL));
	at = "a copy on the default stream";
	CU(cuMemcpyDtoH(&word, data, 4));
	atomic_store(&enough, true);
	pthread_join(t, NULL);
}

/* The arrays belong to the caller again when the call returns. */
static void batch(void)
{
	CUdeviceptr to[] = { data + 8192, data + 16384 }, from[] = { data + 49152, data + 53248 };
	size_t bytes[] = { 64, 128 }, first[] = { 0 };
	CUmemcpyAttributes how = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };

	CU(cuMemsetD32Async(data + 49152, BATCHED, 2048, s[0]));
	CU(cuMemcpyBatchAsync_v2(to, from, bytes, 2, &how, first, 1, s[0]));
	memset(to, 0, sizeof(to));
	memset(from, 0, sizeof(from));
	memset(bytes, 0, sizeof(bytes));
	memset(&how, 0, sizeof(how));
}

static void others(const char *what)
{
	CUevent e, later;
	CUgraph g;
	CUgraphNode node;
	CUgraphExec x, recording;
	static uint8_t pageable[4096];
	CUstreamAttrValue value = { .syncPolicy = CU_SYNC_POLICY_AUTO };

	if (strcmp(what, "legacy") == 0) {
		behind(NULL, s[2], "the default stream");
		behind(s[1], s[2], "a blocking stream");
		return;
	}
	if (strcmp(what, "busy") == 0) {
		next_to_a_busy_stream();
		return;
	}
	if (strcmp(what, "default") == 0) {
		behind(s[1], s[2], "a blocking stream");
		return;
	}
	CU(cuEventCreate(&e, 0));
	CU(cuEventCreate(&later, 0));
	at = "cuEventRecord";
	CU(cuEventRecord(e, s[0]));
	if (strcmp(what, "wait") == 0) {
		at = "cuStreamWaitEvent";
		CU(cuStreamWaitEvent(s[1], e, 0));
		at = "a launch behind an event";
		work(s[1], 2);
		CU(cuEventRecord(later, s[1]));
		CU(cuStreamWaitEvent(s[0], later, 0));
		work(s[0], 2);
	} else if (strcmp(what, "again") == 0) {
		at = "an event recorded again";
		CU(cuStreamWaitEvent(s[1], e, 0));
		CU(cuEventRecord(e, s[2]));
		CU(cuEventRecord(e, s[0]));
		CU(cuStreamWaitEvent(s[2], e, 0));
	} else if (strcmp(what, "destroy") == 0) {
		at = "cuEventDestroy";
		CU(cuEventDestroy(e));
		e = NULL;
	} else if (strcmp(what, "stream") == 0) {
		at = "cuStreamDestroy";
		CU(cuStreamWaitEvent(s[1], e, 0));
		work(s[1], 1);
		CU(cuStreamDestroy(s[0]));
		CU(cuStreamDestroy(s[1]));
		s[1] = s[0]; /* the old handle */
		at = "a stream created after one was destroyed";
		CU(cuStreamCreate(&s[0], 1));
		CU(s[0] != s[1] ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
		work(s[0], 2);
		CU(cuStreamSynchronize(s[0]));
	} else if (strcmp(what, "graph") == 0) {
		at = "graphs next to one with an event";
		CU(cuGraphCreate(&g, 0));
		CU(cuGraphAddEventRecordNode(&node, g, NULL, 0, later));
		CU(cuGraphInstantiate(&recording, g, 0));
		CU(cuGraphDestroy(g));
		at = "graphs";
		CU(cuStreamBeginCapture(s[2], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		launch(await, 64, s[2]);
		at = "another stream joins a capture";
		CU(cuEventRecord(later, s[2]));
		CU(cuStreamWaitEvent(s[1], later, 0));
		CU(cuMemsetD32Async(data, 1, 64, s[1]));
		CU(cuEventRecord(later, s[1]));
		CU(cuStreamWaitEvent(s[2], later, 0));
		at = "calls during a capture";
		work(s[0], 1);
		CU(cuMemsetD32Async(data, 1, 64, s[0]));
		CU(cuEventRecord(e, s[0]));
		at = "the end of a capture";
		CU(cuStreamEndCapture(s[2], &g));
		CU(cuGraphInstantiate(&x, g, 0));
		CU(cuGraphLaunch(x, s[2]));
		CU(cuStreamSynchronize(s[2]));
		CU(cuGraphLaunch(x, s[0]));
		expected += 64;
		at = "destroying a graph that is launched later";
		CU(cuGraphExecDestroy(x));
		CU(cuGraphExecDestroy(recording));
		CU(cuGraphDestroy(g));
	} else if (strcmp(what, "calls") == 0) {
		at = "calls on the closed stream";
		CU(cuMemsetD32Async(data, 1, WORDS, s[0]));
		CU(cuMemcpyHtoDAsync(data, pageable, sizeof(pageable), s[0]));
		CU(cuMemcpyDtoDAsync(data + 4096, data, 4096, s[0]));
		at = "a batch of copies";
		batch();
		at = "attributes of the closed stream";
		CU(cuStreamSetAttribute(s[0], CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
		at = "calls on the closed stream";
		CU(cuLaunchHostFunc(s[0], wait_for_host, NULL));
		CU(cuMemAllocAsync(&(CUdeviceptr){ 0 }, 4096, s[0]));
		at = "calls on other streams";
		work(s[1], 2);
		CU(cuMemsetD32Async(data + 32768, 1, 64, s[1]));
		at = "waiting for another stream";
		CU(cuStreamSynchronize(s[1]));
		CU(cuStreamQuery(s[0]) == CUDA_ERROR_NOT_READY ? 0 : 1);
		CU(cuEventQuery(e) == CUDA_ERROR_NOT_READY ? 0 : 1);
	} else if (strcmp(what, "many") == 0) {
		many(1500);
		at = "attributes that take nothing away";
		CU(cuFuncSetAttribute(await, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				      49152));
		CU(cuFuncSetAttribute(await, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
				      50));
		CU(cuFuncSetCacheConfig(await, CU_FUNC_CACHE_PREFER_L1));
	} else if (strcmp(what, "memory") == 0) {
		memory();
		many(1500);
		memory();
	} else {
		fprintf(stderr, "gates: no such case\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct timespec begin, now;
	bool through_default;
	uint32_t ran = 0;
	pthread_t t;

	if (argc != 4 || pthread_create(&t, NULL, watch, NULL)) {
		return 2;
	}
	through_default = strcmp(argv[3], "legacy") == 0 || strcmp(argv[3], "default") == 0 ||
			  strcmp(argv[3], "busy") == 0;
	program_open(&p, "gates", argc, argv);
	await = program_kernel(&p, "await");
	data = program_zeros(WORDS * 4);
	counter = program_zeros(4);
	CU(cuMemHostAlloc((void **)(void *)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&flag_device, flag, 0));
	*flag = 0;
	CU(cuCtxSynchronize()); /* the memsets, before non-blocking streams use the memory */
	for (int i = 0; i < 3; i++) {
		CU(cuStreamCreate(
			&s[i],
			through_default && i < 2 && (i || strcmp(argv[3], "busy") != 0) ? 0 : 1));
	}
	if (strcmp(argv[3], "default") == 0) {
		s[0] = NULL;
	}
	if (strcmp(argv[2], "stay") == 0) {
		stay(program_kernel(&p, "stay"));
		open_gate();
		at = "waiting for the kernel that stays";
		CU(cuCtxSynchronize());
		*flag = 0;
		atomic_store(&host_gate, 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do { /* a process launches nothing at block level in its first moments */
		work(s[0], 1);
		CU(cuStreamSynchronize(s[0]));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 <
		 300);
	close_gate(strcmp(argv[2], "stay") == 0 ? "value" : argv[2]);
	others(argv[3]);
	open_gate();
	at = "waiting for all";
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH(&ran, counter, 4));
	if (ran != expected) {
		fprintf(stderr, "%u blocks ran instead of %u\n", ran, expected);
		return 1;
	}
	if (strcmp(argv[3], "calls") == 0) {
		uint32_t words[2] = { 0 };

		CU(cuMemcpyDtoH(&words[0], data + 8192 + 60, 4));
		CU(cuMemcpyDtoH(&words[1], data + 16384 + 124, 4));
		program_check(&p, words[0] == BATCHED && words[1] == BATCHED, "copied in a batch");
	}
	return program_close(&p);
}
