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
	device_free = DEVICE;
	current = 0;
	return 0;
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
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_driver.cuDeviceTotalMem_v2 = total_mem;
	setenv("GBPF_VGPU", "1:1:mem=209715200,mem1=0,swap=67108864", 1);
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
	};

	return cmocka_run_group_tests_name("swap", tests, join, NULL);
}
