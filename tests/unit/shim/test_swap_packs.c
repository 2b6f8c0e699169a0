/* Small allocations that can leave the device: shim/mem/packs.c, and what swap_region.c and
 * swap_calls.c make of them, over an account and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/account_shares.h"
#include "mem/ledger.h"
#include "mem/pack.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define UNIT MEM_PACK_BYTES
#define KERNEL ((CUfunction)(uintptr_t)64)
#define OF_DRIVER (UINT64_C(1) << 41) /* an address of no chunks */
#define OFFSET 44u		      /* place of the offset in a handle */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static unsigned calloc_until; /* the call that fails; 0: none */

void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_until && !--calloc_until ? NULL : __real_calloc(n, size);
}

static CUdeviceptr live[MEM_PACK_GRAINS * 2];
static unsigned n_live;

static CUdeviceptr try_small(uint64_t bytes)
{
	size_t packs = shim_swap_map.n;
	CUdeviceptr at = 0;

	if (shim_packs_alloc(&at, bytes, (int)rig.device) != CUDA_SUCCESS) {
		rig_end_if_left();
		return 0;
	}
	rig_end_if_left();
	if (shim_swap_map.n > packs) {
		rig_write(at);
	}
	live[n_live++] = at;
	return at;
}

static CUdeviceptr small(uint64_t bytes)
{
	CUdeviceptr at = try_small(bytes);

	assert_true(at);
	return at;
}

static void forget(CUdeviceptr at)
{
	unsigned i = 0;

	while (live[i] != at) {
		i++;
	}
	live[i] = live[--n_live];
}

static void free_small(CUdeviceptr at)
{
	forget(at);
	rig_free(at);
}

/* What a test leaves. */
static int tear_down(void **state)
{
	rig_arm(0, 0);
	rig.busy_ctxs = rig.device = 0;
	shim.captures = 0;
	while (n_live) {
		free_small(live[0]);
	}
	shim_swap_settle();
	return rig_tear_down(state);
}

/* Returns true if an address is in an allocation. */
static bool is_live(CUdeviceptr at)
{
	struct shim_swap_view v;

	return shim_swap_look(at, &v);
}

static uint64_t used(void)
{
	return shim_mem_used(0);
}

/* Moves all memory out. The limit has room for that many bytes then. */
static void all_out(uint64_t limit)
{
	rig_limit(used());
	rig_out(used());
	assert_int_equal(used(), 0);
	rig_limit(limit);
}

/* ---- allocations ---- */

static void small_allocations_share_a_pack(void **state)
{
	CUdeviceptr a = small(1), b = small(70000), c = small(512);

	assert_int_equal(b, a + 512);
	assert_int_equal(c, b + 70144);
	assert_int_equal(shim_swap_map.n, 1);
	assert_int_equal(used(), UNIT);
	rig_check();
	free_small(b);
	assert_int_equal(small(60000), b);
	free_small(a);
	free_small(b);
	assert_int_equal(used(), UNIT);
	free_small(c);
	assert_int_equal(used(), 0);
	assert_int_equal(shim_swap_map.n, 0);
	rig_check();
}

static void a_full_pack_is_followed_by_another_one(void **state)
{
	for (unsigned i = 0; i < MEM_PACK_GRAINS; i++) {
		(void)small(512);
	}
	assert_int_equal(used(), UNIT);
	(void)small(UNIT - 1);
	assert_int_equal(used(), 2 * UNIT);
	(void)small(1);
	assert_int_equal(used(), 3 * UNIT);
	rig_check();
}

static void at_the_limit_the_room_of_packs_is_used(void **state)
{
	CUdeviceptr a = small(UNIT - 1024), b;

	rig_limit(UNIT);
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 0;
	b = small(1000);
	assert_false(try_small(1));
	free_small(b);
	assert_false(try_small(1025));
	assert_true(small(1024));
	rig_check();
	free_small(a);
	(void)small(1);
	rig_check();
}

static void beyond_the_limit_a_pack_lies_on_the_host(void **state)
{
	CUdeviceptr a = small(UNIT - 1), b;

	rig_limit(UNIT);
	rig.busy_ctxs = 1; /* nothing can leave */
	b = small(1);
	assert_true(rig_on_device(a, 0));
	assert_false(rig_on_device(b, 0));
	assert_int_equal(used(), UNIT);
	rig_check();
	rig.busy_ctxs = 0;
	rig_limit(2000 * MIB);
}

