/* Captured copies and memsets: translates them into node parameters. */
#include <string.h>

#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"
#include "soft/client/memory/copy.h"
#include "soft/client/memory/memory.h"

static CUmemorytype type_of(uint64_t address)
{
	struct soft_range r;
	CUcontext ctx;

	return soft_memory_find(address, &ctx, &r) && r.kind != SOFT_RANGE_HOST
		       ? CU_MEMORYTYPE_DEVICE
		       : CU_MEMORYTYPE_HOST;
}

/* Returns the driver's description of the copy. */
static CUDA_MEMCPY3D describe(const struct soft_copy *c)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = type_of(c->src),
			    .dstMemoryType = type_of(c->dst),
			    .srcPitch = c->src_pitch,
			    .dstPitch = c->dst_pitch,
			    .srcHeight = c->src_slice ? c->src_slice / c->src_pitch : c->height,
			    .dstHeight = c->dst_slice ? c->dst_slice / c->dst_pitch : c->height,
			    .WidthInBytes = c->width,
			    .Height = c->height,
			    .Depth = c->depth };

	if (p.srcMemoryType == CU_MEMORYTYPE_DEVICE) {
		p.srcDevice = c->src;
	} else {
		p.srcHost = (const void *)(uintptr_t)c->src;
	}
	if (p.dstMemoryType == CU_MEMORYTYPE_DEVICE) {
		p.dstDevice = c->dst;
	} else {
		p.dstHost = (void *)(uintptr_t)c->dst;
	}
	return p;
}

CUresult soft_capture_copy(CUstream s, const struct soft_copy *c, bool blocking, bool *ret)
{
	struct soft_work w = { .type = CU_GRAPH_NODE_TYPE_MEMCPY, .ctx = s->context };
	CUresult e = soft_capture_check(s, ret);

	if (e || !*ret) {
		return e;
	}
	if (blocking) {
		return soft_capture_refuse(s);
	}
	w.copy.c = *c;
	w.copy.params = describe(c);
	return soft_capture_add(s, &w);
}

CUresult soft_capture_memset(CUstream s, const CUDA_MEMSET_NODE_PARAMS *p, bool *ret)
{
	struct soft_work w;
	CUresult e = soft_capture_check(s, ret);

	if (e || !*ret) {
		return e;
	}
	e = soft_work_memset(&w, p, s->context);
	return e ? e : soft_capture_add(s, &w);
}

CUresult soft_capture_alloc(CUstream s, CUdeviceptr *ret_address, size_t bytes, bool *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							.location = { CU_MEM_LOCATION_TYPE_DEVICE,
								      s->context->device } },
					 .bytesize = bytes };
	struct soft_work w;
	CUdeviceptr address;
	CUcontext popped;
	CUresult e = soft_capture_check(s, ret);

	if (e || !*ret) {
		return e;
	}
	e = ret_address ? soft_context_push(s->context) : CUDA_ERROR_INVALID_VALUE;
	if (e) {
		return e;
	}
	e = soft_work_alloc(&w, &p);
	soft_context_pop(&popped);
	if (e) {
		return e;
	}
	address = w.alloc.params.dptr;
	e = soft_capture_add(s, &w);
	if (!e) {
		*ret_address = address;
	}
	return e;
}

CUresult soft_capture_free(CUstream s, CUdeviceptr address, bool *ret)
{
	struct soft_work w;
	CUresult e = soft_capture_check(s, ret);

	if (e || !*ret) {
		return e;
	}
	e = soft_work_free(&w, address);
	return e ? e : soft_capture_add(s, &w);
}
