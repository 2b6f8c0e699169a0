/* Whose tools are whose, and when they end: swap, connections that hold them, later sessions, ended
 * sessions, users, limits. */
#include "probe_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"

static void later_sessions_get_the_tools_that_match(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2" };
	struct fake train, other;

	fake_enter(&train, d, 2, "train");
	attach(d, "probing", &train, NULL);
	c.probe.to = "train";
	caller_start(&c, d);
	send_state(&train, expect_probe(&train, NULL).version, 0, 1, 0, NULL);
	assert_int_equal(number(caller_result(&c), "sessions"), 1);
	caller_finish(&c);
	fake_enter(&other, d, 2, "other");
	assert_int_equal(expect_probe(&other, NULL).version, FIRST_VERSION + 1);
	handled(d, &other);
	fake_leave(&train);
	fake_enter(&train, d, 2, "train");
	assert_int_equal(expect_probe(&train, NULL).version, FIRST_VERSION + 1);
	assert_int_equal(expect_probe(&train, NULL).version, FIRST_VERSION + 2);
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"weight\":50}"));
	{
		union proto_message m;

		fake_expect(&other, &m, PROTO_SET); /* and no second tool before it */
	}
	fake_leave(&train);
	fake_leave(&other);
}

static void name_may_be_that_of_later_programs(void **state)
{
	struct gd *d = *state;
	struct caller now = { .object = "probing", .probe = { .to = "train" } },
		      later = { .object = "probing",
				.probe = { .to = "train", .flags = GBPF_PROBE_LATER } };
	struct fake other, f;

	fake_enter(&other, d, 2, "other");
	caller_start(&now, d);
	caller_fails(&now, GBPF_CODE_NOT_FOUND, "no program 'train' runs under gBPF");
	caller_start(&later, d);
	assert_int_equal(number(caller_result(&later), "sessions"), 0);
	fake_enter(&f, d, 2, "train");
	expect_probe(&f, NULL);
	caller_finish(&now);
	caller_finish(&later);
	fake_leave(&f);
	fake_leave(&other);
}

/* Such a name would be cut, and reach terminals as it is. */
static void name_of_later_programs_is_one_that_they_can_have(void **state)
{
	static const char *const names[] = {
		"a\x1b[2J",
		"\xe2\x80\xae",
		/* 64 bytes, and 63 that end within a character */
		"0123456789012345678901234567890123456789012345678901234567890123",
		"01234567890123456789012345678901234567890123456789012345678901\xc3\xa9",
	};
	struct gd *d = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct caller c = { .object = "probing",
				    .probe = { .to = names[i], .flags = GBPF_PROBE_LATER } };

		caller_start(&c, d);
		caller_fails(&c, GBPF_CODE_NOT_FOUND, "no program '");
		caller_finish(&c);
	}
}

static void tool_of_one_process_ends_with_it(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	struct fake f, other;

	fake_enter(&other, d, 2, "other");
	fake_enter(&f, d, 2, "train");
	c.probe.to = "1"; /* a tenant's number: both have the pid of this process */
	caller_start(&c, d);
	send_state(&f, expect_probe(&f, NULL).version, 0, 1, 0, NULL);
	assert_int_equal(number(caller_result(&c), "sessions"), 1);
	caller_finish(&c);
	fake_leave(&f);
	await_gone(d, 1);
	fake_enter(&f, d, 2, "train"); /* with the same tenant number */
	handled(d, &f);
	fake_leave(&f);
	fake_leave(&other);
}

static void memory_of_an_ended_session_is_freed(void **state)
{
	struct gd *d = *state;
	struct fake f, other;
	json_t *r;

	fake_enter(&other, d, 2, "other");
	fake_enter(&f, d, 2, "train");
	attach(d, "probing", NULL, NULL);
	expect_probe(&f, NULL);
	expect_probe(&other, NULL);
	r = gd_call(d, "map.list", "{\"probe\":1}");
	assert_int_equal(number(json_array_get(json_object_get(r, "maps"), 0), "instances"), 2);
	json_decref(r);
	fake_leave(&f);
	do {
		json_decref(r = gd_call(d, "ps", NULL));
		r = gd_call(d, "map.list", "{\"probe\":1}");
		if (number(json_array_get(json_object_get(r, "maps"), 0), "instances") == 1) {
			break;
		}
		json_decref(r);
	} while (true);
	json_decref(r);
	assert_int_equal(gd_number(d, "status", "leaked"), 0);
	fake_leave(&other);
}

