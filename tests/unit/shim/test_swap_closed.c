/* Launches of closed kernels, which can access the memory that their arguments name and no other:
 * shim/mem/swap_fetch.c, swap_pause.c and swap_move.c over an account and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "policy/ctx.h"
#include "policy/read.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define KERNEL ((CUfunction)(uintptr_t)64)

/* A kernel that accesses memory at its first parameter, and at one of the two. */
static const struct ptx_pointers words = {
	.n = 2,
	.n_params = 2,
	.n_sets = 2,
	.at = { { .param = 0 }, { .param = 1 } },
	.set = { { .words = 1 }, { .words = 3 } },
	.bytes = { 8, 8 },
};

static void launch(CUdeviceptr first, CUdeviceptr second)
{
	void *params[] = { &first, &second };

	rig.now += SECOND; /* a fetch that has brought nothing is not tried again at once */
	rig.param_bytes[0] = rig.param_bytes[1] = 8;
	assert_int_equal(
		shim_driver.cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
		CUDA_SUCCESS);
	rig_check();
}

static void launch_closed(CUdeviceptr first, CUdeviceptr second)
{
	rig.words = &words;
	launch(first, second);
	rig.words = NULL;
}

/* Moves all memory out. The limit has room for that many bytes then. */
static void all_out(uint64_t limit)
{
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
	assert_int_equal(shim_mem_used(0), 0);
	rig_limit(limit);
}

/* Nothing is left for others than what is used. */
static void fill_limit(void)
{
	rig_limit(shim_mem_used(0));
}

/* Returns whether work was noted that may use any memory, since the interval ended. */
static bool notes_any(void)
{
	return load_relaxed(&shim_work_opened) == load_relaxed(&shim_work_interval);
}

static void end_interval(void)
{
	struct shim_swap_pause p;
	bool stopped;

	lock_take(&shim_swap_mutex);
	stopped = shim_swap_stop(&p, SHIM_SWAP_WAIT_NS);
	if (stopped) {
		shim_swap_resume(&p);
	}
	lock_release(&shim_swap_mutex);
	assert_true(stopped);
}

static bool is_closed(CUdeviceptr first, CUdeviceptr second)
{
	end_interval();
	assert_false(notes_any());
	launch_closed(first, second);
	return !notes_any();
}

/* Makes memory of cuMemCreate, and maps it. */
static struct mem_swap_region *map_handle(CUdeviceptr at, uint64_t bytes)
{
	CUmemAllocationProp p = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	struct mem_swap_region *r;

	assert_int_equal(shim_swap_create(&r, bytes, 0, &p), CUDA_SUCCESS);
	assert_int_equal(shim_swap_map_at(r, at), CUDA_SUCCESS);
	rig_write(at);
	return r;
}

static void drop_handle(struct mem_swap_region *r)
{
	assert_int_equal(shim_swap_unmap(r), CUDA_SUCCESS);
	shim_swap_discard(r);
}

/* ---- which launches are closed ---- */

static void words_that_lead_to_known_memory_close_a_launch(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	rig.other = UINT64_C(1) << 50;
	assert_true(is_closed(a, b));
	assert_true(is_closed(a + CHUNK - 8, 0));
	assert_true(is_closed(b + CHUNK - 1, a + 1));
	assert_true(is_closed(a, 12345)); /* a number */
	assert_true(is_closed(a, rig.other));
	assert_true(is_closed(rig.other, rig.other + 2 * MIB - 1));
}

static void other_words_open_a_launch(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	struct mem_swap_region *r;
	uint32_t slot;

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	assert_false(is_closed(a, a + 100 * CHUNK)); /* where there is no memory */
	assert_false(is_closed(12345, a));	     /* an address of numbers alone */
	r = mem_swap_find(&shim_swap_map, a);
	slot = r->slot;
	r->slot = 0; /* there was none left */
	assert_false(is_closed(a, a));
	r->slot = slot;
	assert_true(is_closed(a, a));
	r->freed = true;
	assert_false(is_closed(a, a));
}

