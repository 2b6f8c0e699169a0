/* Descriptors, messages, sockets and threads at their edges. The calls that a peer can make block,
 * or that signals interrupt, are defined here, so that the test decides when they do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "base/thread.h"

#include "../await.h"

static uint32_t blocking;	    /* close() of descriptors that were asked for waits while set */
static uint32_t inside, closed;	    /* calls of close() that have begun to wait, that have ended */
static unsigned interrupted, calls; /* messages: calls that fail with EINTR first; all calls */
static bool endless;		    /* messages: there is always another one */
static uint32_t zero_closed_by;	    /* thread ID */
static int watched = -1, linger_of_watched; /* close() reads SO_LINGER of this one */
static int32_t first_blocked = INT_MAX;

int close(int fd)
{
	struct linger l = { 0 };
	socklen_t len = sizeof(l);
	int r;

	if (fd == load_relaxed(&watched) && getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0) {
		store_release(&linger_of_watched, l.l_onoff ? l.l_linger : 0);
	}
	if (fd == 0) {
		store_release(&zero_closed_by, (uint32_t)gettid());
	}
	if (fd >= load_relaxed(&first_blocked)) {
		add_acqrel(&inside, 1u);
		while (load_acquire(&blocking)) {
			clock_sleep_ns(AWAIT_POLL_NS);
		}
	}
	r = (int)syscall(SYS_close, fd);
	if (fd >= load_relaxed(&first_blocked)) {
		add_acqrel(&closed, 1u);
	}
	return r;
}

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

/* Threads of this process; a sanitizer may have one of its own. */
static unsigned tasks_at_start;

static unsigned tasks(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		n += e->d_name[0] != '.';
	}
	closedir(d);
	return n;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void closing_keeps_errno(void **state)
{
	int fd = dup(0);

	errno = ERANGE;
	assert_int_equal(fd_close(fd), -1);
	assert_false(is_open(fd));
	errno = ERANGE;
	assert_int_equal(fd_close(fd), -1); /* is not open */
	assert_int_equal(errno, ERANGE);
	assert_int_equal(fd_close(-1), -1);
	assert_int_equal(fd_close_foreign(-1), -1);
	assert_int_equal(fd_close_peer(-1), -1);
	assert_int_equal(errno, ERANGE);
	assert_int_equal(fd_close(dup2(0, 200)), -1);
	fd = dup2(0, 0); /* the lowest number is a descriptor, too */
	assert_int_equal(fd, 0);
}

static void zero_is_a_descriptor(void **state)
{
	int saved = dup(0);

	fd_close(0);
	assert_false(is_open(0));
	assert_int_equal(dup2(saved, 0), 0);
	fd_close_foreign(0);
	AWAIT(!is_open(0));
	assert_int_not_equal(load_acquire(&zero_closed_by), (uint32_t)gettid());
	assert_int_equal(dup2(saved, 0), 0);
	close(saved);
}

/* 16 threads may block, and 1024 descriptors wait for them; further ones stay open. */
static void closers_and_what_waits_for_them_are_limited(void **state)
{
	struct rlimit limit = { 4096, 4096 };
	int fds[16 + 1024 + 1], source = open("/dev/null", O_RDONLY | O_CLOEXEC);

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned i = 0; i < 1041; i++) {
		fds[i] = fcntl(source, F_DUPFD_CLOEXEC, 500);
		assert_true(fds[i] >= 500);
	}
	store_relaxed(&first_blocked, 500);
	store_release(&blocking, 1u);
	for (unsigned i = 0; i < 16; i++) {
		errno = ERANGE;
		assert_int_equal(fd_close_foreign(fds[i]), -1);
		assert_int_equal(errno, ERANGE);
		AWAIT(load_acquire(&inside) == i + 1);
	}
	for (unsigned i = 16; i < 1041; i++) {
		assert_int_equal(fd_close_foreign(fds[i]), -1);
	}
	store_release(&blocking, 0u);
	AWAIT(load_acquire(&closed) == 1040);
	assert_int_equal(load_acquire(&inside), 1040); /* no thread came later */
	assert_false(is_open(fds[1039]));
	assert_true(is_open(fds[1040]));
	/* the closers end and others begin */
	fd_close_foreign(fds[1040]);
	AWAIT(!is_open(fds[1040]));
	AWAIT(load_acquire(&closed) == 1041);
	store_relaxed(&first_blocked, INT_MAX);
	close(source);
}

