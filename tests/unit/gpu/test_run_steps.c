/* A resumable run step by step: what a clone's launch gets, what its callers see, interruptions,
 * forced pieces, events, errors, and when the next step is due. */
#include "run_rig.h"

#include <stdlib.h>

static void look(struct sched_run_progress *p)
{
	assert_int_equal(gpu_run_look(d, &q, p), 0);
}

static void a_clone_gets_its_grid_and_the_words_of_the_run(void **state)
{
	struct gpu_block_launch l = rig_launch(3, 0);
	uint64_t values[40];
	const struct script_launch *s;

	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 9);
	for (unsigned i = 0; i < 40; i++) {
		values[i] = 100 + i;
	}
	memcpy(l.grid, (uint32_t[]){ 3, 4, 5 }, sizeof(l.grid));
	l.params = values;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	s = last_launch();
	assert_ptr_equal(s->f, SCRIPT_CLONE(1));
	assert_int_equal(s->blocks, 60);
	assert_int_equal(s->threads[0] * 10000 + s->threads[1] * 100 + s->threads[2], 640201);
	assert_int_equal(s->smem, 48);
	assert_int_equal(s->stream, 20);
	assert_true(s->arg.leases == (uintptr_t)leases);
	assert_true(s->arg.tickets == q.run->line.counter);
	assert_true(s->arg.done == q.run->line.words_device);
	assert_int_equal(s->arg.first, FIRST);
	assert_int_equal(s->arg.total, 60);
	assert_int_equal(s->arg.number, 1);
	assert_int_equal(s->arg.groups, 3);
	assert_int_equal(s->arg.grid_x * 100 + s->arg.grid_y * 10 + s->arg.grid_z, 345);
	assert_int_equal(s->arg.reserved, 0);
	assert_int_equal(s->first_param, 100);
	/* parameters of any size, and none */
	l.params_bytes = sizeof(values);
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(last_launch()->first_param, 100);
	assert_int_equal(last_launch()->arg.first, FIRST + 60);
	assert_int_equal(last_launch()->arg.number, 2);
	l.params = NULL;
	l.params_bytes = 0;
	l.smem = 33;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(last_launch()->arg.grid_z, 5);
	assert_int_equal(last_launch()->smem, 64);
	assert_int_equal(last_launch()->arg.first, FIRST + 120);
}

static bool takes(uint32_t x, uint32_t y, uint32_t z, uint32_t bytes, uint32_t smem)
{
	static uint64_t values[8200];
	struct gpu_block_launch l = rig_launch(1, 0);
	CUresult e;

	memcpy(l.grid, (uint32_t[]){ x, y, z }, sizeof(l.grid));
	l.params = values;
	l.params_bytes = bytes;
	l.smem = smem;
	e = gpu_run_launch(d, &q, &l);
	assert_true(e == CUDA_SUCCESS || e == CUDA_ERROR_NOT_SUPPORTED);
	if (q.run) {
		gpu_run_close(d, &q);
	}
	return e == CUDA_SUCCESS;
}

static void limits_are_exact(void **state)
{
	assert_true(takes(1u << 29, 1, 1, 8, 0));
	assert_false(takes((1u << 29) + 1, 1, 1, 8, 0));
	assert_true(takes(1u << 15, 1u << 14, 1, 8, 0));
	assert_false(takes((1u << 15) + 1, 1u << 14, 1, 8, 0));
	assert_true(takes(1u << 14, 1u << 14, 2, 8, 0));
	assert_false(takes(1u << 14, 1u << 14, 3, 8, 0));
	assert_false(takes(UINT32_MAX, UINT32_MAX, UINT32_MAX, 8, 0));
	assert_false(takes(0, 1, 1, 8, 0));
	assert_false(takes(1, 0, 1, 8, 0));
	assert_false(takes(1, 1, 0, 8, 0));
	assert_true(takes(1, 1, 1, 65536, 0));
	assert_false(takes(1, 1, 1, 65544, 0));
	assert_false(takes(1, 1, 1, 12, 0));
	assert_true(takes(1, 1, 1, 16, 0x7fffffff - 64));
	assert_false(takes(1, 1, 1, 16, 0x80000000u));
	q.home = gpu_thread(); /* the default stream of a thread */
	assert_false(takes(1, 1, 1, 8, 0));
}

