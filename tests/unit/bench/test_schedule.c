/* The loads of DISB: slots, drops, traces, offsets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "bench/disb/disb.h"
#include "bench/common/schedule.h"

#define MS UINT64_C(1000000)

static void test_periodic_slots(void **state)
{
	struct bench_schedule s;

	bench_schedule_init(&s, SCHEDULE_PERIODIC, 100, 0, 1000 * MS, 3 * MS, 1);
	assert_int_equal(bench_schedule_next(&s, 0), 1003 * MS);
	assert_int_equal(bench_schedule_next(&s, 1004 * MS), 1013 * MS);
	assert_int_equal(s.dropped, 0);
}

/* Ready at 25 ms: slots 10 and 20 have passed; the newer begins at once, the older is dropped. */
static void test_freshest_wins(void **state)
{
	struct bench_schedule s;

	bench_schedule_init(&s, SCHEDULE_PERIODIC, 100, 0, 0, 0, 1);
	assert_int_equal(bench_schedule_next(&s, 0), 0);
	assert_int_equal(bench_schedule_next(&s, 25 * MS), 25 * MS);
	assert_int_equal(s.dropped, 1);
	assert_int_equal(bench_schedule_next(&s, 26 * MS), 30 * MS);
	assert_int_equal(bench_schedule_next(&s, 99 * MS), 99 * MS);
	assert_int_equal(s.dropped, 1 + 5);
	assert_int_equal(bench_schedule_next(&s, 99 * MS), 100 * MS);
}

/* What was due before the end and never begun is dropped too. */
static void test_the_end_drops_what_is_left(void **state)
{
	struct bench_schedule s;

	bench_schedule_init(&s, SCHEDULE_PERIODIC, 100, 0, 0, 0, 1);
	assert_int_equal(bench_schedule_next_before(&s, 0, 55 * MS), 0);
	assert_true(bench_schedule_next_before(&s, 55 * MS, 55 * MS) == UINT64_MAX);
	assert_int_equal(s.dropped, 5); /* 10 20 30 40 50 */
	bench_schedule_init(&s, SCHEDULE_PERIODIC, 100, 0, 0, 0, 1);
	for (uint64_t at = 0; at < 50 * MS; at += 10 * MS) {
		assert_int_equal(bench_schedule_next_before(&s, at, 50 * MS), at);
	}
	assert_true(bench_schedule_next_before(&s, 41 * MS, 50 * MS) == UINT64_MAX);
	assert_int_equal(s.dropped, 0); /* 50 is the end */
	bench_schedule_init(&s, SCHEDULE_CLOSED, 0, 0, 0, 0, 1);
	assert_int_equal(bench_schedule_next_before(&s, 54 * MS, 55 * MS), 54 * MS);
	assert_true(bench_schedule_next_before(&s, 55 * MS, 55 * MS) == UINT64_MAX);
	assert_int_equal(s.dropped, 0);
}

/* The last request took until long after the end: what would have begun then is nobody's loss. */
static void test_nothing_is_dropped_after_the_end(void **state)
{
	struct bench_schedule s;

	bench_schedule_init(&s, SCHEDULE_PERIODIC, 100, 0, 0, 0, 1);
	assert_int_equal(bench_schedule_next_before(&s, 31 * MS, 50 * MS), 31 * MS);
	assert_int_equal(s.dropped, 3); /* 0 10 20 */
	assert_true(bench_schedule_next_before(&s, 300 * MS, 50 * MS) == UINT64_MAX);
	assert_int_equal(s.dropped, 3 + 1); /* 40 */
}

static void test_closed_loop_is_ready_at_once(void **state)
{
	struct bench_schedule s;

	bench_schedule_init(&s, SCHEDULE_CLOSED, 0, 0, 50 * MS, 0, 1);
	assert_int_equal(bench_schedule_next(&s, 10 * MS), 50 * MS);
	assert_int_equal(bench_schedule_next(&s, 77 * MS), 77 * MS);
	assert_int_equal(s.dropped, 0);
}

