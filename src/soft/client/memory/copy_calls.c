/* The copy entry points: translates every variant to one copy. */
#include <string.h>

#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/array.h"
#include "soft/client/memory/copy.h"
#include "soft/client/process.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream.h"

/* Resolves the stream and copies. A NULL stream is the legacy stream, or the per-thread one if pt
 * is set. */
static CUresult copy_on(int pt, CUstream h, const struct soft_copy *c, bool blocking)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	return e ? e : soft_copy_run(s, c, blocking);
}

static CUresult copy_1d(int pt, uint64_t dst, int dst_device, uint64_t src, int src_device,
			size_t bytes, CUstream h, bool blocking)
{
	struct soft_copy c = { .dst = dst,
			       .src = src,
			       .dst_device = dst_device,
			       .src_device = src_device,
			       .width = bytes,
			       .height = 1 };

	return copy_on(pt, h, &c, blocking);
}

#define HOST(p) ((uint64_t)(uintptr_t)(p))

SOFT_PAIR(cuMemcpyHtoD_v2, _ptds, copy_1d, (CUdeviceptr dst, const void *src, size_t n), dst, 1,
	  HOST(src), 0, n, NULL, true)
SOFT_PAIR(cuMemcpyDtoH_v2, _ptds, copy_1d, (void *dst, CUdeviceptr src, size_t n), HOST(dst), 0,
	  src, 1, n, NULL, true)
SOFT_PAIR(cuMemcpyDtoD_v2, _ptds, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, 1,
	  src, 1, n, NULL, true)
SOFT_PAIR(cuMemcpy, _ptds, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, 0, src, 0, n,
	  NULL, true)
SOFT_PAIR(cuMemcpyHtoDAsync_v2, _ptsz, copy_1d,
	  (CUdeviceptr dst, const void *src, size_t n, CUstream h), dst, 1, HOST(src), 0, n, h,
	  false)
SOFT_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, copy_1d, (void *dst, CUdeviceptr src, size_t n, CUstream h),
	  HOST(dst), 0, src, 1, n, h, false)
SOFT_PAIR(cuMemcpyDtoDAsync_v2, _ptsz, copy_1d,
	  (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream h), dst, 1, src, 1, n, h, false)
SOFT_PAIR(cuMemcpyAsync, _ptsz, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream h),
	  dst, 0, src, 0, n, h, false)

/* Addresses in the API from before CUDA 3.2 have 32 bits; device memory never lies there. */
CUresult cuMemcpyHtoD(CUdeviceptr_v1 dst, const void *src, unsigned int n)
{
	return cuMemcpyHtoD_v2(dst, src, n);
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr_v1 src, unsigned int n)
{
	return cuMemcpyDtoH_v2(dst, src, n);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n)
{
	return cuMemcpyDtoD_v2(dst, src, n);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dst, const void *src, unsigned int n, CUstream h)
{
	return cuMemcpyHtoDAsync_v2(dst, src, n, h);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr_v1 src, unsigned int n, CUstream h)
{
	return cuMemcpyDtoHAsync_v2(dst, src, n, h);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n, CUstream h)
{
	return cuMemcpyDtoDAsync_v2(dst, src, n, h);
}

static CUresult check_contexts(CUcontext a, CUcontext b)
{
	return (a && !soft_object_is(a, SOFT_OBJECT_CONTEXT)) ||
			       (b && !soft_object_is(b, SOFT_OBJECT_CONTEXT))
		       ? CUDA_ERROR_INVALID_CONTEXT
		       : CUDA_SUCCESS;
}

/* A synchronous peer copy is ordered with all other work of both contexts. */
static CUresult drain_both(CUcontext a, CUcontext b)
{
	CUresult e = a ? soft_context_drain(a) : CUDA_SUCCESS;

	return e || !b || a == b ? e : soft_context_drain(b);
}

