/* Errors of a launch that may hang: each ends the run. */
#include "hang_rig.h"

/* The launch is finished by its number, while the counter says that it is not. */
static void numbers_that_contradict_the_counter_are_errors(void **state)
{
	struct sched_run_progress p;

	launch_that_hangs(100, 40);
	assert_int_equal(launch(30, 0), CUDA_SUCCESS);
	(void)steps_until_taken();
	device_takes();
	(void)step(true, false);
	steps_until(now_ns + 96 * MS, 4 * MS, true);
	device_stores(1); /* so late that the second one is expected to take long, too */
	steps_until(now_ns + 5 * S, 4 * MS, true);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_ILLEGAL_STATE);
}

static void assert_given_up(CUresult e)
{
	struct sched_run_progress p;

	assert_int_equal(gpu_run_look(d, &q, &p), e);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_int_equal(d->runs->contexts->out, 0);
	rig_tear_down(NULL);
	rig_set_up(NULL);
}

static void errors_end_the_run(void **state)
{
	for (unsigned i = 0; i < 10; i++) {
		CUresult want = CUDA_ERROR_UNKNOWN;

		launch_that_hangs(100, 40);
		if (i == 0) {
			script_fail("launch", want, 0);
			while (!strstr(script_log, "launch!")) {
				if (strstr(script_log, "copy")) {
					script_copy();
				}
				now_ns += MS;
				(void)step(true, false);
			}
			assert_given_up(want);
			continue;
		}
		(void)steps_until_taken();
		device_takes();
		if (i == 1) { /* the kernel failed */
			script_query[2] = want;
			(void)step(true, false);
			assert_given_up(want);
			continue;
		}
		if (i == 2) { /* an impossible value */
			q.run->line.words[2] = FIRST + 101;
			(void)step(true, false);
			assert_given_up(CUDA_ERROR_ILLEGAL_STATE);
			continue;
		}
		(void)step(true, false);
		if (i == 3) { /* the program's stream failed */
			script_query[20] = want;
			(void)step(true, false);
			assert_given_up(want);
			continue;
		}
		if (i == 4) { /* a kernel of our own is refused */
			now_ns += 4 * MS;
			script_fail("launch", want, 0);
			(void)step(true, false);
			assert_given_up(want);
			continue;
		}
		if (i == 5 ||
		    i == 9) { /* the missing blocks, or the kernel before them, are refused */
			steps_until(now_ns + 96 * MS, 4 * MS, true);
			now_ns += 4 * MS;
			script_fail("launch", want, i == 5);
			(void)step(true, false);
			assert_given_up(want);
			continue;
		}
		script_query[20] = CUDA_SUCCESS;
		(void)step(true, false);
		assert_int_equal(run_state(), GPU_RUN_BYPASS);
		if (i == 6 || i == 7) { /* the counter cannot be set */
			script_fail("set", want, i - 6);
			(void)step(true, false);
			assert_given_up(want);
			continue;
		}
		(void)step(true, false);
		script_query[1] = want;
		(void)step(true, false);
		assert_given_up(want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(numbers_that_contradict_the_counter_are_errors),
		T(errors_end_the_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
