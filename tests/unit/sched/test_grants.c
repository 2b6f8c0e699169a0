/* Launches that go by grant: which may, what they leave out, and that the accounts, the policy and
 * the statistics get all of them in the end. */
#include "grants.h"

static void begin(int n)
{
	grants_begin(GBPF_CLASS_BATCH, n);
}

static void finish(void)
{
	grants_finish();
}

static void a_grant_saves_that_many_calls(void **state)
{
	begin(5);
	for (unsigned i = 0; i < 4; i++) {
		launches(6);
		assert_int_equal(calls(), i + 1);
		assert_int_equal(maps.tenant[1], i ? 5 : 0);
		assert_int_equal(maps.tenant[2], i ? 5 * EST : 0);
	}
	finish();
	begin(0);
	launches(7);
	assert_int_equal(calls(), 7);
	finish();
	(void)state;
}

static void a_grant_is_limited_to_64(void **state)
{
	begin(1000);
	launches(650);
	assert_int_equal(calls(), 10);
	assert_int_equal(maps.tenant[1], 64);
	finish();
	(void)state;
}

/* Kernels are measured as often as without grants, each size of their grids by itself. */
static void a_launch_to_be_measured_is_asked_about(void **state)
{
	struct sched_estimate *e;

	for (int n = 0; n <= 64; n += 64) {
		begin(n);
		e = sched_estimate_of(c.r.s, &c.l);
		e->left = 20;
		e->interval = 256;
		launches(20);
		assert_int_equal(e->left, 0);
		assert_int_equal(fake_live_markers, 0);
		launch(true);
		assert_true(fake_live_markers > 0);
		assert_int_equal(maps.tenant[1], n ? 19 : 0);
		assert_int_equal(e->left, 255);
		finish();
	}
	(void)state;
}

static void accounts_get_all_with_the_next_call(void **state)
{
	begin(5);
	launches(6);
	assert_int_equal(sched_tally_sum(&c.q->total), SCHED_ACC(1, EST));
	assert_int_equal(c.q->grant.n, 5);
	launch(true);
	assert_int_equal(c.q->grant.n, 0);
	assert_int_equal(SCHED_ACC_COUNT(sched_tally_sum(&c.q->total)), 7);
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(c.r.s)), 7);
	assert_in_range(maps.tenant[3], 6 * EST - 96, 6 * EST); /* in units of 16 ns */
	assert_int_equal(sched_tally_sum(&c.q->threads), 7 * c.l.blocks * c.l.threads);
	assert_int_equal(c.k->count, 8);
	finish();
	(void)state;
}

static void ends(struct sched_queue *q)
{
	clocked_now += EST;
	fake_finish(q->dev_queue);
	(void)sched_retire_idle(q, sched_tally_sum(&q->total), 0);
}

static void charged(unsigned n) /* estimates are accounted in units of 16 ns */
{
	assert_in_range(c.r.stats.busy_ns, n * (EST - 16), n * EST);
}

/* Another queue begins to work meanwhile, as if the GPU had been idle: they are charged all the
 * same. */
static void they_are_charged_though_they_are_accounted_late(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *other;
	struct sched_launch l;

	begin(5);
	other = sched_queue_open(c.r.s, &fq, 0, 0);
	l = c.l;
	launches(1);
	ends(c.q);
	charged(1);
	launches(5);
	clocked_now += 5 * EST;
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(c.r.s)), 0);
	assert_int_equal(ticket_begin(other, &l), SCHED_GO);
	ticket_end(true);
	ends(other);
	charged(2);
	launches(1);
	ends(c.q);
	charged(8);
	sched_queue_close(other);
	finish();
	(void)state;
}

static void a_refused_launch_leaves_no_account(void **state)
{
	begin(5);
	launch(true);
	launch(false);
	launch(false);
	assert_int_equal(c.q->grant.n, 0);
	assert_int_equal(c.q->grant.ns, 0);
	assert_int_equal(c.q->grant.threads, 0);
	assert_int_equal(c.q->grant.left, 3);
	assert_int_equal(c.k->count, 2);
	finish();
	(void)state;
}

