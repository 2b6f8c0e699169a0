/* Order statistics: benchmarks report quantiles, since means of times are at the mercy of the worst
 * interrupt. */
#include "bench/stats.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void stats_sort(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), compare);
}

double stats_quantile(const double *v, size_t n, double q)
{
	size_t i = (size_t)(q * (double)(n ? n - 1 : 0) + 0.5);

	return n ? v[i < n ? i : n - 1] : 0;
}
