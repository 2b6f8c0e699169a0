/* When a deferred launch may go: as the policy says, at its limit, and behind a run. */
#include "calls.h"

/* ---- what the policy says of a deferred launch ---- */

static void a_held_launch_is_asked_about_again_at_its_time(void **state)
{
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(c.q->issue.retry_ns, clocked_now + 500 * US);
	assert_int_equal(c.q->issue.n_asked, 1);
	(void)clocked_step(&c, 500 * US - 1);
	assert_int_equal(c.q->issue.n_asked, 1);
	(void)clocked_step(&c, 1);
	assert_int_equal(c.q->issue.n_asked, 2);
	POLICY_USE(&c.r, 3, hold_while_open);
	other_opens(&c.r);
	c.r.other.beat_ns = clocked_now + SECOND;
	(void)clocked_step(&c, 500 * US);
	assert_int_equal(c.q->issue.n_asked, 3);
	assert_int_equal(c.q->issue.retry_ns, clocked_now + 40 * US); /* HOLD: poll */
	assert_int_equal(done.n, 0);
	clocked_now = c.l.begin_ns + 100 * MS - 1;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 0);
	(void)clocked_step(&c, 1); /* the limit */
	assert_int_equal(clocked_step(&c, 40 * US) > 0, 1);
	assert_int_equal(done.n, 1);
	assert_int_equal(c.r.stats.limit_hits, 1);
	assert_int_equal(c.r.stats.why, PROTO_WHY_LIMIT);
	assert_int_equal(c.r.stats.holds, 1);
	assert_in_range(c.r.stats.held_ns, 100 * MS, 100 * MS + 40 * US);
	assert_int_equal(c.q->issue.n_asked, 0);
	assert_int_equal(c.q->issue.retry_ns, 0);
	assert_true(c.r.s->share.until_ns > clocked_now);
	clocked_finish(&c);
}

/* The reason is that of the last answer that held the launch, not of the one that let it go. */
static void a_deferred_launch_keeps_the_policys_reason(void **state)
{
	static const struct ebpf_insn because[] = {
		I_MOV(2, GBPF_WHY_BUDGET),
		I_STX(EBPF_W, 1, SUBMIT(why), 2),
		I_MOV(0, GBPF_DEFER),
		I_EXIT,
	};
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, because);
	c.fq.eager = 1;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	POLICY_USE(&c.r, 3, hold_while_open); /* lets it go */
	(void)clocked_step(&c, 1 * MS);
	assert_int_equal(done.n, 1);
	assert_int_equal(c.r.stats.holds, 1);
	assert_int_equal(c.r.stats.why, PROTO_WHY_REASON | GBPF_WHY_BUDGET);
	clocked_finish(&c);
}

static uint64_t ready_at_ns;

static bool ready_later(struct sched_call *c)
{
	return clocked_now >= ready_at_ns;
}

/* A thread that drains forces a call that the policy has held for the limit; time in which the call
 * waited for another queue does not count. */
static void only_the_policys_time_counts_for_the_limit(void **state)
{
	struct call *l;
	uint64_t begin;
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	limits_far_away(&c);
	l = make(&c.fq, &c.l, 1);
	l->c.ready = ready_later;
	sched_defer(c.q, &l->c);
	begin = clocked_now;
	ready_at_ns = begin + 150 * MS;
	clock_set_source(ticking);
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	assert_in_range(clocked_now - begin, 250 * MS, 300 * MS);
	assert_int_equal(c.r.stats.limit_hits, 1);
	clock_set_source(clocked_source);
	clocked_finish(&c);
}

/* A program that runs ahead of its GPU: its launches are old when their turn comes. */
static void time_behind_other_launches_does_not_count_for_the_limit(void **state)
{
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	c.l.begin_ns = clocked_now - 200 * MS;
	defer(&c, &c.l, 2);
	for (unsigned n = 0; n < 2; n++) {
		(void)clocked_step(&c, 0);
		(void)clocked_step(&c, 100 * MS - 1);
		assert_int_equal(done.n, n);
		(void)clocked_step(&c, 500 * US);
		assert_int_equal(done.n, n + 1);
	}
	assert_int_equal(c.r.stats.limit_hits, 2);
	clocked_finish(&c);
}

/* submit: DEFER for 2 ms, 20 times */
static const struct ebpf_insn defers_a_while[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(asked)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JGE, 2, 20, 3),
	I_MOV(2, 2000000),
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 2),
	I_MOV(0, GBPF_DEFER),
	I_EXIT,
};

/* The drain waits for longer than the limit, but the policy lets each launch go before it. */
static void a_thread_that_drains_forces_nothing_while_the_policy_lets_launches_go(void **state)
{
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers_a_while);
	c.fq.eager = 1;
	defer(&c, &c.l, 5);
	clock_set_source(ticking);
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	assert_true(clocked_now - c.l.begin_ns >= 200 * MS);
	assert_int_equal(done.n, 5);
	assert_int_equal(c.r.stats.limit_hits, 0);
	clock_set_source(clocked_source);
	clocked_finish(&c);
}

