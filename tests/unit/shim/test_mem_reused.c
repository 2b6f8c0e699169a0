/* The driver gives the address or handle of an allocation again as soon as it has destroyed the
 * context, before the shim has forgotten what was in it. Then one charge remains, the new one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/overhead.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define PLACE 0x700000000000u

struct cuabi_slots shim_real;
struct cuabi_table shim_driver;

static uint64_t charged, excess, epoch, limit = UINT64_MAX;
static uint64_t of_kind[PROTO_KINDS]; /* parts of what is charged */
static int moving;
static CUcontext current;
static struct {
	int some;
} first_context, second_context, the_array;

/* ---- the account ---- */

bool shim_mem_joined(void)
{
	return true;
}

int shim_mem_row_current(void)
{
	return 0;
}

bool shim_mem_try_charge(int row, uint64_t bytes)
{
	(void)row;
	if (bytes > limit || charged > limit - bytes) {
		return false;
	}
	charged += bytes;
	return true;
}

bool shim_swap_is_on(void)
{
	return false;
}

CUresult shim_swap_alloc(CUdeviceptr *ret, size_t bytes, int row)
{
	(void)ret;
	(void)bytes;
	(void)row;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult shim_packs_alloc(CUdeviceptr *ret, size_t bytes, int row)
{
	return shim_swap_alloc(ret, bytes, row);
}

bool shim_swap_free(CUdeviceptr address, CUresult *ret)
{
	(void)address;
	(void)ret;
	return false;
}

CUresult shim_managed_alloc(CUdeviceptr *ret, size_t bytes, unsigned flags, int row, bool *ret_full)
{
	(void)ret;
	(void)bytes;
	(void)flags;
	(void)row;
	(void)ret_full;
	return CUDA_ERROR_NOT_SUPPORTED;
}

bool shim_managed_free(CUdeviceptr address, CUresult *ret)
{
	(void)address;
	(void)ret;
	return false;
}

bool shim_swap_free_async(CUdeviceptr address, CUstream stream, bool per_thread, CUresult *ret)
{
	(void)address;
	(void)stream;
	(void)per_thread;
	(void)ret;
	return false;
}

static void (*while_waiting)(void); /* what another thread does */

bool shim_mem_charge(int row, uint64_t bytes, const char *call)
{
	(void)call;
	if (while_waiting) {
		while_waiting();
	}
	return shim_mem_try_charge(row, bytes);
}

bool shim_mem_again(struct shim_mem_attempt *a, int row, uint64_t bytes, CUresult r,
		    const char *call)
{
	(void)a;
	(void)row;
	(void)bytes;
	(void)r;
	(void)call;
	return false;
}

bool shim_mem_recharge(int row, uint64_t from, uint64_t to, const char *call)
{
	(void)row;
	(void)call;
	charged += to - from;
	return true;
}

static uint64_t of_kinds(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PROTO_KINDS; i++) {
		sum += of_kind[i];
	}
	return sum;
}

void shim_mem_release(int row, uint64_t bytes)
{
	(void)row;
	assert_true(bytes <= charged);
	charged -= bytes;
	assert_true(of_kinds() <= charged);
}

void shim_mem_kind_add(int row, enum proto_kind kind, uint64_t bytes)
{
	assert_int_equal(row, 0);
	of_kind[kind] += bytes;
	assert_true(of_kinds() <= charged);
}

void shim_mem_kind_sub(int row, enum proto_kind kind, uint64_t bytes)
{
	assert_int_equal(row, 0);
	assert_true(bytes <= of_kind[kind]);
	of_kind[kind] -= bytes;
}

uint64_t shim_mem_epoch(void)
{
	return ++epoch;
}

uint64_t shim_mem_limit(int row)
{
	(void)row;
	return limit;
}

uint64_t shim_mem_used(int row)
{
	(void)row;
	return charged;
}

void shim_mem_settle(void)
{
}

void shim_mem_move_begin(void)
{
	moving++;
}

void shim_mem_move_end(void)
{
	assert_true(moving-- > 0);
}

void shim_mem_move_over(void)
{
	shim_mem_move_end();
}

