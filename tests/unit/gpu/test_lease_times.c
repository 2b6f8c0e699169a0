/* When the GPU's clock is measured for leases, the kernel that warms a context up, and the lock
 * that both need. */
#include "clock_rig.h"

#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "gpu/flag_lease.h"
#include "gpu/cuda/flag_lease_int.h"
#include "proto/pages.h"

/* ---- when it is measured ---- */

static uint64_t look(uint64_t now)
{
	runs = 0;
	script_log[0] = 0;
	return gpu_lease_measure_clocks(d, now);
}

static void only_gpus_with_pages_or_leases_are_measured(void **state)
{
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	assert_true(look(S) == NEVER);
	assert_int_equal(runs, 0);
	assert_int_equal(gpu_lease_add(d, 9, fd, 1, 3), 0);
	assert_true(look(S) == S); /* GPU 1 has a page and no context; asked again each second */
	assert_int_equal(runs, 0);
	gpu_lease_context(d, 1, SCRIPT_CONTEXT(2));
	assert_int_equal(look(S), 30 * S);
	assert_int_equal(runs, 8);
	assert_int_equal(look(31 * S - 1), 1);
	assert_int_equal(runs, 0);
	assert_int_equal(look(31 * S), 30 * S);
	assert_int_equal(runs, 8);
	gpu_lease_remove(d, 9);
	assert_true(look(100 * S) == NEVER);
	gpu_lease(d, 0, 0); /* GPU 0 is wanted from now on */
	assert_int_equal(look(100 * S), 30 * S);
	assert_int_equal(runs, 8);
	gpu_lease_context(d, PROTO_MAX_GPUS, SCRIPT_CONTEXT(3)); /* no effect */
	gpu_lease_context(d, 2, NULL);
	assert_int_equal(runs, 8);
}

static void failures_are_repeated_ever_more_rarely(void **state)
{
	static const uint64_t waits[] = { 1, 2, 4, 8, 16, 30, 30 };
	uint64_t now = 10 * S;

	gpu_lease(d, 0, 0);
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		script_fail("push", CUDA_ERROR_UNKNOWN, 0);
		assert_int_equal(look(now), waits[i] * S);
		assert_int_equal(look(now + 1), waits[i] * S - 1);
		now += waits[i] * S;
	}
	assert_int_equal(look(now), 30 * S);
	assert_int_equal(runs, 8);
	now += 30 * S;
	script_fail("push", CUDA_ERROR_UNKNOWN, 0);
	assert_int_equal(look(now), S); /* from the beginning */
	assert_int_equal(runs, 0);
}

/* While a lease is up it waits, up to ten minutes; the first measurement waits only if no page
 * needs it. */
static void open_requests_are_not_disturbed(void **state)
{
	gpu_lease(d, 0, 2000 * S);
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	assert_int_equal(look(10 * S), S);
	assert_int_equal(runs, 0);
	assert_int_equal(gpu_lease_add(d, 0, fd, 0, 3), 0);
	assert_int_equal(word[3], 0);
	assert_int_equal(look(10 * S), 30 * S);
	assert_int_equal(runs, 8);
	assert_int_equal(word[3], gpu_lease_word(gpu_ahead - 200, 2000 * S)); /* raised now */
	assert_int_equal(look(40 * S), S);
	assert_int_equal(look(610 * S), S);
	assert_int_equal(runs, 0);
	assert_int_equal(look(610 * S + 1), 30 * S);
	assert_int_equal(runs, 8);
	gpu_lease(d, 0, 0);
	assert_int_equal(look(641 * S), 30 * S);
	assert_int_equal(runs, 8);
	/* a page of another GPU does not need this one's clock */
	gpu_lease(d, 2, 2000 * S);
	gpu_lease_context(d, 2, SCRIPT_CONTEXT(2));
	assert_int_equal(gpu_lease_add(d, 1, fd, 1, 4), 0);
	(void)look(641 * S + 1);
	assert_int_equal(runs, 0);
}

static void another_context_takes_over(void **state)
{
	gpu_lease(d, 0, 0);
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(2)); /* the first one stays */
	assert_int_equal(look(S), 30 * S);
	assert_memory_equal(script_log, "push 1", 6);
	gpu_context_forget(d, SCRIPT_CONTEXT(2));
	assert_int_equal(look(31 * S), 30 * S);
	assert_memory_equal(script_log, "push 1", 6);
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	assert_int_equal(look(61 * S), S);
	assert_int_equal(runs, 0);
	assert_int_equal(look(32 * S), 29 * S);
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(2)); /* is measured at once */
	assert_int_equal(look(32 * S), 30 * S);
	assert_memory_equal(script_log, "push 2", 6);
	assert_int_equal(runs, 8);
}

/* ---- the warm kernel ---- */

