/* Which calls wait for which lock, and that each leaves it: a thread holds the lock, another one
 * makes the call and must block. */
#include "run_rig.h"

#include <pthread.h>
#include <unistd.h>

#include "gpu/cuda/flag_lease_int.h"
#include "gpu/flag_lease.h"

#include "../eventually.h"

static uint32_t caller, paused, locked, resumed, done;
static const char *pause_at;

/* Of the calling thread: lets the test take the lock now. */
static void on_call(const char *call)
{
	if (pause_at && load_acquire(&caller) == (uint32_t)gettid() &&
	    strcmp(call, pause_at) == 0) {
		pause_at = NULL;
		store_release(&paused, 1u);
		eventually(load_acquire(&locked));
		store_release(&resumed, 1u);
	}
}

static void *run_call(void *arg)
{
	void (*call)(void) = *(void (**)(void))arg;

	store_release(&caller, (uint32_t)gettid());
	script_current = SCRIPT_CONTEXT(1);
	call();
	store_release(&done, 1u);
	return NULL;
}

static void assert_waits(struct lock *lock, void (*call)(void), const char *at)
{
	pthread_t t;
	bool waited;

	caller = paused = locked = resumed = done = 0;
	pause_at = at;
	script_on_call = on_call;
	if (!at) {
		lock_take(lock);
	}
	assert_int_equal(pthread_create(&t, NULL, run_call, &call), 0);
	if (at) {
		eventually(load_acquire(&paused));
		lock_take(lock);
		store_release(&locked, 1u);
		eventually(load_acquire(&resumed));
	}
	eventually(load_acquire(&done) ||
		   (load_acquire(&caller) && thread_is_blocked((pid_t)load_acquire(&caller))));
	waited = !load_acquire(&done);
	lock_release(lock);
	pthread_join(t, NULL);
	assert_true(waited);
	assert_true(lock_try(lock)); /* it was left */
	lock_release(lock);
}

static void place_a_marker(void)
{
	static struct sched_marker marker;

	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &marker), 0);
	gpu_sched_ops.mark_release(d, &marker);
}

static void forget(void)
{
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
}

static void run_clock(const struct script_launch *l)
{
	if (l->f == SCRIPT_CLOCK) {
		*(volatile uint64_t *)(uintptr_t)l->param[0] = 1;
	}
}

static void measure(void)
{
	int64_t offset;

	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), 0);
}

static void the_list_of_contexts(void **state)
{
	assert_waits(&d->lock, place_a_marker, NULL);
	assert_waits(&d->lock, forget, NULL);
	script_on_launch = run_clock;
	assert_waits(&d->lock, measure, NULL); /* takes the context's resources, */
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	assert_waits(&d->lock, measure, "mode");   /* makes new ones, */
	assert_waits(&d->lock, measure, "launch"); /* and gives them back */
	script_on_launch = NULL;
}

static void first_run(void)
{
	gpu_run_set_flag(d, SCRIPT_CONTEXT(1), NULL, 0);
}

static void launch_one(void)
{
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
}

static void close_it(void)
{
	gpu_run_close(d, &q);
}

static void forget_runs(void)
{
	gpu_runs_forget(d, SCRIPT_CONTEXT(1));
}

static void prepare(void)
{
	gpu_run_prepare(d, &q);
}

static void the_memory_of_runs(void **state)
{
	assert_waits(&d->lock, first_run, NULL); /* makes it */
	assert_waits(&d->runs->lock, first_run, NULL);
	assert_waits(&d->runs->lock, forget_runs, NULL);
	assert_waits(&d->runs->lock, prepare, NULL);
	gpu_runs_forget(d, SCRIPT_CONTEXT(1));
	/* the lock is free during the allocation, and taken again */
	assert_waits(&d->runs->lock, prepare, "host");
	assert_waits(&d->runs->lock, launch_one, NULL);
	device_stores(1);
	assert_waits(&d->runs->lock, close_it, NULL);
}

static void step_it(void)
{
	(void)step(true, false);
}

static void record_it(void)
{
	uint64_t seq;

	assert_int_equal(gpu_run_record(d, &q, SCRIPT_EVENT(1), &seq), CUDA_SUCCESS);
}

static void one_run(void **state)
{
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_waits(&q.run->lock, launch_one, NULL);
	assert_waits(&q.run->lock, step_it, NULL);
	assert_waits(&q.run->lock, record_it, NULL);
}

/* Looking never waits, and sees what was launched meanwhile. */
static void a_look_does_not_wait(void **state)
{
	struct sched_run_progress p;

	assert_int_equal(launch(1u << 29, 0), CUDA_SUCCESS);
	assert_int_equal(launch(1, 0), CUDA_SUCCESS);
	lock_take(&q.run->lock);
	assert_int_equal(gpu_run_look(d, &q, &p), 0);
	assert_true(p.full);
	assert_int_equal(p.launched, 2);
	lock_release(&q.run->lock);
	device_stores(1);
	assert_int_equal(gpu_run_look(d, &q, &p), 0);
	assert_true(lock_try(&q.run->lock));
	lock_release(&q.run->lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(the_list_of_contexts),
		T(the_memory_of_runs),
		T(one_run),
		T(a_look_does_not_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
