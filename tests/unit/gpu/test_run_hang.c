/* Kernels whose blocks wait for blocks that have left: when a hang is suspected, and how the
 * counter is taken. */
#include "hang_rig.h"

static unsigned copies(void)
{
	unsigned n = 0;

	for (const char *p = script_log; (p = strstr(p, "copy")); p++) {
		n++;
	}
	return n;
}

static void without_leases_200_ms_are_waited(void **state)
{
	uint64_t begin = now_ns;

	launch_that_hangs(100, 40);
	now_ns += 10 * US;
	(void)step(true, false); /* the first look counts 20 us */
	steps_until(begin + 200 * MS - 11 * US, MS, true);
	now_ns = begin + 200 * MS - 11 * US;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns += US;
	(void)step(true, false);
	SCRIPT_SAID("copy 4:1");
}

/* After a lease 20 ms, in which no lease is seen; the time under leases does not count. */
static void after_a_lease_20_ms_are_waited(void **state)
{
	uint64_t begin = now_ns;

	launch_that_hangs(100, 40);
	(void)step(false, false);
	steps_until(begin + 500 * MS, 10 * MS, false);
	SCRIPT_SAID("");
	(void)step(true, false);
	now_ns += 20 * MS - 20 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(false, false); /* another lease */
	now_ns += 10 * MS;
	(void)step(true, false); /* 20 us more */
	SCRIPT_SAID("copy 4:1");
}

static void four_times_the_expected_duration_is_waited(void **state)
{
	struct gpu_block_launch l = rig_launch(160, 160);

	l.block_ns = 10 * MS; /* 100 ms in all */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_NOT_READY;
	script_log[0] = 0;
	(void)step(true, false);
	now_ns += 400 * MS - 20 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(true, false);
	SCRIPT_SAID("copy 4:1");
}

/* The counter is read every 2 ms; unchanged for 10 ms, it is taken. */
static void a_counter_that_moves_is_no_hang(void **state)
{
	uint64_t begin;

	launch_that_hangs(100, 40);
	(void)step(true, false);
	now_ns += 200 * MS;
	(void)step(true, false);
	assert_int_equal(copies(), 1);
	script_copy();
	now_ns += 2 * MS - 1;
	(void)step(true, false);
	assert_int_equal(copies(), 1);
	now_ns++;
	script_query[1] = CUDA_ERROR_NOT_READY; /* the copy has not been made */
	(void)step(true, false);
	assert_int_equal(copies(), 1);
	script_query[1] = CUDA_SUCCESS;
	for (unsigned i = 0; i < 50; i++) {
		++*device_counter();
		now_ns += 2 * MS;
		(void)step(true, false);
		script_copy();
	}
	assert_int_equal(copies(), 51);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	now_ns += 2 * MS;
	(void)step(true, false); /* sees the last change */
	begin = now_ns;
	now_ns = begin + 10 * MS - 1;
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	script_copy();
	script_log[0] = 0;
	now_ns = begin + 12 * MS;
	assert_int_equal(step(true, false), 4 * US);
	assert_int_equal(run_state(), GPU_RUN_TAKING);
	SCRIPT_SAID("launch 4002 1:2");
	assert_true(last_launch()->param[0] == q.run->line.counter);
	assert_true(last_launch()->param[1] == q.run->line.counter + 32);
	assert_true(last_launch()->param[2] == q.run->line.words_device + 8);
	assert_int_equal(last_launch()->param[3], FIRST - (1u << 30)); /* before all tickets */
}

static void a_copy_that_fails_ends_the_probe(void **state)
{
	launch_that_hangs(100, 40);
	(void)step(true, false);
	now_ns += 200 * MS;
	script_fail("copy", CUDA_ERROR_UNKNOWN, 0);
	(void)step(true, false);
	SCRIPT_SAID("copy!");
	assert_false(q.run->hang.probing);
	now_ns += 8 * US;
	(void)step(true, false);
	SCRIPT_SAID("copy 4:1");
}

static void nothing_is_taken_without_the_kernel(void **state)
{
	script_fail("load", CUDA_ERROR_NOT_SUPPORTED, 0);
	launch_that_hangs(100, 40);
	(void)step(true, false);
	steps_until(now_ns + 400 * MS, 10 * MS, true);
	SCRIPT_SAID("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(without_leases_200_ms_are_waited),
		T(after_a_lease_20_ms_are_waited),
		T(four_times_the_expected_duration_is_waited),
		T(a_counter_that_moves_is_no_hang),
		T(a_copy_that_fails_ends_the_probe),
		T(nothing_is_taken_without_the_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
