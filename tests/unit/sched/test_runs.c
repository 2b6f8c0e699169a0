/* Resumable runs: when one begins, joins and ends, how often it is looked at, and what its device
 * gets. Figures are literals: 1 ms quiet, 300, 50 and 15 us as requests of others come nearer.
 */
#include "run_device.h"

#include "../eventually.h"

static uint64_t care(struct clocked *c, uint64_t later_ns)
{
	clocked_now += later_ns;
	return sched_run_care(c->q, clocked_now, false);
}

/* A request of another tenant that lasted that long and ended then. */
static void other_had(struct clocked *c, uint64_t lasted_ns, uint64_t end_ns)
{
	c->r.other.gpu[0].open = 0;
	c->r.other.gpu[0].opened_ns = end_ns - lasted_ns;
	c->r.other.gpu[0].last_end_ns = end_ns;
}

static void a_run_begins_once_and_ends_when_the_device_is_through(void **state)
{
	struct clocked c;

	run_device_init(&c);
	assert_int_equal(care(&c, 0), UINT64_MAX);
	assert_true(sched_run_end_if_done(c.q));
	c.r.wakes = 0;
	c.r.s->agent.asleep = SCHED_AGENT_SLOW;
	c.q->run.look_ns = 5;
	run_device_begin(&c);
	assert_int_equal(c.q->pending, SCHED_HAS_RUN);
	assert_int_equal(c.r.s->n_runs, 1);
	assert_int_equal(c.q->run.look_ns, 0);
	assert_int_equal(c.r.wakes, 1);
	assert_true(sched_run_begin(c.q));
	assert_int_equal(c.r.s->n_runs, 1);
	assert_true(sched_run_unfinished(c.q));
	assert_false(sched_run_end_if_done(c.q));
	assert_false(sched_run_try_end(c.q));
	sched_set_off(c.r.s, true);
	assert_false(sched_idle(c.r.s)); /* until it has ended */
	run_device.busy = 0;
	assert_false(sched_run_unfinished(c.q));
	lock_take(&c.q->issue.lock);
	assert_false(sched_run_try_end(c.q)); /* another thread has the lock */
	lock_release(&c.q->issue.lock);
	run_device.progress.interruptions = 3;
	c.q->run.stopped_since_ns = c.q->run.held_since_ns = 4;
	c.q->run.step_ns = c.q->run.stepped_ns = 4;
	assert_true(sched_run_try_end(c.q));
	assert_int_equal(c.q->pending, 0);
	assert_int_equal(c.r.s->n_runs, 0);
	assert_true(sched_idle(c.r.s));
	assert_int_equal(c.r.stats.interruptions, 3);
	assert_int_equal(c.q->run.stopped_since_ns | c.q->run.held_since_ns | c.q->run.step_ns |
				 c.q->run.stepped_ns,
			 0);
	assert_false(sched_run_unfinished(c.q));
	run_device_finish(&c);
}

/* ---- launches of other threads ---- */

struct guest {
	struct sched_queue *q;
	uint32_t inside, leave;
};

static void *stay_at_the_gate(void *arg)
{
	struct guest *g = arg;

	sched_gate_enter(g->q);
	store_seqcst(&g->inside, 1u);
	eventually(load_seqcst(&g->leave));
	sched_gate_leave(g->q);
	return NULL;
}

static void no_run_begins_while_another_thread_is_at_the_gate(void **state)
{
	struct guest g = { 0 };
	pthread_t th;
	struct clocked c;

	run_device_init(&c);
	clock_set_source(NULL); /* the wait for the other thread is real */
	g.q = c.q;
	assert_int_equal(go(c.q, &c.fq, &c.l), SCHED_GO); /* the queue is this thread's */
	assert_int_equal(c.q->shared, 0);
	pthread_create(&th, NULL, stay_at_the_gate, &g);
	eventually(load_seqcst(&g.inside));
	assert_int_equal(c.q->shared, 1);
	assert_false(sched_run_begin(c.q));
	assert_int_equal(c.q->pending, 0);
	assert_int_equal(c.r.s->n_runs, 0);
	store_seqcst(&g.leave, 1u);
	pthread_join(th, NULL);
	store_relaxed(&c.q->guests, 1u); /* a thread without a slot */
	assert_false(sched_run_begin(c.q));
	store_relaxed(&c.q->guests, 0u);
	run_device_begin(&c);
	run_device_finish(&c);
}

