/* Questions for memory that a process has shared (PROTO_IPC_OPEN): they reach the process that has
 * it, its answers the process that asked, with their descriptors, and gbpfd keeps nothing. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "../users.h"

#define BATCH 2u
#define QUESTIONS 1000u
#define UNANSWERED_MAX 16u
#define UNREAD_MAX 1000000u /* answers, of which no socket holds as many */
#define OWN_FDS 20	    /* that gbpfd may open for itself meanwhile */
#define NO_PID INT32_MAX

static union proto_message question(int pid, uint32_t first)
{
	union proto_message m = { .ipc = { .pid = pid, .first = first } };

	memset(m.ipc.key, 7, sizeof(m.ipc.key));
	return m;
}

static void ask(struct fake *f, const struct gd *d, int pid, uint32_t first)
{
	union proto_message m = question(pid, first);

	if (f->sock <= 0) {
		fake_connect(f, d);
	}
	fake_send(f, &m, PROTO_IPC_OPEN);
}

/* Receives what the owner is asked, after whatever else it is sent. */
static union proto_message wanted(struct fake *owner)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	do {
		assert_int_equal(fake_receive(owner, &m, fds, &n), 1);
		while (n) {
			close(fds[--n]);
		}
	} while (m.head.type != PROTO_IPC_WANTED);
	return m;
}

/* Answers with so many descriptors of a file. */
static void give(struct fake *owner, union proto_message *m, int fd, unsigned n)
{
	int fds[PROTO_IPC_CHUNKS];

	for (unsigned i = 0; i < n; i++) {
		fds[i] = fd;
	}
	m->ipc.n = n;
	m->ipc.bytes = 12345;
	assert_int_equal(proto_send(owner->sock, m, PROTO_IPC_GIVEN, fds, n), 0);
}

/* Receives the answer to a question, with that error. Closes its descriptors, which must be of the
 * file. */
static void expect(struct fake *f, int error, int fd, unsigned n)
{
	union proto_message m;
	struct stat x, y;
	int fds[8];
	unsigned got;

	assert_int_equal(fake_receive(f, &m, fds, &got), 1);
	assert_int_equal(m.head.type, PROTO_IPC_OPENED);
	assert_int_equal(m.ipc.error, error);
	assert_int_equal(got, n);
	assert_int_equal(m.ipc.n, n);
	while (got) {
		assert_int_equal(fstat(fds[--got], &x) | fstat(fd, &y), 0);
		assert_int_equal(x.st_ino, y.st_ino);
		close(fds[got]);
	}
}

static void a_question_and_its_answer_are_passed_on(void **state)
{
	struct fake owner = { 0 }, f = { 0 };
	int fd = memfd_create("chunk", 0);
	struct gd *d = *state;
	union proto_message m;

	fake_enter(&owner, d, BATCH, "owner");
	for (unsigned i = 0; i < 3; i++) { /* on one connection */
		ask(&f, d, getpid(), 8 * i);
		m = wanted(&owner);
		assert_int_equal(m.ipc.first, 8 * i);
		for (unsigned k = 0; k < sizeof(m.ipc.key); k++) {
			assert_int_equal(m.ipc.key[k], 7);
		}
		give(&owner, &m, fd, PROTO_IPC_CHUNKS);
		expect(&f, 0, fd, PROTO_IPC_CHUNKS);
	}
	ask(&f, d, getpid(), 0);
	m = wanted(&owner);
	m.ipc.error = ENOENT;
	give(&owner, &m, fd, 0);
	expect(&f, ENOENT, fd, 0);
	assert_int_equal(gd_number(d, "status", "counters.sessions"), 1); /* tenants ever */
	close(f.sock);
	close(fd);
	fake_leave(&owner);
}

static void a_process_that_does_not_exist_has_no_memory(void **state)
{
	struct fake f = { 0 };

	ask(&f, *state, NO_PID, 0);
	expect(&f, ENOENT, -1, 0);
	ask(&f, *state, 0, 0);
	expect(&f, ENOENT, -1, 0);
	ask(&f, *state, -1, 0);
	expect(&f, ENOENT, -1, 0);
	close(f.sock);
}

