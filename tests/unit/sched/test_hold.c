/* Holding: the policy decides, no wake is lost, and every hold is bounded. */
#include "fake.h"

#include <sched.h>
#include <string.h>

#include "sched/sched_int.h"

/* Inverted verdicts: lc_open ? GO : HOLD */
static const struct ebpf_insn hold_while_closed[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(lc_open)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JNE, 2, 0, 1),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
};
/* The same, for an hour */
static const struct ebpf_insn hold_for_an_hour[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(lc_open)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JEQ, 2, 0, 5),
	I_MOV(3, 3600),
	{ .code = EBPF_ALU64 | EBPF_MUL | EBPF_K, .dst = 3, .imm = 1000000000 },
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 3),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
	I_EXIT,
};
static const struct ebpf_insn always_hold[] = { I_MOV(0, GBPF_HOLD), I_EXIT };
static const struct ebpf_insn nonsense[] = { I_MOV(0, 77), I_EXIT };
static const struct ebpf_insn split[] = { I_MOV(0, GBPF_SPLIT), I_EXIT };
/* GO at the third call, and before that another reason each time */
static const struct ebpf_insn third_time[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(asked)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JGE, 2, 2, 5),
	{ .code = EBPF_ALU64 | EBPF_ADD | EBPF_K, .dst = 2, .imm = 6 },
	I_STX(EBPF_W, 1, SUBMIT(why), 2),
	I_MOV(3, 100000),
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 3),
	I_MOV(0, GBPF_DEFER),
	I_EXIT,
};
/* inflight ? HOLD : GO */
static const struct ebpf_insn one_in_flight[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(inflight)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JEQ, 2, 0, 1),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
};

static void without_policy_nothing_is_held(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	other_opens(&r);
	assert_true(sched_idle(r.s));
	l = kernel_launch(sched_kernel_get(r.s, "k"));
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	assert_int_equal(l.held_ns, 0);
	assert_int_equal(r.stats.holds, 0);
	rig_finish(&r);
}

struct launcher {
	struct rig *r;
	struct sched_queue *q;
	struct fake_queue *fq;
	uint32_t done;
	uint64_t held_ns;
};

static void *launch_once(void *arg)
{
	struct launcher *t = arg;
	struct sched_launch l = kernel_launch(NULL);

	go(t->q, t->fq, &l);
	t->held_ns = l.held_ns;
	store_release(&t->done, 1u);
	return NULL;
}

static void verdicts_decide_and_inverted_ones_invert(void **state)
{
	struct fake_queue fq = { 0 };
	struct launcher t;
	struct sched_launch l;
	pthread_t th;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
	t = (struct launcher){ .r = &r, .fq = &fq, .q = sched_queue_open(r.s, &fq, 0, 0) };
	POLICY_USE(&r, 1, hold_while_open);
	l = kernel_launch(NULL);
	go(t.q, &fq, &l);
	assert_int_equal(l.held_ns, 0);
	other_opens(&r);
	pthread_create(&th, NULL, launch_once, &t);
	while (load_acquire(&r.stats.submit_calls) < 3) { /* asked again, so it is held */
		sched_agent_step(r.s);
	}
	assert_int_equal(load_acquire(&t.done), 0);
	other_closes(&r);
	pthread_join(th, NULL);
	assert_true(t.held_ns > 0);
	assert_int_equal(r.stats.why, PROTO_WHY_POLICY);

	POLICY_USE(&r, 2, hold_while_closed);
	t.done = 0;
	pthread_create(&th, NULL, launch_once, &t);
	while (!load_acquire(&t.done)) {
		other_opens(&r); /* what ended a hold before begins one now, and vice versa */
	}
	pthread_join(th, NULL);
	l = kernel_launch(NULL);
	go(t.q, &fq, &l);
	assert_int_equal(l.held_ns, 0);
	assert_int_equal(r.stats.limit_hits, 0);
	rig_finish(&r);
}

static void bad_verdicts_go_and_are_counted(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	POLICY_USE(&r, 1, nonsense);
	l = kernel_launch(NULL);
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	assert_int_equal(l.version, 1);
	assert_int_equal(r.stats.verdict_errors, 1);
	assert_int_equal(r.notes, 1);
	POLICY_USE(&r, 2, split);
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	assert_int_equal(r.stats.verdict_errors, 2);
	rig_finish(&r);
}

