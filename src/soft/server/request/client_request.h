/* Requests: what one thread answers for its client. */
#ifndef GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H
#define GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H

#include "soft/server/machine.h"

/* The request's context, or NULL. Lock held. */
struct group *request_group(struct client *c, const struct soft_request *q);

/* request_memory.c: everything about memory; without the lock. */
bool request_is_memory(uint32_t op);
CUresult request_memory(struct client *c, const struct soft_request *q, int fd, struct answer *a);
/* request_group.c */
CUresult request_group_control(struct client *c, const struct soft_request *q,
			       struct answer *a); /* lock held; may let it go meanwhile */
CUresult request_group_heap(struct client *c, const struct soft_request *q);
CUresult request_control_open(struct client *c, const struct soft_request *q,
			      struct answer *a); /* lock held */
CUresult request_control(struct client *c, const struct soft_request *q, int fd, struct answer *a);
CUresult request_flag_new(struct client *c, const struct soft_request *q, struct answer *a);
CUresult request_flag_map(struct client *c, const struct soft_request *q, int fd, struct answer *a);

/* part.c: lock held. */
CUresult request_part(struct client *c, const struct soft_request *q, struct answer *a);
void parts_free(struct client *c);

/* request_device.c */
CUresult request_gpus(struct device *dev, const struct soft_request *q, struct answer *a);
CUresult request_unsupported(struct device *dev, const struct soft_request *q, struct answer *a);
void request_keep_unsupported(struct client *c); /* lock held: before it goes */

/* request_module.c: load without the lock, the others with it. */
CUresult request_module_load(struct client *c, const struct soft_request *q, int fd,
			     struct answer *a);
CUresult request_module_unload(struct client *c, const struct soft_request *q);
CUresult request_function_get(struct client *c, const struct soft_request *q, struct answer *a);
CUresult request_function_at(struct client *c, const struct soft_request *q, struct answer *a);
CUresult request_global_get(struct client *c, const struct soft_request *q, struct answer *a);

#endif
