/* The latency side of flag pages: the pages of batch tenants, on which this process raises leases.
 * The thread that opens a request raises them, on any thread at any time; everything else here is
 * done by one thread, the agent.
 *
 * A lease is a time of the GPU's clock, so no lease is raised on a GPU before its clock has been
 * measured; until then batch work drains at the ends of launches, by what the boards say. (A guess
 * could be wrong by hours, and a lease in the far future would outlive its owner.) */
#ifndef GBPF_GPU_FLAG_LEASE_H
#define GBPF_GPU_FLAG_LEASE_H

#include "gpu/gpu.h"

#define GPU_LEASE_PAGES 256u

/* Adds a page, replacing one with the same number. fd: borrowed. gpu: device ordinal in this
 * process. slot: our word in the page. If a request is open on that GPU, the lease is raised at
 * once. Returns 0; -EINVAL; -ENOMEM; as gpu_lease_map. Agent. */
int gpu_lease_add(struct gpu_device *d, uint32_t number, int fd, uint32_t gpu, uint32_t slot);
/* Removes a page and clears our lease on it. The page stays mapped if a read-side section is still
 * open after 0.5 s. Agent, outside of read-side sections. */
void gpu_lease_remove(struct gpu_device *d, uint32_t number);
/* Writes all words again: a process that had the pages has exited and may have overwritten ours.
 * Agent. */
void gpu_leases_rewrite(struct gpu_device *d);
/* Returns the number of pages. Any thread. */
uint32_t gpu_lease_count(const struct gpu_device *d);

/* Sets a context of the GPU in which its clock is measured and a kernel can be launched ahead of a
 * request; until gpu_context_forget. Any thread. */
void gpu_lease_context(struct gpu_device *d, uint32_t gpu, CUcontext ctx);

/* As in sched_device_ops. gpu_lease: within a read-side section, or the agent; no lock and no
 * driver call. gpu_warm: agent. */
void gpu_lease(void *dev, uint32_t gpu, uint64_t until_ns);
void gpu_warm(void *dev, uint32_t gpu);

/* Measures the clocks that are due, of GPUs with pages or for which a lease was requested: every 30
 * s while no lease is up, and at once where pages wait for the first measurement. Returns ns until
 * the next call. May take some ms. Agent. */
uint64_t gpu_lease_measure_clocks(struct gpu_device *d, uint64_t now);

#endif
