/* libgbpf with a peer that is slow, wrong or absent. The peer is a thread with a script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "gbpf/gbpf.h"

#define HELLO                                                                                      \
	"{\"id\":1,\"result\":{\"protocol\":1,\"version\":\"9.9\",\"pid\":5,\"uid\":0,"            \
	"\"generation\":7,\"device\":\"soft\"}}\n"

struct world {
	char dir[64], path[96];
	int listener;
	pthread_t thread;
	const char *answers[8]; /* one for each line received; NULL: close; "": no answer */
	unsigned connections;	/* number of connections to serve */
	char got[4096];		/* the last line received */
	int got_fd;
};

static int read_line(struct world *w, int c)
{
	size_t len = 0;

	while (len < sizeof(w->got) - 1) {
		int fds[FD_PASS_MAX];
		unsigned n;
		ssize_t r = msg_recv(c, w->got + len, 1, fds, &n);

		if (r <= 0) {
			return -1;
		}
		if (n) {
			w->got_fd = fds[0];
		}
		if (w->got[len++] == '\n') {
			break;
		}
	}
	w->got[len] = 0;
	return 0;
}

static void *play(void *arg)
{
	struct world *w = arg;
	unsigned at = 0;

	for (unsigned i = 0; i < w->connections; i++) {
		int c = accept(w->listener, NULL, NULL);

		while (read_line(w, c) == 0) {
			const char *a = at < 8 ? w->answers[at++] : NULL;

			if (!a) {
				break;
			}
			if (send(c, a, strlen(a), MSG_NOSIGNAL) < 0) {
				break;
			}
		}
		close(c);
	}
	return NULL;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	*state = w;
	snprintf(w->dir, sizeof(w->dir), "/tmp/gbpf-lib-XXXXXX");
	if (!mkdtemp(w->dir)) {
		return -1;
	}
	snprintf(w->path, sizeof(w->path), "%s/control.sock", w->dir);
	w->listener = -1;
	w->got_fd = -1;
	w->connections = 1;
	return 0;
}

static void begin(struct world *w)
{
	w->listener = unix_listen(w->path, SOCK_STREAM, 0600);
	assert_true(w->listener >= 0);

	assert_int_equal(fcntl(w->listener, F_SETFL, 0), 0); /* accept waits */
	assert_int_equal(pthread_create(&w->thread, NULL, play, w), 0);
}

static void end(struct world *w)
{
	pthread_join(w->thread, NULL);
	close(w->listener);
	w->listener = -1;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[128];
	int r;

	fd_close(w->got_fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
	r = system(command);
	free(w);
	return r;
}

static void no_listener_is_reported(void **state)
{
	struct world *w = *state;
	struct gbpf *g;

	assert_int_equal(gbpf_open(&g, w->dir, 0), -ECONNREFUSED);
	assert_int_equal(gbpf_last_error(g)->exit, GBPF_CODE_UNREACHABLE);
	assert_string_equal(gbpf_last_error(g)->code, "unreachable");
	assert_non_null(strstr(gbpf_last_error(g)->message, w->dir));
	assert_true(strlen(gbpf_last_error(g)->hint) > 0);
	assert_null(gbpf_hello(g));
	gbpf_close(g);
	gbpf_close(NULL);
	assert_int_equal(gbpf_last_error(NULL)->err, -ENOMEM);
}

static void hello_is_kept_and_a_call_gives_its_result(void **state)
{
	struct world *w = *state;
	struct gbpf *g;
	char *json = NULL;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"event\":{\"seq\":1}}\n{\"id\":77,\"result\":{}}\n{\"id\":2,\"result\":{"
			"\"x\":1}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->path, 0),
			 0); /* the socket is in place of its directory */
	assert_string_equal(gbpf_hello(g)->version, "9.9");
	assert_int_equal(gbpf_hello(g)->generation, 7);
	assert_int_equal(gbpf_ps(g, &json), 0);
	assert_string_equal(json, "{\"x\":1}");
	assert_string_equal(w->got, "{\"id\":2,\"method\":\"ps\",\"params\":{}}\n");
	free(json);
	gbpf_close(g);
	end(w);
}

