/* Devices and drivers for which no machine code can be patched: the images are loaded as they are,
 * the operator learns the reason, and it is not tried again, unless the test was cut off. Each case
 * is a process of its own. */
#include "code_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/kernel/loaded_image.h"

/* Loads the image three times. Returns whether the reason and the event are these. */
static int loads(enum proto_block_why wanted, const char *note)
{
	const struct ptx_block_entry *e;
	CUmodule m = RIG_MODULE;
	bool ok = true;

	for (unsigned i = 0; i < 3; i++) {
		fake->reset();
		double_noted[0] = 0;
		ok = ok && cuModuleLoadData(&m, rig_image) == CUDA_SUCCESS &&
		     fixture_count(CUABI_IDX_cuModuleLoadDataEx) == 0 &&
		     fixture_find(CUABI_IDX_cuModuleLoadData) >= 0 &&
		     fake->get((unsigned)fixture_find(CUABI_IDX_cuModuleLoadData)).a[1] ==
			     (uintptr_t)rig_image &&
		     shim_image_entry(m, "two", &e) == wanted &&
		     strcmp(double_noted, i ? "" : note) == 0;
		if (!ok) {
			fprintf(stderr, "load %u: reason %d, event '%s'\n", i,
				(int)shim_image_entry(m, "two", &e), double_noted);
			return 1;
		}
	}
	return rig_self_tests > 1;
}

static void expect(enum proto_block_why wanted, const char *note)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		_exit(loads(wanted, note));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_wrong_result_is_reported(void **state)
{
	rig_self_test = -EIO;
	expect(PROTO_BLOCK_TEST_FAILED, "machine-code: no machine code is patched for sm_90: "
					"self-test: block 3 has run twice");
}

static void a_busy_device_is_reported(void **state)
{
	rig_self_test = -ETIMEDOUT;
	expect(PROTO_BLOCK_TEST_TIME, "machine-code: no machine code is patched for sm_90: "
				      "self-test: block 3 has run twice");
}

static void the_compilers_message_is_reported(void **state)
{
	rig_link = CUDA_ERROR_INVALID_PTX;
	expect(PROTO_BLOCK_STUB, "machine-code: no machine code is patched for sm_90: entry stub: "
				 "the driver does not compile it: error 218: "
				 "ptxas fatal: no such gate");
}

static void an_old_driver_is_reported(void **state)
{
	rig_driver_version = 12040;
	expect(PROTO_BLOCK_OLD_DRIVER, "machine-code: no machine code is patched for sm_90: "
				       "driver: it is older than CUDA 12.5");
}

/* Whether the last load was patched. */
static bool load_is_patched(void)
{
	CUmodule m = RIG_MODULE;

	fake->reset();
	return cuModuleLoadData(&m, rig_image) == CUDA_SUCCESS &&
	       fixture_count(CUABI_IDX_cuModuleLoadDataEx) == 1;
}

/* An error of the driver amid the test, or no memory for it, says nothing about the stub: the next
 * images try again, a few times. */
static int loads_again(void)
{
	static const int errors[] = { -ECANCELED, -ENOMEM };

	for (int i = 0; i < 2; i++) {
		rig_self_test = errors[i];
		if (load_is_patched() || rig_self_tests != i + 1) {
			return 1;
		}
	}
	rig_self_test = 0;
	return !load_is_patched() || !load_is_patched() || rig_self_tests != 3;
}

static int gives_up(void)
{
	rig_self_test = -ECANCELED;
	for (unsigned i = 0; i < 20; i++) {
		if (load_is_patched()) {
			return 1;
		}
	}
	return rig_self_tests != 4;
}

static void expect_zero(int (*program)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		_exit(program());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_test_that_was_cut_off_is_repeated(void **state)
{
	expect_zero(loads_again);
	expect_zero(gives_up);
}

static int before(void **state)
{
	rig_self_test = 0;
	rig_link = CUDA_SUCCESS;
	rig_driver_version = 13000;
	return rig_before(state);
}

#define TEST(f) cmocka_unit_test_setup(f, before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_wrong_result_is_reported),	   TEST(a_busy_device_is_reported),
		TEST(the_compilers_message_is_reported),   TEST(an_old_driver_is_reported),
		TEST(a_test_that_was_cut_off_is_repeated),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
