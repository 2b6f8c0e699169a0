/* Accepting and ending sessions, in the test's process: limits by user, the right to administer,
 * which sockets are polled, and how the end of a process is noticed. The limits are literals: 1088
 * sessions, of which 128 are root's and gbpfd's user's, and 256 for any other user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../users.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/policy/policies_int.h"
#include "daemon/session/tenant_session.h"

static char dir[64], path[96];
static struct daemon *d;

static int begin_with(unsigned idle_exit_s)
{
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-accept-XXXXXX");
	if (!mkdtemp(dir) || chmod(dir, 0755) < 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/socket", dir);
	d = calloc(1, sizeof(*d));
	d->policies = calloc(1, sizeof(*d->policies));
	d->uid = geteuid();
	d->opt.idle_exit_s = idle_exit_s;
	d->access.group = (gid_t)-1;
	d->access.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return sd_event_new(&d->loop) < 0 ||
			       daemon_history_open(&d->history, "/proc/nowhere", "events") < 0
		       ? -1
		       : daemon_sessions_open(d, path);
}

static int begin(void **state)
{
	return begin_with(0);
}

static int finish(void **state)
{
	char command[96];

	daemon_sessions_close(d);
	daemon_history_close(&d->history);
	sd_event_unref(d->loop);
	close(d->access.spare_fd);
	free(d->policies);
	free(d);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static int connect_to(void)
{
	int fd = unix_connect(path, SOCK_SEQPACKET);

	assert_true(fd >= 0);
	return fd;
}

/* Runs the loop until there are n sessions and nothing is pending. */
static void settle(unsigned n)
{
	int r;

	do {
		r = sd_event_run(d->loop, d->sessions.n == n ? 0 : UINT64_MAX);
		assert_true(r >= 0);
	} while (r > 0 || d->sessions.n != n);
}

/* Connects and expects to be turned away with that error. */
static void expect_refused(int error, const char *text)
{
	unsigned before = d->sessions.n, nfds;
	int fds[8], fd = connect_to();
	union proto_message m;

	settle(before);
	assert_true(proto_recv(fd, &m, fds, &nfds) > 0);
	assert_int_equal(m.head.type, PROTO_REFUSED);
	assert_int_equal(m.refused.error, error);
	assert_non_null(strstr(m.refused.text, text));
	close(fd);
}

static void a_session_knows_its_peer_and_ends_with_its_socket(void **state)
{
	struct daemon_session *s;
	int fd = connect_to(), other;

	settle(1);
	s = d->sessions.first;
	assert_int_equal(s->peer.pid, getpid());
	assert_int_equal(s->peer.uid, geteuid());
	assert_int_equal(s->state, DAEMON_SESSION_NEW);
	assert_int_equal(s->tenant, -1);
	assert_int_equal(s->lc.slot, -1);
	assert_true(s->pidfd >= 0);
	assert_true(fcntl(s->pidfd, F_GETFD) & FD_CLOEXEC);
	assert_true(s->connected_ns > 0);
	other = connect_to();
	settle(2);
	assert_ptr_equal(d->sessions.first, s); /* in the order of their connection */
	assert_ptr_equal(*d->sessions.end, NULL);
	assert_ptr_equal(d->sessions.end, &s->next->next);
	close(fd);
	settle(1);
	assert_ptr_not_equal(d->sessions.first, s);
	assert_ptr_equal(d->sessions.end, &d->sessions.first->next);
	close(other);
	settle(0);
	assert_ptr_equal(d->sessions.end, &d->sessions.first);
	assert_int_equal(d->counters.refused_sessions, 0);
}

static void a_user_has_256_sessions(void **state)
{
	int fd[256], more;

	NEED_TWO_USERS();
	for (int i = 0; i < 256; i++) {
		fd[i] = connect_to();
		settle((unsigned)i + 1);
	}
	daemon_session_each(d, s)
	{
		s->peer.uid = USER_A;
	}
	AS_USER(USER_A, expect_refused(EUSERS, "too many sessions"));
	assert_int_equal(d->counters.refused_sessions, 1);
	AS_USER(USER_B, more = connect_to()); /* another user */
	settle(257);
	close(more);
	settle(256);
	d->sessions.first->peer.uid = USER_B; /* one less */
	AS_USER(USER_A, more = connect_to());
	settle(257);
	close(more);
	settle(256);
	d->sessions.first->peer.uid = USER_A;
	more = connect_to(); /* root has no such limit */
	settle(257);
	close(more);
	for (int i = 0; i < 256; i++) {
		close(fd[i]);
	}
	settle(0);
}

