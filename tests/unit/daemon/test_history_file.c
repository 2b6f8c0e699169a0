/* The file of events: what is read back after a restart, its predecessor, and its errors. */
#include "history_rig.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(everything_is_read_back),	      TEST(lines_that_are_no_events_are_left_out),
		TEST(a_torn_line_spoils_no_other),    TEST(the_file_has_one_predecessor),
		TEST(errors_of_the_file_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
