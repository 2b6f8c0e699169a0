/* Units of gbpfd: texts, history and its files, the store, devices, the queue of a session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "daemon/gpu_list.h"
#include "daemon/history.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/session/outbox.h"
#include "daemon/policy/policy_store.h"
#include "daemon/clean_text.h"

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-parts-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static void write_text(const char *leaf, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

static int access_in(const char *leaf)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	return access(path, F_OK);
}

static void texts_become_utf8_without_controls(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "plain text", "plain text" },
		{ "\x01\x1b[0m\x7f\t\n", "??[0m???" },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
		{ "\xc0\xaf", "??" },			    /* overlong form */
		{ "\xed\xa0\x80", "???" },		    /* surrogate */
		{ "\xf4\x90\x80\x80", "????" },		    /* beyond Unicode */
		{ "\xc2\x9b", "??" },			    /* a control character of eight bits */
		{ "\xe2\x82", "??" },			    /* cut */
		{ "a\xe2\x80\xae\xe2\x80\x8f", "a??????" }, /* reverses what follows */
		{ "\xe2\x80\xa8\xe2\x81\xa6\xd8\x9c", "????????" }, /* a line, an isolate */
		{ "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5", /* the characters next to these */
		  "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5" },
		{ "\xff\xfe", "??" },
		{ "", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char s[64];

		snprintf(s, sizeof(s), "%s", rows[i].in);
		daemon_text_clean(s);
		assert_string_equal(s, rows[i].out);
	}
}

static void copies_are_terminated_whatever_comes(void **state)
{
	char out[5], raw[4] = { 'a', 'b', 'c', 'd' };

	(void)state;
	daemon_text_copy(out, sizeof(out), raw, sizeof(raw));
	assert_string_equal(out, "abcd");
	daemon_text_copy(out, 3, raw, sizeof(raw));
	assert_string_equal(out, "ab");
	daemon_text_copy(out, sizeof(out), "xyz\xe2\x82\xac", 6); /* cut within a character */
	assert_string_equal(out, "xyz?");
}

static void history_keeps_the_newest(void **state)
{
	struct daemon_history h;

	(void)state;
	assert_int_equal(daemon_history_open(&h, dir, "events"), 0);
	for (int i = 1; i <= 5000; i++) {
		daemon_history_add_of(&h, 1000, "test", i % 7, -1, "event %d", i);
	}
	assert_null(daemon_history_get(&h, 5000 - DAEMON_HISTORY_EVENTS));
	assert_non_null(daemon_history_get(&h, 5001 - DAEMON_HISTORY_EVENTS));
	assert_string_equal(daemon_history_get(&h, 5000)->text, "event 5000");
	assert_null(daemon_history_get(&h, 5001));
	assert_null(daemon_history_get(&h, UINT64_MAX));
	daemon_history_close(&h);
	assert_int_equal(daemon_history_open(&h, dir, "events"), 0); /* and again after a restart */
	assert_string_equal(daemon_history_get(&h, 5000)->text, "event 5000");
	assert_int_equal(daemon_history_get(&h, 4999)->tenant, 4999 % 7);
	daemon_history_add(&h, "test", -1, "next");
	assert_string_equal(daemon_history_get(&h, 5001)->text, "next");
	daemon_history_close(&h);
}

static void history_files_are_bounded(void **state)
{
	char long_text[380], path[128];
	struct daemon_history h;
	struct stat st;

	(void)state;
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	assert_int_equal(daemon_history_open(&h, dir, "events"), 0);
	for (int i = 0; i < 9000; i++) { /* some 4 MiB */
		daemon_history_add(&h, "test", -1, "%s", long_text);
	}
	assert_int_equal(h.write_errors, 0);
	daemon_history_close(&h);
	snprintf(path, sizeof(path), "%s/events.jsonl", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= DAEMON_HISTORY_FILE_BYTES + 1024);
	snprintf(path, sizeof(path), "%s/events.jsonl.1", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= DAEMON_HISTORY_FILE_BYTES + DAEMON_HISTORY_CARRIED_BYTES + 1024);
}

