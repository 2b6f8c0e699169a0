/* Requests that do not end: their timeouts, and the turn of a thread that left while it looked. */
#include "open_rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_without_progress_times_out_after_a_second),
		cmocka_unit_test(progress_puts_the_timeout_off),
		cmocka_unit_test(late_looks_count_as_100_ms),
		cmocka_unit_test(a_request_is_open_for_ten_seconds_at_most),
		cmocka_unit_test(the_turn_of_a_thread_that_left_is_taken_after_a_second),
		cmocka_unit_test(an_opening_is_unseen_until_the_agent_looks),
		cmocka_unit_test(a_gpu_that_gbpfd_does_not_know_has_no_board),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