static void statistics_show_them_before_they_are_accounted(void **state)
{
	begin(5);
	launches(3);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 3);
	launches(4);
	sched_stats_publish(c.r.s, clocked_now);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 7);
	assert_int_equal(c.r.stats.submit_calls, calls());
	assert_int_equal(c.r.stats.threads, 7 * c.l.blocks * c.l.threads);
	launches(2);
	fake_finish(&c.fq);
	sched_queue_close(c.q);
	assert_int_equal(c.r.stats.launches, 9);
	finish();
	(void)state;
}

static void a_kernel_that_can_be_stopped_counts_as_such(void **state)
{
	begin(5);
	c.l.block_ok = true;
	c.l.stop = GBPF_STOP_CLONE;
	c.l.blocks = 4;
	c.l.resident = 8;
	clocked_know(&c, EST);
	launch(true);
	c.l.block_ok = false; /* the shim does not find out for one that is granted */
	c.l.resident = 0;
	launches(5);
	assert_int_equal(c.k->count, 7);
	assert_int_equal(c.k->stoppable, 6);
	assert_int_equal(c.k->persistent, 6);
	finish();
	(void)state;
}

static void long_and_unknown_launches_are_asked_about(void **state)
{
	static const struct {
		uint64_t est_ns;
		uint32_t seen;
		bool granted;
	} cases[] = {
		{ 99999, 4, true }, { 100000, 4, false }, { 5000, 3, false }, { 0, 0, false }
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sched_estimate *e;

		begin(5);
		launch(true);
		e = sched_estimate_of(c.r.s, &c.l);
		e->est_ns = cases[i].est_ns;
		e->seen = cases[i].seen;
		assert_int_equal(sched_granted(c.q, &c.l), cases[i].granted);
		launch(true);
		assert_int_equal(calls(), 1 + !cases[i].granted);
		finish();
	}
	(void)state;
}

static void a_change_ends_it(void **state)
{
	begin(5);
	launch(true);
	use(2, 5); /* another version */
	launch(true);
	assert_int_equal(calls(), 1);
	store_release(&c.r.dir.version[0], (uint64_t)3); /* one that is not prepared here yet */
	expect_asked();
	assert_int_equal(c.q->grant.left, 0);
	launches(3);
	assert_int_equal(calls(), 5);
	finish();

	begin(5);
	launch(true);
	sched_set_class(c.r.s, GBPF_CLASS_LATENCY, 100);
	expect_asked();
	assert_true(c.q->grant.opened_ns); /* a new one, of the request that this launch opened */
	finish();

	begin(5);
	launch(true);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 3, 2, &c.r.other),
			 0); /* a latency program */
	expect_asked();
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, 3));
	launches(1);
	assert_int_equal(calls(), 2);
	finish();

	begin(5);
	launch(true);
	c.l.may_hold = false; /* a capture is open */
	expect_asked();
	finish();
	(void)state;
}

/* The shim has been told that the launch goes by grant, but then it does not: what it is ordered
 * behind is deferred, or an unfinished run has come. */
static void never_past_what_is_deferred(void **state)
{
	begin(5);
	launch(true);
	c.l.granted = c.l.behind = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_ASK);
	assert_false(c.l.granted);
	assert_null(policy_reader_self->gate);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	c.l.behind = false;
	launch(true);
	assert_int_equal(c.q->grant.left, 5);
	c.l.granted = true;
	c.q->pending = 1;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_ASK);
	assert_false(c.l.granted);
	assert_null(policy_reader_self->gate);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	c.q->pending = 0;
	assert_int_equal(c.q->grant.left, 0);
	assert_int_equal(c.q->grant.n, 0);
	finish();
	(void)state;
}

/* The newest answer counts: one that does not go at once, or goes at block level, ends the grant.
 */
static void only_a_plain_go_grants(void **state)
{
	static const struct {
		int verdict, level;
	} cases[] = { { GBPF_HOLD, 0 }, { GBPF_DEFER, 0 }, { GBPF_GO, GBPF_LEVEL_BLOCK } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(5);
		launch(true);
		assert_int_equal(c.q->grant.left, 5);
		verdict = cases[i].verdict;
		level = cases[i].level;
		use(2, 5);
		c.l.block_ok = true;
		c.l.stop = GBPF_STOP_CLONE;
		clocked_know(&c, 200000);
		store_relaxed(&c.r.s->limit_ns, UINT64_C(1)); /* a held launch goes at once */
		clock_set_source(NULL);
		launch(true);
		assert_true(calls() >= 1);
		assert_int_equal(c.q->grant.left, 0);
		finish();
	}
	(void)state;
}

