/* The runtime's description of a copy counts elements of an array where one takes part, else bytes;
 * the driver's counts bytes. */
#include "cudart/rt_shape.h"

#include <stdbool.h>
#include <string.h>

#include "cudart/rt_array.h"

static bool host_source(enum cudaMemcpyKind kind)
{
	return kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
}

static bool host_target(enum cudaMemcpyKind kind)
{
	return kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
}

static CUmemorytype memory(enum cudaMemcpyKind kind, bool host)
{
	return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
	       : host			 ? CU_MEMORYTYPE_HOST
					 : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t source(CUDA_MEMCPY3D *c, const struct cudaMemcpy3DParms *p, size_t *element)
{
	size_t bytes = 1;
	cudaError_t e = cudaSuccess;

	if (p->srcArray) {
		e = cudart_element_bytes(p->srcArray, &bytes);
		*element = bytes;
		c->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c->srcArray = p->srcArray;
	} else {
		c->srcMemoryType = memory(p->kind, host_source(p->kind));
		c->srcHost = p->srcPtr.ptr;
		c->srcDevice = (CUdeviceptr)p->srcPtr.ptr;
		c->srcPitch = p->srcPtr.pitch;
		c->srcHeight = p->srcPtr.ysize;
	}
	c->srcXInBytes = p->srcPos.x * bytes;
	c->srcY = p->srcPos.y;
	c->srcZ = p->srcPos.z;
	return e;
}

static cudaError_t target(CUDA_MEMCPY3D *c, const struct cudaMemcpy3DParms *p, size_t *element)
{
	size_t bytes = 1;
	cudaError_t e = cudaSuccess;

	if (p->dstArray) {
		e = cudart_element_bytes(p->dstArray, &bytes);
		*element = bytes;
		c->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c->dstArray = p->dstArray;
	} else {
		c->dstMemoryType = memory(p->kind, host_target(p->kind));
		c->dstHost = p->dstPtr.ptr;
		c->dstDevice = (CUdeviceptr)p->dstPtr.ptr;
		c->dstPitch = p->dstPtr.pitch;
		c->dstHeight = p->dstPtr.ysize;
	}
	c->dstXInBytes = p->dstPos.x * bytes;
	c->dstY = p->dstPos.y;
	c->dstZ = p->dstPos.z;
	return e;
}

cudaError_t cudart_shape_of(CUDA_MEMCPY3D *ret, const struct cudaMemcpy3DParms *p)
{
	size_t element = 1;
	cudaError_t e;

	if (!p || (p->srcArray && p->srcPtr.ptr) || (p->dstArray && p->dstPtr.ptr)) {
		return cudaErrorInvalidValue;
	}
	if ((unsigned)p->kind > cudaMemcpyDefault) {
		return cudaErrorInvalidMemcpyDirection;
	}
	memset(ret, 0, sizeof(*ret));
	e = source(ret, p, &element);
	e = e ? e : target(ret, p, &element);
	ret->WidthInBytes = p->extent.width * element;
	ret->Height = p->extent.height;
	ret->Depth = p->extent.depth;
	return e;
}

static enum cudaMemcpyKind kind_of(const CUDA_MEMCPY3D *c)
{
	bool from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST;
	bool to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST;

	if (c->srcMemoryType == CU_MEMORYTYPE_UNIFIED ||
	    c->dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
		return cudaMemcpyDefault;
	}
	return from_host ? (to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
	       : to_host ? cudaMemcpyDeviceToHost
			 : cudaMemcpyDeviceToDevice;
}

cudaError_t cudart_shape_read(struct cudaMemcpy3DParms *ret, const CUDA_MEMCPY3D *c)
{
	size_t from = 1, to = 1;
	cudaError_t e = cudaSuccess;

	memset(ret, 0, sizeof(*ret));
	ret->kind = kind_of(c);
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
		ret->srcArray = c->srcArray;
		e = cudart_element_bytes(c->srcArray, &from);
	} else {
		ret->srcPtr.ptr = c->srcMemoryType == CU_MEMORYTYPE_HOST
					  ? (void *)(uintptr_t)c->srcHost
					  : (void *)c->srcDevice;
		ret->srcPtr.pitch = ret->srcPtr.xsize = c->srcPitch;
		ret->srcPtr.ysize = c->srcHeight;
	}
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		ret->dstArray = c->dstArray;
		e = e ? e : cudart_element_bytes(c->dstArray, &to);
	} else {
		ret->dstPtr.ptr =
			c->dstMemoryType == CU_MEMORYTYPE_HOST ? c->dstHost : (void *)c->dstDevice;
		ret->dstPtr.pitch = ret->dstPtr.xsize = c->dstPitch;
		ret->dstPtr.ysize = c->dstHeight;
	}
	if (e || from == 0 || to == 0) {
		return e ? e : cudaErrorInvalidValue;
	}
	ret->srcPos = (struct cudaPos){ c->srcXInBytes / from, c->srcY, c->srcZ };
	ret->dstPos = (struct cudaPos){ c->dstXInBytes / to, c->dstY, c->dstZ };
	ret->extent = (struct cudaExtent){ c->WidthInBytes / (ret->srcArray ? from : to), c->Height,
					   c->Depth };
	return cudaSuccess;
}

cudaError_t cudart_shape_line(CUDA_MEMCPY3D *ret, void *dst, const void *src, size_t bytes,
			      enum cudaMemcpyKind kind)
{
	if ((unsigned)kind > cudaMemcpyDefault) {
		return cudaErrorInvalidMemcpyDirection;
	}
	*ret = (CUDA_MEMCPY3D){
		.srcMemoryType = memory(kind, host_source(kind)),
		.srcHost = src,
		.srcDevice = (CUdeviceptr)src,
		.srcPitch = bytes,
		.dstMemoryType = memory(kind, host_target(kind)),
		.dstHost = dst,
		.dstDevice = (CUdeviceptr)dst,
		.dstPitch = bytes,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1,
	};
	return cudaSuccess;
}
