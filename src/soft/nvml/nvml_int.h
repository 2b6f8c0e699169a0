/* What the files of this library share. */
#ifndef GBPF_SOFT_NVML_NVML_INT_H
#define GBPF_SOFT_NVML_NVML_INT_H

#include <stdbool.h>

#include "nvml/nvml_types.h"
#include "soft/protocol.h"

/* Work of one process up to a sample: process_use.c. */
struct nvml_use {
	int32_t pid; /* 0: free */
	uint64_t run_ns, bytes_copied;
	struct nvml_process_sample sample; /* the last one; at_us 0: none */
};

/* The target of a handle. Statically allocated, so a stale handle is harmless. */
struct nvml_device {
	uint32_t gpu;
	struct soft_gpu_info before; /* last sample, for the utilization */
	unsigned busy;
	struct nvml_use use[SOFT_MAX_CLIENTS];
};

/* Asks the server about a GPU and its contexts from number `first` on. */
enum nvml_return nvml_ask(uint32_t gpu, uint32_t first, struct soft_gpu_info *ret);
/* Returns NVML_SUCCESS if the library is initialized, the handle valid and the arguments present.
 */
enum nvml_return nvml_check(nvmlDevice_t d, bool arguments);

#endif
