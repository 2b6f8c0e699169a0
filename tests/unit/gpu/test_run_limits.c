/* Guarantees regardless of the other tenant: no wait is unbounded, without a policy there are no
 * runs, and a waiting thread gets the error. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "run_testbed.h"

#include "../eventually.h"
#include "sched/sched_int.h"

#define MS UINT64_C(1000000)

static struct testbed *begin(unsigned n, uint64_t limit_ns)
{
	static const struct drv_options o = { .seed = 3 };
	struct testbed *w = world_new(false);

	testbed_init(w, n, &o, limit_ns);
	return w;
}

static void wait_until_stopped(struct line *x)
{
	struct sched_run_progress c;

	eventually((gpu_run_look(NULL, &x->dev, &c), c.stopped));
}

/* Waits until the agent has completed two steps that began after the call. */
static void wait_for_agent(struct testbed *w)
{
	uint32_t from = load_acquire(&w->r.steps);

	eventually((rig_wake_agent(&w->r), load_acquire(&w->r.steps) - from >= 3));
}

/* Not at block level, so it waits for all blocks of the launch before; its caller does not. */
static void work_behind_a_stopped_launch_is_deferred(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];
	struct work *a, *b;

	request_begins(w);
	a = launch(w, x, 50, true, true, 0);
	wait_until_stopped(x);
	b = launch(w, x, 1, false, true, 0);
	assert_true(sched_queue_deferred(x->q));
	assert_int_equal(load_relaxed(&b->begun), 0);
	wait_for_agent(w);
	assert_int_equal(load_relaxed(&b->begun), 0);
	request_ends(w);
	synchronize(w, x);
	assert_true(drv_done(a) && drv_done(b));
	assert_int_equal(load_relaxed(&w->r.stats.forced), 0);
	assert_true(load_relaxed(&w->r.stats.interruptions) >= 1);
	testbed_finish(w);
}

/* A waiting thread advances the run without an agent. */
static void a_submit_advances_the_run_itself(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];
	struct work *a;

	rig_stop_agent(&w->r);
	store_relaxed(&drv_leases[3], 1u);
	a = launch(w, x, 50, true, true, 0);
	eventually(drv_idle()); /* its blocks have left */
	store_relaxed(&drv_leases[3], 0u);
	synchronize(w, x);
	assert_true(drv_done(a));
	testbed_finish(w);
}

/* Its run has finished, but that has not been noticed yet. */
static void a_queue_closes_without_an_agent(void **state)
{
	struct testbed *w = begin(2, 60000 * MS);
	struct line *x = &w->line[1];
	struct work *a;

	rig_stop_agent(&w->r);
	a = launch(w, x, 50, true, true, 0);
	eventually(drv_done(a));
	sched_queue_close(x->q);
	gpu_run_close(w->d, &x->dev);
	pthread_mutex_destroy(&x->lock);
	free(a);
	w->n = 1;
	testbed_finish(w);
}

/* A request that never ends: one piece after the limit, then by the minimum share. */
static void a_request_that_never_ends_does_not_stop_a_launch_for_ever(void **state)
{
	struct testbed *w = begin(1, 3 * MS);
	struct line *x = &w->line[0];
	struct work *a;

	request_begins(w);
	a = launch(w, x, 60, true, true, 10);
	synchronize(w, x);
	assert_true(drv_done(a));
	assert_int_equal(load_relaxed(&w->r.stats.forced), 6);
	assert_true(load_relaxed(&w->r.stats.limit_hits) >= 6);
	request_ends(w);
	testbed_finish(w);
}

/* Leases that never expire are in all words, and no request is open. */
static void leases_that_no_board_shows_do_not_stop_a_launch_for_ever(void **state)
{
	struct testbed *w = begin(1, 20 * MS);
	struct line *x = &w->line[0];
	struct work *a[4];

	for (unsigned i = 0; i < ARRAY_SIZE(drv_leases); i++) {
		store_relaxed(&drv_leases[i], 1u);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
		a[i] = launch(w, x, 50, true, true, 0);
	}
	synchronize(w, x);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
		assert_true(drv_done(a[i]));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(drv_leases); i++) {
		store_relaxed(&drv_leases[i], 0u);
	}
	testbed_finish(w);
}

