/* Deferred calls: their numbers, what a thread that drains a queue does, and when the agent is
 * woken. Figures are literals: 64 calls at a time by a thread that waits. */
#include "calls.h"

/* ---- numbers ---- */

static uint64_t placed_number(struct sched_call *c)
{
	return 5000;
}

static void numbers_order_the_calls_of_all_queues(void **state)
{
	struct call *own;
	struct clocked c;

	init(&c);
	assert_int_equal(sched_next_number(c.r.s), 1);
	assert_int_equal(sched_next_number(c.r.s), 2);
	assert_true(sched_queue_alone(c.q));
	defer(&c, NULL, 1); /* number 3 */
	assert_false(sched_queue_behind(c.q, 3));
	assert_true(sched_queue_behind(c.q, 4));
	assert_true(sched_queue_alone(c.q));
	c.r.s->n_deferred++;
	assert_false(sched_queue_alone(c.q));
	c.r.s->n_deferred--;
	c.r.s->n_runs = 1;
	assert_false(sched_queue_alone(c.q));
	c.q->pending |= SCHED_HAS_RUN;
	assert_true(sched_queue_alone(c.q));
	run_device.busy = 1;
	assert_true(sched_queue_behind(c.q, 3));
	run_device.busy = 0;
	c.q->pending &= ~SCHED_HAS_RUN;
	c.r.s->n_runs = 0;
	c.fq.eager = 1;
	(void)clocked_step(&c, 0);
	own = make(&c.fq, NULL, 1);
	own->c.placed = placed_number;
	sched_defer(c.q, &own->c);
	assert_false(sched_queue_behind(c.q, 5000));
	assert_true(sched_queue_behind(c.q, 5001));
	c.q->fifo.submitting = 40; /* between the list and the driver */
	assert_false(sched_queue_behind(c.q, 40));
	assert_true(sched_queue_behind(c.q, 41));
	c.q->fifo.submitting = 0;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 2);
	clocked_finish(&c);
}

/* ---- threads that wait ---- */

static void the_first_error_is_given_once(void **state)
{
	struct call *bad;
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	for (int i = 0; i < 3; i++) {
		bad = make(&c.fq, &c.l, 1);
		bad->error = i ? 700 + i : 0;
		sched_defer(c.q, &bad->c);
	}
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 3);
	assert_int_equal(c.r.s->n_deferred, 0);
	assert_int_equal(SCHED_ACC_COUNT(sched_tally_sum(&c.q->total)), 1); /* two were refused */
	assert_int_equal(sched_drain(c.r.s, NULL), 0); /* nothing is deferred */
	assert_int_equal(sched_drain(c.r.s, c.q), 701);
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	clocked_finish(&c);
}

static void a_drain_takes_64_at_a_time_and_forces_at_the_limit(void **state)
{
	uint64_t begin;
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	limits_far_away(&c);
	defer(&c, &c.l, 100);
	clock_set_source(ticking);
	begin = clocked_now;
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	assert_int_equal(done.n, 100);
	assert_in_range(clocked_now - begin, 100 * MS, 1500 * MS);
	assert_int_equal(c.r.stats.limit_hits, 2); /* 64 and 36 */
	clocked_finish(&c);
}

static void others_are_drained_until_they_stall(void **state)
{
	struct fake_queue fb = { .eager = 1 };
	struct sched_queue *b;
	uint64_t begin, took;
	struct call *stuck;
	struct clocked c;

	init(&c);
	b = sched_queue_open(c.r.s, &fb, 0, 0);
	c.fq.eager = 1;
	defer(&c, NULL, 3);
	sched_defer(b, &make(&fb, NULL, 50)->c);
	sched_drain_others(c.r.s, c.q);
	assert_int_equal(done.n, 1); /* all but that one */
	assert_int_equal(done.tag[0], 50);
	sched_drain_others(c.r.s, NULL);
	assert_int_equal(done.n, 4);
	stuck = make(&c.fq, NULL, 60);
	stuck->c.ready = ready;
	sched_defer(c.q, &stuck->c);
	clock_set_source(ticking);
	begin = clocked_now;
	sched_drain_others(c.r.s, b); /* given up after a second without progress */
	took = clocked_now - begin;
	assert_in_range(took, 1 * SECOND, 1 * SECOND + 40 * MS);
	assert_int_equal(c.q->stall_token, 4);
	begin = clocked_now;
	sched_drain_others(c.r.s, b); /* and sooner where it did not move since */
	took = clocked_now - begin;
	assert_in_range(took, 200 * MS, 240 * MS);
	begin = clocked_now;
	sched_drain_others(c.r.s, NULL);
	took = clocked_now - begin;
	assert_in_range(took, 20 * MS, 60 * MS);
	assert_int_equal(done.n, 4);
	may_go = true;
	sched_drain_others(c.r.s, b);
	assert_int_equal(done.n, 5);
	clocked_finish(&c);
}

static void calls_that_never_went_are_freed(void **state)
{
	struct clocked c;

	init(&c);
	defer(&c, NULL, 3);
	sched_fifo_drop(c.q);
	assert_int_equal(done.freed, 3);
	assert_int_equal(done.n, 0);
	assert_null(c.q->fifo.first);
	assert_ptr_equal(c.q->fifo.last, &c.q->fifo.first);
	clocked_finish(&c);
}

/* ---- waking the agent ---- */

static void the_agent_is_woken_for_the_first_call_only(void **state)
{
	struct clocked c;

	init(&c);
	c.r.wakes = 0;
	c.r.s->agent.asleep = SCHED_AGENT_NEAR;
	c.q->run.look_ns = 9;
	defer(&c, NULL, 1);
	assert_int_equal(c.r.wakes, 1);
	assert_int_equal(c.r.s->defer_seq, 1);
	assert_int_equal(c.q->run.look_ns, 9);
	assert_false(sched_idle(c.r.s));
	c.r.s->agent.asleep = SCHED_AGENT_NEAR;
	defer(&c, NULL, 1);
	assert_int_equal(c.r.wakes, 1);
	assert_int_equal(c.r.s->defer_seq, 1);
	c.fq.eager = 1;
	(void)clocked_step(&c, 0);
	run_device_begin(&c);
	c.q->run.look_ns = 9;
	defer(&c, NULL, 1); /* a thread may wait for the end of the run now */
	assert_int_equal(c.q->run.look_ns, 0);
	assert_int_equal(c.r.s->defer_seq, 2);
	run_device.busy = 0;
	(void)clocked_step(&c, 0);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_order_the_calls_of_all_queues),
		cmocka_unit_test(the_first_error_is_given_once),
		cmocka_unit_test(a_drain_takes_64_at_a_time_and_forces_at_the_limit),
		cmocka_unit_test(others_are_drained_until_they_stall),
		cmocka_unit_test(calls_that_never_went_are_freed),
		cmocka_unit_test(the_agent_is_woken_for_the_first_call_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
