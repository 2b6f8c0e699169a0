/* Events: their form, how repetitions are counted, and which events a full ring gives up. Figures
 * are literals. */
#include "history_rig.h"

#include <string.h>

#include "base/buf.h"

#define SECOND UINT64_C(1000000000)

/* The JSON of the newest event, compact. */
static void expect_json(const char *expected)
{
	struct daemon_history_event e = *daemon_history_at(&h, h.n - 1);
	json_t *j;
	char *text;

	e.wall_ns = 5;
	j = daemon_history_json(&e);
	text = json_dumps(j, JSON_COMPACT);
	assert_string_equal(text, expected);
	free(text);
	json_decref(j);
}

static void events_name_what_they_concern(void **state)
{
	const struct daemon_history_event *e;

	daemon_history_add(&h, "policy", -1, "swap %d", 7);
	expect_json("{\"seq\":1,\"wall_ns\":5,\"kind\":\"policy\",\"text\":\"swap 7\"}");
	daemon_history_add(&h, "policy", 0, "x");
	expect_json("{\"seq\":2,\"wall_ns\":5,\"kind\":\"policy\",\"pid\":0,\"text\":\"x\"}");
	daemon_history_add_of(&h, 0, "start", 0, 12, "x");
	expect_json("{\"seq\":3,\"wall_ns\":5,\"kind\":\"start\",\"tenant\":0,\"pid\":12,\"uid\":0,"
		    "\"text\":\"x\"}");
	e = daemon_history_add_audit(&h, 1000, 13, "swap", 255, "y");
	assert_int_equal(e->seq, 4);
	expect_json("{\"seq\":4,\"wall_ns\":5,\"kind\":\"swap\",\"pid\":13,\"uid\":1000,"
		    "\"hash\":\"00000000000000ff\",\"text\":\"y\"}");
	assert_true(daemon_history_at(&h, 0)->wall_ns > 0);
	assert_int_equal(h.next, 5);
}

static void texts_are_cleaned_and_cut(void **state)
{
	char text[600];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	daemon_history_add(&h, "k\x01i", -1, "a\nb");
	assert_string_equal(daemon_history_at(&h, 0)->kind, "k?i");
	assert_string_equal(daemon_history_at(&h, 0)->text, "a?b");
	daemon_history_add(&h, "a-kind-that-is-too-long-for-it", -1, "%s", text);
	assert_int_equal(strlen(daemon_history_at(&h, 1)->kind), 23);
	assert_int_equal(strlen(daemon_history_at(&h, 1)->text), 399);
}

static void users_read_their_own_events_and_those_of_gbpfd(void **state)
{
	static const struct {
		int64_t uid;
		int32_t tenant;
		bool may;
	} cases[] = {
		{ -1, -1, true },  { -1, 0, false },   { 1000, -1, true },
		{ 1000, 3, true }, { 1001, 3, false }, { 0, -1, false },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct daemon_history_event e = { .uid = cases[i].uid, .tenant = cases[i].tenant };

		assert_int_equal(daemon_history_may_read(&e, 1000), cases[i].may);
	}
}

static unsigned heard;
static uint64_t heard_seq;

static void hear(void *arg, const struct daemon_history_event *e)
{
	assert_ptr_equal(arg, &heard);
	heard++;
	heard_seq = e->seq;
}

static void a_listener_hears_each_event(void **state)
{
	h.listener = hear;
	h.arg = &heard;
	heard = 0;
	daemon_history_add(&h, "a", -1, "x");
	daemon_history_add_of(&h, 5, "a", -1, -1, "x");
	assert_int_equal(heard, 2);
	assert_int_equal(heard_seq, 2);
}

/* ---- repetitions ---- */

static bool repeats(uint64_t now, int tenant)
{
	unsigned before = h.n;

	daemon_history_repeat(&h, now, 1000, "preempt", tenant, 30, "stopped");
	return h.n > before;
}

static void intervals_grow_from_10_s_to_an_hour(void **state)
{
	static const unsigned waits[] = { 10, 60, 600, 3600, 3600 };
	uint64_t now = 1000 * SECOND;

	assert_true(repeats(now, 1));
	for (unsigned i = 0; i < 5; i++) {
		uint64_t until = now + waits[i] * SECOND;

		for (now += 30 * SECOND; now < until; now += 30 * SECOND) {
			assert_false(repeats(now, 1)); /* lasts: it never pauses for a minute */
		}
		assert_false(repeats(until - 1, 1));
		assert_true(repeats(until, 1));
		now = until;
	}
	assert_non_null(
		strstr(daemon_history_at(&h, 1)->text, "stopped (and 1 more in the 10 s before)"));
	assert_non_null(
		strstr(daemon_history_at(&h, 2)->text, "stopped (and 2 more in the 60 s before)"));
	assert_non_null(strstr(daemon_history_at(&h, 3)->text, "more in the 600 s before)"));
	assert_int_equal(daemon_history_at(&h, 3)->uid, 1000);
	assert_int_equal(daemon_history_at(&h, 3)->tenant, 1);
	assert_int_equal(daemon_history_at(&h, 3)->pid, 30);
}

