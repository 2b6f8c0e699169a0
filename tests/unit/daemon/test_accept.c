/* Accepting sessions, in the test's process: limits by user, the right to administer, and which
 * sockets are polled. The limits are literals: 1088 sessions, of which 128 are root's and gbpfd's
 * user's, and 256 for any other user. */
#include "accept_rig.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/resource.h>

#include "../users.h"
#include "base/clock.h"
#include "daemon/feature.h"

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

/* As budgets do it. */
static void poll_sources(bool accepts_paused)
{
	daemon_features_call(poll, d, accepts_paused);
}

static void sockets_are_polled_unless_paused(void **state)
{
	int fd = connect_to();

	settle(1);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	poll_sources(true);
	assert_int_equal(polled(d->sessions.io), SD_EVENT_OFF);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	poll_sources(false);
	assert_int_equal(polled(d->sessions.io), SD_EVENT_ON);
	d->sessions.first->peer.uid = USER_A;
	daemon_user_of(&d->users, USER_A, clock_now_ns())->paused = true;
	poll_sources(false);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_OFF);
	daemon_users_resume_all(&d->users);
	poll_sources(false);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_ON);
	close(fd);
	settle(0);
	NEED_TWO_USERS();
	daemon_user_of(&d->users, USER_B, clock_now_ns())->paused = true;
	AS_USER(USER_B, fd = connect_to()); /* accepted, but not heard */
	settle(1);
	assert_int_equal(polled(d->sessions.first->conn.io), SD_EVENT_OFF);
	daemon_users_resume_all(&d->users);
	poll_sources(false);
	close(fd);
	settle(0);
}

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
		SERVED(sockets_are_polled_unless_paused),
		SERVED(root_the_own_user_and_the_group_may_administer),
		SERVED(without_descriptors_connections_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
