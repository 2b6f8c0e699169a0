/* Uses of events (and graphs) by deferred calls: until such a call is submitted, the driver's view
 * of the event is out of date. */
#ifndef GBPF_SHIM_OBJECT_EVENT_USES_H
#define GBPF_SHIM_OBJECT_EVENT_USES_H

#include "shim/object/stream_queue.h"

enum shim_event_use {
	SHIM_EVENT_RECORD,
	SHIM_EVENT_AWAIT, /* as a query: records and awaits */
};

/* A deferred call's use of an event. Part of the deferred call, linked under events_mutex. */
struct shim_event_call {
	struct shim_event_call *next,
		**at;  /* at: address of the pointer to it, NULL while it is not enqueued */
	CUevent event; /* NULL: none, or submitted */
	struct shim_queue *q;
	enum shim_event_use use;
	uint64_t order; /* sequence number among all deferred calls */
};

/* Registers a use of the event by a call that is about to be deferred on q. Returns false if the
 * table is full; the call must not be deferred then. */
bool shim_event_defer(struct shim_event_call *c, CUevent event, struct shim_queue *q,
		      enum shim_event_use use);
/* Enqueues the use once the call has its position in its queue, and returns the call's sequence
 * number (sched_next_number). Assigning the number here makes numbers grow within each queue;
 * otherwise two calls could wait for each other. */
uint64_t shim_event_enqueued(struct shim_event_call *c);
/* Returns true if no earlier deferred call on another queue conflicts with this use of the event.
 */
bool shim_event_ready(const struct shim_event_call *c);
void shim_event_submitted(struct shim_event_call *c);
/* Records the event inside or behind the queue's resumable run, so that a stopped run records it
 * again. Requires that no call is deferred on the queue and that the caller has claimed it with
 * sched_run_join(). The use counts as submitted afterwards. */
CUresult shim_event_record(struct shim_event_call *c);
/* Returns true if a queue other than `but` has such a use of the event; SHIM_EVENT_AWAIT: any use.
 */
bool shim_event_used(CUevent event, enum shim_event_use use, const struct shim_queue *but);
/* Drains queues other than `but` until none has such a use of the event; SHIM_EVENT_AWAIT: any use.
 */
void shim_event_drain(CUevent event, enum shim_event_use use, const struct shim_queue *but);
/* Returns true if deferred launches use the graph; it is then destroyed after the last of them. */
bool shim_event_defer_graph_destroy(CUgraphExec exec);
/* Removes the uses of a queue that is about to be closed together with its run. */
void shim_event_forget_queue(const struct shim_queue *q);

#endif
