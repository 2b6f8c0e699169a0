/* What programs ask about pointers, and registered host memory. */
#include <string.h>

#include "soft/client/client.h"

/* Memory of the program's own cannot be shared afterwards: registering it is accepted, copies go
 * through the staging buffer, and only its device pointer is refused. */
CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	if (e) {
		return e;
	}
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return p && bytes && !(flags & ~0xfu) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
	return cuMemHostRegister_v2(p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	return e ? e : p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
	struct range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !p || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!memory_find((uint64_t)(uintptr_t)p, &ctx, &r) || r.kind != RANGE_HOST) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *ret, void *p)
{
	struct range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !memory_find((uint64_t)(uintptr_t)p, &ctx, &r) || r.kind != RANGE_HOST) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = r.flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr p)
{
	struct range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!memory_find(p, &ctx, &r) || r.hidden) {
		return CUDA_ERROR_NOT_FOUND;
	}
	if (ret_base) {
		*ret_base = r.address;
	}
	if (ret_bytes) {
		*ret_bytes = r.bytes;
	}
	return CUDA_SUCCESS;
}

static CUresult one_attribute(void *out, CUpointer_attribute what, uint64_t p, CUcontext ctx,
			      const struct range *r)
{
	switch (what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out =
			r->kind == RANGE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)out = range_is_host(r) ? (void *)(uintptr_t)p : NULL;
		return range_is_host(r) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(uint64_t *)out = r->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)out = r->kind == RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)out = r->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = r->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)out = 1;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute what, CUdeviceptr p)
{
	struct range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!out || !memory_find(p, &ctx, &r) || r.hidden) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return one_attribute(out, what, p, ctx, &r);
}

/* Several at once; for a pointer that is not of the device they are 0. */
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *what, void **out,
				CUdeviceptr p)
{
	struct range r;
	CUcontext ctx;
	CUresult e = soft_check();
	bool known;

	if (e) {
		return e;
	}
	if (!what || !out) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	known = memory_find(p, &ctx, &r) && !r.hidden;
	for (unsigned i = 0; i < n; i++) {
		bool wide = what[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
			    what[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
			    what[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
			    what[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
			    what[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
			    what[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE;

		memset(out[i], 0, wide ? 8 : 4);
		if (known) {
			one_attribute(out[i], what[i], p, ctx, &r);
		} else if (what[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
			*(int *)out[i] = -2;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr p)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!value || what != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return memory_valid(p, 1, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
