/* NVML as far as it is needed here: types as in the NVML API reference, layouts as its binary
 * interface fixes them. The library stays loaded: only the control thread uses it. An NVML without
 * these functions, or without a driver, measures nothing. */
#include "daemon/idle/gpu_use.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/paths.h"

#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#define NVML_OK 0
#define NVML_NOT_SUPPORTED 3
#define SAMPLES 1024u /* the driver buffers 72 on an H100, more with more processes */

struct nvml_process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};
struct nvml_sample {
	unsigned pid;
	unsigned long long at_us;
	unsigned sm, memory, encoder, decoder; /* per cent */
};
struct nvml_memory {
	unsigned version;
	unsigned long long total, reserved, free, used; /* reserved: for driver and firmware */
};
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory) | 2u << 24)
_Static_assert(sizeof(struct nvml_memory) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(struct nvml_sample) == 32, "nvmlProcessUtilizationSample_t");

static struct {
	void *library;
	bool ready;
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **ret);
	int (*processes)(void *gpu, unsigned *n, struct nvml_process *out);
	int (*samples)(void *gpu, struct nvml_sample *out, unsigned *n, unsigned long long after);
	int (*memory)(void *gpu, struct nvml_memory *out); /* NULL before driver 510 */
	unsigned long long seen_us[PROTO_MAX_GPUS];	   /* newest sample that was read */
} nvml;

static bool load(const char *path)
{
	if (!nvml.library) {
		nvml.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!nvml.library) {
			return false;
		}
		nvml.init = (int (*)(void))dlsym(nvml.library, "nvmlInit_v2");
		nvml.by_uuid = (int (*)(const char *, void **))dlsym(nvml.library,
								     "nvmlDeviceGetHandleByUUID");
		nvml.processes = (int (*)(void *, unsigned *, struct nvml_process *))dlsym(
			nvml.library, "nvmlDeviceGetComputeRunningProcesses_v3");
		nvml.samples =
			(int (*)(void *, struct nvml_sample *, unsigned *, unsigned long long))
				dlsym(nvml.library, "nvmlDeviceGetProcessUtilization");
		nvml.memory = (int (*)(void *, struct nvml_memory *))dlsym(
			nvml.library, "nvmlDeviceGetMemoryInfo_v2");
	}
	if (!nvml.ready && nvml.init && nvml.by_uuid && nvml.processes && nvml.samples) {
		nvml.ready = nvml.init() == NVML_OK; /* the soft GPU may start later */
	}
	return nvml.ready;
}

void daemon_gpu_use_library(const char *kind, char out[4096])
{
	if (strcmp(kind, "soft") != 0 || path_lib(out, 4096, "soft/libnvidia-ml.so.1") < 0) {
		snprintf(out, 4096, "libnvidia-ml.so.1");
	}
}

const struct daemon_gpu_use_process *daemon_gpu_use_find(const struct daemon_gpu_use_gpu *g,
							 int pid)
{
	for (unsigned i = 0; i < g->n; i++) {
		if ((int)g->process[i].pid == pid) {
			return &g->process[i];
		}
	}
	return NULL;
}

static void note_sample(struct daemon_gpu_use_gpu *g, const struct nvml_sample *s)
{
	for (unsigned i = 0; i < g->n; i++) {
		if (g->process[i].pid == s->pid && (s->sm || s->memory)) {
			g->process[i].has_worked = true;
		}
	}
}

static void measure(struct daemon_gpu_use_gpu *g, unsigned long long *seen_us)
{
	static struct nvml_process found[DAEMON_GPU_USE_PROCESSES];
	static struct nvml_sample sample[SAMPLES];
	unsigned n = DAEMON_GPU_USE_PROCESSES, n_samples = SAMPLES;
	unsigned long long newest = *seen_us;
	void *gpu;
	int err;

	if (nvml.by_uuid(g->uuid, &gpu) != NVML_OK || nvml.processes(gpu, &n, found) != NVML_OK) {
		return; /* too many processes to tell counts as not measured, too */
	}
	g->n = MIN(n, DAEMON_GPU_USE_PROCESSES);
	for (unsigned i = 0; i < g->n; i++) {
		g->process[i] = (struct daemon_gpu_use_process){ .pid = found[i].pid };
	}
	err = nvml.samples(gpu, sample, &n_samples, *seen_us);
	n_samples = err == NVML_OK ? n_samples : 0;
	for (unsigned i = 0; err == NVML_NOT_SUPPORTED && i < g->n; i++) {
		g->process[i].has_worked =
			true; /* as in a part of a divided GPU: no use is reported */
	}
	for (unsigned i = 0; i < MIN(n_samples, SAMPLES); i++) {
		note_sample(g, &sample[i]);
		newest = MAX(newest, sample[i].at_us);
	}
	*seen_us = newest;
	g->measured = true;
}

void daemon_gpu_use_measure(struct daemon_job *j)
{
	struct daemon_gpu_use *u = (struct daemon_gpu_use *)j;

	if (!load(u->library)) {
		return;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (u->gpu[i].uuid[0]) {
			measure(&u->gpu[i], &nvml.seen_us[i]);
		}
	}
}

void daemon_gpu_size_measure(struct daemon_job *j)
{
	struct daemon_gpu_size *q = (struct daemon_gpu_size *)j;
	struct nvml_memory m = { .version = NVML_MEMORY_V2 };
	void *gpu;

	if (load(q->library) && nvml.memory && nvml.by_uuid(q->uuid, &gpu) == NVML_OK &&
	    nvml.memory(gpu, &m) == NVML_OK && m.reserved < m.total) {
		q->bytes = m.total - m.reserved;
	}
}
