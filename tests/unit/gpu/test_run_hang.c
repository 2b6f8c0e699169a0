/* Kernels whose blocks wait for blocks that have left: when a hang is suspected, how the counter is
 * taken, how long the stream is watched, and how the missing blocks run on the bypass stream. */
#include "run_rig.h"

#include <stdlib.h>

static unsigned hung;
static CUfunction hung_clone;

static void on_hung(void *arg, CUfunction clone)
{
	assert_ptr_equal(arg, &hung);
	hung++;
	hung_clone = clone;
}

/* Steps every so often until that time. */
static void steps_until(uint64_t end, uint64_t period, bool may_run)
{
	while (now_ns + period <= end) {
		now_ns += period;
		(void)step(may_run, false);
	}
}

static unsigned copies(void)
{
	unsigned n = 0;

	for (const char *p = script_log; (p = strstr(p, "copy")); p++) {
		n++;
	}
	return n;
}

/* The stream is busy; the counter is at that ticket. */
static void launch_that_hangs(uint32_t blocks, uint32_t at)
{
	assert_int_equal(launch(blocks, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_NOT_READY;
	*device_counter() += at;
	script_log[0] = 0;
}

/* Probes until the counter is taken. Returns when it was. */
static uint64_t steps_until_taken(void)
{
	while (run_state() != GPU_RUN_TAKING) {
		now_ns += MS;
		(void)step(true, false);
		if (strstr(script_log, "copy")) {
			script_copy();
			script_log[0] = 0;
		}
		assert_true(now_ns < 1100 * S);
	}
	return now_ns;
}

/* The kernel runs: it takes the counter. */
static void device_takes(void)
{
	const struct script_launch *l = last_launch();
	uint32_t *counter = (uint32_t *)(uintptr_t)l->param[0], old = *counter;

	assert_ptr_equal(l->f, SCRIPT_TAKE);
	assert_int_equal(l->stream, 2);
	*counter = (uint32_t)l->param[3];
	*(uint32_t *)(uintptr_t)l->param[1] = old;
	((uint32_t *)(uintptr_t)l->param[1])[8192] = old;
	*(uint32_t *)(uintptr_t)l->param[2] = old;
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

/* Blocks that were only slow end: an ordinary interruption. */
static void a_slow_launch_is_resumed(void **state)
{
	struct gpu_run_counts c;

	launch_that_hangs(100, 40);
	(void)steps_until_taken();
	assert_int_equal(gpu_run_busy(d, &q), 1);
	script_query[2] = CUDA_ERROR_NOT_READY;
	assert_int_equal(step(true, false), 4 * US);
	assert_int_equal(run_state(), GPU_RUN_TAKING);
	device_takes();
	script_query[2] = CUDA_SUCCESS;
	assert_int_equal(step(true, false), 500 * US);
	assert_int_equal(run_state(), GPU_RUN_WATCHING);
	script_query[20] = CUDA_SUCCESS;
	assert_int_equal(step(true, false), 20 * US);
	assert_int_equal(run_state(), GPU_RUN_BYPASS);
	script_log[0] = 0;
	script_query[2] = CUDA_ERROR_NOT_READY;
	(void)step(true, false);
	SCRIPT_SAID("");
	script_query[2] = CUDA_SUCCESS;
	script_query[20] = CUDA_ERROR_NOT_READY;
	(void)step(true, false);
	SCRIPT_SAID("");
	script_query[20] = CUDA_SUCCESS;
	(void)step(true, false);
	SCRIPT_SAID("set 1:1 set 1:1");
	assert_int_equal(*device_counter(), FIRST + 40);
	assert_int_equal(device_counter()[8192], FIRST + 40);
	assert_int_equal(run_state(), GPU_RUN_RESTORING);
	script_query[1] = CUDA_ERROR_NOT_READY;
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_RESTORING);
	script_query[1] = CUDA_SUCCESS;
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	assert_int_equal(q.run->seen.n_pending, 60);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 60:20");
	device_stores(q.run->pieces.number);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	gpu_run_counts(d, &c);
	assert_int_equal(c.hung, 0);
	assert_int_equal(c.resumed_blocks, 60);
}

/* Kernels of our own that get to run show that this context has the device: eight of them, 4 ms
 * apart, over 100 ms at least. Then the missing blocks run on the bypass stream. */
static void the_missing_blocks_of_a_hung_launch_run(void **state)
{
	const struct script_launch *l;
	struct gpu_run_counts c;
	uint64_t begin;
	unsigned beats;

	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 8);
	launch_that_hangs(100, 40);
	assert_int_equal(launch(30, 0), CUDA_SUCCESS); /* another one behind it */
	(void)steps_until_taken();
	device_takes();
	(void)step(true, false);
	begin = now_ns;
	script_log[0] = 0;
	steps_until(begin + 4 * MS - 1, MS, true);
	SCRIPT_SAID("");
	now_ns = begin + 4 * MS;
	(void)step(true, false);
	SCRIPT_SAID("launch 4002 1:2"); /* it changes nothing that is used */
	assert_true(last_launch()->param[0] == q.run->line.counter + 48);
	assert_true(last_launch()->param[1] == q.run->line.counter + 48);
	assert_true(last_launch()->param[2] == q.run->line.words_device + 16);
	assert_int_equal(last_launch()->param[3], 0);
	script_query[2] = CUDA_ERROR_NOT_READY; /* it has not run: another context has the device */
	steps_until(now_ns + 500 * MS, 10 * MS, true);
	SCRIPT_SAID("");
	script_query[2] = CUDA_SUCCESS;
	for (beats = 1; beats < 8; beats++) {
		(void)step(true, false);
		SCRIPT_SAID("launch 4002 1:2");
		now_ns += 4 * MS - 1;
		(void)step(true, false);
		SCRIPT_SAID("");
		now_ns++;
	}
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 60:2");
	assert_int_equal(run_state(), GPU_RUN_BYPASS);
	l = last_launch();
	assert_true(l->arg.tickets == q.run->line.counter + 32);
	assert_true(l->arg.done == q.run->line.words_device + 12);
	assert_int_equal(l->arg.first, FIRST);
	assert_int_equal(l->arg.total, 100);
	assert_int_equal(l->arg.groups, 0);
	assert_int_equal(l->arg.grid_x * 10000 + l->arg.grid_y * 100 + l->arg.grid_z, 1000101);
	assert_int_equal(l->first_param, 4711);
	assert_int_equal(l->smem, 48);
	assert_int_equal(l->threads[0] * 10000 + l->threads[1] * 100 + l->threads[2], 640201);
	script_query[20] = CUDA_SUCCESS;
	script_log[0] = 0;
	(void)step(true, false);
	assert_int_equal(*device_counter(), FIRST + 100); /* the end of the launch */
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	script_log[0] = 0;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 30:20");
	assert_int_equal(last_launch()->arg.first, FIRST + 100);
	assert_int_equal(last_launch()->arg.groups, 2);
	device_stores(q.run->pieces.number);
	(void)step(true, false);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_int_equal(q.run->seen.n_pending, 0);
	gpu_run_counts(d, &c);
	assert_int_equal(c.hung, 1);
}

/* At least 100 ms are watched, however many kernels of our own have run. */
static void the_stream_is_watched_for_100_ms(void **state)
{
	uint64_t begin;

	launch_that_hangs(100, 40);
	(void)steps_until_taken();
	device_takes();
	(void)step(true, false);
	begin = now_ns;
	steps_until(begin + 98 * MS, 7 * MS, true);
	assert_int_equal(run_state(), GPU_RUN_WATCHING);
	assert_int_equal(q.run->hang.n_beats, 14);
	now_ns = begin + 100 * MS + 2 * MS - 1;
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_WATCHING);
	now_ns = begin + 102 * MS;
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_BYPASS);
}

