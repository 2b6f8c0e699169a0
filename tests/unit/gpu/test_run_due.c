/* When a resumable run is full, when its next step is due, and what is kept of its launches. */
#include "run_look.h"

static void the_run_is_full_after_64_launches(void **state)
{
	struct sched_run_progress p;

	for (unsigned i = 0; i < 64; i++) {
		look(&p);
		assert_false(p.full);
		assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	}
	look(&p);
	assert_true(p.full);
	device_stores(1);
	look(&p);
	assert_false(p.full);
	device_stores(64);
	look(&p);
	assert_int_equal(p.done, 64);
}

static void the_run_is_full_with_half_of_the_tickets(void **state)
{
	struct sched_run_progress p;

	assert_int_equal(launch(1u << 29, 0), CUDA_SUCCESS);
	look(&p);
	assert_false(p.full);
	assert_true(p.feeding);
	assert_int_equal(launch(1, 0), CUDA_SUCCESS);
	look(&p);
	assert_true(p.full);
}

/* Entries have room for their parameters in steps of 64 bytes. */
static void parameters_are_copied_into_room_of_64_bytes(void **state)
{
	struct gpu_block_launch l = rig_launch(10, 0);

	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(q.run->list.entry[0].room, 64); /* 8 and 56 */
	l.params = (uint64_t[]){ 1, 2 };
	l.params_bytes = 16;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(q.run->list.entry[1].room, 128);
}

/* How long to wait is decided by what is expected: the end of the pieces, or more room. */
static void the_next_step_is_due_when_something_is_expected(void **state)
{
	struct gpu_block_launch l = rig_launch(1600, 0);

	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(1600, 0), CUDA_SUCCESS);
	assert_int_equal(step(true, false), 20 * US); /* nothing is known */
	rig_tear_down(state);
	rig_set_up(state);
	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 4000; /* 100 waves: 400 us */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_true(q.run->seen.end_ns == now_ns + 400 * US);
	assert_int_equal(step(true, false), 350 * US); /* seven eighths */
	now_ns += 360 * US;
	assert_int_equal(step(true, false), 35 * US);
	now_ns += 36 * US;
	assert_int_equal(step(true, false), 5 * US); /* at least 5 us */
	now_ns += 4 * US;
	assert_int_equal(step(true, false), 5 * US); /* it is time */
	now_ns += 80 * US;
	assert_int_equal(step(true, false), 10 * US); /* an eighth of the delay, */
	now_ns += 8000 * US;
	assert_int_equal(step(true, false), 50 * US); /* at most 50 us */
}

static void long_work_is_looked_at_every_ms(void **state)
{
	struct gpu_block_launch l = rig_launch(1600, 1600);

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 100 * US; /* 10 ms */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(step(true, false), MS);
}

static void a_close_frees_a_run_once(void **state)
{
	gpu_run_close(d, &q); /* none */
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	device_stores(1);
	gpu_run_close(d, &q);
	assert_null(q.run);
	assert_int_equal(d->runs->contexts->slabs->n_free, 1);
	gpu_run_close(d, &q);
	assert_int_equal(d->runs->contexts->slabs->n_free, 1);
}

static void durations_are_kept_for_64_launches(void **state)
{
	assert_int_equal(gpu_run_took(d, &q, 1), 0);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	q.run->seen.took[1] = UINT64_C(777) << 16 | 1;
	q.run->seen.took[3] = UINT64_C(888) << 16 | 67;
	assert_int_equal(gpu_run_took(d, &q, 1), 777);
	assert_int_equal(gpu_run_took(d, &q, 65), 0);
	assert_int_equal(gpu_run_took(d, &q, 67), 888);
	assert_int_equal(gpu_run_took(d, &q, 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(the_run_is_full_after_64_launches),
		T(the_run_is_full_with_half_of_the_tickets),
		T(parameters_are_copied_into_room_of_64_bytes),
		T(the_next_step_is_due_when_something_is_expected),
		T(long_work_is_looked_at_every_ms),
		T(a_close_frees_a_run_once),
		T(durations_are_kept_for_64_launches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
