/* Interrupted runs: how often they are looked at while a request of another tenant is open, when
 * they resume, and what goes at the hold limit. */
#include "run_device.h"

static uint64_t care(struct clocked *c, uint64_t later_ns)
{
	clocked_now += later_ns;
	return sched_run_care(c->q, clocked_now, false);
}

static void for_2_ms_after_a_request_an_interruption_may_be_unseen(void **state)
{
	struct clocked c;
	unsigned before;

	run_device_init(&c);
	run_device_begin(&c);
	(void)care(&c, 0);
	other_opens(&c.r);
	assert_int_equal(care(&c, 1 * MS), 15 * US);
	assert_int_equal(run_device.steps, 2);
	assert_false(run_device.may_run);
	other_closes(&c.r);
	run_device.progress.done = 5; /* seen with the close: two more clear it */
	(void)care(&c, 15 * US);
	assert_int_equal(run_device.steps, 3);
	assert_true(run_device.may_run);
	assert_int_equal(c.q->run.suspect_until_ns, clocked_now + 2 * MS);
	assert_int_equal(c.q->run.suspect_done, 5);
	run_device.progress.done = 6;
	(void)sched_run_care(c.q, clocked_now + 2 * MS - 1, true);
	before = run_device.steps;
	assert_int_equal(before, 4);
	(void)sched_run_care(c.q, clocked_now + 2 * MS, true);
	assert_int_equal(run_device.steps, before);
	c.q->run.scanned_ns = clocked_now + 2 * MS;
	c.q->run.suspect_until_ns = clocked_now + 9 * MS;
	run_device.progress.done = 7;
	(void)sched_run_care(c.q, clocked_now + 2 * MS + 1, true);
	assert_int_equal(run_device.steps, before);
	run_device.progress.done = 6;
	(void)sched_run_care(c.q, clocked_now + 2 * MS + 2, true);
	assert_int_equal(run_device.steps, before + 1);
	run_device_finish(&c);
}

static void a_stopped_run_is_resumed_when_the_request_ends(void **state)
{
	uint64_t stopped;
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	(void)care(&c, 0);
	other_opens(&c.r);
	run_device.progress.stopped = run_device.progress.waiting = true;
	run_device.progress.interruptions = 1;
	stopped = clocked_now + 1 * MS;
	assert_int_equal(care(&c, 1 * MS), 2 * US); /* nothing to do but to look often */
	assert_int_equal(run_device.steps, 1);
	assert_int_equal(c.q->run.stopped_since_ns, stopped);
	assert_int_equal(c.q->run.held_since_ns, stopped);
	c.r.s->few_cpus = true;
	assert_int_equal(care(&c, 2 * US), 25 * US);
	c.r.s->few_cpus = false;
	assert_int_equal(care(&c, 2 * MS - 2 * US - 1), 2 * US);
	c.q->run.look_ns = 0;
	assert_int_equal(care(&c, 1), 50 * US); /* interrupted for 2 ms: less often */
	run_device.progress.waiting = false;	/* blocks have left: the device may act */
	assert_int_equal(care(&c, 50 * US), 50 * US);
	assert_int_equal(run_device.steps, 2);
	assert_false(run_device.may_run);
	assert_false(run_device.force);
	assert_int_equal(c.r.stats.interruptions, 1);
	run_device.progress.waiting = true;
	other_closes(&c.r);
	run_device.step_ns = 7 * US;
	assert_int_equal(care(&c, 50 * US), 7 * US); /* still stopped: as the device says */
	assert_int_equal(run_device.steps, 3);
	assert_true(run_device.may_run);
	assert_int_equal(c.r.stats.holds, 0);
	run_device.resumes = true;
	(void)care(&c, 7 * US);
	assert_int_equal(run_device.steps, 4);
	assert_int_equal(c.r.stats.holds, 1);
	assert_int_equal(c.r.stats.held_ns, clocked_now - stopped);
	assert_int_equal(c.r.stats.why, PROTO_WHY_LEASE);
	assert_int_equal(c.q->run.stopped_since_ns | c.q->run.held_since_ns, 0);
	assert_int_equal(c.q->run.suspect_until_ns, 0);
	assert_int_equal(c.r.stats.interruptions, 1);
	run_device_finish(&c);
}

/* A request that will hardly end before three quarters of the shortest is not looked at sooner. */
static void looks_at_a_stopped_run_wait_for_the_likely_end(void **state)
{
	static const struct {
		uint64_t request_ns, since_opened, period;
	} cases[] = {
		{ 40 * US, 0, 30 * US },	 { 40 * US, 20 * US, 10 * US },
		{ 40 * US, 29 * US, 2 * US },	 { 400 * US, 0, 50 * US },
		{ 400 * US, 260 * US, 40 * US }, { 900 * MS, 15 * MS - 20 * US, 20 * US },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		run_device_init(&c);
		run_device_begin(&c);
		c.q->run.request_ns = cases[i].request_ns;
		other_opens(&c.r);
		run_device.progress.stopped = run_device.progress.waiting = true;
		assert_int_equal(care(&c, cases[i].since_opened), cases[i].period);
		run_device_finish(&c);
	}
}

static void a_run_that_is_held_gets_a_piece_at_the_limit(void **state)
{
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	other_opens(&c.r);
	run_device.progress.stopped = run_device.progress.waiting = true;
	c.r.other.beat_ns = clocked_now + SECOND;
	(void)care(&c, 0);
	c.q->run.look_ns = 0;
	(void)care(&c, 100 * MS - 1);
	assert_int_equal(run_device.steps, 0);
	assert_int_equal(c.r.stats.forced, 0);
	c.q->run.look_ns = 0;
	(void)care(&c, 1);
	assert_int_equal(run_device.steps, 1);
	assert_true(run_device.force);
	assert_false(run_device.may_run);
	assert_int_equal(c.r.stats.forced, 1);
	assert_int_equal(c.r.stats.limit_hits, 1);
	assert_int_equal(c.q->run.held_since_ns, clocked_now);
	c.q->run.look_ns = 0;
	(void)care(&c, 99 * MS); /* and again after the share has accrued for as long */
	assert_int_equal(c.r.stats.forced, 1);
	c.q->run.look_ns = 0;
	(void)care(&c, 1 * MS + 1);
	assert_int_equal(c.r.stats.forced, 2);
	run_device_finish(&c);
}

static void without_a_policy_the_run_is_forced_to_its_end(void **state)
{
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	other_opens(&c.r);
	run_device.progress.stopped = run_device.progress.waiting = true;
	sched_set_off(c.r.s, true);
	(void)care(&c, 0);
	assert_int_equal(run_device.steps, 1);
	assert_true(run_device.may_run && run_device.force);
	run_device.progress.stopped = run_device.progress.waiting = false;
	(void)sched_run_care(c.q, clocked_now + 1, true);
	assert_int_equal(run_device.steps, 2); /* whether it is due or not */
	run_device.step_ns = UINT64_MAX;       /* it is through */
	assert_int_equal(sched_run_care(c.q, clocked_now + 2, true), UINT64_MAX);
	assert_int_equal(c.q->pending, 0);
	assert_int_equal(c.r.s->n_runs, 0);
	assert_int_equal(c.r.stats.forced, 0);
	run_device_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_2_ms_after_a_request_an_interruption_may_be_unseen),
		cmocka_unit_test(a_stopped_run_is_resumed_when_the_request_ends),
		cmocka_unit_test(looks_at_a_stopped_run_wait_for_the_likely_end),
		cmocka_unit_test(a_run_that_is_held_gets_a_piece_at_the_limit),
		cmocka_unit_test(without_a_policy_the_run_is_forced_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
