/* Messages and their descriptors at their edges. The calls that signals interrupt, or that a peer
 * can keep busy, are defined here, so that the test decides what they return. */
#include "open_fds.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#include "../eventually.h"

static unsigned interrupted, calls; /* messages: calls that fail with EINTR first; all calls */
static bool endless;		    /* messages: there is always another one */

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	calls++;
	if (interrupted) {
		interrupted--;
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	calls++;
	if (interrupted) {
		interrupted--;
		errno = EINTR;
		return -1;
	}
	if (endless) {
		m->msg_controllen = 0;
		m->msg_flags = 0;
		return 1;
	}
	return syscall(SYS_recvmsg, fd, m, flags);
}

static void make_pair(int pair[2], int type)
{
	assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

static void signals_do_not_end_a_message(void **state)
{
	int pair[2], fds[FD_PASS_MAX];
	unsigned n;
	char byte;

	make_pair(pair, SOCK_SEQPACKET);
	interrupted = 2;
	calls = 0;
	assert_int_equal(msg_send(pair[0], "x", 1, NULL, 0), 0);
	assert_int_equal(calls, 3);
	interrupted = 2;
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), 1);
	assert_int_equal(calls, 6);
	errno = EINTR; /* of an earlier call; an empty message is no failure */
	assert_int_equal(msg_send(pair[0], "", 0, NULL, 0), 0);
	errno = EINTR;
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), 0);
	assert_int_equal(calls, 8);
	assert_int_equal(msg_recv(-1, &byte, 1, fds, &n), -EBADF);
	assert_int_equal(msg_send(-1, "x", 1, NULL, 0), -EBADF);
	close(pair[0]);
	close(pair[1]);
}

static void a_message_carries_eight_descriptors(void **state)
{
	int pair[2], fds[FD_PASS_MAX], many[9];
	unsigned n, before = open_fds();
	char byte;

	make_pair(pair, SOCK_SEQPACKET);
	for (unsigned i = 0; i < 9; i++) {
		many[i] = 2;
	}
	assert_int_equal(msg_send(pair[0], "x", 1, many, 9), -EINVAL);
	assert_int_equal(msg_send(pair[0], "x", 1, many, 8), 0);
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), 1);
	assert_int_equal(n, 8);
	while (n) {
		assert_int_equal(fcntl(fds[--n], F_GETFD), FD_CLOEXEC);
		close(fds[n]);
	}
	/* of a message that is too long they are closed */
	assert_int_equal(msg_send(pair[0], "xy", 2, many, 8), 0);
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), -EMSGSIZE);
	assert_int_equal(n, 0);
	close(pair[0]);
	close(pair[1]);
	eventually(open_fds() == before);
}

/* Nine descriptors: by hand, since msg_send() refuses them. One more than fits is too many. */
static void nine_descriptors_are_too_many(void **state)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(9 * sizeof(int))];
	} ctl = { .align = { CMSG_LEN(9 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { (char[]){ 'x' }, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.bytes,
			    .msg_controllen = sizeof(ctl.bytes) };
	int pair[2], fds[FD_PASS_MAX];
	unsigned n, before = open_fds();
	char byte;

	make_pair(pair, SOCK_SEQPACKET);
	for (unsigned i = 0; i < 9; i++) {
		memcpy(CMSG_DATA(&ctl.align) + i * sizeof(int), &(int){ 2 }, sizeof(int));
	}
	assert_int_equal(sendmsg(pair[0], &m, 0), 1);
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), -EMSGSIZE);
	assert_int_equal(n, 0);
	close(pair[0]);
	close(pair[1]);
	eventually(open_fds() == before);
}

static void credentials_are_no_descriptors(void **state)
{
	int pair[2], fds[FD_PASS_MAX], one = 1, two[2] = { 2, 2 };
	unsigned n;
	char byte;

	make_pair(pair, SOCK_SEQPACKET);
	assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)), 0);
	assert_int_equal(msg_send(pair[0], "x", 1, NULL, 0), 0);
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), 1);
	assert_int_equal(n, 0);
	assert_int_equal(msg_send(pair[0], "x", 1, two, 2), 0);
	assert_int_equal(msg_recv(pair[1], &byte, 1, fds, &n), 1);
	assert_int_equal(n, 2);
	close(fds[0]);
	close(fds[1]);
	close(pair[0]);
	close(pair[1]);
}

/* What lies in the queue is closed by threads, behind empty messages, too, which look like the end
 * of the queue. */
static void the_queue_of_a_peer_is_emptied(void **state)
{
	for (unsigned stream = 0; stream < 2; stream++) {
		unsigned before = open_fds();
		int pair[2], fd = fcntl(2, F_DUPFD_CLOEXEC, 10);

		make_pair(pair, stream ? SOCK_STREAM : SOCK_SEQPACKET);
		for (unsigned i = 0; i < 5; i++) {
			if (!stream) {
				assert_int_equal(msg_send(pair[0], "", 0, NULL, 0), 0);
			}
			assert_int_equal(msg_send(pair[0], "x", 1, &fd, 1), 0);
			assert_int_equal(msg_send(pair[0], "xx", 2, NULL, 0), 0);
		}
		close(fd);
		calls = 0;
		errno = ERANGE;
		assert_int_equal(fd_close_peer(pair[1]), -1);
		assert_int_equal(errno, ERANGE);
		assert_false(is_open(pair[1]));
		/* all messages, and the end */
		assert_true(calls >= (stream ? 6 : 16) && calls <= (stream ? 11 : 16));
		assert_int_equal(msg_send(pair[0], "x", 1, NULL, 0), -EPIPE);
		close(pair[0]);
		eventually(open_fds() == before);
	}
}

/* Also if a kernel keeps returning messages: after 65536 of them. */
static void emptying_a_queue_ends(void **state)
{
	int pair[2];

	make_pair(pair, SOCK_SEQPACKET);
	calls = 0;
	fd_close_peer(pair[1]);
	assert_int_equal(calls, 1);
	close(pair[0]);
	make_pair(pair, SOCK_SEQPACKET);
	calls = 0;
	endless = true;
	fd_close_peer(pair[1]);
	endless = false;
	assert_int_equal(calls, 65536);
	close(pair[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signals_do_not_end_a_message),
		cmocka_unit_test(a_message_carries_eight_descriptors),
		cmocka_unit_test(nine_descriptors_are_too_many),
		cmocka_unit_test(credentials_are_no_descriptors),
		cmocka_unit_test(the_queue_of_a_peer_is_emptied),
		cmocka_unit_test(emptying_a_queue_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
