/* The size of a device in a vGPU with swap, as CUDA and NVML show it: shim/mem/device_size.c and
 * shim/entry/vgpu_figures.c over an account and a driver of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "proto/vgpu_view.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define LINE 2u
#define DEVICE (1000 * MIB)
#define ENVIRONMENT "1:1:mem=209715200,mem1=0,swap=67108864"

extern proto_vgpu_view_fn gbpf_shim_vgpu_view;

static struct proto_account page;
/* The first one has a limit, the second has none, and no process has seen the third. */
static uint8_t uuid[3][16] = { { 0xa5 }, { 0xa6 }, { 0xa7 } };
static uint64_t device_free;
static CUdevice current;

static CUresult get_device(CUdevice *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	*ret_free = device_free;
	*ret_total = DEVICE;
	return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *ret, CUdevice device)
{
	(void)device;
	*ret = DEVICE;
	return CUDA_SUCCESS;
}

static void note(const char *text)
{
	(void)text;
}

static int ask(const struct proto_mem_ask *m)
{
	(void)m;
	return -1; /* without gbpfd */
}

static bool is_agent(void)
{
	return false;
}

static void use(uint32_t row, uint64_t bytes)
{
	page.line[row][LINE].charged = page.line[row][LINE].released + bytes;
}

static int set_up(void **state)
{
	(void)state;
	memset(page.line, 0, sizeof(page.line));
	page.limit[0] = 200 * MIB;
	page.limit[1] = 0;
	page.limit[PROTO_ACCOUNT_SWAP] = 64 * MIB;
	page.show_mem = 0;
	memset(page.kinds, 0, sizeof(page.kinds));
	setenv("GBPF_VGPU", ENVIRONMENT, 1);
	device_free = DEVICE;
	current = 0;
	return 0;
}

/* One that has no chunks. */
static CUresult get_version(int *ret)
{
	*ret = 12000;
	return CUDA_SUCCESS;
}

static int join(void **state)
{
	static const struct shim_mem_session session = { note, ask, is_agent };

	(void)state;
	/* Asked for before the process is in a vGPU. */
	page.limit[PROTO_ACCOUNT_SWAP] = 1;
	if (shim_mem_row_swap() >= 0) {
		return -1;
	}
	page.magic = PROTO_ACCOUNT_MAGIC;
	page.abi = PROTO_ABI;
	page.lines = LINE + 1;
	page.owner[LINE].pid = 7;
	for (unsigned i = 0; i < 2; i++) {
		memcpy(page.uuid[i], uuid[i], sizeof(uuid[i]));
	}
	shim_driver.cuCtxGetDevice = get_device;
	shim_driver.cuDriverGetVersion = get_version;
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_driver.cuDeviceTotalMem_v2 = total_mem;
	setenv("GBPF_VGPU", ENVIRONMENT, 1);
	return shim_mem_join(&page, LINE, uuid, 2, &session);
}

static void sees(uint64_t free, uint64_t total)
{
	size_t is_free, is_total, of_device;

	assert_int_equal(shim_real.cuMemGetInfo_v2(&is_free, &is_total), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuDeviceTotalMem_v2(&of_device, current), CUDA_SUCCESS);
	assert_int_equal(is_total, total);
	assert_int_equal(of_device, total);
	assert_int_equal(is_free, free);
}

static struct proto_vgpu_view view_of(unsigned device)
{
	struct proto_vgpu_view v;

	assert_int_equal(gbpf_shim_vgpu_view(uuid[device], device, sizeof(v), &v), 0);
	return v;
}

static void there_is_a_row_while_the_vgpu_has_swap(void **state)
{
	(void)state;
	assert_int_equal(shim_mem_row_swap(), PROTO_ACCOUNT_SWAP);
	page.limit[PROTO_ACCOUNT_SWAP] = 0;
	assert_true(shim_mem_row_swap() < 0);
	assert_false(shim_mem_try_charge(PROTO_ACCOUNT_SWAP, 1));
	page.limit[PROTO_ACCOUNT_SWAP] = 2 * MIB;
	assert_int_equal(shim_mem_row_swap(), PROTO_ACCOUNT_SWAP);
	assert_true(shim_mem_try_charge(PROTO_ACCOUNT_SWAP, 2 * MIB));
	assert_false(shim_mem_try_charge(PROTO_ACCOUNT_SWAP, 1));
}

