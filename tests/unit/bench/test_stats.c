/* Quantiles and random numbers in C: the same as in test_stats.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/common/statistics.h"

static void test_quantiles_of_a_row(void **state)
{
	double v[101];

	for (int i = 0; i < 101; i++) {
		v[i] = 101 - i;
	}
	bench_stats_sort(v, 101);
	assert_true(bench_stats_quantile(v, 101, 0) == 1);
	assert_true(bench_stats_quantile(v, 101, 0.5) == 51);
	assert_true(bench_stats_quantile(v, 101, 0.99) == 100);
	assert_true(bench_stats_quantile(v, 101, 1) == 101);
	assert_true(bench_stats_quantile(v, 0, 0.5) == 0);
}

static void test_random_numbers(void **state)
{
	uint64_t seed = 1;

	assert_true(bench_stats_random(&seed) == UINT64_C(0x47e4ce4b896cdd1d));
	assert_true(bench_stats_random(&seed) == UINT64_C(0xabcfa6a8e079651d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantiles_of_a_row),
		cmocka_unit_test(test_random_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
