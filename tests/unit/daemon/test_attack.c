/* Hostile processes: gbpfd continues to serve others without delay, and uses no more memory for
 * hostile ones than their limits allow. */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"

#include "../users.h"

#define LINGER_S 3600 /* far longer than a call waits for its answer */
#define FLOOD_BYTES 65536u
#define SOMEBODY 65534u

enum { LATENCY, NORMAL, BATCH };

/* Fails after the harness's limit, which no attack below may reach however busy the machine is. */
static void answers_at_once(struct gd *d)
{
	json_decref(gd_call(d, "status", NULL));
}

/* ---- descriptors whose closing takes long ---- */

/* Makes a TCP connection with unread data and SO_LINGER: closing its last descriptor blocks for
 * an hour. */
static int lingering_socket(int *ret_peer)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger linger = { 1, LINGER_S };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	socklen_t len = sizeof(a);
	char junk[65536] = { 0 };

	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0) {
	}
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	*ret_peer = listener;
	return fd;
}

static int connect_to(const struct gd *d, const char *leaf, int type)
{
	char path[128];
	int sock;

	snprintf(path, sizeof(path), "%s/%s", d->runtime, leaf);
	sock = unix_connect(path, type);
	assert_true(sock >= 0);
	return sock;
}

/* Sends n lingering sockets with a message, and keeps none. */
static void send_lingering(int sock, unsigned n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 16)];
	} ctl = { 0 };
	struct iovec iov = { .iov_base = (char[]){ 0 }, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.bytes,
			    .msg_controllen = CMSG_SPACE(sizeof(int) * n) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int fds[16], peers[16];

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * n);
	for (unsigned i = 0; i < n; i++) {
		fds[i] = lingering_socket(&peers[i]);
	}
	memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
	assert_int_equal(sendmsg(sock, &m, MSG_NOSIGNAL), 1);
	for (unsigned i = 0; i < n; i++) {
		close(fds[i]); /* the listeners stay open, so that no data is read and no connection
				  is reset */
	}
}

static void passed_descriptors_do_not_hold_gbpfd_up(void **state)
{
	struct gd *d = *state;
	int sock = connect_to(d, "session.sock", SOCK_SEQPACKET);

	answers_at_once(d);
	send_lingering(sock, 1);
	answers_at_once(d);
	answers_at_once(d);
	close(sock);
	sock = connect_to(d, "session.sock", SOCK_SEQPACKET);
	send_lingering(sock, 12); /* more than any message may carry */
	answers_at_once(d);
	answers_at_once(d);
	close(sock);
	sock = connect_to(d, "control.sock", SOCK_STREAM);
	send_lingering(sock, 3);
	answers_at_once(d);
	answers_at_once(d);
	close(sock);
	answers_at_once(d);
	answers_at_once(d);
}

/* Descriptors queued in a session's socket when gbpfd closes it. */
static void unread_descriptors_do_not_hold_gbpfd_up(void **state)
{
	struct gd *d = *state;
	int sock = connect_to(d, "session.sock", SOCK_SEQPACKET);

	kill(d->pid, SIGSTOP);
	assert_int_equal(send(sock, "x", 1, MSG_NOSIGNAL), 1); /* garbage: dropped */
	send_lingering(sock, 2);
	send_lingering(sock, 12);
	kill(d->pid, SIGCONT);
	answers_at_once(d);
	answers_at_once(d);
	close(sock);
	sock = connect_to(d, "control.sock", SOCK_STREAM);
	kill(d->pid, SIGSTOP);
	assert_int_equal(send(sock, "[]\n", 3, MSG_NOSIGNAL), 3);
	send_lingering(sock, 2);
	kill(d->pid, SIGCONT);
	answers_at_once(d);
	answers_at_once(d);
	close(sock);
}

/* ---- floods ---- */

static bool stop;
static uint64_t flooded; /* bytes */

static json_int_t memory_of(struct gd *d)
{
	return gd_number(d, "status", "memory_bytes");
}

static void *read_all(void *arg)
{
	char junk[65536];

	while (read(*(int *)arg, junk, sizeof(junk)) > 0) {
	}
	return NULL;
}

