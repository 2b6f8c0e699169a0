/* Tools and restarts of gbpfd: they are attached again, with their number, target, settings and
 * holder, and those that were detached, whose process has ended, or that are damaged are not. */
#include "probe_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void restart_after_kill(struct gd *d)
{
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
}

/* Receives the message that no more tools follow. */
static void expect_all_named(struct fake *f)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive_any(f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_PROBE_END);
	assert_int_equal(m.probe_order.version, 0);
}

static void tools_are_attached_again(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing",
			    .probe = { .kernel = "gemm*",
				       .budget_ppm = 30000,
				       .every = 8,
				       .flags = GBPF_PROBE_PARTIAL } };
	struct proto_probe m;
	struct fake f, other;
	json_t *list;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	send_state(&f, expect_probe(&f, NULL).version, 0, 1, 0, NULL);
	assert_true(json_is_true(json_object_get(caller_result(&c), "stored")));
	caller_finish(&c);
	json_decref(gd_call(d, "probe.set", "{\"id\":1,\"every\":4,\"budget_ppm\":20000}"));
	assert_int_equal(gbpf_probe_set_kernel(d->g, 1, "gemm_\"1*", 64, -1, NULL), 0);
	assert_int_equal(gbpf_probe_set_kernel(d->g, 1, "gemm_2*", 0, 1, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		if (i) {
			restart_after_kill(d);
		} else {
			assert_int_equal(gd_stop(d), 0);
			assert_int_equal(gd_start(d, NULL), 0);
		}
		assert_int_equal(number(listed(d, 1, &list), "every"), 4);
		json_decref(list);
		fake_reattach(&f, d, 0);
		m = expect_probe(&f, NULL);
		assert_int_equal(m.version, FIRST_VERSION + 1);
		assert_int_equal(m.budget_ppm, 20000);
		assert_int_equal(m.control.every, 4);
		assert_int_equal(m.control.n, 2);
		assert_string_equal(m.control.scopes[0].kernel, "gemm_\"1*");
		assert_int_equal(m.control.scopes[0].every, 64);
		assert_int_equal(m.control.scopes[0].on_off, PROTO_PROBE_AS_OTHERS);
		assert_string_equal(m.control.scopes[1].kernel, "gemm_2*");
		assert_int_equal(m.control.scopes[1].every, 0);
		assert_int_equal(m.control.scopes[1].on_off, PROTO_PROBE_OFF);
		assert_int_equal(m.partial, 1);
		assert_string_equal(m.kernel, "gemm*");
		expect_all_named(&f);
		send_state(&f, m.version, 0, 3, 0, NULL);
		handled(d, &f);
		assert_int_equal(number(listed(d, 1, &list), "kernels"), 3);
		json_decref(list);
	}
	fake_enter(&other, d, 2, "other"); /* a new process gets no message that these are all */
	assert_int_equal(expect_probe(&other, NULL).version, FIRST_VERSION + 1);
	handled(d, &other);
	fake_leave(&other);
	c = (struct caller){ .method = "probe.detach", .params = "{\"id\":1}" };
	caller_start(&c, d);
	send_order(&f, PROTO_PROBE_ENDED, m.version, expect_order(&f, PROTO_PROBE_END, m.version));
	caller_result(&c);
	caller_finish(&c);
	restart_after_kill(d);
	assert_false(is_listed(d, 1));
	fake_reattach(&f, d, 0);
	expect_all_named(&f); /* and no PROBE before it */
	fake_leave(&f);
}

static void numbers_are_not_given_again(void **state)
{
	struct gd *d = *state;

	assert_int_equal(attach(d, "probing", NULL, NULL), FIRST_VERSION + 1);
	assert_int_equal(attach(d, "probing2", NULL, NULL), FIRST_VERSION + 2);
	json_decref(gd_call(d, "probe.detach", "{\"id\":2}"));
	restart_after_kill(d);
	assert_int_equal(attach(d, "probing", NULL, NULL), FIRST_VERSION + 3);
}

static void swap_is_kept(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .replace = 1 } };
	struct fake f;

	fake_enter(&f, d, 2, "train");
	attach(d, "probing", &f, NULL);
	caller_start(&c, d); /* its kernel is never ready: both tools are there when gbpfd ends */
	send_state(&f, expect_probe(&f, NULL).version, 0, 0, 1, NULL);
	caller_result(&c);
	caller_finish(&c);
	assert_true(is_listed(d, 1));
	restart_after_kill(d);
	assert_false(is_listed(d, 1));
	assert_true(is_listed(d, 2));
	fake_reattach(&f, d, 0);
	assert_int_equal(expect_probe(&f, NULL).version, FIRST_VERSION + 2);
	expect_all_named(&f);
	restart_after_kill(d); /* the first one's files are removed, too */
	assert_false(is_listed(d, 1));
	fake_leave(&f);
}

static void tool_of_one_process_finds_it_again(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .to = "1" } };
	struct fake f, other;

	fake_enter(&other, d, 2, "other");
	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	send_state(&f, expect_probe(&f, NULL).version, 0, 1, 0, NULL);
	caller_result(&c);
	caller_finish(&c);
	restart_after_kill(d);
	fake_leave(&other);
	fake_enter(&other, d, 2, "new"); /* of the same process number, but not returning */
	handled(d, &other);
	fake_reattach(&f, d, 0);
	assert_int_equal(expect_probe(&f, NULL).version, FIRST_VERSION + 1);
	expect_all_named(&f);
	handled(d, &f);
	assert_true(is_listed(d, 1));
	fake_leave(&f);
	await_gone(d, 1);
	fake_leave(&other);
}

