/* libnvidia-ml.so.1 for the soft GPU: the functions that monitoring programs use. Each call queries
 * the running server. Functions about things that a soft GPU lacks, such as a temperature, return
 * NOT_SUPPORTED. */
#include "soft/nvml/nvml_int.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "soft/identity.h"
#include "soft/query.h"

#define SAMPLE_NS 50000000u /* duration of the first measurement of the utilization */
#define INSTANCE_NONE 0xffffffffu
#define ARCH_AMPERE 7u

static struct {
	struct lock lock;
	unsigned users; /* number of nvmlInit calls not yet undone */
	unsigned gpus;
	struct nvml_device device[SOFT_MAX_GPUS];
} nvml = { .lock = LOCK_INITIALIZER(SOFT_NVML) };

static enum nvml_return from_errno(int err)
{
	switch (err) {
	case 0:
		return NVML_SUCCESS;
	case -EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case -ENODEV:
		return NVML_ERROR_NOT_FOUND;
	case -ENOENT:
	case -ECONNREFUSED:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

enum nvml_return nvml_ask(uint32_t gpu, uint32_t first, struct soft_gpu_info *ret)
{
	struct soft_query q;
	int err = soft_query_open(&q);

	if (err == 0) {
		err = soft_query_gpu(&q, gpu, first, ret);
		soft_query_close(&q);
	}
	return from_errno(err);
}

static enum nvml_return init(void)
{
	struct soft_gpu_info info;
	enum nvml_return r = nvml_ask(0, 0, &info);

	if (r) {
		return r;
	}
	lock_take(&nvml.lock);
	nvml.users++;
	nvml.gpus = MIN(info.gpus, SOFT_MAX_GPUS);
	for (uint32_t i = 0; i < SOFT_MAX_GPUS; i++) {
		nvml.device[i].gpu = i;
	}
	lock_release(&nvml.lock);
	return NVML_SUCCESS;
}

enum nvml_return nvml_check(nvmlDevice_t d, bool arguments)
{
	enum nvml_return r = NVML_SUCCESS;

	lock_take(&nvml.lock);
	if (!nvml.users) {
		r = NVML_ERROR_UNINITIALIZED;
	} else if (!arguments || d < nvml.device || d >= nvml.device + nvml.gpus) {
		r = NVML_ERROR_INVALID_ARGUMENT;
	}
	lock_release(&nvml.lock);
	return r;
}

static enum nvml_return look(nvmlDevice_t d, bool arguments, struct soft_gpu_info *ret)
{
	enum nvml_return r = nvml_check(d, arguments);

	return r ? r : nvml_ask(d->gpu, 0, ret);
}

static enum nvml_return put_text(char *out, unsigned room, const char *text)
{
	if (!out || !room) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	return (unsigned)snprintf(out, room, "%s", text) < room ? NVML_SUCCESS
								: NVML_ERROR_INSUFFICIENT_SIZE;
}

static enum nvml_return put(nvmlDevice_t d, unsigned *out, unsigned value)
{
	enum nvml_return r = nvml_check(d, out != NULL);

	if (!r) {
		*out = value;
	}
	return r;
}

/* ---- library ---- */

EXPORT enum nvml_return nvmlInit_v2(void)
{
	return init();
}

EXPORT enum nvml_return nvmlInit(void)
{
	return init();
}

EXPORT enum nvml_return nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return init();
}

EXPORT enum nvml_return nvmlShutdown(void)
{
	enum nvml_return r = NVML_ERROR_UNINITIALIZED;

	lock_take(&nvml.lock);
	if (nvml.users) {
		nvml.users--;
		r = NVML_SUCCESS;
	}
	lock_release(&nvml.lock);
	return r;
}

EXPORT const char *nvmlErrorString(enum nvml_return r)
{
	switch (r) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "The soft GPU has no such thing";
	case NVML_ERROR_NO_PERMISSION:
		return "The soft GPU is another user's";
	case NVML_ERROR_NOT_FOUND:
		return "Not found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "No soft GPU runs: it starts with the first program";
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return "Function not found";
	default:
		return "Unknown error";
	}
}

