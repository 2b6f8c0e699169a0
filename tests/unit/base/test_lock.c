/* Locks and the check of their order. lock.c is compiled for this test with LOCK_ORDER, so the
 * check is tested in release builds too. Each case of the check is a child process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/lock.h"

#include "../eventually.h"

static struct lock attach = LOCK_INITIALIZER(ATTACH);
static struct lock issue[2] = { LOCK_INITIALIZER(ISSUE), LOCK_INITIALIZER(ISSUE) };
static struct lock last = LOCK_INITIALIZER(CLOSING);
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static uint32_t stage;

static void assert_passes(void (*act)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		act();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void assert_aborts(void (*act)(void), const char *message)
{
	char text[256];
	ssize_t n;
	int status, fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL); /* cmocka catches it */
		dup2(fds[1], STDERR_FILENO);
		act();
		_exit(0);
	}
	close(fds[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	n = read(fds[0], text, sizeof(text) - 1);
	close(fds[0]);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_string_equal(text, message);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void *hold_until_told(void *arg)
{
	lock_take(&attach);
	store_release(&stage, 1u);
	eventually(load_acquire(&stage) == 2);
	lock_release(&attach);
	return NULL;
}

static void one_thread_has_it(void **state)
{
	const struct timespec past = { 0 };
	pthread_t t;

	store_release(&stage, 0u);
	assert_int_equal(pthread_create(&t, NULL, hold_until_told, NULL), 0);
	eventually(load_acquire(&stage) == 1);
	assert_false(lock_try(&attach));
	assert_false(lock_take_by(&attach, CLOCK_MONOTONIC, &past));
	store_release(&stage, 2u);
	lock_take(&attach);
	lock_release(&attach);
	pthread_join(t, NULL);
	assert_true(lock_take_by(&attach, CLOCK_MONOTONIC, &past));
	lock_release(&attach);
	assert_true(lock_try(&attach));
	lock_release(&attach);
}

static void *signal_when_free(void *arg)
{
	lock_take(&attach); /* once the other waits */
	stage = 1;
	pthread_cond_signal(&condition);
	lock_release(&attach);
	return NULL;
}

static void a_wait_leaves_the_lock_and_takes_it_again(void **state)
{
	const struct timespec past = { 0 };
	pthread_t t;

	stage = 0;
	lock_take(&attach);
	assert_int_equal(lock_wait_until(&attach, &condition, &past), ETIMEDOUT);
	assert_int_equal(lock_wait_clock(&attach, &condition, CLOCK_MONOTONIC, &past), ETIMEDOUT);
	assert_int_equal(pthread_create(&t, NULL, signal_when_free, NULL), 0);
	while (!stage) {
		assert_int_equal(lock_wait(&attach, &condition), 0);
	}
	assert_int_not_equal(pthread_mutex_trylock(&attach.mutex), 0);
	lock_release(&attach);
	pthread_join(t, NULL);
}

static void take_in_order(void)
{
	lock_take(&attach);
	lock_take(&issue[0]);
	lock_take(&issue[1]);
	lock_take(&last);
	lock_release(&last);
	lock_release(&issue[1]);
	lock_release(&issue[0]);
	lock_release(&attach);
}

static void try_against_the_order(void)
{
	lock_take(&issue[1]);
	if (!lock_try(&issue[0]) || !lock_try(&attach)) {
		_exit(1);
	}
	lock_take(&last);
}

static void take_against_the_order(void)
{
	lock_take(&attach);
	lock_take(&last);
	lock_take(&issue[0]);
}

static void take_under_a_tried_one(void)
{
	(void)lock_try(&last);
	lock_take(&attach);
}

static void take_by_against_the_order(void)
{
	const struct timespec past = { 0 };

	lock_take(&last);
	(void)lock_take_by(&attach, CLOCK_MONOTONIC, &past);
}

static void take_descending(void)
{
	lock_take(&issue[1]);
	lock_take(&issue[0]);
}

static void take_twice(void)
{
	lock_take(&attach);
	lock_take(&attach);
}

static void the_order_is_checked(void **state)
{
	assert_passes(take_in_order);
	assert_passes(try_against_the_order);
	assert_aborts(
		take_against_the_order,
		"gbpf: lock order: ISSUE (sched/queue_int.h) is taken under CLOSING (base/fd.c)\n");
	assert_aborts(take_under_a_tried_one, "gbpf: lock order: ATTACH (shim/entry/init.c) is "
					      "taken under CLOSING (base/fd.c)\n");
	assert_aborts(take_by_against_the_order, "gbpf: lock order: ATTACH (shim/entry/init.c) is "
						 "taken under CLOSING (base/fd.c)\n");
	assert_aborts(take_descending, "gbpf: lock order: ISSUE (sched/queue_int.h) is taken under "
				       "ISSUE (sched/queue_int.h)\n");
	assert_aborts(take_twice,
		      "gbpf: lock order: ATTACH (shim/entry/init.c) is taken under ATTACH "
		      "(shim/entry/init.c)\n");
}

static void release_out_of_order(void)
{
	lock_take(&issue[0]);
	lock_take(&issue[1]);
	lock_take(&last);
	lock_release(&issue[0]);
	lock_release(&last);
	lock_take(&last); /* issue[1] is below it */
	lock_release(&issue[1]);
	lock_release(&last);
	lock_take(&attach);
}

static void fail_to_take_by(void)
{
	const struct timespec past = { 0 };

	pthread_mutex_lock(&last.mutex);
	if (lock_take_by(&last, CLOCK_MONOTONIC, &past) || lock_try(&last)) {
		_exit(1);
	}
	lock_take(&attach);
}

static void init_in_a_child(void)
{
	pid_t pid;
	int status;

	lock_take(&last);
	pid = fork();
	if (pid == 0) {
		lock_init(&last, LOCK_CLOSING);
		lock_take(&attach);
		lock_take(&last);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status != 0) {
		_exit(1);
	}
}

static void release_what_is_free(void)
{
	lock_take(&last);
	lock_release(&last);
	lock_release(&last);
}

static void what_is_not_held_does_not_count(void **state)
{
	assert_passes(release_out_of_order);
	assert_passes(fail_to_take_by);
	assert_passes(init_in_a_child);
	assert_aborts(release_what_is_free,
		      "gbpf: lock order: CLOSING (base/fd.c) is released by a "
		      "thread that does not hold CLOSING (base/fd.c)\n");
}

static void wait_under_a_later_one(void)
{
	lock_take(&attach);
	lock_take(&last);
	(void)lock_wait(&attach, &condition);
}

static void wait_until_under_a_later_one(void)
{
	const struct timespec past = { 0 };

	lock_take(&attach);
	lock_take(&last);
	(void)lock_wait_until(&attach, &condition, &past);
}

static void wait_clock_under_a_later_one(void)
{
	const struct timespec past = { 0 };

	lock_take(&attach);
	lock_take(&last);
	(void)lock_wait_clock(&attach, &condition, CLOCK_MONOTONIC, &past);
}

static void a_wait_takes_its_lock_again(void **state)
{
	void (*const waits[])(void) = { wait_under_a_later_one, wait_until_under_a_later_one,
					wait_clock_under_a_later_one };

	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
		assert_aborts(waits[i],
			      "gbpf: lock order: ATTACH (shim/entry/init.c) is taken under "
			      "CLOSING (base/fd.c)\n");
	}
}

static void take_too_many(void)
{
	struct lock many[64];

	for (unsigned i = 0; i < 64; i++) {
		lock_init(&many[i], LOCK_ISSUE);
		lock_take(&many[i]);
	}
}

static void too_many_abort(void **state)
{
	assert_aborts(take_too_many,
		      "gbpf: lock order: ISSUE (sched/queue_int.h) is one lock too many "
		      "under ISSUE (sched/queue_int.h)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_has_it),
		cmocka_unit_test(a_wait_leaves_the_lock_and_takes_it_again),
		cmocka_unit_test(the_order_is_checked),
		cmocka_unit_test(what_is_not_held_does_not_count),
		cmocka_unit_test(a_wait_takes_its_lock_again),
		cmocka_unit_test(too_many_abort),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
