/* Rare conditions of resumable runs: lines that are used again, errors that must not be lost,
 * estimates beyond any measure, pages that are refused. */
#include "run_rig.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/shm.h"

/* A line continues at the number of its last run. */
static void a_line_that_is_used_again_is_not_busy(void **state)
{
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	device_stores(1);
	gpu_run_close(d, &q);
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	assert_int_equal(launch(10, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_run_busy(d, &q), 1);
	device_stores(2);
	assert_int_equal(gpu_run_busy(d, &q), 0);
}

static void a_later_launch_does_not_hide_an_error(void **state)
{
	struct sched_run_progress p;
	uint64_t seq;

	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	script_fail("record", CUDA_ERROR_INVALID_HANDLE, 0);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_SUCCESS);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_INVALID_HANDLE);
}

/* Another launch in front of this one is refused: an error of the run, and this one goes. */
static void a_refusal_in_front_is_an_error_of_the_run(void **state)
{
	struct sched_run_progress p;

	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(40000, 20000), CUDA_SUCCESS); /* the second piece waits */
	assert_int_equal(launch(20000, 20000), CUDA_SUCCESS); /* and so does this one */
	assert_int_equal(script_n_launches, OWN_LAUNCHES + 2);
	device_stores(2);
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(last_launch()->blocks, 10);
	assert_int_equal(last_launch()->arg.first, FIRST + 40000);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

/* A launch in front, some of whose blocks have run, is refused: the run is given up. */
static void a_refused_rest_ends_the_run(void **state)
{
	struct sched_run_progress p;

	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(200000, 60000), CUDA_SUCCESS);
	device_stores(1);
	script_fail("launch", CUDA_ERROR_LAUNCH_FAILED, 0);
	assert_int_equal(launch(10, 0), CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(gpu_run_look(d, &q, &p), CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(p.launched, 2);
	assert_int_equal(p.done, 2);
	assert_int_equal(q.run->list.head - q.run->list.tail, 0);
	assert_true(step(true, false) == NEVER);
}

static void events_of_a_finished_list_are_recorded_at_once(void **state)
{
	struct sched_run_progress p;
	uint64_t seq = 5;

	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	interrupted_at(0, false);
	script_fail("launch", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 0);
	(void)step(true, false);
	(void)gpu_run_look(d, &q, &p); /* nothing is left, though no piece stores its number */
	assert_int_equal(gpu_run_busy(d, &q), 1);
	script_log[0] = 0;
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_SUCCESS);
	assert_int_equal(seq, 0);
	SCRIPT_SAID("record 1:20");
	script_fail("record", CUDA_ERROR_INVALID_HANDLE, 0);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_ERROR_INVALID_HANDLE);
}

static void durations_without_a_bound_are_bounded(void **state)
{
	struct gpu_block_launch l = rig_launch(10, 0);

	l.block_ns = UINT64_MAX;
	l.resident = 1;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_true(q.run->list.entry[0].block_ps == UINT64_C(1000000000000000));
	l.resident = 0;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(q.run->list.entry[1].block_ps, 0);
}

/* An event behind a launch whose blocks have all run, though its number was not seen, is recorded
 * before what follows it. */
static void an_event_that_was_left_out_is_recorded(void **state)
{
	uint64_t seq;

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	interrupted_at(0, false);
	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_SUCCESS);
	assert_int_equal(launch(30, 0), CUDA_SUCCESS);
	(void)step(false, true); /* forced: one piece, and no event */
	assert_int_equal(last_launch()->blocks, 100);
	script_log[0] = 0;
	interrupted_at(100, true);
	SCRIPT_SAID("copy 4:1 record 1:20 launch 3001 30:20");
}

/* All launches are on the device: room for another one comes before the end. */
static void the_next_step_of_a_full_list_is_due_before_its_end(void **state)
{
	struct gpu_block_launch l = rig_launch(16, 0);

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 10 * US;
	for (unsigned i = 0; i < 63; i++) {
		assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	}
	assert_int_equal(step(true, false), 630 * US - 78750); /* seven eighths */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(step(true, false), 640 * US - 80 * US - 40 * US);
}

static void a_device_without_runs_has_counted_nothing(void **state)
{
	struct gpu_run_counts c;

	memset(&c, 0x5a, sizeof(c));
	gpu_run_counts(d, &c);
	assert_int_equal(c.launches | c.interruptions | c.resumed_blocks | c.forced | c.hung, 0);
}

static void no_device_is_destroyed(void **state)
{
	gpu_device_destroy(NULL);
}

static void a_page_that_is_refused_is_no_page(void **state)
{
	struct gpu_lease_page p;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	memset(&p, 0x5a, sizeof(p));
	assert_true(gpu_lease_map(&p, fd) < 0);
	assert_true(!p.word && !p.bytes);
	gpu_lease_unmap(&p);
	close(fd);
	fd = shm_create("page", GPU_FLAG_BYTES, SHM_NOEXEC);
	assert_int_equal(gpu_lease_map(&p, fd), 0);
	assert_true(p.word && p.bytes == GPU_FLAG_BYTES);
	gpu_lease_unmap(&p);
	assert_true(!p.word && !p.bytes);
	gpu_lease_unmap(&p); /* once */
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(a_line_that_is_used_again_is_not_busy),
		T(a_later_launch_does_not_hide_an_error),
		T(a_refusal_in_front_is_an_error_of_the_run),
		T(a_refused_rest_ends_the_run),
		T(events_of_a_finished_list_are_recorded_at_once),
		T(an_event_that_was_left_out_is_recorded),
		T(the_next_step_of_a_full_list_is_due_before_its_end),
		T(durations_without_a_bound_are_bounded),
		T(a_device_without_runs_has_counted_nothing),
		T(no_device_is_destroyed),
		T(a_page_that_is_refused_is_no_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
