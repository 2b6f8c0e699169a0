/* Processes with contexts on a device: in a vGPU, those of the vGPU, with the memory that its
 * account has for them. A process that NVML lists under another number than gbpfd, as it may be in
 * containers, is not shown. */
#include "nvml/nvml_lists.h"

typedef union {
	nvml_list_v1 *v1;
	nvml_list *v2;
} list_call;

static const struct nvml_entry entry_v1 = { sizeof(struct nvml_process_v1),
					    offsetof(struct nvml_process_v1, pid),
					    offsetof(struct nvml_process_v1, used) };
static const struct nvml_entry entry_v2 = { sizeof(struct nvml_process),
					    offsetof(struct nvml_process, pid),
					    offsetof(struct nvml_process, used) };
static const struct nvml_entry entry_detail = { sizeof(struct nvml_process_detail),
						offsetof(struct nvml_process_detail, pid),
						offsetof(struct nvml_process_detail, used) };

static enum nvml_return fetch_v1(nvmlDevice_t d, void *out, unsigned *n, const void *arg)
{
	return ((const list_call *)arg)->v1(d, n, out);
}

static enum nvml_return fetch_v2(nvmlDevice_t d, void *out, unsigned *n, const void *arg)
{
	return ((const list_call *)arg)->v2(d, n, out);
}

static enum nvml_return fetch_detail(nvmlDevice_t d, void *out, unsigned *n, const void *arg)
{
	struct nvml_process_list list = *(const struct nvml_process_list *)arg;
	enum nvml_return r;

	list.n = *n;
	list.process = out;
	r = NVML_REAL(nvmlDeviceGetRunningProcessDetailList)(d, &list);
	*n = list.n;
	return r;
}

static enum nvml_return list_of_vgpu(nvmlDevice_t d, const struct proto_vgpu_view *v,
				     const struct nvml_entry *e, nvml_fetch *fetch, const void *arg,
				     unsigned *n, void *out)
{
	enum nvml_return r;
	unsigned found;
	void *list;

	if (!n || (*n && !out)) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	r = nvml_list_fetch(d, v, e, fetch, arg, &list, &found);
	return r ? r : nvml_list_deliver(e, list, found, out, n);
}

static enum nvml_return list_v1(nvmlDevice_t d, nvml_list_v1 *call, unsigned *n,
				struct nvml_process_v1 *out)
{
	const list_call c = { .v1 = call };
	struct proto_vgpu_view v;
	enum nvml_scope scope = nvml_scope_of(d, &v);

	return scope == NVML_SCOPE_DEVICE    ? call(d, n, out)
	       : scope == NVML_SCOPE_REFUSED ? NVML_ERROR_NO_PERMISSION
					     : list_of_vgpu(d, &v, &entry_v1, fetch_v1, &c, n, out);
}

static enum nvml_return list_v2(nvmlDevice_t d, nvml_list *call, unsigned *n,
				struct nvml_process *out)
{
	const list_call c = { .v2 = call };
	struct proto_vgpu_view v;
	enum nvml_scope scope = nvml_scope_of(d, &v);

	return scope == NVML_SCOPE_DEVICE    ? call(d, n, out)
	       : scope == NVML_SCOPE_REFUSED ? NVML_ERROR_NO_PERMISSION
					     : list_of_vgpu(d, &v, &entry_v2, fetch_v2, &c, n, out);
}

#define LISTS(kind)                                                                                \
	EXPORT enum nvml_return nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t d, unsigned *n, \
								      struct nvml_process_v1 *out) \
	{                                                                                          \
		return list_v1(d, NVML_REAL(nvmlDeviceGet##kind##RunningProcesses), n, out);       \
	}                                                                                          \
	EXPORT enum nvml_return nvmlDeviceGet##kind##RunningProcesses_v2(                          \
		nvmlDevice_t d, unsigned *n, struct nvml_process *out)                             \
	{                                                                                          \
		return list_v2(d, NVML_REAL(nvmlDeviceGet##kind##RunningProcesses_v2), n, out);    \
	}                                                                                          \
	EXPORT enum nvml_return nvmlDeviceGet##kind##RunningProcesses_v3(                          \
		nvmlDevice_t d, unsigned *n, struct nvml_process *out)                             \
	{                                                                                          \
		return list_v2(d, NVML_REAL(nvmlDeviceGet##kind##RunningProcesses_v3), n, out);    \
	}
LISTS(Compute)
LISTS(Graphics)
LISTS(MPSCompute)

EXPORT enum nvml_return nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d,
							      struct nvml_process_list *ret)
{
	struct proto_vgpu_view v;
	enum nvml_scope scope = nvml_scope_of(d, &v);

	if (scope == NVML_SCOPE_DEVICE || !ret) {
		return NVML_REAL(nvmlDeviceGetRunningProcessDetailList)(d, ret);
	}
	if (scope == NVML_SCOPE_REFUSED) {
		return NVML_ERROR_NO_PERMISSION;
	}
	if (ret->version != NVML_VERSION(*ret, 1u)) {
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	return list_of_vgpu(d, &v, &entry_detail, fetch_detail, ret, &ret->n, ret->process);
}
