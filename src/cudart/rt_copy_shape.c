/* Copies of rows and boxes, of arrays and of memory. */
#include <string.h>

#include "cudart/rt_api.h"
#include "cudart/rt_array.h"
#include "cudart/rt_int.h"
#include "cudart/rt_shape.h"

enum mode {
	LEGACY, /* blocking, on the legacy stream */
	OWN,	/* blocking, on the thread's own stream */
	ASYNC,
};

static cudaError_t copy(enum mode mode, const CUDA_MEMCPY3D *c, cudaStream_t stream)
{
	const struct cuabi_table *d = &cudart_driver;

	if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0) {
		return cudaSuccess;
	}
	return cudart_from_driver(mode == LEGACY ? d->cuMemcpy3D_v2(c)
				  : mode == OWN	 ? d->cuMemcpy3D_v2_ptds(c)
						 : d->cuMemcpy3DAsync_v2(c, stream));
}

static enum mode blocking(bool own)
{
	return own ? OWN : LEGACY;
}

/* One side of a copy of rows: memory, or a place in an array. */
struct side {
	const void *ptr;
	size_t pitch;
	cudaArray_t array;
	size_t x, y;
};

static cudaError_t rows(enum mode mode, const struct side *to, const struct side *from,
			size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_line(&c, (void *)(uintptr_t)to->ptr, from->ptr, width, kind);

	if (e) {
		return e;
	}
	if ((!to->array && to->pitch < width && height > 1) ||
	    (!from->array && from->pitch < width && height > 1)) {
		return cudaErrorInvalidPitchValue;
	}
	if (to->array) {
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = to->array;
		c.dstXInBytes = to->x;
		c.dstY = to->y;
	}
	if (from->array) {
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = from->array;
		c.srcXInBytes = from->x;
		c.srcY = from->y;
	}
	c.dstPitch = to->pitch;
	c.srcPitch = from->pitch;
	c.dstHeight = c.srcHeight = c.Height = height;
	return copy(mode, &c, stream);
}

cudaError_t cudart_memcpy_2d(bool own, void *dst, size_t dst_pitch, const void *src,
			     size_t src_pitch, size_t width, size_t height,
			     enum cudaMemcpyKind kind)
{
	struct side to = { .ptr = dst, .pitch = dst_pitch };
	struct side from = { .ptr = src, .pitch = src_pitch };

	return rows(blocking(own), &to, &from, width, height, kind, NULL);
}

cudaError_t cudart_memcpy_2d_async(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
				   size_t width, size_t height, enum cudaMemcpyKind kind,
				   cudaStream_t stream)
{
	struct side to = { .ptr = dst, .pitch = dst_pitch };
	struct side from = { .ptr = src, .pitch = src_pitch };

	return rows(ASYNC, &to, &from, width, height, kind, stream);
}

cudaError_t cudart_memcpy_2d_to_array(bool own, cudaArray_t dst, size_t x, size_t y,
				      const void *src, size_t pitch, size_t width, size_t height,
				      enum cudaMemcpyKind kind)
{
	struct side to = { .array = dst, .x = x, .y = y };
	struct side from = { .ptr = src, .pitch = pitch };

	return rows(blocking(own), &to, &from, width, height, kind, NULL);
}

cudaError_t cudart_memcpy_2d_to_array_async(cudaArray_t dst, size_t x, size_t y, const void *src,
					    size_t pitch, size_t width, size_t height,
					    enum cudaMemcpyKind kind, cudaStream_t stream)
{
	struct side to = { .array = dst, .x = x, .y = y };
	struct side from = { .ptr = src, .pitch = pitch };

	return rows(ASYNC, &to, &from, width, height, kind, stream);
}

cudaError_t cudart_memcpy_2d_from_array(bool own, void *dst, size_t pitch, cudaArray_t src,
					size_t x, size_t y, size_t width, size_t height,
					enum cudaMemcpyKind kind)
{
	struct side to = { .ptr = dst, .pitch = pitch };
	struct side from = { .array = src, .x = x, .y = y };

	return rows(blocking(own), &to, &from, width, height, kind, NULL);
}

cudaError_t cudart_memcpy_2d_from_array_async(void *dst, size_t pitch, cudaArray_t src, size_t x,
					      size_t y, size_t width, size_t height,
					      enum cudaMemcpyKind kind, cudaStream_t stream)
{
	struct side to = { .ptr = dst, .pitch = pitch };
	struct side from = { .array = src, .x = x, .y = y };

	return rows(ASYNC, &to, &from, width, height, kind, stream);
}

cudaError_t cudart_memcpy_2d_array_to_array(bool own, cudaArray_t dst, size_t dst_x, size_t dst_y,
					    cudaArray_t src, size_t src_x, size_t src_y,
					    size_t width, size_t height, enum cudaMemcpyKind kind)
{
	struct side to = { .array = dst, .x = dst_x, .y = dst_y };
	struct side from = { .array = src, .x = src_x, .y = src_y };

	return rows(blocking(own), &to, &from, width, height, kind, NULL);
}

/* ---- bytes that run on from one row of an array to the next ---- */

/* The bytes of a row of the array. */
static cudaError_t row_bytes(cudaArray_t array, size_t *ret)
{
	struct cudaExtent extent;
	size_t element = 0;
	cudaError_t e = cudart_array_get_info(NULL, &extent, NULL, array);

	e = e ? e : cudart_element_bytes(array, &element);
	if (!e) {
		*ret = extent.width * element;
	}
	return e;
}

