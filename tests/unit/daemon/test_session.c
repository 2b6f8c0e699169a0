/* Sessions of a running gbpfd: pages and their seals, boards of latency tenants, exits, hostile
 * processes. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"

enum { LATENCY, NORMAL, BATCH };

/* Returns the number of gbpfd's descriptors when only the test's own connection is left and no exit
 * record is pending. */
static unsigned settled_fds(struct gd *d)
{
	eventually(gd_number(d, "status", "connections") == 1 &&
		   gd_number(d, "status", "ending") == 0);
	return count_fds(d->pid);
}

/* Waits until gbpfd has that many descriptors: a thread of its own may have some open for a
 * moment. */
static void await_fds(struct gd *d, unsigned n)
{
	eventually(settled_fds(d) == n);
}

static bool can_map_writable(int fd)
{
	void *p = shm_map(fd, PROTO_PAGE_BYTES, 1);

	shm_unmap(p, PROTO_PAGE_BYTES);
	return p != NULL;
}

static void a_process_becomes_a_tenant(void **state)
{
	struct gd *d = *state;
	struct fake f;
	json_t *ps, *t;

	fake_enter(&f, d, BATCH, "worker");
	assert_int_equal(f.tenant, 0);
	assert_int_equal(f.welcome.class_id, BATCH);
	assert_int_equal(f.welcome.weight, 100);
	assert_int_equal(f.welcome.hold_limit_ns, 100000000);
	assert_int_equal(f.welcome.min_share_ppm, 20000);
	assert_int_equal(f.dir->magic, PROTO_DIRECTORY_MAGIC);
	assert_int_equal(f.dir->abi, PROTO_ABI);
	assert_true(f.dir->generation != 0);
	ps = gd_call(d, "ps", NULL);
	t = json_array_get(json_object_get(ps, "tenants"), 0);
	assert_string_equal(json_string_value(json_object_get(t, "name")), "worker");
	assert_string_equal(json_string_value(json_object_get(t, "class")), "batch");
	assert_string_equal(json_string_value(json_object_get(t, "command")), "./worker --fast");
	assert_string_equal(json_string_value(json_object_get(t, "state")), "running");
	assert_int_equal(json_integer_value(json_object_get(t, "pid")), getpid());
	json_decref(ps);
	fake_leave(&f);
}

static void pages_are_sealed_once_they_are_mapped(void **state)
{
	struct gd *d = *state;
	struct fake f;

	fake_enter(&f, d, NORMAL, "sealed");
	gd_await_event(d, 0, "start", "sealed");
	assert_false(can_map_writable(f.dir_fd));
	assert_false(can_map_writable(f.board_fd));
	assert_false(can_map_writable(f.stats_fd));
	assert_int_equal(ftruncate(f.board_fd, 1), -1);
	assert_int_equal(pwrite(f.dir_fd, "x", 1, 0), -1);
	f.board->gpu[0].open = 1; /* its existing mapping stays writable */
	fake_leave(&f);
}

static void boards_of_latency_tenants_are_sent_to_all_sessions(void **state)
{
	struct gd *d = *state;
	struct fake batch, lc, late;
	union proto_message m;
	const struct proto_board *seen;
	int fd;

	fake_enter(&batch, d, BATCH, "batch");
	fake_enter(&lc, d, LATENCY, "lc");
	fd = fake_expect(&batch, &m, PROTO_BOARD_ADD);
	assert_int_equal(m.board.tenant, lc.tenant);
	assert_int_equal(shm_check(fd, PROTO_PAGE_BYTES), 0);
	assert_false(can_map_writable(fd));
	seen = shm_map(fd, PROTO_PAGE_BYTES, 0);
	store_seqcst(&lc.board->gpu[0].open, 3u);
	assert_int_equal(load_seqcst(&seen->gpu[0].open), 3);
	close(fd);
	fake_enter(&late, d, BATCH, "late"); /* receives the existing boards */
	close(fake_expect(&late, &m, PROTO_BOARD_ADD));
	assert_int_equal(m.board.tenant, lc.tenant);
	fake_leave(&lc);
	fake_expect(&batch, &m, PROTO_BOARD_REMOVE);
	assert_int_equal(m.board.slot, 0);
	fake_expect(&late, &m, PROTO_BOARD_REMOVE);
	assert_int_equal(load_seqcst(&seen->gpu[0].open), 0);
	assert_int_equal(load_seqcst(&seen->gpu[0].seq), 1);
	shm_unmap((void *)(uintptr_t)seen, PROTO_PAGE_BYTES);
	fake_leave(&batch);
	fake_leave(&late);
}

