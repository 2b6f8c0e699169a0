/* Images on their way to the driver: loaded with clones where possible, and unchanged where the
 * driver refuses the rewritten text. */
#include "fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/block_image.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry f(.param .u64 p)\n{\n"
			  "\t.reg .b64 %rd<3>;\n\t.reg .b32 %r<2>;\n"
			  "\tld.param.u64 %rd1, [p];\n\tmov.u32 %r1, %ctaid.x;\n"
			  "\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n";

static CUmodule module = (CUmodule)(uintptr_t)0x4400;

static bool has_clones(uint64_t image)
{
	return strstr((const char *)(uintptr_t)image, "f" PTX_BLOCK_SUFFIX) != NULL;
}

static int before(void **state)
{
	double_block_wanted = true;
	unsetenv("GBPF_BLOCK");
	return fixture_before(state);
}

static void images_get_clones(void **state)
{
	CUmodule m = module;

	assert_int_equal(cuModuleLoadData(&m, ptx), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadDataEx), 1);
	assert_true(has_clones(fake->get(0).a[1]));
}

static void latency_tenants_load_original_images(void **state)
{
	CUmodule m = module;

	double_block_wanted = false;
	assert_int_equal(cuModuleLoadData(&m, ptx), CUDA_SUCCESS);
	assert_int_equal(fake->get(0).a[1], (uintptr_t)ptx);
}

/* cuFFT does without a module that has a clone. */
static void cufft_gets_its_own_modules(void **state)
{
	CUresult (*load_for)(CUresult(*)(CUmodule *, const void *), CUmodule *, const void *);
	const char *path = getenv("GBPF_TEST_CUFFT");
	CUmodule m = module;
	void *lib;

	assert_non_null(path);
	lib = dlopen(path, RTLD_NOW);
	assert_non_null(lib);
	*(void **)&load_for = dlsym(lib, "load_for");
	assert_non_null(load_for);
	assert_int_equal(load_for(cuModuleLoadData, &m, ptx), CUDA_SUCCESS);
	assert_int_equal(fake->get(0).a[1], (uintptr_t)ptx);
	fake->reset();
	assert_int_equal(cuModuleLoadData(&m, ptx), CUDA_SUCCESS);
	assert_true(has_clones(fake->get(0).a[1]));
	dlclose(lib);
}

static void gbpf_block_0_loads_original_images(void **state)
{
	CUmodule m = module;

	setenv("GBPF_BLOCK", "0", 1);
	assert_int_equal(cuModuleLoadData(&m, ptx), CUDA_SUCCESS);
	assert_int_equal(fake->get(0).a[1], (uintptr_t)ptx);
}

/* The driver's answer to the original image counts, with the original options. */
static void refused_rewritten_image_is_replaced_by_original(void **state)
{
	CUjit_option options[] = { CU_JIT_MAX_REGISTERS };
	void *values[] = { (void *)(uintptr_t)32 };
	int first, last = -1;
	CUmodule m = module;

	fake->fail_with(CUABI_IDX_cuModuleLoadDataEx, CUDA_ERROR_INVALID_PTX);
	assert_int_equal(cuModuleLoadDataEx(&m, ptx, 1, options, values), CUDA_ERROR_INVALID_PTX);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadDataEx), 2);
	first = fixture_find(CUABI_IDX_cuModuleLoadDataEx);
	for (unsigned i = 0; i < fake->count(); i++) {
		last = fake->get(i).index == CUABI_IDX_cuModuleLoadDataEx ? (int)i : last;
	}
	assert_true(has_clones(fake->get((unsigned)first).a[1]));
	assert_int_equal(fake->get((unsigned)last).a[1], (uintptr_t)ptx);
	assert_ptr_equal(values[0], (void *)(uintptr_t)32);
}

