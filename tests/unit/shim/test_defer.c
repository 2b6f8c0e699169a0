/* A deferred call has the meaning that it had when it was made. */
#include "fixture.h"
#include "variants.h"

#include <string.h>

static CUstream named;
static char pinned[4096];

static struct fake_record record_of(uint32_t index)
{
	int i = fixture_find(index);

	assert_true(i >= 0);
	return fake->get((unsigned)i);
}

static void kernel_parameters_are_copied(void **state)
{
	uint64_t value = 41;
	void *params[] = { &value };
	struct sched_queue *q = double_queue(named);

	fake->params(1);
	q->defer = true;
	assert_int_equal(cuLaunchKernel(FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, named, params, NULL),
			 CUDA_SUCCESS);
	value = 7;
	params[0] = NULL;
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), 0);
	double_issue();
	assert_int_equal(record_of(CUABI_IDX_cuLaunchKernel).data, 41);
}

static void parameter_buffers_are_copied(void **state)
{
	uint64_t buffer[2] = { 42, 43 };
	size_t bytes = sizeof(buffer);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	double_queue(named)->defer = true;
	assert_int_equal(cuLaunchKernel(FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, named, NULL, extra),
			 CUDA_SUCCESS);
	memset(buffer, 0, sizeof(buffer));
	memset(extra, 0, sizeof(extra));
	double_issue();
	assert_int_equal(record_of(CUABI_IDX_cuLaunchKernel).data, 42);
}

/* If the driver does not report the parameters' layout, the caller drains the queue and launches
 * itself. */
static void unknown_parameters_wait(void **state)
{
	uint64_t value = 41;
	void *params[] = { &value };

	fixture_defer_one(named);
	double_queue(named)->defer = true;
	assert_int_equal(cuLaunchKernel(FAKE_FUNCTION, 2, 1, 1, 32, 1, 1, 0, named, params, NULL),
			 CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), 2);
	assert_int_equal(record_of(CUABI_IDX_cuLaunchKernel).a[1], 1);
	assert_false(double_queue(named)->launch.may_hold);
}

/* Their callers get the driver's error. */
static void shapes_that_may_be_refused_wait(void **state)
{
	static const uint32_t shapes[][6] = {
		{ 0, 1, 1, 32, 1, 1 },		{ 0x80000000u, 1, 1, 32, 1, 1 },
		{ 1, 65536, 1, 32, 1, 1 },	{ 1, 1, 65536, 32, 1, 1 },
		{ 1, 1, 1, 0, 1, 1 },		{ 1, 1, 1, 1025, 1, 1 },
		{ 1, 1, 1, 1, 1025, 1 },	{ 1, 1, 1, 1, 1, 65 },
		{ 1, 1, 1, 32, 33, 1 },		{ 1, 1, 1, 65536, 65536, 1 },
		{ 1, 1, 1, 3, 0xaaaaaaabu, 1 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		const uint32_t *n = shapes[i];
		CUlaunchConfig config = { n[0], n[1], n[2], n[3], n[4], n[5], 0, named, NULL, 0 };

		double_queue(named)->defer = true;
		assert_int_equal(cuLaunchKernel(FAKE_FUNCTION, n[0], n[1], n[2], n[3], n[4], n[5],
						0, named, NULL, NULL),
				 CUDA_SUCCESS);
		assert_int_equal(double_deferred(), 0);
		assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), i + 1);
		double_queue(named)->defer = true;
		assert_int_equal(cuLaunchKernelEx(&config, FAKE_FUNCTION, NULL, NULL),
				 CUDA_SUCCESS);
		assert_int_equal(double_deferred(), 0);
		assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernelEx), i + 1);
	}
}

static void launch_configurations_are_copied(void **state)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY };
	CUlaunchConfig config = { 5, 1, 1, 32, 1, 1, 0, named, &attr, 1 };

	double_queue(named)->defer = true;
	assert_int_equal(cuLaunchKernelEx(&config, FAKE_FUNCTION, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 1);
	memset(&config, 0, sizeof(config));
	double_issue();
	assert_int_equal(record_of(CUABI_IDX_cuLaunchKernelEx).data, 5);
}