static enum nvml_return system_text(char *out, unsigned room, const char *text)
{
	return nvml.users ? put_text(out, room, text) : NVML_ERROR_UNINITIALIZED;
}

EXPORT enum nvml_return nvmlSystemGetDriverVersion(char *out, unsigned room)
{
	return system_text(out, room, "580.0-gbpf-soft");
}

EXPORT enum nvml_return nvmlSystemGetNVMLVersion(char *out, unsigned room)
{
	return system_text(out, room, "13.0-gbpf-soft");
}

static enum nvml_return cuda_version(int *ret)
{
	if (!ret) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*ret = SOFT_CUDA_VERSION;
	return NVML_SUCCESS;
}

EXPORT enum nvml_return nvmlSystemGetCudaDriverVersion(int *ret)
{
	return cuda_version(ret);
}

EXPORT enum nvml_return nvmlSystemGetCudaDriverVersion_v2(int *ret)
{
	return cuda_version(ret);
}

EXPORT enum nvml_return nvmlSystemGetProcessName(unsigned pid, char *out, unsigned room)
{
	char path[32], name[256] = "";
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	f = fopen(path, "re");
	if (!f) {
		return NVML_ERROR_NOT_FOUND;
	}
	n = fread(name, 1, sizeof(name) - 1, f);
	fclose(f);
	return n ? put_text(out, room, name) : NVML_ERROR_NOT_FOUND;
}

/* ---- devices ---- */

static enum nvml_return count(unsigned *ret)
{
	if (!nvml.users || !ret) {
		return ret ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	}
	*ret = nvml.gpus;
	return NVML_SUCCESS;
}

EXPORT enum nvml_return nvmlDeviceGetCount_v2(unsigned *ret)
{
	return count(ret);
}

EXPORT enum nvml_return nvmlDeviceGetCount(unsigned *ret)
{
	return count(ret);
}

static enum nvml_return by_index(unsigned i, nvmlDevice_t *ret)
{
	if (!nvml.users) {
		return NVML_ERROR_UNINITIALIZED;
	}
	if (!ret || i >= nvml.gpus) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*ret = &nvml.device[i];
	return NVML_SUCCESS;
}

EXPORT enum nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *ret)
{
	return by_index(i, ret);
}

EXPORT enum nvml_return nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *ret)
{
	return by_index(i, ret);
}

EXPORT enum nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *ret)
{
	char own[48];

	for (unsigned i = 0; uuid && i < nvml.gpus; i++) {
		soft_identity_text(own, i);
		if (strcmp(own, uuid) == 0) {
			return by_index(i, ret);
		}
	}
	return uuid ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

static enum nvml_return by_bus(const char *id, nvmlDevice_t *ret)
{
	unsigned domain, bus, device;

	if (!id || sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (unsigned i = 0; i < nvml.gpus; i++) {
		if (domain == 0 && device == 0 && bus == soft_identity_bus(i)) {
			return by_index(i, ret);
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

EXPORT enum nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *ret)
{
	return by_bus(id, ret);
}

EXPORT enum nvml_return nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *ret)
{
	return by_bus(id, ret);
}

EXPORT enum nvml_return nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned room)
{
	enum nvml_return r = nvml_check(d, out != NULL);

	return r ? r : put_text(out, room, SOFT_NAME);
}

EXPORT enum nvml_return nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned room)
{
	enum nvml_return r = nvml_check(d, out != NULL);
	char own[48];

	if (r) {
		return r;
	}
	soft_identity_text(own, d->gpu);
	return put_text(out, room, own);
}

EXPORT enum nvml_return nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *ret)
{
	enum nvml_return r = nvml_check(d, ret != NULL);

	return r ? r : put(d, ret, d->gpu);
}

EXPORT enum nvml_return nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *ret)
{
	return nvmlDeviceGetIndex(d, ret);
}

static enum nvml_return pci(nvmlDevice_t d, struct nvml_pci *ret)
{
	enum nvml_return r = nvml_check(d, ret != NULL);

