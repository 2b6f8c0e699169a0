/* A histogram in half octaves from 5 us of the last few hundred pauses. The bound of each bucket is
 * tried as the close delay: a shorter pause costs its own length, a longer one the bound and a
 * reopening. */
#include "sched/gap.h"

#include "base/atomic.h"
#include "base/compiler.h"

#define ENOUGH 256u

static const uint32_t bound_ns[SCHED_GAP_BUCKETS] = {
	5000,	7100,	10000,	14100,	20000,	28300,	40000,	56600,	 80000,
	113000, 160000, 226000, 320000, 453000, 640000, 905000, 1280000, SCHED_GAP_MAX_NS,
};

void sched_gaps_add(struct sched_gaps *g, uint64_t gap_ns)
{
	uint32_t i = 0, total = load_relaxed(&g->total) + 1;

	while (i < SCHED_GAP_BUCKETS && gap_ns > bound_ns[i]) {
		i++;
	}
	store_relaxed(&g->n[i], load_relaxed(&g->n[i]) + 1);
	if (total >= ENOUGH) { /* halve all buckets, so that old pauses lose weight */
		total = 0;
		for (i = 0; i <= SCHED_GAP_BUCKETS; i++) {
			uint32_t half = load_relaxed(&g->n[i]) / 2;

			store_relaxed(&g->n[i], half);
			total += half;
		}
	}
	store_relaxed(&g->total, total);
}

uint64_t sched_gaps_best(const struct sched_gaps *g, uint64_t reopen_ns)
{
	uint64_t longer = 0, shorter_ns = 0, best = 0, least;

	for (uint32_t i = 0; i <= SCHED_GAP_BUCKETS; i++) {
		longer += load_relaxed(&g->n[i]);
	}
	if (longer < SCHED_GAP_MIN) {
		return 0;
	}
	least = longer * reopen_ns;
	for (uint32_t i = 0; i < SCHED_GAP_BUCKETS; i++) {
		uint64_t n = load_relaxed(&g->n[i]), cost;

		longer -= MIN(n, longer);
		shorter_ns += n * bound_ns[i];
		cost = shorter_ns + longer * (bound_ns[i] + reopen_ns);
		if (n && cost < least) {
			least = cost;
			best = bound_ns[i];
		}
	}
	return best;
}
