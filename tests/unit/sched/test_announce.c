/* Announced requests: the board at once, leases and a kernel ahead of time, and the consequences of
 * wrong hints. Rhythms. Content of other tenants' boards. */
#include "lease_rig.h"

#include <errno.h>

#define MS 1000000u

static uint64_t stat_hints(const struct one *o)
{
	return o->r.stats.hints;
}

static void leases_go_up_ahead_and_the_request_takes_them_over(void **state)
{
	uint64_t at;
	struct one o;

	one_init(&o, true);
	at = fake_now + 10 * MS;
	assert_int_equal(sched_announce(o.r.s, 0, at, at + 2 * MS), 0);
	assert_int_equal(o.r.wakes, 1); /* the agent slept without a timeout */
	assert_int_equal(o.r.own.gpu[0].next_ns, at);
	assert_int_equal(o.r.own.gpu[0].deadline_ns, at + 2 * MS);
	live_until(&o, at - SCHED_LEAD_NS - 1);
	assert_int_equal(gpu.until_ns, 0);
	live_until(&o, at - SCHED_LEAD_NS + 1);
	assert_true(gpu.until_ns >= fake_now + SCHED_LEASE_NS - 1);
	assert_int_equal(o.r.own.gpu[0].open, 0); /* an announced request is not open */
	live_until(&o, at + 20000);
	go(o.q, &o.fq, &o.l);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_equal(o.r.own.gpu[0].next_ns, 0);
	assert_int_equal(o.r.own.gpu[0].deadline_ns, at + 2 * MS);
	assert_int_equal(o.r.s->req[0].deadline_ns, at + 2 * MS);
	assert_int_not_equal(gpu.until_ns, 0);
	fake_finish(&o.fq);
	live_until(&o, fake_now + MS);
	assert_int_equal(gpu.until_ns, 0);
	assert_int_equal(o.r.own.gpu[0].deadline_ns, 0);
	assert_int_equal(o.r.s->req[0].deadline_ns, 0);
	assert_int_equal(stat_hints(&o), 1);
	assert_int_equal(o.r.stats.wrong_hints, 0);
	one_finish(&o);
}

static void a_kernel_goes_ahead_where_contexts_are_switched(void **state)
{
	uint64_t at;
	struct one o;

	one_init(&o, true);
	for (int i = 0; i < 3; i++) {
		at = fake_now + 10 * MS;
		assert_int_equal(sched_announce(o.r.s, 0, at, 0), 0);
		live_until(&o, at);
		assert_int_equal(gpu.warms, i + 1);
		assert_in_range(gpu.warm_ns, at - SCHED_WARM_NS, at - SCHED_WARM_NS + 1000);
		request(&o, MS);
	}
	sched_set_lane(o.r.s, GBPF_LANE_SHARED);
	at = fake_now + 10 * MS;
	assert_int_equal(sched_announce(o.r.s, 0, at, 0), 0);
	live_until(&o, at - SCHED_LEAD_SHARED_NS - 1000); /* other tenants make way sooner there */
	assert_int_equal(gpu.until_ns, 0);
	live_until(&o, at - SCHED_LEAD_SHARED_NS + 1000);
	assert_int_not_equal(gpu.until_ns, 0);
	live_until(&o, at);
	assert_int_equal(gpu.warms, 3);
	one_finish(&o);
}

static void without_a_policy_it_is_only_said(void **state)
{
	uint64_t at;
	struct one o;

	one_init(&o, false);
	at = fake_now + 10 * MS;
	assert_int_equal(sched_announce(o.r.s, 0, at, 0), 0);
	assert_int_equal(o.r.own.gpu[0].next_ns, at);
	live_until(&o, at);
	assert_int_equal(gpu.calls, 0);
	assert_int_equal(gpu.warms, 0);
	one_finish(&o);
}