CUstreamCaptureMode shim_capture_exempt(void)
{
	return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void shim_capture_restore(CUstreamCaptureMode before)
{
	(void)before;
}

bool shim_mem_is_explained(CUdevice device, int row)
{
	(void)device;
	(void)row;
	return false;
}

void shim_mem_managed_add(int row, uint64_t bytes)
{
	(void)row;
	(void)bytes;
}

void shim_mem_managed_sub(int row, uint64_t bytes)
{
	(void)row;
	(void)bytes;
}

void shim_mem_excess_add(int row, uint64_t bytes)
{
	(void)row;
	excess += bytes;
}

void shim_mem_excess_sub(int row, uint64_t bytes)
{
	(void)row;
	assert_true(bytes <= excess);
	excess -= bytes;
}

void shim_mem_import_freed(CUdeviceptr address)
{
	(void)address;
}

bool shim_mem_exports_begin_free(CUdeviceptr address, struct mem_region *ret)
{
	(void)address;
	(void)ret;
	return false;
}

void shim_mem_exports_end_free(const struct mem_region *m, bool freed)
{
	(void)m;
	(void)freed;
}

/* ---- the driver, which knows one place ---- */

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUdeviceptr place = PLACE; /* of the next allocation */
static uint64_t known;		  /* charged, or excess, while the driver was asked last */

static CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
	(void)bytes;
	known = charged + excess;
	*ret = place;
	return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at)
{
	(void)at;
	known = charged + excess;
	return CUDA_SUCCESS;
}

/* Frees in the order of a stream, which comes there when it is told to. */
static CUresult progress;

static CUresult release_later(CUdeviceptr at, CUstream s)
{
	(void)at;
	(void)s;
	return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
	(void)flags;
	*ret = (CUevent)(void *)&the_array;
	return CUDA_SUCCESS;
}

static CUresult record_event(CUevent e, CUstream s)
{
	(void)e;
	(void)s;
	return CUDA_SUCCESS;
}

static CUresult query_event(CUevent e)
{
	(void)e;
	return progress;
}

static CUresult destroy_event(CUevent e)
{
	(void)e;
	return CUDA_SUCCESS;
}

static uintptr_t new_arrays; /* the handle of the next one; 0: always the same */

static CUresult create_array(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
	(void)d;
	*ret = new_arrays ? (CUarray)new_arrays++ : (CUarray)(void *)&the_array;
	return CUDA_SUCCESS;
}

static CUresult destroy_array(CUarray a)
{
	(void)a;
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	*ret_free = *ret_total = 1u << 30;
	return CUDA_SUCCESS;
}

static int begin(void **state)
{
	(void)state;
	shim_driver.cuCtxGetCurrent = get_current;
	shim_driver.cuMemAlloc_v2 = allocate;
	shim_driver.cuMemFree_v2 = release;
	shim_driver.cuMemFreeAsync = release_later;
	shim_driver.cuEventCreate = create_event;
	shim_driver.cuEventRecord = record_event;
	shim_driver.cuEventQuery = query_event;
	shim_driver.cuEventDestroy_v2 = destroy_event;
	shim_driver.cuArrayCreate_v2 = create_array;
	shim_driver.cuArrayDestroy = destroy_array;
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_mem_install_linear();
	shim_mem_install_arrays();
	return 0;
}

/* Allocates in the first context, then in the second one what has the same place, before the first
 * one is forgotten. */
static void reuse_linear(size_t first, size_t second, bool free_early)
{
	uint64_t ending;
	CUdeviceptr at;

	current = (CUcontext)(void *)&first_context;
	assert_int_equal(shim_real.cuMemAlloc_v2(&at, first), CUDA_SUCCESS);
	ending = epoch;
	current = (CUcontext)(void *)&second_context;
	assert_int_equal(shim_real.cuMemAlloc_v2(&at, second), CUDA_SUCCESS);
	assert_int_equal(charged, shim_mem_round(second));
	assert_int_equal(of_kind[second < 2 * MIB ? PROTO_KIND_SMALL : PROTO_KIND_LINEAR], charged);
	if (free_early) {
		assert_int_equal(shim_real.cuMemFree_v2(at), CUDA_SUCCESS);
		assert_int_equal(charged, 0);
	}
	shim_mem_linear_context_ended((CUcontext)(void *)&first_context, ending);
	if (!free_early) {
		assert_int_equal(charged, shim_mem_round(second));
		assert_int_equal(shim_real.cuMemFree_v2(at), CUDA_SUCCESS);
	}
	assert_int_equal(charged, 0);
	assert_int_equal(of_kinds(), 0);
}

