/* Copies of calls that wait behind a deferred one. */
#ifndef GBPF_SHIM_DEFER_CALL_COPY_H
#define GBPF_SHIM_DEFER_CALL_COPY_H

#include "shim/entry/gate.h"
#include "shim/object/stream_queue.h"

/* b: it may go at block level; or NULL. Hands a copy of the call to the scheduler, behind what the
 * queue keeps back already. False: it cannot be copied soundly, or not now; nothing has changed
 * then. */
bool shim_call_defer(struct shim_queue *q, const struct shim_call *c, const uint64_t *a,
		     const struct sched_launch *l, const struct shim_block_call *b);

#endif