static void test_poisson_has_its_rate_and_whole_microseconds(void **state)
{
	struct bench_schedule s, again;
	uint64_t at = 0;

	bench_schedule_init(&s, SCHEDULE_POISSON, 200, 0, 0, 0, 42);
	bench_schedule_init(&again, SCHEDULE_POISSON, 200, 0, 0, 0, 42);
	for (unsigned i = 0; i < 20000; i++) {
		at = bench_schedule_next(&s, 0);
		assert_int_equal(at % 1000, 0);
		assert_int_equal(at, bench_schedule_next(&again, 0));
	}
	assert_true(fabs((double)at * 1e-9 - 100) < 3); /* 4 deviations */
}

static void check_trace(unsigned which, unsigned n, double first, double last, double slack)
{
	struct bench_schedule s;
	uint64_t at = 0, before = 0;
	unsigned seen = 0;

	bench_schedule_init(&s, SCHEDULE_TRACE, 0, which, 0, 0, 1);
	while ((at = bench_schedule_next(&s, before)) != UINT64_MAX) {
		assert_true(at >= before);
		if (!seen) {
			assert_true((double)at * 1e-6 == first);
		}
		before = at;
		seen++;
	}
	assert_int_equal(seen + s.dropped, n);
	assert_true(fabs((double)before * 1e-6 - last) < slack);
	assert_int_equal(bench_schedule_next(&s, 0), UINT64_MAX);
}

/* Number, first and last of the published traces. */
static void test_traces_have_the_published_shape(void **state)
{
	check_trace(0, 375, 0, 38792, 1000);
	check_trace(1, 202, 120, 38885, 2000);
	check_trace(2, 560, 9, 29259, 200);
	check_trace(3, 374, 0, 38589, 2000);
	check_trace(4, 173, 240, 38776, 4000);
}

static void test_workloads(void **state)
{
	struct bench_disb_workload w;
	unsigned rt = 0;

	assert_int_equal(bench_disb_workload("nosuch", false, &w), -1);
	for (unsigned i = 0; i < DISB_WORKLOADS; i++) {
		assert_int_equal(bench_disb_workload(disb_names[i], false, &w), 0);
		assert_true(w.tasks >= 2 && w.tasks <= DISB_TASKS && w.task[0].rt);
	}
	bench_disb_workload("D", false, &w);
	for (unsigned i = 0; i < w.tasks; i++) {
		rt += w.task[i].rt;
		assert_int_equal(w.task[i].load,
				 w.task[i].rt ? SCHEDULE_PERIODIC : SCHEDULE_CLOSED);
	}
	assert_true(rt == 5 && w.tasks == 10);
	bench_disb_workload("A", true, &w);
	assert_int_equal(w.task[1].load, SCHEDULE_PERIODIC);
}

static void test_offsets(void **state)
{
	const double alone[DISB_MODELS] = { 4, 7, 3, 2, 1, 0, 0 }; /* R152 D201 V19 I3 DB */
	uint64_t at[DISB_TASKS];
	struct bench_disb_workload w;

	bench_disb_workload("D", false, &w); /* by name: D201 DB I3 R152 V19 */
	bench_disb_offsets(&w, alone, at);
	assert_int_equal(at[0], 10 * MS); /* R152 after D201, DB, I3 */
	assert_int_equal(at[1], 0);
	assert_int_equal(at[2], 14 * MS);
	assert_int_equal(at[3], 8 * MS);
	assert_int_equal(at[4], 7 * MS);
	for (unsigned i = 5; i < 10; i++) {
		assert_int_equal(at[i], 0);
	}
	bench_disb_workload("A", true, &w); /* GPreempt's: V19 begins when R152 has ended */
	bench_disb_offsets(&w, alone, at);
	assert_int_equal(at[0], 4 * MS);
	assert_int_equal(at[1], 0);
	bench_disb_workload("A", false, &w);
	bench_disb_offsets(&w, alone, at);
	assert_int_equal(at[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_periodic_slots),
		cmocka_unit_test(test_freshest_wins),
		cmocka_unit_test(test_the_end_drops_what_is_left),
		cmocka_unit_test(test_nothing_is_dropped_after_the_end),
		cmocka_unit_test(test_closed_loop_is_ready_at_once),
		cmocka_unit_test(test_poisson_has_its_rate_and_whole_microseconds),
		cmocka_unit_test(test_traces_have_the_published_shape),
		cmocka_unit_test(test_workloads),
		cmocka_unit_test(test_offsets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
