/* The control socket with callers that are wrong, hostile, or not allowed. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

#include "../users.h"

#define HELLO "{\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}\n"

static int dial(const struct gd *d)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/control.sock", d->runtime);
	fd = unix_connect(path, SOCK_STREAM);
	assert_true(fd >= 0);
	return fd;
}

static void say(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n < 0) {
			return; /* it has closed the connection: the answer says why */
		}
		text += n;
		len -= (size_t)n;
	}
}

/* Reads the next line; NULL when gbpfd has closed the connection. */
static json_t *hear(int fd)
{
	struct buf b;
	json_t *j = NULL;
	char c;

	buf_init(&b);
	while (recv(fd, &c, 1, 0) == 1 && c != '\n') {
		buf_add(&b, &c, 1);
	}
	if (b.len) {
		j = json_loadb(b.data, b.len, 0, NULL);
		assert_non_null(j);
	}
	buf_finish(&b);
	return j;
}

static void expect_error(int fd, const char *code, int exit_code)
{
	json_t *j = hear(fd), *e = json_object_get(j, "error");

	assert_non_null(e);
	assert_string_equal(json_string_value(json_object_get(e, "code")), code);
	assert_int_equal(json_integer_value(json_object_get(e, "exit")), exit_code);
	json_decref(j);
}

static void expect_result(int fd)
{
	json_t *j = hear(fd);

	assert_non_null(json_object_get(j, "result"));
	json_decref(j);
}

static void the_first_call_is_hello_with_the_right_number(void **state)
{
	static const char before[] = "{\"id\":1,\"method\":\"ps\"}\n";
	static const char wrong[] = "{\"id\":2,\"method\":\"hello\",\"params\":{\"protocol\":7}}\n";
	int fd = dial(*state);
	json_t *j;

	say(fd, before, strlen(before));
	expect_error(fd, "protocol", 2);
	say(fd, wrong, strlen(wrong));
	j = hear(fd);
	assert_non_null(
		strstr(json_string_value(json_object_get(json_object_get(j, "error"), "message")),
		       "protocol 1"));
	assert_non_null(
		strstr(json_string_value(json_object_get(json_object_get(j, "error"), "message")),
		       "speaks 7"));
	json_decref(j);
	say(fd, HELLO, strlen(HELLO));
	expect_result(fd);
	close(fd);
}

static void an_invalid_request_ends_the_connection(void **state)
{
	static const char *const junk[] = { "\n",
					    "hello\n",
					    "[]\n",
					    "{}\n",
					    "{\"method\":5}\n",
					    "{\"id\":1,\"method\":\"ps\",\"params\":[]}\n",
					    "{\"id\":1,\"method\":\"\xff\"}\n" };

	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		int fd = dial(*state);

		say(fd, junk[i], strlen(junk[i]));
		expect_error(fd, "protocol", 2);
		assert_null(hear(fd));
		close(fd);
	}
}

static void a_line_has_a_limit(void **state)
{
	size_t len = 3u << 20;
	char *line = malloc(len);
	int fd = dial(*state);

	memset(line, 'x', len);
	say(fd, line, len);
	expect_error(fd, "limit", 2);
	close(fd);
	memset(line, '[', len); /* unbounded nesting */
	line[200000] = '\n';
	fd = dial(*state);
	say(fd, line, 200001);
	expect_error(fd, "protocol", 2);
	close(fd);
	free(line);
}

static void requests_may_come_together_and_in_pieces(void **state)
{
	static const char many[] = HELLO
		"{\"id\":2,\"method\":\"ps\"}\n{\"id\":3,\"method\":\"policy.list\"}\n{\"id\":4,"
		"\"method\":\"stat";
	int fd = dial(*state);

	say(fd, many, strlen(many));
	expect_result(fd);
	expect_result(fd);
	expect_result(fd);
	say(fd, "us\"}\n", 5);
	expect_result(fd);
	close(fd);
}

