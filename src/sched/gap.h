/* The best close delay of a request, from the pauses of a latency client between the end of its
 * queues' work and its next launch. Most pauses lie inside requests (after a synchronization), some
 * between them. Only computes. */
#ifndef GBPF_SCHED_GAP_H
#define GBPF_SCHED_GAP_H

#include <stdint.h>

#define SCHED_GAP_BUCKETS 18u
#define SCHED_GAP_MAX_NS 2000000u /* longest close delay that it suggests */
#define SCHED_GAP_MIN 4u	  /* pauses needed before it suggests any */

struct sched_gaps { /* all zero: no pause seen. Words are accessed one by one */
	uint32_t n[SCHED_GAP_BUCKETS + 1]; /* the last one: longer than all bounds */
	uint32_t total;
};

void sched_gaps_add(struct sched_gaps *g, uint64_t gap_ns);
/* Returns the close delay that would have cost least, 0 for none: a delay costs its own length, and
 * a request that closes and is opened again costs reopen_ns. */
uint64_t sched_gaps_best(const struct sched_gaps *g, uint64_t reopen_ns);

#endif