static void invalid_announcements_are_refused(void **state)
{
	struct one o;
	struct rig batch;

	one_init(&o, true);
	assert_int_equal(sched_announce(o.r.s, PROTO_MAX_GPUS, fake_now + MS, 0), -EINVAL);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now - 2 * MS, 0), -EINVAL);
	assert_int_equal(sched_announce(o.r.s, 0, 0, 0), -EINVAL);
	assert_int_equal(sched_announce(o.r.s, 0, UINT64_MAX, 0), -EINVAL);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now + SCHED_ANNOUNCE_MAX_NS + 1, 0),
			 -EINVAL);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now + MS, fake_now), -EINVAL);
	assert_int_equal(stat_hints(&o), 0);
	assert_int_equal(o.r.own.gpu[0].next_ns, 0);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now, 0), 0); /* for now */
	rig_init(&batch, GBPF_CLASS_BATCH, 0, 0);
	assert_int_equal(sched_announce(batch.s, 0, fake_now + MS, 0), -EPERM);
	rig_finish(&batch);
	one_finish(&o);
}

static void three_wrong_ones_in_a_row_silence_for_a_second(void **state)
{
	uint64_t up = 0, begin;
	struct one o;

	one_init(&o, true);
	for (unsigned i = 0; i < SCHED_WRONG_MAX; i++) {
		begin = fake_now;
		assert_int_equal(sched_announce(o.r.s, 0, fake_now + 10 * MS, 0), 0);
		while (fake_now < begin + 20 * MS) {
			live_until(&o, fake_now + MS / 10);
			up += gpu.until_ns ? 1 : 0;
		}
		assert_int_equal(gpu.until_ns, 0);
		assert_int_equal(o.r.own.gpu[0].next_ns, 0);
		assert_int_equal(o.r.stats.wrong_hints, i + 1);
	}
	assert_true(up <= SCHED_WRONG_MAX * ((SCHED_LEAD_NS + SCHED_LATE_NS) / (MS / 10) + 2));
	assert_int_equal(o.r.notes, 1);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now + 10 * MS, 0), -EAGAIN);
	live_until(&o, fake_now + SCHED_MUTE_NS);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now + 10 * MS, 0), 0);
	one_finish(&o);
}

static void a_right_one_between_forgives(void **state)
{
	struct one o;

	one_init(&o, true);
	for (int i = 0; i < 12; i++) {
		assert_int_equal(sched_announce(o.r.s, 0, fake_now + 10 * MS, 0), 0);
		live_until(&o, fake_now + 10 * MS);
		if (i % 3 == 2) {
			request(&o, MS);
		}
		live_until(&o, fake_now + 10 * MS);
	}
	assert_int_equal(o.r.stats.wrong_hints, 8);
	one_finish(&o);
}

/* Postponing again and again would hold others indefinitely. */
static void postponing_after_others_made_way_counts_as_wrong(void **state)
{
	struct one o;

	one_init(&o, true);
	for (unsigned i = 0; i < SCHED_WRONG_MAX; i++) {
		assert_int_equal(sched_announce(o.r.s, 0, fake_now + SCHED_LEAD_NS / 2, 0), 0);
		(void)step(&o);
		assert_int_not_equal(gpu.until_ns, 0);
		assert_int_equal(sched_announce(o.r.s, 0, fake_now + 2 * SCHED_LEAD_NS, 0), 0);
		(void)step(&o);
		assert_int_equal(gpu.until_ns, 0);
	}
	assert_int_equal(o.r.stats.wrong_hints, SCHED_WRONG_MAX);
	assert_int_equal(sched_announce(o.r.s, 0, fake_now + MS, 0), -EAGAIN);
	one_finish(&o);
}

