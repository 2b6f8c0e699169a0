/* An NVML with the functions that gbpfd uses, whose answers the test sets: in the variable, or, for
 * one that a gbpfd has loaded, by the environment. */
#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define NVML_INSUFFICIENT_SIZE 7

struct process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

struct memory {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

EXPORT struct fake_nvml fake_nvml;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory *out);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *n, struct process *out);
EXPORT int nvmlDeviceGetProcessUtilization(void *gpu, struct fake_nvml_sample *out, unsigned *n,
					   unsigned long long after);

int nvmlInit_v2(void)
{
	fake_nvml.inits++;
	return fake_nvml.init;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret)
{
	snprintf(fake_nvml.uuid, sizeof(fake_nvml.uuid), "%s", uuid);
	*ret = &fake_nvml;
	return fake_nvml.by_uuid;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *n, struct process *out)
{
	unsigned room = *n;

	__atomic_fetch_add(&fake_nvml.measures, 1u, __ATOMIC_SEQ_CST);
	*n = fake_nvml.n_processes;
	if (gpu != &fake_nvml || fake_nvml.n_processes > room) {
		return NVML_INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < fake_nvml.n_processes; i++) {
		out[i] = (struct process){ .pid = fake_nvml.process[i] };
	}
	return fake_nvml.processes;
}

int nvmlDeviceGetProcessUtilization(void *gpu, struct fake_nvml_sample *out, unsigned *n,
				    unsigned long long after)
{
	fake_nvml.after_us = after;
	*n = fake_nvml.n_samples;
	for (unsigned i = 0; i < fake_nvml.n_samples; i++) {
		out[i] = fake_nvml.sample[i];
	}
	return gpu == &fake_nvml ? fake_nvml.samples : NVML_INSUFFICIENT_SIZE;
}

/* FAKE_NVML_TOTAL: bytes, of which 8 MiB are reserved. */
int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory *out)
{
	const char *total = getenv("FAKE_NVML_TOTAL");

	if (gpu != &fake_nvml || !total || out->version != (2u << 24 | sizeof(*out))) {
		return NVML_INSUFFICIENT_SIZE;
	}
	out->total = strtoull(total, NULL, 10);
	out->reserved = 8u << 20;
	return 0;
}