static void set_publishes_and_withdraws_a_board(void **state)
{
	struct gd *d = *state;
	struct fake a, b;
	union proto_message m;

	fake_enter(&a, d, BATCH, "a");
	fake_enter(&b, d, BATCH, "b");
	gd_await_event(d, 0, "start", "b (pid");
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"class\":\"latency\",\"weight\":7}"));
	fake_expect(&b, &m, PROTO_SET);
	assert_int_equal(m.set.class_id, LATENCY);
	assert_int_equal(m.set.weight, 7);
	close(fake_expect(&a, &m, PROTO_BOARD_ADD));
	assert_int_equal(m.board.tenant, 1);
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"class\":\"normal\"}"));
	fake_expect(&a, &m, PROTO_BOARD_REMOVE);
	fake_leave(&a);
	fake_leave(&b);
}

static void settings_changed_before_the_pages_are_mapped_are_sent(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake f;

	fake_connect(&f, d);
	fake_say_hello(&f, BATCH, 100, "early");
	while (gd_number(d, "status", "tenants") == 0) {
	}
	json_decref(gd_call(d, "set", "{\"tenant\":0,\"weight\":9}"));
	fake_welcomed(&f);
	assert_int_equal(f.welcome.weight, 100);
	fake_expect(&f, &m, PROTO_SET);
	assert_int_equal(m.set.weight, 9);
	fake_leave(&f);
}

static void set_refuses_unknown_tenants_and_classes(void **state)
{
	static const char *const params[] = { "{\"tenant\":77,\"class\":\"batch\"}",
					      "{\"tenant\":0,\"class\":\"urgent\"}",
					      "{\"tenant\":0,\"weight\":0}",
					      "{\"tenant\":0,\"weight\":10001}",
					      "{\"tenant\":0,\"weight\":\"heavy\"}",
					      "{\"tenant\":-1}",
					      "{}" };
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct fake f;

	fake_enter(&f, d, BATCH, "f");
	for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
		assert_true(gbpf_call(g, "set", params[i], -1, NULL) < 0);
		assert_true(gbpf_last_error(g)->exit == 2 || gbpf_last_error(g)->exit == 5);
	}
	gbpf_close(g);
	fake_leave(&f);
}

/* Without pidfds gbpfd sees only the socket. */
static void skip_without_pidfd(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0) {
		skip();
	}
	close(fd);
}

/* Waits on the board as a held launch does. */
static void *wait_for_board(void *arg)
{
	const struct proto_board *b = arg;

	for (;;) {
		uint32_t seq = load_seqcst(&b->gpu[0].seq);

		if (!load_seqcst(&b->gpu[0].open)) {
			return NULL;
		}
		futex_wait_shared(&b->gpu[0].seq, seq, UINT64_C(3600000000000)); /* an hour */
	}
}

static void a_killed_owner_wakes_the_waiters_on_its_board(void **state)
{
	struct gd *d = *state;
	const struct proto_board *board;
	struct fake batch;
	union proto_message m;
	pthread_t waiter;
	pid_t pid;
	int fd;

	skip_without_pidfd();
	fake_enter(&batch, d, BATCH, "batch");
	pid = fork();
	if (pid == 0) {
		struct fake lc;

		fake_enter(&lc, d, LATENCY, "victim");
		store_seqcst(&lc.board->gpu[0].open, 1u);
		for (;;) {
			pause();
		}
	}
	fd = fake_expect(&batch, &m, PROTO_BOARD_ADD);
	board = shm_map(fd, PROTO_PAGE_BYTES, 0);
	close(fd);
	while (!load_seqcst(&board->gpu[0].open)) {
		cpu_relax();
	}
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_board, (void *)(uintptr_t)board),
			 0);
	kill(pid, SIGKILL);
	eventually(pthread_tryjoin_np(waiter, NULL) == 0);
	fake_expect(&batch, &m, PROTO_BOARD_REMOVE);
	gd_await_event(d, 0, "kill",
		       "signal 9"); /* still a zombie, whose status was not read yet */
	waitpid(pid, NULL, 0);
	shm_unmap((void *)(uintptr_t)board, PROTO_PAGE_BYTES);
	fake_leave(&batch);
	assert_int_equal(gd_number(d, "status", "leaked"), 0);
}

