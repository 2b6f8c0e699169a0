/* Order statistics of measurements, and their confidence intervals. */
#ifndef GBPF_BENCH_COMMON_STATISTICS_H
#define GBPF_BENCH_COMMON_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sorts v. */
void bench_stats_sort(double *v, size_t n);
/* Returns quantile q (0 to 1) of sorted values; 0 if there are none. */
double bench_stats_quantile(const double *v, size_t n, double q);

struct bench_stats_range {
	double low, high;
};

/* Computes the interval that contains the quantile of the population with at least that confidence,
 * whatever its distribution (order statistics: ranks from the binomial distribution), for
 * independent values. v is sorted. Returns false if n values cannot bound a side: that side is then
 * the smallest or largest value. */
bool bench_stats_quantile_interval(const double *v, size_t n, double q, double confidence,
				   struct bench_stats_range *ret);

double bench_stats_mean(const double *v, size_t n);
/* Returns the variance of the sample (n - 1); 0 below two values. */
double bench_stats_variance(const double *v, size_t n);
struct bench_stats_range bench_stats_extremes(const double *v, size_t n);

/* Percentile bootstrap of the mean: the interval of the means of 4000 samples with replacement,
 * from a fixed seed. For few repeats, each of which is one value. */
struct bench_stats_range bench_stats_bootstrap_mean(const double *v, size_t n, double confidence);

/* Percentile bootstrap of the ratio of two sums; n pairs are drawn together. */
struct bench_stats_range bench_stats_bootstrap_ratio(const double *over, const double *under,
						     size_t n, double confidence);

/* xorshift64*: the same numbers on every machine. state is not 0. */
uint64_t bench_stats_random(uint64_t *state);

#endif
