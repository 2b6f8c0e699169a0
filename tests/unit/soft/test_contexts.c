/* Several contexts of a process on one GPU: they share its addresses, an allocation goes with its
 * context, and reserved addresses and mappings with the process. The answers are an H100's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

enum { CHUNK = 2 << 20 };

struct place { /* of the test's words */
	CUdeviceptr address;
	CUmemGenericAllocationHandle handle;
};

static void make_mapping(struct place *p)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	const CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					 CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	CU(cuMemAddressReserve(&p->address, CHUNK, 0, 0, 0));
	CU(cuMemCreate(&p->handle, CHUNK, &prop, 0));
	CU(cuMemMap(p->address, CHUNK, 0, p->handle, 0));
	CU(cuMemSetAccess(p->address, CHUNK, &access, 1));
}

static void end_mapping(const struct place *p)
{
	CU(cuMemUnmap(p->address, CHUNK));
	CU(cuMemRelease(p->handle));
	CU(cuMemAddressFree(p->address, CHUNK));
}

/* A kernel of the current context copies a word. */
static CUresult copy_by_kernel(CUfunction copy, CUdeviceptr to, CUdeviceptr from)
{
	void *params[] = { &to, &from };

	rig_launch(copy, 1, 1, NULL, params);
	return cuCtxSynchronize();
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v = 0;

	CU(cuMemcpyDtoH_v2(&v, p, sizeof(v)));
	return v;
}

static CUcontext context_of(CUdeviceptr p)
{
	CUcontext ctx = NULL;

	CU(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	return ctx;
}

static void shared_program(void *unused)
{
	CUdeviceptr of_a[5], own, base;
	struct place mapped;
	CUcontext a, b;
	CUfunction copy;
	size_t bytes;
	void *host;

	(void)unused;
	a = rig_context();
	make_mapping(&mapped);
	of_a[0] = mapped.address;
	CU(cuMemAlloc_v2(&of_a[1], 4096));
	CU(cuMemHostAlloc(&host, 4096, 0));
	of_a[2] = (CUdeviceptr)(uintptr_t)host;
	CU(cuMemAllocManaged(&of_a[3], 4096, CU_MEM_ATTACH_GLOBAL));
	CU(cuMemAllocAsync(&of_a[4], 4096, NULL));
	CU(cuCtxSynchronize());
	b = rig_context();
	copy = rig_function("copy_first");
	CU(cuMemAlloc_v2(&own, 4096));
	for (uint32_t i = 0; i < 5; i++) {
		CU(cuMemsetD32_v2(own, 40 + i, 1));
		CU(copy_by_kernel(copy, of_a[i], own));
		CHECK(word_at(of_a[i]) == 40 + i);
		CU(cuMemsetD32_v2(of_a[i], 50 + i, 1));
		CU(copy_by_kernel(copy, own, of_a[i]));
		CHECK(word_at(own) == 50 + i);
		CU(cuMemcpyDtoD_v2(own + 64, of_a[i], 4));
		CHECK(word_at(own + 64) == 50 + i);
	}
	CHECK(context_of(of_a[0]) == NULL && context_of(of_a[1]) == a && context_of(own) == b);
	CU(cuMemGetAddressRange_v2(&base, &bytes, of_a[1] + 5));
	CHECK(base == of_a[1] && bytes == 4096);
	CU(cuMemFree_v2(of_a[1]));
	CU(cuMemFreeHost(host));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(of_a[1]));
	end_mapping(&mapped);
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, copy_by_kernel(copy, own, of_a[0]));
}

static void contexts_use_each_others_memory(void **state)
{
	(void)state;
	assert_int_equal(rig_run(shared_program, NULL), 0);
	assert_int_equal(rig_stats_idle().memory_used, 0);
}

