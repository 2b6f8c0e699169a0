/* Copies that name chunks of another device than the current context's. For memory of cuMemAlloc
 * the driver finds out on which device it is, in whatever context a copy is made. Memory that is
 * mapped, as chunks are, it knows only in contexts of the devices for which it is mapped, except in
 * cuMemcpyPeer, which gets the contexts of both sides (PyTorch, which maps memory, copies it so).
 * So copies between devices become that one; synchronous ones between a chunk and the host are made
 * in a context of the chunk's device, by a stream of gBPF's. Asynchronous ones of the latter kind,
 * sets and copies with coordinates are the driver's as they came. */
#include "shim/capture_state.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

/* One side of a copy. */
struct side {
	CUcontext ctx; /* of its memory, which is on a device; NULL: it is not, or not known */
	CUdevice device;
	bool in_chunks;
	bool is_mapped; /* for the current context's device */
};

static struct cuabi_table under; /* what was in the slots before */

static CUcontext context_on(CUdevice device)
{
	CUcontext ctx;

	lock_take(&shim_swap_mutex);
	ctx = shim_swap_context_on(device);
	lock_release(&shim_swap_mutex);
	return ctx;
}

static struct side side_of(CUdeviceptr address, CUdevice current)
{
	struct side s = { .device = current, .is_mapped = true };
	struct shim_swap_view v;
	unsigned type = 0;

	if (shim_swap_look(address, &v)) {
		s.in_chunks = true;
		s.device = v.device;
		s.ctx = v.copied_in;
		s.is_mapped = v.access >> current & 1;
	} else if (shim_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
						     address) == CUDA_SUCCESS &&
		   type == CU_MEMORYTYPE_DEVICE) {
		(void)shim_driver.cuPointerGetAttribute(
			&s.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
		(void)shim_driver.cuPointerGetAttribute(&s.ctx, CU_POINTER_ATTRIBUTE_CONTEXT,
							address);
		s.ctx = s.ctx ? s.ctx : context_on(s.device); /* of pools and mapped memory */
	}
	return s;
}

/* Returns true in a process in which a copy may have another device's chunks. */
static bool may_be(CUdevice *ret_current)
{
	return shim_swap_has_several_devices() &&
	       shim_driver.cuCtxGetDevice(ret_current) == CUDA_SUCCESS;
}

/* Returns true if a copy needs the contexts of both sides, and these are known. */
static bool is_between(CUdeviceptr dst, CUdeviceptr src, struct side *to, struct side *from)
{
	CUdevice current;

	if (!may_be(&current)) {
		return false;
	}
	*to = side_of(dst, current);
	*from = side_of(src, current);
	return (to->in_chunks || from->in_chunks) && to->ctx && from->ctx &&
	       (!to->is_mapped || !from->is_mapped || to->device != from->device);
}

/* Returns a context in which a chunk can be copied from and to the host, if the current one is
 * none; else NULL. */
static CUcontext away_from(CUdeviceptr address)
{
	CUdevice current;
	struct side s;

	if (!may_be(&current)) {
		return NULL;
	}
	s = side_of(address, current);
	return s.is_mapped ? NULL : s.ctx;
}

/* In the current context. Its legacy stream waits for work that the program's copy would not have
 * waited for, and using it would invalidate what another thread captures there. */
static CUresult copy_by_own_stream(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	CUstream stream;
	CUresult r = under.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), done;

	if (r != CUDA_SUCCESS) {
		return r;
	}
	r = under.cuMemcpyAsync(dst, src, bytes, stream);
	done = under.cuStreamSynchronize(stream);
	(void)under.cuStreamDestroy_v2(stream);
	return r != CUDA_SUCCESS ? r : done;
}

/* Copies between a chunk and the host in a context of away_from(), behind the work that the copy
 * would have waited for in the current one. While that captures, it is refused as there. Only the
 * submission is in a work section, as of any asynchronous copy: until its work is done, the chunk
 * stays. */
static CUresult copy_in(CUcontext ctx, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
			bool per_thread)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	CUcontext before;
	CUresult r;

	r = under.cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
	r = r != CUDA_SUCCESS ? r : under.cuCtxPushCurrent_v2(ctx);
	if (r == CUDA_SUCCESS) {
		r = copy_by_own_stream(dst, src, bytes);
		(void)under.cuCtxPopCurrent_v2(&before);
	}
	shim_capture_restore(mode);
	return r;
}

#define ADDRESS(p) ((CUdeviceptr)(uintptr_t)(p))

