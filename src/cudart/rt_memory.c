/* Allocation, registration of host memory, and attributes of pointers. */
#include <string.h>

#include "cudart/rt_api.h"
#include "cudart/rt_int.h"

/* The driver refuses 0 bytes; the runtime returns no memory, and no error. */
cudaError_t cudart_malloc(void **ret, size_t bytes)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = NULL;
	return bytes ? cudart_from_driver(cudart_driver.cuMemAlloc_v2((CUdeviceptr *)ret, bytes))
		     : cudaSuccess;
}

cudaError_t cudart_malloc_managed(void **ret, size_t bytes, unsigned int flags)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = NULL;
	return bytes ? cudart_from_driver(
			       cudart_driver.cuMemAllocManaged((CUdeviceptr *)ret, bytes, flags))
		     : cudaSuccess;
}

cudaError_t cudart_host_alloc(void **ret, size_t bytes, unsigned int flags)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = NULL;
	return bytes ? cudart_from_driver(cudart_driver.cuMemHostAlloc(ret, bytes, flags))
		     : cudaSuccess;
}

cudaError_t cudart_malloc_host(void **ret, size_t bytes)
{
	return cudart_host_alloc(ret, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

cudaError_t cudart_malloc_pitch(void **ret, size_t *pitch, size_t width, size_t height)
{
	if (!ret || !pitch) {
		return cudaErrorInvalidValue;
	}
	*ret = NULL;
	if (width == 0 || height == 0) {
		*pitch = 0;
		return cudaSuccess;
	}
	return cudart_from_driver(
		cudart_driver.cuMemAllocPitch_v2((CUdeviceptr *)ret, pitch, width, height, 4));
}

cudaError_t cudart_malloc_3d(struct cudaPitchedPtr *ret, struct cudaExtent extent)
{
	size_t rows;

	if (!ret || __builtin_mul_overflow(extent.height, extent.depth, &rows)) {
		return cudaErrorInvalidValue;
	}
	ret->xsize = extent.width;
	ret->ysize = extent.height;
	return cudart_malloc_pitch(&ret->ptr, &ret->pitch, extent.width, rows);
}

cudaError_t cudart_free(void *ptr)
{
	return ptr ? cudart_from_driver(cudart_driver.cuMemFree_v2((CUdeviceptr)ptr)) : cudaSuccess;
}

cudaError_t cudart_free_host(void *ptr)
{
	return ptr ? cudart_from_driver(cudart_driver.cuMemFreeHost(ptr)) : cudaSuccess;
}

cudaError_t cudart_free_async(void *ptr, cudaStream_t stream)
{
	return cudart_from_driver(cudart_driver.cuMemFreeAsync((CUdeviceptr)ptr, stream));
}

cudaError_t cudart_host_register(void *ptr, size_t bytes, unsigned int flags)
{
	return ptr && bytes
		       ? cudart_from_driver(cudart_driver.cuMemHostRegister_v2(ptr, bytes, flags))
		       : cudaErrorInvalidValue;
}

cudaError_t cudart_stream_destroy(cudaStream_t stream)
{
	return stream ? cudart_from_driver(cudart_driver.cuStreamDestroy_v2(stream))
		      : cudaErrorInvalidResourceHandle;
}

/* The two callback types differ in the name of the status' type alone. */
cudaError_t cudart_stream_add_callback(cudaStream_t stream, cudaStreamCallback_t fn, void *user,
				       unsigned int flags)
{
	union {
		cudaStreamCallback_t runtime;
		CUstreamCallback driver;
	} callback = { fn };

	return cudart_from_driver(
		cudart_driver.cuStreamAddCallback(stream, callback.driver, user, flags));
}

/* Memory that CUDA does not know is "unregistered", and its device -2. */
cudaError_t cudart_pointer_get_attributes(struct cudaPointerAttributes *ret, const void *ptr)
{
	unsigned type = 0, managed = 0;
	int device = -2;
	CUdeviceptr on_device = 0;
	void *on_host = NULL;
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				       CU_POINTER_ATTRIBUTE_HOST_POINTER };
	void *values[] = { &type, &managed, &device, &on_device, &on_host };
	union {
		const void *in;
		void *out;
	} same = { ptr };
	CUresult r;

	if (!ret) {
		return cudaErrorInvalidValue;
	}
	memset(ret, 0, sizeof(*ret));
	r = cudart_driver.cuPointerGetAttributes(5, what, values, (CUdeviceptr)ptr);
	if (r && r != CUDA_ERROR_INVALID_VALUE) {
		return cudart_from_driver(r);
	}
	if (r || type == 0) {
		ret->type = cudaMemoryTypeUnregistered;
		ret->device = -2;
		ret->hostPointer = same.out;
		return cudaSuccess;
	}
	ret->type = managed			 ? cudaMemoryTypeManaged
		    : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
						 : cudaMemoryTypeDevice;
	ret->device = device;
	ret->devicePointer = (void *)on_device;
	ret->hostPointer = on_host;
	return cudaSuccess;
}
