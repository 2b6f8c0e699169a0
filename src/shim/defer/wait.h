/* Draining of deferred calls, and their errors. */
#ifndef GBPF_SHIM_DEFER_WAIT_H
#define GBPF_SHIM_DEFER_WAIT_H

#include "shim/object/stream_queue.h"

/* Submits a queue's deferred calls. */
void shim_wait_drain(struct shim_queue *q);
/* Stores the error of a deferred call for the next synchronization, unless one is stored already.
 * CUDA_SUCCESS has no effect. */
void shim_error_note(CUresult r);
/* Drains the queues that are ordered with q through the legacy default stream, before a new call on
 * q. */
void shim_wait_drain_siblings(struct shim_queue *q);
/* Takes the stored error. Returns r if that is an error itself, else the stored one. */
CUresult shim_error_take(CUresult r);

/* Submits all deferred calls of the process. */
void shim_drain_all(void);
/* Same, at the cost of one load if there is none. */
static inline void shim_drain_pending(void)
{
	if (unlikely(shim_pending())) {
		shim_drain_all();
	}
}

#endif