static void *write_lines(void *arg)
{
	char lines[65536];
	size_t n = 0;

	while (n + 24 < sizeof(lines)) {
		n += (size_t)snprintf(lines + n, sizeof(lines) - n, "{\"method\":\"x\"}\n");
	}
	while (!load_relaxed(&stop)) {
		ssize_t sent = send(*(int *)arg, lines, n, MSG_NOSIGNAL);

		if (sent <= 0) {
			break;
		}
		(void)add_relaxed(&flooded, (uint64_t)sent);
	}
	return NULL;
}

static void many_short_lines_take_no_memory_and_no_time(void **state)
{
	struct gd *d = *state;
	int sock = connect_to(d, "control.sock", SOCK_STREAM);
	json_int_t before = memory_of(d);
	pthread_t reader, writer;

	store_relaxed(&stop, false);
	pthread_create(&reader, NULL, read_all, &sock);
	pthread_create(&writer, NULL, write_lines, &sock);
	for (uint64_t i = 0; i < 60; i++) {
		answers_at_once(d);
		eventually(load_relaxed(&flooded) >= i * FLOOD_BYTES);
	}
/* Allocators of sanitizers keep freed memory. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(memory_of(d) - before < (8 << 20));
#else
	(void)before;
#endif
	store_relaxed(&stop, true);
	shutdown(sock, SHUT_RDWR);
	pthread_join(reader, NULL);
	pthread_join(writer, NULL);
	close(sock);
}

/* Reads `wanted` answers; returns how many of them are a status older than `when`, and the time of
 * the last one. */
static unsigned read_answers(int sock, unsigned wanted, json_int_t when, json_int_t *ret_last)
{
	unsigned n = 0, before = 0;
	size_t len = 0, cap = 1 << 20;
	char *text = malloc(cap), *line, *nl;

	assert_non_null(text);
	while (n < wanted) {
		ssize_t got = read(sock, text + len, cap - 1 - len);

		assert_true(got > 0);
		len += (size_t)got;
		text[len] = 0;
		for (line = text; (nl = strchr(line, '\n')); line = nl + 1) {
			const char *at = strstr(line, "\"uptime_ns\":");

			*ret_last = at && at < nl ? strtoll(at + 12, NULL, 10) : INT64_MAX;
			before += *ret_last < when;
			n++;
		}
		len -= (size_t)(line - text);
		memmove(text, line, len);
	}
	free(text);
	return before;
}

static void say(int sock, const char *text)
{
	assert_int_equal(send(sock, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* A caller with one request does not wait for all requests of callers that send many. */
static void callers_with_many_requests_do_not_delay_one_request(void **state)
{
	enum { MANY = 24, LINES = 50 };
	static const char ask[] = "{\"method\":\"status\"}\n";
	static const char greet[] = "{\"method\":\"hello\",\"params\":{\"protocol\":1}}\n";
	struct gd *d = *state;
	char lines[LINES * sizeof(ask)] = "";
	int sock[MANY], mine = connect_to(d, "control.sock", SOCK_STREAM);
	unsigned before = 0;
	json_int_t when, last;

	for (int i = 0; i < LINES; i++) {
		strcat(lines, ask);
	}
	say(mine, greet);
	read_answers(mine, 1, 0, &last);
	for (int i = 0; i < MANY; i++) {
		sock[i] = connect_to(d, "control.sock", SOCK_STREAM);
		say(sock[i], greet);
		read_answers(sock[i], 1, 0, &last);
	}
	kill(d->pid, SIGSTOP);
	for (int i = 0; i < MANY; i++) {
		say(sock[i], lines);
	}
	say(mine, ask);
	kill(d->pid, SIGCONT);
	read_answers(mine, 1, 0, &when);
	for (int i = 0; i < MANY; i++) {
		before += read_answers(sock[i], LINES, when, &last);
		close(sock[i]);
	}
	close(mine);
	assert_in_range(before, 0, MANY * LINES / 2);
}

/* A hang-up that epoll reports continuously does not delay later requests of others. */
static void a_closed_connection_does_not_delay_others(void **state)
{
	struct gd *d = *state;
	static const char lines[] = "{\"method\":\"hello\",\"params\":{\"protocol\":1}}\n"
				    "{\"method\":\"status\"}\n{\"method\":\"status\"}\n";

	for (int i = 0; i < 20; i++) {
		int sock = connect_to(d, "control.sock", SOCK_STREAM);

		kill(d->pid, SIGSTOP);
		assert_int_equal(send(sock, lines, sizeof(lines) - 1, MSG_NOSIGNAL),
				 sizeof(lines) - 1);
		close(sock);
		kill(d->pid, SIGCONT);
		answers_at_once(d);
	}
}

static void *write_notes(void *arg)
{
	struct fake *f = arg;
	union proto_message m = { 0 };

	snprintf(m.note.what, sizeof(m.note.what), "noise");
	while (!load_relaxed(&stop) && proto_send(f->sock, &m, PROTO_NOTE, NULL, 0) == 0) {
	}
	return NULL;
}

static void a_flood_of_notes_leaves_the_control_socket_usable(void **state)
{
	struct gd *d = *state;
	struct fake f[4];
	pthread_t writer[4];

	store_relaxed(&stop, false);
	for (int i = 0; i < 4; i++) {
		fake_enter(&f[i], d, NORMAL, "noisy");
		pthread_create(&writer[i], NULL, write_notes, &f[i]);
	}
	for (int i = 0; i < 20; i++) {
		answers_at_once(d);
	}
	store_relaxed(&stop, true);
	for (int i = 0; i < 4; i++) {
		pthread_join(writer[i], NULL);
		fake_leave(&f[i]);
	}
}

/* A tenant that changes its class continuously does not fill the queues of others. */
static void a_flood_of_changes_drops_no_session(void **state)
{
	struct gd *d = *state;
	struct fake slow, wild;
	union proto_message m;
	char params[96];
	bool there[PROTO_MAX_LC] = { false };
	struct pollfd p = { .events = POLLIN };
	unsigned n, boards = 0;
	int fds[8];

	fake_enter(&slow, d, NORMAL, "slow");
	fake_enter(&wild, d, NORMAL, "wild");
	fcntl(wild.sock, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 600; i++) { /* connects and disconnects are sent to the others too */
		struct fake f;

		fake_enter(&f, d, LATENCY, "fly");
		fake_leave(&f);
		answers_at_once(d);
		while (proto_recv(wild.sock, &m, fds, &n) == 1) {
			while (n) {
				close(fds[--n]);
			}
		}
	}
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	for (int i = 0; i < 2000; i++) {
		char *text = NULL;

		snprintf(params, sizeof(params), "{\"tenant\":%u,\"class\":\"%s\"}", wild.tenant,
			 i % 2 ? "normal" : "latency");
		if (!d->g) {
			d->g = gd_open(d);
		}
		gbpf_call(d->g, "set", params, -1, &text); /* may be refused because of its rate */
		free(text);
		while (proto_recv(wild.sock, &m, fds, &n) == 1) {
		}
	}
	assert_int_equal(gd_number(d, "status", "counters.dropped_sessions"), 0);
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	fake_leave(&wild);
	while (gd_number(d, "status", "tenants") != 1) {
	}
	/* The messages that the slow one reads at last are consistent, and end without a board. */
	fcntl(slow.sock, F_SETFL, O_NONBLOCK);
	p.fd = slow.sock;
	for (;;) {
		int r = proto_recv(slow.sock, &m, fds, &n);

		if (r == -EAGAIN && boards) { /* gbpfd sends the rest once there is room */
			assert_int_equal(poll(&p, 1, EVENTUALLY_MS), 1);
			continue;
		}
		if (r != 1) {
			break;
		}
		if (m.head.type == PROTO_BOARD_ADD) {
			assert_false(there[m.board.slot]);
			there[m.board.slot] = true;
			boards++;
			close(fds[0]);
		} else if (m.head.type == PROTO_BOARD_REMOVE) {
			assert_true(there[m.board.slot]);
			there[m.board.slot] = false;
			boards--;
		}
	}
	assert_int_equal(boards, 0);
	fake_leave(&slow);
}

/* ---- one user against the others ---- */

/* Connects a session of another user. */
static void enter_as(struct fake *f, const struct gd *d, uid_t uid, unsigned first_uuid,
		     unsigned gpus, enum proto_type expected)
{
	union proto_message m = { 0 };

	assert_int_equal(seteuid(uid), 0);
	fake_connect(f, d);
	assert_int_equal(seteuid(0), 0);
	m.hello.gpus = gpus;
	for (unsigned i = 0; i < gpus; i++) {
		memset(m.hello.uuid[i], (int)(first_uuid + i), 16);
	}
	fake_send(f, &m, PROTO_HELLO);
	if (expected == PROTO_WELCOME) {
		fake_welcomed(f);
	} else {
		assert_int_equal(fake_expect(f, &m, expected), -1);
	}
}

#define NEED_OTHERS(d)                                                                             \
	do {                                                                                       \
		NEED_TWO_USERS();                                                                  \
		assert_int_equal(chmod((d)->dir, 0755), 0);                                        \
	} while (0)

static void one_user_takes_not_all_device_numbers(void **state)
{
	struct gd *d = *state;
	struct fake liar[2], honest;

	NEED_OTHERS(d);
	enter_as(&liar[0], d, SOMEBODY, 1, 8, PROTO_WELCOME);
	enter_as(&liar[1], d, SOMEBODY, 9, 8, PROTO_REFUSED);
	enter_as(&honest, d, SOMEBODY + 1, 99, 1, PROTO_WELCOME);
	fake_leave(&liar[0]);
	fake_leave(&liar[1]);
	fake_leave(&honest);
}

static void one_user_takes_not_all_boards(void **state)
{
	struct gd *d = *state;
	struct fake many[64], other;

	NEED_OTHERS(d);
	for (int i = 0; i < 64; i++) {
		enter_as(&many[i], d, SOMEBODY, 1, 1, PROTO_WELCOME);
	}
	enter_as(&other, d, SOMEBODY + 1, 1, 1, PROTO_WELCOME);
	while (gd_number(d, "status", "boards") != 17) {
	}
	for (int i = 0; i < 64; i++) {
		fake_leave(&many[i]);
	}
	while (gd_number(d, "status", "boards") != 1) {
	}
	fake_leave(&other);
}

/* A process beyond its user's share of memory runs without the policy; programs of other users are
 * not affected. */
static void one_user_takes_not_all_memory_for_maps(void **state)
{
	enum { MANY = 18 }; /* of 62 MiB each: 17 are less than a quarter of 4 GiB */
	struct gd *d = *state;
	struct fake many[MANY], other;
	struct gbpf *g;
	union proto_message m;
	unsigned n;
	int fds[8];

	NEED_OTHERS(d);
	g = gd_open(d);
	assert_int_equal(gbpf_policy_load(g, gd_object("heavy"), NULL, GBPF_LOAD_SWAP, NULL), 0);
	gbpf_close(g);
	for (int i = 0; i < MANY; i++) {
		enter_as(&many[i], d, SOMEBODY, 1, 1, PROTO_WELCOME);
	}
	gd_await_event(d, 0, "limit", "no memory for its maps");
	enter_as(&other, d, SOMEBODY + 1, 1, 1, PROTO_WELCOME);
	do {
		n = 8;
		assert_int_equal(fake_receive(&other, &m, fds, &n), 1);
		while (n) {
			close(fds[--n]);
		}
	} while (m.head.type != PROTO_PREPARE);
	for (int i = 0; i < MANY; i++) {
		fake_leave(&many[i]);
	}
	fake_leave(&other);
}

/* Another user's process listens in place of gbpfd. */
static void no_command_talks_to_a_strangers_gbpfd(void **state)
{
	struct gd *d = *state;
	char path[128], dir[96];
	struct gbpf *g;
	int listener;

	NEED_OTHERS(d);
	snprintf(dir, sizeof(dir), "%s/trap", d->dir);
	snprintf(path, sizeof(path), "%s/control.sock", dir);
	assert_int_equal(mkdir(dir, 0777), 0);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	listener = unix_listen(path, SOCK_STREAM, 0666);
	assert_int_equal(seteuid(0), 0);
	assert_true(listener >= 0);
	assert_int_equal(seteuid(SOMEBODY - 1), 0);
	assert_int_equal(gbpf_open(&g, dir, 0), -EPERM);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(gbpf_last_error(g)->exit, 6);
	gbpf_close(g);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		T(passed_descriptors_do_not_hold_gbpfd_up),
		T(unread_descriptors_do_not_hold_gbpfd_up),
		T(many_short_lines_take_no_memory_and_no_time),
		T(callers_with_many_requests_do_not_delay_one_request),
		T(a_closed_connection_does_not_delay_others),
		T(a_flood_of_notes_leaves_the_control_socket_usable),
		T(a_flood_of_changes_drops_no_session),
		T(one_user_takes_not_all_device_numbers),
		T(one_user_takes_not_all_boards),
		T(one_user_takes_not_all_memory_for_maps),
		T(no_command_talks_to_a_strangers_gbpfd),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
