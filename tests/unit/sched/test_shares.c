/* How long a held launch waits: the hold limit, then the minimum share, at their exact edges; what
 * a hold leaves in the statistics; and when the policy is asked again. The clock of the second half
 * moves with every look at it. */
#include "clocked.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIMIT (100 * MS)

static struct sched_launch of(uint64_t est_ns)
{
	struct sched_launch l = kernel_launch(NULL);

	l.est_ns = est_ns;
	return l;
}

static void a_forced_launch_leaves_credit_that_accrues_while_holding(void **state)
{
	struct sched_launch l = of(1 * MS); /* costs 1 ms: 50 ms of waiting at 2 % */
	uint64_t t = 2000 * SECOND;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_share_take(c.r.s, &l, t);
	assert_int_equal(c.r.s->share.credit_ns, 0);
	assert_int_equal(c.r.s->share.last_ns, t);
	/* remembered for ten limits and twice what the launch itself takes to accrue */
	assert_int_equal(c.r.s->share.until_ns, t + 10 * LIMIT + 100 * MS);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t), 50 * MS + 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 20 * MS), 30 * MS + 1);
	assert_int_equal(c.r.s->share.credit_ns, 400 * US);
	/* the same time is not counted twice, nor time before this launch came */
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 20 * MS), 30 * MS + 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t + 30 * MS, t + 30 * MS), 30 * MS + 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t + 30 * MS, t + 60 * MS), 0);
	/* credit is bounded by the launch's cost or that of an unknown one, 2 % of the limit */
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 900 * MS), 0);
	assert_int_equal(c.r.s->share.credit_ns, 2 * MS);
	sched_share_take(c.r.s, &l, t + 900 * MS);
	assert_int_equal(c.r.s->share.credit_ns, 1 * MS);
	assert_int_equal(sched_share_left(c.r.s, &l, t + 900 * MS, t + 900 * MS), 0);
	l.est_ns = 1 * MS + 20; /* a little more than the credit */
	assert_int_equal(sched_share_left(c.r.s, &l, t + 900 * MS, t + 900 * MS), 1001);
	assert_int_equal(c.r.stats.limit_hits, 2);
	assert_int_equal(c.r.notes, 1); /* at most one a second */
	clocked_finish(&c);
}

static void starvation_ends_after_its_time_or_by_a_go(void **state)
{
	struct sched_launch l = of(1 * MS);
	uint64_t t = 2000 * SECOND;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_share_take(c.r.s, &l, t);
	t = c.r.s->share.until_ns;
	assert_true(sched_share_left(c.r.s, &l, t - 1, t - 1) <= 50 * MS + 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t), LIMIT);
	c.r.s->share.credit_ns = 5 * MS;
	sched_share_take(c.r.s, &l, t); /* old credit is lost */
	assert_int_equal(c.r.s->share.credit_ns, 0);
	c.r.s->share.credit_ns = 5 * MS;
	sched_share_take(c.r.s, &l, t + 1); /* paid from the credit of this starvation */
	assert_int_equal(c.r.s->share.credit_ns, 4 * MS);
	sched_share_reset(c.r.s);
	assert_int_equal(c.r.s->share.until_ns, 0);
	assert_int_equal(sched_share_left(c.r.s, &l, t + 2, t + 2), LIMIT);
	clocked_finish(&c);
}

static void no_launch_waits_longer_than_ten_seconds(void **state)
{
	struct sched_launch l = of(60 * SECOND); /* 3000 s at 2 % */
	uint64_t t = 2000 * SECOND;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_share_take(c.r.s, &l, t);
	assert_int_equal(c.r.s->share.until_ns, t + 10 * LIMIT + 20 * SECOND);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t), 10 * SECOND);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 4 * SECOND), 6 * SECOND);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 10 * SECOND - 1), 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 10 * SECOND), 0);
	clocked_finish(&c);
}

static void limits_have_defaults_and_a_share_is_at_most_all(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_int_equal(c.r.s->limit_ns, 100000000);
	assert_int_equal(c.r.s->share_ppm, 20000);
	sched_set_limits(c.r.s, 7, 1000000);
	assert_int_equal(c.r.s->limit_ns, 7);
	assert_int_equal(c.r.s->share_ppm, 1000000);
	sched_set_limits(c.r.s, 0, 1000001);
	assert_int_equal(c.r.s->limit_ns, 100000000);
	assert_int_equal(c.r.s->share_ppm, 1000000);
	sched_set_limits(c.r.s, 1, 0);
	assert_int_equal(c.r.s->share_ppm, 20000);
	clocked_finish(&c);
}