static void defer_asks_again_after_its_time(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	POLICY_USE(&r, 1, third_time);
	l = kernel_launch(NULL);
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	assert_true(l.held_ns >= 200000);
	assert_int_equal(r.stats.holds, 1);
	assert_int_equal(r.stats.why, PROTO_WHY_REASON | 7);
	rig_finish(&r);
}

static void a_launch_that_must_not_be_held_goes(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	POLICY_USE(&r, 1, always_hold);
	l = kernel_launch(NULL);
	l.may_hold = false;
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	assert_int_equal(l.held_ns, 0);
	assert_int_equal(r.stats.holds, 0);
	rig_finish(&r);
}

static void limit_ends_every_hold_and_then_the_share_counts(void **state)
{
	struct fake_queue fq = { .eager = 1 };
	struct sched_kernel *k;
	struct sched_queue *q;
	struct sched_launch l;
	uint64_t begin, took;
	unsigned soon = 0;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 20000000, 100000); /* 20 ms, then a share of 10 % */
	q = sched_queue_open(r.s, &fq, 0, 0);
	k = sched_kernel_get(r.s, "k");
	l = kernel_launch(k);
	POLICY_USE(&r, 1, hold_while_open);
	fq.clock_ns = 0;
	for (int i = 0; i < 20; i++) { /* until 1000 ns are learned */
		go(q, &fq, &l);
	}
	other_opens(&r); /* its owner is stopped and never closes it */
	begin = clock_now_ns();
	go(q, &fq, &l);
	took = clock_now_ns() - begin;
	assert_true(took >= 20000000);
	assert_int_equal(r.stats.limit_hits, 1);
	assert_int_equal(r.stats.why, PROTO_WHY_LIMIT);
	/* 1 us of work at 10 % pays for a launch every 10 us, so most of the 100 launches come long
	 * before the limit. */
	begin = clock_now_ns();
	for (int i = 0; i < 100; i++) {
		uint64_t before = clock_now_ns();

		go(q, &fq, &l);
		soon += clock_now_ns() - before < 20000000;
	}
	took = clock_now_ns() - begin;
	assert_true(took >= 100 * 9000);
	assert_true(soon > 50);
	assert_int_equal(r.stats.limit_hits, 101);
	rig_finish(&r);
}

static void a_policy_that_lets_go_ends_starvation(void **state)
{
	struct fake_queue fq = { .eager = 1 };
	struct launcher t;
	struct sched_launch l;
	uint64_t asked;
	pthread_t th;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 10000000, 1000000);
	t = (struct launcher){ .r = &r, .fq = &fq, .q = sched_queue_open(r.s, &fq, 0, 0) };
	POLICY_USE(&r, 1, hold_while_open);
	other_opens(&r);
	l = kernel_launch(NULL);
	go(t.q, &fq, &l);
	assert_int_equal(r.stats.limit_hits, 1);
	assert_true(r.s->share.until_ns > clock_now_ns());
	sched_set_limits(r.s, 60000000000u, 1); /* practically no credit from here on */
	r.s->agent.last_stats_ns = 0;
	sched_agent_step(r.s);
	asked = r.stats.submit_calls;
	pthread_create(&th, NULL, launch_once, &t);
	while (load_acquire(&r.stats.submit_calls) == asked) { /* asked again, so it is held */
		r.s->agent.last_stats_ns = 0;
		sched_agent_step(r.s);
	}
	other_closes(&r);
	pthread_join(th, NULL);
	assert_int_equal(r.stats.limit_hits, 1);
	assert_int_equal(r.s->share.until_ns, 0);
	rig_finish(&r);
}

static void own_work_that_retires_ends_a_hold(void **state)
{
	struct fake_queue fq = { 0 };
	struct launcher t;
	struct sched_launch l;
	pthread_t th;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
	t = (struct launcher){ .r = &r, .fq = &fq, .q = sched_queue_open(r.s, &fq, 0, 0) };
	POLICY_USE(&r, 1, one_in_flight);
	l = kernel_launch(sched_kernel_get(r.s, "k"));
	go(t.q, &fq, &l);
	pthread_create(&th, NULL, launch_once, &t);
	while (load_acquire(&r.stats.submit_calls) < 3) {
		sched_agent_step(r.s);
	}
	assert_int_equal(load_acquire(&t.done), 0);
	fake_finish(&fq);
	pthread_join(th, NULL);
	assert_int_equal(r.stats.why, PROTO_WHY_POLICY);
	rig_finish(&r);
}

