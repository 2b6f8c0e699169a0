/* Copies of calls that wait behind a deferred one. */
#ifndef GBPF_SHIM_KEEP_H
#define GBPF_SHIM_KEEP_H

#include "shim/gates.h"
#include "shim/queue.h"

/* b: it may go at block level; or NULL. Hands a copy of the call to the scheduler, behind what the
 * queue keeps back already. False: it cannot be copied soundly, or not now; nothing has changed
 * then. */
bool keep_call(struct shim_queue *q, const struct shim_call *c, const uint64_t *a,
	       const struct sched_launch *l, const struct block_call *b);

#endif