/* The number may be the distance of two allocations, in bytes or in elements. */
static void a_number_that_leads_to_other_memory_opens_a_launch(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(2 * CHUNK), c = rig_alloc(CHUNK);

	all_out(4 * CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	assert_true(a + CHUNK == b && b + 2 * CHUNK == c); /* regions touch each other here */
	assert_false(is_closed(b + CHUNK, CHUNK));	   /* c, in bytes */
	assert_false(is_closed(b + CHUNK, CHUNK / 16));
	assert_true(is_closed(b + CHUNK, CHUNK / 16 - 1));
	assert_false(is_closed(a, CHUNK / 16));		      /* b */
	assert_false(is_closed(b + 4 * MIB, CHUNK / 64 + 1)); /* a */
	assert_true(is_closed(b + 4 * MIB, CHUNK / 64 - 1));
	rig.other = c + 64 * CHUNK;
	assert_true(is_closed(rig.other, 3 * CHUNK));
	assert_false(is_closed(rig.other, 4 * CHUNK));
}

static void kernels_that_are_not_closed_may_use_any_memory(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	end_interval();
	launch(a, a);
	assert_true(notes_any());
}

static void work_counts_for_any_memory_while_nothing_has_left(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	assert_false(is_closed(a, a));
}

/* There may be memory of handles, in one reservation or in those that touch it. */
static void a_word_that_leads_to_a_reservation_opens_a_launch(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), at = rig_reserve(64 * MIB);

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	rig.other = at + 32 * MIB; /* memory that has settled */
	assert_false(is_closed(a, rig.other));
	assert_false(is_closed(rig.other, a));
	rig.other = at - 2 * MIB;
	assert_false(is_closed(a, at - 2 * MIB));
	rig.other = at + 64 * MIB;
	assert_false(is_closed(a, at + 64 * MIB));
	rig.other = at + 66 * MIB;
	assert_true(is_closed(a, at + 66 * MIB));
	rig.other = at + 32 * MIB;
	rig_unreserve(at, 64 * MIB);
	assert_true(is_closed(a, rig.other));
}

static void memory_of_handles_opens_a_launch(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), at = rig_reserve(CHUNK);
	struct mem_swap_region *r = map_handle(at, CHUNK);

	all_out(2 * CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	assert_false(is_closed(at, a));
	assert_false(is_closed(a, at));
	assert_false(is_closed(a, at + CHUNK));
	drop_handle(r);
	rig_unreserve(at, CHUNK);
}

/* ---- what is waited for ---- */

/* Regions touch each other here, and a word up to 2 MiB from one may lead to it. */
static void use_closed(CUdeviceptr at)
{
	launch_closed(at + 4 * MIB, at + 4 * MIB);
}

static void memory_comes_back_while_a_closed_launch_uses_other_memory(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	use_closed(a);
	rig.goes_on = true;
	use_closed(b);
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0));
}

static void memory_that_a_closed_launch_uses_does_not_leave(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	use_closed(b);
	end_interval();
	rig.goes_on = true;
	use_closed(a);
	use_closed(c); /* for which b can leave alone */
	assert_true(rig_on_device(a, 0) && rig_on_device(c, 0) && !rig_on_device(b, 0));
	use_closed(b);
	assert_false(rig_on_device(b, 0));
	rig_out(CHUNK);
	assert_true(rig_on_device(a, 0) && rig_on_device(c, 0));
	rig.goes_on = false;
	rig.now += 100 * SECOND;
	use_closed(b);
	assert_true(rig_on_device(b, 0));
}

/* Chunks of a region that a launch uses do not leave either, which it has not named. */
static void others_leave_than_what_a_closed_launch_uses(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);

	all_out(3 * CHUNK);
	use_closed(a);
	use_closed(b);
	end_interval();
	rig.goes_on = true;
	use_closed(a + CHUNK);
	use_closed(c);
	assert_true(rig_on_device(a, 0) && rig_on_device(a, 1) && rig_on_device(c, 0));
	assert_false(rig_on_device(b, 0));
}

static void memory_moves_while_a_closed_launch_uses_what_is_shared(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	struct shim_swap_view v;
	CUipcMemHandle h;

	assert_true(shim_swap_look(a, &v));
	assert_int_equal(shim_swap_share(v.base, v.id, &h), CUDA_SUCCESS);
	fill_limit();
	rig_out(CHUNK);
	assert_false(rig_on_device(b, 0));
	end_interval();
	rig.goes_on = true;
	use_closed(a);
	assert_false(notes_any());
	rig_limit(2 * CHUNK);
	use_closed(b);
	assert_true(rig_on_device(b, 0));
	assert_int_equal(rig_chunk(a, 0)->place, MEM_SWAP_SHARED);
}

static void memory_of_the_host_that_a_closed_launch_uses_stays_there(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	use_closed(a);
	rig.goes_on = true;
	rig.verdict = GBPF_MEM_FETCH;
	use_closed(a);
	assert_false(rig_on_device(a, 0));
}

static void nothing_moves_while_other_work_goes_on(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	launch(a, a);
	rig.goes_on = true;
	use_closed(b);
	assert_false(rig_on_device(b, 0));
	rig_limit(CHUNK);
	rig_out(CHUNK);
	assert_true(rig_on_device(a, 0));
}

/* A thread is in a call that submits work, as where the driver's queue is full. Closing the
 * sections again and again would keep the others from theirs for as long as the launch may wait. */
static void a_pause_that_cannot_begin_is_tried_once(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	struct policy_reader *p;
	uint64_t stops;

	all_out(2 * CHUNK);
	use_closed(a);
	rig.goes_on = true;
	end_interval();
	stops = shim_swap_stops;
	p = policy_work_enter();
	use_closed(b);
	policy_work_leave(p);
	assert_int_equal(shim_swap_stops, stops + 1);
	assert_false(rig_on_device(b, 0));
	rig.goes_on = false;
	rig.now += 100 * SECOND;
	use_closed(b);
	assert_true(rig_on_device(b, 0));
}

