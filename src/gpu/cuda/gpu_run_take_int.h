/* The kernels of gBPF's own with which the host takes a run's counter away from its blocks. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_TAKE_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_TAKE_INT_H

#include "gpu/cuda/gpu_run_memory_int.h"

#define GPU_RUN_BYPASS_COUNTER 32u /* bytes from the counter to that of bypass blocks */
#define GPU_RUN_BYPASS_WORD 12u	   /* of the host's words, in bytes: bypass blocks write it */

/* All of these: the run's lock is held, and the context is current. */

/* Loads the kernel that takes counters and launches it once, on the bypass stream, where it sets a
 * counter of the slab to the value that it has. */
void gpu_run_bypass_prepare(struct gpu_device *d, struct gpu_run_context *x,
			    const struct gpu_run_slab *s, uint32_t ticket);
/* Sets the counter to that value, that of bypass blocks to what it was, and closes the gate. */
CUresult gpu_run_take(struct gpu_run *run, uint32_t value);
/* Returns the counter's value when it was taken. */
uint32_t gpu_run_taken(const struct gpu_run *run);
/* Launches a kernel that changes nothing that is used. Its number is strike.beat. */
CUresult gpu_run_beat(struct gpu_run *run);
/* Returns whether the kernel of that number has run, which was launched last. */
bool gpu_run_beat_seen(const struct gpu_run *run, uint32_t number);

#endif
