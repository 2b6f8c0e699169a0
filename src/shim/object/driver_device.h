/* The scheduler's device: gpu's operations on the real library's functions. */
#ifndef GBPF_SHIM_OBJECT_DRIVER_DEVICE_H
#define GBPF_SHIM_OBJECT_DRIVER_DEVICE_H

#include "gpu/gpu.h"
#include "sched/sched.h"

/* Makes the device, once, and names it in cfg. 0 or -errno. */
int shim_device_setup(struct sched_config *cfg);
struct gpu_device *shim_device_gpu(void);		    /* NULL before that */
void shim_device_context_seen(uint32_t gpu, CUcontext ctx); /* it belongs to that device ordinal */
/* What the device does now and then, on the agent thread; nanoseconds until it wants to again. */
uint64_t shim_device_maintain(uint64_t now);
/* The context's queues are closed, and it is about to end. */
void shim_device_context_end(CUcontext ctx);

#endif
