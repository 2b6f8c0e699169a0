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

/* One side of a copy, source or target: the driver's description has both in one structure. */
struct side {
	CUmemorytype type;
	CUarray array;
	void *ptr;
	size_t pitch, height;
	size_t x_bytes, y, z;
};

/* Fills *ret from the runtime's description; sets *element if an array takes part. */
static cudaError_t side_of(struct side *ret, cudaArray_t array, struct cudaPitchedPtr ptr,
			   struct cudaPos pos, CUmemorytype linear, size_t *element)
{
	size_t bytes = 1;
	cudaError_t e = cudaSuccess;

	*ret = (struct side){ .y = pos.y, .z = pos.z };
	if (array) {
		e = cudart_element_bytes(array, &bytes);
		*element = bytes;
		ret->type = CU_MEMORYTYPE_ARRAY;
		ret->array = array;
	} else {
		ret->type = linear;
		ret->ptr = ptr.ptr;
		ret->pitch = ptr.pitch;
		ret->height = ptr.ysize;
	}
	ret->x_bytes = pos.x * bytes;
	return e;
}

/* which: src or dst */
#define SET_SIDE(c, which, s)                                                                      \
	do {                                                                                       \
		(c)->which##MemoryType = (s).type;                                                 \
		(c)->which##Array = (s).array;                                                     \
		(c)->which##Host = (s).ptr;                                                        \
		(c)->which##Device = (CUdeviceptr)(s).ptr;                                         \
		(c)->which##Pitch = (s).pitch;                                                     \
		(c)->which##Height = (s).height;                                                   \
		(c)->which##XInBytes = (s).x_bytes;                                                \
		(c)->which##Y = (s).y;                                                             \
		(c)->which##Z = (s).z;                                                             \
	} while (0)

#define GET_SIDE(c, which)                                                                         \
	{                                                                                          \
		.type = (c)->which##MemoryType, .array = (c)->which##Array,                        \
		.ptr = (c)->which##MemoryType == CU_MEMORYTYPE_HOST                                \
			       ? (void *)(uintptr_t)(c)->which##Host                               \
			       : (void *)(c)->which##Device,                                       \
		.pitch = (c)->which##Pitch, .height = (c)->which##Height,                          \
		.x_bytes = (c)->which##XInBytes, .y = (c)->which##Y, .z = (c)->which##Z,           \
	}

/* Writes the runtime's description of a side; *element stays as it is without an array. */
static cudaError_t read_side(const struct side *s, cudaArray_t *array, struct cudaPitchedPtr *ptr,
			     struct cudaPos *pos, size_t *element)
{
	size_t bytes = 1;
	cudaError_t e = cudaSuccess;

	if (s->type == CU_MEMORYTYPE_ARRAY) {
		*array = s->array;
		e = cudart_element_bytes(s->array, &bytes);
		*element = bytes;
	} else {
		*ptr = (struct cudaPitchedPtr){ s->ptr, s->pitch, s->pitch, s->height };
	}
	if (e || bytes == 0) {
		return e ? e : cudaErrorInvalidValue;
	}
	*pos = (struct cudaPos){ s->x_bytes / bytes, s->y, s->z };
	return cudaSuccess;
}

cudaError_t cudart_shape_of(CUDA_MEMCPY3D *ret, const struct cudaMemcpy3DParms *p)
{
	size_t element = 1;
	struct side from, to;
	cudaError_t e;

	if (!p || (p->srcArray && p->srcPtr.ptr) || (p->dstArray && p->dstPtr.ptr)) {
		return cudaErrorInvalidValue;
	}
	if ((unsigned)p->kind > cudaMemcpyDefault) {
		return cudaErrorInvalidMemcpyDirection;
	}
	memset(ret, 0, sizeof(*ret));
	e = side_of(&from, p->srcArray, p->srcPtr, p->srcPos, memory(p->kind, host_source(p->kind)),
		    &element);
	e = e ? e
	      : side_of(&to, p->dstArray, p->dstPtr, p->dstPos,
			memory(p->kind, host_target(p->kind)), &element);
	if (e) {
		return e;
	}
	SET_SIDE(ret, src, from);
	SET_SIDE(ret, dst, to);
	ret->WidthInBytes = p->extent.width * element;
	ret->Height = p->extent.height;
	ret->Depth = p->extent.depth;
	return cudaSuccess;
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
	const struct side from = GET_SIDE(c, src), to = GET_SIDE(c, dst);
	size_t width = 1; /* the source's element counts if both sides are arrays */
	cudaError_t e;

	memset(ret, 0, sizeof(*ret));
	ret->kind = kind_of(c);
	e = read_side(&to, &ret->dstArray, &ret->dstPtr, &ret->dstPos, &width);
	e = e ? e : read_side(&from, &ret->srcArray, &ret->srcPtr, &ret->srcPos, &width);
	if (!e) {
		ret->extent = (struct cudaExtent){ c->WidthInBytes / width, c->Height, c->Depth };
	}
	return e;
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
