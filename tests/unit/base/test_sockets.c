/* Sockets, futexes and threads at their edges. */
#include "open_fds.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"

#include "../eventually.h"

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
	eventually(load_acquire(&waiter_tid) &&
		   thread_is_blocked((pid_t)load_acquire(&waiter_tid)));
	assert_int_equal(futex_wake_shared(&futex_word, 5), 1);
	pthread_join(w, NULL);
	assert_int_equal(woken, 0);
	pthread_join(t, &lasted);
	assert_int_equal(timed, -ETIMEDOUT);
	assert_non_null(lasted);
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
	eventually(load_acquire(&started.done));
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int s = 1; s < 32; s++) {
		assert_int_equal(sigismember(&after, s), s == SIGUSR2);
		assert_int_equal(sigismember(&started.mask, s), s != SIGKILL && s != SIGSTOP);
	}
	assert_int_equal(started.detached, PTHREAD_CREATE_DETACHED);
	assert_true(started.stack >= 256 << 10 && started.stack < 1 << 20);
	store_release(&started.done, 0u);
	assert_int_equal(thread_start_detached(look_around, &started, 0), 0);
	eventually(load_acquire(&started.done));
	assert_true(started.stack > 1 << 20);
	/* no memory for so large a stack */
	assert_int_equal(thread_start_detached(look_around, &started, (size_t)1 << 50), -EAGAIN);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_false(sigismember(&after, SIGTERM));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(futexes_count_wakes_and_time),
		cmocka_unit_test(peers_of_other_descriptors_are_unknown),
		cmocka_unit_test(sockets_that_cannot_be_made_leak_nothing),
		cmocka_unit_test(connections_wait_to_be_accepted),
		cmocka_unit_test(threads_get_no_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