static void off_ends_holds(void **state)
{
	struct fake_queue fq = { 0 };
	struct launcher t;
	pthread_t th;
	struct rig r;

	for (int by_page = 0; by_page < 2; by_page++) {
		rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
		t = (struct launcher){ .r = &r, .fq = &fq, .q = sched_queue_open(r.s, &fq, 0, 0) };
		POLICY_USE(&r, 1, always_hold);
		pthread_create(&th, NULL, launch_once, &t);
		if (by_page) {
			store_release(&r.dir.off, 1u);
		} else {
			sched_set_off(r.s, true);
		}
		pthread_join(th, NULL);
		assert_int_equal(r.stats.limit_hits, 0);
		rig_finish(&r);
	}
}

static void a_swap_ends_holds_of_the_old_version(void **state)
{
	static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };
	struct fake_queue fq = { 0 };
	struct launcher t;
	pthread_t th;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
	t = (struct launcher){ .r = &r, .fq = &fq, .q = sched_queue_open(r.s, &fq, 0, 0) };
	POLICY_USE(&r, 1, always_hold);
	pthread_create(&th, NULL, launch_once, &t);
	POLICY_USE(&r, 2, always_go);
	sched_policy_drop(r.s, 1, UINT32_MAX);
	pthread_join(th, NULL);
	assert_int_equal(r.stats.limit_hits, 0);
	rig_finish(&r);
}

/* One thread launches, another opens and closes as fast as it can. Single waits are not capped, and
 * the policy holds for an hour, so a lost wake would leave the launcher asleep until the test's
 * timeout. */
struct pingpong {
	struct rig *r;
	struct sched_queue *q;
	struct fake_queue *fq;
	uint32_t rounds, opened, entering, launched;
};

static void *pong(void *arg)
{
	struct pingpong *p = arg;

	for (uint32_t i = 0; i < p->rounds; i++) {
		struct sched_launch l = kernel_launch(NULL);

		while (load_acquire(&p->opened) == i) {
			sched_yield();
		}
		store_release(&p->entering, i + 1);
		go(p->q, p->fq, &l);
		store_release(&p->launched, i + 1);
	}
	return NULL;
}

static void no_wake_is_lost(void **state)
{
	struct fake_queue fq = { .eager = 1 };
	struct pingpong p;
	pthread_t th;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 3600000000000u, 0);
	r.s->wait_cap_ns = 3600000000000u;
	p = (struct pingpong){
		.r = &r, .q = sched_queue_open(r.s, &fq, 0, 0), .fq = &fq, .rounds = 5000
	};
	POLICY_USE(&r, 1, hold_for_an_hour);
	pthread_create(&th, NULL, pong, &p);
	for (uint32_t seen = 0; seen < p.rounds;) {
		other_opens(&r);
		store_release(&p.opened, seen + 1);
		while (load_acquire(&p.entering) == seen) {
			sched_yield();
		}
		for (uint32_t spin = 0; spin < seen % 1024;
		     spin++) { /* meet the launcher at different points */
			compiler_barrier();
		}
		other_closes(&r);
		while (load_acquire(&p.launched) == seen) {
			sched_yield();
		}
		seen = load_acquire(&p.launched);
	}
	pthread_join(th, NULL);
	assert_true(r.stats.holds > 20);
	assert_int_equal(r.stats.limit_hits, 0);
	rig_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_policy_nothing_is_held),
		cmocka_unit_test(verdicts_decide_and_inverted_ones_invert),
		cmocka_unit_test(bad_verdicts_go_and_are_counted),
		cmocka_unit_test(defer_asks_again_after_its_time),
		cmocka_unit_test(a_launch_that_must_not_be_held_goes),
		cmocka_unit_test(limit_ends_every_hold_and_then_the_share_counts),
		cmocka_unit_test(a_policy_that_lets_go_ends_starvation),
		cmocka_unit_test(own_work_that_retires_ends_a_hold),
		cmocka_unit_test(off_ends_holds),
		cmocka_unit_test(a_swap_ends_holds_of_the_old_version),
		cmocka_unit_test(no_wake_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
