/* The session socket's messages with a hostile peer: only exact messages pass, and no descriptor
 * leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/wire.h"

#include "../eventually.h"

static int pair[2];

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

static int teardown(void **state)
{
	(void)state;
	fd_close(pair[0]);
	fd_close(pair[1]);
	return 0;
}

static unsigned baseline; /* descriptors before the first test; each test adds its pair */

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

/* Another thread closes descriptors of untrusted peers. */
static void await_fds(unsigned n)
{
	eventually(open_fds() == n);
}

static union proto_message make(enum proto_type type)
{
	union proto_message m;

	memset(&m, 0, sizeof(m));
	m.head.type = type;
	return m;
}

static int receive(union proto_message *m)
{
	int fds[8];
	unsigned n;
	int r = proto_recv(pair[1], m, fds, &n);

	for (unsigned i = 0; i < n; i++) {
		close(fds[i]);
	}
	return r;
}

/* Sends raw bytes with nfds copies of one descriptor. */
static void raw(const void *data, size_t len, unsigned nfds)
{
	int fds[8];

	for (unsigned i = 0; i < nfds; i++) {
		fds[i] = STDERR_FILENO;
	}
	assert_int_equal(msg_send(pair[0], data, len, fds, nfds), 0);
}

static void every_type_makes_the_round_trip(void **state)
{
	static const unsigned fds_of[PROTO_TYPES] = {
		[PROTO_WELCOME] = 3,  [PROTO_PREPARE] = 3,   [PROTO_BOARD_ADD] = 1,
		[PROTO_FLAG] = 1,     [PROTO_PROBE] = 1,     [PROTO_FLAG_ADD] = 1,
		[PROTO_PEER_ADD] = 1, [PROTO_IPC_GIVEN] = 3, [PROTO_IPC_OPENED] = 1,
	};
	/* Their first words say how many descriptors or words follow. */
	static const bool cleared[PROTO_TYPES] = {
		[PROTO_HELLO] = true,	    [PROTO_PREPARE] = true, [PROTO_DEVICES] = true,
		[PROTO_DEVICES_ARE] = true, [PROTO_CONTROL] = true, [PROTO_FLAG] = true,
		[PROTO_FLAG_ADD] = true,    [PROTO_ACCOUNT] = true, [PROTO_FLAG_REMOVE] = true,
	};
	int send_fds[3] = { 2, 2, 2 };

	(void)state;
	for (int t = PROTO_HELLO; t < PROTO_TYPES; t++) {
		union proto_message m = make(t), got;
		unsigned want = fds_of[t], n;
		int fds[8];

		if (t == PROTO_PREPARE) {
			m.version.regions = PROTO_REGION_GLOBAL | PROTO_REGION_TENANT;
		}
		if (t == PROTO_IPC_GIVEN || t == PROTO_IPC_OPENED) {
			m.ipc.n = want;
		}
		memset((char *)&m + sizeof(m.head), cleared[t] ? 0 : 0x41, 8);
		if (proto_send(pair[0], &m, t, send_fds, want)) {
			fail_msg("message type %d has no size in sizes[] of wire.c", t);
		}
		assert_int_equal(proto_recv(pair[1], &got, fds, &n), 1);
		assert_int_equal(got.head.type, t);
		assert_int_equal(n, want);
		assert_memory_equal(&got, &m, m.head.bytes);
		while (n) {
			close(fds[--n]);
		}
	}
}

static void words_that_contradict_each_other_are_refused(void **state)
{
	union proto_message m = make(PROTO_DEVICES);
	int fd = 2;

	(void)state;
	m.devices.gpus = PROTO_MAX_GPUS + 1;
	assert_int_equal(proto_send(pair[0], &m, PROTO_DEVICES, NULL, 0), 0);
	assert_int_equal(receive(&m), -EPROTO);
	m = make(PROTO_CONTROL);
	m.control.bytes = PROTO_HANDLES + 1;
	assert_int_equal(proto_send(pair[0], &m, PROTO_CONTROL, &fd, 1), 0);
	assert_int_equal(receive(&m), -EPROTO);
	m = make(PROTO_CONTROL);
	m.control.bytes = 4; /* handles without the length they need */
	assert_int_equal(proto_send(pair[0], &m, PROTO_CONTROL, NULL, 0), 0);
	assert_int_equal(receive(&m), -EPROTO);
	m = make(PROTO_FLAG);
	m.flag.number = 2;
	assert_int_equal(proto_send(pair[0], &m, PROTO_FLAG, &fd, 1), 0);
	assert_int_equal(receive(&m), -EPROTO);
	m = make(PROTO_FLAG_ADD);
	m.flag.number = PROTO_FLAGS;
	assert_int_equal(proto_send(pair[0], &m, PROTO_FLAG_ADD, &fd, 1), 0);
	assert_int_equal(receive(&m), -EPROTO);
}

