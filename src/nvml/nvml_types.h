/* The part of NVIDIA's management library that gBPF interprets or, for the soft GPU, implements:
 * types as in the NVML API reference, layouts as its binary interface fixes them. */
#ifndef GBPF_NVML_NVML_TYPES_H
#define GBPF_NVML_NVML_TYPES_H

#include <stdint.h>

enum nvml_return {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

typedef struct nvml_device *nvmlDevice_t;

/* The version word of a structure: its size, and the number of its layout. */
#define NVML_VERSION(type, number) ((unsigned)sizeof(type) | (number) << 24)

struct nvml_memory {
	unsigned long long total, free, used; /* bytes */
};
struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};
struct nvml_utilization {
	unsigned gpu, memory; /* per cent */
};
struct nvml_process_v1 {
	unsigned pid;
	unsigned long long used;
};
struct nvml_process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};
struct nvml_process_detail {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
	unsigned long long protected_used;
};
struct nvml_process_list {
	unsigned version, mode;
	unsigned n; /* of process: room on input, then their number */
	struct nvml_process_detail *process;
};
struct nvml_process_sample {
	unsigned pid;
	unsigned long long at_us;	       /* wall-clock time */
	unsigned sm, memory, encoder, decoder; /* per cent */
};
struct nvml_process_use {
	unsigned long long at_us; /* wall-clock time */
	unsigned pid;
	unsigned sm, memory, encoder, decoder, jpeg, ofa; /* per cent */
};
struct nvml_process_use_list {
	unsigned version;
	unsigned n; /* of process: room on input, then their number */
	unsigned long long after_us;
	struct nvml_process_use *process;
};
struct nvml_pci {
	char bus_legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

_Static_assert(sizeof(struct nvml_memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(struct nvml_process_sample) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(struct nvml_process_detail) == 32, "nvmlProcessDetail_v1_t");
_Static_assert(sizeof(struct nvml_process_list) == 24, "nvmlProcessDetailList_v1_t");
_Static_assert(sizeof(struct nvml_process_use) == 40, "nvmlProcessUtilizationInfo_v1_t");
_Static_assert(sizeof(struct nvml_process_use_list) == 24, "nvmlProcessesUtilizationInfo_v1_t");
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");

#endif