static void progress_is_seen_by_numbers(void **state)
{
	struct sched_run_progress p;

	look(&p);
	assert_int_equal(p.launched + p.done, 0);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	assert_true(step(true, false) == NEVER);
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	assert_int_equal(launch(50, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_run_busy(d, &q), 1);
	look(&p);
	assert_int_equal(p.launched, 2);
	assert_int_equal(p.done, 0);
	assert_false(p.stopped || p.waiting || p.full || p.feeding);
	device_stores(1);
	look(&p);
	assert_int_equal(p.launched * 10 + p.done, 21);
	assert_int_equal(gpu_run_busy(d, &q), 1);
	device_stores(2);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	look(&p);
	assert_int_equal(p.launched * 10 + p.done, 22);
	assert_true(step(true, false) == NEVER);
	assert_int_equal(d->runs->contexts->out, 0);
	{
		struct gpu_run_counts c;

		gpu_run_counts(d, &c);
		assert_int_equal(c.launches, 2);
		assert_int_equal(c.interruptions + c.resumed_blocks + c.forced + c.hung, 0);
	}
}

/* All launches behind the counter are submitted again, the first one without the blocks that ran.
 */
static void what_left_is_submitted_again(void **state)
{
	struct sched_run_progress p;
	struct gpu_run_counts c;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	}
	script_log[0] = 0;
	*device_counter() = FIRST + 130;
	device_stores(1);
	script_query[20] = CUDA_SUCCESS; /* nothing runs any more */
	script_query[1] = CUDA_ERROR_NOT_READY;
	now_ns += 8 * US;
	assert_int_equal(step(false, false), 4 * US);
	SCRIPT_SAID("copy 4:1");
	assert_int_equal(run_state(), GPU_RUN_READING);
	look(&p);
	assert_true(p.stopped && !p.waiting);
	assert_int_equal(step(false, false), 4 * US);
	assert_int_equal(run_state(), GPU_RUN_READING);
	script_copy();
	script_query[1] = CUDA_SUCCESS;
	assert_int_equal(step(false, false), 20 * US);
	SCRIPT_SAID("");
	assert_int_equal(run_state(), GPU_RUN_HALTED);
	look(&p);
	assert_true(p.stopped && p.waiting && p.feeding);
	assert_int_equal(p.interruptions, 1);
	assert_int_equal(p.futile, 0);
	assert_int_equal(p.done, 1);
	assert_int_equal(d->runs->contexts->out, 0);
	script_query[20] = CUDA_ERROR_NOT_READY;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 70:20 launch 3001 100:20");
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	assert_int_equal(script_launches[4].arg.first, FIRST + 100);
	assert_int_equal(script_launches[4].arg.total, 100);
	assert_int_equal(script_launches[4].arg.number, 4);
	assert_int_equal(script_launches[5].arg.first, FIRST + 200);
	assert_int_equal(script_launches[5].arg.number, 5);
	gpu_run_counts(d, &c);
	assert_int_equal(c.interruptions, 1);
	assert_int_equal(c.resumed_blocks, 170);
	device_stores(5);
	assert_int_equal(gpu_run_busy(d, &q), 0);
	look(&p);
	assert_int_equal(p.done, 3);
	assert_false(p.stopped);
}

static void streams_are_queried_every_8_us(void **state)
{
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	(void)step(true, false); /* long after the last query, which was never */
	SCRIPT_SAID("copy 4:1");
	script_query[1] = CUDA_ERROR_NOT_READY;
	rig_tear_down(state);
	rig_set_up(state);
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	(void)step(true, false);
	script_query[20] = CUDA_SUCCESS;
	now_ns += 8 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns += 1;
	(void)step(true, false);
	SCRIPT_SAID("copy 4:1");
}

/* A piece that finished before the query returned is no interruption. */
static void an_idle_stream_may_just_have_finished(void **state)
{
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	script_log[0] = 0;
	device_stores(1);
	assert_true(step(true, false) == NEVER);
	SCRIPT_SAID("");
}