	if (r) {
		return r;
	}
	memset(ret, 0, sizeof(*ret));
	ret->bus = soft_identity_bus(d->gpu);
	snprintf(ret->bus_legacy, sizeof(ret->bus_legacy), "0000:%02X:00.0", ret->bus);
	snprintf(ret->bus_id, sizeof(ret->bus_id), "00000000:%02X:00.0", ret->bus);
	return NVML_SUCCESS;
}

EXPORT enum nvml_return nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, struct nvml_pci *ret)
{
	return pci(d, ret);
}

EXPORT enum nvml_return nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
	enum nvml_return r = nvml_check(d, major && minor);

	if (!r) {
		*major = SOFT_ARCH / 10;
		*minor = SOFT_ARCH % 10;
	}
	return r;
}

EXPORT enum nvml_return nvmlDeviceGetArchitecture(nvmlDevice_t d, unsigned *ret)
{
	return put(d, ret, ARCH_AMPERE);
}

EXPORT enum nvml_return nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct nvml_memory *ret)
{
	struct soft_gpu_info info;
	enum nvml_return r = look(d, ret != NULL, &info);

	if (!r) {
		*ret = (struct nvml_memory){ info.memory_bytes,
					     info.memory_bytes - info.memory_used,
					     info.memory_used };
	}
	return r;
}

EXPORT enum nvml_return nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct nvml_memory_v2 *ret)
{
	const unsigned version = NVML_VERSION(*ret, 2u);
	struct soft_gpu_info info;
	enum nvml_return r = look(d, ret != NULL, &info);

	if (!r && ret->version != version) {
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	if (!r) {
		*ret = (struct nvml_memory_v2){ version, info.memory_bytes, 0,
						info.memory_bytes - info.memory_used,
						info.memory_used };
	}
	return r;
}

/* Measures since the last sample; takes one first if there is none. */
EXPORT enum nvml_return nvmlDeviceGetUtilizationRates(nvmlDevice_t d, struct nvml_utilization *ret)
{
	struct soft_gpu_info now;
	enum nvml_return r = look(d, ret != NULL, &now);
	struct soft_gpu_info *before;

	if (r) {
		return r;
	}
	lock_take(&nvml.lock);
	before = &d->before;
	if (before->pid != now.pid) {
		*before = now;
		clock_sleep_ns(SAMPLE_NS);
		r = nvml_ask(d->gpu, 0, &now);
	}
	if (!r && now.now_ns > before->now_ns + SAMPLE_NS / 2) {
		d->busy = (unsigned)MIN(100 * (now.busy_ns - before->busy_ns) /
						(now.now_ns - before->now_ns),
					100u);
		*before = now;
	}
	*ret = (struct nvml_utilization){ d->busy, 0 };
	lock_release(&nvml.lock);
	return r;
}

EXPORT enum nvml_return nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *ret)
{
	struct soft_gpu_info info;
	enum nvml_return r = look(d, ret != NULL, &info);

	(void)type;
	if (!r) {
		*ret = info.clock_khz / 1000;
	}
	return r;
}

EXPORT enum nvml_return nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned type, unsigned *ret)
{
	return nvmlDeviceGetClockInfo(d, type, ret);
}

/* Lists the programs that have contexts on the GPU, each once. */
static enum nvml_return processes(nvmlDevice_t d, struct nvml_process *out, unsigned room,
				  unsigned *ret_n)
{
	struct soft_gpu_info info;
	enum nvml_return r = NVML_SUCCESS;
	unsigned n = 0;

	for (uint32_t first = 0; !r;) {
		r = nvml_ask(d->gpu, first, &info);
		for (uint32_t i = 0; !r && i < info.n; i++) {
			const struct soft_group_info *g = &info.group[i];
			unsigned k = 0;

			while (k < MIN(n, room) && out[k].pid != (unsigned)g->pid) {
				k++;
			}
			if (k < MIN(n, room)) {
				out[k].used += g->memory_bytes;
				continue;
			}
			if (n < room) {
				out[n] = (struct nvml_process){ (unsigned)g->pid, g->memory_bytes,
								INSTANCE_NONE, INSTANCE_NONE };
			}
			n++;
		}
		first += info.n;
		if (!info.n || first >= info.groups) {
			break;
		}
	}
	*ret_n = n;
	return r ? r : n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static enum nvml_return list_processes(nvmlDevice_t d, unsigned *n, struct nvml_process *out)
{
	enum nvml_return r = nvml_check(d, n && (out || *n == 0));

	return r ? r : processes(d, out, *n, n);
}

EXPORT enum nvml_return nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n,
								struct nvml_process *out)
{
	return list_processes(d, n, out);
}

