/* Virtual time: every kind of wait lasts exactly as long as it must, in all threads and processes,
 * and no time passes while one of them runs. Run by virtual-time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define EXACT_NS 1000000u /* reads of the clock take time, too */
#define THREADS 16u

static void lasted(uint64_t start, uint64_t ns)
{
	assert_in_range(clock_now_ns() - start, ns, ns + EXACT_NS);
	assert_in_range(clock_fast_ns() - start, ns, ns + EXACT_NS);
}

static void test_sleeps(void **state)
{
	uint64_t start = clock_now_ns();
	struct timespec t = clock_timespec(start + HOUR);

	assert_int_equal(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), 0);
	lasted(start, HOUR);
	clock_sleep_ns(HOUR);
	lasted(start, 2 * HOUR);
	t = clock_timespec(HOUR);
	assert_int_equal(nanosleep(&t, NULL), 0);
	lasted(start, 3 * HOUR);
	assert_int_equal(usleep(3600000000u), 0);
	lasted(start, 4 * HOUR);
	assert_int_equal(sleep(3600), 0);
	lasted(start, 5 * HOUR);
}

static void test_poll(void **state)
{
	uint64_t start = clock_now_ns();
	struct timespec t = clock_timespec(HOUR);
	struct epoll_event e;
	int ends[2], epoll;
	struct pollfd p = { .events = POLLIN };

	assert_int_equal(pipe(ends), 0);
	p.fd = ends[0];
	assert_int_equal(poll(&p, 1, 3600000), 0);
	lasted(start, HOUR);
	assert_int_equal(ppoll(&p, 1, &t, NULL), 0);
	lasted(start, 2 * HOUR);
	epoll = epoll_create1(0);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){ EPOLLIN }),
			 0);
	assert_int_equal(epoll_wait(epoll, &e, 1, 3600000), 0);
	lasted(start, 3 * HOUR);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(poll(&p, 1, 3600000), 1);
	assert_int_equal(epoll_wait(epoll, &e, 1, 3600000), 1);
	lasted(start, 3 * HOUR);
	close(epoll);
	close(ends[0]);
	close(ends[1]);
}

static void test_timers(void **state)
{
	struct itimerspec t = { .it_value = clock_timespec(HOUR) };
	uint64_t start = clock_now_ns(), count;
	struct epoll_event e;
	int epoll = epoll_create1(0), near, far;

	for (unsigned round = 1; round <= 2; round++) { /* the descriptors are used again */
		near = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
		far = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
		e = (struct epoll_event){ .events = EPOLLIN, .data.fd = near };
		assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, near, &e), 0);
		e.data.fd = far;
		assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, far, &e), 0);
		assert_int_equal(timerfd_settime(near, 0, &t, NULL), 0);
		assert_int_equal(timerfd_settime(far, TFD_TIMER_ABSTIME,
						 &(struct itimerspec){ .it_value = clock_timespec(
									       start + 9 * HOUR) },
						 NULL),
				 0);
		assert_int_equal(epoll_wait(epoll, &e, 1, -1), 1);
		lasted(start, round * HOUR);
		assert_int_equal(e.data.fd, near);
		assert_int_equal(read(near, &count, sizeof(count)), sizeof(count));
		assert_int_equal(read(near, &count, sizeof(count)), -1);
		close(near);
		close(far);
	}
	close(epoll);
}

static void test_futex(void **state)
{
	uint64_t start = clock_now_ns();
	struct timespec t = clock_timespec(HOUR);
	uint32_t word = 0;

	assert_int_equal(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	lasted(start, HOUR);
	t = clock_timespec(start + 2 * HOUR);
	assert_int_equal(
		syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &t, NULL, FUTEX_BITSET_MATCH_ANY),
		-1);
	assert_int_equal(errno, ETIMEDOUT);
	lasted(start, 2 * HOUR);
	assert_int_equal(syscall(SYS_futex, &word, FUTEX_WAIT, 1, &t, NULL, 0), -1);
	assert_int_equal(errno, EAGAIN);
}

static void wait_an_hour(clockid_t id, uint64_t now)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	uint64_t start = clock_now_ns();
	struct timespec t = clock_timespec(now + HOUR);
	pthread_condattr_t attr;
	pthread_cond_t cond;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, id);
	pthread_cond_init(&cond, &attr);
	pthread_mutex_lock(&mutex);
	while (pthread_cond_timedwait(&cond, &mutex, &t) == 0) {
	}
	lasted(start, HOUR);
	pthread_mutex_unlock(&mutex);
	pthread_cond_destroy(&cond);
	pthread_condattr_destroy(&attr);
}

static void test_condition(void **state)
{
	wait_an_hour(CLOCK_MONOTONIC, clock_now_ns());
	wait_an_hour(CLOCK_REALTIME, clock_wall_ns());
}