static void outliving_program(void *unused)
{
	struct place before, within;
	CUcontext a, b;
	CUdeviceptr own;
	CUfunction copy;

	(void)unused;
	CU(cuInit(0));
	make_mapping(&before); /* no context is needed */
	a = rig_context();
	make_mapping(&within);
	CU(cuMemsetD32_v2(before.address, 1, 16));
	CU(cuMemsetD32_v2(within.address, 2, 16));
	CU(cuCtxDestroy_v2(a));
	CHECK(rig_stats().contexts == 0 && rig_stats().memory_used == 2 * CHUNK);
	b = rig_context();
	copy = rig_function("copy_first");
	CU(cuMemAlloc_v2(&own, 4096));
	CU(copy_by_kernel(copy, own, before.address));
	CHECK(word_at(own) == 1);
	CU(copy_by_kernel(copy, own, within.address));
	CHECK(word_at(own) == 2 && word_at(within.address + 60) == 2);
	CU(cuCtxDestroy_v2(b));
	end_mapping(&within);
	end_mapping(&before);
	CHECK(rig_stats().memory_used == 0);
}

static void mappings_outlive_contexts(void **state)
{
	(void)state;
	assert_int_equal(rig_run(outliving_program, NULL), 0);
	assert_int_equal(rig_stats_unshared().memory_used, 0);
}

static void left_program(void *unused)
{
	struct place mapped[4];

	(void)unused;
	CU(cuInit(0));
	for (int i = 0; i < 4; i++) {
		make_mapping(&mapped[i]);
	}
	CU(cuMemRelease(mapped[0].handle));
	rig_context();
}

static void mappings_end_with_their_process(void **state)
{
	(void)state;
	assert_int_equal(rig_run(left_program, NULL), 0);
	assert_int_equal(rig_stats_unshared().memory_used, 0);
}

static void destroyed_program(void *pinned) /* NULL: device memory */
{
	CUdeviceptr p, own;
	CUcontext a;
	CUfunction copy;
	size_t before, after, total;
	void *host;

	CU(cuInit(0));
	rig_context();
	copy = rig_function("copy_first");
	CU(cuMemAlloc_v2(&own, 4096));
	CU(cuMemGetInfo_v2(&before, &total));
	a = rig_context();
	CU(cuMemAlloc_v2(&p, 8 << 20)); /* freed without the lock */
	CU(cuMemAlloc_v2(&p, 4096));
	if (pinned) {
		CU(cuMemHostAlloc(&host, 4096, 0));
		p = (CUdeviceptr)(uintptr_t)host;
	}
	CU(cuCtxDestroy_v2(a));
	CU(cuMemGetInfo_v2(&after, &total));
	CHECK(after == before);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(p, 0, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, pinned ? cuMemFreeHost(host) : cuMemFree_v2(p));
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, copy_by_kernel(copy, own, p));
}

static void allocations_go_with_their_context(void **state)
{
	bool host = true;

	(void)state;
	assert_int_equal(rig_run(destroyed_program, NULL), 0);
	assert_int_equal(rig_run(destroyed_program, &host), 0);
}

/* New memory is zero, whatever another context left there. */
static void reused_program(void *unused)
{
	CUdeviceptr p, q;
	CUcontext a;

	(void)unused;
	rig_context();
	for (int i = 0; i < 3; i++) {
		a = rig_context();
		CU(cuMemAlloc_v2(&p, 6 << 20));
		CU(cuMemsetD32_v2(p, 0xdeadbeef, (6 << 20) / 4));
		CU(cuCtxSynchronize());
		CU(cuCtxDestroy_v2(a));
		CU(cuMemAlloc_v2(&q, 6 << 20));
		CHECK(q <= p && p < q + (6 << 20)); /* the same pages */
		CHECK(word_at(q) == 0 && word_at(p) == 0 && word_at(q + (6 << 20) - 4) == 0);
		CU(cuMemFree_v2(q));
	}
}

static void reused_memory_is_zero(void **state)
{
	(void)state;
	assert_int_equal(rig_run(reused_program, NULL), 0);
}

#define CHURNERS 8

/* Creates and destroys contexts: their slots and streams pass from thread to thread. */
static void *churn(void *unused)
{
	CUdeviceptr p, q;
	CUcontext a;
	CUstream s;

	for (int i = 0; i < 400; i++) {
		CU(cuCtxCreate_v2(&a, 0, 0));
		CU(cuStreamCreate(&s, CU_STREAM_DEFAULT));
		for (int k = 0; k < 4; k++) { /* stay: they go with the context */
			CU(cuMemAlloc_v2(&p, 4096));
		}
		CU(cuMemAllocAsync(&q, 4096, s));
		CU(cuMemFreeAsync(q, s));
		CU(cuMemFreeAsync(p, s));
		CU(cuStreamSynchronize(s));
		CU(cuCtxDestroy_v2(a));
	}
	return unused;
}

