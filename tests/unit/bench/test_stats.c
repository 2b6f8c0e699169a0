/* Order statistics and intervals against known answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "bench/common/statistics.h"

static void count_up(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		v[i] = (double)(i + 1);
	}
}

static void test_quantiles_of_a_row(void **state)
{
	double v[101];

	count_up(v, 101);
	assert_true(bench_stats_quantile(v, 101, 0) == 1);
	assert_true(bench_stats_quantile(v, 101, 0.5) == 51);
	assert_true(bench_stats_quantile(v, 101, 0.99) == 100);
	assert_true(bench_stats_quantile(v, 101, 1) == 101);
	assert_true(bench_stats_quantile(v, 0, 0.5) == 0);
}

/* Ranks of the classical 95 % interval of a median: 10 values: 2 and 9; 25: 8 and 18; 100: 40 and
 * 61 (Conover, Practical Nonparametric Statistics, table of the sign test). */
static void test_interval_of_a_median(void **state)
{
	static const struct {
		size_t n;
		double low, high;
	} known[] = { { 10, 2, 9 }, { 25, 8, 18 }, { 100, 40, 61 } };
	double v[100];
	struct bench_stats_range r;

	count_up(v, 100);
	for (size_t i = 0; i < 3; i++) {
		assert_true(bench_stats_quantile_interval(v, known[i].n, 0.5, 0.95, &r));
		assert_true(r.low == known[i].low);
		assert_true(r.high == known[i].high);
	}
}

static void test_too_few_values_say_so(void **state)
{
	double v[100];
	struct bench_stats_range r;

	count_up(v, 100);
	assert_false(bench_stats_quantile_interval(v, 5, 0.5, 0.95, &r));
	assert_true(r.low == 1 && r.high == 5);
	assert_false(bench_stats_quantile_interval(v, 100, 0.99, 0.95, &r));
	assert_true(r.high == 100); /* 63 % of samples of 100 reach their P99 at all */
	assert_true(r.low >= 96 && r.low <= 97);
	assert_false(bench_stats_quantile_interval(v, 0, 0.5, 0.95, &r));
}

/* In 400 samples of 200 the interval of P90 holds it in at least 95 %, about. */
static void test_interval_covers(void **state)
{
	uint64_t seed = 7;
	unsigned held = 0;

	for (unsigned k = 0; k < 400; k++) {
		double v[200];
		struct bench_stats_range r;

		for (unsigned i = 0; i < 200; i++) {
			v[i] = (double)(bench_stats_random(&seed) >> 40) / 16777216.0;
		}
		bench_stats_sort(v, 200);
		assert_true(bench_stats_quantile_interval(v, 200, 0.9, 0.95, &r));
		held += r.low <= 0.9 && r.high >= 0.9;
		assert_true(r.high - r.low < 0.15); /* and is not merely wide */
	}
	assert_in_range(held, 376, 400);
}

static void test_many_values(void **state)
{
	size_t n = 100000;
	double *v = malloc(n * sizeof(*v));
	struct bench_stats_range r;

	assert_non_null(v);
	count_up(v, n);
	assert_true(bench_stats_quantile_interval(v, n, 0.999, 0.95, &r));
	/* 99900 +- 1.96 * sqrt(n * 0.999 * 0.001) = 19.6 */
	assert_true(fabs(r.low - 99880.4) < 3 && fabs(r.high - 99919.6) < 3);
	free(v);
}

static void test_variance(void **state)
{
	const double v[] = { 2, 4, 4, 4, 5, 5, 7, 9 };

	assert_true(bench_stats_mean(v, 8) == 5);
	assert_true(fabs(bench_stats_variance(v, 8) - 32.0 / 7) < 1e-12);
	assert_true(bench_stats_variance(v, 1) == 0);
}

static void test_extremes(void **state)
{
	const double v[] = { 3, 1, 2 };
	struct bench_stats_range r = bench_stats_extremes(v, 3);

	assert_true(r.low == 1 && r.high == 3);
}

/* Means of two values drawn from { 0, 1 }: 0, 1/2, 1 with 1/4, 1/2, 1/4. */
static void test_bootstrap(void **state)
{
	const double two[] = { 0, 1 }, same[] = { 3, 3, 3 };
	const double over[] = { 10, 30 }, under[] = { 20, 60 };
	struct bench_stats_range r = bench_stats_bootstrap_mean(two, 2, 0.95);

	assert_true(r.low == 0 && r.high == 1);
	r = bench_stats_bootstrap_mean(two, 2, 0.4); /* tails of 30 %: both ends are 1/2 */
	assert_true(r.low == 0.5 && r.high == 0.5);
	r = bench_stats_bootstrap_mean(same, 3, 0.95);
	assert_true(r.low == 3 && r.high == 3);
	r = bench_stats_bootstrap_ratio(over, under, 2, 0.95);
	assert_true(r.low == 0.5 && r.high == 0.5);
	r = bench_stats_bootstrap_mean(two, 0, 0.95);
	assert_true(r.low == 0 && r.high == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantiles_of_a_row),
		cmocka_unit_test(test_interval_of_a_median),
		cmocka_unit_test(test_too_few_values_say_so),
		cmocka_unit_test(test_interval_covers),
		cmocka_unit_test(test_many_values),
		cmocka_unit_test(test_variance),
		cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_bootstrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
