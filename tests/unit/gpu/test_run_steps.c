/* A resumable run step by step: what a clone's launch gets, what its callers see, interruptions
 * and forced pieces. */
#include "run_look.h"

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
	assert_int_equal(script_launches[OWN_LAUNCHES + 3].arg.first, FIRST + 100);
	assert_int_equal(script_launches[OWN_LAUNCHES + 3].arg.total, 100);
	assert_int_equal(script_launches[OWN_LAUNCHES + 3].arg.number, 4);
	assert_int_equal(script_launches[OWN_LAUNCHES + 4].arg.first, FIRST + 200);
	assert_int_equal(script_launches[OWN_LAUNCHES + 4].arg.number, 5);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
