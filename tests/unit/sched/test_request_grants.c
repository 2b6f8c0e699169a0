/* Launches of a latency queue that go by grant: they belong to the open request, which closes when
 * they have ended, and each thing that the rest of the launch path does for a request is still
 * done.
 */
#include "grants.h"

#include <errno.h>

static void begin(int n)
{
	grants_begin(GBPF_CLASS_LATENCY, n);
}

static bool is_open(void)
{
	return c.r.own.gpu[0].open;
}

/* All that the queue has ends, and the program learns that by a synchronization. */
static void synchronize(void)
{
	fake_finish(&c.fq);
	sched_synced(c.r.s, NULL);
}

/* The close delay passes. */
static void close_delay(void)
{
	(void)clocked_step(&c, 0);
	(void)clocked_step(&c, 200 * US);
}

static void a_request_goes_by_grant(void **state)
{
	uint64_t last = 0;

	begin(5);
	for (unsigned i = 0; i < 13; i++) {
		last = i == 11 ? clocked_now : last;
		c.r.s->table.touched[c.q->index] = 0;
		launch(true);
		assert_int_equal(calls(), 1 + i / 6);
		assert_true(is_open());
		assert_int_equal(c.q->entered, i + 1);
		assert_int_equal(sched_tally_sum(&c.q->left), i + 1);
		assert_true(*sched_queue_touched(c.q));
		clocked_now += 7 * US;
	}
	assert_int_equal(maps.tenant[1], 5);
	assert_int_equal(maps.tenant[2], 5 * EST);
	assert_int_equal(maps.tenant[4], last);
	assert_int_equal(c.k->count, 14);
	assert_int_equal(sched_estimate_of(c.r.s, &c.l)->left,
			 (1u << 30) - 1); /* the first one's */
	assert_int_equal(c.r.s->req[0].opened_ns, clocked_now - 13 * 7 * US);
	grants_finish();
	(void)state;
}

/* Other latency programs' boards do not end it: the policy has granted. */
static void next_to_another_latency_program_too(void **state)
{
	begin(5);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 3, 2, &c.r.other), 0);
	launches(6);
	assert_int_equal(calls(), 1);
	grants_finish();
	(void)state;
}

static void the_request_ends_with_them(void **state)
{
	begin(5);
	launches(1);
	clocked_now += 10 * US;
	launches(4);
	clocked_now += 30 * US;
	assert_false(c.r.s->req[0].idle_ns);
	(void)clocked_step(&c, 0);
	assert_true(is_open());
	synchronize();
	close_delay();
	assert_false(is_open());
	assert_int_equal(c.r.stats.requests, 1);
	assert_int_equal(c.r.stats.request_ns, 40 * US);
	assert_int_equal(c.r.stats.syncs, 1);
	launch(true); /* the next request */
	assert_int_equal(calls(), 2);
	assert_true(is_open());
	assert_int_equal(c.r.s->req[0].opened_ns, clocked_now);
	grants_finish();
	(void)state;
}

/* As long as the driver does not have one, the request stays open. */
static void one_inside_the_driver_keeps_the_request_open(void **state)
{
	begin(5);
	launches(2);
	c.l.granted = sched_granted(c.q, &c.l);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_true(c.l.granted);
	synchronize();
	close_delay();
	(void)clocked_step(&c, 2 * MS);
	assert_true(is_open());
	ticket_end(true);
	synchronize();
	close_delay();
	assert_false(is_open());
	grants_finish();
	(void)state;
}

/* The pause is measured where the policy is asked. */
static void a_launch_behind_a_pause_is_asked_about(void **state)
{
	begin(5);
	launches(2);
	synchronize();
	assert_int_equal(c.q->grant.left, 0);
	clocked_now += 50 * US;
	launch(true);
	assert_int_equal(calls(), 2);
	assert_int_equal(c.r.s->req[0].gaps.total, 1);
	assert_int_equal(c.q->grant.left, 5);
	synchronize(); /* with none by grant since */
	assert_int_equal(c.q->grant.left, 0);
	launch(true);
	assert_int_equal(c.r.s->req[0].gaps.total, 2);
	sched_request_idle(&c.r.s->req[0], clocked_now); /* of another queue */
	expect_asked();
	assert_int_equal(c.r.s->req[0].gaps.total, 3);
	grants_finish();
	(void)state;
}

