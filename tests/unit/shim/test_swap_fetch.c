/* Launches that name memory which has left the device: shim/mem/swap_fetch.c over an account, a
 * policy and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "policy/ctx.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define KERNEL ((CUfunction)(uintptr_t)64)

static void launch_as(struct shim_swap_launch l)
{
	rig.now += SECOND; /* a fetch that has brought nothing is not tried again at once */
	l.f = KERNEL;
	shim_swap_launch(&l);
	rig_end_if_left();
	if (l.timed_in) {
		shim_swap_launched(&l, CUDA_SUCCESS);
	}
	rig_check();
}

/* Launches a kernel whose parameters are at these addresses. */
static void launch(void *p0, size_t bytes0, void *p1, size_t bytes1)
{
	rig.param_bytes[0] = bytes0;
	rig.param_bytes[1] = bytes1;
	launch_as((struct shim_swap_launch){ .params = (void *[]){ p0, p1 } });
}

static void launch_on(CUdeviceptr at)
{
	launch(&at, sizeof(at), NULL, 0);
}

/* Moves all memory out. The limit has room for that many bytes then. */
static void all_out(uint64_t limit)
{
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
	assert_int_equal(shim_mem_used(0), 0);
	rig_limit(limit);
}

static void what_no_launch_names_stays_on_the_host(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	all_out(2 * CHUNK);
	launch_on(b);
	assert_true(rig_on_device(b, 0));
	assert_false(rig_on_device(a, 0));
}

static void a_policy_can_leave_it_on_the_host(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	launch_on(a);
	assert_false(rig_on_device(a, 0));
	rig.verdict = GBPF_MEM_FETCH;
	launch_on(a);
	assert_true(rig_on_device(a, 0));
}

static void others_leave_for_what_is_named(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b = rig_alloc(2 * CHUNK);

	all_out(2 * CHUNK);
	for (unsigned i = 0; i < 2; i++) {
		launch_on(a);
		assert_true(rig_on_device(a, 0) && rig_on_device(a, 1));
		assert_false(rig_on_device(b, 0) || rig_on_device(b, 1));
		launch_on(b);
		assert_true(rig_on_device(b, 0) && rig_on_device(b, 1));
		assert_false(rig_on_device(a, 0) || rig_on_device(a, 1));
	}
}

/* The limit has no room for all of it: no other memory leaves. */
static void a_launchs_own_memory_does_not_leave_for_it(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);

	all_out(2 * CHUNK);
	launch_on(a);
	rig_arm(0, 0);
	launch_on(a);
	assert_int_equal(rig.copies, 0);
	assert_int_equal(rig_on_device(a, 0) + rig_on_device(a, 1) + rig_on_device(a, 2), 2);
}

/* Memory that has left lies behind what is missing, and is not taken for it. */
static void chunks_of_other_sizes_leave_for_it_in_two_pauses(void **state)
{
	CUdeviceptr a = rig_alloc(8 * MIB), b = rig_alloc(8 * MIB), c = rig_alloc(CHUNK);

	all_out(CHUNK);
	launch_on(a);
	launch_on(b);
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0));
	launch_on(c);
	assert_true(rig_on_device(c, 0));
	assert_false(rig_on_device(a, 0) || rig_on_device(b, 0));
}

static void more_than_one_pause_moves_is_fetched_by_one_launch(void **state)
{
	CUdeviceptr many[SHIM_SWAP_BATCH + 6];

	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = rig_alloc(2 * MIB);
	}
	all_out(ARRAY_SIZE(many) * 2 * MIB);
	rig_arm(0, 0);
	launch(many, sizeof(many), NULL, 0);
	assert_int_equal(rig.copies, ARRAY_SIZE(many));
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		assert_true(rig_on_device(many[i], 0));
	}
}

/* What leaves in the first pause lies behind what is missing still. */
static void more_than_one_pause_moves_takes_the_memory_of_others(void **state)
{
	CUdeviceptr many[SHIM_SWAP_BATCH + 6], others[10];

	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = rig_alloc(2 * MIB);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		others[i] = rig_alloc(2 * MIB);
	}
	all_out(ARRAY_SIZE(many) * 2 * MIB);
	launch(others, sizeof(others), NULL, 0);
	launch(many, sizeof(many), NULL, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		assert_true(rig_on_device(many[i], 0));
	}
	assert_false(rig_on_device(others[0], 0));
}

static void a_launch_names_memory_from_an_address_on(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	all_out(2 * CHUNK);
	launch_on(a + 2 * CHUNK);
	assert_false(rig_on_device(a, 0) || rig_on_device(a, 1));
	launch_on(a + CHUNK);
	assert_false(rig_on_device(a, 0));
	assert_true(rig_on_device(a, 1));
	launch_on(a + CHUNK - 1);
	assert_true(rig_on_device(a, 0));
}

/* An address inside may be one of a pool, and so may that of an allocation larger than the limit.
 */
static void the_address_of_an_allocation_names_all_of_it(void **state)
{
	CUdeviceptr a = rig_alloc(1280 * MIB), b = rig_alloc(1280 * MIB);
	CUdeviceptr both[] = { a, b };

	all_out(2560 * MIB);
	launch(both, sizeof(both), NULL, 0);
	assert_true(rig_on_device(a, 19) && rig_on_device(b, 19));
	all_out(2560 * MIB);
	launch_on(a + 8);
	assert_true(rig_on_device(a, 15));
	assert_false(rig_on_device(a, 16));
	all_out(1216 * MIB);
	launch_on(b);
	assert_true(rig_on_device(b, 15));
	assert_false(rig_on_device(b, 16));
}

