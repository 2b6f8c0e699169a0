/* Memory of pools that can leave the device: shim/mem/swap_async.c over an account and a driver of
 * the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define MS UINT64_C(1000000)
#define POOL ((CUmemoryPool)(uintptr_t)3)

static uint64_t threshold; /* of the pool, when it becomes known */

/* ---- the driver, which has nothing for the pool ---- */

static CUresult get_attribute(CUmemoryPool pool, CUmemPool_attribute what, void *value)
{
	uint64_t answer = what == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? threshold : 0;

	memcpy(value, &answer, sizeof(answer));
	return CUDA_SUCCESS;
}

static CUresult set_attribute(CUmemoryPool pool, CUmemPool_attribute what, void *value)
{
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
	return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *ret)
{
	return shim_driver.cuCtxGetCurrent(ret);
}

static CUresult no_green(CUstream stream, CUgreenCtx *ret)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static int join(void **state)
{
	shim_driver.cuMemPoolGetAttribute = get_attribute;
	shim_driver.cuMemPoolSetAttribute = set_attribute;
	shim_driver.cuStreamGetCtx = stream_context;
	shim_driver.cuStreamGetGreenCtx = no_green;
	shim_driver.cuStreamWaitEvent = wait_event;
	return rig_join(state);
}

/* ---- what programs call ---- */

static CUresult try_take(CUdeviceptr *ret, uint64_t bytes, unsigned stream)
{
	const struct shim_swap_request a = { .bytes = bytes,
					     .pool = POOL,
					     .stream = rig_stream(stream) };
	CUresult r = shim_swap_async_alloc(ret, &a);

	rig_end_if_left();
	if (r == CUDA_SUCCESS) {
		rig_write(*ret);
	}
	return r;
}

static CUdeviceptr take(uint64_t bytes, unsigned stream)
{
	CUdeviceptr at = 0;

	assert_int_equal(try_take(&at, bytes, stream), CUDA_SUCCESS);
	return at;
}

static void give(CUdeviceptr at, unsigned stream)
{
	CUresult r = CUDA_ERROR_UNKNOWN;

	assert_true(shim_swap_free_async(at, rig_stream(stream), false, &r));
	assert_int_equal(r, CUDA_SUCCESS);
}

static uint64_t figure(CUmemPool_attribute what)
{
	uint64_t value = 0;

	assert_int_equal(shim_real.cuMemPoolGetAttribute(POOL, what, &value), CUDA_SUCCESS);
	return value;
}

