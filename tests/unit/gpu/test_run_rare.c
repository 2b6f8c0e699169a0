/* Rare conditions of resumable runs: full lists, lines that are used again, errors that must not be
 * lost, estimates beyond any measure. */
#include "run_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/shm.h"

static unsigned sleeps; /* of the code under test */
static long longest_ns;

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *rest)
{
	sleeps++;
	longest_ns = MAX(longest_ns, (long)t->tv_nsec);
	return 0;
}

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
	assert_int_equal(script_n_launches, 1 + 2);
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

/* While the device has work for longer than the host needs to react, the next piece waits: 300 us
 * before its end, or 200 us where pieces are long. The next step is due then. */
static void pieces_are_submitted_ahead_of_the_end(void **state)
{
	struct gpu_block_launch l = rig_launch(4800, 1600);
	uint64_t begin;

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 4000; /* 400 us each */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	begin = now_ns;
	assert_non_null(strstr(script_log, "launch 3001 1600:20 launch 3001 1600:20"));
	script_log[0] = 0;
	assert_int_equal(step(true, false), 406250); /* the end of the first, and a bit */
	SCRIPT_SAID("");
	now_ns = begin + 600 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1600:20");
}

static void short_pieces_are_submitted_earlier(void **state)
{
	struct gpu_block_launch l = rig_launch(4800, 1600);
	uint64_t begin;

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 3990; /* 399 us each */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	begin = now_ns;
	script_log[0] = 0;
	/* 798 us: 80 us and a sixteenth before it */
	assert_int_equal(step(true, false), 798 * US - 80 * US - 49875);
	now_ns = begin + 498 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1600:20");
}

/* A remainder of a quarter of a piece is not a piece of its own. */
static void small_remainders_are_included(void **state)
{
	static const struct {
		uint32_t blocks, piece;
		const char *said;
	} cases[] = {
		{ 1000, 800, "launch 3001 1000:20" },
		{ 1001, 800, "launch 3001 800:20 launch 3001 201:20" },
		{ 100, 33, "launch 3001 33:20 launch 3001 33:20 launch 3001 34:20" },
		{ 300, 100, "launch 3001 96:20 launch 3001 96:20 launch 3001 108:20" }, /* waves */
		{ 130, 63, "launch 3001 63:20 launch 3001 67:20" }, /* fewer than four waves */
		{ 130, 64, "launch 3001 64:20 launch 3001 66:20" },
		{ 16384, 0, "launch 3001 16384:20" },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gpu_run_prepare(d, &q);
		script_log[0] = 0;
		assert_int_equal(launch(cases[i].blocks, cases[i].piece), CUDA_SUCCESS);
		SCRIPT_SAID(cases[i].said);
		rig_tear_down(state);
		rig_set_up(state);
	}
}

/* 4096 blocks of each run, and 32768 of all runs that may not have begun. */
static void the_device_has_a_budget_of_blocks(void **state)
{
	gpu_run_prepare(d, &q);
	script_query[20] = CUDA_ERROR_NOT_READY;
	store_relaxed(&d->runs->contexts->out, 40000u); /* of other runs */
	script_log[0] = 0;
	assert_int_equal(launch(8000, 2048), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 2048:20 launch 3001 2048:20");
	store_relaxed(&d->runs->contexts->out, 32768u - 2048u);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 2048:20");
	(void)step(true, false);
	SCRIPT_SAID("");
	store_relaxed(&d->runs->contexts->out, 32769u - 1856u);
	(void)step(true, false);
	SCRIPT_SAID("");
	store_relaxed(&d->runs->contexts->out, 32768u - 1856u);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1856:20");
	store_relaxed(&d->runs->contexts->out, 8000u);
}

/* One piece may always wait behind another one, whatever their size. */
static void a_large_piece_may_wait_behind_one(void **state)
{
	gpu_run_prepare(d, &q);
	script_query[20] = CUDA_ERROR_NOT_READY;
	script_log[0] = 0;
	assert_int_equal(launch(200000, 60000), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 60000:20 launch 3001 60000:20");
	(void)step(true, false);
	SCRIPT_SAID("");
	device_stores(1);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 60000:20");
	device_stores(3);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 20000:20");
	rig_tear_down(state);
	rig_set_up(state);
	gpu_run_prepare(d, &q);
	script_log[0] = 0;
	assert_int_equal(launch(200000, 65536), CUDA_SUCCESS); /* 65536 at most */
	SCRIPT_SAID("launch 3001 65536:20 launch 3001 65536:20");
	rig_tear_down(state);
	rig_set_up(state);
	gpu_run_prepare(d, &q);
	script_log[0] = 0;
	assert_int_equal(launch(200000, 65552), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 65552:20");
}

static void the_device_has_128_pieces(void **state)
{
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(200, 1), CUDA_SUCCESS);
	assert_int_equal(q.run->pieces.number, 128);
	device_stores(1);
	(void)step(true, false);
	assert_int_equal(q.run->pieces.number, 129);
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
		T(a_full_list_waits_for_room),
		T(more_tickets_wait_for_room),
		T(a_lost_device_ends_the_wait_for_room),
		T(launches_that_no_run_takes_wait_for_its_end),
		T(pieces_are_submitted_ahead_of_the_end),
		T(short_pieces_are_submitted_earlier),
		T(small_remainders_are_included),
		T(the_device_has_a_budget_of_blocks),
		T(a_large_piece_may_wait_behind_one),
		T(the_device_has_128_pieces),
		T(a_device_without_runs_has_counted_nothing),
		T(no_device_is_destroyed),
		T(a_page_that_is_refused_is_no_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
