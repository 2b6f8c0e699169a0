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
/* A queue, but that one, that keeps such a call; NULL: none. */
struct shim_queue *event_kept(CUevent event, enum event_use use, const struct shim_queue *but);

#endif