EXPORT enum nvml_return nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned *n,
								struct nvml_process *out)
{
	return list_processes(d, n, out);
}

EXPORT enum nvml_return nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *n,
							     struct nvml_process_v1 *out)
{
	struct nvml_process all[SOFT_MAX_CLIENTS];
	enum nvml_return r = nvml_check(d, n && (out || *n == 0));
	unsigned room = r ? 0 : *n, have = 0;

	if (r) {
		return r;
	}
	r = processes(d, all, ARRAY_SIZE(all), &have);
	for (unsigned i = 0; !r && i < MIN(have, room); i++) {
		out[i] = (struct nvml_process_v1){ all[i].pid, all[i].used };
	}
	*n = have;
	return r ? r : have > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static enum nvml_return none(nvmlDevice_t d, unsigned *n)
{
	return put(d, n, 0);
}

EXPORT enum nvml_return nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned *n,
								 void *out)
{
	(void)out;
	return none(d, n);
}

EXPORT enum nvml_return nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t d, unsigned *n,
								 void *out)
{
	(void)out;
	return none(d, n);
}

EXPORT enum nvml_return nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t d, unsigned *n,
							      void *out)
{
	(void)out;
	return none(d, n);
}

/* ---- constant states ---- */
EXPORT enum nvml_return nvmlDeviceGetComputeMode(nvmlDevice_t d, unsigned *ret)
{
	return put(d, ret, 0); /* default: shared */
}

EXPORT enum nvml_return nvmlDeviceGetPersistenceMode(nvmlDevice_t d, unsigned *ret)
{
	return put(d, ret, 0);
}

EXPORT enum nvml_return nvmlDeviceGetDisplayMode(nvmlDevice_t d, unsigned *ret)
{
	return put(d, ret, 0);
}

EXPORT enum nvml_return nvmlDeviceGetDisplayActive(nvmlDevice_t d, unsigned *ret)
{
	return put(d, ret, 0);
}

/* ---- missing hardware ---- */
#define MISSING(name, ...)                                                                         \
	EXPORT enum nvml_return name(nvmlDevice_t d, __VA_ARGS__)                                  \
	{                                                                                          \
		enum nvml_return r = nvml_check(d, true);                                          \
                                                                                                   \
		return r ? r : NVML_ERROR_NOT_SUPPORTED;                                           \
	}
MISSING(nvmlDeviceGetTemperature, unsigned sensor, unsigned *ret)
MISSING(nvmlDeviceGetTemperatureThreshold, unsigned which, unsigned *ret)
MISSING(nvmlDeviceGetPowerUsage, unsigned *ret)
MISSING(nvmlDeviceGetEnforcedPowerLimit, unsigned *ret)
MISSING(nvmlDeviceGetPowerManagementLimit, unsigned *ret)
MISSING(nvmlDeviceGetTotalEnergyConsumption, unsigned long long *ret)
MISSING(nvmlDeviceGetFanSpeed, unsigned *ret)
MISSING(nvmlDeviceGetPerformanceState, unsigned *ret)
MISSING(nvmlDeviceGetSerial, char *out, unsigned room)
MISSING(nvmlDeviceGetVbiosVersion, char *out, unsigned room)
MISSING(nvmlDeviceGetMigMode, unsigned *now, unsigned *pending)
MISSING(nvmlDeviceGetEccMode, unsigned *now, unsigned *pending)
MISSING(nvmlDeviceGetEncoderUtilization, unsigned *ret, unsigned *period)
MISSING(nvmlDeviceGetDecoderUtilization, unsigned *ret, unsigned *period)
MISSING(nvmlDeviceGetPcieThroughput, unsigned which, unsigned *ret)
MISSING(nvmlDeviceGetBAR1MemoryInfo, struct nvml_memory *ret)
