/* How long a request should linger: from the pauses that a latency client makes, between its queues
 * being idle and its next launch. Most lie inside requests (after a synchronization), some between
 * them. It only computes. */
#ifndef GBPF_SCHED_GAP_H
#define GBPF_SCHED_GAP_H

#include <stdint.h>

#define SCHED_GAP_BUCKETS 18u
#define SCHED_GAP_MAX_NS 2000000u /* nothing lingers longer for it */
#define SCHED_GAP_MIN 4u	  /* pauses before it says anything */

struct sched_gaps { /* all zero: nothing seen; words are read and written one by one */
	uint32_t n[SCHED_GAP_BUCKETS + 1]; /* the last one: longer than all */
	uint32_t total;
};

void sched_gaps_add(struct sched_gaps *g, uint64_t gap_ns);
/* The linger that would have cost least so far, 0 for none: lingering costs the time that it takes,
 * and a request that ends and is opened again costs reopen_ns. */
uint64_t sched_gaps_best(const struct sched_gaps *g, uint64_t reopen_ns);

#endif