/* Users may cause as many events as both files hold. */
static void own_events_outlive_users_events_and_restarts(void **state)
{
	char long_text[380];
	struct daemon_history h;
	unsigned n = 0;

	(void)state;
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	for (unsigned round = 0; round < 3; round++) {
		assert_int_equal(daemon_history_open(&h, dir, "carried"), 0);
		for (unsigned i = 0; i < 10; i++) {
			daemon_history_add(&h, "policy", -1, "round %u, event %u", round, i);
		}
		for (unsigned i = 0; i < 9000; i++) { /* some 4 MiB */
			daemon_history_add_of(&h, 1000, "start", 3, 77, "%s", long_text);
		}
		assert_int_equal(h.write_errors, 0);
		daemon_history_close(&h);
	}
	assert_int_equal(daemon_history_open(&h, dir, "carried"), 0);
	for (unsigned i = 0; i < h.n; i++) {
		const struct daemon_history_event *e = daemon_history_at(&h, i);

		n += strcmp(e->kind, "policy") == 0;
		assert_true(i == 0 || e->seq > daemon_history_at(&h, i - 1)->seq);
	}
	assert_int_equal(n, 30);
	daemon_history_close(&h);
}

/* A full disk tears a line; the events after it are lines of their own. */
static void events_after_a_full_disk_are_readable(void **state)
{
	struct rlimit all, few;
	struct daemon_history h;
	char path[128];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/full.jsonl", dir);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(daemon_history_open(&h, dir, "full"), 0);
	daemon_history_add(&h, "test", -1, "first");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
	few = (struct rlimit){ .rlim_cur = (rlim_t)st.st_size + 20, .rlim_max = all.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
	daemon_history_add(&h, "test", -1, "torn");
	daemon_history_add(&h, "test", -1, "not written");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
	assert_int_equal(h.write_errors, 2);
	daemon_history_add(&h, "test", -1, "after");
	daemon_history_close(&h);
	assert_int_equal(daemon_history_open(&h, dir, "full"), 0);
	assert_int_equal(h.n, 2);
	assert_string_equal(daemon_history_at(&h, 0)->text, "first");
	assert_string_equal(daemon_history_at(&h, 1)->text, "after");
	daemon_history_close(&h);
}

static void a_file_that_can_be_made_again_is_used(void **state)
{
	char gone[128], path[160];
	struct daemon_history h;
	struct stat st;

	(void)state;
	snprintf(gone, sizeof(gone), "%s/later", dir);
	assert_int_equal(daemon_history_open(&h, gone, "events"), 0);
	daemon_history_add(&h, "test", -1, "in memory");
	assert_int_equal(mkdir(gone, 0700), 0);
	daemon_history_add(&h, "test", -1, "on disk");
	daemon_history_close(&h);
	snprintf(path, sizeof(path), "%s/events.jsonl", gone);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 0);
}

static void history_goes_on_without_its_file(void **state)
{
	struct daemon_history h;

	(void)state;
	assert_int_equal(daemon_history_open(&h, "/proc/nonexistent", "events"), 0);
	daemon_history_add(&h, "test", -1, "in memory");
	assert_string_equal(daemon_history_get(&h, 1)->text, "in memory");
	assert_true(h.write_errors > 0);
	daemon_history_close(&h);
}

static void damaged_history_files_are_read_as_far_as_they_go(void **state)
{
	struct daemon_history h;

	(void)state;
	write_text(
		"events.jsonl",
		"{\"seq\":3,\"wall_ns\":1,\"kind\":\"k\",\"text\":\"three\"}\n"
		"not json\n[]\n{\"seq\":2,\"kind\":\"k\",\"text\":\"older\"}\n"
		"{\"seq\":-4,\"kind\":\"k\",\"text\":\"x\"}\n{\"seq\":9223372036854775807,\"kind\":"
		"\"k\","
		"\"text\":\"x\"}\n{\"seq\":9,\"kind\":\"k\",\"text\":\"nine\"}\n{\"seq\":10,\"ki");
	assert_int_equal(daemon_history_open(&h, dir, "events"), 0);
	assert_non_null(daemon_history_get(&h, 3)); /* a gap follows it */
	assert_null(daemon_history_get(&h, 8));
	assert_string_equal(daemon_history_get(&h, 9)->text, "nine");
	assert_int_equal(h.next, 10);
	daemon_history_close(&h);
}

