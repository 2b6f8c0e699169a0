/* One measurement of the GPU's clock for leases: the result, failures, and the resources that it
 * keeps; on the test's clock and a driver that does what the test says. */
#include "clock_rig.h"

#include <errno.h>
#include <string.h>

#include "gpu/cuda/flag_lease_int.h"

static void the_offset_is_the_middle_of_what_all_tries_allow(void **state)
{
	int64_t offset = 0;

	/* The kernel runs 300 ns after the launch; the store is seen after 1000 ns. */
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_int_equal(runs, 8);
	assert_int_equal(sleeps, 0); /* it runs within 100 us */
	/* seen - after is ahead - 700, seen - before is ahead + 300 */
	assert_true(offset == gpu_ahead - 200);
	SCRIPT_SAID("push 1 load gbpf_clock host 64 stream 1"
		    " launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 launch 4001 1:1"
		    " launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 pop");
	for (unsigned i = 0; i < 8; i++) {
		assert_true(script_launches[i].param[0] == script_launches[0].param[0] + 8 * i);
	}
	/* what was allocated is used again */
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	SCRIPT_SAID("push 1"
		    " launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 launch 4001 1:1"
		    " launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 launch 4001 1:1 pop");
	gpu_ahead = -3 * (int64_t)S;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_true(offset == gpu_ahead - 200);
}

static int64_t aheads[8];
static uint64_t ticks[8];

static void run_varying(const struct script_launch *l)
{
	tick = ticks[runs % 8];
	gpu_ahead = aheads[runs % 8];
	run_kernel(l);
}

/* Each try bounds the difference; the offset lies in all of these intervals, or, if the clock was
 * set meanwhile, in the narrowest one. */
static void tries_narrow_each_other(void **state)
{
	int64_t offset = 0;

	script_on_launch = run_varying;
	for (unsigned i = 0; i < 8; i++) { /* [ahead - 1700, ahead + 300] */
		ticks[i] = 2000;
		aheads[i] = 10000;
	}
	aheads[3] = 11500; /* [9800, 11800] */
	aheads[5] = 9900;  /* [8200, 10200] */
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_true(offset == 10000);
	aheads[5] = 9500; /* [7800, 9800]: one point in common */
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_true(offset == 9800);
	aheads[7] = 10001;
	aheads[5] = 9499; /* none; the first of the narrowest counts */
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_true(offset == 9300);
	ticks[6] = 1000; /* [11800, 12800], the narrowest */
	aheads[6] = 12500;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_true(offset == 12300);
}

static void what_cannot_be_measured_is_an_error(void **state)
{
	static const char *const calls[] = { "push", "load",   "function", "host",
					     "map",  "stream", "launch" };
	int64_t offset = 7;

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		script_fail(calls[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
		assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
		assert_int_equal(script_depth, 0);
	}
	assert_int_equal(runs, 0);
	script_fail("launch", CUDA_ERROR_LAUNCH_FAILED, 5);
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
	script_query[1] = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
	assert_true(offset == 7);
}

/* A kernel that does not run within 200 ms is given up; the next measurement waits for it as
 * long. */
static void a_kernel_that_does_not_run_is_given_up(void **state)
{
	uint64_t begin = now_ns;
	int64_t offset;

	stuck = true;
	tick = 50 * MS;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
	/* settle reads once, the try at its begin and until more than 200 ms have passed */
	assert_int_equal(now_ns - begin, 7 * 50 * MS);
	assert_int_equal(script_n_launches, 1);
	assert_int_equal(sleeps, 4);
	assert_int_equal(slept_ns, 50000);
	slept_ns = 0;
	script_query[1] = CUDA_ERROR_NOT_READY;
	begin = now_ns;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
	assert_int_equal(now_ns - begin, 6 * 50 * MS);
	assert_int_equal(sleeps, 8);
	assert_int_equal(slept_ns, 50000);
	assert_int_equal(script_n_launches, 1);
	script_query[1] = CUDA_SUCCESS;
	stuck = false;
	tick = 1000;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
}

static void resources_end_with_their_context(void **state)
{
	int64_t offset;

	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(2), &offset), 0);
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	script_log[0] = 0;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(2), &offset), 0);
	assert_null(strstr(script_log, "load"));
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_non_null(strstr(script_log, "load gbpf_clock host 64 stream 3"));
}

static void forget_it(const struct script_launch *l)
{
	run_kernel(l);
	if (runs == 4) {
		gpu_context_forget(d, SCRIPT_CONTEXT(1));
	}
}

/* A context that ends during its measurement takes the resources with it. */
static void resources_of_an_ended_context_are_not_kept(void **state)
{
	int64_t offset;

	script_on_launch = forget_it;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	script_on_launch = run_kernel;
	script_log[0] = 0;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
	assert_non_null(strstr(script_log, "load"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(the_offset_is_the_middle_of_what_all_tries_allow),
		T(tries_narrow_each_other),
		T(what_cannot_be_measured_is_an_error),
		T(a_kernel_that_does_not_run_is_given_up),
		T(resources_end_with_their_context),
		T(resources_of_an_ended_context_are_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