static void an_error_travels_whole(void **state)
{
	struct world *w = *state;
	const struct gbpf_error *e;
	struct gbpf *g;
	char *json = NULL;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"error\":{\"code\":\"verify\",\"exit\":4,\"message\":\"m\","
			"\"hint\":\"h\","
			"\"detail\":\"one\\ntwo\"}}\n";
	w->answers[2] = "{\"id\":3,\"error\":{\"exit\":\"text\",\"code\":5}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_policy_list(g, &json), -EACCES);
	assert_null(json);
	e = gbpf_last_error(g);
	assert_int_equal(e->exit, 4);
	assert_string_equal(e->code, "verify");
	assert_string_equal(e->message, "m");
	assert_string_equal(e->hint, "h");
	assert_string_equal(e->detail, "one\ntwo");
	assert_int_equal(gbpf_policy_list(g, &json),
			 -EIO); /* an invalid error object still is an error */
	assert_int_equal(gbpf_last_error(g)->exit, 1);
	gbpf_close(g);
	end(w);
}

static void another_protocol_version_is_reported(void **state)
{
	struct world *w = *state;
	struct gbpf *g;

	w->answers[0] =
		"{\"id\":1,\"error\":{\"code\":\"version\",\"exit\":1,\"message\":\"speaks 2\"}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), -EPROTONOSUPPORT);
	gbpf_close(g);
	end(w);
}

static void invalid_json_is_refused(void **state)
{
	static const char *const junk[] = { "hello there\n", "[1,2]\n", "{\"id\":1,\n", "\n",
					    "{\"id\":1,\"result\":\xff}\n" };

	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		struct world *w = *state;
		struct gbpf *g;

		w->answers[0] = junk[i];
		begin(w);
		assert_int_equal(gbpf_open(&g, w->dir, 0), -EBADMSG);
		assert_string_equal(gbpf_last_error(g)->code, "protocol");
		gbpf_close(g);
		end(w);
	}
}

static void silence_is_a_timeout(void **state)
{
	struct world *w = *state;
	uint64_t begin_ns;
	struct gbpf *g;

	w->answers[0] = HELLO;
	w->answers[1] = "";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	gbpf_set_timeout(g, 60);
	begin_ns = clock_now_ns();
	assert_int_equal(gbpf_status(g, NULL), -ETIMEDOUT);
	assert_true(clock_now_ns() - begin_ns >= 50000000u);
	assert_int_equal(gbpf_last_error(g)->exit, GBPF_CODE_TIMEOUT);
	gbpf_close(g);
	end(w);
}

static void a_lost_connection_is_made_again(void **state)
{
	struct world *w = *state;
	struct gbpf *g;

	w->connections = 2;
	w->answers[0] = HELLO;
	w->answers[1] = NULL;
	w->answers[2] = "{\"id\":3,\"result\":{\"protocol\":1}}\n";
	w->answers[3] = "{\"id\":4,\"result\":{}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_status(g, NULL), -ECONNRESET);
	assert_int_equal(gbpf_last_error(g)->exit, GBPF_CODE_UNREACHABLE);
	assert_int_equal(gbpf_status(g, NULL), 0);
	gbpf_close(g);
	end(w);
}

static int count_events(void *arg, const char *json)
{
	int *n = arg;

	assert_non_null(strstr(json, "\"seq\""));
	return ++*n == 4 ? 42 : 0;
}

static void events_come_first_from_the_past_then_live(void **state)
{
	struct world *w = *state;
	struct gbpf *g;
	int n = 0;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"result\":{\"events\":[{\"seq\":1},{\"seq\":2}]}}\n{\"event\":{"
			"\"seq\":3}}\n"
			"{\"event\":{\"seq\":4}}\n{\"event\":{\"seq\":5}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_events(g, 0, GBPF_EVENTS_FOLLOW, 0, count_events, &n), 42);
	assert_int_equal(n, 4);
	gbpf_close(g);
	end(w);
}

static void map_calls_pass_all_parameters(void **state)
{
	struct gbpf_map m = { sizeof(m), "flows", 7, 3 };
	struct world *w = *state;
	struct gbpf *g;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"result\":{}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_map_set(g, &m, "1", "{a=2}", NULL), 0);
	assert_string_equal(w->got,
			    "{\"id\":2,\"method\":\"map.set\",\"params\":{\"map\":\"flows\","
			    "\"version\":7,\"tenant\":3,\"key\":\"1\",\"value\":\"{a=2}\"}}\n");
	gbpf_close(g);
	end(w);
}