/* Starts to detach a tool, up to its session's part. Returns the order's number. */
static uint64_t start_detach(struct caller *c, struct gd *d, uint64_t version, char params[32],
			     struct fake *f)
{
	snprintf(params, 32, "{\"id\":%llu}", (unsigned long long)(version - FIRST_VERSION));
	c->method = "probe.detach";
	c->params = params;
	caller_start(c, d);
	return expect_order(f, PROTO_PROBE_END, version);
}

/* A session that has ended is not waited for: its tool's detachment is answered before another's,
 * which began earlier and waits for a session. Repeated if the machine stood still for a second. */
static void ended_session_is_not_waited_for(void **state)
{
	struct gd *d = *state;
	bool before = false;

	while (!before) {
		struct caller c[2] = { 0 };
		struct caller one = { .object = "probing2", .probe = { .to = "train" } };
		uint64_t version[2], order;
		struct fake f, other;
		char params[2][32];

		fake_enter(&other, d, 2, "other");
		version[0] = attach(d, "probing", &other, NULL);
		fake_enter(&f, d, 2, "train");
		expect_probe(&f, NULL);
		caller_start(&one, d);
		version[1] = expect_probe(&f, NULL).version;
		send_state(&f, version[1], 0, 1, 0, NULL);
		caller_result(&one);
		order = start_detach(&c[0], d, version[0], params[0], &other);
		expect_order(&f, PROTO_PROBE_END, version[0]);
		start_detach(&c[1], d, version[1], params[1], &f);
		fake_leave(&f);
		assert_int_equal(number(caller_result(&c[1]), "late"), 0);
		before = is_listed(d, (json_int_t)(version[0] - FIRST_VERSION));
		send_order(&other, PROTO_PROBE_ENDED, version[0], order);
		caller_result(&c[0]);
		caller_finish(&c[0]);
		caller_finish(&c[1]);
		caller_finish(&one);
		fake_leave(&other);
	}
}

/* ---- swap ---- */

static void swap_ends_the_old_tool_when_kernels_run_the_new_one(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .replace = 1, .name = "next" } };
	struct caller first = { .object = "probing", .probe = { .kernel = "gemm*" } };
	struct proto_probe m;
	json_t *list, *p;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&first, d);
	send_state(&f, expect_probe(&f, NULL).version, 0, 1, 0, NULL);
	caller_result(&first);
	caller_start(&c, d);
	m = expect_probe(&f, NULL);
	assert_int_equal(m.version, FIRST_VERSION + 2);
	assert_int_equal(m.replaces, FIRST_VERSION + 1);
	assert_string_equal(m.kernel, "gemm*"); /* as the old one */
	send_state(&f, m.version, 0, 0, 1, NULL);
	assert_int_equal(number(caller_result(&c), "id"), 2);
	p = listed(d, 1, &list);
	assert_string_equal(text_of(p, "state"), "replaced");
	json_decref(list);
	json_decref(gd_call(d, "map.dump", "{\"map\":\"counts\"}")); /* of the new one alone */
	send_state(&f, m.version, 0, 1, 0, NULL);
	send_order(&f, PROTO_PROBE_ENDED, FIRST_VERSION + 1,
		   expect_order(&f, PROTO_PROBE_END, FIRST_VERSION + 1));
	await_gone(d, 1);
	assert_true(is_listed(d, 2));
	gd_await_event(d, 0, "probe", "swap of tool 2 'next': replaces tool 1 'blocks'");
	caller_finish(&first);
	caller_finish(&c);
	fake_leave(&f);
}

static void refused_swap_leaves_the_old_tool(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .replace = 1 } };
	struct caller bad = { .object = "plain", .probe = { .replace = 1 } };
	uint64_t version, next;
	json_t *list, *p;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, NULL);
	caller_start(&bad, d);
	caller_fails(&bad, GBPF_CODE_REFUSED, "no programs inside kernels");
	caller_start(&c, d);
	next = expect_probe(&f, NULL).version;
	send_state(&f, next, -ENOMEM, 0, 0, "no memory");
	caller_fails(&c, GBPF_CODE_REFUSED, "no memory");
	p = listed(d, 1, &list);
	assert_int_equal(json_array_size(json_object_get(list, "probes")), 1);
	assert_string_equal(text_of(p, "state"), "attached");
	json_decref(list);
	send_state(&f, version, 0, 4, 0, NULL); /* it has that one still */
	handled(d, &f);
	caller_finish(&bad);
	caller_finish(&c);
	fake_leave(&f);
}

