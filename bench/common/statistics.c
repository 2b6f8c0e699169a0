/* Order statistics: benchmarks report quantiles, because a single slow interrupt distorts the mean
 * of times. */
#include "bench/common/statistics.h"

#include <math.h>
#include <stdlib.h>

#define RESAMPLES 4000u
#define SEED 0x9e3779b97f4a7c15ull

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_stats_sort(double *v, size_t n)
{
	if (n) {
		qsort(v, n, sizeof(*v), compare);
	}
}

double bench_stats_quantile(const double *v, size_t n, double q)
{
	size_t i = (size_t)(q * (double)(n ? n - 1 : 0) + 0.5);

	return n ? v[i < n ? i : n - 1] : 0;
}

/* Returns the probability of k successes out of n. */
static double binomial(size_t n, size_t k, double p)
{
	double a = (double)n, b = (double)k;

	return exp(lgamma(a + 1) - lgamma(b + 1) - lgamma(a - b + 1) + b * log(p) +
		   (a - b) * log1p(-p));
}

/* With X values below the quantile, X binomial: v[k] <= quantile unless X <= k, so the lower end is
 * the largest k with P(X <= k) <= tail, and the upper end the smallest k with P(X >= k) <= tail. */
bool bench_stats_quantile_interval(const double *v, size_t n, double q, double confidence,
				   struct bench_stats_range *ret)
{
	double tail = (1 - confidence) / 2, sum = 0;
	size_t k = 0;
	bool low, high;

	*ret = (struct bench_stats_range){ 0, 0 };
	if (n == 0 || !(q > 0 && q < 1)) {
		return false;
	}
	while (k < n && sum + binomial(n, k, q) <= tail) {
		sum += binomial(n, k++, q);
	}
	low = k > 0;
	ret->low = v[low ? k - 1 : 0];
	sum = 0;
	k = n;
	while (k > 0 && sum + binomial(n, k, q) <= tail) {
		sum += binomial(n, k--, q);
	}
	high = k < n;
	ret->high = v[high ? k : n - 1];
	return low && high;
}

double bench_stats_mean(const double *v, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		sum += v[i];
	}
	return n ? sum / (double)n : 0;
}

double bench_stats_variance(const double *v, size_t n)
{
	double mean = bench_stats_mean(v, n), sum = 0;

	for (size_t i = 0; i < n; i++) {
		sum += (v[i] - mean) * (v[i] - mean);
	}
	return n > 1 ? sum / (double)(n - 1) : 0;
}

struct bench_stats_range bench_stats_extremes(const double *v, size_t n)
{
	struct bench_stats_range r = { n ? v[0] : 0, n ? v[0] : 0 };

	for (size_t i = 1; i < n; i++) {
		r.low = v[i] < r.low ? v[i] : r.low;
		r.high = v[i] > r.high ? v[i] : r.high;
	}
	return r;
}

uint64_t bench_stats_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}

struct bench_stats_range bench_stats_bootstrap_ratio(const double *over, const double *under,
						     size_t n, double confidence)
{
	static double value[RESAMPLES];
	double tail = (1 - confidence) / 2;
	uint64_t seed = SEED;

	if (n == 0) {
		return (struct bench_stats_range){ 0, 0 };
	}
	for (size_t k = 0; k < RESAMPLES; k++) {
		double a = 0, b = 0;

		for (size_t i = 0; i < n; i++) {
			size_t at = (size_t)((bench_stats_random(&seed) >> 33) % n);

			a += over[at];
			b += under ? under[at] : 1;
		}
		value[k] = b != 0 ? a / b : 0;
	}
	bench_stats_sort(value, RESAMPLES);
	return (struct bench_stats_range){ bench_stats_quantile(value, RESAMPLES, tail),
					   bench_stats_quantile(value, RESAMPLES, 1 - tail) };
}

struct bench_stats_range bench_stats_bootstrap_mean(const double *v, size_t n, double confidence)
{
	return bench_stats_bootstrap_ratio(v, NULL, n, confidence);
}