static void root_has_sessions_of_its_own(void **state)
{
	int fd;

	NEED_TWO_USERS();
	d->sessions.n = 959; /* as if other users had them */
	AS_USER(USER_A, fd = connect_to());
	settle(960);
	AS_USER(USER_A, expect_refused(EUSERS, "too many sessions"));
	close(fd);
	settle(959);
	d->sessions.n = 1087;
	fd = connect_to();
	settle(1088);
	expect_refused(EUSERS, "too many sessions");
	assert_int_equal(d->counters.refused_sessions, 2);
	close(fd);
	settle(1087);
	d->sessions.n = 0;
}

static void a_users_gbpfd_serves_that_user_and_root(void **state)
{
	struct stat st;
	int fd;

	assert_int_equal(stat(path, &st), 0);
	NEED_TWO_USERS();
	assert_int_equal(st.st_mode & 0777, 0666); /* root's is for all */
	d->uid = USER_A;
	AS_USER(USER_B, expect_refused(EPERM, "this gbpfd belongs to another user"));
	assert_int_equal(d->counters.refused_sessions, 0);
	AS_USER(USER_A, fd = connect_to());
	settle(1);
	close(fd);
	settle(0);
	fd = connect_to();
	settle(1);
	close(fd);
	settle(0);
}

static void a_process_that_exits_ends_its_session(void **state)
{
	int told[2], wait[2], status;
	pid_t child, grandchild = -1;

	assert_int_equal(pipe(told) | pipe(wait), 0);
	child = fork();
	if (child == 0) {
		int fd = unix_connect(path, SOCK_SEQPACKET);
		pid_t g = fork(); /* inherits the socket, and lives on */
		char byte;

		if (g == 0) {
			for (;;) {
				pause();
			}
		}
		_exit(fd < 0 || write(told[1], &g, sizeof(g)) != sizeof(g) ||
		      read(wait[0], &byte, 1) != 1);
	}
	assert_int_equal(read(told[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	settle(1);
	assert_int_equal(write(wait[1], "x", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	settle(0);
	kill(grandchild, SIGKILL);
	for (int i = 0; i < 2; i++) {
		close(told[i]);
		close(wait[i]);
	}
}

static void a_tenant_that_has_begun_to_exit_is_reaped(void **state)
{
	struct proto_board board = { 0 };
	struct daemon_session *s;
	int fd = connect_to(), board_fd, stats_fd;

	settle(1);
	s = d->sessions.first;
	s->board.map = &board;
	daemon_sessions_reap_dying(d);
	assert_false(s->dying);
	board.owner = PROTO_OWNER_DIED | 7;
	daemon_sessions_reap_dying(d); /* it is no tenant yet */
	assert_false(s->dying);
	s->state = DAEMON_SESSION_READY;
	daemon_sessions_reap_dying(d);
	assert_true(s->dying && s->dead);
	assert_int_equal(s->end, DAEMON_END_CLOSED);
	s->board = s->stats = DAEMON_PAGE_NONE;
	s->board.fd = board_fd = dup(0);
	s->stats.fd = stats_fd = dup(0);
	settle(0);
	assert_int_equal(fcntl(board_fd, F_GETFD), -1); /* its pages are closed */
	assert_int_equal(fcntl(stats_fd, F_GETFD), -1);
	close(fd);
}

static void sessions_that_end_together_are_all_reaped(void **state)
{
	int fd[3];

	for (unsigned i = 0; i < 3; i++) {
		fd[i] = connect_to();
		settle(i + 1);
	}
	daemon_session_end(d->sessions.first, DAEMON_END_DROPPED);
	daemon_session_end(d->sessions.first->next->next, DAEMON_END_REFUSED);
	daemon_session_end(d->sessions.first, DAEMON_END_CLOSED); /* the first reason stays */
	assert_int_equal(d->sessions.first->end, DAEMON_END_DROPPED);
	assert_true(sd_event_run(d->loop, 0) > 0); /* by one run of the reaper */
	assert_int_equal(d->sessions.n, 1);
	for (unsigned i = 0; i < 3; i++) {
		close(fd[i]);
	}
	settle(0);
}

static int polled(sd_event_source *src)
{
	int on = -1;

	assert_true(sd_event_source_get_enabled(src, &on) >= 0);
	return on;
}

static void sockets_are_polled_unless_paused(void **state)
{
	int fd = connect_to();

	settle(1);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	daemon_sessions_poll(d, true);
	assert_int_equal(polled(d->sessions.io), SD_EVENT_OFF);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	daemon_sessions_poll(d, false);
	assert_int_equal(polled(d->sessions.io), SD_EVENT_ON);
	d->sessions.first->peer.uid = USER_A;
	daemon_user_of(&d->users, USER_A, clock_now_ns())->paused = true;
	daemon_sessions_poll(d, false);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_OFF);
	daemon_users_resume_all(&d->users);
	daemon_sessions_poll(d, false);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	close(fd);
	settle(0);
	NEED_TWO_USERS();
	daemon_user_of(&d->users, USER_B, clock_now_ns())->paused = true;
	AS_USER(USER_B, fd = connect_to()); /* accepted, but not heard */
	settle(1);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_OFF);
	daemon_users_resume_all(&d->users);
	daemon_sessions_poll(d, false);
	close(fd);
	settle(0);
}

/* Without sessions gbpfd exits after the time that was asked for. */
static void the_timer_of_an_idle_exit_runs_without_sessions_only(void **state)
{
	uint64_t at = 0, now = 0;
	int fd;

	assert_int_equal(begin_with(3600), 0);
	assert_int_equal(polled(d->sessions.idle_timer), SD_EVENT_ONESHOT);
	assert_true(sd_event_source_get_time(d->sessions.idle_timer, &at) >= 0);
	assert_true(sd_event_now(d->loop, CLOCK_MONOTONIC, &now) >= 0);
	assert_in_range(at - now, UINT64_C(3400000000), UINT64_C(3600000000));
	fd = connect_to();
	settle(1);
	assert_int_equal(polled(d->sessions.idle_timer), SD_EVENT_OFF);
	close(fd);
	settle(0);
	assert_int_equal(polled(d->sessions.idle_timer), SD_EVENT_ONESHOT);
	assert_int_equal(finish(NULL), 0);
}

/* ---- access ---- */

static bool may(uid_t uid)
{
	int pair[2];
	bool yes;

	AS_USER(uid, assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0));
	yes = daemon_may_administer(d, pair[0]);
	close(pair[0]);
	close(pair[1]);
	return yes;
}

static void root_the_own_user_and_the_group_may_administer(void **state)
{
	gid_t many[200];

	assert_false(daemon_may_administer(d, -1));
	NEED_TWO_USERS();
	d->uid = USER_A;
	assert_true(may(0));
	assert_true(may(USER_A));
	assert_false(may(USER_B));
	for (unsigned i = 0; i < 200; i++) {
		many[i] = 5000 + i;
	}
	assert_int_equal(setgroups(3, many), 0);
	assert_false(may(USER_B));
	d->access.group = getegid(); /* its primary group */
	assert_true(may(USER_B));
	d->access.group = 4711;
	assert_false(may(USER_B));
	d->access.group = 5002; /* the last of a few others */
	assert_true(may(USER_B));
	d->access.group = 5199;
	assert_false(may(USER_B));
	assert_int_equal(setgroups(200, many), 0); /* more than usual */
	assert_true(may(USER_B));
	d->access.group = 5200;
	assert_false(may(USER_B));
	assert_int_equal(setgroups(0, NULL), 0);
}

/* When descriptors run out, a connection is taken and closed, so that the loop does not spin. */
static void without_descriptors_connections_are_closed(void **state)
{
	int listening = d->sessions.fd, fd = connect_to(), got;
	struct rlimit limit, few;
	char byte;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	got = daemon_accept(d, listening);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(got, -EAGAIN);
	if (d->access.spare_fd < 0) { /* nor could the spare one be opened again */
		d->access.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	got = daemon_accept(d, listening);
	assert_true(got >= 0);
	assert_true(fcntl(got, F_GETFL) & O_NONBLOCK);
	close(got);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	assert_int_equal(daemon_accept(d, listening), -EAGAIN); /* none is pending */
	/* the same with one descriptor less than needed */
	fd = connect_to();
	few.rlim_cur = (rlim_t)(d->access.spare_fd + 1);
	for (int i = 3; i < d->access.spare_fd; i++) {
		if (fcntl(i, F_GETFD) < 0) { /* fill the gaps */
			assert_int_equal(dup2(0, i), i);
		}
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	got = daemon_accept(d, listening);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(got, -EAGAIN);
	assert_true(d->access.spare_fd >= 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0); /* closed */
	close(fd);
}

int main(void)
{
#define SERVED(t) cmocka_unit_test_setup_teardown(t, begin, finish)
	const struct CMUnitTest tests[] = {
		SERVED(a_session_knows_its_peer_and_ends_with_its_socket),
		SERVED(a_user_has_256_sessions),
		SERVED(root_has_sessions_of_its_own),
		SERVED(a_users_gbpfd_serves_that_user_and_root),
		SERVED(a_process_that_exits_ends_its_session),
		SERVED(a_tenant_that_has_begun_to_exit_is_reaped),
		SERVED(sessions_that_end_together_are_all_reaped),
		SERVED(sockets_are_polled_unless_paused),
		cmocka_unit_test(the_timer_of_an_idle_exit_runs_without_sessions_only),
		SERVED(root_the_own_user_and_the_group_may_administer),
		SERVED(without_descriptors_connections_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
