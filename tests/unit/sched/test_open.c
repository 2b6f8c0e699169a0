/* An open request, look by look: how often it is looked at, when the device is asked, the exact
 * moment of its close, its timeouts, and the close delay that is learned from its pauses. */
#include "clocked.h"

static unsigned asked; /* how often the device was asked whether a queue is idle */

static int count_asks(void *dev, void *dev_queue)
{
	asked++;
	return fake_ops.queue_idle(dev, dev_queue);
}

static void init(struct clocked *c)
{
	clocked_init(c, GBPF_CLASS_LATENCY);
	c->ops.queue_idle = count_asks;
	asked = 0;
}

static void open_now(struct clocked *c)
{
	assert_int_equal(go(c->q, &c->fq, &c->l), SCHED_GO);
	assert_int_equal(c->r.own.gpu[0].open, 1);
}

static uint64_t look(struct clocked *c, uint64_t later_ns)
{
	clocked_now += later_ns;
	return sched_requests_step(c->r.s, clocked_now);
}

static bool is_open(const struct clocked *c)
{
	assert_int_equal(c->r.own.gpu[0].open, c->r.s->req[0].open == SCHED_REQUEST_OPEN);
	return c->r.own.gpu[0].open;
}

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
		struct clocked c;

		init(&c);
		open_now(&c);
		clocked_now += 30 * US;
		fake_finish(&c.fq);
		(void)look(&c, 0);
		c.q->idle.close_delay_ns = i == 1 ? 100 * US : 100 * US - 1;
		ticks_until_launch = i == 2 ? 20 : 0;
		launches_on = c.q;
		clock_set_source(ticking);
		(void)look(&c, 1);
		assert_int_equal(is_open(&c), i != 0);
		clock_set_source(clocked_source);
		c.q->entered = c.q->left;
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

/* ---- timeouts ---- */

static void a_request_without_progress_times_out_after_a_second(void **state)
{
	struct clocked c;

	init(&c);
	open_now(&c);
	(void)look(&c, 0);
	for (unsigned i = 0; i < 10; i++) {
		assert_true(look(&c, 100 * MS) <= 1 * MS);
	}
	assert_true(is_open(&c)); /* exactly a second */
	assert_int_equal(look(&c, 1), 1 * MS);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_TIMED_OUT);
	assert_int_equal(c.r.own.gpu[0].open, 0);
	assert_int_equal(c.r.own.gpu[0].seq, 1);
	assert_int_equal(c.r.stats.requests_cut, 1);
	assert_int_equal(c.r.stats.requests, 0);
	assert_int_equal(c.r.notes, 1);
	c.r.own.gpu[0].open = 1; /* a thread that was about to open the board */
	assert_int_equal(look(&c, 1 * MS), 1 * MS);
	assert_int_equal(c.r.own.gpu[0].open, 0);
	assert_int_equal(c.r.own.gpu[0].seq, 2);
	(void)look(&c, 1 * MS);
	assert_int_equal(c.r.own.gpu[0].seq, 2);
	fake_finish(&c.fq);
	assert_int_equal(look(&c, 1 * MS), UINT64_MAX); /* drained: no close delay */
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_CLOSED);
	assert_int_equal(c.r.stats.requests, 1);
	assert_int_equal(c.r.stats.requests_cut, 1);
	clocked_finish(&c);
}

static void progress_puts_the_timeout_off(void **state)
{
	struct clocked c;

	init(&c);
	open_now(&c);
	(void)look(&c, 0);
	for (unsigned i = 0; i < 9; i++) {
		(void)look(&c, 100 * MS);
	}
	(void)go(c.q, &c.fq, &c.l);
	for (unsigned i = 0; i < 11; i++) {
		(void)look(&c, 100 * MS);
		assert_true(is_open(&c));
	}
	(void)look(&c, 1);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_TIMED_OUT);
	clocked_finish(&c);
}

