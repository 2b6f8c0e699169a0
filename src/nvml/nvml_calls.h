/* The functions that have code of their own, the driver's functions behind all, and the vGPU that
 * the process is in. */
#ifndef GBPF_NVML_NVML_CALLS_H
#define GBPF_NVML_NVML_CALLS_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "nvml/nvml_types.h"
#include "nvml/nvml_slots.h"
#include "proto/vgpu_view.h"

/* The driver's functions, by enum nvml_index. Until its library is loaded each slot leads to
 * nvml_resolve(), so that a call through it is valid at any time. Functions that the driver's
 * library lacks return NVML_ERROR_FUNCTION_NOT_FOUND, without a library
 * NVML_ERROR_LIBRARY_NOT_FOUND. */
extern void *nvml_slots[NVML_COUNT];
#define NVML_REAL(name)                                                                            \
	((union {                                                                                  \
		 void *slot;                                                                       \
		 __typeof__(name) *call;                                                           \
	 }){ .slot = load_acquire(&nvml_slots[NVML_INDEX_##name]) }                                \
		 .call)

/* Returns the driver's function of that index, after loading its library if necessary. Called by
 * the generated entry points. */
void *nvml_resolve(unsigned index);

enum nvml_scope {
	NVML_SCOPE_DEVICE,  /* forward the call: the process is in no vGPU */
	NVML_SCOPE_VGPU,    /* show the vGPU */
	NVML_SCOPE_REFUSED, /* the process may not use the GPU: return NVML_ERROR_NO_PERMISSION */
};
/* Returns what a call about a device is to show. Fills in *ret if that is the vGPU. */
enum nvml_scope nvml_scope_of(nvmlDevice_t d, struct proto_vgpu_view *ret);
/* Returns the process's entry, NULL if it is not in the vGPU. */
const struct proto_vgpu_process *nvml_vgpu_process(const struct proto_vgpu_view *v, unsigned pid);

/* ---- functions with code of their own; others of which it needs the type ---- */

const char *nvmlErrorString(enum nvml_return r);
enum nvml_return nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned room);
enum nvml_return nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *ret);
enum nvml_return nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct nvml_memory *ret);
enum nvml_return nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct nvml_memory_v2 *ret);

typedef enum nvml_return nvml_list_v1(nvmlDevice_t d, unsigned *n, struct nvml_process_v1 *out);
typedef enum nvml_return nvml_list(nvmlDevice_t d, unsigned *n, struct nvml_process *out);
nvml_list_v1 nvmlDeviceGetComputeRunningProcesses;
nvml_list_v1 nvmlDeviceGetGraphicsRunningProcesses;
nvml_list_v1 nvmlDeviceGetMPSComputeRunningProcesses;
nvml_list nvmlDeviceGetComputeRunningProcesses_v2;
nvml_list nvmlDeviceGetGraphicsRunningProcesses_v2;
nvml_list nvmlDeviceGetMPSComputeRunningProcesses_v2;
nvml_list nvmlDeviceGetComputeRunningProcesses_v3;
nvml_list nvmlDeviceGetGraphicsRunningProcesses_v3;
nvml_list nvmlDeviceGetMPSComputeRunningProcesses_v3;
enum nvml_return nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d,
						       struct nvml_process_list *ret);

enum nvml_return nvmlDeviceGetUtilizationRates(nvmlDevice_t d, struct nvml_utilization *ret);
enum nvml_return nvmlDeviceGetProcessUtilization(nvmlDevice_t d, struct nvml_process_sample *out,
						 unsigned *n, unsigned long long after_us);
enum nvml_return nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d,
						       struct nvml_process_use_list *ret);

#endif
