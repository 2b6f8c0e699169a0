/* The rhythm of a periodic client: from the times at which its requests were opened, when the next
 * one comes. It only computes; announce.c acts on it. */
#ifndef GBPF_SCHED_RHYTHM_H
#define GBPF_SCHED_RHYTHM_H

#include <stdint.h>

#define SCHED_RHYTHM_GAPS 16u
#define SCHED_RHYTHM_MIN_GAPS 8u     /* gaps before it says anything */
#define SCHED_RHYTHM_MIN_NS 2000000u /* a shorter period is no rhythm: leases would always be up   \
				      */
#define SCHED_RHYTHM_MAX_NS 2000000000u	  /* a longer gap begins anew */
#define SCHED_RHYTHM_TOLERANCE_NS 100000u /* or a sixteenth of the period, whichever is more */

struct sched_rhythm_log { /* all zero: nothing seen */
	uint64_t last_ns;
	uint32_t n, at;
	uint64_t gap_ns[SCHED_RHYTHM_GAPS];
};

void sched_rhythm_add(struct sched_rhythm_log *r, uint64_t opened_ns);
/* The period; 0: there is none, or too few gaps were seen. *ret_spread_ns: how far openings mostly
 * lie from it. */
uint64_t sched_rhythm_period(const struct sched_rhythm_log *r, uint64_t *ret_spread_ns);

#endif