static void test_wall(void **state)
{
	uint64_t start = clock_wall_ns();
	struct timespec t;

	clock_sleep_ns(HOUR);
	assert_in_range(clock_wall_ns() - start, HOUR, HOUR + EXACT_NS);
	t = clock_timespec(start + 2 * HOUR);
	assert_int_equal(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL), 0);
	assert_in_range(clock_wall_ns() - start, 2 * HOUR, 2 * HOUR + EXACT_NS);
}

static uint64_t common_start;
static unsigned order[THREADS], ended; /* [atomic] ended */

static void *sleeper(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	clock_sleep_ns((i + 1) * SECOND);
	order[add_acqrel(&ended, 1u)] = i;
	clock_sleep_ns(common_start + HOUR - clock_now_ns());
	return (void *)(uintptr_t)(clock_now_ns() - common_start);
}

static void test_order(void **state)
{
	pthread_t threads[THREADS];
	void *ns;

	common_start = clock_now_ns();
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, sleeper,
						(void *)(uintptr_t)(THREADS - 1 - i)),
				 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &ns);
		assert_in_range((uintptr_t)ns, HOUR, HOUR + EXACT_NS);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(order[i], i);
	}
	lasted(common_start, HOUR);
}

static void test_no_time_while_one_runs(void **state)
{
	uint64_t start = clock_now_ns(), used = clock_cpu_ns();
	pthread_t thread;
	void *ns;

	ended = 0;
	common_start = start;
	assert_int_equal(pthread_create(&thread, NULL, sleeper, NULL), 0);
	while (clock_cpu_ns() - used < SECOND / 5) {
	}
	lasted(start, 0);
	pthread_join(thread, &ns);
	assert_in_range((uintptr_t)ns, HOUR, HOUR + EXACT_NS);
}

static void *spinner(void *arg)
{
	while (clock_now_ns() < common_start + SECOND) {
	}
	return (void *)(uintptr_t)(clock_now_ns() - common_start);
}

static void *late_sleeper(void *arg)
{
	clock_sleep_ns(2 * SECOND);
	return NULL;
}

/* Two threads that spin, sleeps that end before and after these, and a loop that yields: each ends
 * at its time. */
static void test_spin(void **state)
{
	pthread_t threads[2], late;
	uint64_t start = clock_now_ns();
	void *ns;

	assert_int_equal(pthread_create(&late, NULL, late_sleeper, NULL), 0);

	common_start = start;
	assert_int_equal(pthread_create(&threads[0], NULL, spinner, NULL), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, spinner, NULL), 0);
	clock_sleep_ns(SECOND / 2);
	lasted(start, SECOND / 2);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(threads[i], &ns);
		assert_in_range((uintptr_t)ns, SECOND, SECOND + EXACT_NS);
	}
	while (clock_now_ns() < start + 3 * SECOND / 2) {
		sched_yield();
	}
	lasted(start, 3 * SECOND / 2);
	pthread_join(late, NULL);
}

/* A stopped process and one that was killed while they wait do not stop the time. */
static void test_processes(void **state)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t start = clock_now_ns();
	struct timespec quarter = clock_timespec(start + HOUR / 4);
	int ends[2], status;
	pid_t writer, stopped, killed;

	assert_int_equal(pipe(ends), 0);
	p.fd = ends[0];
	writer = fork();
	if (writer == 0) {
		clock_sleep_ns(HOUR / 2);
		_exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
	}
	stopped = fork();
	if (stopped == 0) {
		_exit(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &quarter, NULL));
	}
	killed = fork();
	if (killed == 0) {
		_exit(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &quarter, NULL));
	}
	assert_int_equal(kill(stopped, SIGSTOP), 0);
	assert_int_equal(waitpid(stopped, &status, WUNTRACED), stopped);
	assert_int_equal(kill(killed, SIGKILL), 0);
	assert_int_equal(poll(&p, 1, 3600000), 1);
	lasted(start, HOUR / 2);
	assert_int_equal(waitpid(writer, &status, 0), writer);
	assert_int_equal(status, 0);
	assert_int_equal(kill(stopped, SIGCONT), 0);
	assert_int_equal(waitpid(stopped, &status, 0), stopped);
	assert_int_equal(status, 0);
	lasted(start, HOUR / 2);
	assert_int_equal(waitpid(killed, &status, 0), killed);
	assert_true(WIFSIGNALED(status));
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sleeps),	  cmocka_unit_test(test_poll),
		cmocka_unit_test(test_timers),	  cmocka_unit_test(test_futex),
		cmocka_unit_test(test_condition), cmocka_unit_test(test_wall),
		cmocka_unit_test(test_spin),	  cmocka_unit_test(test_order),
		cmocka_unit_test(test_processes), cmocka_unit_test(test_no_time_while_one_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