static void what_may_join_or_begin_a_run(void **state)
{
	struct sched_decision a = { .level = GBPF_LEVEL_BLOCK };
	struct clocked c;

	run_device_init(&c);
	c.l.block_ok = true;
	assert_true(sched_run_allowed(c.q, &c.l, &a));
	a.level = GBPF_LEVEL_HOLD;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	a.level = GBPF_LEVEL_BLOCK;
	c.l.block_ok = false;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.l.block_ok = true;
	c.l.may_hold = false;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.l.may_hold = true;
	c.q->class_id = GBPF_CLASS_LATENCY;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.q->class_id = GBPF_CLASS_NORMAL;
	assert_true(sched_run_allowed(c.q, &c.l, &a));
	c.q->run.draining = 1;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.q->run.draining = 0;
	c.ops.run_busy = NULL;
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.ops.run_busy = run_device_busy;
	c.r.s->active_ns = clocked_now + 1; /* launches may have passed unseen */
	assert_false(sched_run_allowed(c.q, &c.l, &a));
	c.r.s->active_ns = clocked_now;
	assert_true(sched_run_allowed(c.q, &c.l, &a));
	a.pieces = 12;
	sched_run_add(c.q, &c.l, &a);
	assert_int_equal(c.l.level, GBPF_LEVEL_BLOCK);
	assert_int_equal(c.l.piece_blocks, 12);
	assert_int_equal(c.r.stats.block_launches, 1);
	run_device_finish(&c);
}

static bool joined(struct clocked *c)
{
	bool yes = sched_run_join(c->q);

	if (yes) {
		assert_false(lock_try(&c->q->issue.lock));
		sched_run_joined(c->q);
	}
	assert_true(lock_try(&c->q->issue.lock));
	lock_release(&c->q->issue.lock);
	return yes;
}

static void calls_join_an_unfinished_run_with_room_only(void **state)
{
	struct clocked c;

	run_device_init(&c);
	run_device.busy = 1;
	assert_false(joined(&c)); /* there is none */
	run_device_begin(&c);
	assert_true(joined(&c));
	run_device.progress.full = true;
	assert_false(sched_run_has_room(c.q));
	assert_false(joined(&c));
	run_device.progress.full = false;
	assert_true(sched_run_has_room(c.q));
	c.q->run.draining = 1;
	assert_false(joined(&c));
	c.q->run.draining = 0;
	c.q->pending++; /* a deferred call is behind it */
	assert_false(joined(&c));
	c.q->pending--;
	run_device.busy = 0;
	assert_false(joined(&c));
	run_device_finish(&c);
}

static void the_first_error_of_a_run_is_kept(void **state)
{
	struct sched_run_progress p;
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	run_device.error = 700;
	sched_run_look(c.q, &p);
	assert_int_equal(p.launched, 1);
	run_device.error = 701;
	sched_run_look(c.q, &p);
	run_device.busy = 0;
	assert_int_equal(sched_drain(c.r.s, c.q), 700);
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	run_device_finish(&c);
}

/* ---- periods ---- */

static void without_waiter_or_request_looks_are_rare(void **state)
{
	struct clocked c;

	run_device_init(&c);
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, 3));
	run_device_begin(&c);
	assert_int_equal(care(&c, 0), 1 * MS);
	assert_int_equal(run_device.steps, 1); /* the first look is a step */
	assert_true(run_device.may_run);
	assert_false(run_device.force);
	assert_int_equal(care(&c, 1), 1 * MS - 1); /* nothing is asked in between */
	assert_int_equal(care(&c, 1 * MS - 2), 1);
	assert_int_equal(run_device.looks, 2);
	assert_int_equal(care(&c, 1), 1 * MS);
	assert_int_equal(run_device.looks, 3);
	assert_int_equal(run_device.steps, 1); /* it proceeds alone until its step is due */
	assert_int_equal(care(&c, 9 * SECOND), 1 * MS);
	assert_int_equal(care(&c, SECOND - 1 * MS - 7), 7); /* and then the step is */
	assert_int_equal(run_device.steps, 1);
	assert_int_equal(care(&c, 7), 1 * MS);
	assert_int_equal(run_device.steps, 2);
	run_device_finish(&c);
}

/* A thread that waits for the run, pieces to feed and deferred calls make steps exact; otherwise
 * they are a millisecond apart. */
static void steps_are_exact_where_something_waits(void **state)
{
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	run_device.step_ns = 40 * US;
	assert_int_equal(care(&c, 0), 1 * MS);
	run_device.step_ns = 40 * US;
	assert_int_equal(sched_run_care(c.q, clocked_now, true), 40 * US);
	assert_int_equal(run_device.steps, 1);
	clocked_now += 39 * US;
	assert_int_equal(sched_run_care(c.q, clocked_now, true), 1 * US);
	assert_int_equal(run_device.steps, 1);
	clocked_now += 1 * US;
	assert_int_equal(sched_run_care(c.q, clocked_now, true), 40 * US);
	assert_int_equal(run_device.steps, 2);
	run_device.progress.feeding = true;
	assert_int_equal(care(&c, 40 * US), 40 * US);
	assert_int_equal(run_device.steps, 3);
	run_device.progress.feeding = false;
	c.q->pending++;
	assert_int_equal(care(&c, 40 * US), 40 * US);
	assert_int_equal(run_device.steps, 4);
	c.q->pending--;
	assert_int_equal(care(&c, 40 * US), 960 * US);
	assert_int_equal(run_device.steps, 4);
	assert_int_equal(care(&c, 960 * US), 1 * MS);
	assert_int_equal(run_device.steps, 5);
	run_device_finish(&c);
}