static void devices_are_read_from_the_drivers_folder(void **state)
{
	struct daemon_gpus t;
	char uuid[48], proc[96], path[128];

	(void)state;
	snprintf(proc, sizeof(proc), "%s/gpus", dir);
	mkdir(proc, 0755);
	assert_int_equal(daemon_gpus_open(&t, "nvidia", proc, "/nonexistent"), -ENODEV);
	assert_int_equal(daemon_gpus_open(&t, "auto", proc, "/nonexistent"), 0);
	assert_string_equal(t.kind, "soft");
	assert_int_equal(daemon_gpus_open(&t, "toaster", proc, "/nonexistent"), -EINVAL);
	assert_int_equal(daemon_gpus_open(&t, "nvidia", proc, "/dev/null"),
			 0); /* the device node alone */
	snprintf(path, sizeof(path), "%s/0000:1b:00.0", proc);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/0000:0a:00.0", proc);
	mkdir(path, 0755);
	write_text("gpus/0000:1b:00.0/information",
		   "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nGPU UUID: \t "
		   "GPU-01234567-89ab-cdef-0123-456789abcdef\n");
	write_text("gpus/0000:0a:00.0/information", "Model: broken\nGPU UUID: GPU-xyz\n");
	assert_int_equal(daemon_gpus_open(&t, "auto", proc, "/nonexistent"), 0);
	assert_string_equal(t.kind, "nvidia");
	assert_string_equal(t.d[0].name, "NVIDIA H200");
	daemon_gpu_uuid_text(t.d[0].uuid, uuid);
	assert_string_equal(uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef");
	assert_false(t.d[1].used);
}

static void devices_get_numbers_and_give_them_back(void **state)
{
	struct daemon_gpus t;
	uint8_t uuid[16];

	(void)state;
	assert_int_equal(daemon_gpus_open(&t, "soft", "", ""), 0);
	for (int i = 0; i < (int)PROTO_MAX_GPUS; i++) {
		memset(uuid, i + 1, 16);
		assert_int_equal(daemon_gpus_acquire(&t, uuid, 0, PROTO_MAX_GPUS), i);
	}
	memset(uuid, 99, 16);
	assert_int_equal(daemon_gpus_acquire(&t, uuid, 0, PROTO_MAX_GPUS), -ENOSPC);
	memset(uuid, 3, 16);
	assert_int_equal(daemon_gpus_acquire(&t, uuid, 0, PROTO_MAX_GPUS), 2);
	daemon_gpus_release(&t, 2);
	assert_true(t.d[2].used);
	daemon_gpus_release(&t, 2);
	assert_false(t.d[2].used);
	memset(uuid, 99, 16);
	assert_int_equal(daemon_gpus_acquire(&t, uuid, 0, PROTO_MAX_GPUS), 2);
	daemon_gpus_release(&t, 4711);
}

static json_t *meta(const char *name)
{
	return json_pack("{s:s,s:s}", "name", name, "hash", "00000000000000ff");
}

static void the_store_is_read_back(void **state)
{
	struct daemon_store s;
	struct buf object;
	uint64_t removed;
	char *text;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_int_equal(s.next, 1);
	assert_int_equal(
		daemon_store_write_object(s.dir, 1, "one", 3,
					  "{\"name\":\"first\",\"hash\":\"00000000000000ff\"}"),
		0);
	assert_int_equal(daemon_store_write_object(s.dir, 12, "twelve", 6, "{\"name\":\"second\"}"),
			 0);
	assert_int_equal(daemon_store_add(&s, 1, meta("first"), &removed), 0);
	assert_int_equal(daemon_store_add(&s, 12, meta("second"), &removed), 0);
	s.active[0] = s.kept[0] = 12;
	s.active[3] = s.kept[3] = 7; /* no such version */
	s.history[0][0] = 1;
	s.history[5][0] = 12;
	s.history[6][0] = 7;
	text = daemon_store_state_text(&s);
	assert_int_equal(daemon_store_write(s.dir, DAEMON_STORE_STATE, text), 0);
	free(text);
	daemon_store_close(&s);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.next, 13);
	assert_int_equal(s.active[0], 12);
	assert_int_equal(s.active[3], 0);
	assert_int_equal(s.history[0][0], 1);
	assert_int_equal(s.history[5][0], 12);
	assert_int_equal(s.history[6][0], 0);
	assert_string_equal(daemon_store_find(&s, 1)->name, "first");
	assert_int_equal(daemon_store_find(&s, 1)->hash, 255);
	assert_null(daemon_store_find(&s, 2));
	buf_init(&object);
	assert_int_equal(daemon_store_read_object(s.dir, 12, &object), 0);
	assert_string_equal(buf_text(&object), "twelve");
	buf_finish(&object);
	daemon_store_delete_files(s.dir, 12);
	daemon_store_close(&s);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.active[0], 0);
	assert_int_equal(s.next, 13); /* numbers are not reused */
	daemon_store_close(&s);
}

