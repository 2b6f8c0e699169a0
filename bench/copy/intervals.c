/* See intervals.h. */
#include "bench/copy/intervals.h"

#include <stdlib.h>

#include "base/compiler.h"

static int by_begin(const void *x, const void *y)
{
	const struct bench_copy_interval *a = x, *b = y;

	return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

uint64_t bench_copy_time_covered(struct bench_copy_interval *v, size_t n)
{
	uint64_t covered = 0, until = 0;

	if (n) { /* v may be NULL, which qsort does not take */
		qsort(v, n, sizeof(*v), by_begin);
	}
	for (size_t i = 0; i < n; i++) {
		if (v[i].end_ns > until) {
			covered += v[i].end_ns - MAX(v[i].begin_ns, until);
			until = v[i].end_ns;
		}
	}
	return covered;
}
