/* The latency side of flag pages: the pages of the batch tenants, on which this process says that
 * its work goes first. Raising is done by whoever opens a request and may happen on any thread at
 * any time; everything else here is done by one thread, the agent.
 *
 * A lease is a time of the GPU's clock, so nothing is raised on a GPU whose clock has not been
 * measured yet: batch work there drains at the ends of launches meanwhile, by what the boards say.
 * (A guess could be wrong by hours, and a lease in the far future would outlive its owner.) */
#ifndef GBPF_GPU_FLAG_LEASE_H
#define GBPF_GPU_FLAG_LEASE_H

#include "gpu/gpu.h"

#define GPU_LEASE_PAGES 256u

/* fd: borrowed. gpu: device ordinal in this process. slot: our word in the page. A page that had
 * the number is removed first. When a request is open there, the lease stands at once. 0; -EINVAL;
 * -ENOMEM; what gpu_lease_map says. Agent. */
int gpu_lease_add(struct gpu_device *d, uint32_t number, int fd, uint32_t gpu, uint32_t slot);
/* Also takes our lease back from it. A page at which some thread may still be looking after half a
 * second stays mapped. Agent, outside of pins (policy/read.h). */
void gpu_lease_remove(struct gpu_device *d, uint32_t number);
/* Says on all pages once more what they should say: somebody who has them has gone, and may have
 * written over our words. Agent. */
void gpu_leases_rewrite(struct gpu_device *d);
/* How many pages there are. Any thread. */
uint32_t gpu_lease_count(const struct gpu_device *d);

/* A context of that GPU, in which its clock can be measured and a kernel be launched ahead of a
 * request; ends with gpu_context_gone. Any thread. */
void gpu_lease_context(struct gpu_device *d, uint32_t gpu, CUcontext ctx);

/* As sched_device_ops. gpu_lease: inside a pin, or the agent; no lock, no call to the driver.
 * gpu_warm: the agent. */
void gpu_lease(void *dev, uint32_t gpu, uint64_t until_ns);
void gpu_warm(void *dev, uint32_t gpu);

/* Measures clocks that are due, of GPUs with pages or for which a lease was asked: each 30 s while
 * no lease is up, and at once where pages wait for the first time. Nanoseconds until it wants to be
 * called again. May take some milliseconds. Agent. */
uint64_t gpu_lease_measure_clocks(struct gpu_device *d, uint64_t now);

#endif
