/* Hostile clients of the soft GPU: the effects of an attack end with the attacker. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/shm.h"
#include "raw.h"

#include "../users.h"

/* A copy from a context that is switched off must not block the other context forever. */
static void a_context_ends_in_the_middle_of_anothers_copy(void **state)
{
	enum { BYTES = 100 << 20 };
	struct soft_record_copy copy = { .r = { .op = SOFT_OP_COPY, .stream = 1 },
					 .width = BYTES,
					 .height = 1 };
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_DESTROY, .context = 1 };
	int fds[FD_PASS_MAX];
	struct raw c;

	(void)state;
	raw_open(&c, 2);
	copy.src = raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = BYTES });
	copy.dst = raw_must(
		&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .context = 1, .value = BYTES });
	raw_make_stream(&c, 0, 1);
	raw_await_word(&c.shared->streams[1].done, 1);
	raw_put(&c, &copy, sizeof(copy));
	while (load_acquire(&c.shared->tail) != c.head) {
	}
	raw_must(&c, (struct soft_request){
			     .op = SOFT_REQ_GROUP, .object = SOFT_GROUP_SCHEDULE, .value = 0 });
	assert_true(raw_ask(&c, &q, fds));
	assert_int_equal(c.r.result, 0);
	raw_await_word(&c.shared->streams[1].done, 2);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().contexts, 0);
}

/* Records for a context that is being destroyed, while its memory is released: the streams that
 * they create do not outlive it. */
static void streams_of_a_context_that_ends(void **state)
{
	enum { ROUNDS = 10, CHUNKS = 40, BYTES = 4 << 20 };
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_DESTROY };
	struct raw c;

	(void)state;
	raw_open(&c, 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pollfd p = { .fd = c.sock, .events = POLLIN };
		int fds[FD_PASS_MAX];
		uint32_t slot = 0;
		unsigned n;

		raw_must(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
		for (unsigned i = 0; i < CHUNKS; i++) {
			raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = BYTES });
		}
		assert_int_equal(msg_send(c.sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
		while (poll(&p, 1, 0) == 0 && slot < SOFT_MAX_STREAMS) {
			raw_make_stream(&c, 0, slot++);
			eventually(load_acquire(&c.shared->tail) == c.head);
		}
		assert_int_equal(poll(&p, 1, EVENTUALLY_MS), 1);
		assert_true(msg_recv(c.sock, &c.r, sizeof(c.r), fds, &n) >=
			    (ssize_t)SOFT_REPLY_MIN);
		assert_int_equal(c.r.result, 0);
		eventually(load_acquire(&c.shared->tail) == c.head);
		assert_int_equal(rig_stats().streams, 0);
	}
	raw_close(&c);
	assert_int_equal(rig_stats_idle().refused, 0);
}

/* Memory is freed while a stream waits for its value: an error of that context only. */
static void memory_is_freed_during_a_wait(void **state)
{
	struct soft_record_value v = { .r = { .op = SOFT_OP_VALUE, .stream = 1 },
				       .value = 1,
				       .unit = 4,
				       .mode = SOFT_VALUE_EQ };
	struct raw c;

	(void)state;
	raw_open(&c, 1);
	v.address = raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = 4096 });
	raw_make_stream(&c, 0, 1);
	raw_put(&c, &v, sizeof(v));
	while (load_acquire(&c.shared->tail) != c.head) {
	}
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_FREE, .value = v.address });
	raw_await_word(&c.shared->context_error[0], 1);
	raw_await_word(&c.shared->streams[1].done, 2);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().contexts, 0);
}