/* The reason is the policy's: nothing is inferred from boards or from work in flight. */
static void the_reason_of_a_hold(void **state)
{
	struct sched_decision a = { .verdict = GBPF_DEFER, .lc_open = 1 };

	assert_int_equal(sched_hold_why(&a), PROTO_WHY_POLICY);
	a.verdict = GBPF_HOLD;
	assert_int_equal(sched_hold_why(&a), PROTO_WHY_POLICY);
	a.why = GBPF_WHY_BUDGET;
	assert_int_equal(sched_hold_why(&a), PROTO_WHY_REASON | GBPF_WHY_BUDGET);
	a.why = UINT32_MAX; /* any number: it never becomes a reason of gBPF's own */
	assert_int_equal(sched_hold_why(&a), PROTO_WHY_REASON | PROTO_WHY_REASONS);
	a.group = true;
	assert_int_equal(sched_hold_why(&a), PROTO_WHY_GROUP);
}

/* A launch that follows one that was forced waits for the minimum share, longer than the limit. */
static void the_reason_of_a_launch_that_the_minimum_share_has_paid_for(void **state)
{
	struct sched_launch l = of(62 * MS);
	uint64_t t = 2000 * SECOND;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_int_equal(sched_share_take(c.r.s, &l, t), PROTO_WHY_LIMIT);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t), 3100 * MS + 1);
	assert_int_equal(sched_share_left(c.r.s, &l, t, t + 3100 * MS + 1), 0);
	assert_int_equal(sched_share_take(c.r.s, &l, t + 3100 * MS + 1), PROTO_WHY_MIN_SHARE);
	assert_int_equal(sched_share_take(c.r.s, &l, c.r.s->share.until_ns), PROTO_WHY_LIMIT);
	sched_share_reset(c.r.s);
	assert_int_equal(sched_share_take(c.r.s, &l, t + 4 * SECOND), PROTO_WHY_LIMIT);
	clocked_finish(&c);
}

static void holds_are_summed_up(void **state)
{
	struct sched_launch none = kernel_launch(NULL);
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_hold_account(c.q, &c.l, PROTO_WHY_LEASE, 500);
	assert_int_equal(c.r.stats.why_kernel, c.k->hash);
	sched_hold_account(c.q, &none, PROTO_WHY_LIMIT, 300);
	assert_int_equal(c.r.stats.holds, 2);
	assert_int_equal(c.r.stats.held_ns, 800);
	assert_int_equal(c.r.stats.max_held_ns, 500);
	assert_int_equal(c.r.stats.why, PROTO_WHY_LIMIT);
	assert_int_equal(c.r.stats.why_kernel, 0);
	sched_hold_account(c.q, &none, PROTO_WHY_LIMIT, 501);
	assert_int_equal(c.r.stats.max_held_ns, 501);
	clocked_finish(&c);
}

/* ---- holding a caller, on a clock that each look at it moves by 100 us ---- */

static uint64_t slept_ns; /* the longest sleep that was asked for */
static bool counts_sleeps;

/* Replaces libc's. */
int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	uint64_t ns = (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec;

	slept_ns = MAX(slept_ns, ns);
	return counts_sleeps ? 0 : (int)syscall(SYS_clock_nanosleep, id, flags, t, left);
}

static uint64_t ticking(void)
{
	return clocked_now += 100 * US;
}

/* submit: tenant[0]++ and tenant[1] = asked, tenant[2] = held_ns; verdict in global[0], its time in
 * global[1] */
static const struct ebpf_insn told[] = {
	I_VALUE(2, 1, 0),	  I_MOV(3, 1),
	I_ATOMIC_ADD(2, 0, 3),	  I_LDX(EBPF_W, 3, 1, SUBMIT(asked)),
	I_STX(EBPF_DW, 2, 8, 3),  I_LDX(EBPF_DW, 3, 1, SUBMIT(held_ns)),
	I_STX(EBPF_DW, 2, 16, 3), I_VALUE(2, 0, 0),
	I_LDX(EBPF_DW, 3, 2, 8),  I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 3),
	I_LDX(EBPF_DW, 0, 2, 0),  I_EXIT,
};

struct asking {
	struct clocked c;
	struct regions m;
};

static void asking_init(struct asking *a, uint64_t verdict, uint64_t hold_ns)
{
	struct prog p = PROG(submit, told);

	clocked_init(&a->c, GBPF_CLASS_BATCH);
	regions_make(&a->m);
	a->m.global[0] = verdict;
	a->m.global[1] = hold_ns;
	assert_int_equal(rig_policy_prepare(&a->c.r, 1, &p, 1, &a->m), 0);
	a->c.r.dir.version[0] = 1;
	a->c.fq.eager = 1;
	a->c.r.s->wait_cap_ns = US; /* real time */
	clock_set_source(ticking);
}

