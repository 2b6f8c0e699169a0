/* Memory that comes back to the device in exchange for other memory: shim_swap_exchange() over an
 * account and a driver of the test, while another process of the vGPU takes what becomes free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "sched/sched.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define LINE 2u
#define OTHER 1u /* line of another process */
#define SMALL (8 * MIB)
#define SMALLS 8u /* chunks on the device, which fill the limit */

void __wrap_sched_moved(struct sched *s, bool out, uint64_t bytes);
int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);

static struct proto_account page;
static uint64_t next = UINT64_C(1) << 40;
static uint64_t moved_out;
static bool other_takes; /* each room that this process makes */

/* Called after a pause, when what has left is not charged any more. */
void __wrap_sched_moved(struct sched *s, bool out, uint64_t bytes)
{
	if (out) {
		moved_out += bytes;
		page.line[0][OTHER].charged += other_takes ? bytes : 0;
	}
}

int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes)
{
	return -1; /* no host memory is made ahead */
}

/* ---- the driver ---- */

static CUresult event_create(CUevent *ret, unsigned flags)
{
	*ret = (CUevent)(uintptr_t)next++;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags)
{
	*ret = (CUstream)(uintptr_t)next++;
	return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *ret_flags, int *ret_active)
{
	*ret_active = 0;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
	return CUDA_SUCCESS;
}

static CUresult ctx_record(CUcontext ctx, CUevent event)
{
	return CUDA_SUCCESS;
}

static CUresult on_event(CUevent event)
{
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	*ret = next++;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr wish,
			unsigned long long flags)
{
	*ret = next;
	next += bytes;
	return CUDA_SUCCESS;
}

static CUresult on_range(CUdeviceptr at, size_t bytes)
{
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	return CUDA_SUCCESS;
}

static void note(const char *text)
{
}

static int ask(const struct proto_mem_ask *m)
{
	return -1; /* without gbpfd */
}

static bool is_agent(void)
{
	return false;
}

/* ---- the testbed ---- */

/* One whose memory does not leave by itself. */
static CUresult get_version(int *ret)
{
	*ret = 12000;
	return CUDA_SUCCESS;
}

static int join(void **state)
{
	static const struct shim_mem_session session = { note, ask, is_agent };
	static uint8_t uuid[2][16] = { { 0xa5 }, { 0xa6 } };

	page.magic = PROTO_ACCOUNT_MAGIC;
	page.abi = PROTO_ABI;
	page.lines = LINE + 1;
	page.owner[LINE].pid = 7;
	page.owner[OTHER].pid = 8;
	page.limit[0] = SMALLS * SMALL;
	page.limit[PROTO_ACCOUNT_SWAP] = page.limit[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	page.allowed[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	memcpy(page.uuid, uuid, sizeof(uuid));
	shim_driver.cuDriverGetVersion = get_version;
	shim_driver.cuEventCreate = event_create;
	shim_driver.cuStreamCreate = stream_create;
	shim_driver.cuDevicePrimaryCtxGetState = primary_state;
	shim_driver.cuCtxPushCurrent_v2 = push;
	shim_driver.cuCtxPopCurrent_v2 = pop;
	shim_work_driver.cuCtxPushCurrent_v2 = push;
	shim_work_driver.cuCtxPopCurrent_v2 = pop;
	shim_work_driver.cuCtxRecordEvent = ctx_record;
	shim_work_driver.cuEventQuery = on_event;
	shim_work_driver.cuEventSynchronize = on_event;
	shim_work_driver.cuEventRecord = event_record;
	shim_work_driver.cuStreamSynchronize = stream_synchronize;
	shim_work_driver.cuMemcpyDtoDAsync_v2 = copy;
	shim_work_driver.cuMemCreate = create;
	shim_work_driver.cuMemRelease = release;
	shim_work_driver.cuMemAddressReserve = reserve;
	shim_work_driver.cuMemAddressFree = on_range;
	shim_work_driver.cuMemMap = map;
	shim_work_driver.cuMemUnmap = on_range;
	shim_work_driver.cuMemSetAccess = set_access;
	return shim_mem_join(&page, LINE, uuid, 2, &session);
}

static struct mem_swap_chunk *add_chunk(uint64_t bytes, enum mem_swap_place place)
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r =
		mem_swap_region_create(bytes, SHIM_SWAP_CHUNK, SHIM_SWAP_CHUNK, 0);
	struct mem_swap_chunk *c;

	assert_non_null(r);
	assert_int_equal(mem_swap_add(&shim_swap_map, r, next), 0);
	next += bytes;
	assert_int_equal(r->n, 1);
	c = &r->chunk[0];
	if (place == MEM_SWAP_DEVICE) {
		assert_true(shim_mem_try_charge(0, bytes));
		assert_int_equal(shim_swap_chunk_create(c), CUDA_SUCCESS);
	} else {
		assert_true(shim_swap_chunk_back(c));
	}
	assert_int_equal(shim_swap_chunk_map(c), CUDA_SUCCESS);
	shim_swap_place(c, place);
	return c;
}

static int set_up(void **state)
{
	moved_out = 0;
	other_takes = false;
	lock_take(&shim_swap_mutex);
	shim_swap_see((CUcontext)(uintptr_t)1, 0, true);
	for (unsigned i = 0; i < SMALLS; i++) {
		(void)add_chunk(SMALL, MEM_SWAP_DEVICE);
	}
	return 0;
}

static int tear_down(void **state)
{
	while (shim_swap_map.n) {
		struct mem_swap_region *r = shim_swap_map.region[0];
		struct mem_swap_chunk *c = &r->chunk[0];

		if (c->place == MEM_SWAP_DEVICE) {
			shim_mem_release(0, c->bytes);
			shim_swap_chunk_release(c);
		}
		shim_swap_place(c, MEM_SWAP_NOWHERE);
		shim_swap_chunk_unmap(c);
		shim_swap_chunk_unback(c);
		mem_swap_remove(&shim_swap_map, r);
		free(r);
	}
	shim_swap_pool_drop(0);
	lock_release(&shim_swap_mutex);
	page.line[0][OTHER].charged = 0;
	return 0;
}

/* Returns the bytes that come back for a chunk of that many on the host. */
static uint64_t exchange(uint64_t bytes)
{
	struct mem_swap_chunk *c = add_chunk(bytes, MEM_SWAP_HOST);

	return shim_swap_exchange(0, &c, 1, shim_swap_map.uses + 1, UINT64_MAX);
}

/* ---- tests ---- */

static void memory_comes_back_into_that_of_a_chunk_of_its_size(void **state)
{
	other_takes = true; /* there is nothing to take */
	assert_int_equal(exchange(SMALL), SMALL);
	assert_int_equal(moved_out, SMALL);
}

static void memory_comes_back_into_what_smaller_chunks_have_left(void **state)
{
	assert_int_equal(exchange(2 * SMALL), 2 * SMALL);
	assert_int_equal(moved_out, 2 * SMALL);
}

static void no_more_leaves_after_another_process_has_taken_each_room_twice(void **state)
{
	other_takes = true;
	assert_int_equal(exchange(2 * SMALL), 0);
	assert_int_equal(moved_out, 4 * SMALL);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(memory_comes_back_into_that_of_a_chunk_of_its_size),
		TEST(memory_comes_back_into_what_smaller_chunks_have_left),
		TEST(no_more_leaves_after_another_process_has_taken_each_room_twice),
	};

	return cmocka_run_group_tests_name("swap exchange", tests, join, NULL);
}