/* Its process lives and its socket is open, as while the driver delays the end of the process. */
static void a_dying_owner_leaves_before_its_process_exits(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct fake batch, lc;
	union proto_message m;

	assert_int_equal(gbpf_policy_load(g, gd_object("plain"), NULL, 0, NULL), 0);
	fake_enter(&batch, d, BATCH, "batch");
	fake_prepare(&batch, 0);
	fake_enter(&lc, d, LATENCY, "dying");
	fake_prepare(&lc, 0);
	close(fake_expect(&batch, &m, PROTO_BOARD_ADD));
	store_seqcst(&lc.board->gpu[0].open, 1u);
	store_seqcst(&lc.board->owner, (uint32_t)getpid());
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	store_seqcst(&lc.board->owner, PROTO_OWNER_DIED); /* as the kernel does */
	fake_expect(&batch, &m, PROTO_BOARD_REMOVE);
	assert_int_equal(load_seqcst(&lc.board->gpu[0].open), 0);
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	fake_leave(&lc);
	fake_leave(&batch);
	gbpf_close(g);
}

static void an_exit_is_recorded_with_its_code(void **state)
{
	struct gd *d = *state;
	pid_t pid;

	skip_without_pidfd();
	pid = fork();
	if (pid == 0) {
		struct fake f;

		fake_enter(&f, d, BATCH, "brief");
		store_seqcst(&f.stats->busy_ns, UINT64_C(1500000000));
		_exit(7);
	}
	gd_await_event(d, 0, "exit", "exit code 7; 1.500 s of GPU time");
	waitpid(pid, NULL, 0);
}

/* A forked child keeps the socket open; the pidfd shows that the tenant itself has exited. */
static void a_forked_child_does_not_keep_a_dead_tenant(void **state)
{
	struct gd *d = *state;
	int p[2];
	pid_t pid;
	char c;

	skip_without_pidfd();
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		struct fake f;

		fake_enter(&f, d, BATCH, "parent");
		if (fork() == 0) {
			close(p[1]);
			(void)!read(p[0], &c, 1); /* until the test is over */
			_exit(0);
		}
		_exit(0);
	}
	close(p[0]);
	gd_await_event(d, 0, "exit", "parent");
	assert_int_equal(gd_number(d, "status", "tenants"), 0);
	close(p[1]);
	waitpid(pid, NULL, 0);
}

static void another_protocol_version_is_refused_with_both_numbers(void **state)
{
	struct proto_head h = { PROTO_MAGIC, PROTO_VERSION + 1, PROTO_HELLO,
				sizeof(struct proto_hello) };
	struct gd *d = *state;
	union proto_message m;
	char ours[32], theirs[32];
	struct fake f;

	fake_connect(&f, d);
	assert_int_equal(msg_send(f.sock, &h, sizeof(h), NULL, 0), 0);
	fake_expect(&f, &m, PROTO_REFUSED);
	assert_int_equal(m.refused.error, EPROTONOSUPPORT);
	assert_int_equal(m.head.version, h.version); /* in the version that the process speaks */
	snprintf(ours, sizeof(ours), "protocol %u", PROTO_VERSION);
	assert_non_null(strstr(m.refused.text, ours));
	snprintf(theirs, sizeof(theirs), "speaks %u", (unsigned)h.version);
	assert_non_null(strstr(m.refused.text, theirs));
	fake_leave(&f);
}

static void garbage_ends_a_session_and_nothing_else(void **state)
{
	struct gd *d = *state;
	uint8_t junk[MAX(1024, sizeof(union proto_message))];
	struct fake good, f;
	unsigned before;

	fake_enter(&good, d, BATCH, "good");
	gd_await_event(d, 0, "start", "good");
	before = settled_fds(d);
	srandom(11);
	for (int i = 0; i < 300; i++) {
		union proto_message m;
		int fds[8], extra[3] = { 1, 2, 1 };
		unsigned n;

		fake_connect(&f, d);
		for (size_t k = 0; k < sizeof(junk); k++) {
			junk[k] = (uint8_t)random();
		}
		memcpy(&m, junk, sizeof(m));
		if (i % 2) {
			m.head =
				(struct proto_head){ PROTO_MAGIC, PROTO_VERSION,
						     (uint32_t)random() % 20, (uint32_t)sizeof(m) };
			proto_send(f.sock, &m, 1 + (enum proto_type)(random() % 18), extra,
				   (unsigned)random() % 4);
		} else {
			msg_send(f.sock, junk, 1 + (size_t)random() % 1000, extra,
				 (unsigned)random() % 4);
		}
		while (fake_receive(&f, &m, fds, &n) == 1) { /* refused, or closed */
			assert_int_equal(m.head.type, PROTO_REFUSED);
		}
		close(f.sock);
	}
	gd_await_event(d, 0, "dropped", "pid");
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	assert_int_equal(gd_number(d, "status", "sessions"), 1);
	await_fds(d, before);
	fake_leave(&good);
}