static void new_tool_can_be_detached_during_its_swap(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .replace = 1 } };
	struct caller detach = { .method = "probe.detach", .params = "{\"id\":2}" };
	uint64_t old, next;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	old = attach(d, "probing", &f, NULL);
	caller_start(&c, d);
	next = expect_probe(&f, NULL).version;
	send_state(&f, next, 0, 0, 1, NULL);
	caller_result(&c);
	caller_start(&detach, d);
	send_order(&f, PROTO_PROBE_ENDED, next, expect_order(&f, PROTO_PROBE_END, next));
	send_order(&f, PROTO_PROBE_ENDED, old, expect_order(&f, PROTO_PROBE_END, old));
	caller_result(&detach);
	await_gone(d, 1);
	await_gone(d, 2);
	caller_finish(&c);
	caller_finish(&detach);
	fake_leave(&f);
}

/* The caller that attaches it is answered, too. */
static void tool_can_be_detached_while_it_is_attached(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	struct caller detach = { .method = "probe.detach", .params = "{\"id\":1}" };
	uint64_t version, order;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	version = expect_probe(&f, NULL).version;
	caller_start(&detach, d);
	order = expect_order(&f, PROTO_PROBE_END, version);
	send_state(&f, version, 0, 1, 0, NULL);
	send_order(&f, PROTO_PROBE_ENDED, version, order);
	assert_int_equal(number(caller_result(&c), "id"), 1);
	assert_int_equal(number(caller_result(&detach), "id"), 1);
	assert_false(is_listed(d, 1));
	caller_finish(&c);
	caller_finish(&detach);
	fake_leave(&f);
}

/* More callers than may wait: the others are told so, and each is answered. Repeated until they
 * come at the same time. */
static void callers_that_wait_are_limited(void **state)
{
	struct gd *d = *state;
	unsigned busy = 0, late = 0, rounds = 0;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	attach(d, "probing", &f, NULL);
	while (!busy) {
		struct caller c[80] = { 0 };

		for (unsigned i = 0; i < 80; i++) {
			c[i].g = gd_open(d);
			c[i].method = "map.drain";
			c[i].params = "{\"probe\":1}";
		}
		kill(d->pid, SIGSTOP);
		for (unsigned i = 0; i < 80; i++) {
			caller_start(&c[i], d);
		}
		kill(d->pid, SIGCONT);
		for (unsigned i = 0; i < 80; i++) {
			pthread_join(c[i].thread, NULL);
			busy += c[i].err && strcmp(gbpf_last_error(c[i].g)->code, "busy") == 0;
			late += !c[i].err && number(c[i].result, "late") == 1;
			caller_finish(&c[i]);
		}
		assert_int_equal(busy + late, 80 * ++rounds);
	}
	fake_leave(&f);
}

static void ended_tool_cannot_be_replaced(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .replace = 1 } };

	caller_start(&c, d);
	caller_fails(&c, GBPF_CODE_NOT_FOUND, "no tool 1");
	caller_finish(&c);
}

/* ---- hold ---- */

static void held_tool_ends_with_its_connection(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .flags = GBPF_PROBE_HOLD } };
	uint64_t version;
	json_t *list, *p;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	version = expect_probe(&f, NULL).version;
	send_state(&f, version, 0, 1, 0, NULL);
	caller_result(&c);
	p = listed(d, 1, &list);
	assert_true(json_is_true(json_object_get(p, "hold")));
	json_decref(list);
	caller_finish(&c); /* closes the connection */
	send_order(&f, PROTO_PROBE_ENDED, version, expect_order(&f, PROTO_PROBE_END, version));
	await_gone(d, 1);
	gd_await_event(d, 0, "probe", "detach of tool 1 'blocks': its connection was closed");
	fake_leave(&f);
}

/* Expects an order that names what the holder has read. */
static uint64_t expect_read(struct fake *f, uint64_t read)
{
	union proto_message m;

	assert_int_equal(fake_expect(f, &m, PROTO_PROBE_DRAIN), -1);
	assert_int_equal(m.probe_order.read, read);
	return m.probe_order.number;
}

