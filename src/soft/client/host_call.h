/* Calls on the host in stream order: cuLaunchHostFunc, cuStreamAddCallback, and the parts of graph
 * copies that access the program's own memory. */
#ifndef GBPF_SOFT_CLIENT_HOST_CALL_H
#define GBPF_SOFT_CLIENT_HOST_CALL_H

#include <stdint.h>

#include "soft/client/memory/copy.h"
#include "soft/client/process.h"

struct soft_host_call {
	CUhostFn fn;
	CUstreamCallback callback;
	void *user;
	CUstream stream;
	struct soft_copy copy;	     /* used if fn and callback are NULL */
	struct soft_host_call *next; /* list of the owner */
	uint32_t ready; /* [atomic] complete: release by the submitter, acquire by the agent; the
			   server in between passes only the cookie */
};

/* Runs and frees the call that the cookie identifies. On the agent thread. */
void soft_host_run(uint64_t cookie, CUresult context_error);

/* Around code of the program that must not call the driver, on the thread that runs it. Between
 * them cuabi/entries.c refuses the functions that are not in cuabi/host_function.def. */
void soft_host_enter(void);
void soft_host_leave(void);
/* Returns whether the calling thread is between the two: calls then return
 * CUDA_ERROR_NOT_PERMITTED instead of waiting for the device. */
bool soft_in_host_function(void);

#endif