static int count_lines(void *arg, const char *line)
{
	assert_true(line[0] == '{');
	++*(int *)arg;
	return 0;
}

static void a_watch_ends_when_the_version_does(void **state)
{
	struct gbpf_map m = { sizeof(m), "flows", 0, GBPF_ALL_TENANTS };
	struct world *w = *state;
	struct gbpf *g;
	int n = 0;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"result\":{\"map\":\"flows\"}}\n{\"watch\":{\"key\":1}}\n"
			"{\"event\":{\"seq\":3}}\n{\"watch\":{\"end\":\"over\"}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_map_watch(g, &m, 0, 0, count_lines, &n), 0);
	assert_int_equal(n, 2);
	gbpf_close(g);
	end(w);
}

static void an_object_travels_as_a_sealed_memfd(void **state)
{
	struct world *w = *state;
	struct gbpf *g;
	char file[128], text[16] = { 0 };
	FILE *f;

	snprintf(file, sizeof(file), "%s/mine.bpf.o", w->dir);
	f = fopen(file, "w");
	fputs("object bytes", f);
	fclose(f);
	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"result\":{}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	assert_int_equal(gbpf_policy_load(g, file, NULL, GBPF_LOAD_SWAP, NULL), 0);
	assert_string_equal(w->got, "{\"id\":2,\"method\":\"policy.load\",\"params\":{\"name\":"
				    "\"mine\",\"swap\":true}}\n");
	assert_true(w->got_fd >= 0);
	assert_int_equal(pread(w->got_fd, text, sizeof(text), 0), 12);
	assert_string_equal(text, "object bytes");
	assert_int_equal(pwrite(w->got_fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(w->got_fd, 1), -1);
	gbpf_close(g);
	end(w);
}

static void operations_on_policies_name_the_gpu(void **state)
{
	struct world *w = *state;
	struct gbpf *g;

	w->answers[0] = HELLO;
	w->answers[1] = "{\"id\":2,\"result\":{}}\n";
	w->answers[2] = "{\"id\":3,\"result\":{}}\n";
	w->answers[3] = "{\"id\":4,\"result\":{}}\n";
	w->answers[4] = "{\"id\":5,\"result\":{}}\n";
	begin(w);
	assert_int_equal(gbpf_open(&g, w->dir, 0), 0);
	gbpf_on_gpu(g, 2);
	assert_int_equal(gbpf_policy_load_bytes(g, "x", 1, "n", 0, NULL), 0);
	assert_string_equal(w->got, "{\"id\":2,\"method\":\"policy.load\",\"params\":{\"name\":"
				    "\"n\",\"swap\":false,\"gpu\":2}}\n");
	gbpf_on_gpu(g, 0);
	assert_int_equal(gbpf_policy_rollback(g, 7, NULL), 0);
	assert_string_equal(w->got, "{\"id\":3,\"method\":\"policy.rollback\",\"params\":"
				    "{\"keep_maps\":false,\"version\":7,\"gpu\":0}}\n");
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_string_equal(w->got, "{\"id\":4,\"method\":\"policy.unload\",\"params\":"
				    "{\"gpu\":0}}\n");
	gbpf_on_gpu(g, -1);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_string_equal(w->got, "{\"id\":5,\"method\":\"policy.unload\",\"params\":{}}\n");
	gbpf_close(g);
	end(w);
}

static void wrong_parameters_never_leave(void **state)
{
	struct world *w = *state;
	struct gbpf *g;

	assert_int_equal(gbpf_open(&g, w->dir, GBPF_OPEN_NO_CONNECT), 0);
	assert_int_equal(gbpf_call(g, "ps", "[1]", -1, NULL), -EINVAL);
	assert_int_equal(gbpf_call(g, "ps", "{", -1, NULL), -EINVAL);
	assert_int_equal(gbpf_last_error(g)->exit, GBPF_CODE_USAGE);
	assert_int_equal(gbpf_policy_load_bytes(g, "x", GBPF_OBJECT_MAX_BYTES + 1, "n", 0, NULL),
			 -E2BIG);
	assert_int_equal(gbpf_policy_load_bytes(g, "x", 1, "\xff", 0, NULL), -EINVAL);
	assert_int_equal(gbpf_policy_load(g, w->dir, NULL, 0, NULL), -EISDIR);
	gbpf_close(g);
}

static void a_daemon_that_cannot_start_says_why(void **state)
{
	struct gbpf_start_options o = { .size = sizeof(o), .timeout_ms = 30000 };
	struct world *w = *state;
	struct gbpf *g;
	char program[128];
	FILE *f;

	snprintf(program, sizeof(program), "%s/gbpfd", w->dir);
	o.program = program;
	assert_int_equal(gbpf_open(&g, w->dir, 0), -ECONNREFUSED);
	assert_int_equal(gbpf_start_daemon(g, &o), -ENOENT);
	f = fopen(program, "w"); /* writes its reason to the descriptor given by --ready-fd */
	fputs("#!/bin/sh\nwhile [ \"$1\" != --ready-fd ]; do shift; done\neval \"echo no room "
	      ">&$2\"\nexit 1\n",
	      f);
	fclose(f);
	assert_int_equal(chmod(program, 0755), 0);
	assert_int_equal(gbpf_start_daemon(g, &o), -EIO);
	assert_non_null(strstr(gbpf_last_error(g)->message, "no room"));
	f = fopen(program, "w"); /* exits without an error message */
	fputs("#!/bin/sh\nexit 0\n", f);
	fclose(f);
	assert_int_equal(gbpf_start_daemon(g, &o), -ECONNRESET);
	assert_non_null(strstr(gbpf_last_error(g)->message, "without an error message"));
	f = fopen(program, "w"); /* never becomes ready */
	fprintf(f, "#!/bin/sh\nexec tail --pid=%d -f /dev/null\n", (int)getpid());
	fclose(f);
	o.timeout_ms = 150;
	assert_int_equal(gbpf_start_daemon(g, &o), -ETIMEDOUT);
	gbpf_close(g);
}

/* ---- a gbpfd that exits at each step of its start and of the first hello ---- */

/* One letter for each gbpfd that is started: when it exits. */
enum end {
	AT_ONCE = 'o',	     /* before it is ready */
	TAKEN = 't',	     /* because another one, which is about to exit, holds the lock */
	READY = 'r',	     /* once it is ready */
	ACCEPTED = 'a',	     /* with the connection */
	HELLO_READ = 'h',    /* without an answer */
	HALF_ANSWERED = 'p', /* in the middle of its answer */
	GOOD = 'g',	     /* when its caller does */
};

/* Exits, which closes the listener and the connection together. */
static void answer_hello(int listener, char how)
{
	struct world w = { .got_fd = -1 };
	char answer[256];
	int c, n, id = 0;

	fcntl(listener, F_SETFL, 0);
	c = accept(listener, NULL, NULL);
	if (how == ACCEPTED || read_line(&w, c) < 0 || how == HELLO_READ) {
		_exit(1);
	}
	(void)sscanf(w.got, "{\"id\":%d", &id);
	n = snprintf(answer, sizeof(answer), "{\"id\":%d,%s", id, strchr(HELLO, ',') + 1);
	if (send(c, answer, (size_t)(how == HALF_ANSWERED ? n / 2 : n), MSG_NOSIGNAL) < 0) {
		_exit(1);
	}
	while (how == GOOD && read_line(&w, c) == 0) {
	}
	_exit(0);
}

/* This program is gbpfd, too: --foreground --runtime-dir DIR --ready-fd N. The n-th instance exits
 * as the n-th letter of DIR/script says. */
static int be_gbpfd(char **argv)
{
	static const char taken[] = "another gbpfd serves it";
	char path[128], script[16] = { 0 };
	int ready = atoi(argv[5]), fd, listener;
	off_t n;

	snprintf(path, sizeof(path), "%s/starts", argv[3]);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	n = write(fd, "x", 1) == 1 ? lseek(fd, 0, SEEK_CUR) : 0;
	snprintf(path, sizeof(path), "%s/script", argv[3]);
	fd = open(path, O_RDONLY);
	if (n < 1 || read(fd, script, sizeof(script) - 1) < n || script[n - 1] == AT_ONCE) {
		return 1;
	}
	if (script[n - 1] == TAKEN) {
		return write(ready, taken, sizeof(taken) - 1) < 0;
	}
	snprintf(path, sizeof(path), "%s/control.sock", argv[3]);
	listener = unix_listen(path, SOCK_STREAM, 0600);
	if (listener < 0 || write(ready, "ready\n", 6) != 6 || script[n - 1] == READY) {
		return 1;
	}
	close(ready);
	answer_hello(listener, script[n - 1]);
	return 1;
}

static void write_script(struct world *w, const char *script)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/starts", w->dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/script", w->dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(script, f);
	fclose(f);
}