/* Thousands of requests whose answers are not read: gbpfd stops reading from that caller, and
 * serves others. */
static void a_caller_that_reads_no_answers_is_not_read(void **state)
{
	static const char request[] = "{\"id\":9,\"method\":\"status\"}\n";
	struct gd *d = *state;
	json_int_t before = gd_number(d, "status", "memory_bytes");
	int fd = dial(d);
	unsigned sent = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	say(fd, HELLO, strlen(HELLO));
	for (unsigned stuck = 0; stuck < 20;) {
		ssize_t n = send(fd, request, strlen(request), MSG_NOSIGNAL);

		if (n == (ssize_t)strlen(request)) {
			sent++;
			stuck = 0;
		} else {
			json_decref(gd_call(d, "ps", NULL));
			stuck++;
		}
		assert_true(sent < 1000000);
	}
#if !defined(__SANITIZE_ADDRESS__) /* its allocator keeps freed memory */
	assert_true(gd_number(d, "status", "memory_bytes") - before < (32 << 20));
#else
	(void)before;
#endif
	close(fd);
}

static void unexpected_descriptors_are_closed(void **state)
{
	static const char request[] = "{\"id\":9,\"method\":\"ps\"}\n";
	struct gd *d = *state;
	int fd = dial(d), extra[4] = { 1, 1, 2, 2 };
	unsigned before;

	say(fd, HELLO, strlen(HELLO));
	expect_result(fd);
	before = count_fds(d->pid);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(msg_send(fd, request, strlen(request), extra, 4), 0);
		expect_result(fd);
	}
	eventually(count_fds(d->pid) <=
		   before); /* the answer may arrive before the last are closed */
	close(fd);
}

static void unknown_methods_and_parameters_are_reported(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	assert_true(gbpf_call(g, "policy.explode", NULL, -1, NULL) < 0);
	assert_non_null(strstr(gbpf_last_error(g)->message, "policy.explode"));
	assert_int_equal(gbpf_call(g, "policy.show", "{\"version\":-3}", -1, NULL), -ENOENT);
	assert_int_equal(gbpf_call(g, "policy.rollback", "{\"version\":-3}", -1, NULL), -ENOENT);
	assert_int_equal(gbpf_call(g, "policy.unload", "{\"gpu\":16}", -1, NULL), -ENOENT);
	assert_int_equal(gbpf_call(g, "policy.unload", "{\"gpu\":\"x\"}", -1, NULL), -ENOENT);
	gbpf_close(g);
}

static void policies_may_differ_by_gpu(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct fake f;
	union proto_message m;

	assert_int_equal(gbpf_policy_load(g, gd_object("plain"), NULL, 0, NULL), 0);
	assert_int_equal(gbpf_policy_load(g, gd_object("counting"), NULL, GBPF_LOAD_SWAP, NULL), 0);
	fake_enter(&f, d, 2, "f");
	fake_prepare(&f, 0);
	gbpf_set_timeout(g, 5000);
	assert_int_equal(gbpf_call(g, "policy.rollback", "{\"version\":1,\"gpu\":3}", -1, NULL), 0);
	assert_int_equal(f.dir->version[0], 2);
	assert_int_equal(f.dir->version[3], 1);
	assert_int_equal(gbpf_call(g, "map.list", "{\"version\":1,\"gpu\":3}", -1, NULL), 0);
	assert_int_equal(gbpf_call(g, "policy.unload", "{\"gpu\":3}", -1, NULL), 0);
	assert_int_equal(f.dir->version[0], 2);
	assert_int_equal(f.dir->version[3], 0);
	assert_true(gbpf_call(g, "map.list", "{\"gpu\":3}", -1, NULL) < 0);
	/* f uses GPU 0 alone, so it has heard of nothing, and version 2 was not dropped. */
	assert_int_equal(gbpf_policy_load(g, gd_object("plain"), NULL, GBPF_LOAD_SWAP, NULL), 0);
	close(fake_expect(&f, &m, PROTO_PREPARE));
	assert_int_equal(m.version.version, 3);
	assert_int_equal(m.version.gpu, 0);
	fake_expect(&f, &m, PROTO_DROP);
	assert_int_equal(m.version.version, 2);
	gbpf_close(g);
	fake_leave(&f);
}

