/* How long it is remembered which handles name patched kernels: as long as they do. The driver is
 * not asked again without need, and a handle that it reuses never finds the earlier kernel. */
#include "code_rig.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/kernel/clone.h"

#define OTHERS 20u

static uint64_t address = 0x1234;
static uint32_t number = 77;
/* With room behind them: the rig reads the stub's argument there also where none is passed. */
static void *two_params[3] = { &address, &number };

static CUresult get_two(CUfunction *ret, CUmodule m, const char *name)
{
	*ret = RIG_TWO;
	return CUDA_SUCCESS;
}

static CUmodule load_as(CUmodule m)
{
	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	return m;
}

static CUmodule load_unpatched_as(CUmodule m)
{
	setenv("GBPF_BLOCK", "off", 1);
	load_as(m);
	unsetenv("GBPF_BLOCK");
	return m;
}

static CUlibrary load_library(void)
{
	CUlibrary l = RIG_LIBRARY;

	assert_int_equal(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, NULL, NULL, 0), 0);
	return l;
}

/* The program gets the handle RIG_TWO of that module's kernel. */
static void get(CUmodule m, const char *name)
{
	CUfunction f;

	assert_int_equal(cuModuleGetFunction(&f, m, name), CUDA_SUCCESS);
}

/* Returns true if the launch passes the stub's argument. */
static bool launch_is_patched(CUfunction f)
{
	rig_seen.zero = false;
	two_params[2] = NULL;
	assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL), 0);
	return rig_seen.zero;
}

static bool kernel_is_patched(void)
{
	return launch_is_patched((CUfunction)(void *)RIG_KERNEL);
}

static CUmodule other(unsigned i)
{
	return (CUmodule)(uintptr_t)(0x20000 + 0x100 * i);
}

static void launch_all(void)
{
	assert_true(launch_is_patched(RIG_TWO));
	assert_true(kernel_is_patched());
	assert_false(launch_is_patched(RIG_OTHER));
}

static void *launch_all_on_a_thread(void *arg)
{
	launch_all();
	return arg;
}

/* ---- what remains true ---- */

