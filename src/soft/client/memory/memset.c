/* The memset entry points. Ranges are checked here, before the server sees them. */
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/ring_submit.h"

/* Returns at once, as the driver does, except for a synchronous memset of host memory. */
static CUresult set(int pt, CUdeviceptr dst, size_t pitch, unsigned value, unsigned unit,
		    size_t width, size_t height, CUstream h, bool sync)
{
	struct soft_record_set r = { .r.op = SOFT_OP_SET,
				     .dst = dst,
				     .pitch = pitch,
				     .width = width,
				     .height = height,
				     .value = value,
				     .unit = unit };
	uint64_t bytes, extent;
	uint32_t target;
	bool captured;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !width || !height) {
		return e;
	}
	if (dst % unit || checked_mul((uint64_t)width, (uint64_t)unit, &bytes) ||
	    (height > 1 && (pitch < bytes || pitch % unit)) ||
	    checked_mul(height > 1 ? (uint64_t)pitch : 0, (uint64_t)height - 1, &extent) ||
	    checked_add(extent, bytes, &extent) || !soft_memory_allows(dst, extent, 2)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_capture_memset(
		s, &(CUDA_MEMSET_NODE_PARAMS){ dst, pitch, value, unit, width, height }, &captured);
	if (e || captured) {
		return e;
	}
	e = soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, &target);
	return e || !soft_memory_blocks(dst, 0, sync) ? e : soft_stream_wait(s, target);
}

#define SET_ENTRIES(bits, type)                                                                    \
	SOFT_PAIR(cuMemsetD##bits##_v2, _ptds, set, (CUdeviceptr p, type v, size_t n), p, 0, v,    \
		  bits / 8, n, 1, NULL, true)                                                      \
	SOFT_PAIR(cuMemsetD##bits##Async, _ptsz, set,                                              \
		  (CUdeviceptr p, type v, size_t n, CUstream h), p, 0, v, bits / 8, n, 1, h,       \
		  false)                                                                           \
	SOFT_PAIR(cuMemsetD2D##bits##_v2, _ptds, set,                                              \
		  (CUdeviceptr p, size_t pitch, type v, size_t w, size_t height), p, pitch, v,     \
		  bits / 8, w, height, NULL, true)                                                 \
	SOFT_PAIR(cuMemsetD2D##bits##Async, _ptsz, set,                                            \
		  (CUdeviceptr p, size_t pitch, type v, size_t w, size_t height, CUstream h), p,   \
		  pitch, v, bits / 8, w, height, h, false)                                         \
	CUresult cuMemsetD##bits(CUdeviceptr_v1 p, type v, unsigned int n)                         \
	{                                                                                          \
		return cuMemsetD##bits##_v2(p, v, n);                                              \
	}                                                                                          \
	CUresult cuMemsetD2D##bits(CUdeviceptr_v1 p, unsigned int pitch, type v, unsigned int w,   \
				   unsigned int height)                                            \
	{                                                                                          \
		return cuMemsetD2D##bits##_v2(p, pitch, v, w, height);                             \
	}
SET_ENTRIES(8, unsigned char)
SET_ENTRIES(16, unsigned short)
SET_ENTRIES(32, unsigned int)
