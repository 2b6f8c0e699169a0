/* Quantiles and random numbers that measuring needs; see statistics.h. */
#include "bench/common/statistics.h"

#include <stdlib.h>

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

uint64_t bench_stats_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}
