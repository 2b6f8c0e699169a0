/* Queries about pointers. Registered memory is known at both of its addresses. */
#include <string.h>

#include "base/atomic.h"
#include "soft/client/memory/memory.h"

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
	uint64_t host = (uint64_t)(uintptr_t)p, device;
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !p || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	device = soft_register_device_address(host, 1);
	if (!device && soft_memory_find(host, &ctx, &r) &&
	    ((r.kind == SOFT_RANGE_HOST && !r.host) || (r.cpu_rights && r.rights))) {
		device = host;
	}
	if (!device) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = device;
	return CUDA_SUCCESS;
}

/* Finds the range of a host or device pointer. *ret_device: the address that kernels use. */
static bool look_up(uint64_t p, CUcontext *ret_ctx, struct soft_range *ret, uint64_t *ret_device)
{
	uint64_t device = soft_register_device_address(p, 1);

	*ret_device = device ? device : p;
	return soft_memory_find(*ret_device, ret_ctx, ret) && !ret->hidden;
}

CUresult cuMemHostGetFlags(unsigned int *ret, void *p)
{
	struct soft_range r;
	CUcontext ctx;
	uint64_t device;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !look_up((uint64_t)(uintptr_t)p, &ctx, &r, &device) ||
	    !(soft_range_is_host(&r) || r.cpu_rights)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = r.flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr p)
{
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (soft_register_range(p, &r.address, &r.bytes)) {
		r.kind = SOFT_RANGE_HOST;
	} else if (!soft_memory_find(p, &ctx, &r) || r.hidden ||
		   (r.kind == SOFT_RANGE_MAPPED && !r.rights)) {
		return CUDA_ERROR_NOT_FOUND;
	}
	if (soft_range_is_mapped_host(&r)) {
		r.address = 0; /* as in the driver */
	}
	if (ret_base) {
		*ret_base = r.address;
	}
	if (ret_bytes) {
		*ret_bytes = r.bytes;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *ret_base, unsigned int *ret_bytes, CUdeviceptr_v1 p)
{
	CUresult e = soft_check();

	(void)ret_base;
	(void)ret_bytes;
	(void)p;
	return e ? e : CUDA_ERROR_NOT_FOUND; /* device memory has no 32-bit addresses */
}

static CUmemAllocationHandleType handle_types(const struct soft_range *r)
{
	switch (r->kind) {
	case SOFT_RANGE_POOL:
		return soft_pool_handle_types(r);
	case SOFT_RANGE_MAPPED:
		return soft_vmm_handle_types(r);
	default:
		return CU_MEM_HANDLE_TYPE_NONE;
	}
}

static unsigned access_flags(const struct soft_range *r)
{
	return r->kind == SOFT_RANGE_MAPPED ? r->rights : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Returns the bytes of an attribute's value, or 0 for an attribute that cannot be read. */
static unsigned attribute_bytes(CUpointer_attribute what)
{
	switch (what) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	default:
		return 0;
	}
}

static CUresult device_pointer(const struct soft_range *r, uint64_t device, uint64_t *ret)
{
	if (r->kind == SOFT_RANGE_MAPPED && !r->rights) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = device;
	return CUDA_SUCCESS;
}

static CUresult host_pointer(const struct soft_range *r, uint64_t device, uint64_t *ret)
{
	if (!soft_range_is_host(r) && !r->cpu_rights) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = r->host ? r->host + (device - r->address) : device;
	return CUDA_SUCCESS;
}

/* Returns the attribute as a number. */
static CUresult value_of(CUpointer_attribute what, uint64_t device, CUcontext ctx,
			 const struct soft_range *r, uint64_t *ret)
{
	switch (what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		/* Mapped and stream-ordered memory belongs to no context, as in the driver. */
		*ret = r->kind == SOFT_RANGE_MAPPED || r->kind == SOFT_RANGE_POOL ||
				       r->kind == SOFT_RANGE_IMPORTED
			       ? 0
			       : (uint64_t)(uintptr_t)ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*ret = r->kind == SOFT_RANGE_HOST || soft_range_is_mapped_host(r)
			       ? CU_MEMORYTYPE_HOST
			       : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return device_pointer(r, device, ret);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return host_pointer(r, device, ret);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*ret = r->sync;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*ret = r->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*ret = r->kind == SOFT_RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*ret = (uint64_t)soft_memory_ordinal(soft_window_at(r->address)->gpu);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*ret = r->kind == SOFT_RANGE_DEVICE && !r->module;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*ret = r->kind == SOFT_RANGE_MAPPED ? r->reserved : r->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*ret = r->kind == SOFT_RANGE_MAPPED ? r->reserved_bytes : r->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*ret = r->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*ret = r->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*ret = handle_types(r);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*ret = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*ret = access_flags(r);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*ret = r->kind == SOFT_RANGE_POOL	? (uint64_t)(uintptr_t)soft_pool_of(r)
		       : r->kind == SOFT_RANGE_IMPORTED ? (uint64_t)(uintptr_t)r->owner
							: 0;
		return CUDA_SUCCESS;
	default: /* RDMA tokens, and attributes of later versions */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute what, CUdeviceptr p)
{
	uint64_t device, value;
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!out || what < CU_POINTER_ATTRIBUTE_CONTEXT) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!attribute_bytes(what)) {
		return what == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? CUDA_ERROR_NOT_SUPPORTED
							       : CUDA_ERROR_INVALID_VALUE;
	}
	if (!look_up(p, &ctx, &r, &device)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = value_of(what, device, ctx, &r, &value);
	if (!e) {
		memcpy(out, &value, attribute_bytes(what)); /* little-endian */
	}
	return e;
}

/* Several attributes at once; zeros if the pointer is unknown to the device. */
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *what, void **out,
				CUdeviceptr p)
{
	struct soft_range r;
	CUcontext ctx;
	uint64_t device;
	CUresult e = soft_check();
	bool known;

	if (e) {
		return e;
	}
	if (!what || !out || !n) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	known = look_up(p, &ctx, &r, &device);
	for (unsigned i = 0; i < n; i++) {
		uint64_t value = 0;

		if (!out[i] || !attribute_bytes(what[i])) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		if (!known && what[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
			value = (uint32_t)-2; /* CU_DEVICE_INVALID */
		} else if (known && value_of(what[i], device, ctx, &r, &value) != CUDA_SUCCESS) {
			value = 0;
		}
		memcpy(out[i], &value, attribute_bytes(what[i]));
	}
	return CUDA_SUCCESS;
}

static void set_sync(struct soft_range *r, void *arg)
{
	r->sync = *(const uint8_t *)arg;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr p)
{
	uint64_t device;
	struct soft_range r;
	CUcontext ctx;
	uint8_t on;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!value || what != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !look_up(p, &ctx, &r, &device)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (r.kind == SOFT_RANGE_MAPPED) {
		return CUDA_ERROR_NOT_SUPPORTED; /* H200, 580.159.04 */
	}
	on = *(const unsigned *)value != 0;
	soft_memory_change(r.address, set_sync, &on);
	return CUDA_SUCCESS;
}