static void address_of_a_destroyed_context(void **state)
{
	static const size_t bytes[] = { 1000, 8 * MIB, 4 * MIB };

	(void)state;
	for (unsigned i = 0; i < 18; i++) {
		reuse_linear(bytes[i / 6], bytes[i / 2 % 3], i % 2);
	}
}

/* At the limit the address is in a block whose charge goes with the allocation that is left. */
static void address_of_a_destroyed_context_at_the_limit(void **state)
{
	(void)state;
	limit = 2 * MIB;
	reuse_linear(1000, 1000, false);
	reuse_linear(1000, 1000, true);
	limit = UINT64_MAX;
}

/* At the limit the driver may take a block that is not charged, until the shim has seen where the
 * allocation lies and has freed it again. Meanwhile a measurement must not take it for overhead. */
static void a_block_at_the_limit_is_no_overhead(void **state)
{
	CUdeviceptr first, second;

	(void)state;
	current = (CUcontext)(void *)&first_context;
	limit = 2 * MIB;
	assert_int_equal(shim_real.cuMemAlloc_v2(&first, 1000), CUDA_SUCCESS);
	place = PLACE + 1024;
	assert_int_equal(shim_real.cuMemAlloc_v2(&second, 1000), CUDA_SUCCESS);
	assert_int_equal(second, PLACE + 1024);
	assert_int_equal(known, 4 * MIB);
	assert_int_equal(charged + excess, 2 * MIB);
	place = PLACE + 2 * MIB;
	assert_int_equal(shim_real.cuMemAlloc_v2(&second, 1000), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(known, 4 * MIB);
	assert_int_equal(charged + excess, 2 * MIB);
	assert_int_equal(shim_real.cuMemFree_v2(PLACE + 1024), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuMemFree_v2(first), CUDA_SUCCESS);
	assert_int_equal(charged + excess, 0);
	place = PLACE;
	limit = UINT64_MAX;
}

static CUarray first_array;

static void destroy_the_first(void)
{
	assert_int_equal(shim_real.cuArrayDestroy(first_array), CUDA_SUCCESS);
}

/* Two arrays fill a unit, which is the limit. A third one waits while the first one is destroyed;
 * the unit stays charged. */
static void room_in_a_unit_serves_a_call_that_has_waited(void **state)
{
	const CUDA_ARRAY_DESCRIPTOR d = { 512, 512, CU_AD_FORMAT_FLOAT, 1 };
	CUarray second, third;

	(void)state;
	current = (CUcontext)(void *)&first_context;
	limit = 2 * MIB;
	new_arrays = 1;
	assert_int_equal(shim_real.cuArrayCreate_v2(&first_array, &d), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuArrayCreate_v2(&second, &d), CUDA_SUCCESS);
	assert_int_equal(charged, 2 * MIB);
	assert_int_equal(shim_real.cuArrayCreate_v2(&third, &d), CUDA_ERROR_OUT_OF_MEMORY);
	while_waiting = destroy_the_first;
	assert_int_equal(shim_real.cuArrayCreate_v2(&third, &d), CUDA_SUCCESS);
	while_waiting = NULL;
	assert_int_equal(charged, 2 * MIB);
	assert_int_equal(of_kind[PROTO_KIND_ARRAY], 2 * MIB);
	assert_int_equal(shim_real.cuArrayDestroy(second), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuArrayDestroy(third), CUDA_SUCCESS);
	assert_int_equal(charged, 0);
	new_arrays = 0;
	limit = UINT64_MAX;
}

/* An H200 kept all 40 MiB of 40 arrays of 1 MiB when every second one was destroyed, and took a
 * unit for one array in each of two contexts. */
static void small_arrays_keep_their_units(void **state)
{
	const CUDA_ARRAY_DESCRIPTOR d = { 512, 512, CU_AD_FORMAT_FLOAT, 1 };
	CUarray a[40], other;

	(void)state;
	new_arrays = 1;
	current = (CUcontext)(void *)&second_context;
	assert_int_equal(shim_real.cuArrayCreate_v2(&other, &d), CUDA_SUCCESS);
	current = (CUcontext)(void *)&first_context;
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(shim_real.cuArrayCreate_v2(&a[i], &d), CUDA_SUCCESS);
	}
	assert_int_equal(charged, 42 * MIB);
	for (unsigned i = 0; i < 40; i += 2) {
		assert_int_equal(shim_real.cuArrayDestroy(a[i]), CUDA_SUCCESS);
	}
	assert_int_equal(charged, 42 * MIB);
	for (unsigned i = 1; i < 39; i += 2) {
		assert_int_equal(shim_real.cuArrayDestroy(a[i]), CUDA_SUCCESS);
	}
	assert_int_equal(charged, 4 * MIB);
	assert_int_equal(shim_real.cuArrayDestroy(a[39]), CUDA_SUCCESS);
	assert_int_equal(charged, 2 * MIB);
	assert_int_equal(shim_real.cuArrayDestroy(other), CUDA_SUCCESS);
	assert_int_equal(charged, 0);
	new_arrays = 0;
}