/* The values of an answer that came when its call had been answered are read by the call after the
 * next. */
static void drains_name_what_the_holder_has_read(void **state)
{
	struct gd *d = *state;
	struct caller holder = { .object = "probing", .probe = { .flags = GBPF_PROBE_HOLD } },
		      calls[4];
	struct proto_probe m;
	uint64_t first, late, last;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&holder, d);
	m = expect_probe(&f, NULL);
	assert_int_equal(m.held, 1);
	send_state(&f, m.version, 0, 1, 0, NULL);
	caller_result(&holder);
	for (unsigned i = 0; i < 4; i++) {
		calls[i] = (struct caller){ .method = "map.drain", .params = "{\"probe\":1}" };
	}
	caller_start(&calls[0], d);
	first = expect_read(&f, 0);
	send_order(&f, PROTO_PROBE_DRAINED, m.version, first);
	caller_result(&calls[0]);
	caller_start(&calls[1], d);
	late = expect_read(&f, first);
	assert_int_equal(number(caller_result(&calls[1]), "late"), 1);
	caller_start(&calls[2], d);
	send_order(&f, PROTO_PROBE_DRAINED, m.version, late);
	last = expect_read(&f, first);
	send_order(&f, PROTO_PROBE_DRAINED, m.version, last);
	caller_result(&calls[2]);
	caller_start(&calls[3], d);
	send_order(&f, PROTO_PROBE_DRAINED, m.version, expect_read(&f, last));
	caller_result(&calls[3]);
	for (unsigned i = 0; i < 4; i++) {
		caller_finish(&calls[i]);
	}
	caller_finish(&holder);
	fake_leave(&f);
}

static void killed_tracer_s_tool_ends(void **state)
{
	struct gd *d = *state;
	int p[2], status;
	uint64_t version;
	struct fake f;
	char byte;
	pid_t pid;

	fake_enter(&f, d, 2, "train");
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		struct caller c = { .object = "probing", .probe = { .flags = GBPF_PROBE_HOLD } };

		caller_start(&c, d);
		pthread_join(c.thread, NULL);
		_exit(c.err || write(p[1], "", 1) != 1 || pause() != 0);
	}
	version = expect_probe(&f, NULL).version;
	send_state(&f, version, 0, 1, 0, NULL);
	assert_int_equal(read(p[0], &byte, 1), 1);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	expect_order(&f, PROTO_PROBE_END, version);
	close(p[0]);
	close(p[1]);
	fake_leave(&f);
}

/* The connection is closed before the tool is built: nothing is attached. The worker builds in
 * order, so an answer to a later attach means that the first was built. */
static void tool_of_a_closed_connection_is_not_attached(void **state)
{
	static const char hello[] = "{\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}\n";
	static const char line[] = "{\"id\":2,\"method\":\"probe.attach\",\"params\":{\"name\":"
				   "\"x\",\"hold\":true}}\n";
	struct gd *d = *state;
	struct buf elf = { 0 };
	char path[128], answer[1024];
	int sock, fd;

	snprintf(path, sizeof(path), "%s/control.sock", d->runtime);
	sock = unix_connect(path, SOCK_STREAM);
	assert_true(sock >= 0);
	assert_int_equal(buf_read_file(&elf, gd_object("probing"), 16u << 20), 0);
	fd = shm_create("object", elf.len, SHM_NOEXEC);
	assert_int_equal(pwrite(fd, elf.data, elf.len, 0), elf.len);
	assert_int_equal(msg_send(sock, hello, sizeof(hello) - 1, NULL, 0), 0);
	assert_true(read(sock, answer, sizeof(answer)) > 0); /* the descriptor is the next line's */
	assert_int_equal(msg_send(sock, line, sizeof(line) - 1, &fd, 1), 0);
	close(sock);
	close(fd);
	buf_finish(&elf);
	eventually(gd_number(d, "status", "connections") <= 1);
	assert_int_equal(attach(d, "probing", NULL, NULL), FIRST_VERSION + 2);
	assert_false(is_listed(d, 1));
}

/* ---- users ---- */

