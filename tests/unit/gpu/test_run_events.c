/* Events and errors of a resumable run: when an event is recorded, what a refused launch or a
 * failed stream does to the run, and streams that are captured. */
#include "run_look.h"

static void events_follow_the_launches_before_them(void **state)
{
	uint64_t seq = 7;
	struct sched_run_progress p;

	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_SUCCESS);
	assert_int_equal(seq, 0);
	SCRIPT_SAID("record 1:20");
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(2), &seq), CUDA_SUCCESS);
	assert_int_equal(seq, 2);
	SCRIPT_SAID("record 2:20");
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	interrupted_at(50, false);
	look(&p);
	assert_int_equal(p.done, 0);
	script_log[0] = 0;
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(3), &seq), CUDA_SUCCESS);
	assert_int_equal(seq, 4);
	SCRIPT_SAID(""); /* the run is stopped */
	script_query[20] = CUDA_ERROR_NOT_READY;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 50:20 record 2:20 launch 3001 100:20 record 3:20");
	device_stores(q.run->pieces.number - 1);
	look(&p);
	assert_int_equal(p.done, 2);
	device_stores(q.run->pieces.number);
	look(&p);
	assert_int_equal(p.done, 4);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(4), &seq), CUDA_SUCCESS);
	assert_int_equal(seq, 0);
}

/* An event whose launches had all begun before the interruption stays recorded. */
static void events_before_the_counter_are_not_recorded_again(void **state)
{
	uint64_t seq;

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(2), &seq), CUDA_SUCCESS);
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	interrupted_at(130, true);
	assert_null(strstr(script_log, "record"));
	assert_non_null(strstr(script_log, "launch 3001 70:20"));
}

static void errors_of_events_are_errors_of_the_run(void **state)
{
	struct sched_run_progress p;
	uint64_t seq;

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_fail("record", CUDA_ERROR_INVALID_HANDLE, 0);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(2), &seq), CUDA_SUCCESS);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(gpu_run_look(d, &q, &p), 0); /* once */
	device_stores(1);
	assert_true(step(true, false) == NEVER);
	look(&p);
	assert_int_equal(p.done, 2);
}

static void a_refused_first_piece_is_no_launch(void **state)
{
	struct sched_run_progress p;
	struct gpu_run_counts c;

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	assert_int_equal(launch(50, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	look(&p);
	assert_int_equal(p.launched, 1);
	assert_int_equal(launch(50, 0), CUDA_SUCCESS);
	assert_int_equal(last_launch()->arg.first, FIRST + 100); /* its tickets are given again */
	gpu_run_counts(d, &c);
	assert_int_equal(c.launches, 2);
	look(&p);
	assert_int_equal(p.launched, 2);
	assert_false(p.feeding);
}

/* Found out when it is submitted: an error of the run, and the launches behind it go on. */
static void a_launch_refused_after_an_interruption_is_left_out(void **state)
{
	struct sched_run_progress p;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	}
	interrupted_at(100, false);
	script_log[0] = 0;
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	(void)step(true, false);
	SCRIPT_SAID("launch! launch 3001 100:20");
	assert_int_equal(last_launch()->arg.first, FIRST + 100);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(p.launched, 3);
	assert_int_equal(p.done, 2); /* nothing of it is left to be done */
	assert_false(p.feeding);
	device_stores(q.run->pieces.number);
	look(&p);
	assert_int_equal(p.done, 3);
}

static void refused_launches_end_the_waiting(void **state)
{
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	interrupted_at(0, false);
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	(void)step(true, false);
	assert_true(step(true, false) == NEVER); /* no piece stores its number */
	assert_int_equal(gpu_run_busy(d, &q), 0);
}

static void assert_given_up(CUresult e)
{
	struct sched_run_progress p;

	assert_int_equal(gpu_run_look(d, &q, &p), e);
	assert_int_equal(p.launched, p.done);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_int_equal(d->runs->contexts->out, 0);
	assert_true(step(true, false) == NEVER);
	assert_int_equal(launch(10, 0), e);
	gpu_run_close(d, &q);
}

static void a_run_that_cannot_go_on_is_given_up(void **state)
{
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(100, 20), CUDA_SUCCESS); /* five pieces */
	interrupted_at(10, false);
	script_fail("launch", CUDA_ERROR_LAUNCH_FAILED, 0); /* some of its blocks have run */
	(void)step(true, false);
	assert_given_up(CUDA_ERROR_LAUNCH_FAILED);

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_ILLEGAL_ADDRESS;
	(void)step(true, false);
	assert_given_up(CUDA_ERROR_ILLEGAL_ADDRESS);

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_SUCCESS;
	script_fail("copy", CUDA_ERROR_UNKNOWN, 0);
	(void)step(true, false);
	assert_given_up(CUDA_ERROR_UNKNOWN);

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_SUCCESS;
	script_query[1] = CUDA_ERROR_NOT_READY;
	(void)step(false, false);
	script_query[1] = CUDA_ERROR_ECC_UNCORRECTABLE;
	(void)step(false, false);
	script_query[1] = CUDA_SUCCESS;
	assert_given_up(CUDA_ERROR_ECC_UNCORRECTABLE);

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_fail("push", CUDA_ERROR_CONTEXT_IS_DESTROYED, 0);
	script_current = NULL;
	(void)step(false, false);
	script_current = SCRIPT_CONTEXT(1);
	assert_given_up(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void impossible_counters_are_errors(void **state)
{
	static const uint32_t counters[] = { 101, 100, UINT32_MAX, 1u << 31 };

	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(launch(100, 0), CUDA_SUCCESS);
		interrupted_at(counters[i], false);
		assert_given_up(CUDA_ERROR_ILLEGAL_STATE);
		rig_tear_down(state);
		rig_set_up(state);
	}
}

static void a_captured_stream_is_left_alone(void **state)
{
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	script_capturing[20] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(step(true, false), MS);
	script_capturing[20] = CU_STREAM_CAPTURE_STATUS_NONE;
	script_fail("capturing", CUDA_ERROR_UNKNOWN, 0);
	assert_int_equal(step(true, false), MS);
	SCRIPT_SAID("capturing!");
	script_current = NULL;
	script_capturing[20] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(step(true, false), MS);
	SCRIPT_SAID("push 1 pop");
	script_capturing[20] = CU_STREAM_CAPTURE_STATUS_NONE;
	script_current = SCRIPT_CONTEXT(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(events_follow_the_launches_before_them),
		T(events_before_the_counter_are_not_recorded_again),
		T(errors_of_events_are_errors_of_the_run),
		T(a_refused_first_piece_is_no_launch),
		T(a_launch_refused_after_an_interruption_is_left_out),
		T(refused_launches_end_the_waiting),
		T(a_run_that_cannot_go_on_is_given_up),
		T(impossible_counters_are_errors),
		T(a_captured_stream_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