/* While all closers block, no thread is added. */
static void a_seventeenth_closer_does_not_start(void **state)
{
	int fds[20], source = open("/dev/null", O_RDONLY | O_CLOEXEC);

	store_release(&inside, 0u);
	store_release(&closed, 0u);
	store_relaxed(&first_blocked, 500);
	store_release(&blocking, 1u);
	for (unsigned i = 0; i < 20; i++) {
		fds[i] = fcntl(source, F_DUPFD_CLOEXEC, 500);
		fd_close_foreign(fds[i]);
		AWAIT(load_acquire(&inside) >= (i < 16 ? i + 1 : 16));
	}
	AWAIT(tasks() == tasks_at_start + 16); /* threads of earlier tests may still be ending */
	assert_int_equal(load_acquire(&inside), 16);
	store_release(&blocking, 0u);
	AWAIT(load_acquire(&closed) == 20);
	store_relaxed(&first_blocked, INT_MAX);
	close(source);
}

/* A sealed page of 1 MiB is closed before the call returns, a larger one is not waited for. */
static void small_pages_are_closed_at_once(void **state)
{
	int small = shm_create("small", 1 << 20, SHM_NOEXEC);
	int large = shm_create("large", (1 << 20) + 4096, SHM_NOEXEC);

	fd_close_foreign(small);
	assert_false(is_open(small));
	store_release(&blocking, 1u);
	store_release(&inside, 0u);
	store_release(&closed, 0u);
	store_relaxed(&first_blocked, large);
	fd_close_foreign(large);
	AWAIT(load_acquire(&inside) == 1);
	assert_true(is_open(large));
	store_release(&blocking, 0u);
	AWAIT(load_acquire(&closed) == 1);
	store_relaxed(&first_blocked, INT_MAX);
}

