/* Events that kept calls record or wait for: until those are issued they are not what the driver
 * thinks they are. */
#ifndef GBPF_SHIM_OBJECT_EVENT_USES_H
#define GBPF_SHIM_OBJECT_EVENT_USES_H

#include "shim/object/stream_queue.h"

enum shim_event_use {
	SHIM_EVENT_RECORD,
	SHIM_EVENT_AWAIT, /* as a question: any use */
};

/* A call that is kept. */
struct shim_event_call {
	struct shim_event_call *next, **at; /* at: NULL while it has no place */
	CUevent event;			    /* NULL: none, or issued */
	struct shim_queue *q;
	enum shim_event_use use;
	uint64_t order; /* among all that were kept */
};

/* A call that does that with the event is about to be kept in the queue. False: too many, do not
 * keep it. */
bool shim_event_defer(struct shim_event_call *c, CUevent event, struct shim_queue *q,
		      enum shim_event_use use);
/* It has its place in the queue, and now its number (sched_number), which is the answer: in each
 * queue numbers grow. Else one could wait for another that is behind it. */
uint64_t shim_event_enqueued(struct shim_event_call *c);
/* Nothing that other queues have kept of the event before is in the way any more. */
bool shim_event_ready(const struct shim_event_call *c);
void shim_event_submitted(struct shim_event_call *c);
/* Records an event of which a record was "kept" before in the queue's chain, or behind it: nothing
 * of the queue waits, and it is the caller's (sched_join). Issued then. */
CUresult shim_event_record(struct shim_event_call *c);
/* Another queue than that uses the event so; EVENT_AWAIT: in any way. */
bool shim_event_used(CUevent event, enum shim_event_use use, const struct shim_queue *but);
/* Waits until no queue but that one uses the event so; EVENT_AWAIT: in any way. */
void shim_event_drain(CUevent event, enum shim_event_use use, const struct shim_queue *but);
/* True: kept launches use the graph, so it is destroyed behind the last of them. */
bool shim_event_defer_graph_destroy(CUgraphExec exec);
/* The queue is about to be closed, with its chain. */
void shim_event_forget_queue(const struct shim_queue *q);

#endif