/* A word that begins in a parameter and ends behind it is none. */
static void whole_words_of_parameters_are_named(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	uint64_t words[3] = { 5, a, b };

	all_out(2 * CHUNK);
	launch(&words[0], 4, &words[2], 7);
	launch(&words[0], 15, &words[2], 4);
	assert_false(rig_on_device(a, 0) || rig_on_device(b, 0));
	launch(NULL, 8, &words[1], 8);
	assert_true(rig_on_device(a, 0));
	launch(&words[0], 23, NULL, 0);
	assert_false(rig_on_device(b, 0));
	launch(&words[0], 24, NULL, 0);
	assert_true(rig_on_device(b, 0));
}

static void a_buffer_of_parameters_is_read_up_to_its_end(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	uint64_t words[2] = { a, b };
	size_t bytes = 15;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	all_out(2 * CHUNK);
	launch_as((struct shim_swap_launch){ .extra = extra });
	assert_true(rig_on_device(a, 0));
	assert_false(rig_on_device(b, 0));
	bytes = 16;
	launch_as((struct shim_swap_launch){ .extra = extra });
	assert_true(rig_on_device(b, 0));
}

static void memory_that_was_freed_is_not_named(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	mem_swap_find(&shim_swap_map, a)->freed = true; /* but work may use it */
	launch_on(a);
	assert_false(rig_on_device(a, 0));
}

static void nothing_is_fetched_while_a_stream_captures(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig_arm(0, 0);
	shim.captures = 1;
	launch_on(a);
	rig.verdict = GBPF_MEM_IN_PLACE;
	launch_on(a); /* nor is an event recorded */
	shim.captures = 0;
	assert_int_equal(rig.calls, 0);
	rig.verdict = GBPF_MEM_FETCH;
	assert_false(rig_on_device(a, 0));
	launch_on(a);
	assert_true(rig_on_device(a, 0));
}

/* A pause alone waits for 5 ms; the policy wants 50. */
static void a_launch_waits_for_work_before_the_pause(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig.work_until = rig.now + SECOND + clock_patience(20000000);
	launch_on(a);
	assert_true(rig_on_device(a, 0));
}

static void nothing_is_fetched_while_work_goes_on(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	all_out(CHUNK);
	rig.work = CUDA_ERROR_NOT_READY;
	launch_on(a);
	rig.work = CUDA_SUCCESS;
	assert_false(rig_on_device(a, 0));
	rig_arm(0, 0);
	rig.now -= SECOND; /* of the launch: it is too early */
	launch_on(a);
	assert_false(rig_on_device(a, 0));
	rig.now += 100 * SECOND;
	launch_on(a);
	assert_true(rig_on_device(a, 0));
}

static void what_could_not_be_fetched_is_fetched_later(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	all_out(2 * CHUNK);
	rig_arm(0, 0);
	rig.fail_copy = 2;
	launch_on(a);
	assert_false(rig_on_device(a, 0) || rig_on_device(a, 1));
	assert_int_equal(shim_mem_used(0), 0);
	rig_arm(0, 0);
	launch_on(a);
	assert_true(rig_on_device(a, 0) && rig_on_device(a, 1));
}

/* Launches a kernel in place, after one that has taken that time. Returns what gBPF expects. */
static uint64_t expected_after(CUdeviceptr at, float ms)
{
	rig.launch_ms = ms;
	launch_on(at);
	return rig.in_place_ns;
}

/* The arguments of a kernel decide how often it reads its memory. */
static void what_a_kernel_loses_in_place_follows_its_latest_launches(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	uint64_t ns;

	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	(void)expected_after(a, 0);
	ns = expected_after(a, 2);
	assert_in_range(ns, 1000000, 2000000);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(expected_after(a, 30), ns);
	}
	assert_in_range(expected_after(a, 30), 29000000, 30000000);
	assert_int_equal(expected_after(a, 2), ns); /* what is less is believed at once */
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_no_launch_names_stays_on_the_host),
		TEST(a_policy_can_leave_it_on_the_host),
		TEST(others_leave_for_what_is_named),
		TEST(a_launchs_own_memory_does_not_leave_for_it),
		TEST(chunks_of_other_sizes_leave_for_it_in_two_pauses),
		TEST(more_than_one_pause_moves_is_fetched_by_one_launch),
		TEST(more_than_one_pause_moves_takes_the_memory_of_others),
		TEST(a_launch_names_memory_from_an_address_on),
		TEST(the_address_of_an_allocation_names_all_of_it),
		TEST(whole_words_of_parameters_are_named),
		TEST(a_buffer_of_parameters_is_read_up_to_its_end),
		TEST(memory_that_was_freed_is_not_named),
		TEST(nothing_is_fetched_while_a_stream_captures),
		TEST(a_launch_waits_for_work_before_the_pause),
		TEST(nothing_is_fetched_while_work_goes_on),
		TEST(what_could_not_be_fetched_is_fetched_later),
		TEST(what_a_kernel_loses_in_place_follows_its_latest_launches),
	};

	return cmocka_run_group_tests_name("swap fetch", tests, rig_join, NULL);
}