/* chunk: that of both which can be one. */
#define WITH_HOST(name, to, from, chunk, per_thread)                                               \
	static CUresult across_##name(to dst, from src, size_t bytes)                              \
	{                                                                                          \
		CUcontext ctx = away_from(chunk);                                                  \
                                                                                                   \
		return ctx ? copy_in(ctx, ADDRESS(dst), ADDRESS(src), bytes, per_thread)           \
			   : under.name(dst, src, bytes);                                          \
	}

/* The program's copy would not count as a wait, which captures in global mode forbid. */
static CUresult copy_between(CUresult (*peer)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext,
					      size_t),
			     CUdeviceptr dst, const struct side *to, CUdeviceptr src,
			     const struct side *from, size_t bytes)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	CUresult r = peer(dst, to->ctx, src, from->ctx, bytes);

	shim_capture_restore(mode);
	return r;
}

#define BETWEEN(name, peer)                                                                        \
	static CUresult across_##name(CUdeviceptr dst, CUdeviceptr src, size_t bytes)              \
	{                                                                                          \
		struct side to, from;                                                              \
                                                                                                   \
		return is_between(dst, src, &to, &from)                                            \
			       ? copy_between(under.peer, dst, &to, src, &from, bytes)             \
			       : under.name(dst, src, bytes);                                      \
	}

/* Of unknown direction. */
#define ANY(name, peer, per_thread)                                                                \
	static CUresult across_##name(CUdeviceptr dst, CUdeviceptr src, size_t bytes)              \
	{                                                                                          \
		struct side to, from;                                                              \
		CUcontext ctx;                                                                     \
                                                                                                   \
		if (is_between(dst, src, &to, &from)) {                                            \
			return copy_between(under.peer, dst, &to, src, &from, bytes);              \
		}                                                                                  \
		ctx = away_from(dst);                                                              \
		ctx = ctx ? ctx : away_from(src);                                                  \
		return ctx ? copy_in(ctx, dst, src, bytes, per_thread)                             \
			   : under.name(dst, src, bytes);                                          \
	}

#define BETWEEN_ASYNC(name, peer)                                                                  \
	static CUresult across_##name(CUdeviceptr dst, CUdeviceptr src, size_t bytes,              \
				      CUstream stream)                                             \
	{                                                                                          \
		struct side to, from;                                                              \
                                                                                                   \
		return is_between(dst, src, &to, &from)                                            \
			       ? under.peer(dst, to.ctx, src, from.ctx, bytes, stream)             \
			       : under.name(dst, src, bytes, stream);                              \
	}

WITH_HOST(cuMemcpyDtoH_v2, void *, CUdeviceptr, src, false)
WITH_HOST(cuMemcpyDtoH_v2_ptds, void *, CUdeviceptr, src, true)
WITH_HOST(cuMemcpyHtoD_v2, CUdeviceptr, const void *, dst, false)
WITH_HOST(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void *, dst, true)
ANY(cuMemcpy, cuMemcpyPeer, false)
ANY(cuMemcpy_ptds, cuMemcpyPeer_ptds, true)
BETWEEN(cuMemcpyDtoD_v2, cuMemcpyPeer)
BETWEEN(cuMemcpyDtoD_v2_ptds, cuMemcpyPeer_ptds)
BETWEEN_ASYNC(cuMemcpyAsync, cuMemcpyPeerAsync)
BETWEEN_ASYNC(cuMemcpyAsync_ptsz, cuMemcpyPeerAsync_ptsz)
BETWEEN_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyPeerAsync)
BETWEEN_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyPeerAsync_ptsz)

/* In the driver's slots, since the shim makes such copies for the program as well. */
#define INSTALL(name)                                                                              \
	do {                                                                                       \
		if (shim_real.name == under.name) {                                                \
			shim_real.name = across_##name;                                            \
		}                                                                                  \
		shim_driver.name = across_##name;                                                  \
	} while (0)

void shim_swap_across_install(void)
{
	under = shim_driver;
	INSTALL(cuMemcpyDtoH_v2);
	INSTALL(cuMemcpyDtoH_v2_ptds);
	INSTALL(cuMemcpyHtoD_v2);
	INSTALL(cuMemcpyHtoD_v2_ptds);
	INSTALL(cuMemcpy);
	INSTALL(cuMemcpy_ptds);
	INSTALL(cuMemcpyDtoD_v2);
	INSTALL(cuMemcpyDtoD_v2_ptds);
	INSTALL(cuMemcpyAsync);
	INSTALL(cuMemcpyAsync_ptsz);
	INSTALL(cuMemcpyDtoDAsync_v2);
	INSTALL(cuMemcpyDtoDAsync_v2_ptsz);
}
