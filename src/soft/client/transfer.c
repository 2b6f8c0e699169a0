/* The copy and memset entry points: every variant, down to one copy and one memset. */
#include "soft/client/client.h"

/* Checks the stream and copies; null streams mean the legacy stream, or the thread's own when pt is
 * set. */
static CUresult copy_on(int pt, CUstream h, const struct copy *c, bool blocking)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	return e ? e : copy_run(s, c, blocking);
}

static CUresult copy_1d(int pt, uint64_t dst, int dst_device, uint64_t src, int src_device,
			size_t bytes, CUstream h, bool blocking)
{
	struct copy c = { .dst = dst,
			  .src = src,
			  .dst_device = dst_device,
			  .src_device = src_device,
			  .width = bytes,
			  .height = 1 };

	return copy_on(pt, h, &c, blocking);
}

#define HOST(p) ((uint64_t)(uintptr_t)(p))

PAIR(cuMemcpyHtoD_v2, _ptds, copy_1d, (CUdeviceptr dst, const void *src, size_t n), dst, 1,
     HOST(src), 0, n, NULL, true)
PAIR(cuMemcpyDtoH_v2, _ptds, copy_1d, (void *dst, CUdeviceptr src, size_t n), HOST(dst), 0, src, 1,
     n, NULL, true)
PAIR(cuMemcpyDtoD_v2, _ptds, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, 1, src, 1,
     n, NULL, true)
PAIR(cuMemcpy, _ptds, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, 0, src, 0, n,
     NULL, true)
PAIR(cuMemcpyHtoDAsync_v2, _ptsz, copy_1d, (CUdeviceptr dst, const void *src, size_t n, CUstream h),
     dst, 1, HOST(src), 0, n, h, false)
PAIR(cuMemcpyDtoHAsync_v2, _ptsz, copy_1d, (void *dst, CUdeviceptr src, size_t n, CUstream h),
     HOST(dst), 0, src, 1, n, h, false)
PAIR(cuMemcpyDtoDAsync_v2, _ptsz, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream h),
     dst, 1, src, 1, n, h, false)
PAIR(cuMemcpyAsync, _ptsz, copy_1d, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream h), dst,
     0, src, 0, n, h, false)
PAIR(cuMemcpyPeer, _ptds, copy_1d,
     (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n), dst, 1, src, 1, n,
     NULL, true)
PAIR(cuMemcpyPeerAsync, _ptsz, copy_1d,
     (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream h), dst, 1,
     src, 1, n, h, false)

/* One side of a 2D or 3D copy. 0, or what is wrong. */
struct side {
	CUmemorytype type;
	uint64_t host, device;
	size_t x, y, z, pitch, rows;
};

static CUresult side_address(const struct side *s, size_t width, uint64_t *ret, int *ret_device,
			     size_t *ret_pitch)
{
	uint64_t base;

	switch (s->type) {
	case CU_MEMORYTYPE_HOST:
		base = s->host;
		*ret_device = 0;
		break;
	case CU_MEMORYTYPE_DEVICE:
		base = s->device;
		*ret_device = 1;
		break;
	case CU_MEMORYTYPE_UNIFIED:
		base = s->device;
		*ret_device = 0;
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
	}
	*ret_pitch = s->pitch ? s->pitch : width + s->x;
	*ret = base + s->x + s->y * *ret_pitch + s->z * *ret_pitch * s->rows;
	return CUDA_SUCCESS;
}

static CUresult copy_2d(int pt, const CUDA_MEMCPY2D *p, CUstream h, bool blocking)
{
	struct copy c = { 0 };
	struct side d, s;
	CUresult e;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	d = (struct side){ p->dstMemoryType, HOST(p->dstHost),
			   p->dstDevice,     p->dstXInBytes,
			   p->dstY,	     0,
			   p->dstPitch,	     0 };
	s = (struct side){ p->srcMemoryType, HOST(p->srcHost),
			   p->srcDevice,     p->srcXInBytes,
			   p->srcY,	     0,
			   p->srcPitch,	     0 };
	c.width = p->WidthInBytes;
	c.height = p->Height;
	e = side_address(&d, c.width, &c.dst, &c.dst_device, &c.dst_pitch);
	e = e ? e : side_address(&s, c.width, &c.src, &c.src_device, &c.src_pitch);
	return e ? e : copy_on(pt, h, &c, blocking);
}
PAIR(cuMemcpy2D_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D *p), p, NULL, true)
PAIR(cuMemcpy2DUnaligned_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D *p), p, NULL, true)
PAIR(cuMemcpy2DAsync_v2, _ptsz, copy_2d, (const CUDA_MEMCPY2D *p, CUstream h), p, h, false)

