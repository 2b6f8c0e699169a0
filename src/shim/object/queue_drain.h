/* Draining of a queue's deferred calls, their errors, and the accounting of its unfinished run. */
#ifndef GBPF_SHIM_OBJECT_QUEUE_DRAIN_H
#define GBPF_SHIM_OBJECT_QUEUE_DRAIN_H

#include "shim/object/stream_queue.h"

/* Submits a queue's deferred calls. */
void shim_queue_drain(struct shim_queue *q);
/* Stores the error of a deferred call for the next synchronization, unless one is stored already.
 * CUDA_SUCCESS has no effect. */
void shim_error_note(CUresult r);
/* Drains the queues that are ordered with q through the legacy default stream, before a new call on
 * q. */
void shim_queue_drain_siblings(struct shim_queue *q);
/* Takes the stored error. Returns r if that is an error itself, else the stored one. */
CUresult shim_error_take(CUresult r);

/* Counts the brackets that a call has launched on q. */
static inline void shim_queue_count_brackets(struct shim_queue *q, uint32_t n)
{
	if (unlikely(n)) {
		sched_queue_add_extra(q->sched, n);
	}
}

/* Submits all deferred calls of the process. */
void shim_drain_all(void);
/* Same, at the cost of one load if there is none. */
static inline void shim_drain_pending(void)
{
	if (unlikely(shim_pending())) {
		shim_drain_all();
	}
}

/* Records that a launch of the queue's run may be unfinished. */
void shim_block_note_unfinished(struct shim_queue *q);
/* Returns the id of the queue's last launch that may be unfinished, 0 if none. Given back as `seen`
 * after the run was found complete, shim_block_finished() clears it unless a newer launch has
 * replaced it. */
uint32_t shim_block_unfinished(const struct gpu_queue *dev);
void shim_block_finished(struct gpu_queue *dev, uint32_t seen);
/* Ends the run of a queue that is being closed. */
void shim_block_close(struct shim_queue *q);

#endif
