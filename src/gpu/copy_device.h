/* mem's device operations for copies (mem/mem_device.h) on a driver table. */
#ifndef GBPF_GPU_COPY_DEVICE_H
#define GBPF_GPU_COPY_DEVICE_H

#include <stdbool.h>

#include "cuabi/table.h"
#include "mem/mem_device.h"
#include "mem/numa.h"

/* The queue of an operation: a stream as the program names it. */
struct gpu_copy_queue {
	CUstream stream;
	bool per_thread; /* a null stream is the calling thread's own default stream */
};

/* dev: struct cuabi_table. The context of the pieces is current. Errors are CUresults. */
extern const struct mem_device_ops gpu_copy_ops;

/* Returns true if the driver knows all of it as host memory, at these addresses of the CPU, in one
 * mapping: it refuses a copy beyond that as a whole. The range is what was allocated, or all that
 * was reserved for cuMemMap; the mapping is what was mapped at a time, or more than what was
 * allocated (H200). */
bool gpu_copy_is_host(const struct cuabi_table *real, CUdeviceptr p, size_t bytes);

/* Returns the host's NUMA node next to a device, by the driver or the sysfs mounted at that folder,
 * as mem_numa_find(). */
struct mem_numa gpu_copy_numa(const struct cuabi_table *real, CUdevice device, const char *sysfs);

#endif