static int receive_control(enum proto_type type, const struct proto_probe_control *c,
			   union proto_message *ret)
{
	union proto_message m = { 0 };
	int fd = 2;

	if (type == PROTO_PROBE) {
		m.probe.control = *c;
	} else {
		m.probe_set.control = *c;
	}
	assert_int_equal(proto_send(pair[0], &m, type, &fd, type == PROTO_PROBE), 0);
	return receive(ret);
}

static void wrong_scopes_of_a_tool_are_refused(void **state)
{
	static const enum proto_type types[] = { PROTO_PROBE, PROTO_PROBE_SET };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct proto_probe_control c = { .every = 1, .n = PROTO_PROBE_SCOPES };
		const struct proto_probe_control *got;
		union proto_message m;

		memset(c.scopes[15].kernel, 'a', PROTO_PATTERN);
		assert_int_equal(receive_control(types[i], &c, &m), 1);
		got = i ? &m.probe_set.control : &m.probe.control;
		assert_int_equal(strlen(got->scopes[15].kernel), PROTO_PATTERN - 1);
		c.n++;
		assert_int_equal(receive_control(types[i], &c, &m), -EPROTO);
		c.n = UINT32_MAX;
		assert_int_equal(receive_control(types[i], &c, &m), -EPROTO);
		c.n = 1;
		c.scopes[0].on_off = PROTO_PROBE_OFF + 1;
		assert_int_equal(receive_control(types[i], &c, &m), -EPROTO);
		c.scopes[0].on_off = PROTO_PROBE_OFF;
		c.off = 2;
		assert_int_equal(receive_control(types[i], &c, &m), -EPROTO);
	}
}

static void answers_about_memory_have_chunks_or_an_error(void **state)
{
	static const struct {
		int32_t error;
		uint32_t n, sent;
		int want;
	} cases[] = {
		{ 0, 1, 1, 1 },
		{ 0, 3, 3, 1 },
		{ 0, 2, 3, 1 },
		{ 0, 0, 0, -EPROTO },
		{ 0, 2, 1, -EPROTO },
		{ 0, PROTO_IPC_CHUNKS + 1, 3, -EPROTO },
		{ 0, UINT32_MAX, 3, -EPROTO },
		{ 2, 0, 0, 1 },
		{ 2, 0, 3, 1 },
		{ 2, 1, 1, -EPROTO },
		{ 4095, 0, 0, 1 },
		{ 4096, 0, 0, -EPROTO },
		{ -2, 0, 0, -EPROTO },
		{ INT32_MIN, 0, 0, -EPROTO },
	};
	int fds[3] = { 2, 2, 2 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		union proto_message m = make(PROTO_IPC_OPENED), got;

		m.ipc.error = cases[i].error;
		m.ipc.n = cases[i].n;
		assert_int_equal(proto_send(pair[0], &m, PROTO_IPC_OPENED, fds, cases[i].sent), 0);
		assert_int_equal(receive(&got), cases[i].want);
	}
}

static void a_type_that_does_not_exist_is_not_sent(void **state)
{
	union proto_message m = make(0);

	(void)state;
	assert_int_equal(proto_send(pair[0], &m, 0, NULL, 0), -EINVAL);
	assert_int_equal(proto_send(pair[0], &m, PROTO_TYPES, NULL, 0), -EINVAL);
}

static void nothing_there_is_eagain_and_a_closed_peer_is_zero(void **state)
{
	union proto_message m;

	(void)state;
	assert_int_equal(receive(&m), -EAGAIN);
	raw("x", 1, 0);
	close(pair[0]);
	pair[0] = -1;
	assert_int_equal(receive(&m), -EPROTO);
	assert_int_equal(receive(&m), 0);
}

static void a_full_buffer_is_eagain(void **state)
{
	union proto_message m = make(PROTO_NOTE);
	int r = 0;

	(void)state;
	for (int i = 0; i < 100000 && !r; i++) {
		r = proto_send(pair[0], &m, PROTO_NOTE, NULL, 0);
	}
	assert_int_equal(r, -EAGAIN);
}

static void another_version_is_distinguished_from_garbage(void **state)
{
	struct proto_head h = { PROTO_MAGIC, PROTO_VERSION + 1, PROTO_HELLO, 12345 };
	char longer[sizeof(union proto_message) + 1] = { 0 };
	union proto_message m;

	(void)state;
	raw(&h, sizeof(h), 2);
	assert_int_equal(receive(&m), -EPROTONOSUPPORT);
	assert_int_equal(m.head.version, PROTO_VERSION + 1);
	memcpy(longer, &h, sizeof(h));
	raw(longer, sizeof(longer), 0); /* a later version may have longer messages */
	assert_int_equal(receive(&m), -EPROTONOSUPPORT);
	assert_int_equal(m.head.version, PROTO_VERSION + 1);
}