static void asking_finish(struct asking *a)
{
	clocked_finish(&a->c);
	regions_free(&a->m);
}

static void a_held_launch_goes_at_the_limit(void **state)
{
	uint64_t before;
	struct asking a;

	asking_init(&a, GBPF_DEFER, 10 * MS);
	before = clocked_now;
	assert_int_equal(go(a.c.q, &a.c.fq, &a.c.l), SCHED_GO);
	assert_in_range(clocked_now - before, LIMIT, LIMIT + 2 * MS);
	assert_in_range(a.c.l.held_ns, LIMIT, LIMIT + MS);
	assert_int_equal(a.c.r.stats.limit_hits, 1);
	assert_int_equal(a.c.r.stats.holds, 1);
	assert_int_equal(a.c.r.stats.held_ns, a.c.l.held_ns);
	assert_int_equal(a.c.r.stats.why, PROTO_WHY_LIMIT);
	assert_int_equal(a.c.l.version, 1);
	/* asked at once, and about every 10 ms */
	assert_in_range(a.m.tenant[0], 9, 12);
	assert_int_equal(a.m.tenant[1], a.m.tenant[0] - 1);
	assert_int_equal(a.m.tenant[2], a.c.l.held_ns);
	asking_finish(&a);
}

static void a_launch_that_goes_at_once_is_no_hold(void **state)
{
	struct asking a;

	asking_init(&a, GBPF_GO, 0);
	assert_int_equal(go(a.c.q, &a.c.fq, &a.c.l), SCHED_GO);
	assert_int_equal(a.c.r.stats.holds, 0);
	assert_int_equal(a.c.l.held_ns, 0);
	assert_int_equal(a.m.tenant[0], 1);
	assert_int_equal(a.m.tenant[1], 0);
	asking_finish(&a);
}

/* Without a time of its own a DEFER is asked about again after 1 ms. */
static void asked_again_after_a_millisecond_by_default(void **state)
{
	struct asking a;

	asking_init(&a, GBPF_DEFER, 0);
	sched_set_limits(a.c.r.s, 10 * MS, 0);
	assert_int_equal(go(a.c.q, &a.c.fq, &a.c.l), SCHED_GO);
	assert_in_range(a.m.tenant[0], 7, 11);
	asking_finish(&a);
}

/* A launch that is held without a request of others waits for this process's own work, which is
 * looked at every 30 us; without any it is asked about again at its time, or after 2 ms. */
static void own_work_is_looked_at_often(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct asking a;

		asking_init(&a, GBPF_HOLD, 10 * MS);
		a.c.r.s->wait_cap_ns = 2 * MS;
		sched_set_limits(a.c.r.s, 10 * MS, 0);
		if (i) {
			sched_tally_add(&a.c.r.s->gpu[0].inflight, SCHED_ACC(1, 0));
		}
		counts_sleeps = true;
		slept_ns = 0;
		assert_int_equal(go(a.c.q, &a.c.fq, &a.c.l), SCHED_GO);
		counts_sleeps = false;
		assert_int_equal(slept_ns, i ? 30 * US : 2 * MS);
		assert_int_equal(a.c.r.stats.limit_hits, 1);
		asking_finish(&a);
	}
}

static void timer_slack_is_short_during_a_hold_only(void **state)
{
	struct asking a;
	int slack;

	assert_int_equal(prctl(PR_SET_TIMERSLACK, 77000), 0);
	slack = sched_sharpen_timers();
	assert_int_equal(slack, 77000);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), 1000);
	assert_int_equal(prctl(PR_SET_TIMERSLACK, 77000), 0);
	asking_init(&a, GBPF_DEFER, 0);
	sched_set_limits(a.c.r.s, 10 * MS, 0);
	assert_int_equal(go(a.c.q, &a.c.fq, &a.c.l), SCHED_GO);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), 77000);
	asking_finish(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_forced_launch_leaves_credit_that_accrues_while_holding),
		cmocka_unit_test(starvation_ends_after_its_time_or_by_a_go),
		cmocka_unit_test(no_launch_waits_longer_than_ten_seconds),
		cmocka_unit_test(limits_have_defaults_and_a_share_is_at_most_all),
		cmocka_unit_test(the_reason_of_a_hold),
		cmocka_unit_test(the_reason_of_a_launch_that_the_minimum_share_has_paid_for),
		cmocka_unit_test(holds_are_summed_up),
		cmocka_unit_test(a_held_launch_goes_at_the_limit),
		cmocka_unit_test(a_launch_that_goes_at_once_is_no_hold),
		cmocka_unit_test(asked_again_after_a_millisecond_by_default),
		cmocka_unit_test(own_work_is_looked_at_often),
		cmocka_unit_test(timer_slack_is_short_during_a_hold_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
