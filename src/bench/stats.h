/* Order statistics of measurements. */
#ifndef GBPF_BENCH_STATS_H
#define GBPF_BENCH_STATS_H

#include <stddef.h>

/* Sorts v. */
void stats_sort(double *v, size_t n);
/* Of sorted values; q from 0 to 1; 0 when there are none. */
double stats_quantile(const double *v, size_t n, double q);

#endif
