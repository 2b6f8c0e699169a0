/* Events of several processes. */
#ifndef GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H
#define GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H

#include "soft/server/machine.h"

/* Lock held, all of them. */
CUresult ipc_event_request(struct client *c, const struct soft_request *q, struct answer *a);
/* A record has been reached, or will never be: whoever waits goes on. */
void ipc_event_reached(struct client *c, uint32_t index, uint64_t key, uint32_t ticket);
bool ipc_event_over(struct client *c, uint32_t index, uint64_t key, uint32_t ticket);
void ipc_event_client_gone(struct client *c);

#endif
