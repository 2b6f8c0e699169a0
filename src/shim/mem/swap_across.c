/* Copies that name chunks of another device than the current context's. For memory of cuMemAlloc
 * the driver finds out on which device it is, in whatever context a copy is made. Memory that is
 * mapped, as chunks are, it knows only in contexts of the devices for which it is mapped, except in
 * cuMemcpyPeer, which gets the contexts of both sides (PyTorch, which maps memory, copies it so).
 * So copies between devices become that one; synchronous ones between a chunk and the host are made
 * in a context of the chunk's device. Asynchronous ones of the latter kind, sets and copies with
 * coordinates are the driver's as they came. */
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

/* Makes a context current in which chunks can be copied from and to the host, and returns true, if
 * the present one is none: leave() follows. The copy comes behind the work that it would have
 * waited for there. */
static bool enter(CUdeviceptr address, bool per_thread)
{
	CUdevice current;
	struct side s;

	if (!may_be(&current)) {
		return false;
	}
	s = side_of(address, current);
	if (s.is_mapped || !s.ctx) {
		return false;
	}
	(void)shim_driver.cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
	return shim_driver.cuCtxPushCurrent_v2(s.ctx) == CUDA_SUCCESS;
}

static void leave(bool entered)
{
	CUcontext before;

	if (entered) {
		(void)shim_driver.cuCtxPopCurrent_v2(&before);
	}
}

#define DOWN(name, per_thread)                                                                     \
	static CUresult across_##name(void *dst, CUdeviceptr src, size_t bytes)                    \
	{                                                                                          \
		bool entered = enter(src, per_thread);                                             \
		CUresult r = under.name(dst, src, bytes);                                          \
                                                                                                   \
		leave(entered);                                                                    \
		return r;                                                                          \
	}

#define UP(name, per_thread)                                                                       \
	static CUresult across_##name(CUdeviceptr dst, const void *src, size_t bytes)              \
	{                                                                                          \
		bool entered = enter(dst, per_thread);                                             \
		CUresult r = under.name(dst, src, bytes);                                          \
                                                                                                   \
		leave(entered);                                                                    \
		return r;                                                                          \
	}

#define BETWEEN(name, peer)                                                                        \
	static CUresult across_##name(CUdeviceptr dst, CUdeviceptr src, size_t bytes)              \
	{                                                                                          \
		struct side to, from;                                                              \
                                                                                                   \
		return is_between(dst, src, &to, &from)                                            \
			       ? under.peer(dst, to.ctx, src, from.ctx, bytes)                     \
			       : under.name(dst, src, bytes);                                      \
	}

/* Of unknown direction: with one side on the host, the other one's context is entered. */
#define ANY(name, peer, per_thread)                                                                \
	static CUresult across_##name(CUdeviceptr dst, CUdeviceptr src, size_t bytes)              \
	{                                                                                          \
		struct side to, from;                                                              \
		bool entered;                                                                      \
		CUresult r;                                                                        \
                                                                                                   \
		if (is_between(dst, src, &to, &from)) {                                            \
			return under.peer(dst, to.ctx, src, from.ctx, bytes);                      \
		}                                                                                  \
		entered = enter(dst, per_thread) || enter(src, per_thread);                        \
		r = under.name(dst, src, bytes);                                                   \
		leave(entered);                                                                    \
		return r;                                                                          \
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

DOWN(cuMemcpyDtoH_v2, false)
DOWN(cuMemcpyDtoH_v2_ptds, true)
UP(cuMemcpyHtoD_v2, false)
UP(cuMemcpyHtoD_v2_ptds, true)
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
