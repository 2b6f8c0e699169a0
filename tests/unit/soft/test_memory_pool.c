/* Stream-ordered memory: order, reuse, thresholds of pools, sharing with other processes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "rig.h"

#define MIB (1u << 20)
#define STEP (32u * MIB) /* by which a pool grows */

static int pair[2];

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v;

	CU(cuMemcpyDtoH_v2(&v, p, sizeof(v)));
	return v;
}

static uint64_t attribute(CUmemoryPool p, CUmemPool_attribute what)
{
	uint64_t v = 0;

	CU(cuMemPoolGetAttribute(p, what, &v));
	return v;
}

static void counts(void *unused)
{
	CUmemoryPool pool, other;
	CUdeviceptr p, q;
	CUstream s;
	uint64_t keep = 64 * MIB;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cuDeviceGetMemPool(&other, 0));
	CHECK(pool == other);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
	CU(cuMemAllocAsync(&p, 3 * MIB, s));
	CU(cuMemAllocAsync(&q, 1000, s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB + 1000);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == STEP);
	CU(cuMemFreeAsync(p, s));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, s));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(p, 1, 1));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 1000);
	CU(cuStreamSynchronize(s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == STEP); /* q is in it */
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 3 * MIB + 1000);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemAllocAsync(&p, 3 * MIB, s));
	CU(cuMemFreeAsync(p, s));
	CU(cuStreamSynchronize(s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 * MIB);
	CU(cuMemPoolTrimTo(pool, 0));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == STEP);
	keep = 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &keep));
	keep = 0;
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &keep));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1000);
	CU(cuMemFree_v2(q));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
	CU(cuMemAllocAsync(&p, 0, s));
	CHECK(p == 0);
	CU(cuMemFreeAsync(p, s));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&p, ~0ull, s));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&p, 1ull << 40, s));
}

static void pools_count_what_they_keep(void **state)
{
	(void)state;
	assert_int_equal(rig_run(counts, NULL), 0);
	rig_stats_unshared();
}

static uint64_t device_free(void)
{
	size_t now, total;

	CU(cuMemGetInfo_v2(&now, &total));
	return now;
}

static uint64_t reserved(CUmemoryPool p)
{
	return attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

/* 32 MiB of 8 MiB each, one more, one that is larger than a step; and back. */
static void grow_in_steps(CUmemoryPool pool, CUstream s)
{
	uint64_t begin = device_free(), keep = 2 * STEP, none = 0;
	CUdeviceptr p[5], large, again;

	for (int i = 0; i < 5; i++) {
		CU(cuMemAllocFromPoolAsync(&p[i], 8 * MIB, pool, s));
		CHECK(reserved(pool) == (i < 4 ? STEP : 2 * STEP));
		CHECK(begin - device_free() == reserved(pool));
	}
	CU(cuMemAllocFromPoolAsync(&large, 40 * MIB, pool, s));
	CHECK(reserved(pool) == 4 * STEP);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 80 * MIB);
	CU(cuMemAllocFromPoolAsync(&again, 24 * MIB, pool, s)); /* next to one of the others */
	CHECK(reserved(pool) == 4 * STEP);
	CU(cuMemFreeAsync(again, s));
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemFreeAsync(large, s));
	CU(cuStreamSynchronize(s));
	CHECK(reserved(pool) == 2 * STEP);
	for (int i = 0; i < 4; i++) {
		CU(cuMemFreeAsync(p[i], s));
	}
	CU(cuStreamSynchronize(s));
	CHECK(reserved(pool) == 2 * STEP && begin - device_free() == 2 * STEP);
	CU(cuMemAllocFromPoolAsync(&again, 32 * MIB, pool, s)); /* the four, joined again */
	CHECK(reserved(pool) == 2 * STEP);
	CU(cuMemFreeAsync(again, s));
	CU(cuMemFreeAsync(p[4], s));
	CU(cuStreamSynchronize(s));
	CU(cuMemPoolTrimTo(pool, STEP));
	CHECK(reserved(pool) == STEP && begin - device_free() == STEP);
	CU(cuMemPoolTrimTo(pool, 0));
	CHECK(reserved(pool) == 0 && device_free() == begin);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 4 * STEP);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 104 * MIB);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
}

static void steps(void *unused)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemoryPool pool;
	CUstream s;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	grow_in_steps(pool, s);
	CU(cuMemPoolCreate(&pool, &props));
	grow_in_steps(pool, s);
	CU(cuMemPoolDestroy(pool));
}