/* The sender may have asked close() to wait for what was not sent yet. */
static void foreign_sockets_do_not_linger(void **state)
{
	struct linger l = { 1, 1000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	store_release(&linger_of_watched, 77);
	store_relaxed(&watched, fd);
	fd_close_foreign(fd);
	AWAIT(!is_open(fd));
	assert_int_equal(load_acquire(&linger_of_watched), 0);
	store_relaxed(&watched, -1);
}

static void *wait_a_second(void *arg)
{
	static const uint32_t word = 5;
	uint64_t begin = clock_now_ns();

	*(int *)arg = futex_wait_shared(&word, 5, 1000000001u);
	return (void *)(uintptr_t)(clock_now_ns() - begin >= 1000000001u);
}

static uint32_t futex_word, waiter_tid;

static void *wait_for_a_wake(void *arg)
{
	store_release(&waiter_tid, (uint32_t)gettid());
	*(int *)arg = futex_wait_shared(&futex_word, 0, UINT64_C(100000000000));
	return NULL;
}

static void futexes_count_wakes_and_time(void **state)
{
	int timed = 1, woken = 1;
	pthread_t t, w;
	void *lasted;

	assert_int_equal(pthread_create(&t, NULL, wait_a_second, &timed), 0);
	errno = ERANGE;
	assert_int_equal(futex_wake_shared(&futex_word, 1), 0);
	assert_int_equal(futex_wake_shared((uint32_t *)8, 1), 0); /* not memory */
	assert_int_equal(errno, ERANGE);
	assert_int_equal(futex_wait_shared((uint32_t *)8, 1, 1), -EFAULT);
	assert_int_equal(pthread_create(&w, NULL, wait_for_a_wake, &woken), 0);
	AWAIT(load_acquire(&waiter_tid) && thread_is_blocked((pid_t)load_acquire(&waiter_tid)));
	assert_int_equal(futex_wake_shared(&futex_word, 5), 1);
	pthread_join(w, NULL);
	assert_int_equal(woken, 0);
	pthread_join(t, &lasted);
	assert_int_equal(timed, -ETIMEDOUT);
	assert_non_null(lasted);
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
	AWAIT(open_fds() == before);
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
	AWAIT(open_fds() == before);
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
		AWAIT(open_fds() == before);
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

static void peers_of_other_descriptors_are_unknown(void **state)
{
	struct peer p = { 1, 2, 3 };

	assert_int_equal(fd_peer(0, &p), -ENOTSOCK);
	assert_int_equal(fd_peer(-1, &p), -EBADF);
	assert_int_equal(p.pid, 1);
}

static void sockets_that_cannot_be_made_leak_nothing(void **state)
{
	char dir[] = "/tmp/gbpf-fd-XXXXXX", path[64], none[64];
	unsigned before = open_fds();
	struct stat st;
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	snprintf(none, sizeof(none), "%s/none/socket", dir);
	assert_int_equal(unix_connect(none, SOCK_STREAM), -ENOENT);
	assert_int_equal(unix_listen(none, SOCK_STREAM, 0600), -ENOENT);
	assert_int_equal(unix_connect(path, 77), -EINVAL);
	assert_int_equal(unix_listen(path, 77, 0600), -EINVAL);
	assert_int_equal(unix_listen(path, SOCK_DGRAM, 0600), -EOPNOTSUPP);
	assert_int_equal(open_fds(), before);
	fd = unix_listen(path, SOCK_SEQPACKET, 0600); /* replaces the file */
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(unix_connect(path, SOCK_STREAM), -EPROTOTYPE);
	close(fd);
	assert_int_equal(unix_connect(path, SOCK_SEQPACKET), -ECONNREFUSED);
	assert_int_equal(open_fds(), before);
	unlink(path);
	rmdir(dir);
}

/* 128 connections wait to be accepted, and one more (listen(2)). */
static void connections_wait_to_be_accepted(void **state)
{
	char dir[] = "/tmp/gbpf-fd-XXXXXX", path[64];
	int fd, to[130];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	fd = unix_listen(path, SOCK_STREAM, 0600);
	for (unsigned i = 0; i < 130; i++) {
		to[i] = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
		if (i < 129) {
			assert_true(to[i] >= 0);
			assert_int_equal(fcntl(to[i], F_GETFD), FD_CLOEXEC);
		}
	}
	assert_int_equal(to[129], -EAGAIN);
	for (unsigned i = 0; i < 129; i++) {
		close(to[i]);
	}
	close(fd);
	unlink(path);
	rmdir(dir);
}

static struct {
	uint32_t done;
	sigset_t mask;
	size_t stack;
	int detached;
} started;

static void *look_around(void *arg)
{
	pthread_attr_t attr;

	assert_ptr_equal(arg, &started);
	pthread_sigmask(SIG_SETMASK, NULL, &started.mask);
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, &started.stack);
	pthread_attr_getdetachstate(&attr, &started.detached);
	pthread_attr_destroy(&attr);
	store_release(&started.done, 1u);
	return NULL;
}

static void threads_get_no_signals(void **state)
{
	sigset_t mine, after;

	sigemptyset(&mine);
	sigaddset(&mine, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &mine, NULL);
	assert_int_equal(thread_start_detached(look_around, &started, 256 << 10), 0);
	AWAIT(load_acquire(&started.done));
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int s = 1; s < 32; s++) {
		assert_int_equal(sigismember(&after, s), s == SIGUSR2);
		assert_int_equal(sigismember(&started.mask, s), s != SIGKILL && s != SIGSTOP);
	}
	assert_int_equal(started.detached, PTHREAD_CREATE_DETACHED);
	assert_true(started.stack >= 256 << 10 && started.stack < 1 << 20);
	store_release(&started.done, 0u);
	assert_int_equal(thread_start_detached(look_around, &started, 0), 0);
	AWAIT(load_acquire(&started.done));
	assert_true(started.stack > 1 << 20);
	/* no memory for so large a stack */
	assert_int_equal(thread_start_detached(look_around, &started, (size_t)1 << 50), -EAGAIN);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_false(sigismember(&after, SIGTERM));
}

static void *no_work(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t first;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_keeps_errno),
		cmocka_unit_test(zero_is_a_descriptor),
		cmocka_unit_test(closers_and_what_waits_for_them_are_limited),
		cmocka_unit_test(a_seventeenth_closer_does_not_start),
		cmocka_unit_test(small_pages_are_closed_at_once),
		cmocka_unit_test(foreign_sockets_do_not_linger),
		cmocka_unit_test(futexes_count_wakes_and_time),
		cmocka_unit_test(signals_do_not_end_a_message),
		cmocka_unit_test(a_message_carries_eight_descriptors),
		cmocka_unit_test(nine_descriptors_are_too_many),
		cmocka_unit_test(credentials_are_no_descriptors),
		cmocka_unit_test(the_queue_of_a_peer_is_emptied),
		cmocka_unit_test(emptying_a_queue_ends),
		cmocka_unit_test(peers_of_other_descriptors_are_unknown),
		cmocka_unit_test(sockets_that_cannot_be_made_leak_nothing),
		cmocka_unit_test(connections_wait_to_be_accepted),
		cmocka_unit_test(threads_get_no_signals),
	};

	/* a sanitizer starts its own thread with the first one */
	if (pthread_create(&first, NULL, no_work, NULL) == 0) {
		pthread_join(first, NULL);
	}
	tasks_at_start = tasks();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
