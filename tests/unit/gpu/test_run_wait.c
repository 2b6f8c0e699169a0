/* Callers of a resumable run that wait: for room in a full list, for tickets, for the end of the
 * run. The device moves when the clock is read. */
#include "run_rig.h"

#include <time.h>

#include "base/compiler.h"

static unsigned sleeps; /* of the code under test */
static long longest_ns;

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *rest)
{
	sleeps++;
	longest_ns = MAX(longest_ns, (long)t->tv_nsec);
	return 0;
}

static unsigned clock_reads;

/* The device finishes a launch after some time. */
static void finish_one(void)
{
	if (++clock_reads == 10) {
		device_stores(1);
	}
	now_ns += 100 * US;
}

static void finish_two(void)
{
	if (++clock_reads == 10) {
		device_stores(2);
	}
	now_ns += 100 * US;
}

static void a_full_list_waits_for_room(void **state)
{
	for (unsigned events = 0; events < 2; events++) {
		uint64_t seq;

		for (unsigned i = 0; i < 64; i++) {
			assert_int_equal(launch(10, 0), CUDA_SUCCESS);
		}
		script_query[20] = CUDA_ERROR_NOT_READY;
		clock_reads = sleeps = 0;
		longest_ns = 0;
		rig_on_clock = finish_one;
		if (events) {
			assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq),
					 CUDA_SUCCESS);
		} else {
			assert_int_equal(launch(10, 0), CUDA_SUCCESS);
		}
		assert_true(clock_reads >= 10);
		assert_true(sleeps >= 2);
		assert_true(longest_ns > 0 && longest_ns <= 20000);
		assert_int_equal(q.run->list.head - q.run->list.tail, 64);
		assert_int_equal(q.run->list.tail, 1);
		rig_on_clock = NULL;
		rig_tear_down(state);
		rig_set_up(state);
	}
}

/* Tickets are compared as signed numbers: at most 2^30 are out. */
static void more_tickets_wait_for_room(void **state)
{
	assert_int_equal(launch(1u << 29, 0), CUDA_SUCCESS);
	assert_int_equal(launch(1u << 29, 0), CUDA_SUCCESS); /* just as many */
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(q.run->seen.n_tickets, 1u << 30);
	q.run->list.entry[0].covered = q.run->list.entry[0].total; /* as if all were submitted */
	q.run->list.next = 1;
	clock_reads = 0;
	rig_on_clock = finish_one;
	q.run->pieces.piece[0].number = 1;
	q.run->pieces.piece[1].number = 1;
	assert_int_equal(launch(1, 0), CUDA_SUCCESS);
	assert_true(clock_reads >= 10);
	assert_int_equal(q.run->list.tail, 1);
	rig_on_clock = NULL;
}

/* The context is lost while a caller waits: it does not wait for ever. */
static void lose_the_device(void)
{
	if (++clock_reads == 10) {
		script_query[20] = CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	now_ns += 100 * US;
}

static void a_lost_device_ends_the_wait_for_room(void **state)
{
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	}
	script_query[20] = CUDA_ERROR_NOT_READY;
	clock_reads = 0;
	rig_on_clock = lose_the_device;
	assert_int_equal(launch(10, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	rig_on_clock = NULL;
}

static void launches_that_no_run_takes_wait_for_its_end(void **state)
{
	struct gpu_block_launch l = rig_launch(10, 0);

	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 4);
	sleeps = 0;
	longest_ns = 0;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	interrupted_at(0, false);
	script_query[20] = CUDA_ERROR_NOT_READY;
	clock_reads = 0;
	rig_on_clock = finish_two;
	l.params_bytes = 12;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_ERROR_NOT_SUPPORTED);
	assert_true(clock_reads >= 10);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_int_equal(last_launch()->arg.groups, 1); /* not against leases yet */
	assert_true(sleeps >= 2);
	assert_true(longest_ns > 0 && longest_ns <= 20000);
	rig_on_clock = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(a_full_list_waits_for_room),
		T(more_tickets_wait_for_room),
		T(a_lost_device_ends_the_wait_for_room),
		T(launches_that_no_run_takes_wait_for_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