/* A peer of another version can read the reason of a refusal. */
static void a_refusal_is_read_in_any_version(void **state)
{
	union proto_message m = make(PROTO_REFUSED);

	(void)state;
	m.head.version = PROTO_VERSION + 1;
	assert_int_equal(proto_send(pair[0], &m, PROTO_REFUSED, NULL, 0), 0);
	memset(&m, 0, sizeof(m));
	assert_int_equal(receive(&m), 1);
	assert_int_equal(m.head.version, PROTO_VERSION + 1);
	assert_int_equal(m.head.type, PROTO_REFUSED);
	m.head.version = PROTO_VERSION + 1; /* other messages are valid in this version only */
	assert_int_equal(proto_send(pair[0], &m, PROTO_QUEUED, NULL, 0), 0);
	assert_int_equal(receive(&m), 1);
	assert_int_equal(m.head.version, PROTO_VERSION);
}

/* Returns the size of messages of the type; 0: it does not exist. */
static size_t bytes_of(uint32_t type)
{
	union proto_message m = make(type);

	if (proto_send(pair[0], &m, type, NULL, 0)) {
		return 0;
	}
	return (size_t)recv(pair[1], &m, sizeof(m), 0);
}

static void wrong_magic_type_or_size_is_refused(void **state)
{
	struct proto_head h = { PROTO_MAGIC + 1, PROTO_VERSION, PROTO_BOARD_MAPPED, sizeof(h) };
	char longer[sizeof(union proto_message) + 1] = { 0 };
	union proto_message m;

	(void)state;
	raw(&h, sizeof(h), 1);
	assert_int_equal(receive(&m), -EPROTO);
	h.magic = PROTO_MAGIC;
	raw(&h, sizeof(h) - 1, 1); /* shorter than a head */
	assert_int_equal(receive(&m), -EPROTO);
	h.bytes = 4;
	raw(&h, sizeof(h), 1); /* the length word is wrong */
	assert_int_equal(receive(&m), -EPROTO);
	h.bytes = sizeof(h);
	for (uint32_t type = PROTO_HELLO; type < PROTO_TYPES + 40; type++) {
		h.type = bytes_of(type) == sizeof(h) ? 0 : type;
		raw(&h, sizeof(h), 1);
		assert_int_equal(receive(&m), -EPROTO);
	}
	h.type = 0x80000001u;
	raw(&h, sizeof(h), 1);
	assert_int_equal(receive(&m), -EPROTO);
	h.type = PROTO_HELLO;
	raw(&h, sizeof(h), 1); /* too short for its type */
	assert_int_equal(receive(&m), -EPROTO);
	h.type = PROTO_BOARD_MAPPED;
	memcpy(longer, &h, sizeof(h));
	raw(longer, sizeof(h) + 1, 1); /* too long for its type */
	assert_int_equal(receive(&m), -EPROTO);
	raw(longer, sizeof(longer), 1); /* longer than any */
	assert_int_equal(receive(&m), -EPROTO);
}

static void texts_are_terminated(void **state)
{
	union proto_message m = make(PROTO_HELLO), got;

	(void)state;
	memset(m.hello.name, 'n', sizeof(m.hello.name));
	memset(m.hello.command, 'c', sizeof(m.hello.command));
	memset(m.hello.group, 'g', sizeof(m.hello.group));
	assert_int_equal(proto_send(pair[0], &m, PROTO_HELLO, NULL, 0), 0);
	assert_int_equal(receive(&got), 1);
	assert_int_equal(strlen(got.hello.name), PROTO_NAME - 1);
	assert_int_equal(strlen(got.hello.command), PROTO_TEXT - 1);
	assert_int_equal(strlen(got.hello.group), PROTO_NAME - 1);
	m = make(PROTO_NOTE);
	memset(m.note.what, 'w', sizeof(m.note.what));
	memset(m.note.text, 't', sizeof(m.note.text));
	assert_int_equal(proto_send(pair[0], &m, PROTO_NOTE, NULL, 0), 0);
	assert_int_equal(receive(&got), 1);
	assert_int_equal(strlen(got.note.what), 31);
	assert_int_equal(strlen(got.note.text), PROTO_TEXT - 1);
}

static void descriptors_that_do_not_belong_are_closed(void **state)
{
	union proto_message m = make(PROTO_BOARD_MAPPED), got;
	int fds[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };
	unsigned before = baseline + 2, n;

	(void)state;
	assert_int_equal(proto_send(pair[0], &m, PROTO_BOARD_MAPPED, fds, 8), 0);
	assert_int_equal(proto_recv(pair[1], &got, fds, &n), 1);
	assert_int_equal(n, 0);
	await_fds(before);
}

