/* Deferred calls: copies of calls that must wait behind an earlier deferred call. */
#ifndef GBPF_SHIM_DEFER_CALL_COPY_H
#define GBPF_SHIM_DEFER_CALL_COPY_H

#include "shim/defer/block_launch.h"
#include "shim/gated_call.h"
#include "shim/object/stream_queue.h"

/* Copies the call and hands the copy to the scheduler, behind the calls that the queue has deferred
 * already. Returns false, without effect, if the call cannot be copied with its meaning, or not
 * now. */
bool shim_call_defer(struct shim_queue *q, const struct shim_call *c, const uint64_t *a,
		     const struct shim_launch *l);

#endif
