/* A sum to which mostly one thread adds. Its owner, the first thread that adds, adds without a
 * lock; other threads use a locked addition to a word of their own. That matters on the launch
 * path: a locked addition waits for all earlier stores, and the previous launch ended with a store
 * to the device that takes ~100 ns (H200).
 *
 * `mine` has one writing thread at any time: a reader slot belongs to one thread, and its next
 * owner takes it with acquire after the last has released it. A reader of the sum gets a value that
 * lay between the sums before and after its two loads. */
#ifndef GBPF_SCHED_TALLY_H
#define GBPF_SCHED_TALLY_H

#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "policy/read.h"

struct sched_tally {
	struct policy_reader *owner; /* [atomic] set once */
	uint64_t mine, others;	     /* [atomic] SCHED_ACC or plain counts */
};

static inline void sched_tally_add(struct sched_tally *t, uint64_t x)
{
	struct policy_reader *self = policy_reader_self, *none = NULL;

	if (likely(self)) {
		if (likely(load_relaxed(&t->owner) == self) ||
		    (!load_relaxed(&t->owner) && cas_acqrel(&t->owner, &none, self))) {
			add_by_owner(&t->mine, x);
			return;
		}
	}
	(void)add_acqrel(&t->others, x);
}

/* Any thread, whichever owns the sum. */
static inline void sched_tally_sub(struct sched_tally *t, uint64_t x)
{
	(void)sub_acqrel(&t->others, x);
}

static inline uint64_t sched_tally_sum(const struct sched_tally *t)
{
	uint64_t mine = load_acquire(&t->mine);

	return mine + load_acquire(&t->others);
}

/* Resets the sum; no other thread may add meanwhile. */
static inline void sched_tally_set(struct sched_tally *t, uint64_t sum)
{
	store_relaxed(&t->mine, (uint64_t)0);
	store_relaxed(&t->others, sum);
	store_release(&t->owner, (struct policy_reader *)NULL);
}

#endif
