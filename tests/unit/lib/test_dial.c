/* libgbpf with a gbpfd that starts, stops or has ended, as its lock file says. The one that is
 * named there is a process that does nothing; the peer that listens is this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/procfs.h"
#include "gbpf/gbpf.h"

#define LONG_MS 60000u

struct world {
	char dir[64], path[96];
	int listener;
	unsigned refuse; /* connections that are closed when their hello has come */
	bool silent;	 /* the others are not answered */
	pthread_t thread;
	pid_t named[2]; /* processes by the name of gbpfd; 0: none */
	int calls;	/* of the function that is replaced */
};

static struct world *w; /* of the test that runs */
static void (*on_connect)(int call);
static void (*on_poll)(void);

int __real_unix_connect(const char *path, int type);
int __wrap_unix_connect(const char *path, int type);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

/* Calls on_connect after each attempt to connect to the control socket. */
int __wrap_unix_connect(const char *path, int type)
{
	int fd = __real_unix_connect(path, type);

	if (on_connect && strstr(path, "/control.sock")) {
		on_connect(w->calls++);
	}
	return fd;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (on_poll) {
		on_poll();
	}
	return __real_poll(fds, n, ms);
}

static pid_t begin_named(void)
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "gbpfd");
		close(ready[0]);
		close(ready[1]);
		for (;;) {
			pause();
		}
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 0); /* it has closed its end, so it has its name */
	close(ready[0]);
	assert_true(procfs_runs(pid, "gbpfd", NULL));
	return pid;
}

static void end_named(unsigned i)
{
	if (w->named[i]) {
		kill(w->named[i], SIGKILL);
		assert_int_equal(waitpid(w->named[i], NULL, 0), w->named[i]);
		w->named[i] = 0;
	}
}

static void write_state(pid_t pid, const char *state)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/gbpfd.state", w->dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%d %-6s\n", (int)pid, state);
	fclose(f);
}

static int setup(void **state)
{
	w = calloc(1, sizeof(*w));
	*state = w;
	w->listener = -1;
	snprintf(w->dir, sizeof(w->dir), "/tmp/gbpf-lib-XXXXXX");
	if (!mkdtemp(w->dir)) {
		return -1;
	}
	snprintf(w->path, sizeof(w->path), "%s/control.sock", w->dir);
	return 0;
}

static int teardown(void **state)
{
	char command[128];
	int r;

	(void)state;
	on_connect = NULL;
	on_poll = NULL;
	end_named(0);
	end_named(1);
	snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
	r = system(command);
	free(w);
	return r;
}

/* Reads lines, and answers each as a hello, until the connection ends. */
static void answer(int c)
{
	char line[512], text[256];
	size_t len = 0;

	while (read(c, line + len, 1) == 1) {
		int id, n;

		if (line[len++] != '\n') {
			continue;
		}
		line[len] = 0;
		len = 0;
		if (w->silent || sscanf(line, "{\"id\":%d", &id) != 1) {
			continue;
		}
		n = snprintf(text, sizeof(text), "{\"id\":%d,\"result\":{\"protocol\":1}}\n", id);
		if (send(c, text, (size_t)n, MSG_NOSIGNAL) < 0) {
			return;
		}
	}
}

static void *play(void *arg)
{
	for (;;) {
		int c = accept(w->listener, NULL, NULL);
		char line[512];

		(void)arg;
		if (c < 0) {
			return NULL;
		}
		if (w->refuse && w->refuse-- && read(c, line, sizeof(line)) > 0) {
			close(c);
			continue;
		}
		answer(c);
		close(c);
	}
}

static void begin_listening(void)
{
	w->listener = unix_listen(w->path, SOCK_STREAM, 0600);
	assert_true(w->listener >= 0);
	assert_int_equal(fcntl(w->listener, F_SETFL, 0), 0); /* accept waits */
	assert_int_equal(pthread_create(&w->thread, NULL, play, NULL), 0);
}

static void end_listening(void)
{
	shutdown(w->listener, SHUT_RDWR); /* ends accept */
	pthread_join(w->thread, NULL);
	close(w->listener);
}

static struct gbpf *handle(unsigned flags, unsigned timeout_ms)
{
	struct gbpf *g;

	assert_int_equal(gbpf_open(&g, w->dir, GBPF_OPEN_NO_CONNECT | flags), 0);
	gbpf_set_timeout(g, timeout_ms);
	return g;
}

/* gbpfd listens until its threads have ended, but answers no more. */
static void the_next_one_answers_instead_of_one_that_stops(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "stops");
	w->refuse = 3;
	begin_listening();
	assert_int_equal(gbpf_status(g, NULL), 0);
	gbpf_close(g);
	end_listening();
}

static void ending_first(int call)
{
	if (call == 1) {
		end_named(0);
	}
}

static void one_that_has_stopped_does_not_run(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "stops");
	on_connect = ending_first;
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	assert_non_null(strstr(gbpf_last_error(g)->message, "not running"));
	gbpf_close(g);
}

static void one_that_stops_for_long_is_named(void **state)
{
	struct gbpf *g = handle(0, 60);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "stops");
	w->silent = true;
	begin_listening();
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	assert_string_equal(gbpf_last_error(g)->code, "stopping");
	gbpf_close(g);
	end_listening();
}

static void listening_first(int call)
{
	if (call == 0) {
		begin_listening();
	}
}