/* Starts a process that attaches and holds a tool, and waits. */
static pid_t start_tracer(struct gd *d, struct fake *f)
{
	int p[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		struct caller c = { .object = "probing", .probe = { .flags = GBPF_PROBE_HOLD } };

		caller_start(&c, d);
		pthread_join(c.thread, NULL);
		_exit(c.err || write(p[1], "", 1) != 1 || pause() != 0);
	}
	send_state(f, expect_probe(f, NULL).version, 0, 1, 0, NULL);
	assert_int_equal(read(p[0], &byte, 1), 1);
	close(p[0]);
	close(p[1]);
	return pid;
}

static void kill_tracer(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void held_tool_ends_with_its_process(void **state)
{
	struct gd *d = *state;
	const json_t *held;
	struct fake f;
	pid_t pid;
	json_t *list;

	fake_enter(&f, d, 2, "train");
	pid = start_tracer(d, &f);
	restart_after_kill(d);
	held = json_object_get(listed(d, 1, &list), "hold");
	assert_true(json_is_true(held)); /* a macro, which evaluates it twice */
	json_decref(list);
	fake_reattach(&f, d, 0);
	assert_int_equal(expect_probe(&f, NULL).version, FIRST_VERSION + 1);
	expect_all_named(&f);
	kill_tracer(pid);
	expect_order(&f, PROTO_PROBE_END, FIRST_VERSION + 1);
	fake_leave(&f);
}

static void tool_of_a_tracer_that_died_meanwhile_is_gone(void **state)
{
	struct gd *d = *state;
	struct fake f;
	pid_t pid;

	fake_enter(&f, d, 2, "train");
	pid = start_tracer(d, &f);
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	kill_tracer(pid);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_false(is_listed(d, 1));
	gd_await_event(d, 0, "probe", "has ended");
	fake_reattach(&f, d, 0);
	expect_all_named(&f);
	fake_leave(&f);
}

static void write_file(const struct gd *d, const char *name, const char *text)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/tools/%s", d->state, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void damaged_tools_are_left_out(void **state)
{
	static const char target[] = "\"target\":{\"uid\":-1,\"name\":\"\",\"text\":\"\"}";
	static const struct {
		const char *file, *text;
	} files[] = {
		{ "2.json", "" },
		{ "3.json", "{\"name\":7" },
		{ "4.json", "[]" },
		{ "5.json", "{\"name\":\"a/b\",\"kernel\":\"*\",%s}" },
		{ "6.json", "{\"name\":\"x\",\"kernel\":\"*\",%s}" }, /* without an object */
		{ "7.json", "{\"name\":\"x\",\"kernel\":\"*\",\"budget_ppm\":-1,%s}" },
		{ "8.json", "{\"name\":\"x\",\"kernel\":\"*\",%s}" },
		{ "8.bpf.o", "no object" },
		{ "9.json", "{\"name\":\"x\",\"kernel\":\"*\",\"holder\":{},%s}" },
		{ "99999999999.json", "{}" },
		{ "next.json", "{\"next\":-5}" },
	};
	struct gd *d = *state;
	struct stat st;
	char text[200];
	json_t *list;

	attach(d, "probing", NULL, NULL);
	assert_int_equal(gd_stop(d), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *mark = strstr(files[i].text, "%s");

		snprintf(text, sizeof(text), "%.*s%s%s",
			 mark ? (int)(mark - files[i].text) : (int)strlen(files[i].text),
			 files[i].text, mark ? target : "", mark ? mark + 2 : "");
		write_file(d, files[i].file, text);
	}
	assert_int_equal(gd_start(d, NULL), 0);
	list = gd_call(d, "probe.list", NULL);
	assert_int_equal(json_array_size(json_object_get(list, "probes")), 1);
	json_decref(list);
	assert_true(is_listed(d, 1));
	gd_await_event(d, 0, "probe", "tool 8 of an earlier gbpfd was detached");
	snprintf(text, sizeof(text), "%s/tools/8.bpf.o", d->state);
	assert_int_equal(stat(text, &st), -1);
	assert_int_equal(attach(d, "probing", NULL, NULL), FIRST_VERSION + 10);
}

static void tool_is_attached_if_it_cannot_be_stored(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	char path[128], aside[128];

	snprintf(path, sizeof(path), "%s/tools", d->state);
	snprintf(aside, sizeof(aside), "%s/aside", d->state);
	assert_int_equal(rename(path, aside), 0);
	caller_start(&c, d);
	assert_true(json_is_false(json_object_get(caller_result(&c), "stored")));
	caller_finish(&c);
	assert_true(is_listed(d, 1));
	gd_await_event(d, 0, "store", "will not survive a restart");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(tools_are_attached_again),
		WITH_GBPFD(numbers_are_not_given_again),
		WITH_GBPFD(swap_is_kept),
		WITH_GBPFD(tool_of_one_process_finds_it_again),
		WITH_GBPFD(held_tool_ends_with_its_process),
		WITH_GBPFD(tool_of_a_tracer_that_died_meanwhile_is_gone),
		WITH_GBPFD(damaged_tools_are_left_out),
		WITH_GBPFD(tool_is_attached_if_it_cannot_be_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
