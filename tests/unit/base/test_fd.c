/* Closing descriptors at its edges. close(), which a descriptor of a peer can make block, is
 * defined here, so that the test decides when it does. */
#include "open_fds.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"

#include "../eventually.h"

static uint32_t blocking;	/* close() of descriptors that were asked for waits while set */
static uint32_t inside, closed; /* calls of close() that have begun to wait, that have ended */
static uint32_t zero_closed_by; /* thread ID */
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
		eventually(!load_acquire(&blocking));
	}
	r = (int)syscall(SYS_close, fd);
	if (fd >= load_relaxed(&first_blocked)) {
		add_acqrel(&closed, 1u);
	}
	return r;
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
	eventually(!is_open(0));
	assert_int_not_equal(load_acquire(&zero_closed_by), (uint32_t)gettid());
	assert_int_equal(dup2(saved, 0), 0);
	close(saved);
}

#define DESCRIPTORS 3000u

/* 16 threads may block. All further descriptors wait for them, and none is lost. */
static void closers_are_limited_and_close_all(void **state)
{
	struct rlimit limit = { 4096, 4096 };
	int fds[DESCRIPTORS], source = open("/dev/null", O_RDONLY | O_CLOEXEC);

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned i = 0; i < DESCRIPTORS; i++) {
		fds[i] = fcntl(source, F_DUPFD_CLOEXEC, 500);
		assert_true(fds[i] >= 500);
	}
	store_relaxed(&first_blocked, 500);
	store_release(&blocking, 1u);
	for (unsigned i = 0; i < 16; i++) {
		errno = ERANGE;
		assert_int_equal(fd_close_foreign(fds[i]), -1);
		assert_int_equal(errno, ERANGE);
		eventually(load_acquire(&inside) == i + 1);
	}
	for (unsigned i = 16; i < DESCRIPTORS; i++) {
		assert_int_equal(fd_close_foreign(fds[i]), -1);
	}
	store_release(&blocking, 0u);
	eventually(load_acquire(&closed) == DESCRIPTORS);
	assert_int_equal(load_acquire(&inside), DESCRIPTORS); /* no thread came later */
	for (unsigned i = 0; i < DESCRIPTORS; i++) {
		assert_false(is_open(fds[i]));
	}
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
		eventually(load_acquire(&inside) >= (i < 16 ? i + 1 : 16));
	}
	eventually(tasks() ==
		   tasks_at_start + 16); /* threads of earlier tests may still be ending */
	assert_int_equal(load_acquire(&inside), 16);
	store_release(&blocking, 0u);
	eventually(load_acquire(&closed) == 20);
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
	eventually(load_acquire(&inside) == 1);
	assert_true(is_open(large));
	store_release(&blocking, 0u);
	eventually(load_acquire(&closed) == 1);
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
	eventually(!is_open(fd));
	assert_int_equal(load_acquire(&linger_of_watched), 0);
	store_relaxed(&watched, -1);
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
		cmocka_unit_test(closers_are_limited_and_close_all),
		cmocka_unit_test(a_seventeenth_closer_does_not_start),
		cmocka_unit_test(small_pages_are_closed_at_once),
		cmocka_unit_test(foreign_sockets_do_not_linger),
	};

	/* a sanitizer starts its own thread with the first one */
	if (pthread_create(&first, NULL, no_work, NULL) == 0) {
		pthread_join(first, NULL);
	}
	tasks_at_start = tasks();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
