/* The direct plan where its times change, where a thread is cancelled, and where the device's bytes
 * look like those of one that has gone. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mem/direct.h"

#define BASE ((uint64_t)1 << 40)

static unsigned char *memory;
static bool cancels; /* opening a window is a cancellation point */
static unsigned opened;

static int open_window(void *dev, uint64_t address, struct mem_window *ret)
{
	(void)dev;
	(void)address;
	if (cancels) {
		pthread_testcancel();
	}
	opened++;
	*ret = (struct mem_window){ .base = BASE, .bytes = MEM_WINDOW_BYTES, .at = memory };
	return 0;
}

static void close_window(void *dev, struct mem_window *w)
{
	(void)dev;
	(void)w;
}

static const struct mem_window_ops ops = { open_window, close_window };
static struct mem_direct d;

static int begin(void **state)
{
	(void)state;
	memory = aligned_alloc(4096, MEM_WINDOW_BYTES);
	mem_direct_init(&d, &ops, NULL);
	cancels = false;
	opened = 0;
	return memory ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	mem_direct_finish(&d);
	free(memory);
	return 0;
}

/* ---- times ---- */

static void measure(enum mem_direct_kind kind, bool by_plan, uint64_t ns)
{
	for (unsigned i = 0; i < MEM_DIRECT_TIMES; i++) {
		assert_true(mem_direct_wants_time(&d, MEM_COPY_UP, kind, 8, by_plan));
		mem_direct_took(&d, MEM_COPY_UP, kind, 8, by_plan, ns);
	}
	assert_false(mem_direct_wants_time(&d, MEM_COPY_UP, kind, 8, by_plan));
}

static bool pays(enum mem_direct_kind kind)
{
	return mem_direct_pays(&d, MEM_COPY_UP, kind, 8);
}

/* A window that is there before the first copy of a size: only the plan would be timed. */
static void the_driver_is_tried_if_only_the_plan_is_known(void **state)
{
	(void)state;
	assert_true(pays(MEM_DIRECT_ASYNC));
	measure(MEM_DIRECT_ASYNC, true, 300);
	assert_false(pays(MEM_DIRECT_ASYNC));
	measure(MEM_DIRECT_ASYNC, false, 320);
	assert_true(pays(MEM_DIRECT_ASYNC));
	/* But not for ever, if its times cannot be told. */
	measure(MEM_DIRECT_BLOCKING, true, 300);
	for (unsigned i = 0; i < MEM_DIRECT_UNTIMED_MAX; i++) {
		assert_false(pays(MEM_DIRECT_BLOCKING));
		mem_direct_took(&d, MEM_COPY_UP, MEM_DIRECT_BLOCKING, 8, false, MEM_DIRECT_UNTIMED);
	}
	assert_true(pays(MEM_DIRECT_BLOCKING));
}

static void a_plan_that_does_not_pay_is_refused_again(void **state)
{
	(void)state;
	measure(MEM_DIRECT_ASYNC, true, 300);
	measure(MEM_DIRECT_ASYNC, false, 200);
	for (unsigned again = 0; again < 3; again++) {
		for (unsigned i = 0; i < MEM_DIRECT_RETRY; i++) {
			assert_false(pays(MEM_DIRECT_ASYNC));
		}
		assert_true(pays(MEM_DIRECT_ASYNC));
		measure(MEM_DIRECT_ASYNC, true, 300);
		assert_false(pays(MEM_DIRECT_ASYNC));
		measure(MEM_DIRECT_ASYNC, false, 200);
	}
}

static void page_locked_memory_is_timed_apart(void **state)
{
	const enum mem_direct_kind locked[] = { MEM_DIRECT_ASYNC + MEM_DIRECT_PINNED,
						MEM_DIRECT_BLOCKING + MEM_DIRECT_PINNED };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		enum mem_direct_kind pageable = (enum mem_direct_kind)i;

		measure(pageable, true, 300);
		measure(pageable, false, 900);
		measure(locked[i], true, 300);
		measure(locked[i], false, 200);
		assert_true(pays(pageable));
		assert_false(pays(locked[i]));
	}
}

/* ---- the device's bytes ---- */

static void open_by_copies(void)
{
	for (unsigned i = 0; i <= MEM_WINDOW_HITS + 1 && !opened; i++) {
		if (mem_direct_find(&d, BASE, 8, false) == MEM_DIRECT_OPEN) {
			mem_direct_open(&d, BASE, true);
		}
	}
	assert_int_equal(opened, 1);
}

static unsigned loads(unsigned copies)
{
	unsigned n = 0;

	for (unsigned i = 0; i < copies; i++) {
		unsigned char host[16] = { 0 };

		n += mem_direct_down(&d, host, BASE, sizeof(host));
	}
	return n;
}

/* Memory that holds all ones for long is not read twice by every copy. */
static void all_ones_are_left_to_the_driver_for_some_copies(void **state)
{
	(void)state;
	open_by_copies();
	memset(memory, 0xff, 16);
	assert_int_equal(loads(200), 0);
	memset(memory, 1, 16);
	assert_in_range(loads(128), 64, 127); /* the last ones are forgotten after at most 64 */
	assert_int_equal(loads(100), 100);
	memset(memory, 0xff, 16);
	assert_int_equal(loads(1), 0);
	memset(memory, 1, 16);
	assert_int_equal(loads(1), 0);
	assert_int_equal(loads(100), 100);
}

/* ---- a thread that is cancelled ---- */

static void *open_in_thread(void *unused)
{
	assert_int_equal(pthread_cancel(pthread_self()), 0); /* at the next cancellation point */
	open_by_copies();
	for (;;) {
		pthread_testcancel();
	}
	return unused;
}

static void a_thread_that_is_cancelled_leaves_no_lock(void **state)
{
	pthread_t t;

	(void)state;
	cancels = true;
	assert_int_equal(pthread_create(&t, NULL, open_in_thread, NULL), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	mem_direct_gone(&d, BASE, MEM_WINDOW_BYTES);
	assert_int_not_equal(mem_direct_find(&d, BASE, 8, false), MEM_DIRECT_YES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_driver_is_tried_if_only_the_plan_is_known,
						begin, end),
		cmocka_unit_test_setup_teardown(a_plan_that_does_not_pay_is_refused_again, begin,
						end),
		cmocka_unit_test_setup_teardown(page_locked_memory_is_timed_apart, begin, end),
		cmocka_unit_test_setup_teardown(all_ones_are_left_to_the_driver_for_some_copies,
						begin, end),
		cmocka_unit_test_setup_teardown(a_thread_that_is_cancelled_leaves_no_lock, begin,
						end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