static void users_reach_their_own_programs_only(void **state)
{
	struct gd *d = *state;
	struct caller own = { .object = "probing" }, foreign = { .object = "probing" };
	struct caller detach = { .method = "probe.detach", .params = "{\"id\":1}" };
	struct fake alice, bob;
	json_t *r;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	AS_USER(USER_A, fake_connect(&alice, d));
	fake_say_hello(&alice, 2, 100, "alice");
	fake_welcomed(&alice);
	AS_USER(USER_B, fake_connect(&bob, d));
	fake_say_hello(&bob, 2, 100, "bob");
	fake_welcomed(&bob);
	AS_USER(USER_A, own.g = gd_open(d));
	caller_start(&own, d);
	send_state(&alice, expect_probe(&alice, NULL).version, 0, 1, 0, NULL);
	assert_int_equal(number(caller_result(&own), "sessions"), 1);
	AS_USER(USER_B, foreign.g = gd_open(d));
	foreign.probe.to = "alice";
	caller_start(&foreign, d);
	caller_fails(&foreign, GBPF_CODE_NOT_FOUND, "alice");
	AS_USER(USER_B, detach.g = gd_open(d));
	caller_start(&detach, d);
	caller_fails(&detach, GBPF_CODE_NOT_FOUND, "no tool 1");
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"weight\":50}"));
	{
		union proto_message m;

		fake_expect(&bob, &m, PROTO_SET); /* and no tool before it */
	}
	r = gd_call(d, "probe.list", NULL); /* root sees it */
	assert_int_equal(number(json_array_get(json_object_get(r, "probes"), 0), "uid"), USER_A);
	json_decref(r);
	caller_finish(&own);
	caller_finish(&foreign);
	caller_finish(&detach);
	fake_leave(&alice);
	fake_leave(&bob);
}

/* An administrator's tool in a user's program: the user sees it, and may not end it. */
static void user_sees_an_operator_s_tool_in_its_program(void **state)
{
	struct gd *d = *state;
	struct caller list = { .method = "probe.list", .params = "{}" };
	struct caller detach = { .method = "probe.detach", .params = "{\"id\":1}" };
	struct fake alice, root;
	json_t *p;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	AS_USER(USER_A, fake_connect(&alice, d));
	fake_say_hello(&alice, 2, 100, "alice");
	fake_welcomed(&alice);
	fake_enter(&root, d, 2, "roots_own");
	attach(d, "probing", NULL, NULL);
	expect_probe(&alice, NULL);
	AS_USER(USER_A, list.g = gd_open(d));
	caller_start(&list, d);
	p = json_array_get(json_object_get(caller_result(&list), "probes"), 0);
	assert_int_equal(number(p, "id"), 1);
	assert_int_equal(json_array_size(json_object_get(p, "tenants")), 1);
	assert_true(json_is_false(json_object_get(p, "may_detach")));
	AS_USER(USER_A, detach.g = gd_open(d));
	caller_start(&detach, d);
	caller_fails(&detach, GBPF_CODE_PERMISSION, "belongs to user 0");
	caller_finish(&list);
	caller_finish(&detach);
	fake_leave(&alice);
	fake_leave(&root);
}

/* ---- limits ---- */

static void there_are_16_tools(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" }, swap = { .object = "probing2" };

	for (unsigned i = 0; i < 16; i++) {
		attach(d, "probing", NULL, NULL);
	}
	caller_start(&c, d);
	caller_fails(&c, GBPF_CODE_LIMIT, "16 tools are attached");
	swap.probe.replace = 3;
	caller_start(&swap, d);
	assert_int_equal(number(caller_result(&swap), "id"), 17);
	assert_false(is_listed(d, 3));
	json_decref(gd_call(d, "probe.detach", "{\"id\":4}"));
	attach(d, "probing", NULL, NULL);
	caller_finish(&c);
	caller_finish(&swap);
}

/* Attaches as that user, as often as its rate allows. Returns gbpfd's error, "" for none. */
static const char *attach_as(struct gd *d, uid_t uid, char text[256])
{
	struct caller c = { .object = "probing" };
	bool again;

	AS_USER(uid, c.g = gd_open(d));
	do {
		caller_start(&c, d);
		pthread_join(c.thread, NULL);
		snprintf(text, 256, "%s", c.err ? gbpf_last_error(c.g)->message : "");
		again = strstr(text, "too many tools are being attached") != NULL;
	} while (again);
	caller_finish(&c);
	return text;
}