static void each_context_has_packs_of_its_own(void **state)
{
	CUdeviceptr a = small(1), b, c;
	CUcontext before;

	rig.device = 1;
	b = small(1);
	assert_int_equal(shim_swap_map.n, 2);
	assert_int_equal(shim_mem_used(1), UNIT);
	assert_int_equal(shim_driver.cuCtxPushCurrent_v2(rig_context(2)), CUDA_SUCCESS);
	c = small(1);
	assert_int_equal(shim_driver.cuCtxPopCurrent_v2(&before), CUDA_SUCCESS);
	assert_int_equal(shim_swap_map.n, 3);
	assert_int_equal(small(1), b + 512);
	shim_swap_context_ended(rig_context(2), shim_mem_epoch());
	assert_int_equal(shim_swap_map.n, 2);
	forget(c);
	free_small(b);
	rig.device = 0;
	assert_int_equal(small(1), a + 512);
	rig_check();
}

static void packs_end_with_their_context(void **state)
{
	CUcontext ctx = rig_context(0);
	CUdeviceptr a = small(1), b;
	uint64_t epoch;

	shim_swap_context_ending(ctx, true);
	epoch = shim_mem_epoch();
	b = small(1); /* of another context, which has the handle */
	assert_int_equal(shim_swap_map.n, 2);
	shim_swap_context_seen(ctx, 0);
	shim_swap_context_ended(ctx, epoch);
	assert_false(is_live(a));
	assert_true(is_live(b));
	forget(a);
	assert_int_equal(used(), UNIT);
	rig_check();
}

/* Each release of a primary context that others retain is an end that does not come. */
static void a_context_that_stays_allocates_in_its_packs(void **state)
{
	CUcontext ctx = rig_context(0);
	CUdeviceptr a = small(1), b;

	for (unsigned i = 1; i < 5; i++) {
		shim_swap_context_ending(ctx, true);
		shim_swap_context_ending(ctx, false);
		assert_int_equal(small(1), a + i * 512);
	}
	assert_int_equal(used(), UNIT);
	shim_swap_context_ending(ctx, true);
	shim_swap_context_ending(ctx, true); /* by two threads */
	b = small(UNIT - 512);
	shim_swap_context_ending(ctx, false);
	assert_int_equal(small(512), b + UNIT - 512);
	assert_int_equal(used(), 2 * UNIT);
	shim_swap_context_ending(ctx, false);
	assert_int_equal(small(1), a + 5 * 512); /* the latest pack is full */
	assert_int_equal(used(), 2 * UNIT);
	rig_check();
}

/* An end that does not come may be under way when another context has had the handle. */
static void packs_of_a_context_that_has_ended_stay_closed(void **state)
{
	CUcontext ctx = rig_context(0);
	CUdeviceptr a = small(1);

	shim_swap_context_ending(ctx, true);
	shim_swap_context_seen(ctx, 0);
	shim_swap_context_ending(ctx, false);
	assert_true(mem_swap_find(&shim_swap_map, small(1)) != mem_swap_find(&shim_swap_map, a));
	assert_int_equal(used(), 2 * UNIT);
	rig_check();
}

/* A call for a context may be under way when another one gets its handle. */
static void a_context_that_is_made_takes_no_pack_of_another_one(void **state)
{
	CUcontext ctx = rig_context(0);
	CUdeviceptr a;

	shim_swap_context_ending(ctx, true);
	a = small(1);
	shim_swap_context_seen(ctx, 0);
	assert_true(mem_swap_find(&shim_swap_map, small(1)) != mem_swap_find(&shim_swap_map, a));
	rig_check();
}

/* ---- frees ---- */

static void a_free_waits_for_captures(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000);

	shim.captures = 1;
	free_small(a);
	assert_false(is_live(a));
	assert_int_equal(small(1000), b + 1024);
	shim.captures = 0;
	rig.busy_ctxs = 1;
	shim_swap_settle();
	assert_int_equal(small(1000), b + 2048);
	rig.busy_ctxs = 0;
	assert_int_equal(small(1000 + UNIT / 2), b + 3072);
	shim_swap_settle();
	assert_int_equal(small(1000), a);
	rig_check();
}