static void expect_history(const struct daemon_store *s, unsigned gpu, uint64_t first,
			   uint64_t second, uint64_t third)
{
	assert_int_equal(s->history[gpu][0], first);
	assert_int_equal(s->history[gpu][1], second);
	assert_int_equal(s->history[gpu][2], third);
}

static void write_state(const struct daemon_store *s)
{
	char *text = daemon_store_state_text(s);

	assert_int_equal(daemon_store_write(s->dir, DAEMON_STORE_STATE, text), 0);
	free(text);
}

static void a_history_has_each_version_once_and_no_rejected_one(void **state)
{
	struct daemon_store s;
	uint64_t removed;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (uint64_t v = 1; v <= 6; v++) {
		char text[32];

		snprintf(text, sizeof(text), "{\"name\":\"n%u\"}", (unsigned)v);
		assert_int_equal(daemon_store_write_object(s.dir, v, "x", 1, text), 0);
		assert_int_equal(daemon_store_add(&s, v, meta("x"), &removed), 0);
	}
	for (uint64_t v = 1; v <= 3; v++) {
		daemon_store_activate(&s, 0, v);
	}
	expect_history(&s, 0, 2, 1, 0);
	daemon_store_activate(&s, 0, 2); /* back, and forward again */
	expect_history(&s, 0, 3, 1, 0);
	daemon_store_activate(&s, 0, 3);
	expect_history(&s, 0, 2, 1, 0);
	daemon_store_activate(&s, 0, 3); /* the same */
	expect_history(&s, 0, 2, 1, 0);
	daemon_store_activate(&s, 1, 3);
	daemon_store_activate(&s, 1, 4);
	expect_history(&s, 1, 3, 0, 0);
	daemon_store_reject(&s, 3); /* by the watch of version 3, which was on both GPUs */
	daemon_store_activate(&s, 0, 2);
	expect_history(&s, 0, 1, 0, 0);
	expect_history(&s, 1, 0, 0, 0);
	assert_int_equal(daemon_store_last_rejected(&s)->version, 3);
	daemon_store_activate(&s, 0, 3); /* by its number */
	daemon_store_activate(&s, 0, 0); /* unloaded */
	expect_history(&s, 0, 2, 1, 0);
	daemon_store_activate(&s, 0, 4);
	daemon_store_activate(&s, 0, 5);
	daemon_store_activate(&s, 0, 6);
	daemon_store_activate(&s, 0, 1);
	expect_history(&s, 0, 6, 5, 4);
	s.kept[0] = s.active[0];
	write_state(&s);
	daemon_store_delete_files(s.dir, 5);
	daemon_store_close(&s);

	assert_int_equal(daemon_store_open(&s, dir), 0);
	expect_history(&s, 0, 6, 4, 2);
	assert_int_equal(daemon_store_last_rejected(&s)->version, 3);
	assert_true(daemon_store_find(&s, 3)->is_rejected);
	daemon_store_remove(&s, 6);
	expect_history(&s, 0, 4, 2, 0);
	daemon_store_close(&s);
}