/* After a request that ended ago ns before, and of that duration: the period of the next looks,
 * with many processors and with few. */
static void requests_of_others_make_looks_frequent(void **state)
{
	static const struct {
		uint64_t ago, lasted, many, few;
	} cases[] = {
		{ 1 * US, 400 * US, 200 * US, 400 * US },
		{ 1 * US, 100 * US, 50 * US, 100 * US },
		{ 1 * US, 99 * US, 50 * US, 100 * US },
		{ 1 * US, 598 * US, 299 * US, 598 * US },
		{ 1 * US, 600 * US, 300 * US, 300 * US },
		{ 1 * US, 900 * US, 300 * US, 300 * US },
		{ 20 * MS - 1, 400 * US, 200 * US, 400 * US },
		{ 20 * MS, 400 * US, 312500, 312500 },
		{ 32 * MS, 400 * US, 500 * US, 500 * US },
		{ 64 * MS, 400 * US, 1 * MS, 1 * MS },
		{ 10 * SECOND, 400 * US, 1 * MS, 1 * MS },
	};

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		struct clocked c;

		run_device_init(&c);
		c.r.s->few_cpus = i % 2;
		other_had(&c, cases[i / 2].lasted, clocked_now - cases[i / 2].ago);
		run_device_begin(&c);
		assert_int_equal(care(&c, 0), i % 2 ? cases[i / 2].few : cases[i / 2].many);
		run_device_finish(&c);
	}
}

static void the_shortest_recent_request_counts(void **state)
{
	struct proto_board second = { 0 };
	struct clocked c;

	run_device_init(&c);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 9, 7, &second), 0);
	other_had(&c, 500 * US, clocked_now - 1 * US);
	second.gpu[0].opened_ns = clocked_now - 2 * MS - 300 * US;
	second.gpu[0].last_end_ns = clocked_now - 2 * MS;
	run_device_begin(&c);
	assert_int_equal(care(&c, 0), 150 * US);
	assert_int_equal(c.q->run.request_ns, 37500); /* rises slowly */
	second.gpu[0].opened_ns = clocked_now - 2 * MS - 20 * US;
	(void)sched_run_care(c.q, clocked_now, true);
	assert_int_equal(c.q->run.request_ns, 20 * US); /* falls at once */
	second.gpu[0].opened_ns -= 80 * US;
	(void)sched_run_care(c.q, clocked_now, true);
	assert_int_equal(c.q->run.request_ns, 30 * US);
	second.gpu[0].last_end_ns = clocked_now - 20 * MS; /* too old */
	(void)sched_run_care(c.q, clocked_now, true);
	assert_int_equal(c.q->run.request_ns, 30 * US + 470 * US / 8);
	second.gpu[0].last_end_ns = 0;
	other_had(&c, 0, 0);
	(void)sched_run_care(c.q, clocked_now, true);
	assert_int_equal(c.q->run.request_ns, 30 * US + 470 * US / 8); /* nothing to learn */
	run_device_finish(&c);
}

static void announced_requests_count_within_the_lead(void **state)
{
	static const struct {
		uint32_t lane;
		uint64_t ahead, period;
		bool may_run;
	} cases[] = {
		{ GBPF_LANE_PROCESS, 300 * US, 15 * US, false },
		{ GBPF_LANE_PROCESS, 300 * US + 1, 1 * MS, true },
		{ GBPF_LANE_SHARED, 60 * US, 15 * US, false },
		{ GBPF_LANE_SHARED, 60 * US + 1, 1 * MS, true },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		run_device_init(&c);
		sched_set_lane(c.r.s, cases[i].lane);
		c.r.other.gpu[0].next_ns = clocked_now + cases[i].ahead;
		run_device_begin(&c);
		assert_int_equal(care(&c, 0), cases[i].period);
		assert_int_equal(run_device.may_run, cases[i].may_run);
		assert_false(run_device.force);
		run_device_finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_begins_once_and_ends_when_the_device_is_through),
		cmocka_unit_test(no_run_begins_while_another_thread_is_at_the_gate),
		cmocka_unit_test(what_may_join_or_begin_a_run),
		cmocka_unit_test(calls_join_an_unfinished_run_with_room_only),
		cmocka_unit_test(the_first_error_of_a_run_is_kept),
		cmocka_unit_test(without_waiter_or_request_looks_are_rare),
		cmocka_unit_test(steps_are_exact_where_something_waits),
		cmocka_unit_test(requests_of_others_make_looks_frequent),
		cmocka_unit_test(the_shortest_recent_request_counts),
		cmocka_unit_test(announced_requests_count_within_the_lead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
