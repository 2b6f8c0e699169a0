/* Interface of flag_lease.c and warm.c to the device. */
#ifndef GBPF_GPU_CUDA_FLAG_LEASE_INT_H
#define GBPF_GPU_CUDA_FLAG_LEASE_INT_H

#include "gpu/gpu_int.h"

int gpu_leases_create(struct gpu_device *d); /* 0 or -ENOMEM */
void gpu_leases_destroy(struct gpu_device *d);
/* Forgets the context; waits for our calls into it. d->lock is not held. */
void gpu_leases_forget(struct gpu_device *d, CUcontext ctx);
/* Sets the GPU's clock minus CLOCK_MONOTONIC; raises leases that waited for it. Agent. */
void gpu_leases_set_offset(struct gpu_device *d, uint32_t gpu, int64_t offset_ns);

/* An empty kernel on a stream of its own. Launching it brings the context onto the hardware that
 * the request will need. All zero: not loaded yet. It ends with its context. */
struct gpu_warm_kernel {
	CUfunction f;
	CUstream stream;
	bool refused; /* the driver refused it; not tried again */
};
/* The caller keeps the context alive. */
void gpu_warm_prepare(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w);
void gpu_warm_launch(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w);

#endif