static uint64_t reserved(void)
{
	return figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static void set_threshold(uint64_t bytes)
{
	assert_int_equal(
		shim_real.cuMemPoolSetAttribute(POOL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes),
		CUDA_SUCCESS);
}

static int set_up(void **state)
{
	threshold = UINT64_MAX;
	return rig_set_up(state);
}

static int tear_down(void **state)
{
	rig.busy = 0;
	shim_swap_async_destroyed(POOL);
	shim_swap_settle();
	return rig_tear_down(state);
}

/* ---- tests ---- */

/* Of trims at the same time, none finds in the pool what another one has let go. */
static void what_is_let_go_is_not_the_pools(void **state)
{
	CUdeviceptr at[4];

	for (unsigned i = 0; i < 4; i++) {
		at[i] = take(CHUNK, 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		give(at[i], 0);
	}
	assert_int_equal(reserved(), 4 * CHUNK);
	shim_swap_async_trim(POOL, 2 * CHUNK);
	assert_int_equal(reserved(), 2 * CHUNK);
	assert_int_equal(shim_mem_used(0), 4 * CHUNK);
	shim_swap_async_trim(POOL, 2 * CHUNK);
	shim_swap_settle();
	assert_int_equal(reserved(), 2 * CHUNK);
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	rig_check();
}

static void what_is_freed_without_a_stream_is_not_the_pools(void **state)
{
	CUdeviceptr a = take(CHUNK, 0);

	(void)take(2 * CHUNK, 0);
	rig_free(a);
	assert_int_equal(reserved(), 2 * CHUNK);
	assert_int_equal(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * CHUNK);
	rig_check();
}

/* Returns whether a synchronization has looked at pools. */
static bool looks(void)
{
	rig_arm(0, 0);
	shim_swap_async_settle();
	return rig.exchanges != 0;
}

/* What pools keep within their thresholds costs synchronizations nothing. */
static void pools_are_looked_at_while_they_keep_too_much(void **state)
{
	CUdeviceptr a = take(CHUNK, 0), b = take(CHUNK, 0);

	give(a, 0);
	assert_false(looks());
	set_threshold(2 * CHUNK - 1);
	rig.busy = 1;
	assert_true(looks());
	assert_int_equal(reserved(), 2 * CHUNK);
	set_threshold(2 * CHUNK);
	assert_false(looks());
	set_threshold(0);
	rig.busy = 0;
	assert_true(looks());
	assert_int_equal(reserved(), CHUNK);
	assert_false(looks()); /* the other one is in use */
	give(b, 0);
	rig.busy = 1;
	assert_true(looks());
	b = take(CHUNK, 0);
	assert_false(looks());
	rig.busy = 0;
	rig_free(b);
	assert_false(looks());
	assert_int_equal(reserved(), 0);
	rig_check();
}

/* Also behind any number of frees, as long as these are of few streams. */
static void memory_of_another_stream_is_found_behind_pending_frees(void **state)
{
	CUdeviceptr at[41], last;

	for (unsigned i = 0; i < 41; i++) {
		at[i] = take(CHUNK, 0);
	}
	rig.busy = 0xffff;
	for (unsigned i = 0; i < 40; i++) {
		give(at[i], i % 15);
	}
	give(at[40], 20);
	last = at[40];
	assert_int_equal(take(CHUNK, 30), last);
	give(last, 20);
	rig.busy |= UINT64_C(1) << 20; /* the 16th stream of which it is not known */
	assert_int_not_equal(take(CHUNK, 30), last);
	assert_int_equal(shim_mem_used(0), 42 * CHUNK);
	give(take(CHUNK, 21), 21);
	assert_int_equal(shim_mem_used(0), 43 * CHUNK);
	(void)take(CHUNK, 30); /* it does not ask about a 17th one */
	assert_int_equal(shim_mem_used(0), 44 * CHUNK);
	rig.busy = 0xfffe;
	assert_int_equal(take(CHUNK, 30), at[0]);
	rig_check();
}

/* Keeps a region of that many chunks, some of them on the host. */
static CUdeviceptr keep_away(unsigned n, unsigned on_host)
{
	CUdeviceptr at = take(n * CHUNK, 0);

	rig_limit(shim_mem_used(0));
	rig_out(on_host * CHUNK);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(rig_on_device(at, i), i >= on_host);
	}
	give(at, 0);
	return at;
}

/* Its content is dead, so that new memory is as right, and not slower. */
static void kept_memory_on_the_host_is_left_for_room_on_the_device(void **state)
{
	CUdeviceptr a = keep_away(3, 3), b;

	rig_limit(3 * CHUNK);
	rig.busy = 1;
	b = take(3 * CHUNK, 0);
	assert_int_not_equal(a, b);
	assert_int_equal(shim_mem_used(0), 3 * CHUNK);
	assert_int_equal(reserved(), 3 * CHUNK);
	rig.busy = 0;
	shim_swap_settle();
	assert_int_equal(shim_swap_on_host, 0);
	rig_check();
}

static void kept_memory_on_the_host_is_used_without_room_on_the_device(void **state)
{
	CUdeviceptr a = keep_away(3, 3);

	rig_limit(3 * CHUNK - 1);
	assert_int_equal(take(3 * CHUNK, 0), a);
	assert_int_equal(shim_mem_used(0), 0);
	rig_check();
}

/* Where another vGPU needs memory. */
static void kept_memory_on_the_host_is_used_while_the_device_is_held(void **state)
{
	CUdeviceptr a;

	assert_int_equal(shim_swap_release(0, CHUNK, UINT64_MAX, 0, SECOND), 0);
	a = keep_away(3, 3);
	rig_limit(2000 * MIB);
	assert_int_equal(take(3 * CHUNK, 0), a);
	rig_check();
}

/* The part that is on the device becomes room once work is done with it. */
static void kept_memory_in_both_places_is_left_for_room_on_the_device(void **state)
{
	CUdeviceptr a = keep_away(3, 2);

	rig_limit(3 * CHUNK);
	rig.busy = 1;
	assert_int_equal(take(3 * CHUNK, 0), a);
	give(a, 0);
	rig.busy = 0;
	assert_int_not_equal(take(3 * CHUNK, 0), a);
	assert_int_equal(shim_mem_used(0), 3 * CHUNK);
	assert_int_equal(shim_swap_on_host, 0);
	rig_check();
}

/* Work may end while other vGPUs are asked for memory. */
static void memory_lies_on_the_host_only_while_work_uses_what_was_freed(void **state)
{
	CUdeviceptr a = take(3 * CHUNK, 0), b;

	rig_limit(6 * CHUNK);
	rig.page.allowed[0] = 5 * CHUNK;
	rig.busy = 1;
	give(a, 0);
	b = take(4 * CHUNK, 1);
	assert_int_equal(shim_swap_on_host, 2 * CHUNK);
	rig_free(b);
	rig.ask_ends_work = true;
	b = take(4 * CHUNK, 1);
	assert_int_equal(shim_swap_on_host, 0);
	assert_int_equal(shim_mem_used(0), 4 * CHUNK);
	rig_check();
}

/* The work before a free goes on for that long, and the limit and swap have no room without what
 * was freed. Returns what an allocation does, which another stream makes. */
static CUresult take_behind_work(uint64_t ns)
{
	CUdeviceptr a, b, c = 0;
	CUresult r;

	rig_limit(4 * CHUNK);
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 4 * CHUNK;
	a = take(3 * CHUNK, 0);
	b = take(3 * CHUNK, 0);
	give(b, 0);
	rig.work_until = rig.now + ns;
	r = try_take(&c, 4 * CHUNK, 1);
	rig_check();
	assert_true(r != CUDA_SUCCESS || rig.now >= rig.work_until);
	rig_free(a);
	return r;
}

/* Longer than for room on the device alone. */
static void an_allocation_waits_for_work_before_it_is_refused(void **state)
{
	assert_int_equal(take_behind_work(clock_patience(100 * MS)), CUDA_SUCCESS);
}

static void an_allocation_is_refused_after_a_second(void **state)
{
	uint64_t begin = rig.now;

	assert_int_equal(take_behind_work(clock_patience(10 * SECOND)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_in_range(rig.now - begin, clock_patience(SECOND), clock_patience(2 * SECOND));
	rig.work_until = 0;
}

/* Keeps regions of these sizes, the oldest first; 0: the end. */
static void keep(const uint64_t *bytes)
{
	CUdeviceptr at[8];
	unsigned n = 0;

	for (; bytes[n]; n++) {
		at[n] = take(bytes[n], 0);
	}
	for (unsigned i = 0; i < n; i++) {
		give(at[i], 0);
	}
}

static void a_release_frees_whole_regions_until_they_suffice(void **state)
{
	CUdeviceptr a = take(4 * CHUNK, 0);

	keep((uint64_t[]){ CHUNK, 4 * CHUNK, 2 * CHUNK, 0 });
	assert_int_equal(shim_swap_release(0, 2 * CHUNK, UINT64_MAX, 0, 0), 5 * CHUNK);
	assert_int_equal(shim_mem_used(0), 6 * CHUNK);
	assert_true(rig_on_device(a, 0));
	rig_check();
}

/* Also of memory that nothing uses. What is in use moves for a region that is too large. */
static void a_release_retains_the_reserve(void **state)
{
	CUdeviceptr a = take(2 * CHUNK, 0);

	keep((uint64_t[]){ 4 * CHUNK, CHUNK, 0 });
	assert_int_equal(shim_swap_release(0, 3 * CHUNK, UINT64_MAX, 4 * CHUNK, 0), 3 * CHUNK);
	assert_int_equal(shim_mem_used(0), 4 * CHUNK);
	assert_int_equal(reserved(), 6 * CHUNK);
	assert_false(rig_on_device(a, 0) || rig_on_device(a, 1));
	assert_int_equal(shim_swap_release(0, CHUNK, UINT64_MAX, 4 * CHUNK, 0), 0);
	assert_int_equal(shim_swap_release(0, CHUNK, UINT64_MAX, 0, 0), 4 * CHUNK);
	assert_int_equal(shim_mem_used(0), 0);
	rig_check();
}

/* What waits to be freed does not count for the reserve. */
static void a_release_settles_before(void **state)
{
	CUdeviceptr a = take(2 * CHUNK, 0);

	keep((uint64_t[]){ CHUNK, CHUNK, 0 });
	give(a, 0);
	shim_swap_async_trim(POOL, 2 * CHUNK); /* lets the oldest ones go */
	assert_int_equal(shim_swap_release(0, CHUNK, UINT64_MAX, 2 * CHUNK, 0), 0);
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	rig_check();
}

/* Memory of another device counts nothing, and is kept. */
static void a_release_leaves_other_rows_alone(void **state)
{
	const struct shim_swap_request a = {
		.bytes = CHUNK, .row = 1, .pool = POOL, .stream = rig_stream(0)
	};
	CUdeviceptr at = 0;

	rig.page.limit[1] = 2000 * MIB;
	assert_int_equal(shim_swap_async_alloc(&at, &a), CUDA_SUCCESS);
	rig_write(at);
	give(at, 0);
	keep((uint64_t[]){ 2 * CHUNK, 0 });
	assert_int_equal(shim_swap_release(0, 2 * CHUNK, UINT64_MAX, 0, 0), 2 * CHUNK);
	assert_int_equal(shim_mem_used(1), CHUNK);
	assert_int_equal(reserved(), CHUNK);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pools_are_looked_at_while_they_keep_too_much),
		TEST(memory_of_another_stream_is_found_behind_pending_frees),
		TEST(kept_memory_on_the_host_is_left_for_room_on_the_device),
		TEST(kept_memory_on_the_host_is_used_without_room_on_the_device),
		TEST(kept_memory_on_the_host_is_used_while_the_device_is_held),
		TEST(kept_memory_in_both_places_is_left_for_room_on_the_device),
		TEST(memory_lies_on_the_host_only_while_work_uses_what_was_freed),
		TEST(an_allocation_waits_for_work_before_it_is_refused),
		TEST(an_allocation_is_refused_after_a_second),
		TEST(what_is_let_go_is_not_the_pools),
		TEST(a_release_frees_whole_regions_until_they_suffice),
		TEST(a_release_retains_the_reserve),
		TEST(a_release_settles_before),
		TEST(a_release_leaves_other_rows_alone),
		TEST(what_is_freed_without_a_stream_is_not_the_pools),
	};

	return cmocka_run_group_tests(tests, join, NULL);
}
