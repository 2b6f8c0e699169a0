/* The period is the median of the last gaps, which one missed or extra request does not move. There
 * is one if three quarters of the gaps are near it. */
#include "sched/rhythm.h"

#include "base/compiler.h"

void sched_rhythm_add(struct sched_rhythm_log *r, uint64_t opened_ns)
{
	uint64_t gap = opened_ns > r->last_ns ? opened_ns - r->last_ns : 0;

	if (r->last_ns && gap > SCHED_RHYTHM_MAX_NS) {
		r->n = r->at = 0;
	} else if (r->last_ns && gap) {
		r->gap_ns[r->at] = gap;
		r->at = (r->at + 1) % SCHED_RHYTHM_GAPS;
		r->n = MIN(r->n + 1, SCHED_RHYTHM_GAPS);
	}
	r->last_ns = opened_ns;
}

static uint64_t median(const struct sched_rhythm_log *r)
{
	uint64_t sorted[SCHED_RHYTHM_GAPS];

	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t k = i;

		for (; k && sorted[k - 1] > r->gap_ns[i]; k--) {
			sorted[k] = sorted[k - 1];
		}
		sorted[k] = r->gap_ns[i];
	}
	return sorted[r->n / 2];
}

uint64_t sched_rhythm_period(const struct sched_rhythm_log *r, uint64_t *ret_spread_ns)
{
	uint64_t period, tolerance;
	uint32_t near = 0;

	if (r->n < SCHED_RHYTHM_MIN_GAPS) {
		return 0;
	}
	period = median(r);
	tolerance = MAX(period / 16, (uint64_t)SCHED_RHYTHM_TOLERANCE_NS);
	for (uint32_t i = 0; i < r->n; i++) {
		uint64_t gap = r->gap_ns[i];

		near += (gap > period ? gap - period : period - gap) <= tolerance;
	}
	*ret_spread_ns = tolerance;
	return period >= SCHED_RHYTHM_MIN_NS && near * 4 >= r->n * 3 ? period : 0;
}