static uint64_t server_cpu_ns(void)
{
	struct timespec t;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(rig_server, &clock), 0);
	assert_int_equal(clock_gettime(clock, &t), 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns the server's CPU time for many copies of two rows that are `pitch` bytes apart. */
static uint64_t cost_of_copies(struct raw *c, struct soft_record_copy *copy, uint64_t pitch)
{
	enum { COPIES = 4000 };
	uint64_t begin = server_cpu_ns();
	uint32_t done = load_acquire(&c->shared->streams[1].done);

	copy->dst_pitch = copy->src_pitch = pitch;
	for (unsigned i = 0; i < COPIES; i++) {
		raw_put(c, copy, sizeof(*copy));
	}
	raw_await_word(&c->shared->streams[1].done, done + COPIES);
	return server_cpu_ns() - begin;
}

/* Many small operations that name huge ranges: the checks take no longer than for small ones. */
static void huge_ranges_are_checked_at_once(void **state)
{
	enum { BYTES = 200 << 20 };
	struct soft_record_copy copy = { .r = { .op = SOFT_OP_COPY, .stream = 1 },
					 .width = 1,
					 .height = 2 };
	uint64_t small, huge;
	struct raw c;

	(void)state;
	raw_open(&c, 1);
	copy.src = copy.dst =
		raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = BYTES });
	raw_make_stream(&c, 0, 1);
	raw_await_word(&c.shared->streams[1].done, 1);
	small = cost_of_copies(&c, &copy, 4096);
	huge = cost_of_copies(&c, &copy, BYTES - 4096);
	print_message("4000 copies: %llu us of near bytes, %llu us of far ones\n",
		      (unsigned long long)(small / 1000), (unsigned long long)(huge / 1000));
	assert_true(huge < 3 * small + 50000000u);
	assert_int_equal(load_acquire(&c.shared->context_error[0]), 0);
	raw_close(&c);
}

/* A client's pinned pages are limited, so that mappings remain for others. */
static void pinned_pages_have_a_limit(void **state)
{
	struct soft_request q = { .op = SOFT_REQ_ALLOC,
				  .object = SOFT_MEMORY_PINNED,
				  .value = 4096 };
	int fds[FD_PASS_MAX];
	unsigned n = 0;
	struct raw c, other;

	(void)state;
	raw_open(&c, 2);
	while (n <= SOFT_MAX_PINNED && raw_ask(&c, &q, fds) && c.r.result == 0) {
		close(fds[0]);
		q.context = ++n % 2;
	}
	assert_int_equal(n, SOFT_MAX_PINNED);
	raw_open(&other, 1);
	q.context = 0;
	assert_true(raw_ask(&other, &q, fds));
	assert_int_equal(other.r.result, 0);
	close(fds[0]);
	raw_close(&other);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().pinned_used, 0);
}

/* Only the op of a padding record matters. */
static void padding_has_no_effect(void **state)
{
	struct soft_record pad = { .bytes = 16,
				   .op = SOFT_OP_PAD,
				   .context = UINT16_MAX,
				   .stream = UINT32_MAX,
				   .reserved = UINT32_MAX };
	struct raw c;

	(void)state;
	raw_open(&c, 1);
	for (unsigned i = 0; i < 300; i++) {
		pad.context = (uint16_t)(UINT16_MAX - i * 200);
		raw_put(&c, &pad, sizeof(pad));
	}
	raw_make_stream(&c, 0, 1);
	raw_await_word(&c.shared->streams[1].done, 1);
	raw_close(&c);
}

/* A client beyond the limit is refused entirely. */
static void the_last_client_of_too_many(void **state)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	struct raw *c = calloc(SOFT_MAX_CLIENTS, sizeof(*c)), more = { 0 };
	int fds[FD_PASS_MAX];

	(void)state;
	assert_non_null(c);
	rig_stats_idle();
	for (unsigned i = 0; i < SOFT_MAX_CLIENTS; i++) {
		raw_open(&c[i], 0);
	}
	more.sock = rig_connect();
	assert_true(raw_ask(&more, &q, fds));
	assert_int_equal(more.r.result, CUDA_ERROR_OUT_OF_MEMORY);
	q = (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE };
	assert_true(raw_ask(&more, &q, fds));
	assert_int_equal(more.r.result, CUDA_ERROR_NOT_INITIALIZED);
	close(more.sock);
	for (unsigned i = 0; i < SOFT_MAX_CLIENTS; i++) {
		raw_close(&c[i]);
	}
	free(c);
	assert_int_equal(rig_stats_idle().contexts, 0);
}

/* Empty messages look like the end of a connection, but carry descriptors. */
static void empty_messages_leave_nothing(void **state)
{
	struct soft_stats before = rig_stats_idle();

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		int fds[FD_PASS_MAX];
		struct raw c;

		raw_open(&c, 0);
		for (unsigned k = 0; k < FD_PASS_MAX; k++) {
			fds[k] = c.bell;
		}
		assert_int_equal(msg_send(c.sock, "", 0, fds, FD_PASS_MAX), 0);
		raw_close(&c);
	}
	/* Received descriptors are closed a moment later. */
	eventually(rig_stats_idle().descriptors == before.descriptors);
}

