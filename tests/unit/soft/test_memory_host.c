/* Host memory: registered pages, managed memory, queries about pointers. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "rig.h"

#define WORDS 5000u

static CUdeviceptr device_of(void *p)
{
	CUdeviceptr d;

	CU(cuMemHostGetDevicePointer_v2(&d, p, 0));
	return d;
}

/* A kernel and copies access registered memory that begins in the middle of a page. */
static void use_registered(void *unused)
{
	char *block = malloc(3 * WORDS * 4 + 4096);
	uint32_t *a = (uint32_t *)(void *)(block + 64), before = 77;
	CUdeviceptr d, other;
	unsigned n = WORDS, flags;
	void *params[4];
	CUdeviceptr pa, pb, pc;
	void *host;

	(void)unused;
	rig_context();
	memset(block, 1, 64);
	for (unsigned i = 0; i < 2 * WORDS; i++) {
		a[i] = i;
	}
	CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(a));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&d, a, 0));
	CU(cuMemHostRegister_v2(a, 3 * WORDS * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
	CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(a + 100, 4096, 0));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED,
	      cuMemHostRegister_v2(block, 32, 0)); /* shares a page with it */
	CHECK(block[0] == 1 && a[2 * WORDS - 1] == 2 * WORDS - 1);
	pa = device_of(a);
	pb = device_of(a + WORDS);
	pc = device_of(a + 2 * WORDS);
	CHECK(pb == pa + WORDS * 4);
	params[0] = &pa;
	params[1] = &pb;
	params[2] = &pc;
	params[3] = &n;
	rig_launch(rig_function("add"), (WORDS + 255) / 256, 256, NULL, params);
	CU(cuCtxSynchronize());
	for (unsigned i = 0; i < WORDS; i++) {
		CHECK(a[2 * WORDS + i] == 2 * i + WORDS);
	}
	CU(cuMemHostGetFlags(&flags, a));
	CHECK(flags & CU_MEMHOSTREGISTER_DEVICEMAP);
	CU(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pb));
	CHECK(host == a + WORDS);
	CU(cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				 (CUdeviceptr)(uintptr_t)(a + WORDS)));
	CHECK(d == pb);
	CU(cuMemAlloc_v2(&other, WORDS * 4));
	CU(cuMemcpyHtoD_v2(other, a + WORDS, WORDS * 4));
	CU(cuMemcpyDtoH_v2(a, other, WORDS * 4));
	CHECK(a[0] == WORDS && a[WORDS - 1] == 2 * WORDS - 1);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(a + 1));
	CU(cuMemHostUnregister(a));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&d, a, 0));
	CHECK(a[2 * WORDS] == WORDS); /* private again, with its contents */
	if (fork() == 0) {
		a[0] = 1;
		_exit(0);
	}
	wait(NULL);
	CHECK(a[0] == WORDS);
	before = a[5];
	CU(cuMemHostRegister_v2(a, 3 * WORDS * 4, 0)); /* register again */
	CHECK(a[5] == before);
	CU(cuMemcpyHtoDAsync_v2(other, a, 64, NULL));
	CU(cuMemHostUnregister(a));
	free(block);
}

static void registered_memory_is_reached_by_kernels(void **state)
{
	(void)state;
	assert_int_equal(rig_run(use_registered, NULL), 0);
	assert_int_equal(rig_stats_idle().pinned_used, 0);
}

