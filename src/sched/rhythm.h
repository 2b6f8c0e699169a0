/* The rhythm of a periodic client: predicts the next request from the opening times of the past
 * ones. Only computes; announce.c acts on it. */
#ifndef GBPF_SCHED_RHYTHM_H
#define GBPF_SCHED_RHYTHM_H

#include <stdint.h>

#define SCHED_RHYTHM_GAPS 16u
#define SCHED_RHYTHM_MIN_GAPS 8u     /* gaps needed before it predicts */
#define SCHED_RHYTHM_MIN_NS 2000000u /* shortest period: below it leases would always be raised */
#define SCHED_RHYTHM_MAX_NS 2000000000u	  /* a longer gap starts over */
#define SCHED_RHYTHM_TOLERANCE_NS 100000u /* tolerance, or 1/16 of the period if that is more */

struct sched_rhythm_log { /* all zero: nothing seen */
	uint64_t last_ns;
	uint32_t n, at;
	uint64_t gap_ns[SCHED_RHYTHM_GAPS];
};

void sched_rhythm_add(struct sched_rhythm_log *r, uint64_t opened_ns);
/* Returns the period, or 0 if there is none or too few gaps were seen. *ret_spread_ns: how far most
 * openings are from it. */
uint64_t sched_rhythm_period(const struct sched_rhythm_log *r, uint64_t *ret_spread_ns);

#endif