/* One that gbpfd does not know yet may have had a session with an earlier one. */
static void a_process_may_come_back(void **state)
{
	struct fake f = { 0 };

	ask(&f, *state, getpid(), 0);
	expect(&f, EAGAIN, -1, 0);
	close(f.sock);
}

static void other_users_get_nothing(void **state)
{
	struct fake owner = { 0 }, f = { 0 };
	struct gd *d = *state;
	union proto_message m;
	char path[160];

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755) | chmod(d->runtime, 0755), 0);
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
	AS_USER(USER_A, fake_enter(&owner, d, BATCH, "owner"));
	AS_USER(USER_B, fake_connect(&f, d));
	ask(&f, d, getpid(), 0);
	expect(&f, EAGAIN, -1, 0); /* as if it were not there */
	close(f.sock);
	f.sock = 0;
	AS_USER(USER_A, fake_connect(&f, d));
	ask(&f, d, getpid(), 0);
	m = wanted(&owner);
	m.ipc.error = ENOENT;
	give(&owner, &m, -1, 0);
	expect(&f, ENOENT, -1, 0);
	close(f.sock);
	fake_leave(&owner);
}

static void an_owner_that_leaves_answers_nothing(void **state)
{
	struct fake owner = { 0 }, f = { 0 };
	struct gd *d = *state;

	fake_enter(&owner, d, BATCH, "owner");
	ask(&f, d, getpid(), 0);
	(void)wanted(&owner);
	fake_leave(&owner);
	expect(&f, EAGAIN, -1, 0);
	close(f.sock);
}

static void an_owner_is_asked_a_few_questions_at_a_time(void **state)
{
	struct fake owner = { 0 }, f[UNANSWERED_MAX + 1] = { 0 };
	int fd = memfd_create("chunk", 0);
	union proto_message m, asked[UNANSWERED_MAX];
	struct gd *d = *state;

	fake_enter(&owner, d, BATCH, "owner");
	for (unsigned i = 0; i < UNANSWERED_MAX; i++) { /* gbpfd has each before the next one */
		ask(&f[i], d, getpid(), i);
		asked[i] = wanted(&owner);
	}
	ask(&f[UNANSWERED_MAX], d, getpid(), UNANSWERED_MAX);
	expect(&f[UNANSWERED_MAX], EAGAIN, -1, 0);
	for (unsigned i = 0; i < UNANSWERED_MAX; i++) {
		give(&owner, &asked[i], fd, 1);
		expect(&f[i], 0, fd, 1);
	}
	ask(&f[UNANSWERED_MAX], d, getpid(), 0);
	m = wanted(&owner);
	give(&owner, &m, fd, 1);
	expect(&f[UNANSWERED_MAX], 0, fd, 1);
	for (unsigned i = 0; i <= UNANSWERED_MAX; i++) {
		close(f[i].sock);
	}
	close(fd);
	fake_leave(&owner);
}

static void a_second_question_before_the_answer_ends_the_session(void **state)
{
	struct fake owner = { 0 }, f = { 0 };
	union proto_message m;
	struct gd *d = *state;
	int fds[8];
	unsigned n;

	fake_enter(&owner, d, BATCH, "owner");
	ask(&f, d, getpid(), 0);
	ask(&f, d, getpid(), 0);
	assert_int_equal(fake_receive(&f, &m, fds, &n), 0);
	close(f.sock);
	m = wanted(&owner);
	give(&owner, &m, -1, 0); /* n is 0 without an error: not a message */
	gd_await_event(d, 0, "dropped", "invalid message");
	fake_leave(&owner);
}