static CUresult copy_3d(int pt, const CUDA_MEMCPY3D *p, CUstream h, bool blocking)
{
	CUresult e = CUDA_SUCCESS;
	struct side d, s;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	d = (struct side){ p->dstMemoryType, HOST(p->dstHost),
			   p->dstDevice,     p->dstXInBytes,
			   p->dstY,	     p->dstZ,
			   p->dstPitch,	     p->dstHeight ? p->dstHeight : p->Height };
	s = (struct side){ p->srcMemoryType, HOST(p->srcHost),
			   p->srcDevice,     p->srcXInBytes,
			   p->srcY,	     p->srcZ,
			   p->srcPitch,	     p->srcHeight ? p->srcHeight : p->Height };
	for (size_t i = 0; i < p->Depth && !e; i++) {
		struct copy c = { .width = p->WidthInBytes, .height = p->Height };

		e = side_address(&d, c.width, &c.dst, &c.dst_device, &c.dst_pitch);
		e = e ? e : side_address(&s, c.width, &c.src, &c.src_device, &c.src_pitch);
		e = e ? e : copy_on(pt, h, &c, blocking);
		d.z++;
		s.z++;
	}
	return e;
}
PAIR(cuMemcpy3D_v2, _ptds, copy_3d, (const CUDA_MEMCPY3D *p), p, NULL, true)
PAIR(cuMemcpy3DAsync_v2, _ptsz, copy_3d, (const CUDA_MEMCPY3D *p, CUstream h), p, h, false)

/* Memsets return at once, as the driver's do. */
static CUresult set(int pt, CUdeviceptr dst, size_t pitch, unsigned value, unsigned unit,
		    size_t width, size_t height, CUstream h)
{
	struct soft_record_set r = { .r.op = SOFT_OP_SET,
				     .dst = dst,
				     .pitch = pitch,
				     .width = width,
				     .height = height,
				     .value = value,
				     .unit = unit };
	uint64_t bytes, extent;
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e || !width || !height) {
		return e;
	}
	if (dst % unit || checked_mul((uint64_t)width, (uint64_t)unit, &bytes) ||
	    (height > 1 && (pitch < bytes || pitch % unit)) ||
	    checked_mul(height > 1 ? (uint64_t)pitch : 0, (uint64_t)height - 1, &extent) ||
	    checked_add(extent, bytes, &extent) || !memory_valid(dst, extent, NULL)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return ring_put(s, &r.r, sizeof(r), NULL, 0, NULL);
}

#define SET_ENTRIES(bits, type)                                                                    \
	PAIR(cuMemsetD##bits##_v2, _ptds, set, (CUdeviceptr p, type v, size_t n), p, 0, v,         \
	     bits / 8, n, 1, NULL)                                                                 \
	PAIR(cuMemsetD##bits##Async, _ptsz, set, (CUdeviceptr p, type v, size_t n, CUstream h), p, \
	     0, v, bits / 8, n, 1, h)                                                              \
	PAIR(cuMemsetD2D##bits##_v2, _ptds, set,                                                   \
	     (CUdeviceptr p, size_t pitch, type v, size_t w, size_t height), p, pitch, v,          \
	     bits / 8, w, height, NULL)                                                            \
	PAIR(cuMemsetD2D##bits##Async, _ptsz, set,                                                 \
	     (CUdeviceptr p, size_t pitch, type v, size_t w, size_t height, CUstream h), p, pitch, \
	     v, bits / 8, w, height, h)
SET_ENTRIES(8, unsigned char)
SET_ENTRIES(16, unsigned short)
SET_ENTRIES(32, unsigned int)
