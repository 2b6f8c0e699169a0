/* The end of sessions, in the test's process: how the end of a process is noticed, which sessions
 * are reaped, and what happens when none is left. */
#include "accept_rig.h"

#include <signal.h>
#include <sys/wait.h>

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

int main(void)
{
#define SERVED(t) cmocka_unit_test_setup_teardown(t, begin, finish)
	const struct CMUnitTest tests[] = {
		SERVED(a_process_that_exits_ends_its_session),
		SERVED(a_tenant_that_has_begun_to_exit_is_reaped),
		SERVED(sessions_that_end_together_are_all_reaped),
		cmocka_unit_test(the_timer_of_an_idle_exit_runs_without_sessions_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
