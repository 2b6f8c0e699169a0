/* Probed copies over the fake libcuda: what is compiled, loaded and launched, and that a refusal
 * changes nothing. */
#include "code_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../cubin/probe_programs.h"
#include "cubin/cubin.h"
#include "shim/code/shim_code.h"
#include "shim/code/shim_code_probe.h"

#define COPY ((CUmodule)(uintptr_t)0x4700)
#define COPY_TWO ((CUfunction)(uintptr_t)0xf7000)

static uint64_t address = 0x1234;
static uint32_t number = 77;
static void *two_params[3] = { &address, &number };

static const struct ptx_stub_kernel two = { "two", NULL };

/* What the driver was given, and how it answers. */
static struct {
	CUresult load, get;
	unsigned loads, unloads;
	unsigned char *image; /* owned */
	size_t bytes;
	CUmodule unloaded;
} driver;

static CUresult load_module(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
			    void **values)
{
	driver.loads++;
	if (driver.load) {
		return driver.load;
	}
	assert_int_equal(cubin_bytes(image, 1 << 20, &driver.bytes), 0);
	free(driver.image);
	driver.image = malloc(driver.bytes);
	memcpy(driver.image, image, driver.bytes);
	*ret = COPY;
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *ret, CUmodule m, const char *name)
{
	*ret = COPY_TWO;
	return m == COPY && !strcmp(name, "two") ? driver.get : CUDA_ERROR_NOT_FOUND;
}

static CUresult unload_module(CUmodule m)
{
	driver.unloads++;
	driver.unloaded = m;
	return CUDA_SUCCESS;
}

static int before(void **state)
{
	free(driver.image);
	memset(&driver, 0, sizeof(driver));
	rig_link = CUDA_SUCCESS;
	shim_driver.cuModuleLoadDataEx = load_module;
	shim_driver.cuModuleGetFunction = get_function;
	shim_driver.cuModuleUnload = unload_module;
	return rig_before(state);
}

static const struct ptx_probe lane_mode = { .hook = PROBE_ENTER,
					    .lanes = true,
					    .fields = PROBE_FIELD(1) | PROBE_FIELD(18) |
						      PROBE_FIELD(21),
					    .name = "warps",
					    .text = probe_warps };

