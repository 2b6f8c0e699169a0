/* After the counter of a launch that may hang was taken: how long the stream is watched, and how
 * the missing blocks run on the bypass stream. */
#include "hang_rig.h"

static unsigned hung;
static CUfunction hung_clone;

static void on_hung(void *arg, CUfunction clone)
{
	assert_ptr_equal(arg, &hung);
	hung++;
	hung_clone = clone;
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
	assert_true(last_launch()->param[1] == q.run->line.counter + 52);
	assert_true(last_launch()->param[2] == q.run->line.words_device + 16);
	assert_int_equal(last_launch()->param[3], 1);
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
	SCRIPT_SAID("launch 4002 1:2 launch 3001 60:2");
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
	device_beats();
	now_ns += US;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(a_slow_launch_is_resumed),
		T(the_missing_blocks_of_a_hung_launch_run),
		T(the_stream_is_watched_for_100_ms),
		T(a_clone_that_hangs_again_and_again_is_reported),
		T(an_end_in_the_last_moment_is_progress),
		T(a_piece_that_finishes_clears_the_launch_behind_it),
		T(a_later_launch_is_given_as_much_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
