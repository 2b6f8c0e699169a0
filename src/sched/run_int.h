/* The gate of a queue, its resumable run and its deferred calls: what decides whether a launch may
 * go to the driver now. Locks: issue.lock before fifo.lock. */
#ifndef GBPF_SCHED_RUN_INT_H
#define GBPF_SCHED_RUN_INT_H

#include "sched/queue_int.h"

#define SCHED_RUN_QUIET_NS 1000000u /* period of looking at a run that no thread waits for */

struct sched_decision;

/* ---- sched_run.c ---- */

/* Enters the queue's gate: a run that begins waits for this launch or is seen by it. */
void sched_gate_enter(struct sched_queue *q);
void sched_gate_leave(struct sched_queue *q);
/* Gives the queue a run, if it has none. Returns false if a plain launch is between its look at
 * `pending` and the driver; then there is no run. */
bool sched_run_begin(struct sched_queue *q) REQUIRES(q->issue.lock);
/* Looks after the run: resumes it, or ends it when it is through. Returns ns until the next call,
 * or UINT64_MAX without a run. waited: a thread blocks on its end. */
uint64_t sched_run_care(struct sched_queue *q, uint64_t now, bool waited) REQUIRES(q->issue.lock);
/* Ends a run without an unfinished launch, unless another thread has issue.lock. Returns true if
 * the queue has no run. */
bool sched_run_try_end(struct sched_queue *q);
/* Racy snapshot unless the caller holds issue.lock or is at the gate. */
bool sched_run_unfinished(const struct sched_queue *q);
/* The run takes a launch now. */
bool sched_run_has_room(struct sched_queue *q) REQUIRES(q->issue.lock);
/* The launch may join the queue's run, or begin one. With the gate off it only joins: without a run
 * it need not be ordered behind missing blocks. */
bool sched_run_allowed(const struct sched_queue *q, const struct sched_launch *l,
		       const struct sched_decision *a);
/* Ends the run if it is through. Returns true if the queue has none. */
bool sched_run_end_if_done(struct sched_queue *q) REQUIRES(q->issue.lock);
/* Asks the device how far the run is, and keeps its error, if any, for the next drain. */
void sched_run_look(struct sched_queue *q, struct sched_run_progress *ret);
/* Makes l a launch of the run. */
void sched_run_add(struct sched_queue *q, struct sched_launch *l, const struct sched_decision *a)
	REQUIRES(q->issue.lock);
static inline bool sched_run_here(const struct sched_queue *q)
{
	return load_acquire(&q->pending) & SCHED_HAS_RUN;
}
static inline uint32_t sched_fifo_count(const struct sched_queue *q)
{
	return load_acquire(&q->pending) & ~SCHED_HAS_RUN;
}

/* ---- defer.c ---- */

/* The stream does not move, and more launches would fill its hardware queue: defer them. Caller
 * holds no lock. */
bool sched_queue_crowded(struct sched_queue *q);
uint64_t sched_deferred_step(struct sched *s, uint64_t now);
/* Waits, helping, until every call that was deferred before is with the driver and the launches
 * that the run had then are through. */
void sched_queue_drain(struct sched_queue *q);
/* sched_destroy: frees calls that were never submitted. */
void sched_fifo_drop(struct sched_queue *q);

#endif
