/* Host functions in streams: cuLaunchHostFunc and cuStreamAddCallback. */
#ifndef GBPF_SOFT_CLIENT_HOST_H
#define GBPF_SOFT_CLIENT_HOST_H

#include <stdint.h>

#include "cuabi/types.h"

/* On the agent thread: runs and forgets the function behind a cookie. */
void host_run(uint64_t cookie, CUresult context_error);

#endif
