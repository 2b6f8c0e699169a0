/* pooled: memory of pools that can leave the device, for pooled.bats. It knows nothing of gBPF but
 * its limit, 64 MiB, and the swap of 64 MiB. Each argument names one of the checks below; prints
 * "right" after the last one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define cuMemGetInfo cuMemGetInfo_v2

static CUstream stream[2];
static CUmemoryPool pool;
static uint32_t *flag; /* in memory of the host */

/* The memory that is made ahead on the host counts as taken while it is made. */
static size_t free_mib(void)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	return available / MIB;
}

static uint64_t figure(CUmemoryPool p, CUmemPool_attribute what)
{
	uint64_t value = 0;

	CU(cuMemPoolGetAttribute(p, what, &value));
	return value;
}

static void set(CUmemPool_attribute what, uint64_t value)
{
	CU(cuMemPoolSetAttribute(pool, what, &value));
}

static CUdeviceptr take(size_t mib, unsigned s)
{
	CUdeviceptr p = 0;

	CU(cuMemAllocFromPoolAsync(&p, mib * MIB, pool, stream[s]));
	return p;
}

/* Bytes of the pool must be those, in MiB. */
static void has(uint64_t used, uint64_t reserved)
{
	uint64_t is_used = figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) / MIB;
	uint64_t is_reserved = figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) / MIB;

	CHECK(is_used == used && is_reserved == reserved, "%d of %d MiB instead of %d of %d",
	      (int)is_used, (int)is_reserved, (int)used, (int)reserved);
}

/* All bytes of a buffer must be that. */
static void is(CUdeviceptr p, size_t mib, uint8_t byte)
{
	uint8_t *host = program_room(mib * MIB);

	CU(cuMemcpyDtoH(host, p, mib * MIB));
	for (size_t i = 0; i < mib * MIB; i++) {
		CHECK(host[i] == byte, "byte %zu is %d, not %d", i, host[i], byte);
	}
	free(host);
}

/* Work of the stream waits until release(). */
static void block(unsigned s)
{
	__atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
	CU(cuStreamWaitValue32(stream[s], (CUdeviceptr)(uintptr_t)flag, 1,
			       CU_STREAM_WAIT_VALUE_GEQ));
}

static void unblock(void)
{
	__atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

/* The stream that has freed memory gets it at once, and its work on the old content comes first. */
static void check_same_stream(void)
{
	CUdeviceptr a = take(16, 0), b = take(16, 0), c;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	block(0);
	CU(cuMemsetD8Async(a, 1, 16 * MIB, stream[0]));
	CU(cuMemcpyDtoDAsync(b, a, 16 * MIB, stream[0]));
	CU(cuMemFreeAsync(a, stream[0]));
	c = take(16, 0);
	CHECK(c == a, "freed memory is not used again");
	CU(cuMemsetD8Async(c, 2, 16 * MIB, stream[0]));
	unblock();
	CU(cuStreamSynchronize(stream[0]));
	is(b, 16, 1);
	is(c, 16, 2);
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuMemFreeAsync(c, stream[0]));
}

/* Another stream gets it when the work is done, not before. */
static void check_other_stream(void)
{
	CUdeviceptr a = take(16, 0), b, c;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	block(0);
	CU(cuMemsetD8Async(a, 1, 16 * MIB, stream[0]));
	CU(cuMemFreeAsync(a, stream[0]));
	b = take(16, 1);
	CHECK(b != a, "memory is given away while work may use it");
	CU(cuMemsetD8Async(b, 2, 16 * MIB, stream[1]));
	CU(cuStreamSynchronize(stream[1]));
	unblock();
	CU(cuStreamSynchronize(stream[0]));
	is(b, 16, 2);
	c = take(16, 1);
	CHECK(c == a, "freed memory is not used again");
	CU(cuMemFreeAsync(b, stream[1]));
	CU(cuMemFreeAsync(c, stream[1]));
}

/* An allocation has the bytes that were asked for, also in memory that another one had. */
static void check_sizes(void)
{
	CUdeviceptr a, b, base;
	CUmemoryPool of;
	size_t bytes;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CU(cuMemAllocFromPoolAsync(&a, 16 * MIB - 512, pool, stream[0]));
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuMemAllocFromPoolAsync(&b, 15 * MIB + 512, pool, stream[0]));
	CHECK(b == a, "freed memory is not used again");
	CU(cuMemGetAddressRange_v2(&base, &bytes, b + 1));
	CHECK(base == b && bytes == 15 * MIB + 512, "it has %zu bytes", bytes);
	CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, b));
	CHECK(of == pool, "it is of another pool");
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuMemAllocFromPoolAsync(&b, 8 * MIB, pool, stream[0]));
	CHECK(b != a, "half of the memory is used again");
	CU(cuMemFreeAsync(b, stream[0]));
}

/* What the pool keeps, and says that it has. */
static void check_figures(void)
{
	CUdeviceptr a = take(16, 0), b = take(32, 0);

	has(48, 48);
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuStreamSynchronize(stream[0])); /* the threshold is 0 */
	has(16, 16);
	eventually(free_mib() == 112);
	CHECK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 48 * MIB, "not the most");
	CHECK(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 48 * MIB, "not the most");
	set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
	CHECK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 16 * MIB, "not reset");
	CHECK(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 16 * MIB, "not reset");
	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 40 * MIB);
	b = take(16, 0);
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	has(0, 32);
	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 16 * MIB);
	CU(cuStreamSynchronize(stream[0]));
	has(0, 16);
	CU(cuMemPoolTrimTo(pool, 16 * MIB));
	has(0, 16);
	CU(cuMemPoolTrimTo(pool, 16 * MIB - 1));
	has(0, 0);
	eventually(free_mib() == 128);
}

