/* Intervals of time, which may overlap. */
#ifndef GBPF_BENCH_COPY_INTERVALS_H
#define GBPF_BENCH_COPY_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

struct bench_copy_interval {
	uint64_t begin_ns, end_ns;
};

/* Sorts the intervals. Returns how long at least one of them lasted. */
uint64_t bench_copy_time_covered(struct bench_copy_interval *v, size_t n);

#endif