static void missing_descriptors_are_refused(void **state)
{
	union proto_message m = make(PROTO_PREPARE), got;
	int fds[2] = { 2, 2 };
	unsigned before = baseline + 2;

	(void)state;
	m.version.regions = PROTO_REGION_GLOBAL | PROTO_REGION_TENANT;
	assert_int_equal(proto_send(pair[0], &m, PROTO_PREPARE, fds, 2), 0);
	assert_int_equal(receive(&got), -EPROTO);
	m.version.regions = 4;
	assert_int_equal(proto_send(pair[0], &m, PROTO_PREPARE, fds, 2), 0);
	assert_int_equal(receive(&got), -EPROTO);
	assert_int_equal(proto_send(pair[0], &m, PROTO_BOARD_ADD, NULL, 0), 0);
	assert_int_equal(receive(&got), -EPROTO);
	assert_int_equal(proto_send(pair[0], &m, PROTO_PEER_ADD, NULL, 0), 0);
	assert_int_equal(receive(&got), -EPROTO);
	assert_int_equal(proto_send(pair[0], &m, PROTO_PEER_ADD, fds, 1), 0);
	assert_int_equal(receive(&got), 1);
	assert_int_equal(proto_send(pair[0], &m, PROTO_WELCOME, NULL, 0), 0);
	assert_int_equal(receive(&got), -EPROTO);
	m = make(PROTO_HELLO);
	m.hello.flags = PROTO_REATTACH;
	assert_int_equal(proto_send(pair[0], &m, PROTO_HELLO, fds, 1), 0);
	assert_int_equal(receive(&got), -EPROTO);
	m.hello.flags = 0;
	m.hello.gpus = PROTO_MAX_GPUS + 1;
	assert_int_equal(proto_send(pair[0], &m, PROTO_HELLO, NULL, 0), 0);
	assert_int_equal(receive(&got), -EPROTO);
	await_fds(before);
}

static void more_descriptors_than_any_message_has_leak_nothing(void **state)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 64)];
	} ctl;
	struct proto_head h = { PROTO_MAGIC, PROTO_VERSION, PROTO_BOARD_MAPPED, sizeof(h) };
	struct iovec iov = { &h, sizeof(h) };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof(ctl)
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	unsigned before = baseline + 2;
	union proto_message got;

	(void)state;
	memset(&ctl, 0, sizeof(ctl));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * 64);
	for (int i = 0; i < 64; i++) {
		memcpy(CMSG_DATA(c) + i * (int)sizeof(int), &(int){ 2 }, sizeof(int));
	}
	assert_true(sendmsg(pair[0], &mh, 0) > 0);
	assert_int_equal(receive(&got), -EPROTO);
	await_fds(before);
}

static void random_bytes_never_pass_as_more_than_they_are(void **state)
{
	unsigned before = baseline + 2;

	(void)state;
	srandom(20251);
	for (int i = 0; i < 30000; i++) {
		union proto_message m, got;
		size_t len = (size_t)random() % (sizeof(m) + 1);
		int r;

		for (size_t b = 0; b < sizeof(m); b++) {
			((uint8_t *)&m)[b] = (uint8_t)random();
		}
		if (random() % 4) {
			m.head.magic = PROTO_MAGIC;
			m.head.version = PROTO_VERSION;
			m.head.type = (uint32_t)random() % (PROTO_TYPES + 1);
			m.head.bytes = (uint32_t)len;
		}
		raw(&m, len ? len : 1, (unsigned)random() % 4);
		r = receive(&got);
		assert_true(r == 1 || r == -EPROTO || r == -EPROTONOSUPPORT);
		if (r == 1) {
			assert_true(got.head.type >= PROTO_HELLO && got.head.type < PROTO_TYPES);
		}
		if (i % 200 == 199) { /* the limit of descriptors that wait for a closer */
			await_fds(before);
		}
	}
	await_fds(before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_type_makes_the_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(words_that_contradict_each_other_are_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(wrong_scopes_of_a_tool_are_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(answers_about_memory_have_chunks_or_an_error, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_type_that_does_not_exist_is_not_sent, setup,
						teardown),
		cmocka_unit_test_setup_teardown(nothing_there_is_eagain_and_a_closed_peer_is_zero,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_buffer_is_eagain, setup, teardown),
		cmocka_unit_test_setup_teardown(another_version_is_distinguished_from_garbage,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_read_in_any_version, setup, teardown),
		cmocka_unit_test_setup_teardown(wrong_magic_type_or_size_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(texts_are_terminated, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_that_do_not_belong_are_closed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(missing_descriptors_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(more_descriptors_than_any_message_has_leak_nothing,
						setup, teardown),
		cmocka_unit_test_setup_teardown(random_bytes_never_pass_as_more_than_they_are,
						setup, teardown),
	};

	baseline = open_fds();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