static void a_device_is_larger_by_swap(void **state)
{
	(void)state;
	sees(264 * MIB, 264 * MIB);
	use(0, 150 * MIB);
	sees(114 * MIB, 264 * MIB);
	use(PROTO_ACCOUNT_SWAP, 60 * MIB);
	sees(54 * MIB, 264 * MIB);
	use(0, 200 * MIB);
	sees(4 * MIB, 264 * MIB);
	use(PROTO_ACCOUNT_SWAP, 64 * MIB);
	sees(0, 264 * MIB);
}

static void the_rest_of_the_device_and_of_swap_is_free_at_most(void **state)
{
	(void)state;
	device_free = 10 * MIB;
	sees(74 * MIB, 264 * MIB);
	use(PROTO_ACCOUNT_SWAP, 60 * MIB);
	sees(14 * MIB, 264 * MIB);
}

static void swap_that_was_lowered_below_use_has_nothing_left(void **state)
{
	(void)state;
	use(0, 150 * MIB);
	use(PROTO_ACCOUNT_SWAP, 60 * MIB);
	page.limit[PROTO_ACCOUNT_SWAP] = 2 * MIB;
	sees(50 * MIB, 202 * MIB);
	page.limit[PROTO_ACCOUNT_SWAP] = 0;
	sees(50 * MIB, 200 * MIB);
}

/* No memory leaves it. */
static void a_device_without_a_limit_is_not_larger(void **state)
{
	struct proto_vgpu_view v = view_of(1);

	(void)state;
	current = 1;
	sees(DEVICE, DEVICE);
	assert_int_equal(v.limit, UINT64_MAX);
	assert_int_equal(v.swap, 0);
	assert_int_equal(v.swap_left, 0);
}

static void nvml_has_the_same_figures(void **state)
{
	struct proto_vgpu_view v;

	(void)state;
	use(0, 150 * MIB);
	use(PROTO_ACCOUNT_SWAP, 60 * MIB);
	v = view_of(0);
	assert_int_equal(v.limit, 200 * MIB);
	assert_int_equal(v.left, 50 * MIB);
	assert_int_equal(v.used, 150 * MIB);
	assert_int_equal(v.swap, 64 * MIB);
	assert_int_equal(v.swap_left, 4 * MIB);
	page.limit[PROTO_ACCOUNT_SWAP] = 2 * MIB;
	v = view_of(0);
	assert_int_equal(v.swap, 2 * MIB);
	assert_int_equal(v.swap_left, 0);
}

/* Its limits are those of the environment. */
static void a_device_that_no_process_has_seen_has_the_limits_alone(void **state)
{
	struct proto_vgpu_view v = view_of(2);

	(void)state;
	assert_int_equal(v.limit, 200 * MIB);
	assert_int_equal(v.swap, 64 * MIB);
	assert_int_equal(v.swap_left, 64 * MIB);
	assert_int_equal(gbpf_shim_vgpu_view(uuid[2], 1, sizeof(v), &v), 0); /* it has no limit */
	assert_int_equal(v.limit, UINT64_MAX);
	assert_int_equal(v.swap, 0);
}

/* What the process has on the host, in chunks of the device. */
static void move_out(uint64_t bytes)
{
	page.kinds[0][LINE].away = bytes;
	use(PROTO_ACCOUNT_SWAP, bytes);
}

static void nvml_sees(uint64_t used, uint64_t left)
{
	struct proto_vgpu_view v = view_of(0);

	assert_int_equal(v.limit, 200 * MIB);
	assert_int_equal(v.used, used);
	assert_int_equal(v.left, left);
	assert_int_equal(v.swap, 0);
	assert_int_equal(v.swap_left, 0);
}

