/* How much device memory the driver says is taken: by this process, and on the whole device. From
 * NVML, which the driver's package installs next to libcuda. Figures are right to about a MiB. */
#ifndef GBPF_SHIM_MEM_DRIVER_USE_H
#define GBPF_SHIM_MEM_DRIVER_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

#define SHIM_MEM_UNKNOWN UINT64_MAX
#define SHIM_MEM_UNLISTED (UINT64_MAX - 1)

/* Stores the UUIDs by which NVML knows the devices. Called once, before the other functions. */
void shim_mem_use_init(uint8_t (*uuid)[16], uint32_t gpus);
/* Returns the device memory of this process, bytes, without managed memory;
 * SHIM_MEM_UNLISTED: NVML does not list it; SHIM_MEM_UNKNOWN: there is no NVML, or it does not say.
 * Calls take up to some milliseconds and are serialized. */
uint64_t shim_mem_use_of_process(CUdevice device);
/* Returns what is taken on the device by all processes, or SHIM_MEM_UNKNOWN. */
uint64_t shim_mem_use_of_device(CUdevice device);

#endif