static void write_all_leases(uint32_t word)
{
	for (unsigned i = 0; i < ARRAY_SIZE(drv_leases); i++) {
		store_relaxed(&drv_leases[i], word);
	}
}

/* A process that keeps a flag page may write leases for ever. Once they have stopped launches for
 * half a second without an open request, they lose their effect for ten seconds. */
static void leases_that_no_board_shows_lose_their_effect(void **state)
{
	struct testbed *w = begin(1, 20 * MS);
	struct line *x = &w->line[0];
	uint64_t now, from;

	write_all_leases(1);
	for (unsigned i = 0; i < 20; i++) {
		(void)launch(w, x, 50, true, true, 0);
		synchronize(w, x);
	}
	now = clock_now_ns();
	assert_true(sched_lease_doubted(w->r.s, now));
	assert_int_equal(load_relaxed(&w->r.notes), 1);
	from = load_relaxed(&w->r.stats.interruptions);
	for (unsigned i = 0; i < 20; i++) {
		(void)launch(w, x, 50, true, true, 0);
		synchronize(w, x);
	}
	assert_true(load_relaxed(&w->r.stats.interruptions) - from <= 2);
	assert_false(sched_lease_doubted(w->r.s, now + 11000 * MS));
	write_all_leases(0);
	testbed_finish(w);
}

/* Requests of other tenants stop launches all the time, with their boards open. */
static void leases_of_open_requests_are_not_doubted(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];

	for (unsigned i = 0; i < 20; i++) {
		struct work *a;

		request_begins(w);
		a = launch(w, x, 50, true, true, 0);
		wait_until_stopped(x);
		usleep(50000); /* the length of the request: together, twice the budget */
		request_ends(w);
		synchronize(w, x);
		assert_true(drv_done(a));
	}
	assert_false(sched_lease_doubted(w->r.s, clock_now_ns()));
	testbed_finish(w);
}

static void off_finishes_stopped_launches(void **state)
{
	struct testbed *w = begin(2, 60000 * MS);
	struct work *a, *b;

	request_begins(w);
	a = launch(w, &w->line[0], 100, true, true, 7);
	b = launch(w, &w->line[1], 10, true, true, 0);
	wait_until_stopped(&w->line[0]);
	sched_set_off(w->r.s, true);
	assert_false(sched_idle(w->r.s));
	eventually(drv_done(a) && drv_done(b) && sched_idle(w->r.s)); /* only the agent waits */
	assert_int_equal(load_relaxed(&w->r.s->n_runs), 0);
	request_ends(w);
	testbed_finish(w);
}

/* The policy is removed while a run is stopped. */
static void without_a_policy_it_is_finished_too(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct work *a;

	request_begins(w);
	a = launch(w, &w->line[0], 100, true, true, 7);
	wait_until_stopped(&w->line[0]);
	store_release(&w->r.dir.version[0], UINT64_C(0));
	eventually(drv_done(a));
	request_ends(w);
	testbed_finish(w);
}

/* Without a clone, or without a policy that requests the level: as before. */
static void kernels_without_a_clone_begin_no_run(void **state)
{
	struct testbed *w = begin(1, 0);

	for (int i = 0; i < 10; i++) {
		(void)launch(w, &w->line[0], 5, false, true, 0);
	}
	assert_null(w->line[0].dev.run);
	assert_int_equal(load_relaxed(&w->r.s->n_runs), 0);
	assert_int_equal(load_relaxed(&w->r.stats.block_launches), 0);
	synchronize(w, &w->line[0]);
	assert_int_equal(load_relaxed(&drv_launches), 0);
	testbed_finish(w);
}

static const struct ebpf_insn split_in_sevens[] = {
	I_ST(EBPF_W, 1, SUBMIT(split_blocks), 7),
	I_MOV(0, GBPF_SPLIT),
	I_EXIT,
};

static void split_means_pieces(void **state)
{
	struct testbed *w = begin(1, 0);

	POLICY_USE(&w->r, 2, split_in_sevens);
	(void)launch(w, &w->line[0], 70, true, true, 0);
	synchronize(w, &w->line[0]);
	assert_int_equal(load_relaxed(&drv_launches), 10);
	assert_int_equal(load_relaxed(&w->r.stats.verdict_errors), 0);
	(void)launch(w, &w->line[0], 70, false, true, 0);
	synchronize(
		w,
		&w->line[0]); /* the agent may hold the lock for a moment after the run has ended */
	assert_true(load_relaxed(&w->r.stats.verdict_errors) >= 1);
	assert_int_equal(load_relaxed(&drv_launches), 10);
	testbed_finish(w);
}