/* Allocates and frees in a context that stays. */
static void *churn_memory(void *unused)
{
	CUdeviceptr p;
	CUcontext a;

	CU(cuCtxCreate_v2(&a, 0, 0));
	for (int i = 0; i < 4000; i++) {
		CU(cuMemAlloc_v2(&p, 4096));
		CHECK(context_of(p) == a);
		CU(cuMemFreeAsync(p, NULL));
	}
	CU(cuCtxSynchronize());
	return unused;
}

static void churn_program(void *unused)
{
	pthread_t t[CHURNERS];

	(void)unused;
	CU(cuInit(0));
	for (int i = 0; i < CHURNERS; i++) {
		CHECK(pthread_create(&t[i], NULL, i % 2 ? churn : churn_memory, NULL) == 0);
	}
	for (int i = 0; i < CHURNERS; i++) {
		CHECK(pthread_join(t[i], NULL) == 0);
	}
}

static void threads_create_and_destroy_contexts(void **state)
{
	(void)state;
	assert_int_equal(rig_run(churn_program, NULL), 0);
	assert_int_equal(rig_stats_idle().memory_used, 0);
}

/* ---- reset while other threads allocate ---- */

enum { RESETS = 300, USERS = 4 };

static uint32_t resets_over; /* [atomic] */

/* The answers of calls on a context that may end at any moment; a memset of memory that went with
 * it is an illegal access. */
static bool is_expected(CUresult r)
{
	return r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY ||
	       r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_CONTEXT ||
	       r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       r == CUDA_ERROR_ILLEGAL_ADDRESS;
}

#define ANY(call) CHECK(is_expected(call))

static void use_memory(void)
{
	CUdeviceptr p = 0, q = 0;
	void *host = NULL;
	CUresult r = cuMemAlloc_v2(&p, 100000);

	ANY(r);
	if (r == CUDA_SUCCESS) {
		ANY(cuMemsetD8_v2(p, 1, 1000));
		ANY(cuMemFree_v2(p));
	}
	r = cuMemAllocAsync(&q, 5000, NULL);
	ANY(r);
	if (r == CUDA_SUCCESS) {
		ANY(cuMemFreeAsync(q, NULL));
	}
	r = cuMemAllocHost_v2(&host, 5000);
	ANY(r);
	if (r == CUDA_SUCCESS) {
		ANY(cuMemFreeHost(host));
	}
}

static void *user_main(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&resets_over, __ATOMIC_ACQUIRE)) {
		CUcontext ctx;

		CU(cuDevicePrimaryCtxRetain(&ctx, 0));
		ANY(cuCtxSetCurrent(ctx));
		for (int i = 0; i < 3; i++) {
			use_memory();
		}
	}
	return NULL;
}

static void reset_program(void *unused)
{
	pthread_t t[USERS];

	(void)unused;
	CU(cuInit(0));
	for (int i = 0; i < USERS; i++) {
		CHECK(pthread_create(&t[i], NULL, user_main, NULL) == 0);
	}
	for (int i = 0; i < RESETS; i++) {
		CU(cuDevicePrimaryCtxReset_v2(0));
	}
	__atomic_store_n(&resets_over, 1u, __ATOMIC_RELEASE);
	for (int i = 0; i < USERS; i++) {
		CHECK(pthread_join(t[i], NULL) == 0);
	}
	CU(cuDevicePrimaryCtxReset_v2(0));
}

static void a_reset_fails_calls_of_other_threads(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(rig_run(reset_program, NULL), 0);
		rig_stats_unshared();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_use_each_others_memory),
		cmocka_unit_test(mappings_outlive_contexts),
		cmocka_unit_test(mappings_end_with_their_process),
		cmocka_unit_test(allocations_go_with_their_context),
		cmocka_unit_test(reused_memory_is_zero),
		cmocka_unit_test(threads_create_and_destroy_contexts),
		cmocka_unit_test(a_reset_fails_calls_of_other_threads),
	};

	return cmocka_run_group_tests_name("soft contexts", tests, rig_begin_small, rig_end);
}
