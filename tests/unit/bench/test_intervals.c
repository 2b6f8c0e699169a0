/* Time that intervals cover together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "bench/copy/intervals.h"

static void nothing_covers_nothing(void **state)
{
	assert_int_equal(bench_copy_time_covered(NULL, 0), 0);
}

static void overlapping_time_counts_once(void **state)
{
	struct bench_copy_interval v[] = { { 100, 200 }, { 150, 250 }, { 160, 170 }, { 250, 260 } };

	assert_int_equal(bench_copy_time_covered(v, ARRAY_SIZE(v)), 160);
}

static void gaps_do_not_count(void **state)
{
	struct bench_copy_interval v[] = { { 500, 600 }, { 100, 200 } };

	assert_int_equal(bench_copy_time_covered(v, ARRAY_SIZE(v)), 200);
}

static void order_does_not_matter(void **state)
{
	struct bench_copy_interval v[] = { { 90, 95 }, { 10, 100 }, { 5, 20 }, { 99, 110 } };

	assert_int_equal(bench_copy_time_covered(v, ARRAY_SIZE(v)), 105);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_covers_nothing),
		cmocka_unit_test(overlapping_time_counts_once),
		cmocka_unit_test(gaps_do_not_count),
		cmocka_unit_test(order_does_not_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
