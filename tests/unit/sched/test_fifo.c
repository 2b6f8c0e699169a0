/* Deferred calls: how many go ahead of a stream that does not move, and in which order queues come.
 * Figures are literals: 192 calls ahead of a marker, 16 of a queue in a pass. */
#include "calls.h"

/* ---- how far ahead ---- */

static void calls_go_192_ahead_then_at_a_marker_as_many_more(void **state)
{
	struct clocked c;

	init(&c);
	defer(&c, NULL, 600);
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	assert_int_equal(done.n, 192);
	assert_int_equal(c.fq.seq, 193); /* with the marker behind them */
	assert_true(c.q->issue.marker.event != NULL);
	c.fq.done = 192;
	(void)clocked_step(&c, 50 * US);
	assert_int_equal(done.n, 192); /* not reached: it is number 193 */
	c.fq.done = 193;
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	assert_int_equal(done.n, 384);
	assert_int_equal(fake_live_markers, 1);
	assert_int_equal(fake_live_timed, 0);
	c.fq.eager = 1;
	(void)sched_drain(c.r.s, c.q);
	assert_int_equal(done.n, 600);
	sched_queue_close(c.q);
	assert_int_equal(fake_live_markers, 0);
	clocked_finish(&c);
}

static void without_markers_the_queue_is_asked(void **state)
{
	struct clocked c;

	init(&c);
	c.fq.refuse_marks = 1;
	defer(&c, NULL, 600);
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	assert_int_equal(done.n, 192);
	fake_finish(&c.fq);
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	assert_int_equal(done.n, 384);
	fake_finish(&c.fq);
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	fake_finish(&c.fq);
	(void)sched_drain(c.r.s, c.q);
	assert_int_equal(done.n, 600);
	clocked_finish(&c);
}

/* A thread that waits gets 384 more after 200 ms without progress. */
static void a_waiting_thread_gets_a_bounded_number_more(void **state)
{
	uint64_t begin;
	struct clocked c;

	init(&c);
	defer(&c, NULL, 192 + 384 + 10);
	for (unsigned i = 0; i < 100; i++) {
		(void)clocked_step(&c, 50 * US);
	}
	assert_int_equal(done.n, 192);
	clock_set_source(ticking);
	begin = clocked_now;
	sched_drain_others(c.r.s, NULL); /* gives up when nothing moves any more */
	assert_int_equal(done.n, 576);
	assert_in_range(done.at_193 - begin, 200 * MS, 230 * MS);
	assert_int_equal(c.q->issue.beyond_marker, 384);
	clock_set_source(clocked_source);
	fake_finish(&c.fq); /* most were submitted without a marker: the newest 192 count */
	(void)clocked_step(&c, 50 * US);
	assert_int_equal(done.n, 576);
	c.fq.eager = 1;
	(void)sched_drain(c.r.s, c.q);
	assert_int_equal(done.n, 586);
	clocked_finish(&c);
}

static void crowded_from_192_launches_on(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 0);
	for (unsigned i = 0; i < 191; i++) {
		c.l.may_hold = false; /* without markers */
		(void)go(c.q, &c.fq, &c.l);
	}
	assert_false(sched_queue_crowded(c.q));
	assert_null(c.q->issue.marker.event);
	(void)go(c.q, &c.fq, &c.l);
	lock_take(&c.q->issue.lock);
	assert_false(sched_queue_crowded(c.q)); /* another thread looks */
	lock_release(&c.q->issue.lock);
	c.fq.refuse_marks = 1;
	assert_true(sched_queue_crowded(c.q));
	c.q->pending = SCHED_HAS_RUN;
	assert_false(sched_queue_crowded(c.q)); /* a run limits itself */
	c.q->pending = 0;
	fake_finish(&c.fq);
	assert_false(sched_queue_crowded(c.q));
	clocked_finish(&c);
}

/* ---- passes of the agent ---- */