/* Of questions that are not asked any more, were not asked, or were asked of another process. */
static void other_answers_are_dropped(void **state)
{
	struct fake owner = { 0 }, other = { 0 }, f = { 0 };
	int fd = memfd_create("chunk", 0);
	struct gd *d = *state;
	union proto_message m, none = { 0 };
	json_int_t before;

	fake_enter(&other, d, BATCH, "other");
	fake_enter(&owner, d, BATCH, "owner");
	before = gd_number(d, "status", "fds");
	for (unsigned i = 0; i < QUESTIONS; i++) {
		ask(&f, d, getpid(), 0);
		m = wanted(&owner);
		give(&other, &m, fd, PROTO_IPC_CHUNKS);
		none.ipc.number = m.ipc.number + 1;
		give(&owner, &none, fd, PROTO_IPC_CHUNKS);
		none.ipc.number = 0;
		give(&owner, &none, fd, 1);
		if (i % 2) {
			close(f.sock);
			f.sock = 0;
			give(&owner, &m, fd, PROTO_IPC_CHUNKS);
		} else {
			give(&owner, &m, fd, 1);
			expect(&f, 0, fd, 1);
			give(&owner, &m, fd, 1); /* once more */
		}
	}
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	eventually(gd_number(d, "status", "fds") <= before + OWN_FDS);
	if (f.sock > 0) {
		close(f.sock);
	}
	close(fd);
	fake_leave(&owner);
	fake_leave(&other);
}

/* Asks again. Returns false if the connection has been ended instead. */
static bool is_asked_again(struct fake *f, struct fake *owner, union proto_message *ret)
{
	struct pollfd p[] = { { .fd = f->sock }, { .fd = owner->sock, .events = POLLIN } };
	union proto_message m = question(getpid(), 0);
	int fds[8];
	unsigned n;

	if (proto_send(f->sock, &m, PROTO_IPC_OPEN, NULL, 0) != 0) {
		return false;
	}
	do { /* the owner is sent other messages, too */
		assert_true(poll(p, 2, PATIENCE_MS) > 0);
		if (p[0].revents) {
			return false;
		}
		assert_int_equal(fake_receive_any(owner, ret, fds, &n), 1);
		while (n) {
			close(fds[--n]);
		}
	} while (ret->head.type != PROTO_IPC_WANTED);
	return true;
}

/* gbpfd keeps no descriptors of answers that are not read: they are another process's. One to an
 * answer, since Linux limits how many of a user's are in sockets. */
static void one_that_does_not_read_its_answers_is_dropped(void **state)
{
	struct fake owner = { 0 }, f = { 0 };
	int fd = memfd_create("chunk", 0), fds[8], r;
	struct gd *d = *state;
	union proto_message m;
	json_int_t before;
	unsigned i = 0, n;

	fake_enter(&owner, d, BATCH, "owner");
	fake_connect(&f, d);
	before = gd_number(d, "status", "fds");
	for (; i < UNREAD_MAX && is_asked_again(&f, &owner, &m); i++) {
		give(&owner, &m, fd, 1);
		assert_true(gd_number(d, "status", "fds") <= before + OWN_FDS);
	}
	assert_true(i < UNREAD_MAX);
	do { /* the answers that its socket has room for */
		r = fake_receive(&f, &m, fds, &n);
		while (n) {
			close(fds[--n]);
		}
	} while (r == 1);
	eventually(gd_number(d, "status", "fds") <= before);
	close(f.sock);
	close(fd);
	fake_leave(&owner);
}

static void a_tenant_asks_on_a_connection_of_its_own(void **state)
{
	union proto_message m = question(getpid(), 0);
	struct fake f = { 0 };
	struct gd *d = *state;

	fake_enter(&f, d, BATCH, "tenant");
	fake_send(&f, &m, PROTO_IPC_OPEN);
	gd_await_event(d, 0, "dropped", "unexpected message type");
	fake_leave(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(a_question_and_its_answer_are_passed_on),
		TEST(a_process_that_does_not_exist_has_no_memory),
		TEST(a_process_may_come_back),
		TEST(other_users_get_nothing),
		TEST(an_owner_that_leaves_answers_nothing),
		TEST(an_owner_is_asked_a_few_questions_at_a_time),
		TEST(a_second_question_before_the_answer_ends_the_session),
		TEST(other_answers_are_dropped),
		TEST(one_that_does_not_read_its_answers_is_dropped),
		TEST(a_tenant_asks_on_a_connection_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