/* Memory that is kept makes room for any other, without a copy to the host. */
static void check_room(void)
{
	CUdeviceptr a = take(48, 0), b;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	has(0, 48);
	eventually(free_mib() == 80);
	CU(cuMemAlloc(&b, 32 * MIB));
	has(0, 0);
	eventually(free_mib() == 96);
	CU(cuMemFree(b));
}

/* Beyond the limit and swap an allocation is refused. Kept memory is not in its way. */
static void check_refusal(void)
{
	CUdeviceptr a, b, c = 0;
	CUresult r;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	a = take(48, 0);
	b = take(48, 0);
	CU(cuMemsetD8Async(a, 1, 48 * MIB, stream[0]));
	r = cuMemAllocFromPoolAsync(&c, 40 * MIB, pool, stream[0]);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "an allocation beyond all returns %d", (int)r);
	CU(cuMemFreeAsync(b, stream[0]));
	c = take(64, 0);
	CU(cuMemsetD8Async(c, 2, 64 * MIB, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	is(a, 48, 1);
	is(c, 64, 2);
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuMemFree(c));
}

/* Releases the stream once the main thread waits. Which of its waits that is, is no matter here:
 * test_swap_async.c has work end in each. */
static void *unblock_late(void *arg)
{
	eventually(thread_is_blocked(getpid()));
	unblock();
	return arg;
}

/* An allocation is not refused where it only has to wait for work before a free. */
static void check_pending(void)
{
	CUdeviceptr a, b, c;
	pthread_t thread;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	a = take(48, 0);
	b = take(48, 0);
	CU(cuMemsetD8Async(a, 1, 48 * MIB, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	block(0);
	CU(cuMemFreeAsync(b, stream[0]));
	CHECK(pthread_create(&thread, NULL, unblock_late, NULL) == 0, "no thread");
	c = take(56, 1);
	pthread_join(thread, NULL);
	CU(cuMemsetD8Async(c, 2, 56 * MIB, stream[1]));
	CU(cuStreamSynchronize(stream[1]));
	is(a, 48, 1);
	is(c, 56, 2);
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuMemFreeAsync(c, stream[1]));
}

/* A pool may be destroyed before its allocations are freed. */
static void check_destroyed(void)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUdeviceptr a, b;

	set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	a = take(32, 0);
	b = take(16, 0);
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuMemPoolDestroy(pool));
	CU(cuMemPoolCreate(&pool, &props));
	has(0, 0);
	CU(cuMemsetD8Async(a, 1, 32 * MIB, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	is(a, 32, 1);
	eventually(free_mib() == 96);
	b = take(32, 0);
	has(32, 32);
	CU(cuMemFreeAsync(a, stream[0]));
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	has(0, 0);
	eventually(free_mib() == 128);
}

/* A pool that others can open has the driver's memory alone, which cannot leave. */
static void check_exportable(void)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUdeviceptr a = take(16, 0), b, c = 0;
	CUmemPoolPtrExportData data;
	CUmemoryPool shared;
	CUresult r;
	int fd;

	r = cuMemPoolExportPointer(&data, a);
	CHECK(r == CUDA_ERROR_INVALID_VALUE, "an export returns %d", (int)r);
	CU(cuMemFree(a));
	CU(cuMemPoolCreate(&shared, &props));
	CU(cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	CU(cuMemAllocFromPoolAsync(&b, 32 * MIB, shared, stream[0]));
	CU(cuMemPoolExportPointer(&data, b));
	r = cuMemAllocFromPoolAsync(&c, 64 * MIB, shared, stream[0]);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "an allocation beyond the limit returns %d", (int)r);
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	CU(cuMemPoolDestroy(shared));
}

/* A capture's memory is its graph's. */
static void check_capture(void)
{
	CUdeviceptr a = take(16, 0), b = 0;
	CUgraph g;
	CUgraphExec x;
	CUresult r;

	CU(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAllocFromPoolAsync(&b, 16 * MIB, pool, stream[0]));
	CU(cuMemsetD8Async(b, 3, 16 * MIB, stream[0]));
	CU(cuMemcpyDtoDAsync(a, b, 16 * MIB, stream[0]));
	CU(cuMemFreeAsync(b, stream[0]));
	CU(cuStreamEndCapture(stream[0], &g));
	CU(cuGraphInstantiate(&x, g, 0));
	CU(cuGraphLaunch(x, stream[0]));
	CU(cuStreamSynchronize(stream[0]));
	is(a, 16, 3);
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	CU(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	r = cuMemFreeAsync(a, stream[0]);
	CHECK(r == CUDA_ERROR_INVALID_VALUE, "a captured free returns %d", (int)r);
	(void)cuStreamEndCapture(stream[0], &g);
	is(a, 16, 3);
	CU(cuMemFreeAsync(a, stream[0]));
}

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
	{ "same-stream", check_same_stream },
	{ "other-stream", check_other_stream },
	{ "sizes", check_sizes },
	{ "figures", check_figures },
	{ "room", check_room },
	{ "refusal", check_refusal },
	{ "pending", check_pending },
	{ "destroyed", check_destroyed },
	{ "exportable", check_exportable },
	{ "capture", check_capture },
};

static void run(const char *name)
{
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (strcmp(checks[i].name, name) == 0) {
			checks[i].run();
			return;
		}
	}
	fprintf(stderr, "no check '%s'\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUcontext context;
	CUdevice device;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuMemHostAlloc((void **)&flag, sizeof(*flag), 0));
	for (unsigned i = 0; i < 2; i++) {
		CU(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
	}
	CU(cuMemPoolCreate(&pool, &props));
	for (int i = 1; i < argc; i++) {
		run(argv[i]);
	}
	printf("right\n");
	CU(cuDevicePrimaryCtxRelease_v2(device));
	return 0;
}