static void pushing_ahead_of_oneself_is_bounded(void **state)
{
	uint64_t begin, up = 0, n = 0;
	struct one o;

	one_init(&o, true);
	begin = fake_now;
	while (fake_now < begin + 100 * (uint64_t)MS) { /* always 0.3 ms ahead, and never comes */
		(void)sched_announce(o.r.s, 0, fake_now + 300000, 0);
		live_until(&o, fake_now + 100000);
		up += gpu.until_ns ? 1 : 0;
		n++;
	}
	assert_true(n == 1000 &&
		    up <= SCHED_WRONG_MAX * ((SCHED_LEAD_NS + SCHED_LATE_NS) / 100000 + 2));
	one_finish(&o);
}

static void a_request_that_was_open_before_is_right(void **state)
{
	uint64_t at;
	struct one o;

	one_init(&o, true);
	at = fake_now + 5 * MS;
	assert_int_equal(sched_announce(o.r.s, 0, at, 0), 0);
	go(o.q, &o.fq, &o.l);
	assert_int_equal(o.r.own.gpu[0].next_ns, at); /* it may be meant for the next request */
	live_until(&o, at + SCHED_LATE_NS + MS);
	assert_int_equal(o.r.own.gpu[0].next_ns, 0);
	assert_int_equal(o.r.stats.wrong_hints, 0);
	one_finish(&o);
}

static void a_rhythm_is_learned_and_announced(void **state)
{
	uint64_t period = 10 * MS, begin;
	struct one o;

	one_init(&o, true);
	sched_set_rhythm(o.r.s, SCHED_RHYTHM_LEARN, 0);
	begin = fake_now;
	for (unsigned i = 1; i <= 40; i++) {
		uint64_t jitter = i * 7919 % 41 * 1000;

		request(&o, MS);
		live_until(&o, begin + i * period - 100000 + jitter);
		if (i > SCHED_RHYTHM_MIN_GAPS + 1) {
			assert_int_not_equal(gpu.until_ns, 0);
			assert_int_not_equal(o.r.own.gpu[0].next_ns, 0);
		}
		live_until(&o, begin + i * period + jitter);
	}
	assert_int_equal(o.r.stats.wrong_hints, 0);
	assert_true(stat_hints(&o) >= 40 - SCHED_RHYTHM_MIN_GAPS - 2);
	for (int i = 0; i < 40; i++) { /* the client stops: a few wrong announcements, then none */
		live_until(&o, fake_now + period);
	}
	assert_true(o.r.stats.wrong_hints <= 1);
	assert_int_equal(gpu.until_ns, 0);
	one_finish(&o);
}

static void no_rhythm_no_announcement(void **state)
{
	uint64_t seed = 12345;
	struct one o;

	one_init(&o, true);
	sched_set_rhythm(o.r.s, SCHED_RHYTHM_LEARN, 0);
	for (int i = 0; i < 100; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		request(&o, MS / 2);
		live_until(&o, fake_now + 2 * MS + (seed >> 33) % (30 * MS));
	}
	assert_int_equal(stat_hints(&o), 0);
	one_finish(&o);
}

static void a_period_can_be_given(void **state)
{
	struct one o;

	one_init(&o, true);
	sched_set_rhythm(o.r.s, SCHED_RHYTHM_PERIOD, 20 * (uint64_t)MS);
	for (int i = 0; i < 5; i++) {
		uint64_t begin = fake_now;

		request(&o, MS);
		assert_int_equal(o.r.own.gpu[0].next_ns, begin + 20 * MS);
		live_until(&o, begin + 20 * MS);
		assert_int_not_equal(gpu.until_ns, 0);
	}
	assert_int_equal(o.r.stats.wrong_hints, 0);
	one_finish(&o);
}