static void messages_out_of_order_end_the_session(void **state)
{
	static const enum proto_type wrong[] = { PROTO_BOARD_MAPPED, PROTO_PREPARED, PROTO_HELLO };
	struct gd *d = *state;
	union proto_message m;
	struct fake f;
	int fds[8];
	unsigned n;

	for (size_t i = 0; i < 3;
	     i++) { /* mapped twice; an answer without a question; a second hello */
		fake_enter(&f, d, BATCH, "wrong");
		memset(&m, 0, sizeof(m));
		fake_send(&f, &m, wrong[i]);
		assert_int_equal(fake_receive(&f, &m, fds, &n), 0);
		fake_leave(&f);
	}
	assert_int_equal(gd_number(d, "status", "counters.garbage"), 3);
}

static void preventing_the_seals_is_noticed(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake f;
	int fds[8];
	unsigned n;

	fake_connect(&f, d);
	fake_say_hello(&f, LATENCY, 100, "sly");
	assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
	assert_int_equal(n, 3);
	assert_int_equal(fcntl(fds[1], F_ADD_SEALS, F_SEAL_SEAL), 0);
	fake_send(&f, &m, PROTO_BOARD_MAPPED);
	while (n) {
		close(fds[--n]);
	}
	assert_int_equal(fake_receive(&f, &m, fds, &n), 0);
	gd_await_event(d, 0, "dropped", "sealed");
	fake_leave(&f);
}

static void a_hello_with_impossible_words_is_refused(void **state)
{
	struct gd *d = *state;
	struct fake f;

	for (int i = 0; i < 3; i++) {
		union proto_message m = { 0 };

		fake_connect(&f, d);
		m.hello.class_id = i == 0 ? 3 : 0;
		m.hello.weight = i == 1 ? 10001 : 0;
		m.hello.flags = i == 2 ? 0x80 : 0;
		fake_send(&f, &m, PROTO_HELLO);
		fake_expect(&f, &m, PROTO_REFUSED);
		assert_int_equal(m.refused.error, EINVAL);
		fake_leave(&f);
	}
}

static void names_are_cleaned(void **state)
{
	struct gd *d = *state;
	struct fake f;
	json_t *ps, *t;

	fake_connect(&f, d);
	fake_say_hello(&f, BATCH, 100, "a\x1b[31mb\xff\xc3\xa9");
	fake_welcomed(&f);
	ps = gd_call(d, "ps", NULL);
	t = json_array_get(json_object_get(ps, "tenants"), 0);
	assert_string_equal(json_string_value(json_object_get(t, "name")), "a?[31mb?\xc3\xa9");
	json_decref(ps);
	fake_leave(&f);
}

static void a_session_that_does_not_read_is_dropped(void **state)
{
	struct gd *d = *state;
	struct fake deaf, good;
	union proto_message m;
	char params[96];
	uint64_t since;

	fake_enter(&deaf, d, BATCH, "deaf");
	fake_enter(&good, d, BATCH, "good");
	gd_await_event(d, 0, "start", "good");
	since = gd_last_event(d);
	for (int i = 0; i < 5000; i++) {
		struct gbpf *g = d->g;

		snprintf(params, sizeof(params), "{\"tenant\":0,\"weight\":%d}", 1 + i % 100);
		if (gbpf_call(g, "set", params, -1, NULL) < 0) {
			assert_int_equal(gbpf_last_error(g)->exit, 5); /* dropped meanwhile */
			break;
		}
	}
	gd_await_event(d, since > 4000 ? since : 0, "dropped", "does not read");
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"weight\":5}"));
	fake_expect(&good, &m, PROTO_SET);
	assert_int_equal(m.set.weight, 5);
	fake_leave(&deaf);
	fake_leave(&good);
}

static void notes_go_to_the_history_but_not_without_end(void **state)
{
	struct gd *d = *state;
	struct fake f;
	uint64_t before;

	fake_enter(&f, d, BATCH, "chatty");
	gd_await_event(d, 0, "start", "chatty");
	before = gd_last_event(d);
	for (int i = 0; i < 200; i++) {
		union proto_message m = { 0 };

		snprintf(m.note.what, sizeof(m.note.what), "limit");
		snprintf(m.note.text, sizeof(m.note.text), "held too long");
		fake_send(&f, &m, PROTO_NOTE);
	}
	gd_await_event(d, before, "limit", "held too long");
	fake_leave(&f);
	gd_await_event(d, before, "detach", "chatty");
	assert_true(gd_last_event(d) - before <=
		    62); /* at most the events of three seconds, however slow the machine is */
}

