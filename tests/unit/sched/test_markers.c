/* Markers: when one is placed, what the hook retire gets, and what happens without markers. */
#include "charge_rig.h"

static void a_marker_follows_an_amount_of_estimated_work(void **state)
{
	static const struct {
		uint64_t est_ns;
		unsigned launches;
	} cases[] = {
		{ 10000, 25 }, { 25000, 10 }, { 49999, 6 }, { 50000, 1 }, { 90000, 1 }, { 0, 1 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		clocked_know(&c, cases[i].est_ns);
		for (unsigned n = 1; n < cases[i].launches; n++) {
			assert_int_equal(launch(&c, 10), 0);
			assert_int_equal(c.q->unmarked_ns, n * cases[i].est_ns);
		}
		assert_int_equal(launch(&c, 10), 1);
		assert_int_equal(c.q->unmarked_ns, 0);
		finish(&c);
	}
}

/* The distance doubles with each eight markers that are not reached. */
static void markers_become_rare_in_a_deep_queue(void **state)
{
	unsigned launches = 0;
	struct clocked c;

	init(&c);
	clocked_know(&c, 50000);
	for (unsigned marker = 0; marker < 32; marker++) {
		for (unsigned n = 1u << marker / 8; n; n--, launches++) {
			assert_int_equal(launch(&c, 10), n == 1);
		}
	}
	assert_int_equal(launches, 8 + 16 + 32 + 64);
	finish(&c);
}

static void some_launches_get_no_marker(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 1 * SECOND);
	c.l.may_hold = false;
	assert_int_equal(launch(&c, 10), 0);
	c.l.may_hold = true;
	c.r.dir.version[0] = 0;
	assert_int_equal(launch(&c, 10), 0);
	c.r.dir.version[0] = 2;
	assert_int_equal(launch(&c, 10), 1);
	c.l.kernel = NULL; /* nothing is ever known of it */
	c.l.kind = GBPF_KIND_GRAPH;
	assert_int_equal(launch(&c, 10), 0);
	finish(&c);
}

static void sixty_four_markers_fit(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 0);
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(launch(&c, 10), 1);
	}
	assert_int_equal(launch(&c, 10), 0);
	sched_estimate_of(c.r.s, &c.l)->left = 0; /* a sample is due, but has no place */
	assert_int_equal(launch(&c, 10), 0);
	assert_int_equal(fake_live_markers, 64);
	c.q->unmarked_ns = 1;
	sched_mark_end(c.q);
	assert_int_equal(fake_live_markers, 64);
	assert_int_equal(sched_inflight(c.r.s), 66);
	fake_finish(&c.fq);
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(maps.tenant[COUNT], 64); /* the rest has no marker yet */
	assert_int_equal(maps.tenant[CALLS], 1);
	assert_int_equal(sched_inflight(c.r.s), 2);
	sched_mark_end(c.q); /* ... until one is placed behind them */
	assert_int_equal(c.q->unmarked_ns, 0);
	sched_mark_end(c.q);
	assert_int_equal(fake_live_markers, 1);
	fake_finish(&c.fq);
	assert_true(sched_retire_reached(c.q));
	assert_false(sched_retire_reached(c.q));
	assert_int_equal(maps.tenant[COUNT], 66);
	finish(&c);
}

/* Times are not free for the stream (gpu.c). */
static void only_the_markers_of_a_sample_have_times(void **state)
{
	struct clocked c;

	init(&c);
	fake_live_timed = 0;
	clocked_know(&c, 1 * MS);
	assert_int_equal(launch(&c, 10), 1);
	c.q->unmarked_ns = 1;
	sched_mark_end(c.q);
	assert_int_equal(fake_live_markers, 2);
	assert_int_equal(fake_live_timed, 0);
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	assert_int_equal(launch(&c, 10), 2);
	assert_int_equal(fake_live_markers, 4);
	assert_int_equal(fake_live_timed, 2);
	finish(&c);
}

/* ---- without markers ---- */

static void an_idle_queue_retires_what_has_no_marker(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 1600);
	(void)launch(&c, 5);
	(void)launch(&c, 5);
	clocked_now += 1 * MS;
	assert_int_equal(sched_inflight_step(c.r.s, clocked_now), 5 * MS);
	assert_int_equal(maps.tenant[COUNT], 0);
	fake_finish(&c.fq);
	clocked_now += 1 * MS - 1; /* idle queues are looked at once a millisecond */
	assert_int_equal(sched_inflight_step(c.r.s, clocked_now), 5 * MS);
	assert_int_equal(maps.tenant[COUNT], 0);
	clocked_now += 1;
	assert_int_equal(sched_inflight_step(c.r.s, clocked_now), 5 * MS); /* more may come */
	assert_int_equal(maps.tenant[COUNT], 2);
	assert_int_equal(maps.tenant[NS], 3200);
	assert_int_equal(sched_inflight_step(c.r.s, clocked_now + 50 * MS - 1), 5 * MS);
	assert_int_equal(sched_inflight_step(c.r.s, clocked_now + 50 * MS), UINT64_MAX);
	finish(&c);
}

