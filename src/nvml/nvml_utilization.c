/* Utilization: in a vGPU, that of its processes. The rates are the sum of the processes' newest
 * samples, at most the device's rates; where the driver has no samples of processes (a part of a
 * divided GPU, for example), they are the device's. */
#include "base/clock.h"
#include "nvml/nvml_lists.h"

#include <stdlib.h>

#define SAMPLE_NS 2000000000u /* an older sample does not count for the rates */

static const struct nvml_entry entry_sample = { sizeof(struct nvml_process_sample),
						offsetof(struct nvml_process_sample, pid),
						SIZE_MAX };
static const struct nvml_entry entry_use = { sizeof(struct nvml_process_use),
					     offsetof(struct nvml_process_use, pid), SIZE_MAX };

static enum nvml_return fetch_samples(nvmlDevice_t d, void *out, unsigned *n, const void *arg)
{
	return NVML_REAL(nvmlDeviceGetProcessUtilization)(d, out, n,
							  *(const unsigned long long *)arg);
}

static enum nvml_return fetch_uses(nvmlDevice_t d, void *out, unsigned *n, const void *arg)
{
	struct nvml_process_use_list list = *(const struct nvml_process_use_list *)arg;
	enum nvml_return r;

	list.n = *n;
	list.process = out;
	r = NVML_REAL(nvmlDeviceGetProcessesUtilizationInfo)(d, &list);
	*n = list.n;
	return r;
}

/* Delivers samples: an empty list is NVML_ERROR_NOT_FOUND here, and a caller without a buffer asks
 * for their number. */
static enum nvml_return deliver(const struct nvml_entry *e, void *list, unsigned n, void *out,
				unsigned *room)
{
	if (!out) {
		*room = 0;
	}
	if (n) {
		return nvml_list_deliver(e, list, n, out, room);
	}
	(void)nvml_list_deliver(e, list, n, out, room);
	return NVML_ERROR_NOT_FOUND;
}

EXPORT enum nvml_return nvmlDeviceGetProcessUtilization(nvmlDevice_t d,
							struct nvml_process_sample *out,
							unsigned *n, unsigned long long after_us)
{
	struct proto_vgpu_view v;
	enum nvml_scope scope = nvml_scope_of(d, &v);
	enum nvml_return r;
	unsigned found;
	void *list;

	if (scope == NVML_SCOPE_DEVICE) {
		return NVML_REAL(nvmlDeviceGetProcessUtilization)(d, out, n, after_us);
	}
	if (scope == NVML_SCOPE_REFUSED) {
		return NVML_ERROR_NO_PERMISSION;
	}
	if (!n) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	r = nvml_list_fetch(d, &v, &entry_sample, fetch_samples, &after_us, &list, &found);
	return r ? r : deliver(&entry_sample, list, found, out, n);
}

EXPORT enum nvml_return nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d,
							      struct nvml_process_use_list *ret)
{
	struct proto_vgpu_view v;
	enum nvml_scope scope = nvml_scope_of(d, &v);
	enum nvml_return r;
	unsigned found;
	void *list;

	if (scope == NVML_SCOPE_DEVICE || !ret) {
		return NVML_REAL(nvmlDeviceGetProcessesUtilizationInfo)(d, ret);
	}
	if (scope == NVML_SCOPE_REFUSED) {
		return NVML_ERROR_NO_PERMISSION;
	}
	if (ret->version != NVML_VERSION(*ret, 1u)) {
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	r = nvml_list_fetch(d, &v, &entry_use, fetch_uses, ret, &list, &found);
	return r ? r : deliver(&entry_use, list, found, ret->process, &ret->n);
}

/* Returns true if a later sample of the same process follows. */
static bool is_superseded(const struct nvml_process_sample *s, unsigned n, unsigned i)
{
	for (unsigned k = 0; k < n; k++) {
		if (s[k].pid == s[i].pid &&
		    (s[k].at_us > s[i].at_us || (s[k].at_us == s[i].at_us && k > i))) {
			return true;
		}
	}
	return false;
}

EXPORT enum nvml_return nvmlDeviceGetUtilizationRates(nvmlDevice_t d, struct nvml_utilization *ret)
{
	enum nvml_return r = NVML_REAL(nvmlDeviceGetUtilizationRates)(d, ret);
	unsigned long long after_us = (clock_wall_ns() - SAMPLE_NS) / 1000, sm = 0, memory = 0;
	struct proto_vgpu_view v;
	enum nvml_scope scope = r ? NVML_SCOPE_DEVICE : nvml_scope_of(d, &v);
	unsigned n = 0;
	void *list = NULL;

	if (scope != NVML_SCOPE_VGPU) {
		return scope == NVML_SCOPE_REFUSED ? NVML_ERROR_NO_PERMISSION : r;
	}
	r = nvml_list_fetch(d, &v, &entry_sample, fetch_samples, &after_us, &list, &n);
	if (r != NVML_SUCCESS && r != NVML_ERROR_NOT_FOUND) {
		return NVML_SUCCESS; /* no samples of processes */
	}
	for (unsigned i = 0; i < n; i++) {
		const struct nvml_process_sample *s = list;

		if (!is_superseded(s, n, i)) {
			sm += s[i].sm;
			memory += s[i].memory;
		}
	}
	free(list);
	ret->gpu = (unsigned)MIN(ret->gpu, sm);
	ret->memory = (unsigned)MIN(ret->memory, memory);
	return NVML_SUCCESS;
}