static struct sched_queue *watched;

/* Every 60 ms another thread submits the first launch, which the policy lets go, and the next one
 * is first. */
static uint64_t ticking_and_letting(void)
{
	clocked_now += MS;
	if (clocked_now % (60 * MS) == 0) {
		watched->issue.n_let++;
		watched->issue.held_since_ns = clocked_now;
	}
	return clocked_now;
}

/* ... which may take 10 s in all. */
static void a_thread_that_drains_forces_after_10_s(void **state)
{
	uint64_t begin;
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	limits_far_away(&c);
	watched = c.q;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	begin = clocked_now;
	clock_set_source(ticking_and_letting);
	assert_int_equal(sched_drain(c.r.s, c.q), 0);
	assert_in_range(clocked_now - begin, 9900 * MS, 10500 * MS);
	assert_int_equal(done.n, 1);
	assert_int_equal(c.r.stats.limit_hits, 1);
	clock_set_source(clocked_source);
	clocked_finish(&c);
}

static void a_launch_that_the_policy_lets_go_ends_starvation(void **state)
{
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, hold_while_open);
	c.fq.eager = 1;
	c.r.s->share.until_ns = clocked_now + SECOND;
	defer(&c, NULL, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(c.q->issue.n_let, 0); /* it is no launch */
	done.n = 0;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	assert_int_equal(c.q->issue.n_let, 1);
	assert_int_equal(c.r.stats.holds, 0);
	assert_int_equal(c.q->marks.last_version, 2); /* accounted to the version that let it go */
	assert_true(c.r.s->share.until_ns > 0); /* it was asked about once: nothing was held */
	other_opens(&c.r);
	c.l.begin_ns = clocked_now;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	other_closes(&c.r);
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 2);
	assert_int_equal(c.r.s->share.until_ns, 0);
	assert_int_equal(c.r.stats.limit_hits, 0);
	assert_int_equal(c.r.stats.holds, 1);
	clocked_finish(&c);
}

static void launches_that_must_not_be_held_and_those_of_off_go(void **state)
{
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, defers);
	c.fq.eager = 1;
	c.l.may_hold = false;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	c.l.may_hold = true;
	defer(&c, &c.l, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	sched_set_off(c.r.s, true);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 2);
	assert_int_equal(c.r.stats.limit_hits, 0);
	assert_true(sched_idle(c.r.s));
	clocked_finish(&c);
}

/* ---- behind a run ---- */

static void only_calls_that_join_pass_an_unfinished_run(void **state)
{
	struct call *joining;
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	run_device_begin(&c);
	joining = make(&c.fq, NULL, 7);
	joining->c.joins_run = true;
	sched_defer(c.q, &joining->c);
	defer(&c, NULL, 1);
	run_device.progress.full = true;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 0);
	run_device.progress.full = false;
	c.q->run.draining = 1;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 0);
	c.q->run.draining = 0;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	assert_int_equal(done.tag[0], 7);
	assert_true(sched_queue_deferred(c.q));
	run_device.busy = 0;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 2);
	assert_false(sched_queue_deferred(c.q));
	clocked_finish(&c);
}

static const struct ebpf_insn at_block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

static void a_deferred_launch_joins_the_run_or_waits_for_its_end(void **state)
{
	struct call *l;
	struct clocked c;

	init(&c);
	POLICY_USE(&c.r, 2, at_block_level);
	c.fq.eager = 1;
	run_device_begin(&c);
	c.l.block_ok = true;
	l = make(&c.fq, &c.l, 1);
	l->c.joins_run = true;
	sched_defer(c.q, &l->c);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	assert_int_equal(c.r.stats.block_launches, 1);
	POLICY_USE(&c.r, 3, run_device_go); /* not at block level: behind the run */
	l = make(&c.fq, &c.l, 2);
	l->c.joins_run = true;
	sched_defer(c.q, &l->c);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 1);
	assert_true(c.q->issue.next_is_plain);
	assert_int_equal(c.q->issue.held_since_ns, 0);
	assert_int_equal(c.q->issue.n_asked, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(c.q->issue.n_asked, 1); /* its answer is known */
	run_device.busy = 0;
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 2);
	assert_false(c.q->issue.next_is_plain);
	assert_int_equal(c.q->pending, 0);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_held_launch_is_asked_about_again_at_its_time),
		cmocka_unit_test(a_deferred_launch_keeps_the_policys_reason),
		cmocka_unit_test(only_the_policys_time_counts_for_the_limit),
		cmocka_unit_test(time_behind_other_launches_does_not_count_for_the_limit),
		cmocka_unit_test(
			a_thread_that_drains_forces_nothing_while_the_policy_lets_launches_go),
		cmocka_unit_test(a_thread_that_drains_forces_after_10_s),
		cmocka_unit_test(a_launch_that_the_policy_lets_go_ends_starvation),
		cmocka_unit_test(launches_that_must_not_be_held_and_those_of_off_go),
		cmocka_unit_test(only_calls_that_join_pass_an_unfinished_run),
		cmocka_unit_test(a_deferred_launch_joins_the_run_or_waits_for_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
