/* An open request, look by look: how often it is looked at, when the device is asked, the exact
 * moment of its close. */
#include "open_rig.h"

/* A request that ends after that time, with a synchronization or without. */
static void request(struct clocked *c, uint64_t ns, bool sync)
{
	open_now(c);
	(void)look(c, 0);
	clocked_now += ns;
	fake_finish(&c->fq);
	if (sync) {
		sched_synced(c->r.s, c->q);
	}
	while (is_open(c)) {
		(void)look(c, 10 * US);
	}
}

/* ---- how often ---- */

static void looks_become_rare_as_a_request_lasts(void **state)
{
	static const uint64_t cases[][2] = {
		{ 0, 40 * US },		 { 2560 * US, 40 * US },   { 2560 * US + 64, 40 * US + 1 },
		{ 6400 * US, 100 * US }, { 64 * MS - 64, 999999 }, { 64 * MS, 1 * MS },
		{ 640 * MS, 1 * MS },
	};
	struct clocked c;
	uint64_t opened;

	init(&c);
	open_now(&c);
	opened = clocked_now;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(look(&c, opened + cases[i][0] - clocked_now), cases[i][1]);
	}
	clocked_finish(&c);
}

static void a_short_close_delay_makes_looks_frequent(void **state)
{
	static const uint64_t cases[][2] = {
		{ 0, 10 * US },	      { 5 * US, 10 * US },  { 20 * US, 20 * US },
		{ 40 * US, 40 * US }, { 41 * US, 40 * US }, { 10 * MS, 40 * US },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		open_now(&c);
		c.q->idle.close_delay_ns = cases[i][0];
		assert_int_equal(look(&c, 1), cases[i][1]);
		assert_int_equal(c.r.s->req[0].close.at_once, cases[i][0] == 0);
		clocked_finish(&c);
	}
}

/* After eight requests none is looked at before three quarters of the shortest of them. */
static void looks_begin_where_a_request_may_end(void **state)
{
	struct clocked c;

	init(&c);
	for (unsigned i = 0; i < 7; i++) {
		request(&c, 400 * US, false);
		assert_int_equal(c.r.s->req[0].close.shortest_ns, 0);
	}
	open_now(&c);
	assert_int_equal(look(&c, 0), 40 * US); /* seven are not enough */
	clocked_now += 200 * US;
	fake_finish(&c.fq);
	while (is_open(&c)) {
		(void)look(&c, 1 * US);
	}
	assert_in_range(c.r.s->req[0].close.shortest_ns, 200 * US, 202 * US);
	for (unsigned i = 0; i < 7; i++) {
		request(&c, 400 * US, false);
	}
	assert_in_range(c.r.s->req[0].close.shortest_ns, 200 * US, 202 * US);
	request(&c, 400 * US, false); /* the short one is forgotten */
	c.r.s->req[0].close.shortest_ns = 400 * US;
	open_now(&c);
	assert_int_equal(look(&c, 0), 300 * US);
	assert_int_equal(look(&c, 100 * US), 200 * US);
	assert_int_equal(look(&c, 150 * US), 50 * US);
	assert_int_equal(look(&c, 20 * US), 40 * US);
	c.r.s->req[0].close.shortest_ns = 40 * MS;
	assert_int_equal(look(&c, 1 * MS), 5 * MS); /* leases have to be renewed */
	assert_int_equal(c.r.stats.requests, 16);
	clocked_finish(&c);
}

static void requests_that_end_with_synchronizations_are_looked_at_seldom(void **state)
{
	static const uint64_t cases[][2] = {
		{ 0, 10 * US },		{ 19 * US, 10 * US },	{ 100 * US, 50 * US },
		{ 200 * US, 100 * US }, { 400 * US, 200 * US }, { 10 * MS, 200 * US },
	};
	struct clocked c;

	init(&c);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(c.r.s->req[0].close.by_sync, i);
		request(&c, 100 * US, true);
	}
	request(&c, 100 * US, true);
	assert_int_equal(c.r.s->req[0].close.by_sync, 4); /* enough */
	open_now(&c);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		c.q->idle.close_delay_ns = cases[i][0];
		assert_int_equal(look(&c, 1), cases[i][1]);
	}
	clocked_now += 100 * US;
	fake_finish(&c.fq);
	while (is_open(&c)) {
		(void)look(&c, 100 * US);
	}
	assert_int_equal(c.r.s->req[0].close.by_sync, 0); /* one without */
	clocked_finish(&c);
}

