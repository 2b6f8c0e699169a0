/* Setting of memory. */
#include "cudart/rt_api.h"
#include "cudart/rt_int.h"

cudaError_t cudart_memset(bool own, void *dst, int value, size_t bytes)
{
	CUdeviceptr to = (CUdeviceptr)dst;
	unsigned char byte = (unsigned char)value;

	return bytes == 0
		       ? cudaSuccess
		       : cudart_from_driver(own ? cudart_driver.cuMemsetD8_v2_ptds(to, byte, bytes)
						: cudart_driver.cuMemsetD8_v2(to, byte, bytes));
}

cudaError_t cudart_memset_async(void *dst, int value, size_t bytes, cudaStream_t stream)
{
	return bytes == 0 ? cudaSuccess
			  : cudart_from_driver(cudart_driver.cuMemsetD8Async(
				    (CUdeviceptr)dst, (unsigned char)value, bytes, stream));
}

cudaError_t cudart_memset_2d(bool own, void *dst, size_t pitch, int value, size_t width,
			     size_t height)
{
	CUdeviceptr to = (CUdeviceptr)dst;
	unsigned char byte = (unsigned char)value;

	if (width == 0 || height == 0) {
		return cudaSuccess;
	}
	return cudart_from_driver(
		own ? cudart_driver.cuMemsetD2D8_v2_ptds(to, pitch, byte, width, height)
		    : cudart_driver.cuMemsetD2D8_v2(to, pitch, byte, width, height));
}

cudaError_t cudart_memset_2d_async(void *dst, size_t pitch, int value, size_t width, size_t height,
				   cudaStream_t stream)
{
	if (width == 0 || height == 0) {
		return cudaSuccess;
	}
	return cudart_from_driver(cudart_driver.cuMemsetD2D8Async(
		(CUdeviceptr)dst, pitch, (unsigned char)value, width, height, stream));
}

/* A box is set slice by slice, or as one rectangle where its rows lie at equal distances. */
static cudaError_t box(bool own, bool async, struct cudaPitchedPtr dst, int value,
		       struct cudaExtent extent, cudaStream_t stream)
{
	size_t rows = extent.height, slices = extent.depth;
	cudaError_t e = cudaSuccess;

	if (dst.ysize < extent.height) {
		return cudaErrorInvalidValue;
	}
	if (dst.ysize == extent.height) {
		rows *= slices;
		slices = slices ? 1 : 0;
	}
	for (size_t z = 0; !e && z < slices; z++) {
		char *at = (char *)dst.ptr + z * dst.pitch * dst.ysize;

		e = async ? cudart_memset_2d_async(at, dst.pitch, value, extent.width, rows, stream)
			  : cudart_memset_2d(own, at, dst.pitch, value, extent.width, rows);
	}
	return e;
}

cudaError_t cudart_memset_3d(bool own, struct cudaPitchedPtr dst, int value,
			     struct cudaExtent extent)
{
	return box(own, false, dst, value, extent, NULL);
}

cudaError_t cudart_memset_3d_async(struct cudaPitchedPtr dst, int value, struct cudaExtent extent,
				   cudaStream_t stream)
{
	return box(false, true, dst, value, extent, stream);
}
