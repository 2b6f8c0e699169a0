/* Slots of the boards of latency tenants: their limits, the messages about them, and the order in
 * which waiting tenants get a free one. Figures are literals: 64 slots, 16 of them for a user. */
#include "parts.h"

static void a_board_goes_to_all_other_sessions_that_are_ready(void **state)
{
	struct parts *p = parts_new();
	struct part *lc = parts_add(p, 1000, GBPF_CLASS_LATENCY);
	struct part *other = parts_add(p, 1001, GBPF_CLASS_BATCH);
	struct part *early = parts_add(p, 1001, GBPF_CLASS_BATCH);

	early->s.state = DAEMON_SESSION_WELCOMED;
	assert_false(daemon_lc_any(p->d));
	daemon_lc_publish(&lc->s);
	assert_true(daemon_lc_any(p->d));
	assert_int_equal(lc->s.lc.slot, 0);
	assert_ptr_equal(p->d->sessions.lc[0], &lc->s);
	parts_expect_board(other, PROTO_BOARD_ADD, 0, 0);
	parts_expect_board(other, 0, -1, 0);
	parts_expect_board(lc, 0, -1, 0);
	parts_expect_board(early, 0, -1, 0);
	assert_true(other->s.lc.sent == 1);
	daemon_lc_withdraw(&lc->s);
	parts_expect_board(other, PROTO_BOARD_REMOVE, 0, 0);
	parts_expect_board(early, 0, -1, 0);
	parts_expect_board(lc, 0, -1, 0);
	assert_int_equal(lc->s.lc.slot, 0); /* at once again: it is still of class latency */
	parts_expect_board(other, PROTO_BOARD_ADD, 0, 0);
	assert_true(other->s.lc.sent == 1);
	parts_free(p);
}

static void a_new_session_gets_the_boards_of_the_others(void **state)
{
	struct parts *p = parts_new();
	struct part *a = parts_add(p, 0, GBPF_CLASS_LATENCY), *b, *late;

	daemon_lc_publish(&a->s);
	b = parts_add(p, 0, GBPF_CLASS_LATENCY);
	daemon_lc_publish(&b->s);
	parts_expect_board(a, PROTO_BOARD_ADD, 1, 1);
	late = parts_add(p, 0, GBPF_CLASS_BATCH);
	daemon_lc_send_boards(&late->s);
	parts_expect_board(late, PROTO_BOARD_ADD, 0, 0);
	parts_expect_board(late, PROTO_BOARD_ADD, 1, 1);
	parts_expect_board(late, 0, -1, 0);
	assert_true(late->s.lc.sent == 3);
	daemon_lc_send_boards(&a->s); /* not its own */
	parts_expect_board(a, PROTO_BOARD_ADD, 1, 1);
	parts_expect_board(a, 0, -1, 0);
	b->s.class_id = GBPF_CLASS_BATCH;
	daemon_lc_withdraw(&b->s);
	assert_int_equal(b->s.lc.slot, -1);
	parts_expect_board(late, PROTO_BOARD_REMOVE, 1, 1);
	assert_true(late->s.lc.sent == 1);
	daemon_lc_withdraw(&b->s); /* has none */
	parts_expect_board(late, 0, -1, 0);
	assert_true(daemon_lc_any(p->d));
	parts_free(p);
}

static void there_are_64_slots(void **state)
{
	struct parts *p = parts_new();
	struct part *more, *last;

	for (int i = 0; i < 64; i++) {
		struct part *a = parts_add(p, i % 2 ? 0 : OWN_USER, GBPF_CLASS_LATENCY);

		daemon_lc_publish(&a->s);
		assert_int_equal(a->s.lc.slot, i);
	}
	more = parts_add(p, 0, GBPF_CLASS_LATENCY);
	daemon_lc_publish(&more->s);
	assert_int_equal(more->s.lc.slot, -1);
	assert_int_equal(parts_events(p, "exceeds the 64 latency tenants: its requests hold no"),
			 1);
	last = &p->part[63];
	last->s.class_id = GBPF_CLASS_NORMAL;
	daemon_lc_withdraw(&last->s);
	assert_int_equal(more->s.lc.slot, 63); /* it has waited */
	assert_int_equal(last->s.lc.slot, -1);
	assert_true(p->part[0].s.lc.sent & UINT64_C(1) << 63);
	assert_false(more->s.lc.sent & UINT64_C(1) << 63);
	parts_free(p);
}

static void a_user_has_16_of_them(void **state)
{
	struct parts *p = parts_new();
	struct part *more, *other;

	for (int i = 0; i < 16; i++) {
		struct part *a = parts_add(p, 1000, GBPF_CLASS_LATENCY);

		daemon_lc_publish(&a->s);
		assert_int_equal(a->s.lc.slot, i);
	}
	more = parts_add(p, 1000, GBPF_CLASS_LATENCY);
	daemon_lc_publish(&more->s);
	assert_int_equal(more->s.lc.slot, -1);
	assert_int_equal(parts_events(p, "exceeds the 16 latency tenants of its user"), 1);
	other = parts_add(p, 1001, GBPF_CLASS_LATENCY); /* of another user */
	daemon_lc_publish(&other->s);
	assert_int_equal(other->s.lc.slot, 16);
	other->s.class_id = GBPF_CLASS_BATCH;
	daemon_lc_withdraw(&other->s);
	assert_int_equal(more->s.lc.slot, -1); /* a slot, but not of its user */
	p->part[3].s.class_id = GBPF_CLASS_BATCH;
	daemon_lc_withdraw(&p->part[3].s);
	assert_int_equal(more->s.lc.slot, 3);
	for (int i = 0; i < 17; i++) { /* gbpfd's own user and root have no such limit */
		struct part *a = parts_add(p, i < 9 ? OWN_USER : 0, GBPF_CLASS_LATENCY);

		daemon_lc_publish(&a->s);
		assert_true(a->s.lc.slot >= 0);
	}
	parts_free(p);
}

static void the_first_that_waits_and_may_comes_next(void **state)
{
	struct parts *p = parts_new();
	struct part *held = parts_add(p, 0, GBPF_CLASS_LATENCY), *w[5];

	daemon_lc_publish(&held->s);
	for (int i = 0; i < 5; i++) {
		w[i] = parts_add(p, 0, i == 0 ? GBPF_CLASS_BATCH : GBPF_CLASS_LATENCY);
	}
	w[1]->s.dying = true;
	w[2]->s.state = DAEMON_SESSION_WELCOMED;
	held->s.class_id = GBPF_CLASS_BATCH;
	daemon_lc_withdraw(&held->s);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(w[i]->s.lc.slot, i == 3 ? 0 : -1);
	}
	parts_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_board_goes_to_all_other_sessions_that_are_ready),
		cmocka_unit_test(a_new_session_gets_the_boards_of_the_others),
		cmocka_unit_test(there_are_64_slots),
		cmocka_unit_test(a_user_has_16_of_them),
		cmocka_unit_test(the_first_that_waits_and_may_comes_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
