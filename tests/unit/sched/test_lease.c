/* Leases follow requests: raised before the first launch may go, renewed, lowered before waiting
 * processes are woken; only while a policy is in force. A request that does not end times out. */
#include "lease_rig.h"

static void up_before_the_first_launch_goes_and_before_the_board(void **state)
{
	struct one o;

	one_init(&o, true);
	assert_int_equal(ticket_begin(o.q, &o.l), SCHED_GO);
	assert_int_equal(gpu.until_ns, fake_now + SCHED_LEASE_NS);
	assert_int_equal(gpu.calls, 1);
	assert_int_equal(gpu.board_then, 0);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	ticket_end(true);
	go(o.q, &o.fq, &o.l); /* further launches of the request cost nothing */
	assert_int_equal(gpu.calls, 1);
	one_finish(&o);
}

static void renewed_while_open_and_down_before_the_board_closes(void **state)
{
	uint64_t last;
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	for (int i = 0; i < 50; i++) {
		last = fake_now;
		live_until(&o, last + 2000000);
		assert_true(gpu.until_ns >= fake_now + SCHED_LEASE_NS - SCHED_RENEW_NS - 1000000);
	}
	assert_true(gpu.calls <= 1 + 100000000 / SCHED_RENEW_NS + 1);
	fake_finish(&o.fq);
	live_until(&o, fake_now + 1000000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	assert_int_equal(gpu.board_then, 1);
	assert_int_equal(o.r.s->req[0].lease_ns, 0);
	one_finish(&o);
}

static void without_a_policy_nothing_is_raised(void **state)
{
	struct one o;

	one_init(&o, false);
	go(o.q, &o.fq, &o.l);
	(void)step(&o);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_equal(gpu.calls, 0);
	o.r.dir.version[0] = 1; /* the policy comes during the request */
	(void)step(&o);
	assert_int_equal(gpu.until_ns, fake_now + SCHED_LEASE_NS);
	o.r.dir.off = 1;
	(void)step(&o);
	assert_int_equal(gpu.until_ns, 0);
	o.r.dir.off = 0;
	(void)step(&o);
	assert_int_not_equal(gpu.until_ns, 0);
	o.r.dir.version[0] = 0;
	(void)step(&o);
	assert_int_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void switched_off_they_fall_at_once(void **state)
{
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	assert_int_not_equal(gpu.until_ns, 0);
	sched_set_off(o.r.s, true); /* as at the end of the process: the agent may not run again */
	assert_int_equal(gpu.until_ns, 0);
	sched_set_off(o.r.s, false);
	(void)step(&o);
	assert_int_not_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void without_gbpfd_they_fall(void **state)
{
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	assert_int_not_equal(gpu.until_ns, 0);
	sched_set_pages(o.r.s, NULL, &o.r.own, &o.r.stats, NULL);
	(void)step(&o);
	assert_int_equal(gpu.until_ns, 0);
	sched_set_pages(o.r.s, &o.r.dir, &o.r.own, &o.r.stats, NULL);
	(void)step(&o);
	assert_int_not_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void without_close_delay_the_synchronizing_thread_closes(void **state)
{
	struct one o;

	one_init(&o, true);
	request(&o, 30000); /* the agent learns that no close delay is wanted */
	assert_int_equal(o.r.own.gpu[0].open, 0);
	for (uint32_t i = 0; i < 3; i++) {
		go(o.q, &o.fq, &o.l);
		(void)step(&o);
		assert_int_equal(o.r.own.gpu[0].open, 1);
		fake_now += 30000;
		fake_finish(&o.fq);
		sched_synced(o.r.s, o.q);
		assert_int_equal(o.r.own.gpu[0].open, 0);
		assert_int_equal(o.r.own.gpu[0].seq, 2 + i);
		assert_int_equal(gpu.until_ns, 0);
		assert_int_equal(gpu.board_then, 1);
		fake_now += 500000;
	}
	assert_int_equal(o.r.stats.requests, 4);
	assert_int_equal(o.r.stats.request_ns, 4 * 30000);
	assert_int_equal(o.r.stats.syncs, 4);
	one_finish(&o);
}

static uint32_t asked;

static int note_asked(void *dev, void *queue)
{
	asked++;
	return fake_ops.queue_idle(dev, queue);
}

static void the_device_is_seldom_asked_where_synchronizations_tell(void **state)
{
	struct one o;

	one_init(&o, true);
	o.ops.queue_idle = note_asked;
	for (int i = 0; i < 6; i++) {
		request(&o, 30000);
		fake_now += 1000000;
	}
	assert_int_equal(o.r.own.gpu[0].open, 0);
	asked = 0;
	go(o.q, &o.fq, &o.l);
	live_until(&o, fake_now + 190000);
	assert_true(asked <= 1); /* by the pass over work in flight */
	live_until(&o, fake_now + 1000000);
	assert_in_range(asked, 4, 8);
	fake_finish(&o.fq); /* without a synchronization it ends as well */
	live_until(&o, fake_now + 250000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	asked = 0;
	go(o.q, &o.fq, &o.l);
	live_until(&o, fake_now + 190000);
	assert_true(asked >= 4);
	one_finish(&o);
}

static void the_device_is_not_asked_in_pauses_after_synchronizations(void **state)
{
	struct prog p[] = { PROG(submit, always_go) };
	struct one o;

	one_init(&o, true);
	assert_int_equal(rig_policy_prepare(&o.r, 2, p, 1, NULL), 0);
	o.r.dir.version[0] = 2; /* a close delay of 200 us */
	o.ops.queue_idle = note_asked;
	for (int i = 0; i < 6; i++) {
		request(&o, 30000);
		live_until(&o, fake_now + 1000000);
	}
	assert_int_equal(o.r.own.gpu[0].open, 0);
	asked = 0;
	for (int i = 0; i < 40; i++) {
		go(o.q, &o.fq, &o.l);
		live_until(&o, fake_now + 3000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, o.q);
		live_until(&o, fake_now + 9000);
	}
	assert_true(asked <= 1);
	live_until(&o, fake_now - 9000 + SCHED_DEFAULT_CLOSE_DELAY_NS - 1000);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	live_until(&o, fake_now + 2000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void the_agent_sleeps_where_no_request_was_over_yet(void **state)
{
	uint32_t wakes, steps = 0;
	uint64_t begin, ns;
	struct one o;

	one_init(&o, true);
	for (unsigned i = 0; i < SCHED_DURATIONS; i++) { /* all of 2 ms or more */
		request(&o, 2000000 + i * 100000);
		live_until(&o, fake_now + 100000000);
	}
	wakes = o.r.wakes;
	go(o.q, &o.fq, &o.l);
	assert_int_equal(o.r.wakes, wakes + 1);
	begin = fake_now;
	ns = step(&o);
	assert_true(ns > 1000000 && ns <= 1500000);
	for (int i = 0; i < 100; i++) { /* its launches do not wake the agent */
		go(o.q, &o.fq, &o.l);
	}
	assert_int_equal(o.r.wakes, wakes + 1);
	fake_now += ns;
	for (; fake_now < begin + 2000000; steps++) {
		fake_now += step(&o);
	}
	assert_true(steps >= 10); /* then it looks often */
	fake_finish(&o.fq);
	sched_synced(o.r.s, o.q);
	live_until(&o, fake_now + 50000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void an_uninvolved_queue_does_not_delay_the_close(void **state)
{
	struct prog p[] = { PROG(submit, always_go) };
	struct fake_queue fq = { 0 };
	struct sched_queue *other;
	struct one o;

	one_init(&o, true);
	other = sched_queue_open(o.r.s, &fq, 0, 0);
	assert_int_equal(rig_policy_prepare(&o.r, 2, p, 1, NULL), 0);
	o.r.dir.version[0] = 2; /* the default close delay */
	go(other, &fq, &o.l);
	fake_now += 1000;
	fake_finish(&fq);
	live_until(&o, fake_now + 2 * SCHED_DEFAULT_CLOSE_DELAY_NS);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	o.r.dir.version[0] = 1; /* no close delay */
	for (int i = 0; i < 2; i++) {
		go(o.q, &o.fq, &o.l);
		fake_now += 1000;
		fake_finish(&o.fq);
		fake_now += SCHED_OPEN_POLL_NS;
		(void)step(&o);
		assert_int_equal(o.r.own.gpu[0].open, 0);
	}
	one_finish(&o);
}

static void a_synchronization_that_saw_a_part_closes_nothing(void **state)
{
	struct one o;

	one_init(&o, true);
	request(&o, 30000);
	go(o.q, &o.fq, &o.l);
	sched_synced(o.r.s, o.q); /* it returned for earlier launches */
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_not_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void a_thread_that_vanishes_while_closing_does_not_block_others(void **state)
{
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	o.r.s->req[0].close.turn = 1;
	fake_finish(&o.fq);
	live_until(&o, fake_now + SCHED_STEAL_NS - 1000000);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	live_until(&o, fake_now + 2000000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void a_stalled_request_times_out(void **state)
{
	uint64_t begin;
	struct one o;

	one_init(&o, true);
	begin = fake_now;
	go(o.q, &o.fq, &o.l);
	live_until(&o, begin + SCHED_STALL_NS - 1000000);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	go(o.q, &o.fq, &o.l); /* progress */
	live_until(&o, begin + 2 * (uint64_t)SCHED_STALL_NS - 10000000);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	live_until(&o, begin + 2 * (uint64_t)SCHED_STALL_NS + 1000000);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	assert_int_equal(o.r.stats.requests_cut, 1);
	assert_int_equal(o.r.notes, 1);
	assert_true(step(&o) >= SCHED_TIMED_OUT_POLL_NS); /* only a look now and then */
	go(o.q, &o.fq, &o.l);				  /* still the same request */
	(void)step(&o);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(gpu.until_ns, 0);
	o.r.own.gpu[0].open = 1; /* as by a thread that was preempted between its two stores */
	(void)step(&o);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	fake_finish(&o.fq);
	live_until(&o, fake_now + 2 * SCHED_TIMED_OUT_POLL_NS);
	assert_int_equal(o.r.stats.requests, 1);
	go(o.q, &o.fq, &o.l); /* after one drain the next request counts again */
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_not_equal(gpu.until_ns, 0);
	one_finish(&o);
}

/* The agent, or the whole machine, had no processor: no look could see progress. */
static void a_late_look_does_not_time_a_request_out(void **state)
{
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	live_until(&o, fake_now + SCHED_STALL_NS / 2);
	fake_now += 5 * (uint64_t)SCHED_STALL_NS;
	(void)step(&o);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_equal(o.r.stats.requests_cut, 0);
	live_until(&o, fake_now + SCHED_STALL_NS / 2); /* it has stalled nevertheless */
	assert_int_equal(o.r.stats.requests_cut, 1);
	one_finish(&o);
}

/* Rare looks delay the timeout but do not prevent it. */
static void a_seldom_running_agent_times_a_stalled_request_out(void **state)
{
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	(void)step(&o);
	for (int i = 0; i < 9; i++) {
		fake_now += 3 * (uint64_t)SCHED_STALL_NS / 10;
		(void)step(&o);
		assert_int_equal(o.r.stats.requests_cut, 0);
	}
	for (int i = 0; i < 3; i++) {
		fake_now += 3 * (uint64_t)SCHED_STALL_NS / 10;
		(void)step(&o);
	}
	assert_int_equal(o.r.stats.requests_cut, 1);
	one_finish(&o);
}

static void a_request_without_a_pause_times_out_after_ten_seconds(void **state)
{
	uint64_t begin;
	struct one o;

	one_init(&o, true);
	begin = fake_now;
	while (fake_now < begin + SCHED_REQUEST_MAX_NS - 100000000) {
		go(o.q, &o.fq, &o.l);
		live_until(&o, fake_now + 50000000);
		assert_int_equal(o.r.own.gpu[0].open, 1);
	}
	for (int i = 0; i < 4; i++) {
		go(o.q, &o.fq, &o.l);
		live_until(&o, fake_now + 50000000);
	}
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(o.r.stats.requests_cut, 1);
	one_finish(&o);
}

static void the_best_close_delay_is_learned(void **state)
{
	struct one o;

	one_init(&o, true);
	for (int i = 0; i < 200; i++) {
		go(o.q, &o.fq, &o.l);
		fake_now += 20000;
		fake_finish(&o.fq);
		(void)step(&o);	  /* it is seen idle now, */
		fake_now += 9000; /* and the next launch follows */
		sched_synced(o.r.s, o.q);
		fake_now += i % 20 == 19 ? 5000000 : 7000; /* and then the next request comes */
	}
	assert_in_range(o.r.s->req[0].gap_ns, 16000, 20000);
	one_finish(&o);
}

static void no_close_delay_for_pauses_that_do_not_pay(void **state)
{
	struct sched_gaps g = { 0 };

	assert_int_equal(sched_gaps_best(&g, 600000), 0);
	for (unsigned i = 0; i < 400; i++) { /* pauses far apart, and some shorter by chance */
		sched_gaps_add(&g, i % 12 == 0 ? 150000 : 2500000 + i * 1000);
	}
	assert_int_equal(sched_gaps_best(&g, 600000), 0);
	for (unsigned i = 0; i < 400; i++) { /* many synchronizations in each request */
		sched_gaps_add(&g, i % 41 == 40 ? 2500000 : i % 10 == 9 ? 70000 : 12000);
	}
	assert_int_equal(sched_gaps_best(&g, 600000),
			 80000); /* covers the rare longer ones as well */
	assert_int_equal(sched_gaps_best(&g, 1000), 0);
	for (unsigned i = 0; i < 1000; i++) { /* old pauses lose their weight */
		sched_gaps_add(&g, 6000);
	}
	assert_int_equal(sched_gaps_best(&g, 600000), 7100);
	sched_gaps_add(&g, 0);
	sched_gaps_add(&g, UINT64_MAX);
}

/* Threads open requests and synchronize, the agent closes and renews, another thread announces.
 * Whatever the order of their stores, in the end leases are raised if and only if a request is
 * open. */
struct racer {
	struct one *o;
	uint32_t rounds;
	uint64_t down_inside;
};

static void *race(void *arg)
{
	struct racer *t = arg;

	for (uint32_t i = 0; i < t->rounds; i++) {
		struct sched_launch l = kernel_launch(NULL);

		(void)ticket_begin(t->o->q, &l);
		for (int tries = 0; !load_seqcst(&gpu.until_ns); tries++) {
			if (tries >
			    50000000) { /* lowered for a moment is allowed, for longer is not */
				t->down_inside++;
				break;
			}
		}
		ticket_end(true);
		sched_synced(t->o->r.s, t->o->q);
		if (i % 4 == 0) {
			(void)sched_announce(t->o->r.s, 0, clock_now_ns() + (i % 3) * 100000, 0);
		}
	}
	return NULL;
}

static void never_down_while_a_launch_is_inside_and_never_up_for_good(void **state)
{
	struct racer t[2];
	pthread_t th[2];
	struct one o;

	one_init(&o, true);
	clock_set_source(NULL);
	gpu.board = NULL;
	o.fq.eager = 1;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2; i++) {
			t[i] = (struct racer){ .o = &o, .rounds = 1000 };
			pthread_create(&th[i], NULL, race, &t[i]);
		}
		for (uint64_t want = 2000 * (round + 1); sched_tally_sum(&o.q->left) < want;) {
			(void)sched_agent_step(o.r.s);
		}
		for (int i = 0; i < 2; i++) {
			pthread_join(th[i], NULL);
			assert_int_equal(t[i].down_inside, 0);
		}
		while (load_seqcst(&o.r.own.gpu[0].open) || load_seqcst(&o.r.s->req[0].next_ns) ||
		       load_seqcst(&o.r.s->req[0].ann.since_ns)) {
			(void)sched_agent_step(o.r.s);
		}
		assert_int_equal(load_seqcst(&gpu.until_ns), 0);
		assert_int_equal(o.r.s->req[0].lease_ns, 0);
	}
	assert_true(o.r.stats.requests > 20);
	one_finish(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(up_before_the_first_launch_goes_and_before_the_board),
		cmocka_unit_test(renewed_while_open_and_down_before_the_board_closes),
		cmocka_unit_test(without_a_policy_nothing_is_raised),
		cmocka_unit_test(switched_off_they_fall_at_once),
		cmocka_unit_test(without_gbpfd_they_fall),
		cmocka_unit_test(without_close_delay_the_synchronizing_thread_closes),
		cmocka_unit_test(the_device_is_seldom_asked_where_synchronizations_tell),
		cmocka_unit_test(the_device_is_not_asked_in_pauses_after_synchronizations),
		cmocka_unit_test(the_agent_sleeps_where_no_request_was_over_yet),
		cmocka_unit_test(an_uninvolved_queue_does_not_delay_the_close),
		cmocka_unit_test(a_synchronization_that_saw_a_part_closes_nothing),
		cmocka_unit_test(a_thread_that_vanishes_while_closing_does_not_block_others),
		cmocka_unit_test(a_stalled_request_times_out),
		cmocka_unit_test(a_late_look_does_not_time_a_request_out),
		cmocka_unit_test(a_seldom_running_agent_times_a_stalled_request_out),
		cmocka_unit_test(a_request_without_a_pause_times_out_after_ten_seconds),
		cmocka_unit_test(the_best_close_delay_is_learned),
		cmocka_unit_test(no_close_delay_for_pauses_that_do_not_pay),
		cmocka_unit_test(never_down_while_a_launch_is_inside_and_never_up_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
