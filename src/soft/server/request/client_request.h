/* Requests of the control socket, answered on the thread of the client. The functions run without
 * the machine's lock unless they require it. */
#ifndef GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H
#define GBPF_SOFT_SERVER_REQUEST_CLIENT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "soft/server/machine_lock.h"
#include "soft/protocol.h"

struct softd_client;
struct softd_group;
struct softd_machine;

/* A reply of len bytes, and descriptors, closed after sending if close_fds is set. */
struct softd_answer {
	struct soft_reply reply;
	size_t len;
	int fds[3];
	unsigned n_fds;
	bool close_fds;
};

/* Answers one validated request; fd is the descriptor it carried, or -1. */
void softd_request_answer(struct softd_client *c, const struct soft_request *q, int fd,
			  struct softd_answer *a);

/* Returns the request's context, or NULL. */
struct softd_group *softd_request_group(struct softd_client *c, const struct soft_request *q)
	REQUIRES(softd_lock);

/* request_memory.c */
bool softd_request_is_memory(uint32_t op);
CUresult softd_request_memory(struct softd_client *c, const struct soft_request *q, int fd,
			      struct softd_answer *a);
/* request_group.c. group_control may release the lock meanwhile. */
CUresult softd_request_group_control(struct softd_client *c, const struct soft_request *q,
				     struct softd_answer *a) REQUIRES(softd_lock);
CUresult softd_request_group_heap(struct softd_client *c, const struct soft_request *q);
CUresult softd_request_control_open(struct softd_client *c, const struct soft_request *q,
				    struct softd_answer *a) REQUIRES(softd_lock);
CUresult softd_request_control(struct softd_client *c, const struct soft_request *q, int fd,
			       struct softd_answer *a);
CUresult softd_request_flag_new(struct softd_client *c, const struct soft_request *q,
				struct softd_answer *a);
CUresult softd_request_flag_map(struct softd_client *c, const struct soft_request *q, int fd,
				struct softd_answer *a);

/* sm_set.c */
CUresult softd_request_sm_set(struct softd_client *c, const struct soft_request *q,
			      struct softd_answer *a) REQUIRES(softd_lock);
void softd_sm_sets_free(struct softd_client *c);

/* request_device.c. save_unsupported: adds an exiting client's counts to the machine's. */
CUresult softd_request_gpus(struct softd_machine *machine, const struct soft_request *q,
			    struct softd_answer *a);
CUresult softd_request_unsupported(struct softd_machine *machine, const struct soft_request *q,
				   struct softd_answer *a);
void softd_request_save_unsupported(struct softd_client *c) REQUIRES(softd_lock);

/* request_module.c */
CUresult softd_request_module_load(struct softd_client *c, const struct soft_request *q, int fd,
				   struct softd_answer *a);
CUresult softd_request_module_unload(struct softd_client *c, const struct soft_request *q)
	REQUIRES(softd_lock);
/* Returns the name that a request is about; NULL: there is none. *ret_held: the caller frees it.
 * Copies memory of the client, so the caller does not hold the lock. */
const char *softd_request_name(const struct soft_request *q, int fd, char **ret_held);
CUresult softd_request_function_get(struct softd_client *c, const struct soft_request *q,
				    const char *name, struct softd_answer *a) REQUIRES(softd_lock);
CUresult softd_request_function_at(struct softd_client *c, const struct soft_request *q,
				   struct softd_answer *a) REQUIRES(softd_lock);
CUresult softd_request_global_get(struct softd_client *c, const struct soft_request *q,
				  const char *name, struct softd_answer *a) REQUIRES(softd_lock);

#endif