/* The policy is told of the granted ones by the first call only. */
static void they_are_told_once(void **state)
{
	struct sched_decision a;

	begin(5);
	launches(6);
	c.q->grant.left = 0;
	c.l.granted = false;
	c.q->pending = 1; /* it is deferred before it is asked about: nothing is accounted */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	assert_int_equal(c.q->grant.n, 5);
	c.q->pending = 0;
	launch(true);
	assert_int_equal(maps.tenant[1], 5);
	sched_decide(c.q, &c.l, clocked_now, 0, 1, &a);
	assert_int_equal(maps.tenant[1], 0);
	assert_int_equal(maps.tenant[2], 0);
	finish();
	(void)state;
}

/* Nobody would look after what the device has. */
static void none_while_the_agent_sleeps(void **state)
{
	begin(5);
	launch(true);
	assert_true(sched_granted(c.q, &c.l));
	store_relaxed(&c.r.s->agent.asleep, SCHED_AGENT_ASLEEP);
	assert_false(sched_granted(c.q, &c.l));
	store_relaxed(&c.r.s->agent.asleep, SCHED_AGENT_AWAKE);
	finish();
	(void)state;
}

/* What the agent may see while launches move from the grant to the accounts. */
static void statistics_never_jump(void **state)
{
	begin(64);
	launches(11);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 11);
	launches(10);
	c.q->grant.n = 0; /* the time is still there */
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 11);
	c.q->grant.n = 20;
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 21);
	clocked_know(&c, 1000 * MS); /* a refused launch that was shown delays nothing */
	c.q->grant.ns = 0;
	launches(1);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 22);
	assert_int_equal(c.r.stats.submit_calls, 2);
	finish();
	(void)state;
}

static void *other_thread(void *arg)
{
	(void)arg;
	c.l.granted = sched_granted(c.q, &c.l);
	assert_false(c.l.granted);
	(void)ticket_begin(c.q, &c.l);
	ticket_end(true);
	return NULL;
}

static void only_the_owner_of_the_accounts_has_one(void **state)
{
	pthread_t thread;

	begin(5);
	launches(3);
	assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(calls(), 2);
	assert_int_equal(maps.tenant[1], 0);
	assert_int_equal(c.q->grant.n, 2);
	assert_int_equal(c.q->grant.left, 3);
	launches(4);
	assert_int_equal(calls(), 3);
	assert_int_equal(maps.tenant[1], 5);
	finish();
	(void)state;
}

static void a_new_queue_has_none(void **state)
{
	begin(5);
	launches(3);
	fake_finish(&c.fq);
	sched_queue_close(c.q);
	c.q = sched_queue_open(c.r.s, &c.fq, 0, 0);
	assert_int_equal(c.q->grant.left | c.q->grant.n, 0);
	assert_int_equal(c.q->grant.ns | c.q->grant.threads, 0);
	launch(true);
	assert_int_equal(calls(), 2);
	assert_int_equal(maps.tenant[1] | maps.tenant[2] | maps.tenant[4], 0);
	finish();
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_grant_saves_that_many_calls),
		cmocka_unit_test(a_grant_is_limited_to_64),
		cmocka_unit_test(a_launch_to_be_measured_is_asked_about),
		cmocka_unit_test(accounts_get_all_with_the_next_call),
		cmocka_unit_test(they_are_charged_though_they_are_accounted_late),
		cmocka_unit_test(a_refused_launch_leaves_no_account),
		cmocka_unit_test(statistics_show_them_before_they_are_accounted),
		cmocka_unit_test(a_kernel_that_can_be_stopped_counts_as_such),
		cmocka_unit_test(long_and_unknown_launches_are_asked_about),
		cmocka_unit_test(a_change_ends_it),
		cmocka_unit_test(never_past_what_is_deferred),
		cmocka_unit_test(only_a_plain_go_grants),
		cmocka_unit_test(they_are_told_once),
		cmocka_unit_test(none_while_the_agent_sleeps),
		cmocka_unit_test(statistics_never_jump),
		cmocka_unit_test(only_the_owner_of_the_accounts_has_one),
		cmocka_unit_test(a_new_queue_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