/* Returns a connection whose close() blocks for a minute. *ret_peer: its other end, which must stay
 * open. */
static int lingering(int *ret_peer)
{
	struct linger l = { .l_onoff = 1, .l_linger = 60 };
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	static const char some[65536];
	socklen_t len = sizeof(a);

	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	*ret_peer = accept(listener, NULL, NULL);
	close(listener);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	while (send(fd, some, sizeof(some), MSG_DONTWAIT) > 0) {
	}
	return fd;
}

/* Descriptors arrive with a request, with a notice, and unread in a socket that is closed, also
 * from refused clients: no client waits until they are closed. */
static void unclosed_descriptors_block_no_client(void **state)
{
	enum { REFUSED = SOFT_MAX_CONNECTIONS + 8 };
	struct soft_request q = { .op = SOFT_REQ_STATS };
	struct soft_notice n = { .op = SOFT_NOTICE_HOST_DONE };
	int peer[3], sock[REFUSED];
	struct raw c;

	(void)state;
	rig_stats_idle();
	raw_open(&c, 1);
	for (unsigned i = 0; i < 3; i++) {
		int fd = lingering(&peer[i]);

		if (i == 0) {
			msg_send(c.sock, &q, SOFT_REQUEST_MIN + 1, &fd, 1);
		} else if (i == 1) {
			msg_send(c.event, &n, sizeof(n), &fd, 1);
		}
		if (i < 2) {
			close(fd);
			continue;
		}
		raw_close(&c);
		assert_int_equal(rig_stats_idle().contexts, 0);
		for (unsigned k = 0; k < REFUSED; k++) {
			sock[k] = rig_connect();
			if (k >= SOFT_MAX_CONNECTIONS) {
				msg_send(sock[k], &q, SOFT_REQUEST_MIN + 1, &fd, 1);
			}
		}
		close(fd);
	}
	for (unsigned k = 0; k < REFUSED; k++) {
		close(sock[k]);
	}
	raw_open(&c, 1);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().contexts, 0);
	for (unsigned i = 0; i < 3; i++) {
		close(peer[i]);
	}
}

static char trap[96];

static void trapped_program(void *arg)
{
	(void)arg;
	CHECK(setuid(65533) == 0);
	setenv("GBPF_SOFTGPU_SOCKET", trap, 1);
	CHECK(cuInit(0) != CUDA_SUCCESS);
}

/* If the server at the expected path belongs to another user, programs send nothing to it. */
static void no_program_talks_to_a_strangers_server(void **state)
{
	int listener, sock, code;
	char byte;

	(void)state;
	NEED_TWO_USERS();
	snprintf(trap, sizeof(trap), "%s/trap.sock", rig_dir);
	assert_int_equal(chmod(rig_dir, 0777), 0);
	assert_int_equal(seteuid(65534), 0);
	listener = unix_listen(trap, SOCK_SEQPACKET, 0666);
	assert_int_equal(seteuid(0), 0);
	assert_true(listener >= 0);
	code = rig_run(trapped_program, NULL);
	sock = accept(listener, NULL, NULL);
	unlink(trap);
	assert_int_equal(chmod(rig_dir, 0700), 0);
	assert_int_equal(code, 0);
	assert_true(sock >= 0);
	assert_int_equal(recv(sock, &byte, 1, MSG_DONTWAIT), 0);
	close(sock);
	close(listener);
}

/* The modes of its directory keep other users out; so does the server itself. */
static void the_server_serves_its_user_and_root_only(void **state)
{
	static const uid_t users[] = { USER_A, 0 };
	struct soft_request q = { .op = SOFT_REQ_STATS };
	char path[160], byte[sizeof(struct soft_reply)];

	(void)state;
	NEED_TWO_USERS();
	snprintf(path, sizeof(path), "%s/softgpu.sock", rig_dir);
	assert_int_equal(chmod(rig_dir, 0755), 0);
	assert_int_equal(chmod(path, 0666), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct pollfd p = { .events = POLLIN };

		AS_USER(users[i], p.fd = unix_connect(path, SOCK_SEQPACKET));
		assert_true(p.fd >= 0);
		(void)msg_send(p.fd, &q, SOFT_REQUEST_MIN + 1, NULL, 0);
		assert_int_equal(poll(&p, 1, EVENTUALLY_MS), 1);
		assert_int_equal(recv(p.fd, byte, sizeof(byte), 0) > 0, users[i] == 0);
		close(p.fd);
	}
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chmod(rig_dir, 0700), 0);
}