static void register_what_cannot(void *unused)
{
	char on_stack[8192], *file, *shared, *hole;
	void *pinned;
	int fd;

	(void)unused;
	rig_context();
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(on_stack, 8192, 0));
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	file = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(file, 4096, 0));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED,
	      cuMemHostRegister_v2(file, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(shared, 4096, 0));
	hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(hole + 4096, 4096);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(hole, 3 * 4096, 0));
	CU(cuMemHostRegister_v2(hole, 4096, 0));
	munmap(hole, 4096);
	file = mmap(hole, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0);
	file[0] = 5;
	CU(cuMemHostUnregister(hole)); /* leaves the new mapping at that address alone */
	CHECK(file[0] == 5);
	CU(cuMemHostAlloc(&pinned, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(pinned, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(NULL, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(hole, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(hole, ~(size_t)0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2((void *)(uintptr_t)~0xffful, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(hole, 4096, 0x10));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED,
	      cuMemHostRegister_v2(hole, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(hole));
}

static void memory_of_others_is_not_registered(void **state)
{
	(void)state;
	assert_int_equal(rig_run(register_what_cannot, NULL), 0);
	assert_int_equal(rig_stats_idle().pinned_used, 0);
}

/* Another thread increments a counter in the pages during registration: no increment may be lost.
 */
static uint64_t *busy;
static volatile int stop;

static void *count_up(void *unused)
{
	uint64_t n = 0;

	(void)unused;
	while (!stop) {
		for (int i = 0; i < 16; i++) {
			busy[i * 512]++;
		}
		n++;
	}
	return (void *)(uintptr_t)n;
}

static void register_while_written(void *unused)
{
	pthread_t t;
	void *n;

	(void)unused;
	rig_context();
	busy = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_create(&t, NULL, count_up, NULL);
	for (int i = 0; i < 200; i++) {
		CU(cuMemHostRegister_v2(busy, 16 * 4096, 0));
		CU(cuMemHostUnregister(busy));
	}
	stop = 1;
	pthread_join(t, &n);
	for (int i = 0; i < 16; i++) {
		CHECK(busy[i * 512] == (uint64_t)(uintptr_t)n);
	}
}

static void no_write_is_lost_when_pages_move(void **state)
{
	(void)state;
	assert_int_equal(rig_run(register_while_written, NULL), 0);
}

/* Buffers from the heap share pages with malloc's own data, which is written while pages move. */
static void heap_neighbours(void *unused)
{
	enum { N = 40, BYTES = 9000 };
	char *p[N];

	(void)unused;
	rig_context();
	for (int i = 0; i < N; i++) {
		p[i] = malloc(BYTES);
		memset(p[i], i, BYTES);
	}
	for (int i = 0; i < N; i++) {
		CU(cuMemHostRegister_v2(p[i], BYTES, 0));
		free(malloc(100 + (size_t)i * 50));
		CU(cuMemHostUnregister(p[i]));
	}
	for (int i = 0; i < N; i++) {
		CHECK(p[i][0] == i && p[i][BYTES - 1] == i);
		free(p[i]);
	}
}

static void memory_of_the_heap_can_be_registered(void **state)
{
	(void)state;
	assert_int_equal(rig_run(heap_neighbours, NULL), 0);
}

static void destroyed(void *unused)
{
	uint32_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUcontext ctx = rig_context();
	CUdeviceptr d;

	(void)unused;
	p[0] = 3;
	CU(cuMemHostRegister_v2(p, 8192, 0));
	CU(cuCtxDestroy_v2(ctx));
	CHECK(p[0] == 3);
	rig_context();
	CU(cuMemAlloc_v2(&d, 4096));
	CU(cuMemcpyHtoD_v2(d, p, 4));
	CU(cuMemHostRegister_v2(p, 8192, 0));
	CU(cuMemcpyDtoH_v2(p + 1, d, 4));
	CHECK(p[1] == 3);
}

static void registration_ends_with_its_context(void **state)
{
	(void)state;
	assert_int_equal(rig_run(destroyed, NULL), 0);
}

/* ---- managed memory ---- */

static void use_managed(void *unused)
{
	CUmemLocation host = { CU_MEM_LOCATION_TYPE_HOST, 0 };
	CUmem_range_attribute both[] = { CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
					 CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION };
	int value, other, list[3];
	void *out[] = { &value, &other };
	size_t sizes[] = { 4, 4 };
	CUdeviceptr p, q;
	unsigned n = 256;
	void *params[] = { &p, &p, &p, &n };
	uint32_t *w;

	(void)unused;
	rig_context();
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&p, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&p, 0, 1));
	CU(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	w = (uint32_t *)(uintptr_t)p;
	w[255] = 21;
	CU(cuMemPrefetchAsync(p, 4096, 0, NULL));
	rig_launch(rig_function("add"), 1, 256, NULL, params);
	CU(cuCtxSynchronize());
	CHECK(w[255] == 42);
	CU(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 4));
	CHECK(value == 0);
	CU(cuMemAdvise(p, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CU(cuMemAdvise(p, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	CU(cuMemAdvise_v2(p, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
	CU(cuMemPrefetchAsync(p, 4096, -1, NULL));
	CU(cuMemRangeGetAttributes(out, sizes, both, 2, p, 4096));
	CHECK(value == 1 && other == -1);
	CU(cuMemRangeGetAttribute(list, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 4096));
	CHECK(list[0] == 0 && list[1] == -2 && list[2] == -2);
	CU(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4096));
	CHECK(value == -1);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 4096));
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(p, 4096, 9, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(p, 4097, 0, NULL));
	CU(cuMemAlloc_v2(&q, 4096));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(q, 4096, 0, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(q, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)(uintptr_t)p));
	CU(cuMemFree_v2(p));
}

static void managed_memory_is_reached_by_host_and_kernels(void **state)
{
	(void)state;
	assert_int_equal(rig_run(use_managed, NULL), 0);
	assert_int_equal(rig_stats_idle().pinned_used, 0);
}

/* ---- pointers ---- */

static unsigned number(CUpointer_attribute what, CUdeviceptr p)
{
	uint64_t v = 0;

	CU(cuPointerGetAttribute(&v, what, p));
	return (unsigned)v;
}

static void ask_pointers(void *unused)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	unsigned type = 7, on = 1;
	int ordinal = 7;
	uint64_t size = 7;
	void *out[] = { &type, &ordinal, &size };
	CUcontext ctx = rig_context(), got;
	CUdeviceptr p, q, start;
	uint64_t id[2];
	void *host;

	(void)unused;
	CU(cuMemAlloc_v2(&p, 10000));
	CU(cuMemAlloc_v2(&q, 10000));
	CU(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE));
	CU(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, p + 1));
	CHECK(got == ctx);
	CHECK(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) == CU_MEMORYTYPE_DEVICE);
	CHECK(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host) ==
	      CU_MEMORYTYPE_HOST);
	CHECK(number(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p) == 1);
	CHECK(number(CU_POINTER_ATTRIBUTE_IS_MANAGED, p) == 0);
	CHECK(number(CU_POINTER_ATTRIBUTE_MAPPED, p) == 1);
	CHECK(number(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p) == 3);
	CHECK(number(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p) == 0);
	CU(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 9999));
	CHECK(start == p);
	CU(cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	CU(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
	CHECK(id[0] != id[1]);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 10000));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&start, 0, p));
	CU(cuPointerGetAttributes(3, what, out, (CUdeviceptr)(uintptr_t)&type));
	CHECK(type == 0 && ordinal == -2 && size == 0);
	CU(cuPointerGetAttributes(3, what, out, p + 5));
	CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && size == 10000);
	CHECK(number(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p) == 0);
	CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 77));
	CHECK(number(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p) == 1);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
}

static void pointers_tell_what_they_are(void **state)
{
	(void)state;
	assert_int_equal(rig_run(ask_pointers, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registered_memory_is_reached_by_kernels),
		cmocka_unit_test(memory_of_others_is_not_registered),
		cmocka_unit_test(no_write_is_lost_when_pages_move),
		cmocka_unit_test(memory_of_the_heap_can_be_registered),
		cmocka_unit_test(registration_ends_with_its_context),
		cmocka_unit_test(managed_memory_is_reached_by_host_and_kernels),
		cmocka_unit_test(pointers_tell_what_they_are),
	};

	return cmocka_run_group_tests(tests, rig_begin_tight, rig_end);
}
