/* What lease.c and warm.c share with the device. */
#ifndef GBPF_GPU_CUDA_FLAG_LEASE_INT_H
#define GBPF_GPU_CUDA_FLAG_LEASE_INT_H

#include "gpu/gpu_int.h"

int gpu_leases_create(struct gpu_device *d); /* 0 or -ENOMEM */
void gpu_leases_destroy(struct gpu_device *d);
/* Waits until nothing of ours is being done in it. d->lock is not held. */
void gpu_leases_forget(struct gpu_device *d, CUcontext ctx);
/* The GPU's clock minus ours has been measured: leases that wait for that stand from now on. Agent.
 */
void gpu_leases_set_offset(struct gpu_device *d, uint32_t gpu, int64_t offset_ns);

/* A kernel that does nothing, on a stream of its own: the context that it brings onto the hardware
 * is the one that the request will need. All zero: not made yet. It goes with its context. */
struct gpu_warm_kernel {
	CUfunction f;
	CUstream stream;
	bool refused; /* the driver did not take it: not tried again */
};
/* The context is kept alive by the caller. */
void gpu_warm_prepare(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w);
void gpu_warm_launch(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w);

#endif