/* ---- device memory that is mapped into its client ---- */

/* Returns the memfd, or -1 if the request is refused. */
static int ask_for_window(struct raw *c, uint32_t gpu, uint64_t address, uint64_t bytes)
{
	struct soft_request q = {
		.op = SOFT_REQ_WINDOW, .index = gpu, .value = address, .more = { bytes }
	};
	int fds[FD_PASS_MAX] = { -1, -1, -1 };

	assert_true(raw_ask(c, &q, fds));
	assert_int_equal(c->r.result == 0, fds[0] >= 0);
	return fds[0];
}

static void only_a_clients_own_device_memory_is_mapped(void **state)
{
	const uint64_t page = 4096, base = SOFT_WINDOW_FIRST;
	const uint64_t bad[][2] = {
		{ base - page, page },
		{ base - page, 2 * page },
		{ base, 0 },
		{ base, page - 1 },
		{ base + 1, page },
		{ base, UINT64_MAX - page + 1 },
		{ base + page, UINT64_MAX - page },
		{ base, (uint64_t)1 << 50 },
		{ base + SOFT_WINDOW_STRIDE, page },
		{ 0, page },
		{ UINT64_MAX - page + 1, page },
	};
	struct raw c;
	int fd;

	(void)state;
	raw_open(&c, 1);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(ask_for_window(&c, 0, bad[i][0], bad[i][1]), -1);
	}
	assert_int_equal(ask_for_window(&c, 1, base + SOFT_WINDOW_STRIDE, page), -1);
	assert_int_equal(ask_for_window(&c, UINT32_MAX, base, page), -1);
	fd = ask_for_window(&c, 0, base, page);
	assert_true(fd >= 0);
	close(fd);
	raw_close(&c);
}

/* The client can neither change the size of the memfd nor keep freed pages in it, and what it holds
 * after its end is nobody's. */
static void a_window_shows_no_other_memory(void **state)
{
	enum { BYTES = 1 << 20 };
	struct soft_request q = { .op = SOFT_REQ_FREE };
	unsigned char *at[2];
	int fds[FD_PASS_MAX], fd;
	struct raw c;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		raw_open(&c, 1);
		q.value =
			raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = BYTES });
		fd = ask_for_window(&c, 0, q.value, BYTES);
		assert_true(fd >= 0);
		at[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)c.r.value);
		assert_true(at[i] != MAP_FAILED);
		assert_int_equal(at[i][5], 0);
		memset(at[i], 7, BYTES);
		assert_int_equal(ftruncate(fd, 0), -1);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
		assert_true(raw_ask(&c, &q, fds));
		assert_int_equal(c.r.result, 0);
		assert_int_equal(at[i][5], 0);
		at[i][5] = 9; /* of memory that is not allocated */
		close(fd);
		raw_close(&c);
		assert_int_equal(rig_stats_idle().contexts, 0);
	}
	munmap(at[0], BYTES);
	munmap(at[1], BYTES);
}

static int start(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_context_ends_in_the_middle_of_anothers_copy),
		cmocka_unit_test(streams_of_a_context_that_ends),
		cmocka_unit_test(memory_is_freed_during_a_wait),
		cmocka_unit_test(huge_ranges_are_checked_at_once),
		cmocka_unit_test(pinned_pages_have_a_limit),
		cmocka_unit_test(padding_has_no_effect),
		cmocka_unit_test(the_last_client_of_too_many),
		cmocka_unit_test(empty_messages_leave_nothing),
		cmocka_unit_test(unclosed_descriptors_block_no_client),
		cmocka_unit_test(no_program_talks_to_a_strangers_server),
		cmocka_unit_test(the_server_serves_its_user_and_root_only),
		cmocka_unit_test(only_a_clients_own_device_memory_is_mapped),
		cmocka_unit_test(a_window_shows_no_other_memory),
	};

	return cmocka_run_group_tests_name("soft attack", tests, start, rig_end);
}
