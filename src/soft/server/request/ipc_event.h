/* Events shared by several processes. */
#ifndef GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H
#define GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H

#include "soft/server/request/client_request.h"

/* All functions: caller holds the lock. */
CUresult softd_ipc_event_request(struct softd_client *c, const struct soft_request *q,
				 struct softd_answer *a);
/* A record was reached or dropped: its waiters continue. */
void softd_ipc_event_reached(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket);
bool softd_ipc_event_passed(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket);
void softd_ipc_event_client_exit(struct softd_client *c);

#endif