static void a_history_of_an_earlier_gbpf_and_a_hostile_one_are_read(void **state)
{
	struct daemon_store s;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (uint64_t v = 1; v <= 2; v++) {
		assert_int_equal(daemon_store_write_object(s.dir, v, "x", 1, "{\"name\":\"x\"}"),
				 0);
	}
	assert_int_equal(
		daemon_store_write(s.dir, DAEMON_STORE_STATE, "{\"active\":[2],\"previous\":[1]}"),
		0);
	daemon_store_close(&s);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	expect_history(&s, 0, 1, 0, 0);
	assert_int_equal(daemon_store_write(s.dir, DAEMON_STORE_STATE,
					    "{\"active\":[2],\"history\":[[2,1,-1,1,1,1,1],7,\"x\","
					    "[{}]],\"rejected\":[9,\"a\",-1]}"),
			 0);
	daemon_store_close(&s);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	expect_history(&s, 0, 1, 0, 0);
	expect_history(&s, 3, 0, 0, 0);
	assert_null(daemon_store_last_rejected(&s));
	daemon_store_close(&s);
}

static void a_pipe_in_the_store_does_not_block(void **state)
{
	char path[4300];
	struct daemon_store s;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_int_equal(daemon_store_write_object(s.dir, 1, "one", 3, "{\"name\":\"first\"}"), 0);
	assert_int_equal(daemon_store_write_object(s.dir, 2, "two", 3, "{\"name\":\"second\"}"), 0);
	snprintf(path, sizeof(path), "%s/1.bpf.o", s.dir);
	assert_int_equal(unlink(path) | mkfifo(path, 0600), 0);
	snprintf(path, sizeof(path), "%s/state.json", s.dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	daemon_store_close(&s);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_null(daemon_store_find(&s, 1));
	assert_non_null(daemon_store_find(&s, 2));
	daemon_store_close(&s);
}

static void a_full_store_gives_up_the_oldest_that_is_not_in_use(void **state)
{
	struct daemon_store s;
	uint64_t removed;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (uint64_t v = 1; v <= DAEMON_STORE_VERSIONS; v++) {
		assert_int_equal(daemon_store_add(&s, v, meta("x"), &removed), 0);
		assert_int_equal(removed, 0);
	}
	s.active[0] = s.kept[0] = 1;
	s.history[3][0] = 2;
	assert_int_equal(daemon_store_add(&s, 100, meta("x"), &removed), 0);
	assert_int_equal(removed, 3);
	assert_non_null(daemon_store_find(&s, 1));
	assert_non_null(daemon_store_find(&s, 2));
	assert_null(daemon_store_find(&s, 3));
	daemon_store_close(&s);
}

/* Killed between writing a version and removing the one it replaces. */
static void too_many_files_never_remove_versions_in_use(void **state)
{
	struct daemon_store s;
	char *text;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (uint64_t v = 1; v <= DAEMON_STORE_VERSIONS + 6; v++) {
		assert_int_equal(daemon_store_write_object(s.dir, v, "x", 1, "{\"name\":\"x\"}"),
				 0);
	}
	s.active[0] = s.kept[0] = 1;
	s.history[0][0] = 2;
	text = daemon_store_state_text(&s);
	assert_int_equal(daemon_store_write(s.dir, DAEMON_STORE_STATE, text), 0);
	free(text);
	write_text("policies/99.bpf.o.part", "half");
	write_text("policies/98.bpf.o", "without its description");
	daemon_store_close(&s);
	for (int again = 0; again < 2; again++) {
		assert_int_equal(daemon_store_open(&s, dir), 0);
		assert_int_equal(s.n, DAEMON_STORE_VERSIONS);
		assert_int_equal(s.active[0], 1);
		assert_int_equal(s.history[0][0], 2);
		assert_non_null(daemon_store_find(&s, 2));
		assert_non_null(daemon_store_find(&s, DAEMON_STORE_VERSIONS + 6));
		assert_null(daemon_store_find(&s, 3));
		daemon_store_close(&s);
	}
	assert_true(access_in("policies/99.bpf.o.part") < 0 && access_in("policies/98.bpf.o") < 0);
	assert_true(access_in("policies/3.bpf.o") < 0);
}

static void a_failing_disk_is_reported(void **state)
{
	(void)state;
	assert_true(daemon_store_write_object("/proc/nonexistent", 1, "x", 1, "{}") < 0);
	assert_true(daemon_store_write("/proc/nonexistent", DAEMON_STORE_STATE, "{}") < 0);
}

static void the_outbox_is_ordered_and_bounded(void **state)
{
	struct daemon_outbox o = { 0 };
	union proto_message m, got;
	int pair[2], fds[8], r;
	unsigned n, sent = 0, seen = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	do {
		memset(&m, 0, sizeof(m));
		m.board.slot = sent++;
		r = daemon_outbox_send(&o, pair[0], &m, PROTO_BOARD_ADD, &pair[1], 1);
	} while (r >= 0 && sent < 100000);
	assert_int_equal(r, -ENOBUFS);
	assert_int_equal(o.n, DAEMON_OUTBOX_MESSAGES);
	sent--;
	while (seen < sent) {
		if (proto_recv(pair[1], &got, fds, &n) == -EAGAIN) {
			assert_true(daemon_outbox_flush(&o, pair[0]) >= 0);
			continue;
		}
		assert_int_equal(got.board.slot, seen++);
		assert_int_equal(n, 1);
		close(fds[0]);
	}
	assert_int_equal(daemon_outbox_flush(&o, pair[0]), 0);
	assert_int_equal(o.n, 0);
	daemon_outbox_finish(&o);
	close(pair[0]);
	close(pair[1]);
}

#define IN_FOLDER(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

static unsigned events_of(const struct daemon_history *h, int64_t uid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n; i++) {
		n += daemon_history_at(h, i)->uid == uid;
	}
	return n;
}

