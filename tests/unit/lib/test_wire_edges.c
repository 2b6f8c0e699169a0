/* Messages of the session socket whose words are exactly at a limit, and how many descriptors each
 * of them keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/wire.h"

#include "../eventually.h"

static int pair[2];
static union proto_message m, got;

static int set_up(void **state)
{
	memset(&m, 0, sizeof(m));
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

static int tear_down(void **state)
{
	fd_close(pair[0]);
	fd_close(pair[1]);
	return 0;
}

/* Sends m with nfds descriptors. Returns how many the receiver gets, or the error. */
static int kept(enum proto_type type, unsigned nfds)
{
	const int fds[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };
	int received[8], r;
	unsigned n;

	assert_int_equal(proto_send(pair[0], &m, type, fds, nfds), 0);
	r = proto_recv(pair[1], &got, received, &n);
	for (unsigned i = 0; i < n; i++) {
		close(received[i]);
	}
	if (r < 0) {
		assert_int_equal(n, 0);
		return r;
	}
	assert_int_equal(r, 1);
	assert_int_equal(got.head.type, type);
	return (int)n;
}

static void a_hello_has_descriptors_when_it_reattaches(void **state)
{
	assert_int_equal(kept(PROTO_HELLO, 3), 0);
	m.hello.gpus = PROTO_MAX_GPUS;
	assert_int_equal(kept(PROTO_HELLO, 0), 0);
	m.hello.gpus = PROTO_MAX_GPUS + 1;
	assert_int_equal(kept(PROTO_HELLO, 0), -EPROTO);
	m.hello.gpus = 0;
	m.hello.flags = PROTO_REATTACH | PROTO_STRICT;
	assert_int_equal(kept(PROTO_HELLO, 1), -EPROTO);
	assert_int_equal(kept(PROTO_HELLO, 2), 2);
	assert_int_equal(kept(PROTO_HELLO, 3), 2);
	m.hello.regions = 1; /* of a GPU that it does not have */
	assert_int_equal(kept(PROTO_HELLO, 4), -EPROTO);
	m.hello.gpus = 6;
	assert_int_equal(kept(PROTO_HELLO, 2), -EPROTO);
	assert_int_equal(kept(PROTO_HELLO, 4), 3);
	m.hello.regions = 1u << 5 | 1u << 2;
	assert_int_equal(kept(PROTO_HELLO, 3), -EPROTO);
	assert_int_equal(kept(PROTO_HELLO, 4), 4);
	m.hello.regions = 0x3e;
	m.hello.accounts = 1;
	assert_int_equal(kept(PROTO_HELLO, 8), 8);
	m.hello.accounts = 0;
	m.hello.regions = 0x3f;
	assert_int_equal(kept(PROTO_HELLO, 8), -EPROTO);
	m.hello.flags = PROTO_STRICT | PROTO_EARLY;
	m.hello.regions = 1;
	m.hello.gpus = 0;
	assert_int_equal(kept(PROTO_HELLO, 3), 0);
}

/* All three pages, or the directory after reattaching. */
static void a_welcome_has_one_or_three(void **state)
{
	assert_int_equal(kept(PROTO_WELCOME, 0), -EPROTO);
	assert_int_equal(kept(PROTO_WELCOME, 1), 1);
	assert_int_equal(kept(PROTO_WELCOME, 2), 1);
	assert_int_equal(kept(PROTO_WELCOME, 3), 3);
	assert_int_equal(kept(PROTO_WELCOME, 8), 3);
}

static void a_version_has_its_regions(void **state)
{
	for (uint32_t regions = 0; regions < 4; regions++) {
		const unsigned want = 1 + (regions & 1) + (regions >> 1);

		m.version.regions = regions;
		assert_int_equal(kept(PROTO_PREPARE, want - 1), -EPROTO);
		assert_int_equal(kept(PROTO_PREPARE, want), (int)want);
		assert_int_equal(kept(PROTO_PREPARE, want + 1), (int)want);
		assert_int_equal(kept(PROTO_DROP, 1), 0);
	}
	m.version.regions = 4;
	assert_int_equal(kept(PROTO_PREPARE, 3), -EPROTO);
}

static void devices_are_counted(void **state)
{
	for (unsigned are = 0; are < 2; are++) {
		const enum proto_type type = are ? PROTO_DEVICES_ARE : PROTO_DEVICES;

		m.devices.gpus = PROTO_MAX_GPUS;
		assert_int_equal(kept(type, 1), 0);
		m.devices.gpus++;
		assert_int_equal(kept(type, 0), -EPROTO);
	}
}

