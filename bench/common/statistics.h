/* Quantiles and random numbers that measuring needs. bench/report/stats.py has the same, and the
 * intervals. */
#ifndef GBPF_BENCH_COMMON_STATISTICS_H
#define GBPF_BENCH_COMMON_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Sorts v. */
void bench_stats_sort(double *v, size_t n);
/* Returns quantile q (0 to 1) of sorted values; 0 if there are none. */
double bench_stats_quantile(const double *v, size_t n, double q);

/* xorshift64*: the same numbers on every machine. state is not 0. */
uint64_t bench_stats_random(uint64_t *state);

#endif
