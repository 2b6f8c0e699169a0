/* The link between a GPU and the host, which copies and kernels share: one lane for each direction,
 * served in the order of requests. Nothing here runs unless --link-bandwidth models it. */
#ifndef GBPF_SOFT_SERVER_RUN_HOST_LINK_H
#define GBPF_SOFT_SERVER_RUN_HOST_LINK_H

#include <stdint.h>

#include "soft/server/exec/exec.h"
#include "soft/server/machine_lock.h"

struct softd_gpu;

/* Guarded by the machine's lock. */
struct softd_link {
	uint64_t free_ns; /* time when everything so far has passed */
	uint64_t bytes;	  /* that have passed, or are passing */
};

/* Queues bytes, by direction, behind those of earlier calls. Returns the time when they have
 * passed, at which the caller may go on. A link that was idle is taken to have begun up to 1 ms
 * earlier, so that threads that wake late do not cost bandwidth. */
uint64_t softd_link_queue(struct softd_gpu *gpu, const uint64_t bytes[EXEC_LINK_WAYS])
	REQUIRES(softd_lock);

#endif
