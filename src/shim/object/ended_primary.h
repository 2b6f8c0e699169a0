/* Primary contexts that have ended but may still be current to a thread: the driver refuses every
 * call in them, and nothing of gBPF may be opened there. (With a queue opened in one, the next
 * cuDevicePrimaryCtxRetain failed with CUDA_ERROR_ILLEGAL_STATE; H200, 580.159.04.) */
#ifndef GBPF_SHIM_OBJECT_ENDED_PRIMARY_H
#define GBPF_SHIM_OBJECT_ENDED_PRIMARY_H

#include <stdbool.h>

#include "cuabi/types.h"

/* The device's primary context has ended, or has been retained (again). Any thread. */
void shim_primary_ended(CUdevice device, CUcontext ctx);
void shim_primary_retained(CUdevice device);
/* Returns true if the context is one that has ended, and not been made again. */
bool shim_primary_is_gone(CUcontext ctx);

#endif