static void a_user_that_floods_the_history_removes_only_its_own_events(void **state)
{
	static struct daemon_history h;

	(void)state;
	assert_int_equal(daemon_history_open(&h, dir, "flood"), 0);
	for (int i = 0; i < 20; i++) {
		daemon_history_add(&h, "policy", -1, "swap %d", i);
		daemon_history_add_of(&h, 1001, "start", 1, 10, "start %d", i);
	}
	for (unsigned i = 0; i < 3 * DAEMON_HISTORY_EVENTS; i++) {
		daemon_history_add_of(&h, 1002, "dropped", 2, 20, "flood %u", i);
	}
	assert_int_equal(events_of(&h, -1), 20);
	assert_int_equal(events_of(&h, 1001), 20);
	assert_int_equal(events_of(&h, 1002), DAEMON_HISTORY_EVENTS - 40);
	assert_int_equal(daemon_history_at(&h, 0)->seq, 1);
	assert_int_equal(daemon_history_at(&h, h.n - 1)->seq, h.next - 1);
	assert_int_equal(daemon_history_after(&h, h.next - 1), h.n);
	for (unsigned i = 1; i < h.n; i++) {
		assert_true(daemon_history_at(&h, i)->seq > daemon_history_at(&h, i - 1)->seq);
	}
	for (unsigned i = 0; i < 2 * DAEMON_HISTORY_EVENTS; i++) { /* an operator's script */
		daemon_history_add(&h, "policy", -1, "swap %u", i);
	}
	assert_int_equal(events_of(&h, 1001), 20);
	assert_true(events_of(&h, 1002) > 1000); /* halves */
	daemon_history_close(&h);
}

static void users_have_budgets_of_their_own(void **state)
{
	static struct daemon_users u;
	const uint64_t now = 5000000000u;

	(void)state;
	daemon_user_of(&u, 1000, now)->events.n = 7;
	for (uid_t i = 0; i < DAEMON_USERS - 1; i++) {
		assert_int_equal(daemon_user_of(&u, 2000 + i, now)->events.n, 0);
	}
	assert_int_equal(daemon_user_of(&u, 1000, now)->events.n, 7);
	assert_ptr_equal(daemon_user_of(&u, 5000, now), &u.rest); /* many ids are one user */
	assert_ptr_equal(daemon_user_of(&u, 5001, now), &u.rest);
	assert_ptr_not_equal(daemon_user_of(&u, 5001, now + 61000000000u), &u.rest);
}

static unsigned events(const struct daemon_history *h, const char *with)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n; i++) {
		n += strstr(daemon_history_at(h, i)->text, with) != NULL;
	}
	return n;
}