static CUresult copy_peer(int pt, uint64_t dst, CUcontext dc, uint64_t src, CUcontext sc, size_t n,
			  CUstream h, bool sync)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	dc = soft_green_context(dc);
	sc = soft_green_context(sc);
	e = e ? e : check_contexts(dc, sc);
	e = e || !sync ? e : soft_capture_sync(s);
	e = e || !sync ? e : drain_both(dc, sc);
	e = e ? e : copy_1d(pt, dst, 1, src, 1, n, h, sync);
	return e || !sync ? e : soft_stream_drain(s);
}
SOFT_PAIR(cuMemcpyPeer, _ptds, copy_peer,
	  (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n), dst, dc, src,
	  sc, n, NULL, true)
SOFT_PAIR(cuMemcpyPeerAsync, _ptsz, copy_peer,
	  (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream h), dst,
	  dc, src, sc, n, h, false)

/* ---- copies with coordinates: every description is widened to the largest one ---- */

struct side {
	CUmemorytype type;
	CUarray array;
	uint64_t host, device;
	size_t x, y, z, pitch, rows, lod;
};

static CUresult side_linear(const struct side *s, uint64_t base, const CUDA_MEMCPY3D_PEER *p,
			    struct soft_array_box *ret)
{
	uint64_t end, rows, offset, part;

	if (checked_add(s->x, p->WidthInBytes, &end)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	ret->pitch = s->pitch ? s->pitch : end;
	rows = s->rows ? s->rows : s->y + p->Height;
	if ((p->Height > 1 || p->Depth > 1 || s->y || s->z) && ret->pitch < end) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((p->Depth > 1 || s->z) && (rows < s->y || rows - s->y < p->Height)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (checked_mul(ret->pitch, rows, &ret->slice) || checked_mul(s->y, ret->pitch, &offset) ||
	    checked_mul(s->z, ret->slice, &part) || checked_add(offset, part, &offset) ||
	    checked_add(offset, s->x, &offset) || checked_add(base, offset, &ret->address)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!base) {
		ret->address = 0; /* refused later, unless the copy is empty */
	}
	return CUDA_SUCCESS;
}

static CUresult side_place(const struct side *s, const CUDA_MEMCPY3D_PEER *p,
			   struct soft_array_box *ret, int *ret_device)
{
	*ret_device = s->type == CU_MEMORYTYPE_DEVICE || s->type == CU_MEMORYTYPE_ARRAY;
	if (s->lod) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	switch (s->type) {
	case CU_MEMORYTYPE_HOST:
		return side_linear(s, s->host, p, ret);
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		return side_linear(s, s->device, p, ret);
	case CU_MEMORYTYPE_ARRAY:
		return soft_array_locate(s->array, s->x, s->y, s->z, p->WidthInBytes, p->Height,
					 p->Depth, ret);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult soft_copy_resolve(const CUDA_MEMCPY3D_PEER *p, struct soft_copy *ret)
{
	struct side d = { p->dstMemoryType, p->dstArray, HOST(p->dstHost), p->dstDevice,
			  p->dstXInBytes,   p->dstY,	 p->dstZ,	   p->dstPitch,
			  p->dstHeight,	    p->dstLOD };
	struct side s = { p->srcMemoryType, p->srcArray, HOST(p->srcHost), p->srcDevice,
			  p->srcXInBytes,   p->srcY,	 p->srcZ,	   p->srcPitch,
			  p->srcHeight,	    p->srcLOD };
	struct soft_array_box to, from;
	CUresult e;

	*ret = (struct soft_copy){ .width = p->WidthInBytes,
				   .height = p->Depth ? p->Height : 0,
				   .depth = p->Depth };
	e = check_contexts(p->dstContext, p->srcContext);
	e = e ? e : side_place(&d, p, &to, &ret->dst_device);
	e = e ? e : side_place(&s, p, &from, &ret->src_device);
	if (e) {
		return e;
	}
	ret->dst = to.address;
	ret->dst_pitch = to.pitch;
	ret->dst_slice = to.slice;
	ret->src = from.address;
	ret->src_pitch = from.pitch;
	ret->src_slice = from.slice;
	return CUDA_SUCCESS;
}

static CUresult copy_3d_peer(int pt, const CUDA_MEMCPY3D_PEER *p, CUstream h, bool blocking)
{
	struct soft_copy c;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	e = p ? soft_copy_resolve(p, &c) : CUDA_ERROR_INVALID_VALUE;
	return e ? e : copy_on(pt, h, &c, blocking);
}

static CUresult peer_3d(int pt, const CUDA_MEMCPY3D_PEER *p, CUstream h, bool sync)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && !p) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	e = e ? e : check_contexts(p->dstContext, p->srcContext);
	e = e || !sync ? e : soft_capture_sync(s);
	e = e || !sync ? e : drain_both(p->dstContext, p->srcContext);
	e = e ? e : copy_3d_peer(pt, p, h, sync);
	return e || !sync ? e : soft_stream_drain(s);
}
SOFT_PAIR(cuMemcpy3DPeer, _ptds, peer_3d, (const CUDA_MEMCPY3D_PEER *p), p, NULL, true)
SOFT_PAIR(cuMemcpy3DPeerAsync, _ptsz, peer_3d, (const CUDA_MEMCPY3D_PEER *p, CUstream h), p, h,
	  false)

_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER),
	       "they differ in what two members mean");

