/* Memory that is copied to the host before it leaves the device: shim/mem/swap_pool.c and
 * swap_move.c over an account and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "mem/host_room.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

uint64_t __wrap_mem_host_room(const char *root);

/* The machine has room. */
uint64_t __wrap_mem_host_room(const char *root)
{
	(void)root;
	return UINT64_C(1) << 40;
}

static void order(void)
{
	lock_take(&shim_swap_mutex);
	shim_swap_pool_ordered(0);
	lock_release(&shim_swap_mutex);
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

/* What the pool's thread does until nothing is due, after a second. */
static void take_steps(void)
{
	unsigned n = 0;

	rig.now += SECOND;
	while (shim_swap_pool_step(rig.now)) {
		assert_true(++n < 1000);
	}
	rig_check();
}

/* Memory of n chunks, for which an order was announced. The work that has made it is done. */
static CUdeviceptr alloc_ordered(unsigned n)
{
	CUdeviceptr at = rig_alloc(n * CHUNK);

	order();
	end_interval();
	return at;
}

/* Moves all memory out. Returns how many chunks are copied for that. */
static unsigned all_out(void)
{
	rig_arm(0, 0);
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
	assert_int_equal(shim_mem_used(0), 0);
	rig_check();
	return rig.copies;
}

static void what_was_copied_leaves_without_a_copy(void **state)
{
	CUdeviceptr a = alloc_ordered(3);

	take_steps();
	assert_int_equal(rig.copies, 3);
	assert_true(rig_on_device(a, 0) && rig_on_device(a, 2));
	assert_int_equal(all_out(), 0);
	assert_string_equal(rig.trace, "ha hb hc w w");
}

static void only_what_was_not_copied_is_copied_then(void **state)
{
	CUdeviceptr a = alloc_ordered(2);

	take_steps();
	assert_true(rig_alloc(CHUNK));
	assert_int_equal(all_out(), 1);
	assert_false(rig_on_device(a, 0));
}

static void without_an_order_nothing_is_copied(void **state)
{
	rig_limit(2 * CHUNK);
	assert_true(rig_alloc(2 * CHUNK)); /* the limit leaves nothing: memory is made for it */
	end_interval();
	take_steps();
	assert_int_equal(shim_swap_pool_bytes(), 2 * CHUNK);
	assert_int_equal(rig.copies, 0);
	order();
	take_steps();
	assert_int_equal(rig.copies, 2);
	rig.now += SHIM_SWAP_POOL_IDLE_NS;
	shim_work_note(&shim_work_opened);
	end_interval();
	take_steps(); /* that order is over */
	assert_int_equal(rig.copies, 2);
}

static void work_may_change_what_was_copied(void **state)
{
	assert_true(alloc_ordered(2));
	take_steps();
	shim_work_note(&shim_work_opened);
	assert_int_equal(all_out(), 2);
}

static void closed_launches_may_change_what_they_name(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	assert_true(b);
	assert_true(alloc_ordered(1));
	take_steps();
	shim_work_note(&shim_work_used[rig_chunk(a, 0)->region->slot]);
	assert_int_equal(all_out(), 1);
	assert_non_null(strstr(rig.trace, "oa"));
}

static void what_work_has_changed_is_copied_again(void **state)
{
	assert_true(alloc_ordered(2));
	take_steps();
	shim_work_note(&shim_work_opened);
	take_steps(); /* it sees that there was work, in the interval that it ends */
	assert_int_equal(rig.copies, 2);
	take_steps();
	assert_int_equal(rig.copies, 4);
	assert_int_equal(all_out(), 0);
}

static void a_program_that_works_is_not_paused_for_copies(void **state)
{
	uint64_t interval;

	assert_true(alloc_ordered(2));
	shim_work_note(&shim_work_opened);
	rig.work_until = rig.now + 5 * SECOND;
	interval = load_relaxed(&shim_work_interval);
	take_steps();
	take_steps();
	take_steps();
	assert_int_equal(load_relaxed(&shim_work_interval), interval);
	assert_int_equal(rig.copies, 0);
	rig.now = rig.work_until;
	take_steps(); /* it sees that there was work, in the interval that it ends */
	take_steps();
	assert_int_equal(rig.copies, 2);
}

/* Other work of the last interval, which cannot use the memory, may be before them in a queue. */
static void copies_that_would_wait_are_not_begun(void **state)
{
	assert_true(alloc_ordered(1));
	rig.busy = 1;
	take_steps();
	assert_int_equal(rig.copies, 0);
	rig.busy = 0;
	take_steps();
	assert_int_equal(rig.copies, 1);
}

static void a_copy_that_fails_is_none(void **state)
{
	assert_true(alloc_ordered(2));
	rig.fail_copy = 2;
	take_steps();
	assert_int_equal(rig.copies, 2);
	assert_int_equal(all_out(), 1);
}

static void a_copy_that_fails_is_made_later(void **state)
{
	assert_true(alloc_ordered(2));
	rig.fail_copy = 1;
	take_steps();
	assert_int_equal(rig.copies, 1);
	take_steps();
	assert_int_equal(rig.copies, 3);
	assert_int_equal(all_out(), 0);
}

static void whatever_call_fails_the_bytes_are_right(void **state)
{
	bool failed = true;

	for (unsigned n = 1; failed; n++) {
		CUdeviceptr a = alloc_ordered(2);

		rig_arm(n, 0);
		take_steps();
		failed = rig.calls >= n;
		(void)all_out();
		rig_free(a);
		rig_limit(2000 * MIB);
		lock_take(&shim_swap_mutex);
		shim_swap_pool_drop(0);
		lock_release(&shim_swap_mutex);
		assert_true(n < 1000);
	}
}

static void other_memory_at_the_same_address_was_not_copied(void **state)
{
	CUdeviceptr a = alloc_ordered(1), b;

	take_steps();
	lock_take(&shim_swap_mutex);
	rig_chunk(a, 0)->region->id = shim_swap_new_id();
	lock_release(&shim_swap_mutex);
	assert_int_equal(all_out(), 1);
	b = rig_alloc(CHUNK);
	assert_true(b != a);
}

static void memory_of_the_pool_goes_to_the_chunk_that_was_copied_there(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = alloc_ordered(1);
	struct mem_swap_chunk *of_b;
	uint64_t handle;

	take_steps();
	assert_int_equal(rig.copies, 2);
	of_b = rig_chunk(b, 0);
	lock_take(&shim_swap_mutex);
	assert_true(shim_swap_pool_take(of_b));
	assert_true(of_b->copied);
	handle = of_b->host;
	shim_swap_chunk_unback(of_b);
	assert_true(shim_swap_pool_take(rig_chunk(a, 0)));
	assert_true(rig_chunk(a, 0)->copied && rig_chunk(a, 0)->host != handle);
	shim_swap_chunk_unback(rig_chunk(a, 0));
	lock_release(&shim_swap_mutex);
}

static void a_chunk_without_a_copy_takes_memory_without_a_use(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = alloc_ordered(1), c;
	bool copied;

	take_steps(); /* the memory that a was copied to is the latest */
	assert_int_equal(shim_swap_pool_bytes(), 2 * CHUNK);
	assert_int_equal(rig.copies, 2);
	shim_work_note(&shim_work_used[rig_chunk(b, 0)->region->slot]);
	c = rig_alloc(CHUNK);
	lock_take(&shim_swap_mutex);
	assert_true(shim_swap_pool_take(rig_chunk(c, 0)));
	copied = rig_chunk(c, 0)->copied;
	assert_true(shim_swap_pool_take(rig_chunk(a, 0)));
	assert_true(rig_chunk(a, 0)->copied && !copied);
	shim_swap_chunk_unback(rig_chunk(a, 0));
	shim_swap_chunk_unback(rig_chunk(c, 0));
	lock_release(&shim_swap_mutex);
}

static void what_has_stayed_is_copied_when_it_leaves(void **state)
{
	CUdeviceptr a = alloc_ordered(1);

	take_steps();
	lock_take(&shim_swap_mutex);
	assert_true(shim_swap_pool_take(rig_chunk(a, 0)));
	shim_swap_chunk_unback(rig_chunk(a, 0));
	shim_swap_pool_drop(0);
	lock_release(&shim_swap_mutex);
	assert_int_equal(all_out(), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_copied_leaves_without_a_copy),
		TEST(only_what_was_not_copied_is_copied_then),
		TEST(without_an_order_nothing_is_copied),
		TEST(work_may_change_what_was_copied),
		TEST(closed_launches_may_change_what_they_name),
		TEST(what_work_has_changed_is_copied_again),
		TEST(a_program_that_works_is_not_paused_for_copies),
		TEST(copies_that_would_wait_are_not_begun),
		TEST(a_copy_that_fails_is_none),
		TEST(a_copy_that_fails_is_made_later),
		TEST(whatever_call_fails_the_bytes_are_right),
		TEST(other_memory_at_the_same_address_was_not_copied),
		TEST(memory_of_the_pool_goes_to_the_chunk_that_was_copied_there),
		TEST(a_chunk_without_a_copy_takes_memory_without_a_use),
		TEST(what_has_stayed_is_copied_when_it_leaves),
	};

	return cmocka_run_group_tests_name("swap ahead", tests, rig_join, NULL);
}
