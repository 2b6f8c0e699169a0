/* Copies of bytes between memories, and of variables. The kind is what the program says; with
 * cudaMemcpyDefault the driver finds out. Blocking copies of the legacy stream and of the thread's
 * own stream are different functions of the driver. */
#include "cudart/rt_api.h"
#include "cudart/rt_int.h"
#include "cudart/rt_registry.h"

cudaError_t cudart_memcpy(bool own, void *dst, const void *src, size_t bytes,
			  enum cudaMemcpyKind kind)
{
	const struct cuabi_table *d = &cudart_driver;
	CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;
	CUresult r;

	if (bytes == 0 && kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault) {
		return cudaSuccess;
	}
	switch (kind) {
	case cudaMemcpyHostToDevice:
		r = own ? d->cuMemcpyHtoD_v2_ptds(to, src, bytes)
			: d->cuMemcpyHtoD_v2(to, src, bytes);
		break;
	case cudaMemcpyDeviceToHost:
		r = own ? d->cuMemcpyDtoH_v2_ptds(dst, from, bytes)
			: d->cuMemcpyDtoH_v2(dst, from, bytes);
		break;
	case cudaMemcpyDeviceToDevice:
		r = own ? d->cuMemcpyDtoD_v2_ptds(to, from, bytes)
			: d->cuMemcpyDtoD_v2(to, from, bytes);
		break;
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		r = own ? d->cuMemcpy_ptds(to, from, bytes) : d->cuMemcpy(to, from, bytes);
		break;
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
	return cudart_from_driver(r);
}

cudaError_t cudart_memcpy_async(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
				cudaStream_t stream)
{
	const struct cuabi_table *d = &cudart_driver;
	CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;

	if (bytes == 0 && kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault) {
		return cudaSuccess;
	}
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return cudart_from_driver(d->cuMemcpyHtoDAsync_v2(to, src, bytes, stream));
	case cudaMemcpyDeviceToHost:
		return cudart_from_driver(d->cuMemcpyDtoHAsync_v2(dst, from, bytes, stream));
	case cudaMemcpyDeviceToDevice:
		return cudart_from_driver(d->cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return cudart_from_driver(d->cuMemcpyAsync(to, from, bytes, stream));
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

static cudaError_t two_contexts(int dst_device, int src_device, CUcontext *ret_dst,
				CUcontext *ret_src)
{
	cudaError_t e = cudart_primary(dst_device, ret_dst);

	return e ? e : cudart_primary(src_device, ret_src);
}

cudaError_t cudart_memcpy_peer(void *dst, int dst_device, const void *src, int src_device,
			       size_t bytes)
{
	CUcontext to, from;
	cudaError_t e = two_contexts(dst_device, src_device, &to, &from);

	return e || !bytes ? e
			   : cudart_from_driver(cudart_driver.cuMemcpyPeer(
				     (CUdeviceptr)dst, to, (CUdeviceptr)src, from, bytes));
}

cudaError_t cudart_memcpy_peer_async(void *dst, int dst_device, const void *src, int src_device,
				     size_t bytes, cudaStream_t stream)
{
	CUcontext to, from;
	cudaError_t e = two_contexts(dst_device, src_device, &to, &from);

	return e || !bytes ? e
			   : cudart_from_driver(cudart_driver.cuMemcpyPeerAsync(
				     (CUdeviceptr)dst, to, (CUdeviceptr)src, from, bytes, stream));
}

cudaError_t cudart_get_symbol_address(void **ret, const void *symbol)
{
	CUdeviceptr p = 0;
	size_t bytes;
	cudaError_t e = ret ? cudart_symbol(symbol, &p, &bytes) : cudaErrorInvalidValue;

	if (!e) {
		*ret = (void *)p;
	}
	return e;
}

cudaError_t cudart_get_symbol_size(size_t *ret, const void *symbol)
{
	CUdeviceptr p;

	return ret ? cudart_symbol(symbol, &p, ret) : cudaErrorInvalidValue;
}

/* Returns the address of a part of a variable. */
static cudaError_t part(const void *symbol, size_t offset, size_t bytes, void **ret)
{
	CUdeviceptr p;
	size_t all;
	cudaError_t e = cudart_symbol(symbol, &p, &all);

	if (e) {
		return e;
	}
	*ret = (void *)(p + offset);
	return offset > all || bytes > all - offset ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudart_memcpy_to_symbol(bool own, const void *symbol, const void *src, size_t bytes,
				    size_t offset, enum cudaMemcpyKind kind)
{
	void *dst;
	cudaError_t e = part(symbol, offset, bytes, &dst);

	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) {
		return cudaErrorInvalidMemcpyDirection;
	}
	return e ? e : cudart_memcpy(own, dst, src, bytes, kind);
}

cudaError_t cudart_memcpy_from_symbol(bool own, void *dst, const void *symbol, size_t bytes,
				      size_t offset, enum cudaMemcpyKind kind)
{
	void *src;
	cudaError_t e = part(symbol, offset, bytes, &src);

	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice) {
		return cudaErrorInvalidMemcpyDirection;
	}
	return e ? e : cudart_memcpy(own, dst, src, bytes, kind);
}

cudaError_t cudart_memcpy_to_symbol_async(const void *symbol, const void *src, size_t bytes,
					  size_t offset, enum cudaMemcpyKind kind,
					  cudaStream_t stream)
{
	void *dst;
	cudaError_t e = part(symbol, offset, bytes, &dst);

	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) {
		return cudaErrorInvalidMemcpyDirection;
	}
	return e ? e : cudart_memcpy_async(dst, src, bytes, kind, stream);
}

cudaError_t cudart_memcpy_from_symbol_async(void *dst, const void *symbol, size_t bytes,
					    size_t offset, enum cudaMemcpyKind kind,
					    cudaStream_t stream)
{
	void *src;
	cudaError_t e = part(symbol, offset, bytes, &src);

	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice) {
		return cudaErrorInvalidMemcpyDirection;
	}
	return e ? e : cudart_memcpy_async(dst, src, bytes, kind, stream);
}