static void a_period_is_the_median_and_survives_missed_beats(void **state)
{
	struct sched_rhythm_log r = { 0 };
	uint64_t at = 1000, spread = 0;

	for (unsigned i = 0; i < SCHED_RHYTHM_MIN_GAPS; i++, at += 5 * MS) {
		assert_int_equal(sched_rhythm_period(&r, &spread), 0);
		sched_rhythm_add(&r, at);
	}
	sched_rhythm_add(&r, at);
	assert_int_equal(sched_rhythm_period(&r, &spread), 5 * MS);
	assert_int_equal(spread, 5 * MS / 16);
	sched_rhythm_add(&r, at += 10 * MS); /* one request is missing */
	sched_rhythm_add(&r, at += 5 * MS);
	assert_int_equal(sched_rhythm_period(&r, &spread), 5 * MS);
	sched_rhythm_add(&r, at += SCHED_RHYTHM_MAX_NS + 1); /* starts over */
	assert_int_equal(sched_rhythm_period(&r, &spread), 0);
	for (unsigned i = 0; i < 2 * SCHED_RHYTHM_GAPS;
	     i++) { /* too fast: leases would always be raised */
		sched_rhythm_add(&r, at += MS);
	}
	assert_int_equal(sched_rhythm_period(&r, &spread), 0);
	sched_rhythm_add(&r, at - MS); /* the clock goes back */
	sched_rhythm_add(&r, at);
}

/* ---- boards of others ---- */

static uint64_t next_seen(struct rig *r)
{
	struct sched_decision a = { 0 };
	uint64_t idle, next = 0;

	(void)sched_boards_scan(r->s, 0, fake_now, &a, &idle, &next);
	return next;
}

static void valid_announcements_of_others_are_seen(void **state)
{
	static const int64_t far[] = { 0, 1, -1, 3000000, -3000000 };
	struct proto_board third = { 0 };
	struct one o;

	one_init(&o, true);
	assert_true(next_seen(&o.r) == UINT64_MAX);
	for (unsigned i = 0; i < 5; i++) {
		o.r.other.gpu[0].next_ns = fake_now + (uint64_t)far[i];
		assert_true(next_seen(&o.r) == (uint64_t)(far[i] > 0 ? far[i] : 0));
	}
	o.r.other.gpu[0].next_ns = fake_now - SCHED_LATE_NS - 1;
	assert_true(next_seen(&o.r) == UINT64_MAX);
	o.r.other.gpu[0].next_ns = 1;
	assert_true(next_seen(&o.r) == UINT64_MAX);
	o.r.other.gpu[0].next_ns = UINT64_MAX;
	assert_true(next_seen(&o.r) == UINT64_MAX);
	o.r.other.gpu[0].next_ns = fake_now + SCHED_ANNOUNCE_MAX_NS + 1;
	assert_true(next_seen(&o.r) == UINT64_MAX);
	o.r.other.gpu[0].next_ns = fake_now + 2 * MS;
	assert_int_equal(sched_board_add(o.r.s, SCHED_BOARD_LATENCY, 5, 3, &third), 0);
	third.gpu[0].next_ns = fake_now + MS;
	assert_true(next_seen(&o.r) == MS); /* the nearest of all */
	one_finish(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leases_go_up_ahead_and_the_request_takes_them_over),
		cmocka_unit_test(a_kernel_goes_ahead_where_contexts_are_switched),
		cmocka_unit_test(without_a_policy_it_is_only_said),
		cmocka_unit_test(invalid_announcements_are_refused),
		cmocka_unit_test(three_wrong_ones_in_a_row_silence_for_a_second),
		cmocka_unit_test(a_right_one_between_forgives),
		cmocka_unit_test(postponing_after_others_made_way_counts_as_wrong),
		cmocka_unit_test(pushing_ahead_of_oneself_is_bounded),
		cmocka_unit_test(a_request_that_was_open_before_is_right),
		cmocka_unit_test(a_rhythm_is_learned_and_announced),
		cmocka_unit_test(no_rhythm_no_announcement),
		cmocka_unit_test(a_period_can_be_given),
		cmocka_unit_test(a_period_is_the_median_and_survives_missed_beats),
		cmocka_unit_test(valid_announcements_of_others_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