/* Only 100 ms count between two looks: the thread may have had no processor. */
static void late_looks_count_as_100_ms(void **state)
{
	struct clocked c;

	init(&c);
	open_now(&c);
	(void)look(&c, 0);
	for (unsigned i = 0; i < 10; i++) {
		(void)look(&c, 500 * MS);
		assert_true(is_open(&c));
	}
	(void)look(&c, 1 * MS);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_TIMED_OUT);
	clocked_finish(&c);
}

static void a_request_is_open_for_ten_seconds_at_most(void **state)
{
	uint64_t opened;
	struct clocked c;

	init(&c);
	open_now(&c);
	opened = clocked_now;
	while (clocked_now + 50 * MS <= opened + 10 * SECOND) {
		clocked_now += 50 * MS;
		(void)go(c.q, &c.fq, &c.l);
		(void)look(&c, 0);
	}
	assert_int_equal(clocked_now, opened + 10 * SECOND);
	assert_true(is_open(&c));
	(void)go(c.q, &c.fq, &c.l);
	assert_int_equal(look(&c, 1), 1 * MS);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_TIMED_OUT);
	clocked_finish(&c);
}

/* ---- the turn of looking ---- */

static void the_turn_of_a_thread_that_left_is_taken_after_a_second(void **state)
{
	uint64_t since;
	struct clocked c;

	init(&c);
	open_now(&c);
	fake_finish(&c.fq);
	c.r.s->req[0].close.turn = 7; /* odd: taken */
	assert_int_equal(look(&c, 0), 40 * US);
	since = clocked_now;
	assert_int_equal(c.r.own.beat_ns, clocked_now);
	assert_int_equal(look(&c, SECOND - 1), 40 * US);
	assert_int_equal(asked, 0);
	c.r.s->req[0].close.turn = 9; /* another one: begins again */
	assert_int_equal(look(&c, 1), 40 * US);
	since = clocked_now;
	(void)look(&c, SECOND - 1);
	assert_int_equal(asked, 0);
	(void)look(&c, 1);
	assert_int_equal(clocked_now, since + SECOND);
	assert_int_equal(asked, 1);
	assert_int_equal(c.r.s->req[0].close.turn, 12); /* taken over, and given */
	clocked_finish(&c);
}

static void an_opening_is_unseen_until_the_agent_looks(void **state)
{
	struct sched_queue *q;
	struct fake_queue fq = { 0 };
	struct clocked c;

	init(&c);
	assert_false(sched_requests_unseen(c.r.s));
	q = sched_queue_open(c.r.s, &fq, PROTO_MAX_GPUS - 1, 0);
	(void)go(q, &fq, &c.l);
	assert_true(sched_requests_unseen(c.r.s));
	assert_true(sched_request_unseen(c.r.s, PROTO_MAX_GPUS - 1));
	assert_false(sched_request_unseen(c.r.s, 0));
	(void)look(&c, 0);
	assert_false(sched_requests_unseen(c.r.s));
	c.r.s->req[15].opened_ns++;
	assert_true(sched_requests_unseen(c.r.s));
	c.r.s->req[15].open = SCHED_REQUEST_TIMED_OUT;
	assert_false(sched_requests_unseen(c.r.s));
	c.r.s->req[15].open = SCHED_REQUEST_OPEN;
	clocked_finish(&c);
}

static void a_gpu_that_gbpfd_does_not_know_has_no_board(void **state)
{
	struct clocked c;

	init(&c);
	c.r.s->policy.gpu[0].index = PROTO_MAX_GPUS;
	assert_null(sched_own_board(c.r.s, 0));
	assert_ptr_equal(sched_own_board(c.r.s, 1), &c.r.own.gpu[1]);
	(void)go(c.q, &c.fq, &c.l);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_OPEN);
	fake_finish(&c.fq);
	(void)look(&c, 0);
	(void)look(&c, 200 * US);
	assert_int_equal(c.r.s->req[0].open, SCHED_REQUEST_CLOSED);
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		assert_int_equal(c.r.own.gpu[g].seq, 0);
	}
	clocked_finish(&c);
}