static void hang_once(CUfunction clone, uint64_t id)
{
	struct gpu_block_launch l = rig_launch(100, 0);

	l.clone = clone;
	l.id = id;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_NOT_READY;
	*device_counter() += 40;
	(void)steps_until_taken();
	device_takes();
	while (run_state() != GPU_RUN_BYPASS) {
		now_ns += 4 * MS;
		(void)step(true, false);
	}
	script_query[20] = CUDA_SUCCESS;
	(void)step(true, false);
	(void)step(true, false);
	(void)step(true, false);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	script_log[0] = 0;
}

/* The third time in a row. */
static void a_clone_that_hangs_again_and_again_is_reported(void **state)
{
	hung = 0;
	gpu_run_on_hung(d, on_hung, &hung);
	hang_once(SCRIPT_CLONE(1), 1);
	hang_once(SCRIPT_CLONE(1), 1);
	hang_once(SCRIPT_CLONE(2), 2);
	hang_once(SCRIPT_CLONE(1), 1);
	hang_once(SCRIPT_CLONE(1), 1);
	assert_int_equal(hung, 0);
	hang_once(SCRIPT_CLONE(1), 1);
	assert_int_equal(hung, 1);
	assert_ptr_equal(hung_clone, SCRIPT_CLONE(1));
	hang_once(SCRIPT_CLONE(1), 1);
	assert_int_equal(hung, 1);
}