/* As much is free as fits into the limit together with all that is held. */
static void swap_that_is_not_shown_makes_no_device_larger(void **state)
{
	(void)state;
	page.show_mem = 1;
	sees(200 * MIB, 200 * MIB);
	nvml_sees(0, 200 * MIB);
	use(0, 150 * MIB);
	sees(50 * MIB, 200 * MIB);
	nvml_sees(150 * MIB, 50 * MIB);
	move_out(20 * MIB);
	sees(30 * MIB, 200 * MIB);
	nvml_sees(170 * MIB, 30 * MIB);
	device_free = 10 * MIB;
	sees(10 * MIB, 200 * MIB);
	page.show_mem = 0; /* asked for again */
	sees(10 * MIB + 44 * MIB, 264 * MIB);
	assert_int_equal(view_of(0).swap, 64 * MIB);
}

static void nothing_is_free_where_more_than_the_limit_is_held(void **state)
{
	(void)state;
	page.show_mem = 1;
	use(0, 200 * MIB);
	move_out(60 * MIB);
	sees(0, 200 * MIB);
	nvml_sees(200 * MIB, 0);
	use(0, 150 * MIB); /* 210 in all */
	sees(0, 200 * MIB);
	nvml_sees(200 * MIB, 0);
	use(0, 210 * MIB); /* beyond the limit, as overhead may be */
	sees(0, 200 * MIB);
	nvml_sees(200 * MIB, 0);
	move_out(UINT64_MAX / 2); /* garbage */
	sees(0, 200 * MIB);
}

/* Memory of the host that is made ahead, and that of other devices, is not in use. */
static void swap_in_use_for_others_takes_nothing_of_the_device(void **state)
{
	(void)state;
	page.show_mem = 1;
	use(0, 150 * MIB);
	use(PROTO_ACCOUNT_SWAP, 60 * MIB);
	page.kinds[1][LINE].away = 10 * MIB;
	sees(50 * MIB, 200 * MIB);
	nvml_sees(150 * MIB, 50 * MIB);
}

static void a_device_without_a_limit_is_shown_as_before(void **state)
{
	struct proto_vgpu_view v;

	(void)state;
	page.show_mem = 1;
	page.kinds[1][LINE].away = 10 * MIB;
	current = 1;
	sees(DEVICE, DEVICE);
	v = view_of(1);
	assert_int_equal(v.limit, UINT64_MAX);
	assert_int_equal(v.used, 0);
}

/* Where no process has seen the device, the environment says whether swap is shown. */
static void the_environment_says_whether_swap_is_shown(void **state)
{
	struct proto_vgpu_view v;

	(void)state;
	setenv("GBPF_VGPU", ENVIRONMENT ",flags=2", 1);
	v = view_of(2);
	assert_int_equal(v.limit, 200 * MIB);
	assert_int_equal(v.swap, 0);
	assert_int_equal(v.swap_left, 0);
}

/* The limit for allocations is that of both. */
static void swap_that_is_not_shown_can_be_used(void **state)
{
	(void)state;
	page.show_mem = 1;
	assert_int_equal(shim_mem_swap_limit(0), 64 * MIB);
	assert_int_equal(shim_mem_row_swap(), PROTO_ACCOUNT_SWAP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(there_is_a_row_while_the_vgpu_has_swap, set_up),
		cmocka_unit_test_setup(a_device_is_larger_by_swap, set_up),
		cmocka_unit_test_setup(the_rest_of_the_device_and_of_swap_is_free_at_most, set_up),
		cmocka_unit_test_setup(swap_that_was_lowered_below_use_has_nothing_left, set_up),
		cmocka_unit_test_setup(a_device_without_a_limit_is_not_larger, set_up),
		cmocka_unit_test_setup(nvml_has_the_same_figures, set_up),
		cmocka_unit_test_setup(a_device_that_no_process_has_seen_has_the_limits_alone,
				       set_up),
		cmocka_unit_test_setup(swap_that_is_not_shown_makes_no_device_larger, set_up),
		cmocka_unit_test_setup(nothing_is_free_where_more_than_the_limit_is_held, set_up),
		cmocka_unit_test_setup(swap_in_use_for_others_takes_nothing_of_the_device, set_up),
		cmocka_unit_test_setup(a_device_without_a_limit_is_shown_as_before, set_up),
		cmocka_unit_test_setup(the_environment_says_whether_swap_is_shown, set_up),
		cmocka_unit_test_setup(swap_that_is_not_shown_can_be_used, set_up),
	};

	return cmocka_run_group_tests_name("swap", tests, join, NULL);
}