/* Attributes that return results. */
static void launches_with_results_wait(void **state)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT };
	CUlaunchConfig config = { 5, 1, 1, 32, 1, 1, 0, named, &attr, 1 };

	double_queue(named)->defer = true;
	assert_int_equal(cuLaunchKernelEx(&config, FAKE_FUNCTION, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernelEx), 1);
}

/* Pageable memory belongs to the program again when the call returns; pinned memory is read in
 * stream order. */
static void pageable_sources_are_copied(void **state)
{
	uint64_t value = 11;

	fixture_defer_one(named);
	assert_int_equal(cuMemcpyHtoDAsync(0xd0000000u, &value, sizeof(value), named),
			 CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 2);
	value = 12;
	double_issue();
	assert_int_equal(record_of(CUABI_IDX_cuMemcpyHtoDAsync_v2).data, 11);
}

static void pinned_sources_are_not_copied(void **state)
{
	fake->pin(pinned, sizeof(pinned));
	fixture_defer_one(named);
	pinned[0] = 1;
	assert_int_equal(cuMemcpyHtoDAsync(0xd0000000u, pinned, 8, named), CUDA_SUCCESS);
	pinned[0] = 2;
	double_issue();
	assert_int_equal(record_of(CUABI_IDX_cuMemcpyHtoDAsync_v2).data & 0xff, 2);
}

static void large_pageable_sources_wait(void **state)
{
	static char large[65537];

	fixture_defer_one(named);
	assert_int_equal(cuMemcpyHtoDAsync(0xd0000000u, large, sizeof(large), named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_find(CUABI_IDX_cuMemcpyHtoDAsync_v2) >
				 fixture_find(CUABI_IDX_cuLaunchKernel),
			 1);
}

/* A copy to pageable memory is complete when the call returns. */
static void pageable_destinations_wait(void **state)
{
	uint64_t value;

	fixture_defer_one(named);
	assert_int_equal(cuMemcpyDtoHAsync(&value, 0xd0000000u, sizeof(value), named),
			 CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	fake->pin(pinned, sizeof(pinned));
	fixture_defer_one(named);
	assert_int_equal(cuMemcpyDtoHAsync(pinned, 0xd0000000u, 8, named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 2);
}

static void copy_descriptors_are_copied(void **state)
{
	CUDA_MEMCPY2D m = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .WidthInBytes = 64,
			    .Height = 3 };

	fixture_defer_one(named);
	assert_int_equal(cuMemcpy2DAsync(&m, named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 2);
	double_issue();
	assert_true(record_of(CUABI_IDX_cuMemcpy2DAsync_v2).a[0] != (uintptr_t)&m);
	fixture_defer_one(named);
	m.dstMemoryType = CU_MEMORYTYPE_HOST; /* pageable */
	assert_int_equal(cuMemcpy2DAsync(&m, named), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
}

/* Deferred calls run in their stream's context, whatever the submitting thread's context is. */
static void deferred_calls_run_in_their_context(void **state)
{
	CUcontext popped;

	fixture_defer_one(named);
	shim_real.cuCtxPushCurrent_v2((CUcontext)0xbad);
	double_issue();
	shim_real.cuCtxPopCurrent_v2(&popped);
	assert_ptr_equal(record_of(CUABI_IDX_cuLaunchKernel).ctx, FAKE_CTX);
}

/* Another thread cannot name a per-thread default stream, so its calls are not deferred. */
static void per_thread_streams_defer_nothing(void **state)
{
	struct sched_queue *q;

	assert_int_equal(fixture_launch(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	q = double_queue(CU_STREAM_PER_THREAD);
	assert_non_null(q);
	q->defer = true;
	fake->reset();
	assert_int_equal(fixture_launch(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), 1);
}

static int setup(void **state)
{
	if (fixture_setup(state) != 0) {
		return -1;
	}
	named = fixture_stream(0);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup(f, fixture_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(kernel_parameters_are_copied),	TEST(parameter_buffers_are_copied),
		TEST(unknown_parameters_wait),		TEST(shapes_that_may_be_refused_wait),
		TEST(launch_configurations_are_copied), TEST(launches_with_results_wait),
		TEST(pageable_sources_are_copied),	TEST(pinned_sources_are_not_copied),
		TEST(large_pageable_sources_wait),	TEST(pageable_destinations_wait),
		TEST(copy_descriptors_are_copied),	TEST(deferred_calls_run_in_their_context),
		TEST(per_thread_streams_defer_nothing),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