static void loads_cause_no_lookups(void **state)
{
	CUmodule m = load_as(RIG_MODULE);
	CUlibrary l = load_library();
	pthread_t thread;

	launch_all();
	rig_lookups = 0;
	for (unsigned i = 0; i < OTHERS; i++) {
		load_as(other(i));
		launch_all();
	}
	assert_int_equal(pthread_create(&thread, NULL, launch_all_on_a_thread, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(rig_lookups, 0);
	for (unsigned i = 0; i < OTHERS; i++) {
		assert_int_equal(cuModuleUnload(other(i)), CUDA_SUCCESS);
	}
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void unloading_forgets_no_other_images_kernels(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	load_as(other(0));
	assert_true(launch_is_patched(RIG_TWO));
	rig_lookups = 0;
	assert_int_equal(cuModuleUnload(other(0)), CUDA_SUCCESS);
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(rig_lookups, 0);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static CUmodule next_module;

static CUresult get_module(CUmodule *ret, CUlibrary l)
{
	*ret = next_module;
	return CUDA_SUCCESS;
}

static void asking_for_a_librarys_module_forgets_nothing(void **state)
{
	CUresult (*before)(CUmodule * ret, CUlibrary l) = shim_driver.cuLibraryGetModule;
	CUmodule m, first = load_as(RIG_MODULE);
	CUlibrary l = load_library();

	shim_driver.cuLibraryGetModule = get_module;
	next_module = RIG_OTHER_MODULE;
	assert_int_equal(cuLibraryGetModule(&m, l), CUDA_SUCCESS);
	assert_true(launch_is_patched(RIG_TWO));
	assert_true(launch_is_patched(RIG_ITS_FUNCTION));
	rig_lookups = 0;
	assert_int_equal(cuLibraryGetModule(&m, l), CUDA_SUCCESS);
	assert_true(launch_is_patched(RIG_TWO));
	assert_true(launch_is_patched(RIG_ITS_FUNCTION));
	assert_int_equal(rig_lookups, 0);
	shim_driver.cuLibraryGetModule = before;
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	assert_int_equal(cuModuleUnload(first), CUDA_SUCCESS);
}

/* ---- handles that the driver may reuse ---- */

static void unloaded_modules_kernels_are_forgotten(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_false(launch_is_patched(RIG_TWO));
	m = load_unpatched_as(RIG_MODULE);
	assert_false(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	m = load_as(RIG_MODULE);
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void a_module_that_is_not_unloaded_keeps_its_kernels(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	assert_true(launch_is_patched(RIG_TWO));
	fake->fail_with(CUABI_IDX_cuModuleUnload, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuModuleUnload(m), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fake->reset();
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_false(launch_is_patched(RIG_TWO));
}

static void unloaded_librarys_kernels_are_forgotten(void **state)
{
	CUlibrary l = load_library();
	CUfunction f = NULL;

	assert_int_equal(cuKernelGetFunction(&f, RIG_KERNEL), CUDA_SUCCESS);
	assert_true(kernel_is_patched());
	assert_true(launch_is_patched(f));
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	assert_false(kernel_is_patched());
	assert_false(launch_is_patched(f));
}

/* The functions of a library's kernels end with the context, too; the rig's driver answers for
 * RIG_ITS_FUNCTION that it is of a module that nothing is known of. */
static void kernels_of_a_context_that_ends_are_forgotten(void **state)
{
	static CUresult (*const ways[])(CUcontext ctx) = { cuCtxDestroy, cuCtxDestroy_v2 };

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		get(load_as(RIG_MODULE), "two");
		assert_true(launch_is_patched(RIG_TWO));
		assert_int_equal(ways[i](FAKE_CTX), CUDA_SUCCESS);
		assert_false(launch_is_patched(RIG_TWO));
	}
}

static void library_kernels_survive_a_context(void **state)
{
	CUlibrary l = load_library();
	CUfunction f = NULL;

	assert_int_equal(cuKernelGetFunction(&f, RIG_KERNEL), CUDA_SUCCESS);
	assert_true(launch_is_patched(f));
	rig_lookups = 0;
	assert_int_equal(cuCtxDestroy_v2(FAKE_CTX), CUDA_SUCCESS);
	assert_true(kernel_is_patched());
	assert_int_not_equal(rig_lookups, 0); /* a function may have had this handle */
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
}

static void kernels_of_a_reset_device_are_forgotten(void **state)
{
	static CUresult (*const ways[])(CUdevice d) = { cuDevicePrimaryCtxReset,
							cuDevicePrimaryCtxReset_v2 };

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		get(load_as(RIG_MODULE), "two");
		assert_true(launch_is_patched(RIG_TWO));
		assert_int_equal(ways[i](0), CUDA_SUCCESS);
		assert_false(launch_is_patched(RIG_TWO));
	}
}

static CUresult release_last(CUdevice d)
{
	rig_primary_active = 0;
	return CUDA_SUCCESS;
}

/* Others than the program may hold references of the primary context. */
static void kernels_are_known_until_the_primary_context_is_gone(void **state)
{
	CUresult (*before)(CUdevice d) = shim_real.cuDevicePrimaryCtxRelease_v2;

	get(load_as(RIG_MODULE), "two");
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	assert_true(launch_is_patched(RIG_TWO));
	shim_real.cuDevicePrimaryCtxRelease_v2 = release_last;
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	shim_real.cuDevicePrimaryCtxRelease_v2 = before;
	assert_false(launch_is_patched(RIG_TWO));
}

static void a_context_that_is_not_destroyed_keeps_its_kernels(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	get(m, "two");
	fake->fail_with(CUABI_IDX_cuCtxDestroy_v2, CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxDestroy_v2(FAKE_CTX), CUDA_ERROR_INVALID_CONTEXT);
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuCtxDetach(FAKE_CTX), CUDA_SUCCESS); /* it is still current */
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* An unload that the shim does not see, by a private call of the driver. */
static void reused_module_handles_are_noticed(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	assert_true(launch_is_patched(RIG_TWO));
	load_unpatched_as(RIG_MODULE);
	assert_false(launch_is_patched(RIG_TWO));
	get(load_as(RIG_MODULE), "two");
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* Its image is gone, and the program need not ask for its kernels again. */
static void clones_of_a_former_load_are_excluded(void **state)
{
	struct shim_clone *old;

	get(load_as(RIG_MODULE), "two");
	old = shim_clone_get(RIG_TWO);
	assert_non_null(old->code);
	load_as(RIG_MODULE);
	assert_int_equal(old->excluded, SHIM_CLONE_FORMER);
	assert_null(shim_clone_get(RIG_TWO));
	shim_clone_exclude(RIG_TWO); /* does not read its code, which is freed */
	assert_int_equal(old->excluded, SHIM_CLONE_FORMER);
	assert_true(launch_is_patched(RIG_TWO));
	get(RIG_MODULE, "two");
	assert_non_null(shim_clone_get(RIG_TWO)->code);
	assert_int_equal(shim_clone_get(RIG_TWO)->excluded, 0);
	assert_int_equal(cuModuleUnload(RIG_MODULE), CUDA_SUCCESS);
}

static void clones_of_a_module_whose_handle_a_librarys_has_are_excluded(void **state)
{
	CUresult (*before)(CUmodule * ret, CUlibrary l) = shim_driver.cuLibraryGetModule;
	struct shim_clone *old;
	CUlibrary l = load_library();
	CUmodule m;

	shim_driver.cuLibraryGetModule = get_module;
	next_module = load_as(RIG_OTHER_MODULE);
	get(RIG_OTHER_MODULE, "two");
	old = shim_clone_get(RIG_TWO);
	assert_int_equal(cuLibraryGetModule(&m, l), CUDA_SUCCESS);
	assert_int_equal(old->excluded, SHIM_CLONE_FORMER);
	get(RIG_OTHER_MODULE, "two");
	assert_int_equal(cuLibraryGetModule(&m, l), CUDA_SUCCESS); /* asked for again */
	assert_int_equal(shim_clone_get(RIG_TWO)->excluded, 0);
	shim_driver.cuLibraryGetModule = before;
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
}

static unsigned asked;

static CUresult count_attribute(int *ret, CUfunction_attribute what, CUfunction f)
{
	asked += f == RIG_TWO && what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	*ret = 2048;
	return CUDA_SUCCESS;
}

/* Else cuFuncSetAttribute() would not know that the program sets the same limit again. */
static void only_clones_of_former_loads_keep_their_limits(void **state)
{
	CUresult (*before)(int *, CUfunction_attribute, CUfunction) = shim_real.cuFuncGetAttribute;
	struct shim_clone *t;

	get(load_as(RIG_MODULE), "two");
	t = shim_clone_get(RIG_TWO);
	shim_real.cuFuncGetAttribute = count_attribute;
	t->excluded = SHIM_CLONE_HUNG;
	shim_clone_refresh(RIG_MODULE, RIG_TWO);
	assert_int_equal(asked, 1);
	assert_int_equal(t->max_smem_bytes, 2048);
	t->excluded = SHIM_CLONE_FORMER;
	shim_clone_refresh(RIG_MODULE, RIG_TWO);
	assert_int_equal(asked, 1);
	shim_real.cuFuncGetAttribute = before;
	assert_int_equal(cuModuleUnload(RIG_MODULE), CUDA_SUCCESS);
}

static void reused_function_handles_are_noticed(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	assert_true(launch_is_patched(RIG_TWO));
	rig_lookups = 0;
	get(RIG_OTHER_MODULE, "two");
	assert_true(launch_is_patched(RIG_TWO)); /* what the rig's driver says of it */
	assert_int_not_equal(rig_lookups, 0);
	get(m, "unpatched");
	assert_false(launch_is_patched(RIG_TWO));
	get(m, "two");
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* Only a library's function can have an owner that is not known. */
static void a_modules_kernel_is_no_other_modules(void **state)
{
	CUmodule m = load_as(RIG_MODULE);
	CUlibrary l;

	assert_false(launch_is_patched(RIG_ITS_FUNCTION));
	l = load_library();
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_true(launch_is_patched(RIG_ITS_FUNCTION));
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
}

static void refused_handles_are_not_remembered(void **state)
{
	CUmodule m = load_as(RIG_MODULE);

	rig_invalid = RIG_TWO;
	assert_false(launch_is_patched(RIG_TWO));
	rig_invalid = NULL;
	load_as(other(0));
	assert_true(launch_is_patched(RIG_TWO));
	assert_int_equal(cuModuleUnload(other(0)), CUDA_SUCCESS);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static int setup(void **state)
{
	int err = rig_setup(state);

	shim_driver.cuModuleGetFunction = get_two;
	shim_real.cuModuleGetFunction = get_two;
	return err;
}

#define TEST(f) cmocka_unit_test_setup(f, rig_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(loads_cause_no_lookups),
		TEST(unloading_forgets_no_other_images_kernels),
		TEST(asking_for_a_librarys_module_forgets_nothing),
		TEST(unloaded_modules_kernels_are_forgotten),
		TEST(a_module_that_is_not_unloaded_keeps_its_kernels),
		TEST(unloaded_librarys_kernels_are_forgotten),
		TEST(kernels_of_a_context_that_ends_are_forgotten),
		TEST(library_kernels_survive_a_context),
		TEST(kernels_of_a_reset_device_are_forgotten),
		TEST(kernels_are_known_until_the_primary_context_is_gone),
		TEST(a_context_that_is_not_destroyed_keeps_its_kernels),
		TEST(reused_module_handles_are_noticed),
		TEST(clones_of_a_former_load_are_excluded),
		TEST(clones_of_a_module_whose_handle_a_librarys_has_are_excluded),
		TEST(only_clones_of_former_loads_keep_their_limits),
		TEST(reused_function_handles_are_noticed),
		TEST(a_modules_kernel_is_no_other_modules),
		TEST(refused_handles_are_not_remembered),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