static void a_gbpfd_that_is_killed_is_started_again(void **state)
{
	static const char *const scripts[] = {
		"g", "og", "rg", "ag", "hg", "pg", "ohg", "rpg", "tg"
	};
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = "/proc/self/exe",
					.timeout_ms = 60000 };
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct gbpf *g;

		print_message("%s\n", scripts[i]);
		write_script(w, scripts[i]);
		assert_int_equal(gbpf_open(&g, w->dir, GBPF_OPEN_NO_CONNECT), 0);
		gbpf_set_timeout(g, 60000);
		assert_int_equal(gbpf_start_daemon(g, &o), 0);
		assert_int_equal(gbpf_last_error(g)->err, 0);
		assert_string_equal(gbpf_hello(g)->version, "9.9");
		gbpf_close(g);
	}
}

static void a_gbpfd_that_always_ends_is_not_started_for_ever(void **state)
{
	static const char *const scripts[] = { "ooog", "aaag", "hhhg", "rrrg" };
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = "/proc/self/exe",
					.timeout_ms = 60000 };
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct gbpf *g;

		write_script(w, scripts[i]);
		assert_int_equal(gbpf_open(&g, w->dir, GBPF_OPEN_NO_CONNECT), 0);
		assert_true(gbpf_start_daemon(g, &o) < 0);
		assert_int_not_equal(gbpf_last_error(g)->exit, GBPF_CODE_TIMEOUT);
		gbpf_close(g);
	}
}

