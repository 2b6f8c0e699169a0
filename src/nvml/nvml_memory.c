/* Memory as cuMemGetInfo and cuDeviceTotalMem show it: of the device's size, the part that CUDA
 * programs get, or the limit if that is less; free is what the vGPU may still take, but not more
 * than the device has; and in addition the vGPU's swap, and what is left of it, if that is shown.
 */
#include "nvml/nvml_calls.h"

/* Shows the vGPU in m, which has the device's figures. Without this view, m is unchanged. */
static enum nvml_return show(nvmlDevice_t d, struct nvml_memory_v2 *m)
{
	struct proto_vgpu_view v;

	switch (nvml_scope_of(d, &v)) {
	case NVML_SCOPE_REFUSED:
		return NVML_ERROR_NO_PERMISSION;
	case NVML_SCOPE_VGPU:
		m->total = MIN(m->total - MIN(m->reserved, m->total), v.limit) + v.swap;
		m->free = MIN(m->free, v.left) + v.swap_left;
		m->used = v.used + v.swap - v.swap_left;
		m->reserved = 0;
		break;
	default:
		break;
	}
	return NVML_SUCCESS;
}

EXPORT enum nvml_return nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct nvml_memory_v2 *ret)
{
	enum nvml_return r = NVML_REAL(nvmlDeviceGetMemoryInfo_v2)(d, ret);

	/* The layout is that of version 2, which the driver has checked. */
	return r ? r : show(d, ret);
}

/* The figures of the first version do not contain what is reserved; the second one does, where
 * the driver has it. */
EXPORT enum nvml_return nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct nvml_memory *ret)
{
	enum nvml_return r = NVML_REAL(nvmlDeviceGetMemoryInfo)(d, ret);
	struct nvml_memory_v2 m = { .version = NVML_VERSION(m, 2u) }, second = m;

	if (r) {
		return r;
	}
	m.total = ret->total;
	m.free = ret->free;
	m.used = ret->used;
	if (NVML_REAL(nvmlDeviceGetMemoryInfo_v2)(d, &second) == NVML_SUCCESS) {
		m.reserved = second.reserved;
	}
	r = show(d, &m);
	if (!r) {
		*ret = (struct nvml_memory){ m.total, m.free, m.used };
	}
	return r;
}
