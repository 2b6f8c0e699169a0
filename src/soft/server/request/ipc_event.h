/* Events shared by several processes. */
#ifndef GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H
#define GBPF_SOFT_SERVER_REQUEST_IPC_EVENT_H

#include "soft/server/request/client_request.h"
#include "soft/server/machine_lock.h"

CUresult softd_ipc_event_request(struct softd_client *c, const struct soft_request *q,
				 struct softd_answer *a) REQUIRES(softd_lock);
/* A record was reached or dropped: its waiters continue. */
void softd_ipc_event_reached(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket)
	REQUIRES(softd_lock);
bool softd_ipc_event_passed(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket)
	REQUIRES(softd_lock);
/* An operation that names the event is taken from the ring, and has ended or was dropped. hold
 * returns false if the client does not use the event; then unhold must not be called. */
bool softd_ipc_event_hold(struct softd_client *c, uint32_t index, uint64_t key)
	REQUIRES(softd_lock);
void softd_ipc_event_unhold(struct softd_client *c, uint32_t index, uint64_t key)
	REQUIRES(softd_lock);
/* Records have been taken from the client's ring: drops closed events that waited for this. */
void softd_ipc_event_ring_read(struct softd_client *c) REQUIRES(softd_lock);
void softd_ipc_event_client_exit(struct softd_client *c) REQUIRES(softd_lock);

#endif