/* ---- pauses ---- */

/* A pause of that length between two launches. */
static void pause_of(struct clocked *c, uint64_t ns)
{
	(void)go(c->q, &c->fq, &c->l);
	fake_finish(&c->fq);
	sched_synced(c->r.s, c->q);
	clocked_now += ns;
}

static uint64_t learned(uint32_t lane, uint64_t pause_ns)
{
	uint64_t gap;
	struct clocked c;

	init(&c);
	sched_set_lane(c.r.s, lane);
	for (unsigned i = 0; i < 4; i++) {
		pause_of(&c, pause_ns);
		assert_int_equal(c.r.s->req[0].gap_ns, 0); /* four are needed */
	}
	pause_of(&c, pause_ns);
	gap = c.r.s->req[0].gap_ns;
	clocked_finish(&c);
	return gap;
}

/* Waiting must cost less than a request that is closed too early: 600 us where contexts are
 * switched, 100 us where they share the GPU. */
static void the_close_delay_is_learned_from_pauses(void **state)
{
	assert_int_equal(learned(GBPF_LANE_PROCESS, 400 * US), 453 * US);
	assert_int_equal(learned(GBPF_LANE_PROCESS, 600 * US), 0);
	assert_int_equal(learned(GBPF_LANE_SHARED, 70 * US), 80 * US);
	assert_int_equal(learned(GBPF_LANE_SHARED, 110 * US), 0);
}

static void the_close_delay_is_sought_again_every_eighth_pause(void **state)
{
	struct clocked c;

	init(&c);
	sched_set_lane(c.r.s, GBPF_LANE_PROCESS);
	for (unsigned i = 0; i < 5; i++) {
		pause_of(&c, i < 4 ? 10 * US : 300 * US);
	}
	assert_int_equal(c.r.s->req[0].gap_ns, 10 * US);
	for (unsigned i = 0; i < 3; i++) {
		pause_of(&c, 300 * US);
		assert_int_equal(c.r.s->req[0].gap_ns, 10 * US);
	}
	pause_of(&c, 300 * US); /* the eighth is over */
	assert_int_equal(c.r.s->req[0].gap_ns, 320 * US);
	clocked_finish(&c);
}

static void a_pause_begins_at_its_first_report(void **state)
{
	struct clocked c;

	init(&c);
	sched_request_idle(&c.r.s->req[0], 500);
	sched_request_idle(&c.r.s->req[0], 600);
	assert_int_equal(c.r.s->req[0].idle_ns, 500);
	sched_request_gap(c.r.s, 0, 500 + 10 * US);
	assert_int_equal(c.r.s->req[0].idle_ns, 0);
	assert_int_equal(c.r.s->req[0].gaps.total, 1);
	sched_request_gap(c.r.s, 0, 500 + 20 * US); /* no pause */
	assert_int_equal(c.r.s->req[0].gaps.total, 1);
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
		cmocka_unit_test(a_request_without_progress_times_out_after_a_second),
		cmocka_unit_test(progress_puts_the_timeout_off),
		cmocka_unit_test(late_looks_count_as_100_ms),
		cmocka_unit_test(a_request_is_open_for_ten_seconds_at_most),
		cmocka_unit_test(the_turn_of_a_thread_that_left_is_taken_after_a_second),
		cmocka_unit_test(an_opening_is_unseen_until_the_agent_looks),
		cmocka_unit_test(a_gpu_that_gbpfd_does_not_know_has_no_board),
		cmocka_unit_test(the_close_delay_is_learned_from_pauses),
		cmocka_unit_test(the_close_delay_is_sought_again_every_eighth_pause),
		cmocka_unit_test(a_pause_begins_at_its_first_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