/* ---- when the device is asked ---- */

static void the_device_is_asked_every_40_us_at_most(void **state)
{
	struct clocked c;

	init(&c);
	open_now(&c);
	c.q->idle.close_delay_ns = 20 * US;
	(void)look(&c, 0);
	asked = 0;
	c.r.s->req[0].close.asked_ns = clocked_now;
	(void)look(&c, 20 * US);
	(void)look(&c, 20 * US - 1);
	assert_int_equal(asked, 0);
	(void)look(&c, 1);
	assert_int_equal(asked, 1);
	assert_int_equal(c.r.s->req[0].close.asked_ns, clocked_now);
	c.q->idle.close_delay_ns = 40 * US; /* looks are rare anyhow */
	(void)look(&c, 40 * US);
	asked = 0;
	(void)look(&c, 1);
	(void)look(&c, 1);
	assert_int_equal(asked, 2);
	clocked_finish(&c);
}

static void the_device_is_asked_every_200_us_where_synchronizations_tell(void **state)
{
	struct clocked c;

	init(&c);
	c.r.s->req[0].close.by_sync = 4;
	open_now(&c);
	(void)look(&c, 100 * US);
	(void)look(&c, 100 * US - 1);
	assert_int_equal(asked, 0);
	(void)look(&c, 1);
	assert_int_equal(asked, 1);
	(void)look(&c, 200 * US - 1);
	assert_int_equal(asked, 1);
	(void)look(&c, 1);
	assert_int_equal(asked, 2);
	clocked_finish(&c);
}

/* ---- the close ---- */

static void it_closes_when_the_delay_is_over_and_not_before(void **state)
{
	static const uint64_t delays[] = { 100 * US, 200 * US, 10 * MS };

	for (unsigned i = 0; i < ARRAY_SIZE(delays); i++) {
		uint64_t drained;
		struct clocked c;

		init(&c);
		open_now(&c);
		clocked_now += 30 * US;
		fake_finish(&c.fq);
		(void)look(&c, 0); /* retires: the delay is the default until then */
		drained = clocked_now;
		c.q->idle.close_delay_ns = delays[i];
		assert_int_equal(look(&c, 10 * US), 40 * US);
		assert_int_equal(c.r.s->req[0].idle_ns, drained);
		assert_int_equal(look(&c, drained + delays[i] - 7 - clocked_now), 7);
		assert_int_equal(look(&c, 6), 1);
		assert_true(is_open(&c));
		assert_int_equal(look(&c, 1), UINT64_MAX);
		assert_false(is_open(&c));
		assert_int_equal(c.r.own.gpu[0].last_end_ns, clocked_now);
		assert_int_equal(c.r.own.gpu[0].seq, 1);
		assert_int_equal(c.r.stats.requests, 1);
		assert_int_equal(c.r.stats.request_ns, 30 * US);
		assert_int_equal(c.r.s->req[0].close.asked_ns, 0);
		clocked_finish(&c);
	}
}

static unsigned ticks_until_launch;
static struct sched_queue *launches_on;

static uint64_t ticking(void)
{
	if (ticks_until_launch && !--ticks_until_launch) {
		launches_on->entered++; /* a launch begins */
	}
	return clocked_now += 1 * US;
}

/* A delay below 100 us is over before a sleeping thread would be back: the agent spins. */
static void the_agent_spins_through_a_short_delay(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		uint64_t drained;
		struct clocked c;

		init(&c);
		open_now(&c);
		clocked_now += 30 * US;
		fake_finish(&c.fq);
		(void)look(&c, 0);
		c.q->idle.close_delay_ns = i == 1 ? 100 * US : 99 * US;
		ticks_until_launch = i == 2 ? 20 : 0;
		launches_on = c.q;
		clock_set_source(ticking);
		drained = clocked_now;
		(void)look(&c, 10 * US);
		assert_int_equal(is_open(&c), i != 0);
		if (i == 0) {
			assert_int_equal(c.r.own.gpu[0].last_end_ns, drained + 99 * US);
		}
		clock_set_source(clocked_source);
		c.q->entered = sched_tally_sum(&c.q->left);
		clocked_finish(&c);
	}
}