static void what_was_freed_is_used_before_a_pack_is_made(void **state)
{
	CUdeviceptr a = small(1000);

	(void)small(UNIT - 1024);
	shim.captures = 1;
	free_small(a);
	shim.captures = 0;
	assert_int_equal(small(1000), a);
	assert_int_equal(used(), UNIT);
}

static void a_free_waits_for_other_devices(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000);

	shim_swap_context_seen(rig_context(2), 1);
	rig.busy_ctxs = 6;
	free_small(a);
	for (unsigned ctx = 1; ctx <= 2; ctx++) {
		shim_swap_settle();
		assert_true(small(1000) > b);
		rig.busy_ctxs &= ~(1u << ctx);
	}
	shim_swap_settle();
	assert_int_equal(small(1000), a);
	shim_swap_context_ended(rig_context(2), shim_mem_epoch());
	rig_check();
}

static void only_allocations_are_freed(void **state)
{
	CUdeviceptr a = small(100000), b = small(1);
	CUresult r;

	assert_false(shim_swap_free(a + 512, &r));
	assert_false(shim_swap_free(b + 512, &r));
	free_small(a);
	assert_false(shim_swap_free(a, &r));
	assert_int_equal(used(), UNIT);
	rig_check();
}

static void a_free_behind_a_stream_waits_for_it(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000);
	CUresult r = CUDA_ERROR_UNKNOWN;

	rig.busy = 1;
	assert_true(shim_swap_free_async(a, CU_STREAM_LEGACY, false, &r));
	assert_int_equal(r, CUDA_SUCCESS);
	forget(a);
	assert_int_equal(small(1000), b + 1024);
	rig.busy = 0;
	shim_swap_settle();
	assert_int_equal(small(1000), a);
	rig_check();
}

static void chunks_return_into_a_pack_that_is_freed(void **state)
{
	CUdeviceptr a = small(1), b;

	all_out(UNIT);
	rig.busy_ctxs = 1;
	b = rig_alloc(UNIT); /* has the room */
	rig.busy_ctxs = 0;
	assert_true(rig_on_device(b, 0));
	assert_false(rig_on_device(a, 0));
	rig_free(b);
	assert_true(rig_on_device(a, 0));
	b = rig_alloc(UNIT);
	assert_false(rig_on_device(a, 0));
	free_small(a);
	assert_int_equal(used(), UNIT);
	rig_check();
}

/* ---- movements ---- */

static void a_pack_moves_as_a_whole(void **state)
{
	CUdeviceptr a = small(1), b = small(UNIT / 2), c;

	all_out(4 * UNIT);
	assert_false(rig_on_device(a, 0));
	rig_check();
	c = small(1); /* in it, where it is */
	assert_int_equal(c, b + UNIT / 2);
	assert_int_equal(used(), 0);
	rig_check();
	free_small(a);
	free_small(b);
	free_small(c);
	assert_int_equal(shim_mem_used(PROTO_ACCOUNT_SWAP), shim_mem_used(PROTO_ACCOUNT_HOST));
	rig_check();
}

static void a_launch_names_the_pack_of_an_address(void **state)
{
	CUdeviceptr a = small(UNIT / 2), b = small(UNIT / 2), c = small(UNIT / 2);
	CUdeviceptr at = b + 5000;
	void *params[] = { &at };
	struct shim_swap_launch l = { .f = KERNEL, .params = params };

	all_out(4 * UNIT);
	rig.now += SECOND;
	rig.param_bytes[0] = sizeof(at);
	shim_swap_launch(&l);
	rig_end_if_left();
	if (l.timed_in) {
		shim_swap_launched(&l, CUDA_SUCCESS);
	}
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0));
	assert_false(rig_on_device(c, 0));
	assert_int_equal(rig.moved[false], UNIT);
	rig_check();
}

/* ---- answers ---- */

static uint64_t attribute(CUpointer_attribute what, CUdeviceptr at)
{
	uint64_t value = 0;

	assert_int_equal(shim_real.cuPointerGetAttribute(&value, what, at), CUDA_SUCCESS);
	return value;
}

static CUdeviceptr asked; /* of the driver */

