/* Pools of memory in a virtual GPU, and calls that wait while other threads go on, for vgpu.bats
 * and vgpu_named.bats.
 *
 *   steps          with a limit of 80 MiB: what pools hold is charged, step by step
 *   outside        the same: which pools get the rest of the limit, and that it behaves as theirs
 *   captures       the same: calls that are allowed during captures do not invalidate them
 *   outside-busy   the same, while a stream is busy
 *   destroyed      the same: a pool that was destroyed is charged while a free of it waits
 *   small-arrays   the same: threads make small arrays at once, for which there is one unit
 *   wait           a thread waits for memory of a pool while others use pools
 *   wait-scattered a thread waits for memory of a pool whose room is scattered
 *   wait-linear    a thread waits for linear memory, which a pool of the process keeps
 *   wait-context   a thread waits for memory that is overhead of a context
 *   wait-graph     a launch waits for memory while others use graphs
 *
 * The five last ones continue after a line on standard input, which says that the thread waits. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"
#include "../unit/eventually.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUmemoryPool pool; /* the device's default pool */

static void begin(void)
{
	CU(cuInit(0));
	CU(cuCtxCreate(&context, 0, 0));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
}

static void keep(CUmemoryPool p, uint64_t bytes)
{
	CU(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static CUmemoryPool new_pool_for(CUmemAllocationHandleType handles)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = handles,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemoryPool p;

	CU(cuMemPoolCreate(&p, &props));
	return p;
}

static CUmemoryPool new_pool(void)
{
	return new_pool_for(CU_MEM_HANDLE_TYPE_NONE);
}

static uint64_t reserved(CUmemoryPool p)
{
	uint64_t bytes;

	CU(cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
	return bytes;
}

static size_t left(void)
{
	size_t now, total;

	CU(cuMemGetInfo_v2(&now, &total));
	return now;
}

/* ---- steps ---- */

/* Takes 8 MiB at a time until the pool cannot grow; returns how often. */
static size_t fill(CUmemoryPool p, CUdeviceptr *at, size_t most)
{
	CUresult r = CUDA_SUCCESS;
	size_t n = 0;

	while (n < most && (r = cuMemAllocFromPoolAsync(&at[n], 8 * MIB, p, NULL)) == 0) {
		n++;
	}
	CHECK(n < most && r == CUDA_ERROR_OUT_OF_MEMORY, "%zu, error %d", n, (int)r);
	return n;
}

static void free_all(const CUdeviceptr *at, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		CU(cuMemFreeAsync(at[i], NULL));
	}
}

/* Of 80 MiB a pool gets two steps, all of which it can give out. The rest is allocated outside it,
 * in units, and serves other calls. */
static int steps(void)
{
	CUdeviceptr at[16], rest, more;
	CUmemoryPool other;
	size_t n;

	begin();
	keep(pool, UINT64_MAX);
	other = new_pool();
	CHECK(left() == 80 * MIB, "%zu", left());
	CU(cuMemAllocAsync(&at[0], 1000, NULL));
	CHECK(left() == 48 * MIB && reserved(pool) == 32 * MIB, "%zu", left()); /* the step */
	CU(cuMemFreeAsync(at[0], NULL));
	CU(cuStreamSynchronize(NULL));
	CHECK(left() == 48 * MIB, "%zu", left()); /* below the threshold */
	n = fill(pool, at, 16);
	CHECK(n == 10 && left() == 0 && reserved(pool) == 64 * MIB, "%zu %zu", n, left());
	CU(cuMemsetD8Async(at[9], 1, 8 * MIB, NULL));
	n = 8;
	free_all(at + n, 2);
	CU(cuStreamSynchronize(NULL));
	eventually(left() == 16 * MIB);
	CHECK(reserved(pool) == 64 * MIB, "%zu", reserved(pool));
	CU(cuMemAlloc_v2(&rest, 16 * MIB));
	CHECK(left() == 0, "%zu", left());
	CHECK(cuMemAlloc_v2(&more, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "beyond the limit");
	/* With all charged, the pool serves what it has room for. */
	free_all(at, 1);
	CU(cuStreamSynchronize(NULL));
	CU(cuMemAllocAsync(&at[0], 8 * MIB, NULL));
	CHECK(left() == 0 && reserved(pool) == 64 * MIB, "%zu", left());
	/* Another pool gets the memory once this one need not hold it: it is trimmed. */
	free_all(at, n);
	CU(cuStreamSynchronize(NULL));
	CHECK(reserved(pool) == 64 * MIB && left() == 0, "%zu", left());
	CU(cuMemAllocFromPoolAsync(&at[0], 40 * MIB, other, NULL));
	CHECK(reserved(pool) == 0 && reserved(other) == 64 * MIB && left() == 0, "%zu", left());
	CHECK(cuMemAllocAsync(&more, 1000, NULL) == CUDA_ERROR_OUT_OF_MEMORY, "beyond the limit");
	CU(cuMemFreeAsync(at[0], NULL));
	CU(cuMemPoolTrimTo(other, 0));
	CU(cuStreamSynchronize(NULL));
	eventually(left() == 64 * MIB);
	CU(cuMemFree_v2(rest));
	CHECK(left() == 80 * MIB, "%zu", left());
	return 0;
}

static void drop_all(CUmemoryPool p, const CUdeviceptr *at, size_t n)
{
	free_all(at, n);
	CU(cuStreamSynchronize(NULL));
	CU(cuMemPoolTrimTo(p, 0));
	eventually(left() == 80 * MIB);
}

/* Returns the first byte of each of n pieces; -1: they differ. */
static int first_bytes(const CUdeviceptr *at, size_t n)
{
	unsigned char all = 0, one;

	for (size_t i = 0; i < n; i++) {
		CU(cuMemcpyDtoH_v2(&one, at[i], 1));
		all = i ? all : one;
		if (one != all) {
			return -1;
		}
	}
	return all;
}

static int outside(void)
{
	CUmemoryPool shared;
	CUdeviceptr at[16];
	CUstream stream;
	CUcontext other;
	size_t n;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	/* Pieces outside the pool are the program's as others, and are freed in either way.
	 */
	n = fill(pool, at, 16);
	CHECK(n == 10 && left() == 0, "%zu %zu", n, left());
	for (size_t i = 0; i < n; i++) {
		CU(cuMemsetD8Async(at[i], 77, 8 * MIB, NULL));
	}
	CHECK(first_bytes(at, n) == 77, "wrong contents");
	CU(cuMemFree_v2(at[9]));
	CHECK(left() == 8 * MIB, "%zu", left());
	CU(cuMemAllocAsync(&at[9], 8 * MIB, stream));
	CU(cuMemsetD8Async(at[9], 77, 8 * MIB, stream));
	CU(cuStreamSynchronize(stream));
	CHECK(first_bytes(at, n) == 77 && left() == 0, "%zu", left());
	drop_all(pool, at, n);
	/* A pool that other processes may import gets none: its pointers could not be exported. */
	shared = new_pool_for(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	n = fill(shared, at, 16);
	CHECK(n < 9 && left() >= 16 * MIB, "%zu %zu", n, left());
	drop_all(shared, at, n);
	/* Nor does one in a process with two contexts: the memory would be that of one of them. */
	CU(cuCtxCreate(&other, 0, 0));
	n = fill(pool, at, 16);
	CHECK(n == 8 && left() == 16 * MIB, "%zu %zu", n, left());
	drop_all(pool, at, n);
	CU(cuCtxDestroy_v2(other));
	return 0;
}

/* ---- captures ---- */

static void *ask_free(void *unused)
{
	(void)unused;
	CU(cuCtxSetCurrent(context));
	(void)left();
	return NULL;
}

/* What CUDA allows during a capture in global mode, by any thread, leaves it valid: in a process
 * that uses pools, and at the limit. */
static int captures(void)
{
	const CUmemAllocationProp on_device = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle chunk;
	CUdeviceptr at, linear;
	pthread_t thread;
	CUstream stream;
	CUgraph g;

	begin();
	keep(pool, UINT64_MAX);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocAsync(&at, 32 * MIB, NULL));
	CU(cuMemAlloc_v2(&linear, 2 * MIB));
	CU(cuMemFreeAsync(at, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuMemFreeAsync(linear, NULL)); /* its release is settled later */
	CHECK(reserved(pool) == 32 * MIB, "%zu", (size_t)reserved(pool));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	(void)left();
	CHECK(pthread_create(&thread, NULL, ask_free, NULL) == 0, "pthread_create");
	pthread_join(thread, NULL);
	CU(cuMemCreate(&chunk, 70 * MIB, &on_device, 0)); /* has the pool trimmed */
	CU(cuStreamEndCapture(stream, &g));
	CU(cuGraphDestroy(g));
	CU(cuStreamSynchronize(NULL));
	CHECK(reserved(pool) == 0 && left() == 10 * MIB, "%zu", left());
	CU(cuMemRelease(chunk));
	return 0;
}

/* ---- outside, busy ---- */

/* Returns a stream that is busy until the flag is not 0. */
static CUstream busy_stream(uint32_t **ret_flag)
{
	CUstream s;
	CUdeviceptr flag;

	CU(cuMemHostAlloc((void **)ret_flag, sizeof(**ret_flag), CU_MEMHOSTALLOC_DEVICEMAP));
	**ret_flag = 0;
	CU(cuMemHostGetDevicePointer_v2(&flag, *ret_flag, 0));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
	return s;
}

/* At the limit a call for little memory is refused without waiting for the device, also if units
 * are divided; it would hang here. */
static void refuse_while_busy(CUstream stream)
{
	CUdeviceptr at[16], part, more;
	CUstream busy;
	uint32_t *flag;
	size_t n;

	CU(cuMemAlloc_v2(&part, MIB));
	n = fill(pool, at, 16);
	CHECK(left() == 6 * MIB, "%zu", left());
	CU(cuMemAllocAsync(&more, 6 * MIB, stream));
	busy = busy_stream(&flag);
	for (int i = 0; i < 4; i++) {
		CUdeviceptr p;

		CHECK(cuMemAllocAsync(&p, 1000 * 1000, stream) == CUDA_ERROR_OUT_OF_MEMORY, "%d",
		      i);
	}
	__atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
	CU(cuStreamSynchronize(busy));
	free_all(&more, 1);
	CU(cuMemFree_v2(part));
	drop_all(pool, at, n);
}

/* What is free again is found without a synchronization. */
static void reuse_without_synchronization(CUstream stream)
{
	uint64_t deadline = program_ns() + 60000000000ull;
	CUdeviceptr at[10];
	CUresult r;

	for (int i = 0; i < 10; i++) {
		CU(cuMemAllocAsync(&at[i], 8 * MIB, stream));
	}
	CHECK(left() == 0, "%zu", left());
	CU(cuMemFreeAsync(at[9], stream));
	while ((r = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && program_ns() < deadline) {
		sched_yield();
	}
	CU(r);
	CU(cuMemAllocAsync(&at[9], 8 * MIB, stream));
	drop_all(pool, at, 10);
}

/* Pools with a greatest size do not exceed it. */
static void keep_greatest_size(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = 64 * MIB };
	CUdeviceptr at[16];
	CUmemoryPool p;
	size_t n;

	CU(cuMemPoolCreate(&p, &props));
	n = fill(p, at, 16);
	CHECK(n == 8 && left() == 16 * MIB, "%zu %zu", n, left());
	drop_all(p, at, n);
	CU(cuMemPoolDestroy(p));
}

static int outside_busy(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	keep_greatest_size();
	reuse_without_synchronization(stream);
	refuse_while_busy(stream);
	return 0;
}

/* ---- destroyed ---- */

/* Nothing of the pool is in use any more, but the driver cannot give its memory back yet. */
static int destroyed(void)
{
	CUstream stream;
	CUmemoryPool p;
	CUdeviceptr at;
	uint32_t *flag;

	begin();
	p = new_pool();
	stream = busy_stream(&flag);
	CU(cuMemAllocFromPoolAsync(&at, 8 * MIB, p, stream));
	CU(cuMemFreeAsync(at, stream));
	CU(cuMemPoolDestroy(p));
	CHECK(left() == 48 * MIB, "%zu", left());
	CHECK(cuMemAlloc_v2(&at, 50 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "beyond the limit");
	__atomic_store_n(flag, 1u, __ATOMIC_SEQ_CST);
	CU(cuStreamSynchronize(stream));
	eventually(left() == 80 * MIB);
	return 0;
}

/* ---- small arrays ---- */

#define MAKERS 8
#define ROUNDS 300

static pthread_barrier_t meeting;
static uint32_t refused; /* [atomic] */

static void *make_array(void *arg)
{
	const CUDA_ARRAY_DESCRIPTOR d = { 128, 128, CU_AD_FORMAT_FLOAT, 1 };
	CUarray a;

	(void)arg;
	CU(cuCtxSetCurrent(context));
	for (int i = 0; i < ROUNDS; i++) {
		CUresult r;

		pthread_barrier_wait(&meeting);
		r = cuArrayCreate_v2(&a, &d);
		__atomic_add_fetch(&refused, r != CUDA_SUCCESS, __ATOMIC_SEQ_CST);
		pthread_barrier_wait(&meeting);
		if (r == CUDA_SUCCESS) {
			CU(cuArrayDestroy(a));
		}
	}
	return NULL;
}

/* A unit that one thread has charged is there for what the others make at the same time. */
static int small_arrays(void)
{
	pthread_t thread[MAKERS];
	CUdeviceptr all;

	begin();
	CU(cuMemAlloc_v2(&all, left() - 2 * MIB));
	pthread_barrier_init(&meeting, NULL, MAKERS);
	for (int i = 0; i < MAKERS; i++) {
		CHECK(pthread_create(&thread[i], NULL, make_array, NULL) == 0, "no thread");
	}
	for (int i = 0; i < MAKERS; i++) {
		CHECK(pthread_join(thread[i], NULL) == 0, "join");
	}
	CHECK(refused == 0 && left() == 2 * MIB, "%u were refused, %zu left", refused, left());
	CU(cuMemFree_v2(all));
	return 0;
}

/* ---- wait ---- */

/* A call of another thread, which waits for memory. */
struct waiter {
	CUresult (*call)(void);
	CUresult result;
	pthread_t thread;
};

static void *run_call(void *arg)
{
	struct waiter *w = arg;

	CU(cuCtxSetCurrent(context));
	w->result = w->call();
	return NULL;
}

/* Returns once the call waits. */
static void start_waiter(struct waiter *w, CUresult (*call)(void))
{
	char line[16];

	*w = (struct waiter){ .call = call, .result = CUDA_ERROR_UNKNOWN };
	CHECK(pthread_create(&w->thread, NULL, run_call, w) == 0, "no thread");
	CHECK(fgets(line, sizeof(line), stdin), "no line");
}

static void expect_waiting(const struct waiter *w)
{
	CHECK(pthread_tryjoin_np(w->thread, NULL) == EBUSY, "the call does not wait");
}

static void expect_served(const struct waiter *w)
{
	CHECK(pthread_join(w->thread, NULL) == 0, "join");
	CHECK(w->result == CUDA_SUCCESS, "%d", (int)w->result);
}

static CUresult allocate_more(void)
{
	CUdeviceptr p;

	return cuMemAllocAsync(&p, 40 * MIB, CU_STREAM_PER_THREAD);
}

/* The pool keeps what is freed, so the waiting call gets memory only if a synchronization of this
 * thread has the pool return it. */
static int wait_for_memory(void)
{
	CUdeviceptr p, q;
	CUmemoryPool other;
	struct waiter w;

	begin();
	keep(pool, UINT64_MAX);
	CU(cuMemAllocAsync(&p, 40 * MIB, NULL));
	start_waiter(&w, allocate_more);
	other = new_pool();
	CU(cuMemPoolDestroy(other));
	CU(cuMemAllocAsync(&q, 8 * MIB, NULL));
	CU(cuMemFreeAsync(q, NULL));
	CU(cuStreamSynchronize(NULL));
	expect_waiting(&w);
	CU(cuMemFreeAsync(p, NULL));
	CU(cuStreamSynchronize(NULL));
	expect_served(&w);
	return 0;
}

static CUresult allocate_step(void)
{
	CUdeviceptr p;

	return cuMemAllocAsync(&p, 32 * MIB, CU_STREAM_PER_THREAD);
}

/* With a limit of 64 MiB, all of it in the pool, and nothing left on the device: the pool has
 * room, but the driver refuses to serve the call from it. */
static int wait_for_scattered(void)
{
	CUdeviceptr at[4];
	struct waiter w;

	begin();
	keep(pool, UINT64_MAX);
	for (int i = 0; i < 4; i++) {
		CU(cuMemAllocAsync(&at[i], 16 * MIB, NULL));
	}
	CHECK(reserved(pool) == 64 * MIB, "%llu", (unsigned long long)reserved(pool));
	CU(cuMemFreeAsync(at[0], NULL));
	CU(cuMemFreeAsync(at[2], NULL));
	CU(cuStreamSynchronize(NULL));
	start_waiter(&w, allocate_step);
	expect_waiting(&w);
	CU(cuMemFreeAsync(at[1], NULL));
	CU(cuMemFreeAsync(at[3], NULL));
	CU(cuStreamSynchronize(NULL));
	expect_served(&w);
	return 0;
}

static CUresult allocate_linear(void)
{
	CUdeviceptr p;

	return cuMemAlloc_v2(&p, 40 * MIB);
}

/* As above, whether the limit or the device is full. */
static int wait_for_linear(void)
{
	struct waiter w;
	CUdeviceptr p;

	begin();
	keep(pool, UINT64_MAX);
	CU(cuMemAllocAsync(&p, 40 * MIB, NULL));
	start_waiter(&w, allocate_linear);
	CU(cuMemFreeAsync(p, NULL));
	CU(cuStreamSynchronize(NULL));
	expect_served(&w);
	return 0;
}

/* Overhead is lowered while the call waits, which changes no memory. */
static int wait_for_context(void)
{
	CUcontext other;
	struct waiter w;

	begin();
	CU(cuCtxCreate(&other, 0, 0));
	start_waiter(&w, allocate_linear);
	CU(cuCtxDestroy(other));
	expect_served(&w);
	return 0;
}

/* ---- graphs ---- */

/* Returns a graph that allocates memory, and frees it or not. */
static CUgraph graph_of(size_t bytes, bool frees)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .bytesize = bytes };
	CUgraphNode node, last;
	CUgraph g;

	p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	if (frees) {
		CU(cuGraphAddMemFreeNode(&last, g, &node, 1, p.dptr));
	}
	return g;
}

static CUgraphExec exec_of(CUgraph g)
{
	CUgraphExec exec;

	CU(cuGraphInstantiateWithFlags(&exec, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	return exec;
}

static CUgraphExec greedy;

static CUresult launch_greedy(void)
{
	return cuGraphLaunch(greedy, CU_STREAM_PER_THREAD);
}

/* The memory of the greedy graph is in use, so its next launch after a trim needs a step more. That
 * of the other one is there, so its launches need none. */
static int wait_for_graph(void)
{
	CUgraphExec modest;
	CUdeviceptr all;
	struct waiter w;

	begin();
	greedy = exec_of(graph_of(16 * MIB, false));
	modest = exec_of(graph_of(8 * MIB, true));
	CU(cuGraphLaunch(greedy, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemAlloc_v2(&all, left()));
	CHECK(left() == 0, "%zu", left());
	CU(cuDeviceGraphMemTrim(0));
	start_waiter(&w, launch_greedy);
	CU(cuGraphLaunch(modest, NULL));
	CU(cuCtxSynchronize());
	CU(cuDeviceGraphMemTrim(0));
	CU(cuGraphExecDestroy(modest));
	expect_waiting(&w);
	CU(cuMemFree_v2(all));
	expect_served(&w);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *verb;
		int (*run)(void);
	} parts[] = {
		{ "steps", steps },
		{ "outside", outside },
		{ "captures", captures },
		{ "outside-busy", outside_busy },
		{ "destroyed", destroyed },
		{ "small-arrays", small_arrays },
		{ "wait", wait_for_memory },
		{ "wait-scattered", wait_for_scattered },
		{ "wait-linear", wait_for_linear },
		{ "wait-context", wait_for_context },
		{ "wait-graph", wait_for_graph },
	};

	for (size_t i = 0; argc == 2 && i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strcmp(argv[1], parts[i].verb) == 0) {
			return parts[i].run();
		}
	}
	fprintf(stderr, "usage: vgpu_pools steps | outside | captures | outside-busy | "
			"destroyed | small-arrays | wait | wait-scattered | wait-linear | "
			"wait-context | wait-graph\n");
	return 1;
}
