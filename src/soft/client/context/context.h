/* Contexts: creation and destruction on the server. */
#ifndef GBPF_SOFT_CLIENT_CONTEXT_CONTEXT_H
#define GBPF_SOFT_CLIENT_CONTEXT_CONTEXT_H

#include "soft/client/process.h"

CUresult soft_context_create(unsigned flags, CUdevice dev, CUcontext *ret);
CUresult soft_context_destroy(CUcontext ctx);
CUresult soft_context_check_device(CUdevice dev);

#endif