static void after_a_minute_of_rest_it_is_a_first_one(void **state)
{
	uint64_t now = 1000 * SECOND;

	assert_true(repeats(now, 1));
	assert_true(repeats(now += 10 * SECOND, 1)); /* the next would come after a minute */
	assert_false(repeats(now += 1 * SECOND, 1));
	assert_false(repeats(now += 58 * SECOND, 1));
	assert_true(repeats(now += 60 * SECOND, 1));
	assert_non_null(strstr(daemon_history_at(&h, 2)->text, "(and 2 more in the 119 s before)"));
	assert_true(repeats(now += 10 * SECOND, 1)); /* as after the first */
	assert_string_equal(daemon_history_at(&h, 3)->text, "stopped");
}

static void the_least_recently_repeated_of_128_is_forgotten(void **state)
{
	uint64_t now = 1000 * SECOND;

	for (int t = 0; t < 128; t++) {
		assert_true(repeats(now + (unsigned)t, t));
	}
	for (int t = 0; t < 128; t++) {
		assert_false(repeats(now + 200, t)); /* all are known */
	}
	assert_false(repeats(now + 300, 0));
	for (int t = 2; t < 128; t++) {
		assert_false(repeats(now + 300, t));
	}
	assert_true(repeats(now + 400, 128)); /* takes the place of tenant 1 */
	assert_false(repeats(now + 500, 0));
	assert_false(repeats(now + 500, 127));
	assert_true(repeats(now + 500, 1));
}

/* ---- the ring ---- */

static unsigned of_user(int64_t uid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h.n; i++) {
		n += daemon_history_at(&h, i)->uid == uid;
	}
	return n;
}

static void append(int64_t uid, unsigned n)
{
	while (n--) {
		daemon_history_append(&h, h.next)->uid = uid;
	}
}

static void events_are_found_by_number(void **state)
{
	(void)daemon_history_append(&h, 3);
	(void)daemon_history_append(&h, 5);
	(void)daemon_history_append(&h, 6);
	assert_int_equal(h.next, 7);
	assert_int_equal(daemon_history_after(&h, 0), 0);
	assert_int_equal(daemon_history_after(&h, 2), 0);
	assert_int_equal(daemon_history_after(&h, 3), 1);
	assert_int_equal(daemon_history_after(&h, 4), 1);
	assert_int_equal(daemon_history_after(&h, 5), 2);
	assert_int_equal(daemon_history_after(&h, 6), 3);
	assert_null(daemon_history_get(&h, 0));
	assert_null(daemon_history_get(&h, 4));
	assert_null(daemon_history_get(&h, 7));
	assert_int_equal(daemon_history_get(&h, 3)->seq, 3);
	assert_int_equal(daemon_history_get(&h, 6)->seq, 6);
	assert_null(daemon_history_at(&h, 3));
}

static void a_full_ring_gives_up_the_oldest_of_the_largest_user(void **state)
{
	append(1, 100);
	append(2, 2000);
	append(3, 1996);
	assert_int_equal(h.n, 4096);
	append(3, 1);
	assert_int_equal(h.n, 4096);
	assert_int_equal(of_user(2), 1999);
	assert_int_equal(daemon_history_at(&h, 0)->seq, 1);
	assert_int_equal(daemon_history_at(&h, 100)->seq, 102); /* the oldest of user 2 */
	assert_int_equal(daemon_history_at(&h, 4095)->seq, 4097);
	append(3, 100);
	assert_int_equal(of_user(1), 100);
	assert_int_equal(of_user(2) + of_user(3), 3996);
	assert_in_range(of_user(2), 1997, 1999);
}

/* 1024 events of gbpfd itself are safe from users. */
static void gbpfd_keeps_1024_events(void **state)
{
	append(-1, 1100);
	append(1, 900);
	append(2, 900);
	append(3, 1196);
	append(4, 50); /* 1196, then 1100 are the most */
	assert_int_equal(of_user(3), 1146);
	append(4, 300);
	assert_true(of_user(-1) >= 1024);
	append(5, 2000);
	assert_int_equal(of_user(-1), 1024);
	append(-1, 5000);
	assert_true(of_user(-1) > 1024);
	assert_true(of_user(5) > 500);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(events_name_what_they_concern),
		TEST(texts_are_cleaned_and_cut),
		cmocka_unit_test(users_read_their_own_events_and_those_of_gbpfd),
		TEST(a_listener_hears_each_event),
		TEST(intervals_grow_from_10_s_to_an_hour),
		TEST(after_a_minute_of_rest_it_is_a_first_one),
		TEST(the_least_recently_repeated_of_128_is_forgotten),
		TEST(events_are_found_by_number),
		TEST(a_full_ring_gives_up_the_oldest_of_the_largest_user),
		TEST(gbpfd_keeps_1024_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
