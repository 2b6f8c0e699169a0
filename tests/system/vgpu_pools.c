/* Pools of memory in a virtual GPU, for vgpu_named.bats.
 *
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
	fprintf(stderr, "usage: vgpu_pools wait\n");
	return 1;
}
