/* Events: their form, what is read back after a restart, how repetitions are counted, and which
 * events a full ring gives up. Figures are literals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "daemon/history.h"

#define SECOND UINT64_C(1000000000)

static char dir[64];
static struct daemon_history h;

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-history-XXXXXX");
	return mkdtemp(dir) && daemon_history_open(&h, dir, "events") == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	char command[96];

	daemon_history_close(&h);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static void reopen(void)
{
	daemon_history_close(&h);
	assert_int_equal(daemon_history_open(&h, dir, "events"), 0);
}

static void put_file(const char *leaf, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static long size_of(const char *leaf)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

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

/* ---- files ---- */

static void everything_is_read_back(void **state)
{
	const struct daemon_history_event *e;

	daemon_history_add_of(&h, 1000, "start", 0, 0, "one");
	(void)daemon_history_add_audit(&h, 0, 13, "swap", UINT64_C(0xfedcba9876543210), "two");
	daemon_history_add(&h, "policy", -1, "three");
	reopen();
	assert_int_equal(h.n, 3);
	assert_int_equal(h.next, 4);
	assert_int_equal(h.write_errors, 0);
	e = daemon_history_get(&h, 1);
	assert_int_equal(e->uid, 1000);
	assert_int_equal(e->tenant, 0);
	assert_int_equal(e->pid, 0);
	assert_int_equal(e->hash, 0);
	assert_true(e->wall_ns > 0);
	assert_string_equal(e->kind, "start");
	assert_string_equal(e->text, "one");
	e = daemon_history_get(&h, 2);
	assert_int_equal(e->uid, 0);
	assert_int_equal(e->tenant, -1);
	assert_int_equal(e->pid, 13);
	assert_true(e->hash == UINT64_C(0xfedcba9876543210));
	e = daemon_history_get(&h, 3);
	assert_int_equal(e->uid, -1);
	assert_int_equal(e->pid, -1);
}

static void lines_that_are_no_events_are_left_out(void **state)
{
	put_file("events.jsonl",
		 "{\"seq\":1,\"kind\":\"k\",\"text\":\"1\"}\n"
		 "{\"seq\":1,\"kind\":\"k\",\"text\":\"again\"}\n"
		 "{\"seq\":0,\"kind\":\"k\",\"text\":\"zero\"}\n"
		 "{\"seq\":2,\"text\":\"no kind\"}\n"
		 "{\"seq\":2,\"kind\":\"no text\"}\n"
		 "{\"seq\":9007199254740993,\"kind\":\"k\",\"text\":\"too large\"}\n"
		 "{\"seq\":2,\"kind\":\"k\",\"text\":\"2\",\"hash\":17}\n"
		 "{\"seq\":9007199254740992,\"kind\":\"k\",\"text\":\"last\"}\n");
	reopen();
	assert_int_equal(h.n, 3);
	assert_string_equal(daemon_history_at(&h, 0)->text, "1");
	assert_string_equal(daemon_history_at(&h, 1)->text, "2");
	assert_int_equal(daemon_history_at(&h, 1)->hash, 0);
	assert_string_equal(daemon_history_at(&h, 2)->text, "last");
	assert_true(h.next == UINT64_C(9007199254740993));
}

/* A kill tears a line; the next event begins a line of its own. */
static void a_torn_line_spoils_no_other(void **state)
{
	put_file("events.jsonl", "{\"seq\":1,\"kind\":\"k\",\"text\":\"1\"}\n{\"seq\":2,\"ki");
	reopen();
	daemon_history_add(&h, "k", -1, "after");
	reopen();
	assert_int_equal(h.n, 2);
	assert_string_equal(daemon_history_get(&h, 2)->text, "after");
}

/* At 1 MiB the file becomes the predecessor, which is read back first. */
static void the_file_has_one_predecessor(void **state)
{
	char text[380];
	unsigned n = 0;
	int fd = h.fd;
	long last;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	for (last = 0; size_of("events.jsonl.1") < 0; n++) {
		last = size_of("events.jsonl");
		assert_true(last <= 1048576);
		assert_int_equal(h.bytes, (size_t)last);
		daemon_history_add_of(&h, 7, "k", -1, -1, "%s", text);
	}
	assert_true(size_of("events.jsonl.1") > 1048576);
	assert_int_equal(size_of("events.jsonl"), 0);
	assert_int_equal(h.bytes, 0);
	assert_int_equal(h.fd, fd); /* the old one was closed: its number is used again */
	assert_int_equal(h.write_errors, 0);
	daemon_history_add(&h, "k", -1, "the newest");
	reopen();
	assert_int_equal(h.next, n + 2);
	assert_int_equal(h.n, n + 1);
	assert_string_equal(daemon_history_at(&h, 0)->text, text);
	assert_string_equal(daemon_history_at(&h, n)->text, "the newest");
}

static void errors_of_the_file_are_counted(void **state)
{
	char path[96];
	int full;

	full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(full >= 0);
	assert_int_equal(dup2(full, h.fd), h.fd);
	close(full);
	daemon_history_add(&h, "k", -1, "lost on disk");
	daemon_history_add(&h, "k", -1, "lost on disk");
	assert_int_equal(h.write_errors, 2);
	assert_int_equal(h.n, 2);
	daemon_history_close(&h);
	snprintf(path, sizeof(path), "%s/nowhere", dir);
	assert_int_equal(daemon_history_open(&h, path, "events"), 0);
	assert_int_equal(h.write_errors, 1);
	assert_true(h.fd < 0);
	daemon_history_add(&h, "k", -1, "in memory");
	assert_int_equal(h.write_errors, 2); /* each event tries again */
	assert_int_equal(h.bytes, 0);
	assert_int_equal(mkdir(path, 0700), 0);
	daemon_history_add(&h, "k", -1, "on disk");
	assert_int_equal(h.write_errors, 2);
	assert_int_equal(h.bytes, size_of("nowhere/events.jsonl"));
	assert_true(h.bytes > 0);
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
		TEST(everything_is_read_back),
		TEST(lines_that_are_no_events_are_left_out),
		TEST(a_torn_line_spoils_no_other),
		TEST(the_file_has_one_predecessor),
		TEST(errors_of_the_file_are_counted),
		TEST(intervals_grow_from_10_s_to_an_hour),
		TEST(after_a_minute_of_rest_it_is_a_first_one),
		TEST(the_least_recently_repeated_of_128_is_forgotten),
		TEST(events_are_found_by_number),
		TEST(a_full_ring_gives_up_the_oldest_of_the_largest_user),
		TEST(gbpfd_keeps_1024_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