static CUresult copy_3d(int pt, const CUDA_MEMCPY3D *p, CUstream h, bool blocking)
{
	CUDA_MEMCPY3D_PEER full;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(&full, p, sizeof(full));
	full.srcContext = full.dstContext = NULL;
	return copy_3d_peer(pt, &full, h, blocking);
}
SOFT_PAIR(cuMemcpy3D_v2, _ptds, copy_3d, (const CUDA_MEMCPY3D *p), p, NULL, true)
SOFT_PAIR(cuMemcpy3DAsync_v2, _ptsz, copy_3d, (const CUDA_MEMCPY3D *p, CUstream h), p, h, false)

/* Copies the members that all 2D and 3D descriptions have in common. */
#define WIDEN_SIDE(full, p, side)                                                                  \
	((full).side##XInBytes = (p)->side##XInBytes, (full).side##Y = (p)->side##Y,               \
	 (full).side##MemoryType = (p)->side##MemoryType, (full).side##Host = (p)->side##Host,     \
	 (full).side##Device = (p)->side##Device, (full).side##Array = (p)->side##Array,           \
	 (full).side##Pitch = (p)->side##Pitch)

#define WIDEN(full, p)                                                                             \
	(WIDEN_SIDE(full, p, src), WIDEN_SIDE(full, p, dst),                                       \
	 (full).WidthInBytes = (p)->WidthInBytes, (full).Height = (p)->Height)

#define WIDEN_DEEP(full, p)                                                                        \
	(WIDEN(full, p), (full).srcZ = (p)->srcZ, (full).dstZ = (p)->dstZ,                         \
	 (full).srcLOD = (p)->srcLOD, (full).dstLOD = (p)->dstLOD,                                 \
	 (full).srcHeight = (p)->srcHeight, (full).dstHeight = (p)->dstHeight,                     \
	 (full).Depth = (p)->Depth)

static CUresult copy_2d(int pt, const CUDA_MEMCPY2D *p, CUstream h, bool blocking)
{
	CUDA_MEMCPY3D_PEER full = { .Depth = 1 };

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	WIDEN(full, p);
	return copy_3d_peer(pt, &full, h, blocking);
}
SOFT_PAIR(cuMemcpy2D_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D *p), p, NULL, true)
SOFT_PAIR(cuMemcpy2DUnaligned_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D *p), p, NULL, true)
SOFT_PAIR(cuMemcpy2DAsync_v2, _ptsz, copy_2d, (const CUDA_MEMCPY2D *p, CUstream h), p, h, false)

static CUresult copy_2d_v1(const CUDA_MEMCPY2D_v1 *p, CUstream h, bool blocking)
{
	CUDA_MEMCPY3D_PEER full = { .Depth = 1 };

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	WIDEN(full, p);
	return copy_3d_peer(0, &full, h, blocking);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *p)
{
	return copy_2d_v1(p, NULL, true);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *p)
{
	return copy_2d_v1(p, NULL, true);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *p, CUstream h)
{
	return copy_2d_v1(p, h, false);
}

