/* Events that kept calls record or wait for: until those are issued they are not what the driver
 * thinks they are. */
#ifndef GBPF_SHIM_EVENT_H
#define GBPF_SHIM_EVENT_H

#include "shim/queue.h"

enum event_use {
	EVENT_RECORD,
	EVENT_AWAIT, /* as a question: any use */
};

/* A call that does that with the event is kept in the queue. False: too many, do not keep it. */
bool event_keep(CUevent event, struct shim_queue *q, enum event_use use);
void event_issued(CUevent event, struct shim_queue *q, enum event_use use);
/* Records an event of which a record was "kept" before in the queue's chain, or behind it: nothing
 * of the queue waits, and it is the caller's (sched_join). */
CUresult event_record(CUevent event, struct shim_queue *q);
/* Waits until no queue but that one uses the event so; EVENT_AWAIT: in any way. */
void event_settle(CUevent event, enum event_use use, const struct shim_queue *but);
/* The queue is about to be closed, with its chain. */
void event_forget_queue(const struct shim_queue *q);

#endif