static void a_measurement_loads_the_warm_kernel(void **state)
{
	gpu_lease(d, 0, 0);
	gpu_warm(d, 0); /* no context */
	gpu_warm(d, PROTO_MAX_GPUS);
	SCRIPT_SAID("");
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	(void)look(S);
	assert_non_null(strstr(script_log, " pop push 1 load gbpf_warm stream 2 pop"));
	assert_null(strstr(script_log, "1:2"));
	script_log[0] = 0;
	gpu_warm(d, 0);
	SCRIPT_SAID("push 1 launch 4000 1:2 pop");
	script_query[2] = CUDA_ERROR_NOT_READY; /* the last one has not run yet */
	gpu_warm(d, 0);
	SCRIPT_SAID("push 1 pop");
	script_query[2] = CUDA_SUCCESS;
	script_fail("push", CUDA_ERROR_UNKNOWN, 0);
	gpu_warm(d, 0);
	SCRIPT_SAID("push!");
	gpu_warm(d, 0);
	SCRIPT_SAID("push 1 launch 4000 1:2 pop");
	(void)look(31 * S); /* is loaded once */
	assert_null(strstr(script_log, "load"));
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	script_log[0] = 0;
	gpu_warm(d, 0);
	SCRIPT_SAID("");
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(2)); /* its own kernel and stream */
	gpu_warm(d, 0);
	SCRIPT_SAID("push 2 load gbpf_warm stream 3 launch 4000 1:3 pop");
}

static void a_refused_warm_kernel_is_not_tried_again(void **state)
{
	static const char *const calls[] = { "load", "function", "stream" };

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct gpu_warm_kernel w = { 0 };

		script_fail(calls[i], CUDA_ERROR_NOT_SUPPORTED, 0);
		gpu_warm_launch(d, SCRIPT_CONTEXT(1), &w);
		assert_true(w.refused);
		script_log[0] = 0;
		gpu_warm_launch(d, SCRIPT_CONTEXT(1), &w);
		gpu_warm_prepare(d, SCRIPT_CONTEXT(1), &w);
		SCRIPT_SAID("");
		w = (struct gpu_warm_kernel){ 0 };
		script_fail("push", CUDA_ERROR_UNKNOWN, 0);
		gpu_warm_prepare(d, SCRIPT_CONTEXT(1), &w);
		SCRIPT_SAID("push!");
		assert_false(w.refused);
		assert_null(w.f);
	}
}

/* ---- locks ---- */

static void *use_everything(void *arg)
{
	gpu_lease_context(d, 3, SCRIPT_CONTEXT(4));
	gpu_warm(d, 3);
	gpu_leases_forget(d, SCRIPT_CONTEXT(4));
	return arg;
}

/* Whatever a thread does, it leaves the lock free for the next. */
static void locks_are_left(void **state)
{
	pthread_t t;

	gpu_lease(d, 0, 0);
	gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
	(void)look(S);
	script_fail("push", CUDA_ERROR_UNKNOWN, 0);
	(void)look(32 * S);
	gpu_warm(d, 0);
	gpu_warm(d, 1);
	gpu_leases_forget(d, SCRIPT_CONTEXT(1));
	assert_int_equal(pthread_create(&t, NULL, use_everything, NULL), 0);
	pthread_join(t, NULL);
}

/* The lock is held over calls into the context, which must not end meanwhile. */
static pthread_t other;
static uint32_t forgotten;

static void *forget(void *arg)
{
	gpu_leases_forget(d, SCRIPT_CONTEXT(1));
	store_release(&forgotten, 1u);
	return arg;
}

static void forget_meanwhile(const struct script_launch *l)
{
	if (!other) {
		assert_int_equal(pthread_create(&other, NULL, forget, NULL), 0);
		for (int i = 0; i < 100; i++) {
			sched_yield(); /* an occasion to do it too early */
		}
	}
	assert_int_equal(load_acquire(&forgotten), 0);
	run_kernel(l);
}

static void a_context_does_not_end_during_calls_into_it(void **state)
{
	for (unsigned warm = 0; warm < 2; warm++) {
		other = 0;
		forgotten = 0;
		gpu_lease_context(d, 0, SCRIPT_CONTEXT(1));
		gpu_lease(d, 0, 0);
		script_on_launch = forget_meanwhile;
		if (warm) {
			gpu_warm(d, 0);
		} else {
			(void)look(S);
		}
		pthread_join(other, NULL);
		assert_int_equal(forgotten, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(only_gpus_with_pages_or_leases_are_measured),
		T(failures_are_repeated_ever_more_rarely),
		T(open_requests_are_not_disturbed),
		T(another_context_takes_over),
		T(a_measurement_loads_the_warm_kernel),
		T(a_refused_warm_kernel_is_not_tried_again),
		T(locks_are_left),
		T(a_context_does_not_end_during_calls_into_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
