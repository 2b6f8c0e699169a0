/* Copies of rows and boxes in the driver's form. */
#ifndef GBPF_CUDART_RT_SHAPE_H
#define GBPF_CUDART_RT_SHAPE_H

#include "cudart/rt_types.h"

/* Fills the driver's parameters; counts of array elements become bytes. */
cudaError_t cudart_shape_of(CUDA_MEMCPY3D *ret, const struct cudaMemcpy3DParms *p);

/* The reverse, for parameters of graph nodes. */
cudaError_t cudart_shape_read(struct cudaMemcpy3DParms *ret, const CUDA_MEMCPY3D *c);

/* Fills the parameters of a copy of bytes in a row. */
cudaError_t cudart_shape_line(CUDA_MEMCPY3D *ret, void *dst, const void *src, size_t bytes,
			      enum cudaMemcpyKind kind);

#endif