static void one_that_began_to_listen_meanwhile_has_its_socket(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "serves"); /* by the time it is read */
	on_connect = listening_first;
	assert_int_equal(gbpf_status(g, NULL), 0);
	gbpf_close(g);
	end_listening();
}

static void stopping_second(int call)
{
	if (call == 1) {
		write_state(w->named[0], "stops");
	}
}

static void one_that_began_to_stop_meanwhile_has_its_socket(void **state)
{
	struct gbpf *g = handle(0, 60);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "serves");
	on_connect = stopping_second;
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	assert_string_equal(gbpf_last_error(g)->code, "stopping");
	gbpf_close(g);
}

static void one_without_a_socket_is_named(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);
	char kill_it[32];

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "serves");
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	assert_string_equal(gbpf_last_error(g)->code, "no-listener");
	snprintf(kill_it, sizeof(kill_it), "`kill %d`", (int)w->named[0]);
	assert_non_null(strstr(gbpf_last_error(g)->hint, kill_it));
	gbpf_close(g);
}

/* The advice to end a process must not name one that did not write the file. */
static void one_of_another_user_is_not_named(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);
	char path[96];

	(void)state;
	if (geteuid() != 0) {
		gbpf_close(g);
		skip();
	}
	w->named[0] = begin_named();
	write_state(w->named[0], "serves");
	snprintf(path, sizeof(path), "%s/gbpfd.state", w->dir);
	assert_int_equal(chown(path, 65534, 65534), 0);
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	assert_string_equal(gbpf_last_error(g)->code, "unreachable");
	gbpf_close(g);
}

static void a_start_waits_for_another_no_longer_than_it_may(void **state)
{
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = "/nowhere",
					.timeout_ms = 60 };
	struct gbpf *g = handle(0, LONG_MS);
	uint64_t begin_ns = clock_now_ns();

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "starts");
	assert_int_equal(gbpf_start_daemon(g, &o), -ECONNREFUSED);
	assert_string_equal(gbpf_last_error(g)->code, "starting");
	assert_true(clock_now_ns() - begin_ns < LONG_MS * UINT64_C(1000000));
	gbpf_close(g);
}

static void one_that_never_answers_is_not_awaited_for_ever(void **state)
{
	struct gbpf *g = handle(0, 60);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "stops");
	w->refuse = UINT32_MAX;
	begin_listening();
	assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
	gbpf_close(g);
	end_listening();
}

static void without_waiting_the_answer_comes_at_once(void **state)
{
	static const char *const states[][2] = { { "starts", "starting" },
						 { "stops", "stopping" } };
	struct gbpf *g = handle(GBPF_OPEN_NO_WAIT, 0); /* for ever */

	(void)state;
	w->named[0] = begin_named();
	w->silent = true;
	begin_listening();
	for (unsigned i = 0; i < 2; i++) {
		write_state(w->named[0], states[i][0]);
		assert_int_equal(gbpf_status(g, NULL), -ECONNREFUSED);
		assert_string_equal(gbpf_last_error(g)->code, states[i][1]);
	}
	gbpf_close(g);
	end_listening();
}

/* The next one has the lock as soon as the first has exited. */
static void next_starts(void)
{
	write_state(w->named[1], "starts");
	end_named(0);
	on_poll = NULL;
}

static void a_shutdown_waits_for_no_other_gbpfd(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);

	(void)state;
	w->named[0] = begin_named();
	w->named[1] = begin_named();
	write_state(w->named[0], "stops");
	on_poll = next_starts;
	assert_int_equal(gbpf_shutdown(g), 0);
	assert_int_equal(gbpf_last_error(g)->err, 0);
	assert_null(on_poll);
	gbpf_close(g);
}

static void a_shutdown_that_takes_long_is_reported(void **state)
{
	struct gbpf *g = handle(0, 60);

	(void)state;
	w->named[0] = begin_named();
	write_state(w->named[0], "stops");
	assert_int_equal(gbpf_shutdown(g), -ETIMEDOUT);
	assert_non_null(strstr(gbpf_last_error(g)->message, "is still stopping"));
	gbpf_close(g);
}

static void without_gbpfd_there_is_none_to_stop(void **state)
{
	struct gbpf *g = handle(0, LONG_MS);

	(void)state;
	write_state(1, "stops"); /* process 1 is not gbpfd */
	assert_int_equal(gbpf_shutdown(g), -ECONNREFUSED);
	assert_non_null(strstr(gbpf_last_error(g)->message, "not running"));
	gbpf_close(g);
}

#define WITH_WORLD(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(the_next_one_answers_instead_of_one_that_stops),
		WITH_WORLD(one_that_has_stopped_does_not_run),
		WITH_WORLD(one_that_stops_for_long_is_named),
		WITH_WORLD(one_that_began_to_listen_meanwhile_has_its_socket),
		WITH_WORLD(one_that_began_to_stop_meanwhile_has_its_socket),
		WITH_WORLD(one_without_a_socket_is_named),
		WITH_WORLD(one_of_another_user_is_not_named),
		WITH_WORLD(a_start_waits_for_another_no_longer_than_it_may),
		WITH_WORLD(one_that_never_answers_is_not_awaited_for_ever),
		WITH_WORLD(without_waiting_the_answer_comes_at_once),
		WITH_WORLD(a_shutdown_waits_for_no_other_gbpfd),
		WITH_WORLD(a_shutdown_that_takes_long_is_reported),
		WITH_WORLD(without_gbpfd_there_is_none_to_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
