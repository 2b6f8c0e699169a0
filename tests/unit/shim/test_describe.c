/* What a launch is described as, from the arguments of each launch function. */
#include "fixture.h"

#include "shim/launch/shim_launch.h"

#define F ((uint64_t)(uintptr_t)FAKE_FUNCTION)

static const uint32_t grid[3] = { 3, 5, 7 }, block[3] = { 2, 11, 13 };
static CUstream const stream = (CUstream)0x5150;
static void *params[1], *extra[1];
static struct shim_clone own = { .handle = FAKE_FUNCTION };
static struct sched_kernel *const kernel = (struct sched_kernel *)0x4b4b;
static struct shim_kernel known = { .counted = (struct sched_kernel *)0x4b4b, .clone = &own };

/* F is known to the thread. */
static int before(void **state)
{
	struct shim_thread *t = shim_thread_self();
	struct shim_thread_kernel *e = shim_thread_fill(t, F, shim_thread_fill_begin(t));

	if (e) {
		e->kernel = &known;
	}
	return e ? fixture_before(state) : -1;
}

/* The record of a launch of that grid. */
static void check_record(const struct shim_launch *l, uint32_t flags)
{
	assert_int_equal(l->record.kind, GBPF_KIND_KERNEL);
	assert_ptr_equal(l->record.kernel, kernel);
	assert_int_equal(l->record.flags, flags);
	assert_int_equal(l->record.blocks, 3 * 5 * 7);
	assert_int_equal(l->record.threads, 2 * 11 * 13);
	assert_int_equal(l->record.smem_bytes, 4096);
	assert_true(l->record.may_hold);
	assert_false(l->record.block_ok || l->record.granted || l->record.behind);
	assert_ptr_equal(l->call.stream, stream);
	assert_null(l->clone);
	assert_null(l->form);
}

/* ... and all that it needs to be issued. */
static void check_shape(const struct shim_launch *l, void **expected)
{
	assert_ptr_equal(l->call.f, FAKE_FUNCTION);
	assert_int_equal(l->call.choice, SHIM_KERNEL_NOT_CHOSEN);
	assert_int_equal(l->call.smem, 4096);
	assert_ptr_equal(l->own_clone, &own);
	assert_true(shim_launch_may_stop(l));
	assert_memory_equal(l->call.grid, grid, sizeof(grid));
	assert_memory_equal(l->call.block, block, sizeof(block));
	assert_int_equal(l->smem, 4096);
	assert_ptr_equal(l->call.params, params);
	assert_ptr_equal(l->call.extra, expected);
}

/* What is known of it says that it cannot be stopped. */
static void test_without_clone(void **state)
{
	static struct shim_clone none;
	const uint64_t a[11] = { F };
	const struct shim_call c = { .nargs = 11 };
	struct shim_launch l;

	for (unsigned i = 0; i < 2; i++) {
		known.clone = i ? NULL : &none;
		shim_describe_kernel(&l, &c, a);
		assert_ptr_equal(l.record.kernel, kernel);
		assert_false(shim_launch_may_stop(&l));
	}
	known.clone = &own;
}

static void test_kernel(void **state)
{
	const uint64_t a[11] = {
		F, 3, 5, 7, 2, 11, 13, 4096, (uintptr_t)stream, (uintptr_t)params, (uintptr_t)extra
	};
	const struct shim_call c = { .nargs = 11 };
	struct shim_launch l;

	memset(&l, 0xa5, sizeof(l));
	shim_describe_kernel(&l, &c, a);
	check_record(&l, 0);
	check_shape(&l, extra);
	assert_null(l.call.config);
	assert_int_equal(l.call.api, SHIM_KERNEL_API_PLAIN);
	assert_false(l.call.per_thread);
}

/* cuLaunchCooperativeKernel has no extra: what is behind its arguments is not read. */
static void test_cooperative(void **state)
{
	const uint64_t a[11] = {
		F, 3, 5, 7, 2, 11, 13, 4096, (uintptr_t)stream, (uintptr_t)params, 0x5a5a
	};
	const struct shim_call c = { .nargs = 10 };
	struct shim_launch l;

	memset(&l, 0xa5, sizeof(l));
	shim_describe_kernel(&l, &c, a);
	check_record(&l, GBPF_F_COOPERATIVE);
	check_shape(&l, NULL);
	assert_int_equal(l.call.api, SHIM_KERNEL_API_COOPERATIVE);
}