static void handles_come_with_their_descriptor(void **state)
{
	assert_int_equal(kept(PROTO_CONTROL, 1), 0);
	m.control.bytes = 1;
	assert_int_equal(kept(PROTO_CONTROL, 0), -EPROTO);
	assert_int_equal(kept(PROTO_CONTROL, 2), 1);
	m.control.bytes = 512;
	assert_int_equal(kept(PROTO_CONTROL, 1), 1);
	m.control.bytes = 513;
	assert_int_equal(kept(PROTO_CONTROL, 1), -EPROTO);
}

static void flags_are_attached_added_and_removed(void **state)
{
	assert_int_equal(kept(PROTO_FLAG, 0), -EPROTO);
	assert_int_equal(kept(PROTO_FLAG, 2), 1);
	m.flag.number = 1;
	assert_int_equal(kept(PROTO_FLAG, 1), 0);
	m.flag.number = 2;
	assert_int_equal(kept(PROTO_FLAG, 1), -EPROTO);
	m.flag.number = 255;
	assert_int_equal(kept(PROTO_FLAG_ADD, 0), -EPROTO);
	assert_int_equal(kept(PROTO_FLAG_ADD, 2), 1);
	assert_int_equal(kept(PROTO_FLAG_REMOVE, 1), 0);
	m.flag.number = 256;
	assert_int_equal(kept(PROTO_FLAG_ADD, 1), -EPROTO);
	assert_int_equal(kept(PROTO_FLAG_REMOVE, 0), -EPROTO);
}

static void boards_have_one(void **state)
{
	assert_int_equal(kept(PROTO_BOARD_ADD, 0), -EPROTO);
	assert_int_equal(kept(PROTO_BOARD_ADD, 3), 1);
	assert_int_equal(kept(PROTO_BOARD_REMOVE, 1), 0);
}

static void texts_for_programs_are_terminated(void **state)
{
	memset(m.welcome.mps_pipe, 'p', sizeof(m.welcome.mps_pipe));
	assert_int_equal(kept(PROTO_WELCOME, 1), 1);
	assert_int_equal(strlen(got.welcome.mps_pipe), 255);
	memset(&m, 0, sizeof(m));
	memset(m.refused.text, 't', sizeof(m.refused.text));
	assert_int_equal(kept(PROTO_REFUSED, 0), 0);
	assert_int_equal(strlen(got.refused.text), 255);
}

/* Nine descriptors: nothing is sent, and the message stays as it was. */
static void more_descriptors_than_a_message_has_are_not_sent(void **state)
{
	const int fds[9] = { 2, 2, 2, 2, 2, 2, 2, 2, 2 };
	int received[8];
	unsigned n;

	assert_int_equal(proto_send(pair[0], &m, PROTO_BOARD_ADD, fds, 9), -EINVAL);
	assert_int_equal(m.head.magic, 0);
	assert_int_equal(proto_recv(pair[1], &got, received, &n), -EAGAIN);
}

/* A peer that closes before it has read everything resets the connection. */
static void a_reset_is_the_end(void **state)
{
	int received[8];
	unsigned n = 7;

	assert_int_equal(proto_send(pair[1], &m, PROTO_NOTE, NULL, 0), 0);
	close(pair[0]);
	pair[0] = -1;
	assert_int_equal(proto_recv(pair[1], &got, received, &n), 0);
	assert_int_equal(n, 0);
}

/* An empty message looks like the end; its descriptor is closed. */
static void an_empty_message_leaks_nothing(void **state)
{
	const int fds[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };
	int received[8], next = dup(0);
	unsigned n = 7;

	close(next);
	assert_int_equal(msg_send(pair[0], "", 0, fds, 8), 0);
	assert_int_equal(proto_recv(pair[1], &got, received, &n), 0);
	assert_int_equal(n, 0);
	eventually(fcntl(next, F_GETFD) < 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_hello_has_descriptors_when_it_reattaches),
		TEST(a_welcome_has_one_or_three),
		TEST(a_version_has_its_regions),
		TEST(devices_are_counted),
		TEST(handles_come_with_their_descriptor),
		TEST(flags_are_attached_added_and_removed),
		TEST(boards_have_one),
		TEST(texts_for_programs_are_terminated),
		TEST(more_descriptors_than_a_message_has_are_not_sent),
		TEST(a_reset_is_the_end),
		TEST(an_empty_message_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