static CUresult get_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr at)
{
	asked = at;
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult get_many(unsigned n, CUpointer_attribute *what, void **out, CUdeviceptr at)
{
	asked = at;
	return CUDA_SUCCESS;
}

static void an_allocation_has_its_own_answers(void **state)
{
	CUdeviceptr a = small(1000), b = small(3000), base = 0;
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
	void *out[] = { &(size_t){ 7 } };
	size_t bytes = 0;
	uint64_t id;

	shim_driver.cuMemGetAddressRange_v2 = get_range;
	shim_driver.cuPointerGetAttributes = get_many;
	assert_int_equal(shim_real.cuMemGetAddressRange_v2(&base, &bytes, b + 2999), CUDA_SUCCESS);
	assert_int_equal(base, b);
	assert_int_equal(bytes, 3000);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, b + 700), b);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 7), 1000);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 7), a + 7);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, a), (uintptr_t)rig_context(0));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a), 1);
	id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
	assert_int_not_equal(id, attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
	assert_int_equal(shim_real.cuPointerGetAttributes(1, &what, out, b + 5), CUDA_SUCCESS);
	assert_int_equal(*(size_t *)out[0], 3000);
	free_small(a);
	assert_int_equal(small(1000), a);
	assert_int_not_equal(id, attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
}

/* The driver has all of the pack as memory. */
static void room_in_a_pack_is_no_memory(void **state)
{
	CUdeviceptr a = small(1000), b = small(1), base;
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
	void *out[] = { &(size_t){ 7 } };
	size_t bytes;

	shim_driver.cuMemGetAddressRange_v2 = get_range;
	shim_driver.cuPointerGetAttributes = get_many;
	for (unsigned i = 0; i < 2; i++) {
		CUdeviceptr at = i ? a : a + 1000;

		asked = 1;
		assert_int_equal(shim_real.cuMemGetAddressRange_v2(&base, &bytes, at),
				 CUDA_ERROR_NOT_FOUND);
		assert_int_equal(asked, 0);
		asked = 1;
		assert_int_equal(shim_real.cuPointerGetAttributes(1, &what, out, at), CUDA_SUCCESS);
		assert_int_equal(asked, 0);
		assert_false(is_live(at));
		assert_true(shim_swap_has(at)); /* the CPU must not copy there */
		if (!i) {
			free_small(a);
		}
	}
	(void)shim_real.cuMemGetAddressRange_v2(&base, &bytes, OF_DRIVER);
	assert_int_equal(asked, OF_DRIVER);
	/* It is gBPF's all the same. */
	assert_int_equal(shim_real.cuMemUnmap(a, 512), CUDA_ERROR_INVALID_VALUE);
	assert_true(is_live(b));
}

/* ---- failures ---- */

static void an_allocation_that_fails_leaves_nothing(void **state)
{
	unsigned i = 0, calls;
	CUdeviceptr a;

	do {
		rig_arm(++i, 0);
		a = try_small(1000);
		calls = rig.calls;
		rig_check();
		assert_int_equal(used(), a && rig_on_device(a, 0) ? UNIT : 0);
		if (a) {
			rig_arm(0, 0);
			free_small(a);
		}
	} while (calls >= i);
	assert_true(a && i > 3);
}

static void without_host_memory_there_is_no_pack(void **state)
{
	CUdeviceptr a = 0;
	unsigned i = 0;

	while (!a) {
		calloc_until = ++i;
		a = try_small(1000);
		calloc_until = 0;
		assert_int_equal(used(), a ? UNIT : 0);
		rig_check();
	}
	assert_true(i >= 4); /* region, set, pack, its first part */
}

static void a_free_that_fails_keeps_the_allocation(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000);
	unsigned failed = 0;

	for (unsigned i = 1; i <= 3; i++) {
		rig_arm(i, i + 1);
		if (rig_try_free(a)) {
			assert_int_equal(small(1000), a);
			forget(a);
		} else {
			failed++;
			assert_true(is_live(a));
			assert_true(small(1000) > b);
		}
		rig_check();
	}
	assert_int_not_equal(failed, 0);
	rig_arm(0, 0);
}

/* ---- sharing ---- */

/* Returns the handle of an allocation, without its offset in the pack, *ret_offset. */
static CUipcMemHandle share(CUdeviceptr at, uint32_t *ret_offset)
{
	CUipcMemHandle h;

	assert_int_equal(shim_real.cuIpcGetMemHandle(&h, at), CUDA_SUCCESS);
	rig_end_if_left();
	memcpy(ret_offset, h.reserved + OFFSET, sizeof(*ret_offset));
	memset(h.reserved + OFFSET, 0, sizeof(*ret_offset));
	return h;
}

