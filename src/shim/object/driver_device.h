/* The scheduler's device operations: those of room gpu on the real library's functions, one device
 * for the process. */
#ifndef GBPF_SHIM_OBJECT_DRIVER_DEVICE_H
#define GBPF_SHIM_OBJECT_DRIVER_DEVICE_H

#include "gpu/gpu.h"
#include "sched/sched.h"
#include "shim/part.h"

/* Hardware control, which the session provides because gbpfd shares in it. */
struct shim_device_control {
	/* As sched_device_ops.slice. Called by the agent. */
	int (*slice)(uint32_t gpu, uint32_t slice_us);
	/* A context exists on that GPU (device ordinal); a context is about to end. Any thread. */
	void (*context_seen)(uint32_t gpu, CUcontext ctx);
	void (*context_ends)(CUcontext ctx);
};

/* Creates the device at the first call and stores it in cfg; borrows c. Returns 0 or -errno. */
int shim_device_setup(struct sched_config *cfg, const struct shim_device_control *c);
struct gpu_device *shim_device_gpu(void); /* NULL before shim_device_setup() */
void shim_device_context_seen(uint32_t gpu,
			      CUcontext ctx); /* a queue of ctx exists on that device ordinal */
/* Does the device's periodic work. Returns ns until the next call, UINT64_MAX if none is needed.
 * Called by the agent thread. */
uint64_t shim_device_maintain(uint64_t now);
/* Returns the architecture of a device, 90 for sm_90; 0: unknown. */
unsigned shim_device_arch(CUdevice d);
extern const struct shim_part shim_device_part;
/* Forgets a context that is about to end, or its green part, and whose queues are closed. */
void shim_device_context_end(CUcontext ctx);

#endif