/* A refusal must have this text. */
static int probe(struct shim_code_probed *ret, const char *kernel, const struct ptx_probe *probes,
		 uint32_t n, const char *text)
{
	const struct ptx_stub_kernel of = { kernel, NULL };
	struct cubin_patched *p = NULL;
	struct report r;
	int err;

	report_init(&r);
	memset(ret, 0, sizeof(*ret));
	err = shim_code_probe_make(&p, rig_image, rig_image_bytes, &of, probes, probe_envs, n, NULL,
				   NULL, &r);
	err = err ? err : shim_code_probe_load(ret, p, kernel, &r);
	if (err && !strstr(buf_text(&r.message), text)) {
		fail_msg("'%s' is not in '%s'", text, buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

static void launch_copy(bool argument)
{
	rig_seen = (struct rig_seen){ .calls = 0 };
	assert_int_equal(cuLaunchKernel(COPY_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL), 0);
	assert_int_equal(rig_seen.calls, 1);
	assert_int_equal(rig_seen.n, 3);
	assert_ptr_equal(rig_seen.params[0], &address);
	assert_ptr_equal(rig_seen.params[1], &number);
	assert_int_equal(rig_seen.params[2] && rig_is_zero(rig_seen.params[2]), argument);
}

static void one_kernel_of_a_copy_gets_the_stub(void **state)
{
	struct shim_code_probed f;

	assert_int_equal(probe(&f, "two", probe_both, 2, ""), 0);
	assert_ptr_equal(f.module, COPY);
	assert_ptr_equal(f.handle, COPY_TWO);
	assert_int_equal(f.was_registers, 8);
	assert_int_equal(f.registers, 17);
	assert_int_equal(driver.loads, 1);
	/* what was loaded is the image but for `two`, which cannot be patched again */
	assert_true(driver.bytes > rig_image_bytes);
	assert_int_equal(rig_self_tests, 1); /* the gate was tested first */
	launch_copy(true);
	shim_code_probe_unload(COPY);
	assert_int_equal(driver.unloads, 1);
	assert_ptr_equal(driver.unloaded, COPY);
	launch_copy(false); /* the handle may name something else now */
}

/* A program is attached to many kernels: the driver compiles its stub once. */
static void a_stub_is_compiled_once(void **state)
{
	struct shim_code_probed f;
	unsigned links;

	assert_int_equal(probe(&f, "two", probe_both, 2, ""), 0);
	shim_code_probe_unload(f.module);
	links = rig_links;
	assert_int_equal(probe(&f, "two", probe_both, 2, ""), 0);
	shim_code_probe_unload(f.module);
	assert_int_equal(rig_links, links);
	assert_int_equal(probe(&f, "two", &probe_both[0], 1, ""), 0); /* another text */
	shim_code_probe_unload(f.module);
	assert_int_equal(rig_links, links + 2);
}

static void what_cannot_be_probed_is_refused_before_it_is_loaded(void **state)
{
	const struct ptx_probe wrong = { .hook = 38, .name = "p", .text = "" };
	unsigned char other[64] = { 0 };
	struct cubin_patched *p = NULL;
	struct shim_code_probed f;
	struct report r;

	assert_int_equal(probe(&f, "absent", probe_both, 2, "no kernel 'absent'"), -ENOENT);
	assert_int_equal(probe(&f, "two", &lane_mode, 1, "one lane of a warp"), -ENOTSUP);
	assert_int_equal(probe(&f, "two", &wrong, 1, "no root"), -EINVAL);
	assert_int_equal(probe(&f, "two", probe_both, 0, "0 probes"), -EINVAL);
	report_init(&r);
	assert_int_equal(shim_code_probe_make(&p, other, sizeof(other), &two, probe_both,
					      probe_envs, 2, NULL, NULL, &r),
			 -ENOTSUP);
	report_finish(&r);
	assert_int_equal(driver.loads, 0);
}

static void tools_see_the_original(void **state)
{
	struct shim_code_probed f;

	setenv("CUDA_INJECTION64_PATH", "/dev/null", 1);
	assert_int_equal(probe(&f, "two", probe_both, 2, "debugger or tool"), -ENOTSUP);
	unsetenv("CUDA_INJECTION64_PATH");
	assert_int_equal(driver.loads, 0);
}

static void refusals_of_the_driver_leave_nothing(void **state)
{
	const uint64_t envs[] = { 0x7f1200345600, 0x55000 };
	struct cubin_patched *p = NULL;
	struct shim_code_probed f;
	struct report r;

	driver.load = CUDA_ERROR_INVALID_IMAGE;
	assert_int_equal(probe(&f, "two", probe_both, 2, "error 200"), -ENOEXEC);
	assert_int_equal(driver.unloads, 0);
	driver.load = CUDA_SUCCESS;
	driver.get = CUDA_ERROR_NOT_FOUND;
	assert_int_equal(probe(&f, "two", probe_both, 2, "error 500"), -ENOEXEC);
	assert_int_equal(driver.unloads, 1);
	launch_copy(false);
	rig_link = CUDA_ERROR_INVALID_PTX;
	report_init(&r);
	assert_int_equal(shim_code_probe_make(&p, rig_image, rig_image_bytes, &two, probe_both,
					      envs, 2, NULL, NULL, &r),
			 -ENOEXEC);
	assert_non_null(strstr(buf_text(&r.message), "ptxas fatal: no such gate"));
	report_finish(&r);
	assert_int_equal(driver.loads, 2);
}

#define TEST(f) cmocka_unit_test_setup(f, before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_kernel_of_a_copy_gets_the_stub),
		TEST(a_stub_is_compiled_once),
		TEST(what_cannot_be_probed_is_refused_before_it_is_loaded),
		TEST(tools_see_the_original),
		TEST(refusals_of_the_driver_leave_nothing),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