/* The program never sees messages about the rewritten text, whether the load succeeds or not. */
static void error_log_is_of_original_image(void **state)
{
	static char log[32];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER };
	void *values[] = { (void *)sizeof(log), log };
	CUmodule m = module;

	memset(log, 'x', sizeof(log));
	assert_int_equal(cuModuleLoadDataEx(&m, ptx, 2, options, values), CUDA_SUCCESS);
	assert_true(has_clones(fake->get(0).a[1]));
	assert_int_not_equal(fake->get(0).a[4], (uintptr_t)values);
	assert_string_equal(log, "");
	assert_null(values[0]);
	values[0] = (void *)sizeof(log);
	fake->reset();
	fake->fail_with(CUABI_IDX_cuModuleLoadDataEx, CUDA_ERROR_INVALID_PTX);
	assert_int_equal(cuModuleLoadDataEx(&m, ptx, 2, options, values), CUDA_ERROR_INVALID_PTX);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadDataEx), 2);
	assert_int_not_equal(fake->get(0).a[4], (uintptr_t)values);
	assert_int_equal(fake->get(fake->count() - 1).a[4], (uintptr_t)values);
	assert_ptr_equal(values[0], (void *)sizeof(log));
}

static void unreadable_images_reach_the_driver_unchanged(void **state)
{
	static const char *const images[] = { "",
					      "x",
					      ".version",
					      "\177ELF",
					      "nonsense in a text",
					      ".version 7.0\n.target sm_70\n.entry f() { bad }" };

	for (unsigned i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		char room[64] = { 0 };
		CUmodule m = module;

		fake->reset();
		snprintf(room, sizeof(room), "%s", images[i]);
		assert_int_equal(cuModuleLoadData(&m, room), CUDA_SUCCESS);
		assert_int_equal(fake->get(0).a[1], (uintptr_t)room);
	}
	fake->reset();
	assert_int_equal(cuModuleLoadData(NULL, ptx), CUDA_SUCCESS);
	assert_int_equal(fake->get(0).a[1], (uintptr_t)ptx);
	assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_SUCCESS);
}

static void clones_are_hidden(void **state)
{
	CUmodule m = module;
	CUfunction f;

	assert_int_equal(cuModuleLoadData(&m, ptx), CUDA_SUCCESS);
	assert_int_equal(cuModuleGetFunction(&f, m, "f" PTX_BLOCK_SUFFIX), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleGetFunction), 0);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_int_equal(cuModuleGetFunction(&f, m, "f" PTX_BLOCK_SUFFIX), CUDA_SUCCESS);
}

/* An image rewritten by gBPF's ptxas is loaded unchanged, and its clones are hidden as well. */
static void images_rewritten_by_ptxas_are_recognized(void **state)
{
	const struct ptx_block_image *i;
	CUmodule m = module;
	struct buf text;
	CUfunction f;

	buf_init(&text);
	assert_int_equal(ptx_block_image_open(&i, ptx, 0, (struct ptx_device){ .arch = 90 }, "t"),
			 0);
	assert_int_equal(ptx_block_image_marked(i, &text), 0);
	ptx_block_image_close(i);
	assert_int_equal(cuModuleLoadData(&m, text.data), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadData), 1);
	assert_int_equal(fake->get(0).a[1], (uintptr_t)text.data);
	assert_int_equal(cuModuleGetFunction(&f, m, "f" PTX_BLOCK_SUFFIX), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	buf_finish(&text);
}

static void linker_inputs_get_clones(void **state)
{
	CUlinkState s = (CUlinkState)(uintptr_t)0x8800;
	char input[sizeof(ptx)];

	memcpy(input, ptx, sizeof(ptx));
	assert_int_equal(
		cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, input, sizeof(input), "x", 0, NULL, NULL),
		CUDA_SUCCESS);
	assert_true(has_clones(fake->get(0).a[2]));
	assert_true(fake->get(0).a[3] > sizeof(input));
	fake->reset();
	assert_int_equal(
		cuLinkAddData_v2(s, CU_JIT_INPUT_CUBIN, input, sizeof(input), "x", 0, NULL, NULL),
		CUDA_SUCCESS);
	assert_int_equal(fake->get(0).a[2], (uintptr_t)input);
	assert_int_equal(cuLinkDestroy(s), CUDA_SUCCESS);
}

#define TEST(f) cmocka_unit_test_setup(f, before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(images_get_clones),
		TEST(latency_tenants_load_original_images),
		TEST(cufft_gets_its_own_modules),
		TEST(gbpf_block_0_loads_original_images),
		TEST(refused_rewritten_image_is_replaced_by_original),
		TEST(error_log_is_of_original_image),
		TEST(unreadable_images_reach_the_driver_unchanged),
		TEST(clones_are_hidden),
		TEST(images_rewritten_by_ptxas_are_recognized),
		TEST(linker_inputs_get_clones),
	};

	return cmocka_run_group_tests(tests, fixture_setup, NULL);
}