static void pools_grow_in_steps(void **state)
{
	(void)state;
	rig_restart((const char *const[]){ "--mem", "256M", NULL });
	assert_int_equal(rig_run(steps, NULL), 0);
	rig_stats_unshared();
	rig_restart((const char *const[]){ "--mem", "64M", NULL });
}

/* Where no step fits, a pool takes what is left in units of 2 MiB. */
static void last_step(void *unused)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;
	size_t left;

	(void)unused;
	rig_context();
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	left = device_free() - 3 * MIB;
	CU(cuMemAlloc_v2(&p, left));
	CU(cuMemAllocAsync(&q, MIB, NULL));
	CHECK(reserved(pool) == 2 * MIB);
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&q, 2 * MIB, NULL));
}

static void the_last_step_may_be_smaller(void **state)
{
	(void)state;
	assert_int_equal(rig_run(last_step, NULL), 0);
	rig_stats_unshared();
}

/* While a waiting kernel blocks stream a, only a may reuse what it frees. */
static void two_streams(void *unused)
{
	uint64_t keep = ~0ull;
	CUdeviceptr p, q, r, flag;
	CUmemoryPool pool;
	CUstream a, b;
	void *params[] = { &flag };

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemHostAlloc((void **)&flag, 4096, 0));
	*(volatile uint32_t *)(uintptr_t)flag = 0;
	CU(cuMemAllocAsync(&p, MIB, a));
	rig_launch(rig_function("until"), 1, 1, a, params);
	CU(cuMemFreeAsync(p, a));
	CU(cuMemAllocAsync(&q, MIB, b));
	CHECK(q != p); /* the kernel may still use p */
	CU(cuMemAllocAsync(&r, MIB, a));
	CHECK(r == p); /* ordered after the free */
	CU(cuMemFreeAsync(r, a));
	*(volatile uint32_t *)(uintptr_t)flag = 1;
	CU(cuStreamSynchronize(a));
	CU(cuMemAllocAsync(&r, MIB, b));
	CHECK(r == p); /* the work before the free has ended */
}

static void memory_is_used_again_in_order(void **state)
{
	(void)state;
	assert_int_equal(rig_run(two_streams, NULL), 0);
	rig_stats_unshared();
}

/* Many streams allocate, write, check and free: no stream sees data of another. */
static void churn(void *unused)
{
	enum { STREAMS = 4, ROUNDS = 200 };
	static CUdeviceptr bad[STREAMS];
	CUstream s[STREAMS];
	CUdeviceptr p[STREAMS] = { 0 }, seen[STREAMS];
	unsigned seed = 1;

	(void)unused;
	(void)bad;
	rig_context();
	for (int i = 0; i < STREAMS; i++) {
		CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		CU(cuMemAlloc_v2(&seen[i], ROUNDS * 4));
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < STREAMS; i++) {
			size_t bytes;

			seed = seed * 1103515245 + 12345;
			bytes = 4096 + (seed >> 16) % 200000 / 4 * 4;
			CU(cuMemAllocAsync(&p[i], bytes, s[i]));
			CU(cuMemsetD32Async(p[i], (unsigned)(round * STREAMS + i), bytes / 4,
					    s[i]));
			CU(cuMemcpyDtoDAsync_v2(seen[i] + (CUdeviceptr)round * 4, p[i] + bytes - 4,
						4, s[i]));
			CU(cuMemFreeAsync(p[i], s[i]));
		}
		if (round % 50 == 49) {
			CU(cuCtxSynchronize());
		}
	}
	for (int i = 0; i < STREAMS; i++) {
		CU(cuStreamSynchronize(s[i]));
		for (unsigned round = 0; round < ROUNDS; round++) {
			CHECK(word_at(seen[i] + round * 4) == round * STREAMS + (unsigned)i);
		}
	}
}

static void streams_never_share_live_memory(void **state)
{
	(void)state;
	assert_int_equal(rig_run(churn, NULL), 0);
	rig_stats_unshared();
}