/* A synchronization reports that the queue is idle: the device is asked when the delay is over. */
static void soon_idle_queues_are_not_asked(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct clocked c;

		init(&c);
		request(&c, 100 * US, true);
		open_now(&c);
		clocked_now += 50 * US;
		fake_finish(&c.fq);
		sched_synced(c.r.s, c.q);
		asked = 0;
		if (i == 0) {
			assert_int_equal(look(&c, 100 * US), 100 * US);
			assert_int_equal(asked, 0);
			(void)look(&c, 99 * US);
		} else {
			clock_set_source(ticking);
			ticks_until_launch = 0;
			(void)look(&c, 100 * US + 2); /* less than 100 us are left: spins */
			assert_false(is_open(&c));
			assert_int_equal(asked, 1);
			clock_set_source(clocked_source);
		}
		clocked_finish(&c);
	}
}

static void a_close_takes_what_belonged_to_the_request(void **state)
{
	struct clocked c;

	init(&c);
	open_now(&c);
	c.r.s->req[0].deadline_ns = 5;
	c.r.own.gpu[0].deadline_ns = 5;
	c.r.s->req[0].next_ns = clocked_now + SECOND; /* of the next one, which stays */
	c.r.s->req[0].next_deadline_ns = 77;
	fake_finish(&c.fq);
	(void)look(&c, 0);
	(void)look(&c, 200 * US);
	assert_false(is_open(&c));
	assert_int_equal(c.r.s->req[0].deadline_ns, 0);
	assert_int_equal(c.r.own.gpu[0].deadline_ns, 77);
	c.r.s->req[0].next_ns = 0;
	open_now(&c);
	fake_finish(&c.fq);
	(void)look(&c, 0);
	(void)look(&c, 200 * US);
	assert_int_equal(c.r.own.gpu[0].deadline_ns, 0);
	assert_int_equal(c.r.own.gpu[0].seq, 2);
	clocked_finish(&c);
}

static void all_queues_of_the_gpu_count_and_no_others(void **state)
{
	struct fake_queue fb = { 0 }, fc = { 0 };
	struct sched_queue *b, *other;
	struct clocked c;

	init(&c);
	b = sched_queue_open(c.r.s, &fb, 0, 0);
	other = sched_queue_open(c.r.s, &fc, 1, 0);
	open_now(&c);
	(void)go(b, &fb, &c.l);
	(void)go(other, &fc, &c.l);
	assert_int_equal(c.r.own.gpu[1].open, 1);
	fake_finish(&c.fq);
	(void)look(&c, 0);
	(void)look(&c, 1 * MS);
	assert_int_equal(c.r.own.gpu[0].open, 1); /* b is busy */
	fake_finish(&fb);
	(void)look(&c, 0);
	b->idle.close_delay_ns = 300 * US; /* the longest delay counts */
	c.q->idle.close_delay_ns = 50 * US;
	(void)look(&c, 299 * US);
	assert_int_equal(c.r.own.gpu[0].open, 1);
	(void)look(&c, 1 * US);
	assert_int_equal(c.r.own.gpu[0].open, 0);
	assert_int_equal(c.r.own.gpu[1].open, 1);
	/* b takes no part in the next one: its delay is ignored */
	b->idle.close_delay_ns = 9 * MS;
	clocked_now += 1 * MS;
	open_now(&c);
	fake_finish(&c.fq);
	(void)look(&c, 0);
	(void)look(&c, 200 * US);
	assert_int_equal(c.r.own.gpu[0].open, 0);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(looks_become_rare_as_a_request_lasts),
		cmocka_unit_test(a_short_close_delay_makes_looks_frequent),
		cmocka_unit_test(looks_begin_where_a_request_may_end),
		cmocka_unit_test(requests_that_end_with_synchronizations_are_looked_at_seldom),
		cmocka_unit_test(the_device_is_asked_every_40_us_at_most),
		cmocka_unit_test(the_device_is_asked_every_200_us_where_synchronizations_tell),
		cmocka_unit_test(it_closes_when_the_delay_is_over_and_not_before),
		cmocka_unit_test(the_agent_spins_through_a_short_delay),
		cmocka_unit_test(soon_idle_queues_are_not_asked),
		cmocka_unit_test(a_close_takes_what_belonged_to_the_request),
		cmocka_unit_test(all_queues_of_the_gpu_count_and_no_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