/* The launch ended before the counter was taken, and no block of the next one has begun. */
static void an_end_in_the_last_moment_is_progress(void **state)
{
	launch_that_hangs(100, 40);
	assert_int_equal(launch(30, 0), CUDA_SUCCESS);
	(void)steps_until_taken();
	*device_counter() = FIRST + 100;
	device_takes();
	device_stores(1);
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_BYPASS);
	script_query[20] = CUDA_SUCCESS;
	script_log[0] = 0;
	(void)step(true, false);
	assert_int_equal(*device_counter(), FIRST + 100);
	(void)step(true, false);
	(void)step(true, false);
	SCRIPT_SAID("set 1:1 set 1:1 launch 3001 30:20");
}

/* Pieces have finished since the run was resumed: the next launch, of which no block has begun, is
 * not to blame. */
static void a_piece_that_finishes_clears_the_launch_behind_it(void **state)
{
	for (unsigned finishes = 0; finishes < 2; finishes++) {
		assert_int_equal(launch(100, 0), CUDA_SUCCESS);
		assert_int_equal(launch(30, 0), CUDA_SUCCESS);
		interrupted_at(0, false);
		script_query[20] = CUDA_ERROR_NOT_READY;
		(void)step(true, false); /* pieces 3 and 4 */
		if (finishes) {
			*device_counter() = FIRST + 100;
			device_stores(3);
			(void)step(true, false);
		}
		(void)steps_until_taken();
		device_takes();
		(void)step(true, false);
		assert_int_equal(run_state(), finishes ? GPU_RUN_BYPASS : GPU_RUN_WATCHING);
		rig_tear_down(state);
		rig_set_up(state);
	}
}

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

/* The rules for a run's first launch apply to later ones, too. */
static void a_later_launch_is_given_as_much_time(void **state)
{
	uint64_t begin;
	unsigned n = 0;

	hang_once(SCRIPT_CLONE(1), 1);
	begin = now_ns;
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	*device_counter() += 40;
	script_log[0] = 0;
	steps_until(begin + 199 * MS, MS, true); /* no lease was seen: 200 ms */
	SCRIPT_SAID("");
	(void)steps_until_taken();
	device_takes();
	(void)step(true, false);
	script_query[2] = CUDA_ERROR_NOT_READY;
	now_ns += 150 * MS;
	(void)step(true, false);
	script_query[2] = CUDA_SUCCESS;
	script_log[0] = 0;
	for (; run_state() == GPU_RUN_WATCHING; n++) { /* eight kernels of our own again */
		(void)step(true, false);
		now_ns += 4 * MS;
	}
	assert_int_equal(n, 9);
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
	for (unsigned i = 0; i < 9; i++) {
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
		if (i == 5) { /* the missing blocks are refused */
			steps_until(now_ns + 96 * MS, 4 * MS, true);
			now_ns += 4 * MS;
			script_fail("launch", want, 0);
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
		T(without_leases_200_ms_are_waited),
		T(after_a_lease_20_ms_are_waited),
		T(four_times_the_expected_duration_is_waited),
		T(a_counter_that_moves_is_no_hang),
		T(a_copy_that_fails_ends_the_probe),
		T(nothing_is_taken_without_the_kernel),
		T(a_slow_launch_is_resumed),
		T(the_missing_blocks_of_a_hung_launch_run),
		T(the_stream_is_watched_for_100_ms),
		T(a_clone_that_hangs_again_and_again_is_reported),
		T(an_end_in_the_last_moment_is_progress),
		T(a_piece_that_finishes_clears_the_launch_behind_it),
		T(numbers_that_contradict_the_counter_are_errors),
		T(a_later_launch_is_given_as_much_time),
		T(errors_end_the_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