static void handles_name_the_pack_and_where_they_are_in_it(void **state)
{
	CUdeviceptr a = small(1000), b = small(3000), other = rig_alloc(UNIT);
	uint32_t at_a, at_b, at_other;
	CUipcMemHandle hb = share(b + 7, &at_b), ha = share(a, &at_a), ho = share(other, &at_other);
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, a);

	assert_int_equal(at_a, 0);
	assert_int_equal(at_b, b - a);
	assert_int_equal(at_other, 0);
	assert_memory_equal(&ha, &hb, sizeof(ha));
	assert_memory_not_equal(&ha, &ho, sizeof(ha));
	assert_int_equal(mem_share_at(&rig.page, r->share - 1).id,
			 shim_mem_identity_of_handle(&ha, sizeof(ha)).id);
	rig_check();
}

static void what_shares_a_pack_with_a_shared_allocation_stays(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000), c = small(MEM_PACK_BYTES - 4096);
	CUdeviceptr other = small(MEM_PACK_BYTES - 4096);
	uint32_t offset;

	all_out(4 * UNIT);
	(void)share(b, &offset);
	assert_int_equal(offset, b - a);
	assert_int_equal(rig_chunk(a, 0)->place, MEM_SWAP_SHARED);
	assert_false(rig_on_device(other, 0));
	rig_limit(used());
	rig_out(used());
	assert_int_equal(used(), UNIT);
	rig_limit(4 * UNIT);
	assert_int_equal(rig.page.kinds[0][2].bytes[PROTO_KIND_SHARED], UNIT);
	free_small(b);
	assert_int_equal(small(1000), b); /* as in a block of the driver's */
	free_small(a);
	free_small(b);
	assert_int_equal(rig.page.kinds[0][2].bytes[PROTO_KIND_SHARED], UNIT);
	free_small(c);
	assert_int_equal(rig.page.kinds[0][2].bytes[PROTO_KIND_SHARED], 0);
	rig_check();
}

static void what_is_freed_is_not_shared(void **state)
{
	CUdeviceptr a = small(1000), b = small(1000);
	struct shim_swap_view v;
	CUipcMemHandle h;

	assert_true(shim_swap_look(b, &v));
	rig.busy_ctxs = 1;
	shim.captures = 1;
	free_small(b);
	assert_int_equal(shim_swap_share(b, v.id, &h), CUDA_ERROR_INVALID_VALUE);
	shim.captures = 0;
	rig.busy_ctxs = 0;
	shim_swap_settle();
	assert_int_equal(shim_swap_share(b, v.id, &h), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(shim_swap_share(a, v.id, &h), CUDA_ERROR_INVALID_VALUE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(small_allocations_share_a_pack),
		TEST(a_full_pack_is_followed_by_another_one),
		TEST(at_the_limit_the_room_of_packs_is_used),
		TEST(beyond_the_limit_a_pack_lies_on_the_host),
		TEST(each_context_has_packs_of_its_own),
		TEST(packs_end_with_their_context),
		TEST(a_context_that_stays_allocates_in_its_packs),
		TEST(packs_of_a_context_that_has_ended_stay_closed),
		TEST(a_context_that_is_made_takes_no_pack_of_another_one),
		TEST(a_free_waits_for_captures),
		TEST(what_was_freed_is_used_before_a_pack_is_made),
		TEST(a_free_waits_for_other_devices),
		TEST(only_allocations_are_freed),
		TEST(a_free_behind_a_stream_waits_for_it),
		TEST(chunks_return_into_a_pack_that_is_freed),
		TEST(a_pack_moves_as_a_whole),
		TEST(a_launch_names_the_pack_of_an_address),
		TEST(an_allocation_has_its_own_answers),
		TEST(room_in_a_pack_is_no_memory),
		TEST(an_allocation_that_fails_leaves_nothing),
		TEST(without_host_memory_there_is_no_pack),
		TEST(a_free_that_fails_keeps_the_allocation),
		TEST(handles_name_the_pack_and_where_they_are_in_it),
		TEST(what_shares_a_pack_with_a_shared_allocation_stays),
		TEST(what_is_freed_is_not_shared),
	};

	return cmocka_run_group_tests_name("swap_packs", tests, rig_join_two, NULL);
}