/* A lasting state is reported at once, and then at growing intervals with its repetitions. */
static void repeated_events_are_written_at_growing_intervals(void **state)
{
	static struct daemon_history h;
	uint64_t now = UINT64_C(1000000000);

	assert_int_equal(daemon_history_open(&h, dir, "events"), 0);
	for (unsigned i = 0; i < 3600; i++, now += UINT64_C(500000000)) { /* half an hour */
		daemon_history_repeat(&h, now, 1000, "preempt", 3, 30, "stopped");
	}
	assert_int_equal(events(&h, "stopped"), 4); /* at 0, 10 s, 70 s, 670 s */
	assert_int_equal(events(&h, "(and 19 more in the 10 s before)"), 1);
	assert_int_equal(events(&h, "(and 1199 more in the 600 s before)"), 1);
	daemon_history_repeat(&h, now, 1000, "preempt", 4, 40, "another tenant");
	daemon_history_repeat(&h, now, 1000, "hold-limit", 3, 30, "another kind");
	daemon_history_repeat(&h, now, 1000, "preempt", 3, 31, "another process, of that number");
	assert_int_equal(events(&h, "another"), 3);
	now += UINT64_C(61000000000);
	daemon_history_repeat(&h, now, 1000, "preempt", 3, 30, "anew");
	daemon_history_repeat(&h, now + 1, 1000, "preempt", 3, 30, "anew");
	assert_int_equal(events(&h, "anew"), 1);
	for (int i = 0; i < 1000; i++) { /* more than the table holds */
		daemon_history_repeat(&h, ++now, 1000, "preempt", 100 + i, 1, "many");
	}
	assert_int_equal(events(&h, "many"), 1000);
	daemon_history_close(&h);
}

/* Process IDs are reused. */
static void the_exit_of_an_earlier_process_with_the_same_id_is_not_found(void **state)
{
	static struct daemon d;
	uint64_t begun = clock_now_ns();
	const struct daemon_mps_exit *f;

	(void)state;
	daemon_mps_exit_add(&d, 30, 0, 2, "before");
	f = daemon_mps_exit_find(&d, 30, clock_now_ns() - begun);
	assert_non_null(f);
	assert_string_equal(f->why, "before");
	assert_null(daemon_mps_exit_find(&d, 31, UINT64_MAX));
	begun = clock_now_ns();
	while (clock_now_ns() == begun) {
	}
	assert_null(daemon_mps_exit_find(&d, 30, 0)); /* a child that was just started */
	daemon_mps_exit_add(&d, 30, 0, 1, "after");
	assert_string_equal(daemon_mps_exit_find(&d, 30, UINT64_MAX)->why, "after");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_become_utf8_without_controls),
		cmocka_unit_test(copies_are_terminated_whatever_comes),
		IN_FOLDER(history_keeps_the_newest),
		IN_FOLDER(history_files_are_bounded),
		IN_FOLDER(own_events_outlive_users_events_and_restarts),
		IN_FOLDER(events_after_a_full_disk_are_readable),
		IN_FOLDER(a_file_that_can_be_made_again_is_used),
		IN_FOLDER(history_goes_on_without_its_file),
		IN_FOLDER(damaged_history_files_are_read_as_far_as_they_go),
		IN_FOLDER(devices_are_read_from_the_drivers_folder),
		IN_FOLDER(repeated_events_are_written_at_growing_intervals),
		cmocka_unit_test(the_exit_of_an_earlier_process_with_the_same_id_is_not_found),
		cmocka_unit_test(devices_get_numbers_and_give_them_back),
		IN_FOLDER(the_store_is_read_back),
		IN_FOLDER(a_history_has_each_version_once_and_no_rejected_one),
		IN_FOLDER(a_history_of_an_earlier_gbpf_and_a_hostile_one_are_read),
		IN_FOLDER(a_pipe_in_the_store_does_not_block),
		IN_FOLDER(a_full_store_gives_up_the_oldest_that_is_not_in_use),
		IN_FOLDER(too_many_files_never_remove_versions_in_use),
		cmocka_unit_test(a_failing_disk_is_reported),
		IN_FOLDER(a_user_that_floods_the_history_removes_only_its_own_events),
		cmocka_unit_test(users_have_budgets_of_their_own),
		cmocka_unit_test(the_outbox_is_ordered_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