/* The waiting thread gets the error; nothing blocks, and the queue is empty. */
static void a_lost_device_is_reported_and_nothing_hangs(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];
	struct work *a, *b;

	request_begins(w);
	a = launch(w, x, 50, true, true, 0);
	wait_until_stopped(x);
	b = launch(w, x, 1, false, true, 0);
	drv_lose(CUDA_ERROR_ILLEGAL_ADDRESS);
	request_ends(w);
	assert_int_equal(sched_drain(w->r.s, x->q), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_false(sched_queue_deferred(x->q));
	assert_int_equal(sched_drain(w->r.s, x->q), 0);
	drv_lose(CUDA_SUCCESS);
	a->ended = a->blocks; /* they never will */
	b->ended = b->blocks;
	testbed_finish(w);
}

/* A full FIFO blocks the caller, as full hardware would. */
static void a_full_fifo_makes_the_caller_wait(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];

	request_begins(w);
	(void)launch(w, x, 20, true, true, 0);
	wait_until_stopped(x);
	for (unsigned i = 0; i < SCHED_FIFO_MAX; i++) {
		(void)launch(w, x, 1, false, true, 0);
	}
	assert_int_equal(sched_fifo_count(x->q), SCHED_FIFO_MAX);
	request_ends(w);
	for (unsigned i = 0; i < 100; i++) {
		(void)launch(w, x, 1, i % 2, true, 0);
		assert_true(sched_fifo_count(x->q) <= SCHED_FIFO_MAX);
	}
	synchronize(w, x);
	testbed_finish(w);
}

/* More than a run takes: the rest waits in the FIFO and joins it later. */
static void more_launches_than_a_run_takes(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];

	request_begins(w);
	for (unsigned i = 0; i < 300; i++) {
		(void)launch(w, x, 1 + i % 9, true, true, 0);
	}
	assert_int_equal(sched_fifo_count(x->q), 300 - GPU_RUN_DEPTH);
	request_ends(w);
	synchronize(w, x);
	assert_int_equal(load_relaxed(&w->r.stats.block_launches), 300);
	testbed_finish(w);
}

static uint64_t inflight(struct testbed *w)
{
	return SCHED_ACC_COUNT(sched_inflight(w->r.s));
}

/* A stopped launch counts as in flight, whatever the stream says. */
static void a_stopped_launch_is_in_flight(void **state)
{
	struct testbed *w = begin(1, 60000 * MS);
	struct line *x = &w->line[0];

	request_begins(w);
	(void)launch(w, x, 50, true, true, 0);
	wait_until_stopped(x);
	wait_for_agent(w);
	assert_int_equal(inflight(w), 1);
	assert_int_equal(gpu_sched_ops.queue_idle(w->d, &x->dev), 0);
	request_ends(w);
	synchronize(w, x);
	eventually(inflight(w) == 0);
	testbed_finish(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_behind_a_stopped_launch_is_deferred),
		cmocka_unit_test(a_submit_advances_the_run_itself),
		cmocka_unit_test(a_queue_closes_without_an_agent),
		cmocka_unit_test(a_request_that_never_ends_does_not_stop_a_launch_for_ever),
		cmocka_unit_test(leases_that_no_board_shows_do_not_stop_a_launch_for_ever),
		cmocka_unit_test(leases_that_no_board_shows_lose_their_effect),
		cmocka_unit_test(leases_of_open_requests_are_not_doubted),
		cmocka_unit_test(off_finishes_stopped_launches),
		cmocka_unit_test(without_a_policy_it_is_finished_too),
		cmocka_unit_test(kernels_without_a_clone_begin_no_run),
		cmocka_unit_test(split_means_pieces),
		cmocka_unit_test(a_lost_device_is_reported_and_nothing_hangs),
		cmocka_unit_test(a_full_fifo_makes_the_caller_wait),
		cmocka_unit_test(more_launches_than_a_run_takes),
		cmocka_unit_test(a_stopped_launch_is_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