static void users_leave_places_to_operators(void **state)
{
	static const unsigned gets[] = { 4, 4, 2, 1, 1 }; /* users, one after the other */
	struct gd *d = *state;
	char text[256], full[80];

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	for (unsigned u = 0; u < 5; u++) {
		for (unsigned i = 0; i < gets[u]; i++) {
			assert_string_equal(attach_as(d, USER_A + u, text), "");
		}
		snprintf(full, sizeof(full),
			 "user %u has %u tools attached, of %u that others leave to it", USER_A + u,
			 gets[u], gets[u]);
		assert_string_equal(attach_as(d, USER_A + u, text), full);
	}
	assert_string_equal(attach_as(d, USER_A + 5, text),
			    "user 65538 has 0 tools attached, of 0 that others leave to it");
	attach(d, "probing", NULL, NULL);
}

/* Building takes the worker's time. */
static void users_attach_at_a_limited_rate(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "plain" }; /* built, then refused */
	unsigned refused = 0, busy = 0;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	AS_USER(USER_A, c.g = gd_open(d));
	while (!busy) {
		caller_start(&c, d);
		pthread_join(c.thread, NULL);
		assert_true(c.err < 0);
		busy += strcmp(gbpf_last_error(c.g)->code, "busy") == 0;
		refused += gbpf_last_error(c.g)->exit == GBPF_CODE_REFUSED;
	}
	assert_true(refused >= 4);
	caller_finish(&c);
}

static void parameters_are_checked(void **state)
{
	static const struct {
		const char *params;
		int exit;
	} cases[] = {
		{ "{\"name\":\"\"}", GBPF_CODE_USAGE },
		{ "{\"name\":\"a b\"}", GBPF_CODE_USAGE },
		{ "{\"name\":7}", GBPF_CODE_USAGE },
		{ "{\"name\":\"x\"}", GBPF_CODE_USAGE }, /* no object */
		{ "{}", GBPF_CODE_USAGE },
	};
	static const struct {
		struct gbpf_probe probe;
		int exit;
	} with_object[] = {
		{ { .to = "" }, GBPF_CODE_NOT_FOUND },
		{ { .to = "99" }, GBPF_CODE_NOT_FOUND },
		{ { .kernel = "" }, GBPF_CODE_USAGE },
		{ { .kernel = "a\tb" }, GBPF_CODE_USAGE },
		{ { .replace = 5 }, GBPF_CODE_NOT_FOUND },
	};
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_true(gbpf_call(g, "probe.attach", cases[i].params, -1, NULL) < 0);
		assert_int_equal(gbpf_last_error(g)->exit, cases[i].exit);
	}
	for (size_t i = 0; i < sizeof(with_object) / sizeof(with_object[0]); i++) {
		struct caller c = { .object = "probing", .probe = with_object[i].probe };

		caller_start(&c, d);
		caller_fails(&c, with_object[i].exit, "");
		caller_finish(&c);
	}
	attach(d, "probing", NULL, NULL);
	gbpf_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(later_sessions_get_the_tools_that_match),
		WITH_GBPFD(name_may_be_that_of_later_programs),
		WITH_GBPFD(name_of_later_programs_is_one_that_they_can_have),
		WITH_GBPFD(tool_of_one_process_ends_with_it),
		WITH_GBPFD(memory_of_an_ended_session_is_freed),
		WITH_GBPFD(ended_session_is_not_waited_for),
		WITH_GBPFD(swap_ends_the_old_tool_when_kernels_run_the_new_one),
		WITH_GBPFD(refused_swap_leaves_the_old_tool),
		WITH_GBPFD(new_tool_can_be_detached_during_its_swap),
		WITH_GBPFD(tool_can_be_detached_while_it_is_attached),
		WITH_GBPFD(callers_that_wait_are_limited),
		WITH_GBPFD(ended_tool_cannot_be_replaced),
		WITH_GBPFD(held_tool_ends_with_its_connection),
		WITH_GBPFD(drains_name_what_the_holder_has_read),
		WITH_GBPFD(killed_tracer_s_tool_ends),
		WITH_GBPFD(tool_of_a_closed_connection_is_not_attached),
		WITH_GBPFD(users_reach_their_own_programs_only),
		WITH_GBPFD(user_sees_an_operator_s_tool_in_its_program),
		WITH_GBPFD(there_are_16_tools),
		WITH_GBPFD(users_leave_places_to_operators),
		WITH_GBPFD(users_attach_at_a_limited_rate),
		WITH_GBPFD(parameters_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
