/* Boards of other tenants: which are read, what a scan of them counts, and when they are quiet. */
#include "clocked.h"

#include <errno.h>

struct scan {
	uint32_t open;
	uint64_t idle_ns, next_ns;
	struct sched_decision a;
};

static struct scan scan(struct clocked *c)
{
	struct scan s = { .idle_ns = 1 };

	s.open = sched_boards_scan(c->r.s, 0, clocked_now, &s.a, &s.idle_ns, &s.next_ns);
	return s;
}

static void places_are_bounded_and_taken_once(void **state)
{
	struct proto_board b = { 0 };
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH); /* place 3 is tenant 2's */
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, PROTO_MAX_LC, 5, &b), -EINVAL);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 0, 5, NULL), -EINVAL);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 3, 5, &b), -EEXIST);
	assert_int_equal(c.r.s->boards.n, 4);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, PROTO_MAX_LC - 1, 5, &b), 0);
	assert_int_equal(c.r.s->boards.n, PROTO_MAX_LC);
	assert_int_equal(c.r.s->boards.slot[PROTO_MAX_LC - 1].tenant, 5);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 0, 1, &b),
			 0); /* this process's own is left out */
	assert_null(c.r.s->boards.slot[0].board);
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, PROTO_MAX_LC));
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, 2)); /* none is there */
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, PROTO_MAX_LC - 1));
	assert_int_equal(c.r.s->boards.n, 4);
	assert_true(sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, 3));
	assert_int_equal(c.r.s->boards.n, 0);
	assert_null(c.r.s->boards.slot[3].board);
	sched_after_fork_child(c.r.s);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 3, 5, &b), -EINVAL);
	clocked_finish(&c);
}

static void open_requests_of_all_boards_are_counted(void **state)
{
	struct proto_board second = { 0 }, third = { 0 };
	struct clocked c;
	struct scan s;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 1, 7, &second), 0);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 9, 8, &third), 0);
	s = scan(&c);
	assert_int_equal(s.open, 0);
	assert_null(s.a.word);
	assert_true(s.idle_ns == UINT64_MAX && s.next_ns == UINT64_MAX);
	second.gpu[0].open = 2;
	second.gpu[0].seq = 41;
	c.r.other.gpu[0].open = 3;
	c.r.other.gpu[0].seq = 42;
	third.gpu[0].last_end_ns = clocked_now - 5;
	s = scan(&c);
	assert_int_equal(s.open, 5);
	assert_int_equal(s.idle_ns, 0);
	assert_ptr_equal(s.a.word, &second.gpu[0].seq); /* the first that is open is waited for */
	assert_int_equal(s.a.seq, 41);
	second.gpu[0].open = 4097; /* what one board may claim is limited */
	s = scan(&c);
	assert_int_equal(s.open, 4099);
	second.gpu[1].open = second.gpu[0].open;
	second.gpu[0].open = c.r.other.gpu[0].open = 0; /* another GPU's do not count */
	s = scan(&c);
	assert_int_equal(s.open, 0);
	assert_null(s.a.word);
	clocked_finish(&c);
}

static void the_last_end_of_all_boards_counts(void **state)
{
	struct proto_board second = { 0 };
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 1, 7, &second), 0);
	c.r.other.gpu[0].last_end_ns = clocked_now - 700;
	assert_int_equal(scan(&c).idle_ns, 700);
	second.gpu[0].last_end_ns = clocked_now - 900;
	assert_int_equal(scan(&c).idle_ns, 700);
	second.gpu[0].last_end_ns = clocked_now - 300;
	assert_int_equal(scan(&c).idle_ns, 300);
	second.gpu[0].last_end_ns = clocked_now; /* just now, or a clock that is ahead: 1 ns ago */
	assert_int_equal(scan(&c).idle_ns, 1);
	second.gpu[0].last_end_ns = clocked_now + SECOND;
	assert_int_equal(scan(&c).idle_ns, 1);
	clocked_finish(&c);
}

static void announcements_count_up_to_5_ms_late_and_10_s_ahead(void **state)
{
	static const struct {
		int64_t at; /* from now */
		uint64_t next_ns;
	} cases[] = {
		{ 1, 1 },
		{ 0, 0 },
		{ -1, 0 },
		{ -5000000, 0 },
		{ -5000001, UINT64_MAX },
		{ 10 * INT64_C(1000000000), 10 * UINT64_C(1000000000) },
		{ 10 * INT64_C(1000000000) + 1, UINT64_MAX },
	};
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		c.r.other.gpu[0].next_ns = clocked_now + (uint64_t)cases[i].at;
		assert_true(scan(&c).next_ns == cases[i].next_ns);
	}
	clocked_finish(&c);
}

static void quiet_is_without_requests_since_then(void **state)
{
	struct proto_board second = { 0 };
	uint64_t since;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	since = clocked_now - 1000;
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, true));
	c.r.other.gpu[0].last_end_ns = since - 1;
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, true));
	c.r.other.gpu[0].last_end_ns = since;
	assert_false(sched_boards_quiet_since(c.r.s, 0, since, true));
	assert_false(sched_boards_quiet_since(c.r.s, 0, since, false));
	c.r.other.gpu[0].last_end_ns = clocked_now + SECOND; /* at most that wrong */
	assert_false(sched_boards_quiet_since(c.r.s, 0, since, true));
	c.r.other.gpu[0].last_end_ns = clocked_now + SECOND + 1; /* not to be trusted */
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, true));
	assert_int_equal(sched_board_add(c.r.s, SCHED_BOARD_LATENCY, 1, 7, &second), 0);
	second.gpu[0].open = 1;
	assert_false(sched_boards_quiet_since(c.r.s, 0, since, true));
	assert_true(sched_boards_quiet_since(c.r.s, 1, since, true)); /* the other GPU */
	second.gpu[0].open = 0;
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, true));
	c.r.s->req[0].open = SCHED_REQUEST_OPEN; /* this process's own, where it counts */
	assert_false(sched_boards_quiet_since(c.r.s, 0, since, true));
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, false));
	c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
	c.r.other.gpu[0].last_end_ns = since;
	c.r.s->policy.gpu[0].index = PROTO_MAX_GPUS; /* a GPU that gbpfd does not know */
	assert_true(sched_boards_quiet_since(c.r.s, 0, since, true));
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_bounded_and_taken_once),
		cmocka_unit_test(open_requests_of_all_boards_are_counted),
		cmocka_unit_test(the_last_end_of_all_boards_counts),
		cmocka_unit_test(announcements_count_up_to_5_ms_late_and_10_s_ahead),
		cmocka_unit_test(quiet_is_without_requests_since_then),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
