/* Events whose record is kept back: they are not what the driver thinks they are until it has been
 * issued. */
#ifndef GBPF_SHIM_EVENT_H
#define GBPF_SHIM_EVENT_H

#include "shim/queue.h"

/* A record of the event waits in that queue. False: too many, do not keep it. */
bool event_pend(CUevent event, struct shim_queue *q);
void event_issued(CUevent event);
/* The queue in which its last record waits; NULL: none. */
struct shim_queue *event_pending(CUevent event);

#endif