static void a_grant_ends_with_its_request(void **state)
{
	begin(5);
	launches(2);
	fake_finish(&c.fq); /* no synchronization: the agent finds out */
	close_delay();
	close_delay();
	assert_false(is_open());
	c.r.s->req[0].idle_ns = 0;
	assert_int_equal(c.q->grant.left, 4);
	assert_false(sched_granted(c.q, &c.l));
	clocked_now += 1 * MS;
	assert_true(sched_request_open(c.r.s, 0, clocked_now)); /* by another queue */
	expect_asked();
	grants_finish();
	(void)state;
}

/* The request closes, or times out, while the launch is on its way. */
static void it_never_goes_without_a_request(void **state)
{
	static const uint32_t states[] = { SCHED_REQUEST_CLOSED, SCHED_REQUEST_TIMED_OUT };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		begin(5);
		launches(2);
		assert_true(sched_granted(c.q, &c.l));
		c.l.granted = true;
		c.r.s->req[0].open = states[i];
		c.q->grant.opened_ns = c.r.s->req[0].opened_ns;
		assert_int_equal(ticket_begin(c.q, &c.l), SCHED_ASK);
		assert_false(c.l.granted);
		assert_null(policy_reader_self->gate);
		assert_int_equal(c.q->entered, sched_tally_sum(&c.q->left));
		assert_int_equal(c.q->grant.left, 0);
		assert_int_equal(c.q->grant.n, 1);
		launch(true);
		assert_int_equal(calls(), 2);
		assert_int_equal(c.q->entered, sched_tally_sum(&c.q->left));
		grants_finish();
	}
	(void)state;
}

static void unknown_and_long_ones_are_asked_about(void **state)
{
	static const struct {
		uint64_t est_ns;
		uint32_t seen, above;
		bool granted;
	} cases[] = {
		{ 0, 4, 0, false },	 { 1, 4, 0, true },  { 99999, 4, 0, true },
		{ 100000, 4, 0, false }, { 1, 3, 0, false }, { 1, 1, 3, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(5);
		launch(true);
		*sched_estimate_of(c.r.s, &c.l) = (struct sched_estimate){
			.est_ns = cases[i].est_ns, .seen = cases[i].seen, .above = cases[i].above
		};
		assert_int_equal(sched_granted(c.q, &c.l), cases[i].granted);
		grants_finish();
	}
	(void)state;
}

/* One in 64, later in 1024, is measured, with grants as without. */
static void they_are_measured_as_rarely_as_ever(void **state)
{
	for (int n = 0; n <= 64; n += 64) {
		unsigned measured = 0;

		begin(n);
		for (unsigned i = 0; i < 4096 + 1024; i++) {
			uint64_t before = fake_live_markers;

			sched_estimate_of(c.r.s, &c.l)->left = 0;
			launch(true);
			measured += fake_live_markers > before;
			if (fake_live_markers > before) {
				assert_int_equal(i % (i < 1024 ? 64 : 1024), 0);
			}
			fake_finish(&c.fq);
			(void)sched_retire_reached(c.q);
			clocked_know(&c, EST);
		}
		assert_int_equal(measured, 15 + 5);
		assert_in_range(calls(), n ? 5120 / 65 : 5120, n ? 5120 / 32 : 5120);
		grants_finish();
	}
	(void)state;
}

/* The device cannot say when such a queue is idle: each launch gets a marker. */
static void queues_that_need_markers_have_none(void **state)
{
	begin(5);
	launch(true);
	c.q->idle.mark_each = 1;
	expect_asked();
	grants_finish();
	(void)state;
}

static void a_change_of_class_ends_it(void **state)
{
	begin(5);
	launch(true);
	sched_set_class(c.r.s, GBPF_CLASS_BATCH, 100);
	expect_asked();
	assert_int_equal(c.q->grant.opened_ns, 0);
	sched_set_class(c.r.s, GBPF_CLASS_LATENCY, 100);
	expect_asked();
	grants_finish();
	(void)state;
}

static void a_refused_launch_leaves_no_account(void **state)
{
	begin(5);
	launch(true);
	launch(false);
	assert_int_equal(c.q->entered, 2);
	assert_int_equal(sched_tally_sum(&c.q->left), 2);
	assert_int_equal(c.q->grant.n, 0);
	assert_int_equal(c.q->grant.left, 4);
	assert_int_equal(c.k->count, 2);
	synchronize();
	close_delay();
	assert_false(is_open());
	grants_finish();
	(void)state;
}

/* Two queues work at the same time, and estimates are too long: no more time is charged than has
 * passed while the process had work, also when the time before was idle. */
static void no_more_is_charged_than_has_passed(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *other;

	begin(5);
	other = sched_queue_open(c.r.s, &fq, 0, 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t before = c.r.stats.busy_ns;
		struct sched_queue *first = c.q;

		clocked_now += 100 * MS;
		launches(6);
		c.q = other;
		launches(6);
		c.q = first;
		clocked_now += 30 * US;
		fake_finish(&fq);
		synchronize();
		close_delay();
		assert_false(is_open());
		assert_in_range(c.r.stats.busy_ns - before, 30 * US - 16, 30 * US);
		assert_int_equal(sched_inflight(c.r.s), 0);
	}
	sched_queue_close(other);
	grants_finish();
	(void)state;
}

/* The GPU seemed to be without work while they ran, and for longer: only their time comes back. */
static void they_get_no_more_time_than_theirs(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *other, *first;

	begin(5);
	first = c.q;
	other = sched_queue_open(c.r.s, &fq, 0, 0);
	launches(2);
	fake_finish(&c.fq);
	(void)sched_retire_idle(c.q, sched_tally_sum(&c.q->total), 0);
	clocked_now += 100 * MS;
	c.q = other;
	launch(true);
	assert_int_equal(c.r.s->gpu[0].charged_to, clocked_now);
	c.q = first;
	synchronize();
	assert_int_equal(c.q->grant.n, 0);
	assert_int_equal(c.r.s->gpu[0].charged_to, clocked_now - EST);
	fake_finish(&fq);
	sched_queue_close(other);
	grants_finish();
	(void)state;
}

/* The agent has seen the end of the request and sleeps when the synchronization returns: it is
 * woken and retires them. */
static void a_late_synchronization_wakes_the_agent(void **state)
{
	begin(5);
	launches(4);
	fake_finish(&c.fq);
	close_delay();
	close_delay();
	assert_false(is_open());
	assert_int_equal(c.q->grant.n, 3);
	c.r.s->agent.asleep = SCHED_AGENT_ASLEEP;
	c.r.wakes = 0;
	sched_synced(c.r.s, c.q);
	assert_int_equal(c.r.wakes, 1);
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(c.r.s)), 3);
	for (unsigned i = 0; i < 4; i++) {
		(void)clocked_step(&c, 20 * MS);
	}
	assert_int_equal(sched_inflight(c.r.s), 0);
	grants_finish();
	(void)state;
}

