/* Device memory that gBPF itself takes in this process: flag pages, ticket counters. It is the
 * operator's, and so not counted to the program. */
#ifndef GBPF_GPU_OWN_MEMORY_H
#define GBPF_GPU_OWN_MEMORY_H

#include <stdint.h>

#include "cuabi/table.h"

/* Counts bytes that will be taken on the device of the current context, which *ret_device becomes,
 * or -1 if they cannot be counted; and bytes that were given back, or could not be taken, on the
 * device so returned. As much as there is or more is counted at any time, so that nothing of it is
 * taken for memory of the program. */
void gpu_own_memory_add(const struct cuabi_table *real, uint64_t bytes, CUdevice *ret_device);
void gpu_own_memory_sub(CUdevice device, uint64_t bytes);
/* Allocates memory that is counted so; an error of the driver: *ret is 0, and nothing is counted.
 */
CUresult gpu_own_memory_alloc(const struct cuabi_table *real, uint64_t bytes, CUdeviceptr *ret,
			      CUdevice *ret_device);
/* Frees memory of the current context that was so allocated, and counted on a device. */
void gpu_own_memory_free(const struct cuabi_table *real, CUdeviceptr mem, uint64_t bytes,
			 CUdevice device);
/* Returns what gBPF has taken on a device, bytes. */
uint64_t gpu_own_memory(CUdevice device);

#endif