/* Copies up to the end of a row, then whole rows, then the rest. */
static cudaError_t run(enum mode mode, bool to_array, cudaArray_t array, size_t x, size_t y,
		       const void *ptr, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	size_t row;
	cudaError_t e = row_bytes(array, &row);

	if (e || row == 0 || x >= row) {
		return e ? e : cudaErrorInvalidValue;
	}
	for (const char *at = ptr; !e && bytes;) {
		size_t width = bytes < row - x ? bytes : row - x;
		size_t height = x == 0 && bytes > row ? bytes / row : 1;
		struct side place = { .array = array, .x = x, .y = y };
		struct side mem = { .ptr = at, .pitch = width };

		e = to_array ? rows(mode, &place, &mem, width, height, kind, stream)
			     : rows(mode, &mem, &place, width, height, kind, stream);
		at += width * height;
		bytes -= width * height;
		x = 0;
		y += height;
	}
	return e;
}

cudaError_t cudart_memcpy_to_array(bool own, cudaArray_t dst, size_t x, size_t y, const void *src,
				   size_t bytes, enum cudaMemcpyKind kind)
{
	return run(blocking(own), true, dst, x, y, src, bytes, kind, NULL);
}

cudaError_t cudart_memcpy_to_array_async(cudaArray_t dst, size_t x, size_t y, const void *src,
					 size_t bytes, enum cudaMemcpyKind kind,
					 cudaStream_t stream)
{
	return run(ASYNC, true, dst, x, y, src, bytes, kind, stream);
}

cudaError_t cudart_memcpy_from_array(bool own, void *dst, cudaArray_t src, size_t x, size_t y,
				     size_t bytes, enum cudaMemcpyKind kind)
{
	return run(blocking(own), false, src, x, y, dst, bytes, kind, NULL);
}

cudaError_t cudart_memcpy_from_array_async(void *dst, cudaArray_t src, size_t x, size_t y,
					   size_t bytes, enum cudaMemcpyKind kind,
					   cudaStream_t stream)
{
	return run(ASYNC, false, src, x, y, dst, bytes, kind, stream);
}

cudaError_t cudart_memcpy_array_to_array(bool own, cudaArray_t dst, size_t dst_x, size_t dst_y,
					 cudaArray_t src, size_t src_x, size_t src_y, size_t bytes,
					 enum cudaMemcpyKind kind)
{
	size_t to, from;
	cudaError_t e = row_bytes(dst, &to);

	e = e ? e : row_bytes(src, &from);
	while (!e && bytes) {
		size_t width = bytes;

		if (dst_x >= to || src_x >= from) {
			return cudaErrorInvalidValue;
		}
		width = width < to - dst_x ? width : to - dst_x;
		width = width < from - src_x ? width : from - src_x;
		e = cudart_memcpy_2d_array_to_array(own, dst, dst_x, dst_y, src, src_x, src_y,
						    width, 1, kind);
		bytes -= width;
		dst_x += width;
		dst_y += dst_x == to;
		dst_x = dst_x == to ? 0 : dst_x;
		src_x += width;
		src_y += src_x == from;
		src_x = src_x == from ? 0 : src_x;
	}
	return e;
}

/* ---- boxes ---- */

cudaError_t cudart_memcpy_3d(bool own, const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_of(&c, p);

	return e ? e : copy(blocking(own), &c, NULL);
}

cudaError_t cudart_memcpy_3d_async(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
	CUDA_MEMCPY3D c;
	cudaError_t e = cudart_shape_of(&c, p);

	return e ? e : copy(ASYNC, &c, stream);
}

static cudaError_t peer(CUDA_MEMCPY3D_PEER *ret, const struct cudaMemcpy3DPeerParms *p)
{
	struct cudaMemcpy3DParms same = { .kind = cudaMemcpyDefault };
	CUcontext from, to;
	CUDA_MEMCPY3D c;
	cudaError_t e = p ? cudart_primary(p->srcDevice, &from) : cudaErrorInvalidValue;

	e = e ? e : cudart_primary(p->dstDevice, &to);
	if (e) {
		return e;
	}
	same.srcArray = p->srcArray;
	same.srcPos = p->srcPos;
	same.srcPtr = p->srcPtr;
	same.dstArray = p->dstArray;
	same.dstPos = p->dstPos;
	same.dstPtr = p->dstPtr;
	same.extent = p->extent;
	e = cudart_shape_of(&c, &same);
	_Static_assert(sizeof(*ret) == sizeof(c), "the contexts lie where c has reserved words");
	memcpy(ret, &c, sizeof(*ret));
	ret->srcContext = from;
	ret->dstContext = to;
	return e;
}

cudaError_t cudart_memcpy_3d_peer(bool own, const struct cudaMemcpy3DPeerParms *p)
{
	CUDA_MEMCPY3D_PEER c;
	cudaError_t e = peer(&c, p);

	return e ? e
		 : cudart_from_driver(own ? cudart_driver.cuMemcpy3DPeer_ptds(&c)
					  : cudart_driver.cuMemcpy3DPeer(&c));
}

cudaError_t cudart_memcpy_3d_peer_async(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream)
{
	CUDA_MEMCPY3D_PEER c;
	cudaError_t e = peer(&c, p);

	return e ? e : cudart_from_driver(cudart_driver.cuMemcpy3DPeerAsync(&c, stream));
}