static int cannot_say(void *dev, void *dev_queue)
{
	(void)dev;
	(void)dev_queue;
	return -EAGAIN;
}

/* All markers of the queue have been reached, but the granted launches have none. */
static void markers_do_not_cover_them(void **state)
{
	begin(5);
	clocked_know(&c, 0);
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	launch(true); /* is measured */
	fake_finish(&c.fq);
	(void)sched_retire_reached(c.q);
	assert_int_equal(c.q->marks.retired, sched_tally_sum(&c.q->total));
	clocked_know(&c, EST);
	launches(5);
	c.ops.queue_idle = cannot_say;
	(void)clocked_step(&c, 10 * MS);
	(void)clocked_step(&c, 1 * MS);
	assert_true(is_open());
	(void)clocked_step(&c, 25 * MS); /* it counts as idle in the end */
	(void)clocked_step(&c, 1 * MS);
	(void)clocked_step(&c, 1 * MS);
	assert_false(is_open());
	grants_finish();
	(void)state;
}

static void *synchronizes(void *arg)
{
	(void)arg;
	sched_synced(c.r.s, c.q);
	return NULL;
}

/* Only the owner of the accounts may move them there. */
static void another_threads_synchronization_leaves_them(void **state)
{
	pthread_t thread;

	begin(5);
	launches(3);
	fake_finish(&c.fq);
	assert_int_equal(pthread_create(&thread, NULL, synchronizes, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(c.q->grant.n, 2);
	assert_int_equal(c.q->grant.left, 3);
	assert_false(sched_granted(c.q, &c.l)); /* behind the pause */
	launch(true);
	assert_int_equal(maps.tenant[1], 2);
	grants_finish();
	(void)state;
}

/* A synchronization accounts them, so that they are charged with their request; the policy learns
 * of them with the next launch that it is asked about. */
static void they_are_charged_with_their_request(void **state)
{
	begin(5);
	launches(5);
	clocked_now += 5 * EST;
	synchronize();
	assert_int_equal(c.q->grant.n, 0);
	close_delay();
	assert_in_range(c.r.stats.busy_ns, 5 * (EST - 16), 5 * EST);
	assert_int_equal(sched_inflight(c.r.s), 0);
	clocked_now += 100 * MS;
	launch(true);
	assert_int_equal(maps.tenant[1], 4);
	assert_int_equal(maps.tenant[2], 4 * EST);
	assert_int_equal(maps.tenant[3], 0);
	clocked_now += EST;
	synchronize();
	close_delay();
	assert_in_range(c.r.stats.busy_ns, 6 * (EST - 16), 6 * EST);
	launch(true); /* reported once */
	assert_int_equal(maps.tenant[1], 0);
	assert_int_equal(maps.tenant[4], 0);
	grants_finish();
	(void)state;
}

/* retire: linger_ns = 0 */
static const struct ebpf_insn no_linger[] = {
	I_MOV(2, 0),
	I_STX(EBPF_DW, 1, RETIRE(linger_ns), 2),
	I_MOV(0, 0),
	I_EXIT,
};
static const struct ebpf_insn grants_two[] = {
	I_ST(EBPF_W, 1, SUBMIT(grant), 2),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

#define RACES 30000u

struct racer {
	uint64_t granted, refused, closed_inside;
	uint32_t ended; /* [atomic] */
};

static void *race(void *arg)
{
	struct racer *t = arg;

	for (uint32_t i = 0; i < RACES; i++) {
		struct sched_launch l = c.l;

		l.granted = sched_granted(c.q, &l);
		if (ticket_begin(c.q, &l) == SCHED_ASK) {
			t->refused++;
			(void)ticket_begin(c.q, &l);
		}
		t->granted += l.granted;
		/* A close that meets a launch opens the board again. */
		for (int tries = 0; !load_seqcst(&c.r.own.gpu[0].open); tries++) {
			if (tries > 50000000) {
				t->closed_inside++;
				break;
			}
		}
		ticket_end(true);
		if (i % 3 == 0) { /* the agent closes the request about now */
			for (unsigned k = 0; k < i % 512; k++) {
				cpu_relax();
			}
		}
	}
	store_release(&t->ended, 1u);
	return NULL;
}

/* One thread launches while the agent closes the request whenever it finds the queue idle. */
static void never_closed_for_good_while_one_is_inside(void **state)
{
	struct prog p[] = { PROG(retire, no_linger), PROG(submit, grants_two) };
	struct racer t = { 0 };
	pthread_t th;

	begin(2);
	clock_set_source(NULL);
	c.fq.eager = 1;
	assert_int_equal(rig_policy_prepare(&c.r, 2, p, 2, NULL), 0);
	c.r.dir.version[0] = 2;
	assert_int_equal(pthread_create(&th, NULL, race, &t), 0);
	while (!load_acquire(&t.ended)) {
		(void)sched_agent_step(c.r.s);
	}
	assert_int_equal(pthread_join(th, NULL), 0);
	assert_int_equal(t.closed_inside, 0);
	assert_int_equal(c.q->entered, sched_tally_sum(&c.q->left));
	assert_int_equal(c.r.stats.requests_cut, 0);
	print_message("%lu by grant, %lu refused, %lu requests\n", t.granted, t.refused,
		      c.r.stats.requests);
	assert_true(t.granted > 0 && c.r.stats.requests > 1);
	while (load_acquire(&c.r.own.gpu[0].open)) {
		(void)sched_agent_step(c.r.s);
	}
	grants_finish();
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_goes_by_grant),
		cmocka_unit_test(next_to_another_latency_program_too),
		cmocka_unit_test(the_request_ends_with_them),
		cmocka_unit_test(one_inside_the_driver_keeps_the_request_open),
		cmocka_unit_test(a_launch_behind_a_pause_is_asked_about),
		cmocka_unit_test(a_grant_ends_with_its_request),
		cmocka_unit_test(it_never_goes_without_a_request),
		cmocka_unit_test(unknown_and_long_ones_are_asked_about),
		cmocka_unit_test(they_are_measured_as_rarely_as_ever),
		cmocka_unit_test(queues_that_need_markers_have_none),
		cmocka_unit_test(a_change_of_class_ends_it),
		cmocka_unit_test(a_refused_launch_leaves_no_account),
		cmocka_unit_test(they_are_charged_with_their_request),
		cmocka_unit_test(no_more_is_charged_than_has_passed),
		cmocka_unit_test(they_get_no_more_time_than_theirs),
		cmocka_unit_test(a_late_synchronization_wakes_the_agent),
		cmocka_unit_test(markers_do_not_cover_them),
		cmocka_unit_test(another_threads_synchronization_leaves_them),
		cmocka_unit_test(never_closed_for_good_while_one_is_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