static CUresult copy_3d_v1(const CUDA_MEMCPY3D_v1 *p, CUstream h, bool blocking)
{
	CUDA_MEMCPY3D_PEER full = { 0 };

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	WIDEN_DEEP(full, p);
	return copy_3d_peer(0, &full, h, blocking);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *p)
{
	return copy_3d_v1(p, NULL, true);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *p, CUstream h)
{
	return copy_3d_v1(p, h, false);
}

/* ---- arrays as bytes: a side is an array with an offset, or an address ---- */
static CUresult copy_bytes(int pt, CUarray da, uint64_t dst, int dst_device, CUarray sa,
			   uint64_t src, int src_device, size_t n, CUstream h, bool blocking)
{
	CUresult e = soft_check();

	if (!e && (da || dst_device == 2)) {
		e = soft_array_linear(da, dst, n, &dst);
	}
	if (!e && (sa || src_device == 2)) {
		e = soft_array_linear(sa, src, n, &src);
	}
	return e ? e : copy_1d(pt, dst, dst_device != 0, src, src_device != 0, n, h, blocking);
}

#define ARRAY 2
SOFT_PAIR(cuMemcpyAtoA_v2, _ptds, copy_bytes,
	  (CUarray d, size_t at, CUarray s, size_t from, size_t n), d, at, ARRAY, s, from, ARRAY, n,
	  NULL, true)
SOFT_PAIR(cuMemcpyAtoD_v2, _ptds, copy_bytes, (CUdeviceptr d, CUarray s, size_t from, size_t n),
	  NULL, d, 1, s, from, ARRAY, n, NULL, true)
SOFT_PAIR(cuMemcpyDtoA_v2, _ptds, copy_bytes, (CUarray d, size_t at, CUdeviceptr s, size_t n), d,
	  at, ARRAY, NULL, s, 1, n, NULL, true)
SOFT_PAIR(cuMemcpyAtoH_v2, _ptds, copy_bytes, (void *d, CUarray s, size_t from, size_t n), NULL,
	  HOST(d), 0, s, from, ARRAY, n, NULL, true)
SOFT_PAIR(cuMemcpyHtoA_v2, _ptds, copy_bytes, (CUarray d, size_t at, const void *s, size_t n), d,
	  at, ARRAY, NULL, HOST(s), 0, n, NULL, true)
SOFT_PAIR(cuMemcpyAtoHAsync_v2, _ptsz, copy_bytes,
	  (void *d, CUarray s, size_t from, size_t n, CUstream h), NULL, HOST(d), 0, s, from, ARRAY,
	  n, h, false)
SOFT_PAIR(cuMemcpyHtoAAsync_v2, _ptsz, copy_bytes,
	  (CUarray d, size_t at, const void *s, size_t n, CUstream h), d, at, ARRAY, NULL, HOST(s),
	  0, n, h, false)

CUresult cuMemcpyAtoA(CUarray d, unsigned int at, CUarray s, unsigned int from, unsigned int n)
{
	return cuMemcpyAtoA_v2(d, at, s, from, n);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 d, CUarray s, unsigned int from, unsigned int n)
{
	return cuMemcpyAtoD_v2(d, s, from, n);
}

CUresult cuMemcpyDtoA(CUarray d, unsigned int at, CUdeviceptr_v1 s, unsigned int n)
{
	return cuMemcpyDtoA_v2(d, at, s, n);
}

CUresult cuMemcpyAtoH(void *d, CUarray s, unsigned int from, unsigned int n)
{
	return cuMemcpyAtoH_v2(d, s, from, n);
}

CUresult cuMemcpyHtoA(CUarray d, unsigned int at, const void *s, unsigned int n)
{
	return cuMemcpyHtoA_v2(d, at, s, n);
}

CUresult cuMemcpyAtoHAsync(void *d, CUarray s, unsigned int from, unsigned int n, CUstream h)
{
	return cuMemcpyAtoHAsync_v2(d, s, from, n, h);
}

CUresult cuMemcpyHtoAAsync(CUarray d, unsigned int at, const void *s, unsigned int n, CUstream h)
{
	return cuMemcpyHtoAAsync_v2(d, at, s, n, h);
}
