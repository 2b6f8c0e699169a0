/* Calls on the host in the order of a stream: cuLaunchHostFunc, cuStreamAddCallback, and the parts
 * of graph copies that reach memory of the program's own. */
#ifndef GBPF_SOFT_CLIENT_HOST_CALL_H
#define GBPF_SOFT_CLIENT_HOST_CALL_H

#include <stdint.h>

#include "soft/client/process.h"

struct soft_host_call {
	CUhostFn fn;
	CUstreamCallback callback;
	void *user;
	CUstream stream;
	struct soft_copy copy;	     /* when there is neither function */
	struct soft_host_call *next; /* of who keeps some */
	uint32_t ready;		     /* [atomic] whole: its way to the agent is the server's */
};

/* On the agent thread: runs and forgets the function behind a cookie. */
void soft_host_run(uint64_t cookie, CUresult context_error);

#endif