static void there_is_a_limit_of_tenants(void **state)
{
	struct rlimit l = { 8192, 8192 }, old;
	struct gd *d = *state;
	static struct fake f[PROTO_MAX_TENANTS + 1];
	union proto_message m;

	getrlimit(RLIMIT_NOFILE, &old);
	if (old.rlim_max < 8192) {
		skip();
	}
	l.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	for (unsigned i = 0; i <= PROTO_MAX_TENANTS; i++) {
		int fds[8];
		unsigned n;

		fake_connect(&f[i], d);
		fake_say_hello(&f[i], NORMAL, 100, "one of many");
		assert_int_equal(fake_receive(&f[i], &m, fds, &n), 1);
		assert_int_equal(m.head.type,
				 i < PROTO_MAX_TENANTS ? PROTO_WELCOME : PROTO_REFUSED);
		while (n) {
			close(fds[--n]);
		}
	}
	assert_int_equal(m.refused.error, ENOSPC);
	for (unsigned i = 0; i <= PROTO_MAX_TENANTS; i++) {
		close(f[i].sock);
	}
	while (gd_number(d, "status", "sessions") >
	       0) { /* it reads the disconnects one after the other */
	}
	assert_int_equal(gd_number(d, "status", "leaked"), 0);
}

static void more_latency_tenants_than_slots_wait_for_one(void **state)
{
	struct gd *d = *state;
	struct fake watcher, f[PROTO_MAX_LC + 1];
	union proto_message m;

	fake_enter(&watcher, d, BATCH, "watcher");
	for (unsigned i = 0; i <= PROTO_MAX_LC; i++) {
		fake_enter(&f[i], d, LATENCY, "lc");
	}
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		close(fake_expect(&watcher, &m, PROTO_BOARD_ADD));
		assert_int_equal(m.board.slot, i);
	}
	gd_await_event(d, 0, "limit", "exceeds the 64 latency tenants");
	fake_leave(&f[5]);
	fake_expect(&watcher, &m, PROTO_BOARD_REMOVE);
	assert_int_equal(m.board.slot, 5);
	close(fake_expect(&watcher, &m, PROTO_BOARD_ADD)); /* the one that had no slot */
	assert_int_equal(m.board.slot, 5);
	assert_int_equal(m.board.tenant, f[PROTO_MAX_LC].tenant);
	for (unsigned i = 0; i <= PROTO_MAX_LC; i++) {
		if (i != 5) {
			fake_leave(&f[i]);
		}
	}
	fake_leave(&watcher);
}

static void coming_and_going_leaks_nothing(void **state)
{
	struct gd *d = *state;
	unsigned before = 0;

	for (int i = 0; i < 120; i++) {
		struct fake f;

		fake_enter(&f, d, i % 2 ? LATENCY : BATCH, "guest");
		fake_leave(&f);
		if (i == 20 || i == 119) {
			while (gd_number(d, "status", "sessions") > 0) {
			}
			before = i == 20 ? settled_fds(d) : before;
		}
	}
	await_fds(d, before);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(a_process_becomes_a_tenant),
		WITH_GBPFD(pages_are_sealed_once_they_are_mapped),
		WITH_GBPFD(boards_of_latency_tenants_are_sent_to_all_sessions),
		WITH_GBPFD(set_publishes_and_withdraws_a_board),
		WITH_GBPFD(settings_changed_before_the_pages_are_mapped_are_sent),
		WITH_GBPFD(set_refuses_unknown_tenants_and_classes),
		WITH_GBPFD(a_killed_owner_wakes_the_waiters_on_its_board),
		WITH_GBPFD(a_dying_owner_leaves_before_its_process_exits),
		WITH_GBPFD(an_exit_is_recorded_with_its_code),
		WITH_GBPFD(a_forked_child_does_not_keep_a_dead_tenant),
		WITH_GBPFD(another_protocol_version_is_refused_with_both_numbers),
		WITH_GBPFD(garbage_ends_a_session_and_nothing_else),
		WITH_GBPFD(messages_out_of_order_end_the_session),
		WITH_GBPFD(preventing_the_seals_is_noticed),
		WITH_GBPFD(a_hello_with_impossible_words_is_refused),
		WITH_GBPFD(names_are_cleaned),
		WITH_GBPFD(a_session_that_does_not_read_is_dropped),
		WITH_GBPFD(notes_go_to_the_history_but_not_without_end),
		WITH_GBPFD(there_is_a_limit_of_tenants),
		WITH_GBPFD(more_latency_tenants_than_slots_wait_for_one),
		WITH_GBPFD(coming_and_going_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