/* A queue that does not say whether it is idle counts as idle after 20 ms without a launch. */
static void a_mute_queue_is_waited_for(void **state)
{
	uint64_t since;
	struct clocked c;

	init(&c);
	clocked_know(&c, 1600);
	c.fq.mute = 1;
	(void)launch(&c, 5);
	clocked_now += 5 * MS;
	since = clocked_now;
	(void)sched_inflight_step(c.r.s, since);
	(void)sched_inflight_step(c.r.s, since + 20 * MS);
	assert_int_equal(maps.tenant[COUNT], 0);
	(void)launch(&c, 5); /* begins again */
	(void)sched_inflight_step(c.r.s, since + 20 * MS + 1 * MS);
	(void)sched_inflight_step(c.r.s, since + 41 * MS);
	assert_int_equal(maps.tenant[COUNT], 0);
	c.fq.mute = 0;
	(void)sched_inflight_step(c.r.s, since + 42 * MS); /* it says that it is busy */
	assert_int_equal(c.q->idle.quiet_since_ns, 0);
	c.fq.mute = 1;
	(void)sched_inflight_step(c.r.s, since + 43 * MS);
	(void)sched_inflight_step(c.r.s, since + 63 * MS);
	assert_int_equal(maps.tenant[COUNT], 0);
	(void)sched_inflight_step(c.r.s, since + 64 * MS);
	assert_int_equal(maps.tenant[COUNT], 2);
	finish(&c);
}

/* While a launch is inside the driver, others see the queue idle and retire it; then the driver
 * refuses it. Less than nothing is in flight, which policies see as nothing; the next look or
 * marker mends it. */
static void a_launch_that_is_retired_and_refused_leaves_nothing(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t count;
		struct clocked c;

		init(&c);
		clocked_know(&c, 5 * MS);
		assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
		assert_true(sched_retire_idle(c.q, sched_tally_sum(&c.q->total), 0));
		count = maps.tenant[COUNT];
		ticket_end(false);
		assert_true(SCHED_ACC_BELOW_0(sched_tally_sum(&c.r.s->gpu[0].inflight)));
		assert_int_equal(sched_inflight(c.r.s), 0);
		sched_stats_publish(c.r.s, clocked_now);
		assert_int_equal(c.r.stats.inflight | c.r.stats.gpu[0].inflight_ns, 0);
		/* what another thread saw before says nothing */
		assert_false(sched_retire_idle(c.q, sched_tally_sum(&c.q->total) - 1, 0));
		if (i) {
			c.q->unmarked_ns = 1;
			sched_mark_end(c.q);
			fake_finish(&c.fq);
			assert_true(sched_retire_reached(c.q));
		} else {
			assert_true(sched_retire_idle(c.q, sched_tally_sum(&c.q->total), 0));
		}
		assert_int_equal(sched_tally_sum(&c.r.s->gpu[0].inflight), 0);
		assert_int_equal(c.q->marks.retired, sched_tally_sum(&c.q->total));
		assert_int_equal(maps.tenant[COUNT], count);
		finish(&c);
	}
}

/* ---- waking the agent, and the kinds of work ---- */

static void launches_wake_an_agent_that_sleeps_too_deep(void **state)
{
	static const struct {
		uint32_t class_id, asleep;
		unsigned wakes;
	} cases[] = {
		{ GBPF_CLASS_BATCH, SCHED_AGENT_ASLEEP, 1 },
		{ GBPF_CLASS_BATCH, SCHED_AGENT_SLOW, 0 },
		{ GBPF_CLASS_BATCH, SCHED_AGENT_AWAKE, 0 },
		{ GBPF_CLASS_LATENCY, SCHED_AGENT_ASLEEP, 1 },
		{ GBPF_CLASS_LATENCY, SCHED_AGENT_SLOW, 1 },
		{ GBPF_CLASS_LATENCY, SCHED_AGENT_NEAR, 1 },
		{ GBPF_CLASS_LATENCY, SCHED_AGENT_AWAKE, 0 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		c.q->class_id = cases[i].class_id;
		c.r.s->agent.asleep = cases[i].asleep;
		c.r.wakes = 0;
		(void)launch(&c, 5);
		assert_int_equal(c.r.wakes, cases[i].wakes);
		assert_int_equal(c.r.s->agent.asleep,
				 cases[i].wakes ? SCHED_AGENT_AWAKE : cases[i].asleep);
		/* a request that the agent has seen needs no wake but from the deepest sleep */
		c.r.s->req[0].looked_ns = c.r.s->req[0].opened_ns;
		c.r.s->agent.asleep = SCHED_AGENT_NEAR;
		(void)launch(&c, 5);
		assert_int_equal(c.r.wakes, cases[i].wakes);
		sched_tally_set(&c.q->left, c.q->entered);
		finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_marker_follows_an_amount_of_estimated_work),
		cmocka_unit_test(markers_become_rare_in_a_deep_queue),
		cmocka_unit_test(some_launches_get_no_marker),
		cmocka_unit_test(sixty_four_markers_fit),
		cmocka_unit_test(only_the_markers_of_a_sample_have_times),
		cmocka_unit_test(an_idle_queue_retires_what_has_no_marker),
		cmocka_unit_test(a_mute_queue_is_waited_for),
		cmocka_unit_test(a_launch_that_is_retired_and_refused_leaves_nothing),
		cmocka_unit_test(launches_wake_an_agent_that_sleeps_too_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
