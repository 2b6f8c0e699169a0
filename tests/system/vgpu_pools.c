/* Pools of memory in a virtual GPU, for vgpu_named.bats.
 *
 *   steps   with a limit of 80 MiB: what pools hold is charged, step by step
 *   wait    a thread waits for memory of a pool while others use pools; continues after a line on
 *           standard input */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define MIB ((size_t)1 << 20)

#define CHECK(right, ...)                                                                          \
	do {                                                                                       \
		if (!(right)) {                                                                    \
			fprintf(stderr, "line %d: %s: ", __LINE__, #right);                        \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
			exit(EXIT_FAILURE);                                                        \
		}                                                                                  \
	} while (0)

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

static CUmemoryPool new_pool(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemoryPool p;

	CU(cuMemPoolCreate(&p, &props));
	return p;
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

/* Of 80 MiB a pool gets two steps, all of which it can give out; the rest serves other calls. */
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
	CHECK(n == 8 && left() == 16 * MIB && reserved(pool) == 64 * MIB, "%zu %zu", n, left());
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
	CHECK(left() == 64 * MIB, "%zu", left());
	CU(cuMemFree_v2(rest));
	CHECK(left() == 80 * MIB, "%zu", left());
	return 0;
}

/* ---- wait ---- */

static void *allocate_more(void *ret)
{
	CUdeviceptr p;

	CU(cuCtxSetCurrent(context));
	*(CUresult *)ret = cuMemAllocAsync(&p, 40 * MIB, CU_STREAM_PER_THREAD);
	return NULL;
}

/* The pool keeps what is freed, so the waiting call gets memory only if a synchronization of this
 * thread has the pool return it. */
static int wait_for_memory(void)
{
	CUresult later = CUDA_ERROR_UNKNOWN;
	CUdeviceptr p, q;
	CUmemoryPool other;
	pthread_t thread;
	char line[16];

	begin();
	keep(pool, UINT64_MAX);
	CU(cuMemAllocAsync(&p, 40 * MIB, NULL));
	CHECK(pthread_create(&thread, NULL, allocate_more, &later) == 0, "no thread");
	CHECK(fgets(line, sizeof(line), stdin), "no line");
	other = new_pool();
	CU(cuMemPoolDestroy(other));
	CU(cuMemAllocAsync(&q, 8 * MIB, NULL));
	CU(cuMemFreeAsync(q, NULL));
	CU(cuStreamSynchronize(NULL));
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY, "the call does not wait");
	CU(cuMemFreeAsync(p, NULL));
	CU(cuStreamSynchronize(NULL));
	CHECK(pthread_join(thread, NULL) == 0, "join");
	CHECK(later == CUDA_SUCCESS, "%d", (int)later);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "wait") == 0) {
		return wait_for_memory();
	}
	if (strcmp(verb, "steps") == 0) {
		return steps();
	}
	fprintf(stderr, "usage: vgpu_pools steps | wait\n");
	return 1;
}
