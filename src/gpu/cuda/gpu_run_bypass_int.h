/* Kernels whose blocks wait for blocks of higher index: detecting a hang, and running the missing
 * blocks on a bypass stream. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_BYPASS_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_BYPASS_INT_H

#include "gpu/cuda/gpu_run_memory_int.h"

struct gpu_run_hang {
	uint32_t front;		    /* number of the front piece, */
	uint64_t calm_ns;	    /* ns without a lease since it or its first lease began, */
	uint64_t calm_until_ns;	    /* and the time of the last look; 0: a lease was seen then */
	uint32_t lease_head;	    /* pieces.head when a lease was last seen */
	bool probing;		    /* the counter is being watched */
	uint32_t counter;	    /* its last value */
	uint64_t probe_ns;	    /* time of the last probe */
	uint64_t same_calm_ns;	    /* calm_ns at which the counter last changed */
	uint32_t restore;	    /* value that the counter gets when the bypass has ended */
	uint32_t n_beats;	    /* kernels of our own that were launched while watching */
	uint64_t watch_ns, beat_ns; /* begin of watching, time of the last such kernel */
};

/* All of these: the run's lock is held, and the context is current. */

/* Looks whether the front piece hangs; if so, begins to take the counter. */
void gpu_run_bypass_watch(struct gpu_run *run, bool may_run, uint64_t now);
/* Sets the counter on the device to that value: what is before it has run. The stream is idle. */
void gpu_run_bypass_restore(struct gpu_run *run, uint32_t counter);
/* Advances the states from GPU_RUN_TAKING on. */
void gpu_run_bypass_step(struct gpu_run *run, const struct gpu_queue *q, uint64_t now);

#endif