/* The running instance, which receives the hello. */
static void one_that_ends_in_the_hello_is_replaced(void **state)
{
	static const char ends[] = { ACCEPTED, HELLO_READ, HALF_ANSWERED };
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = "/proc/self/exe",
					.timeout_ms = 60000 };
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(ends); i++) {
		int listener = unix_listen(w->path, SOCK_STREAM, 0600), status;
		struct gbpf *g;
		pid_t pid;

		assert_true(listener >= 0);
		pid = fork();
		if (pid == 0) {
			answer_hello(listener, ends[i]);
		}
		close(listener);
		write_script(w, "g");
		assert_int_equal(gbpf_open(&g, w->dir, GBPF_OPEN_NO_CONNECT), 0);
		assert_int_equal(gbpf_start_daemon(g, &o), 0);
		assert_string_equal(gbpf_hello(g)->version, "9.9");
		gbpf_close(g);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
}

#define WITH_WORLD(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(no_listener_is_reported),
		WITH_WORLD(hello_is_kept_and_a_call_gives_its_result),
		WITH_WORLD(an_error_travels_whole),
		WITH_WORLD(another_protocol_version_is_reported),
		WITH_WORLD(invalid_json_is_refused),
		WITH_WORLD(silence_is_a_timeout),
		WITH_WORLD(a_lost_connection_is_made_again),
		WITH_WORLD(events_come_first_from_the_past_then_live),
		WITH_WORLD(map_calls_pass_all_parameters),
		WITH_WORLD(a_watch_ends_when_the_version_does),
		WITH_WORLD(an_object_travels_as_a_sealed_memfd),
		WITH_WORLD(operations_on_policies_name_the_gpu),
		WITH_WORLD(wrong_parameters_never_leave),
		WITH_WORLD(a_daemon_that_cannot_start_says_why),
		WITH_WORLD(a_gbpfd_that_is_killed_is_started_again),
		WITH_WORLD(a_gbpfd_that_always_ends_is_not_started_for_ever),
		WITH_WORLD(one_that_ends_in_the_hello_is_replaced),
	};

	if (argc > 5 && strcmp(argv[1], "--foreground") == 0) {
		return be_gbpfd(argv);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