/* As user 65534: what all users may do, what the owner may, what administrators may. */
static int as_nobody(struct gd *d, gid_t group)
{
	static const char *const forbidden[] = {
		"policy.unload", "policy.rollback", "policy.load", "off", "on", "shutdown"
	};
	struct gbpf *g;
	struct fake f;
	char *json = NULL;

	if (setgroups(1, &group) < 0 || setgid(65534) < 0 || setuid(65534) < 0) {
		return 77;
	}
	if (gbpf_open(&g, d->runtime, 0) < 0) {
		return 1;
	}
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
		if (gbpf_call(g, forbidden[i], NULL, -1, NULL) != -EPERM ||
		    gbpf_last_error(g)->exit != GBPF_CODE_PERMISSION) {
			return 2;
		}
	}
	if (gbpf_ps(g, &json) < 0 || !strstr(json, "\"hidden\":true") || strstr(json, "rooted") ||
	    strstr(json, "--fast")) {
		return 3; /* another user's name and command line are not shown */
	}
	free(json);
	if (gbpf_set(g, 0, "latency", 0, NULL) != -EPERM) {
		return 4;
	}
	fake_enter(&f, d, 2, "mine");
	if (gbpf_set(g, f.tenant, "latency", 0, NULL) != 0) {
		return 5;
	}
	gbpf_close(g);
	return 0;
}

static void other_users_may_read_but_not_change(void **state)
{
	struct gd *d = *state;
	struct fake f;
	int status;
	pid_t pid;

	NEED_TWO_USERS();
	fake_enter(&f, d, 2, "rooted");
	gd_await_event(d, 0, "start", "rooted");
	chmod(d->dir, 0755);
	pid = fork();
	if (pid == 0) {
		_exit(as_nobody(d, 65534));
	}
	waitpid(pid, &status, 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	fake_leave(&f);
}

static void one_user_cannot_take_all_connections(void **state)
{
	struct gd *d = *state;
	int status;
	pid_t pid;

	NEED_TWO_USERS();
	chmod(d->dir, 0755);
	pid = fork();
	if (pid == 0) {
		struct gbpf *g[40];
		int opened = 0;

		if (setgid(65534) < 0 || setuid(65534) < 0) {
			_exit(77);
		}
		for (int i = 0; i < 40; i++) {
			opened += gbpf_open(&g[i], d->runtime, 0) == 0;
		}
		_exit(opened == 32 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	json_decref(gd_call(d, "ps", NULL));
}

static void followers_receive_events(void **state)
{
	struct gd *d = *state;
	uint64_t since = gd_last_event(d);
	struct fake f;

	fake_enter(&f, d, 1, "heard");
	since = gd_await_event(d, since, "start", "heard");
	fake_leave(&f);
	gd_await_event(d, since, "detach", "heard");
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(the_first_call_is_hello_with_the_right_number),
		WITH_GBPFD(an_invalid_request_ends_the_connection),
		WITH_GBPFD(a_line_has_a_limit),
		WITH_GBPFD(requests_may_come_together_and_in_pieces),
		WITH_GBPFD(a_caller_that_reads_no_answers_is_not_read),
		WITH_GBPFD(unexpected_descriptors_are_closed),
		WITH_GBPFD(unknown_methods_and_parameters_are_reported),
		WITH_GBPFD(policies_may_differ_by_gpu),
		WITH_GBPFD(other_users_may_read_but_not_change),
		WITH_GBPFD(one_user_cannot_take_all_connections),
		WITH_GBPFD(followers_receive_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
