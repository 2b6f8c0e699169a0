/* Requests: what one thread answers for its client. */
#ifndef GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H
#define GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H

#include "soft/server/machine.h"

/* The request's context, or NULL. Lock held. */
struct softd_group *softd_request_group(struct softd_client *c, const struct soft_request *q);

/* request_memory.c: everything about memory; without the lock. */
bool softd_request_is_memory(uint32_t op);
CUresult softd_request_memory(struct softd_client *c, const struct soft_request *q, int fd,
			      struct softd_answer *a);
/* request_group.c */
CUresult
softd_request_group_control(struct softd_client *c, const struct soft_request *q,
			    struct softd_answer *a); /* lock held; may let it go meanwhile */
CUresult softd_request_group_heap(struct softd_client *c, const struct soft_request *q);
CUresult softd_request_control_open(struct softd_client *c, const struct soft_request *q,
				    struct softd_answer *a); /* lock held */
CUresult softd_request_control(struct softd_client *c, const struct soft_request *q, int fd,
			       struct softd_answer *a);
CUresult softd_request_flag_new(struct softd_client *c, const struct soft_request *q,
				struct softd_answer *a);
CUresult softd_request_flag_map(struct softd_client *c, const struct soft_request *q, int fd,
				struct softd_answer *a);

/* part.c: lock held. */
CUresult softd_request_sm_set(struct softd_client *c, const struct soft_request *q,
			      struct softd_answer *a);
void softd_sm_sets_free(struct softd_client *c);

/* request_device.c */
CUresult softd_request_gpus(struct softd_machine *machine, const struct soft_request *q,
			    struct softd_answer *a);
CUresult softd_request_unsupported(struct softd_machine *machine, const struct soft_request *q,
				   struct softd_answer *a);
void softd_request_save_unsupported(struct softd_client *c); /* lock held: before it goes */

/* request_module.c: load without the lock, the others with it. */
CUresult softd_request_module_load(struct softd_client *c, const struct soft_request *q, int fd,
				   struct softd_answer *a);
CUresult softd_request_module_unload(struct softd_client *c, const struct soft_request *q);
CUresult softd_request_function_get(struct softd_client *c, const struct soft_request *q,
				    struct softd_answer *a);
CUresult softd_request_function_at(struct softd_client *c, const struct soft_request *q,
				   struct softd_answer *a);
CUresult softd_request_global_get(struct softd_client *c, const struct soft_request *q,
				  struct softd_answer *a);

#endif