static void forced_pieces_run_against_leases(void **state)
{
	struct gpu_run_counts c;

	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 4);
	assert_int_equal(launch(100, 20), CUDA_SUCCESS);
	assert_int_equal(last_launch()->arg.groups, 1);
	interrupted_at(0, false);
	assert_int_equal(run_state(), GPU_RUN_HALTED);
	script_log[0] = 0;
	script_query[20] = CUDA_ERROR_NOT_READY;
	(void)step(false, true);
	SCRIPT_SAID("launch 3001 20:20"); /* one piece */
	assert_int_equal(last_launch()->arg.groups, 0);
	assert_int_equal(last_launch()->arg.total, 20);
	assert_int_equal(run_state(), GPU_RUN_FORCED);
	(void)step(false, true);
	SCRIPT_SAID("");
	device_stores(q.run->pieces.number);
	(void)step(false, false);
	assert_int_equal(run_state(), GPU_RUN_HALTED);
	SCRIPT_SAID("");
	(void)step(false, true);
	SCRIPT_SAID("launch 3001 20:20");
	gpu_run_counts(d, &c);
	assert_int_equal(c.forced, 2);
	/* with both, all of them */
	device_stores(q.run->pieces.number);
	(void)step(true, true);
	SCRIPT_SAID("launch 3001 20:20 launch 3001 20:20 launch 3001 20:20");
	for (unsigned i = script_n_launches - 3; i < script_n_launches; i++) {
		assert_int_equal(script_launches[i].arg.groups, 0);
	}
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
}

/* Resuming that achieves nothing is repeated after 40, 80 ... us, and after 200 ms a piece is
 * forced: a lease may never expire. */
static void futile_resumptions_become_rarer(void **state)
{
	static const uint64_t delays[] = { 0, 0, 40, 80, 160, 320, 640, 1000, 1000 };
	struct sched_run_progress p;

	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	*device_counter() = FIRST; /* first seen: as it was is not known */
	for (unsigned i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
		interrupted_at(1, false);
		assert_int_equal(run_state(), GPU_RUN_HALTED);
		look(&p);
		assert_int_equal(p.futile, i);
		if (delays[i]) {
			now_ns += delays[i] * US - 1;
			(void)step(true, false);
			assert_int_equal(run_state(), GPU_RUN_HALTED);
			now_ns++;
		}
		script_query[20] = CUDA_ERROR_NOT_READY;
		(void)step(true, false);
		assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	}
	interrupted_at(2, false); /* a block got through */
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
	look(&p);
	assert_int_equal(p.futile, 8);
}

static void leases_that_never_expire_are_broken(void **state)
{
	struct gpu_run_counts c;

	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 4);
	assert_int_equal(launch(100, 0), CUDA_SUCCESS);
	interrupted_at(1, true);
	interrupted_at(1, false);
	assert_int_equal(q.run->halt.n_same, 1);
	now_ns = q.run->halt.same_since_ns + 200 * MS;
	(void)step(true, false); /* not longer than 200 ms */
	assert_int_equal(last_launch()->arg.groups, 1);
	interrupted_at(1, false);
	now_ns++;
	(void)step(true, false);
	assert_int_equal(last_launch()->arg.groups, 0);
	gpu_run_counts(d, &c);
	assert_int_equal(c.forced, 1);
	assert_true(q.run->halt.same_since_ns == now_ns);
	assert_int_equal(run_state(), GPU_RUN_ACTIVE);
}

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
		T(a_clone_gets_its_grid_and_the_words_of_the_run),
		T(limits_are_exact),
		T(progress_is_seen_by_numbers),
		T(what_left_is_submitted_again),
		T(streams_are_queried_every_8_us),
		T(an_idle_stream_may_just_have_finished),
		T(forced_pieces_run_against_leases),
		T(futile_resumptions_become_rarer),
		T(leases_that_never_expire_are_broken),
		T(events_follow_the_launches_before_them),
		T(events_before_the_counter_are_not_recorded_again),
		T(errors_of_events_are_errors_of_the_run),
		T(a_refused_first_piece_is_no_launch),
		T(a_launch_refused_after_an_interruption_is_left_out),
		T(refused_launches_end_the_waiting),
		T(a_run_that_cannot_go_on_is_given_up),
		T(impossible_counters_are_errors),
		T(a_captured_stream_is_left_alone),
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
