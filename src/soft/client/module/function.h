/* Functions: resolves handles that programs pass. */
#ifndef GBPF_SOFT_CLIENT_MODULE_FUNCTION_H
#define GBPF_SOFT_CLIENT_MODULE_FUNCTION_H

#include "soft/client/process.h"

/* Resolves a function handle, or a kernel handle used as one, which the driver allows.
 * current: also requires a current context. */
CUresult soft_function_resolve(CUfunction h, CUfunction *ret);
CUresult soft_function_current(CUfunction h, CUfunction *ret);

#endif
