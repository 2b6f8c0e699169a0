/* NVML as far as it is needed here: types as in the NVML API reference, layouts as its binary
 * interface fixes them. The library stays loaded. It is opened by the path that belongs to the
 * driver's libcuda, since the loader may find another one of the same name first. */
#include "shim/mem/driver_use.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/lock.h"
#include "proto/pages.h"
#include "shim/real_driver.h"
#include "shim/shim.h"

#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#define LIBRARY "libnvidia-ml.so.1"
#define NVML_OK 0
#define PROCESSES 512u /* of a device; with more of them NVML's list is not read */

struct nvml_process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};
struct nvml_memory {
	unsigned long long total, free, used;
};
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t");

static struct lock mutex = LOCK_INITIALIZER(MEM_DRIVER_USE);
static char names[PROTO_MAX_GPUS][48]; /* "GPU-..."; empty: no such device. Constant once set */
static struct {
	bool tried;
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **ret);
	int (*processes)(void *gpu, unsigned *n, struct nvml_process *out);
	int (*memory)(void *gpu, struct nvml_memory *out);
} nvml GUARDED_BY(mutex);

void shim_mem_use_init(uint8_t (*uuid)[16], uint32_t gpus)
{
	for (uint32_t i = 0; i < MIN(gpus, PROTO_MAX_GPUS); i++) {
		int n = snprintf(names[i], sizeof(names[i]), "GPU-");

		for (int k = 0; k < 16; k++) {
			n += snprintf(names[i] + n, sizeof(names[i]) - (size_t)n, "%s%02x",
				      k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", uuid[i][k]);
		}
	}
}

/* Opens the library in the folder of the library that has this address. */
static void *open_next_to(const void *address)
{
	char path[PATH_MAX];
	const char *slash;
	Dl_info info;
	int n;

	if (!address || !dladdr(address, &info) || !info.dli_fname) {
		return NULL;
	}
	slash = strrchr(info.dli_fname, '/');
	n = slash ? snprintf(path, sizeof(path), "%.*s/" LIBRARY, (int)(slash - info.dli_fname),
			     info.dli_fname)
		  : -1;
	return n > 0 && (size_t)n < sizeof(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* Opens the driver's library, behind gBPF's own: the loader gives a program that asks for the name
 * the one that was loaded first. */
static void *open_library(void)
{
	static const char own;

	(void)open_next_to(&own);
	return open_next_to(shim_real_symbol("cuInit"));
}

/* Returns true if NVML can be asked. */
static bool load(void) REQUIRES(mutex)
{
	void *library;

	if (nvml.tried) {
		return nvml.init != NULL;
	}
	nvml.tried = true;
	library = open_library();
	if (!library) {
		return false;
	}
	nvml.by_uuid = (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
	nvml.processes = (int (*)(void *, unsigned *, struct nvml_process *))dlsym(
		library, "nvmlDeviceGetComputeRunningProcesses_v3");
	nvml.memory =
		(int (*)(void *, struct nvml_memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
	nvml.init = (int (*)(void))dlsym(library, "nvmlInit_v2");
	if (!nvml.by_uuid || !nvml.processes || !nvml.memory || !nvml.init ||
	    nvml.init() != NVML_OK) {
		nvml.init = NULL;
	}
	return nvml.init != NULL;
}

/* Returns NVML's handle of a device, or NULL. */
static void *device_of(CUdevice device) REQUIRES(mutex)
{
	void *gpu;

	return device >= 0 && device < (int)PROTO_MAX_GPUS && names[device][0] && load() &&
			       nvml.by_uuid(names[device], &gpu) == NVML_OK
		       ? gpu
		       : NULL;
}

/* Returns the sum of the process's entries: a process has one in each part of a divided GPU. */
static uint64_t sum_of(const struct nvml_process *list, unsigned n)
{
	bool is_listed = false;
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (list[i].pid != (unsigned)getpid()) {
			continue;
		}
		is_listed = true;
		if (__builtin_add_overflow(sum, list[i].used, &sum) || sum > INT64_MAX) {
			return SHIM_MEM_UNKNOWN; /* NVML_VALUE_NOT_AVAILABLE is all ones */
		}
	}
	return is_listed ? sum : SHIM_MEM_UNLISTED;
}

uint64_t shim_mem_use_of_process(CUdevice device)
{
	static struct nvml_process list[PROCESSES] GUARDED_BY(mutex);
	uint64_t bytes = SHIM_MEM_UNKNOWN;
	unsigned n = PROCESSES;
	void *gpu;

	lock_take(&mutex);
	gpu = device_of(device);
	if (gpu && nvml.processes(gpu, &n, list) == NVML_OK && n <= PROCESSES) {
		bytes = sum_of(list, n);
	}
	lock_release(&mutex);
	return bytes;
}

uint64_t shim_mem_use_of_device(CUdevice device)
{
	struct nvml_memory memory;
	uint64_t bytes = SHIM_MEM_UNKNOWN;
	void *gpu;

	lock_take(&mutex);
	gpu = device_of(device);
	if (gpu && nvml.memory(gpu, &memory) == NVML_OK) {
		bytes = memory.used;
	}
	lock_release(&mutex);
	return bytes;
}