static void test_kernel_ex(void **state)
{
	CUlaunchAttribute attrs[2] = { { .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
				       { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE } };
	CUlaunchConfig config = { 3, 5, 7, 2, 11, 13, 4096, stream, attrs, 2 };
	const uint64_t a[4] = { (uintptr_t)&config, F, (uintptr_t)params, (uintptr_t)extra };
	const struct shim_call c = { .nargs = 4, .per_thread = 1 };
	struct shim_launch l;

	for (int cooperative = 0; cooperative < 2; cooperative++) {
		attrs[1].value.cooperative = cooperative;
		memset(&l, 0xa5, sizeof(l));
		shim_describe_kernel_ex(&l, &c, a);
		check_record(&l, cooperative ? GBPF_F_COOPERATIVE : 0);
		check_shape(&l, extra);
		assert_ptr_equal(l.call.config, &config);
		assert_int_equal(l.call.api, SHIM_KERNEL_API_EX);
		assert_true(l.call.per_thread);
	}
	config.attrs = NULL; /* whatever their number */
	shim_describe_kernel_ex(&l, &c, a);
	check_record(&l, 0);
}

static void test_one_of_several(void **state)
{
	const CUDA_LAUNCH_PARAMS p = { FAKE_FUNCTION, 3, 5, 7, 2, 11, 13, 4096, stream, params };
	struct shim_launch l;

	memset(&l, 0xa5, sizeof(l));
	shim_describe_one_of(&l, shim_thread_self(), &p);
	check_record(&l, GBPF_F_COOPERATIVE);
	assert_false(shim_launch_may_stop(&l));
}

/* cuLaunch, cuLaunchGrid, cuLaunchGridAsync: the shape of the blocks is not known. */
static void test_legacy(void **state)
{
	const uint64_t a[4] = { F, 3, 5, (uintptr_t)stream };
	static const uint8_t nargs[] = { 1, 3, 4 };

	for (unsigned i = 0; i < 3; i++) {
		const struct shim_call c = { .nargs = nargs[i] };
		struct shim_launch l;

		memset(&l, 0xa5, sizeof(l));
		shim_describe_legacy(&l, &c, a);
		assert_int_equal(l.record.kind, GBPF_KIND_KERNEL);
		assert_ptr_equal(l.record.kernel, kernel);
		assert_int_equal(l.record.blocks, i ? 15 : 1);
		assert_int_equal(l.record.threads, 0);
		assert_ptr_equal(l.call.stream, i == 2 ? stream : CU_STREAM_LEGACY);
		assert_false(shim_launch_may_stop(&l));
		assert_null(l.call.f);
	}
}

static void test_graph(void **state)
{
	const uint64_t a[2] = { 0x7000, (uintptr_t)stream };
	struct shim_launch l;

	memset(&l, 0xa5, sizeof(l));
	shim_describe_graph(&l, a);
	assert_int_equal(l.record.kind, GBPF_KIND_GRAPH);
	assert_int_equal(l.record.blocks, 0);
	assert_null(l.call.f);
	assert_ptr_equal(l.call.stream, stream);
	assert_false(shim_launch_may_stop(&l));
}

/* An extent that no device has: the driver refuses it, and the record does not wrap. */
static void test_saturates(void **state)
{
	const uint64_t a[11] = { F, UINT32_MAX, UINT32_MAX, UINT32_MAX, 1, 1, 1 };
	const struct shim_call c = { .nargs = 11 };
	struct shim_launch l;

	shim_describe_kernel(&l, &c, a);
	assert_true(l.record.blocks == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_kernel, before),
		cmocka_unit_test_setup(test_without_clone, before),
		cmocka_unit_test_setup(test_cooperative, before),
		cmocka_unit_test_setup(test_kernel_ex, before),
		cmocka_unit_test_setup(test_one_of_several, before),
		cmocka_unit_test_setup(test_legacy, before),
		cmocka_unit_test_setup(test_graph, before),
		cmocka_unit_test_setup(test_saturates, before),
	};

	return cmocka_run_group_tests(tests, fixture_setup, NULL);
}
