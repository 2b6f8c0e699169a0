/* The scheduler's device operations: those of room gpu on the real library's functions, one device
 * for the process. */
#ifndef GBPF_SHIM_OBJECT_DRIVER_DEVICE_H
#define GBPF_SHIM_OBJECT_DRIVER_DEVICE_H

#include "gpu/gpu.h"
#include "sched/sched.h"

/* Creates the device at the first call and stores it in cfg. Returns 0 or -errno. */
int shim_device_setup(struct sched_config *cfg);
struct gpu_device *shim_device_gpu(void); /* NULL before shim_device_setup() */
void shim_device_context_seen(uint32_t gpu,
			      CUcontext ctx); /* a queue of ctx exists on that device ordinal */
/* Does the device's periodic work. Returns ns until the next call, UINT64_MAX if none is needed.
 * Called by the agent thread. */
uint64_t shim_device_maintain(uint64_t now);
/* Forgets a context that is about to end and whose queues are closed. */
void shim_device_context_end(CUcontext ctx);

#endif