static void own_pool(void *unused)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = 8 * MIB };
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	CUmemAccess_flags flags;
	CUmemoryPool pool, now, of;
	CUdeviceptr p, q;

	(void)unused;
	rig_context();
	CU(cuMemPoolCreate(&pool, &props));
	CU(cuMemPoolGetAccess(&flags, pool, &here));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, NULL));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&q, 6 * MIB, pool, NULL));
	CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + 5));
	CHECK(of == pool);
	CU(cuDeviceSetMemPool(0, pool));
	CU(cuDeviceGetMemPool(&now, 0));
	CHECK(now == pool);
	CU(cuMemAllocAsync(&q, MIB, NULL));
	CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
	CHECK(of == pool);
	CU(cuMemPoolDestroy(pool));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&q, MIB, pool, NULL));
	CU(cuDeviceGetMemPool(&now, 0));
	CHECK(now != pool);
	CU(cuMemsetD32_v2(p, 9, 1)); /* remains until it is freed */
	CHECK(word_at(p) == 9);
	CU(cuMemFreeAsync(p, NULL));
	CU(cuMemFreeAsync(q, NULL));
	CU(cuCtxSynchronize());
	props.location.id = 99;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
}

static void pools_can_be_made(void **state)
{
	(void)state;
	assert_int_equal(rig_run(own_pool, NULL), 0);
	rig_stats_unshared();
}

/* When memory is short, pools release unused blocks to other users. */
static void fill_up(void *unused)
{
	uint64_t keep = ~0ull;
	CUmemoryPool pool;
	CUdeviceptr p;
	CUstream a, b;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	for (int i = 0; i < 20; i++) {
		CU(cuMemAllocAsync(&p, 40 * MIB, i & 1 ? a : b));
		CU(cuMemFreeAsync(p, i & 1 ? a : b));
		CU(cuMemAllocAsync(&p, 50 * MIB, i & 1 ? b : a));
		CU(cuMemFreeAsync(p, i & 1 ? b : a));
	}
}

static void pooled_memory_is_released_when_needed(void **state)
{
	(void)state;
	assert_int_equal(rig_run(fill_up, NULL), 0);
	rig_stats_unshared();
}

static void giver(void *unused)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemPoolPtrExportData data;
	CUmemoryPool pool, plain;
	CUdeviceptr p;
	int fd;

	(void)unused;
	close(pair[1]);
	rig_context();
	CU(cuMemPoolCreate(&pool, &props));
	CU(cuDeviceGetDefaultMemPool(&plain, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemPoolExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					       0));
	CU(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	CU(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL));
	CU(cuMemsetD32_v2(p, 11, MIB / 4));
	CU(cuCtxSynchronize());
	CU(cuMemPoolExportPointer(&data, p));
	CHECK(msg_send(pair[0], &data, sizeof(data), &fd, 1) == 0);
	CHECK(read(pair[0], &data, 1) == 1);
	CHECK(word_at(p) == 12);
	CU(cuMemFreeAsync(p, NULL));
	CU(cuCtxSynchronize());
}

static void taker(void *unused)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr p, q;
	int fds[FD_PASS_MAX];
	unsigned n;

	(void)unused;
	close(pair[0]);
	rig_context();
	CHECK(msg_recv(pair[1], &data, sizeof(data), fds, &n) == sizeof(data) && n == 1);
	CU(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fds[0],
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fds[0]);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&q, MIB, pool, NULL));
	CU(cuMemPoolImportPointer(&p, pool, &data));
	CHECK(word_at(p + MIB - 4) == 11);
	CU(cuMemsetD32_v2(p, 12, 1));
	CU(cuMemFreeAsync(p, NULL));
	CU(cuCtxSynchronize());
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, NULL));
	data.reserved[50] ^= 1;
	data.reserved[0] ^= 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&p, pool, &data));
	CHECK(write(pair[1], "x", 1) == 1);
}

static void pools_reach_other_processes(void **state)
{
	pid_t a, b;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	a = rig_spawn(giver, NULL);
	b = rig_spawn(taker, NULL);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(rig_wait(b), 0);
	assert_int_equal(rig_wait(a), 0);
	rig_stats_unshared();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pools_count_what_they_keep),
		cmocka_unit_test(pools_grow_in_steps),
		cmocka_unit_test(the_last_step_may_be_smaller),
		cmocka_unit_test(memory_is_used_again_in_order),
		cmocka_unit_test(streams_never_share_live_memory),
		cmocka_unit_test(pools_can_be_made),
		cmocka_unit_test(pooled_memory_is_released_when_needed),
		cmocka_unit_test(pools_reach_other_processes),
	};

	return cmocka_run_group_tests(tests, rig_begin_tight, rig_end);
}