static void one_pass_submits_16_of_a_queue(void **state)
{
	struct fake_queue fb = { .eager = 1 };
	struct sched_queue *b;
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	b = sched_queue_open(c.r.s, &fb, 0, 0);
	defer(&c, NULL, 40);
	sched_defer(b, &make(&fb, NULL, 1000)->c);
	assert_int_equal(clocked_step(&c, 0), 40 * US); /* more waits */
	assert_int_equal(done.n, 17);
	assert_int_equal(c.r.s->n_deferred, 24);
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 33);
	assert_false(sched_idle(c.r.s));
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 41);
	assert_int_equal(done.freed, 41);
	assert_int_equal(c.q->pending, 0);
	assert_int_equal(c.r.s->n_deferred, 0);
	assert_int_equal(c.q->fifo.n_deferred, 40);
	assert_int_equal(c.q->fifo.n_submitted, 40);
	assert_int_equal(c.q->issue.n_orders, 40);
	assert_int_equal(c.r.stats.deferred, 41);
	clocked_finish(&c);
}

static void a_pass_ranks_64_queues_and_the_next_begins_behind_them(void **state)
{
	struct fake_queue fq[70];
	struct sched_queue *q[70];
	struct clocked c;

	init(&c);
	memset(fq, 0, sizeof(fq));
	for (unsigned i = 0; i < 70; i++) {
		fq[i].eager = 1;
		q[i] = sched_queue_open(c.r.s, &fq[i], 0, 0);
		for (unsigned k = 0; k < 17; k++) {
			sched_defer(q[i], &make(&fq[i], NULL, i)->c);
		}
	}
	assert_int_equal(clocked_step(&c, 0), 40 * US);
	assert_int_equal(done.n, 64 * 16);
	assert_int_equal(c.r.s->agent.first_queue, 65);
	for (unsigned i = 0; i < 64 * 16; i++) {
		assert_int_equal(done.tag[i], i / 16); /* equal ranks in their order */
	}
	assert_int_equal(clocked_step(&c, 40 * US), 40 * US);
	assert_int_equal(done.n, 64 * 16 + 6 * 16 + 58); /* the six others first */
	for (unsigned i = 0; i < 6 * 16; i++) {
		assert_int_equal(done.tag[64 * 16 + i], 64 + i / 16);
	}
	assert_int_equal(done.tag[70 * 16], 0);
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 70 * 17);
	clocked_finish(&c);
}

static const struct ebpf_insn ranks[] = {
	I_LDX(EBPF_DW, 0, 1, offsetof(struct gbpf_dispatch_ctx, est_ns)),
	I_EXIT,
};

static void queues_come_by_the_rank_of_their_first_call(void **state)
{
	static const uint64_t est[] = { 5, 90, 90, 7, 200 };
	static const unsigned order[] = { 4, 1, 2, 3, 0 };
	struct prog p = PROG(dispatch, ranks);
	struct fake_queue fq[5];
	struct clocked c;

	init(&c);
	assert_int_equal(rig_policy_prepare(&c.r, 2, &p, 1, NULL), 0);
	c.r.dir.version[0] = 2;
	memset(fq, 0, sizeof(fq));
	for (unsigned i = 0; i < 5; i++) {
		struct sched_queue *q = sched_queue_open(c.r.s, &fq[i], 0, 0);

		c.l.est_ns = est[i];
		c.l.begin_ns = clocked_now;
		fq[i].eager = 1;
		sched_defer(q, &make(&fq[i], &c.l, i)->c);
	}
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(done.tag[i], order[i]);
	}
	clocked_finish(&c);
}

static void a_call_waits_until_it_is_ready_even_off(void **state)
{
	struct call *first;
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	first = make(&c.fq, NULL, 1);
	first->c.ready = ready;
	sched_defer(c.q, &first->c);
	defer(&c, NULL, 1);
	(void)clocked_step(&c, 0);
	assert_int_equal(done.n, 0);
	assert_int_equal(polled, 1);
	sched_set_off(c.r.s, true);
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 0);
	may_go = true;
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(done.n, 2);
	assert_int_equal(done.tag[0], 1);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_go_192_ahead_then_at_a_marker_as_many_more),
		cmocka_unit_test(without_markers_the_queue_is_asked),
		cmocka_unit_test(a_waiting_thread_gets_a_bounded_number_more),
		cmocka_unit_test(crowded_from_192_launches_on),
		cmocka_unit_test(one_pass_submits_16_of_a_queue),
		cmocka_unit_test(a_pass_ranks_64_queues_and_the_next_begins_behind_them),
		cmocka_unit_test(queues_come_by_the_rank_of_their_first_call),
		cmocka_unit_test(a_call_waits_until_it_is_ready_even_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