/* What is freed in the order of a stream is being freed until its charge is released: meanwhile the
 * process's figure may lack it. */
static void a_free_in_stream_order_ends_with_its_charge(void **state)
{
	CUdeviceptr at;

	(void)state;
	current = (CUcontext)(void *)&first_context;
	assert_int_equal(shim_real.cuMemAlloc_v2(&at, 4 * MIB), CUDA_SUCCESS);
	assert_int_equal(moving, 0);
	progress = CUDA_ERROR_NOT_READY;
	assert_int_equal(shim_real.cuMemFreeAsync(at, NULL), CUDA_SUCCESS);
	shim_mem_linear_settle();
	assert_int_equal(moving, 1);
	assert_int_equal(charged, 4 * MIB);
	progress = CUDA_SUCCESS;
	shim_mem_linear_settle();
	assert_int_equal(moving, 0);
	assert_int_equal(charged, 0);
	assert_int_equal(shim_real.cuMemFreeAsync(at, NULL), CUDA_SUCCESS); /* not known */
	assert_int_equal(moving, 0);
}

static void handle_of_a_destroyed_context(void **state)
{
	CUDA_ARRAY_DESCRIPTOR d = { 1024, 2048, CU_AD_FORMAT_FLOAT, 1 };
	uint64_t ending;
	CUarray a;

	(void)state;
	current = (CUcontext)(void *)&first_context;
	assert_int_equal(shim_real.cuArrayCreate_v2(&a, &d), CUDA_SUCCESS);
	assert_int_equal(charged, 8 * MIB);
	ending = epoch;
	current = (CUcontext)(void *)&second_context;
	d.Height = 512;
	assert_int_equal(shim_real.cuArrayCreate_v2(&a, &d), CUDA_SUCCESS);
	assert_int_equal(charged, 2 * MIB);
	assert_int_equal(shim_real.cuArrayDestroy(a), CUDA_SUCCESS);
	shim_mem_arrays_context_ended((CUcontext)(void *)&first_context, ending);
	assert_int_equal(charged, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(address_of_a_destroyed_context),
		cmocka_unit_test(address_of_a_destroyed_context_at_the_limit),
		cmocka_unit_test(a_block_at_the_limit_is_no_overhead),
		cmocka_unit_test(handle_of_a_destroyed_context),
		cmocka_unit_test(room_in_a_unit_serves_a_call_that_has_waited),
		cmocka_unit_test(small_arrays_keep_their_units),
		cmocka_unit_test(a_free_in_stream_order_ends_with_its_charge),
	};

	return cmocka_run_group_tests_name("reused places", tests, begin, NULL);
}