/* More than the intervals whose events are kept. */
static void long_work_does_not_keep_earlier_work_from_being_done(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	launch(a, a);
	for (unsigned i = 0; i < 3 * SHIM_SWAP_ENDS; i++) {
		uint64_t uses;

		end_interval();
		rig.goes_on = true;
		lock_take(&shim_swap_mutex);
		(void)shim_swap_done(&uses);
		lock_release(&shim_swap_mutex);
	}
	use_closed(b);
	assert_true(rig_on_device(b, 0));
}

/* Its slot stays when it is the program's again, before the work with it is done. */
static void memory_of_a_pool_that_is_used_again_does_not_leave(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	struct mem_swap_region *r = mem_swap_find(&shim_swap_map, a);
	uint32_t slot = r->slot;

	all_out(CHUNK);
	use_closed(a);
	rig.goes_on = true;
	r->freed = true;
	lock_take(&shim_swap_mutex);
	assert_int_equal(shim_swap_revive(r, CHUNK - MIB), a);
	lock_release(&shim_swap_mutex);
	assert_true(slot && r->slot == slot);
	use_closed(b);
	assert_true(rig_on_device(a, 0) && !rig_on_device(b, 0));
	rig.other = a + CHUNK - MIB; /* behind its bytes, as the driver sees it */
	assert_true(is_closed(rig.other, b));
	assert_int_equal(shim_work_used[slot], shim_work_interval);
}

/* A new region may have the slot of one that work still uses. */
static void a_region_counts_as_used_when_it_is_made(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	assert_int_equal(shim_work_used[mem_swap_find(&shim_swap_map, a)->slot],
			 shim_work_interval);
}

static void memory_of_handles_waits_for_work_that_may_use_any(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), at = rig_reserve(CHUNK), b = rig_alloc(CHUNK);
	struct mem_swap_region *r = map_handle(at, CHUNK);

	all_out(3 * CHUNK);
	launch(at, at);
	assert_true(rig_on_device(at, 0));
	use_closed(a);
	rig.goes_on = true;
	fill_limit();
	rig_out(CHUNK); /* the launch on it is done */
	assert_false(rig_on_device(at, 0));
	rig_limit(3 * CHUNK);
	launch_closed(at, b); /* in place: other work goes on */
	assert_false(rig_on_device(at, 0));
	use_closed(b);
	assert_false(rig_on_device(b, 0));
	rig.goes_on = false;
	drop_handle(r);
	rig_unreserve(at, CHUNK);
}

/* ---- the second pause of an exchange ---- */

static void work_begins_that_may_use_any(void)
{
	shim_work_note(&shim_work_opened);
	rig.goes_on = true;
}

static void the_second_pause_waits_for_work_since_the_first(void **state)
{
	struct mem_swap_chunk *list[1];
	CUdeviceptr a = rig_alloc(CHUNK), b, c;
	uint64_t back;

	all_out(2 * CHUNK);
	b = rig_alloc(12 * MIB);
	c = rig_alloc(4 * MIB);
	fill_limit();
	rig.on_moved = work_begins_that_may_use_any;
	list[0] = rig_chunk(a, 0);
	shim_mem_move_begin();
	lock_take(&shim_swap_mutex);
	back = shim_swap_exchange(0, list, 1, UINT64_MAX, UINT64_MAX);
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
	rig_check();
	assert_int_equal(back, 0);
	assert_false(rig_on_device(a, 0) || rig_on_device(b, 0) || rig_on_device(c, 0));
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(words_that_lead_to_known_memory_close_a_launch),
		TEST(other_words_open_a_launch),
		TEST(a_number_that_leads_to_other_memory_opens_a_launch),
		TEST(kernels_that_are_not_closed_may_use_any_memory),
		TEST(work_counts_for_any_memory_while_nothing_has_left),
		TEST(a_word_that_leads_to_a_reservation_opens_a_launch),
		TEST(memory_of_handles_opens_a_launch),
		TEST(memory_comes_back_while_a_closed_launch_uses_other_memory),
		TEST(memory_that_a_closed_launch_uses_does_not_leave),
		TEST(others_leave_than_what_a_closed_launch_uses),
		TEST(memory_moves_while_a_closed_launch_uses_what_is_shared),
		TEST(memory_of_the_host_that_a_closed_launch_uses_stays_there),
		TEST(nothing_moves_while_other_work_goes_on),
		TEST(a_pause_that_cannot_begin_is_tried_once),
		TEST(long_work_does_not_keep_earlier_work_from_being_done),
		TEST(memory_of_a_pool_that_is_used_again_does_not_leave),
		TEST(a_region_counts_as_used_when_it_is_made),
		TEST(memory_of_handles_waits_for_work_that_may_use_any),
		TEST(the_second_pause_waits_for_work_since_the_first),
	};

	return cmocka_run_group_tests_name("swap closed", tests, rig_join, NULL);
}
