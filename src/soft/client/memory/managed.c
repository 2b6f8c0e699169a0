/* Managed memory: host memory that both sides reach at one address, not counted as device memory.
 * It never migrates, so advice and prefetches are only stored for queries. */
#include <string.h>

#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"

#define NOWHERE (-2) /* CU_DEVICE_INVALID */
#define HOST_ID (-1) /* CU_DEVICE_CPU */

CUresult cuMemAllocManaged(CUdeviceptr *ret, size_t bytes, unsigned int flags)
{
	struct soft_range like = { .kind = SOFT_RANGE_MANAGED,
				   .flags = flags,
				   .preferred = NOWHERE,
				   .prefetched = NOWHERE };
	uint64_t p;
	CUresult e;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_memory_allocate(ret ? &p : NULL, bytes, &like);
	if (!e) {
		*ret = p;
	}
	return e;
}

/* Parses a location of managed memory: a GPU, or the host by any of its names. */
static CUresult place(const CUmemLocation *where, int *ret)
{
	switch (where->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*ret = where->id;
		return soft_memory_check_location(where) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		*ret = HOST_ID;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUmemLocation location_of(CUdevice dev)
{
	CUmemLocation host = { CU_MEM_LOCATION_TYPE_HOST, 0 };
	CUmemLocation gpu = { CU_MEM_LOCATION_TYPE_DEVICE, dev };

	return dev == HOST_ID ? host : gpu;
}

/* Checks that the range lies in one managed allocation. */
static CUresult managed(CUdeviceptr p, size_t bytes, CUcontext *ret_ctx, struct soft_range *ret)
{
	return bytes && soft_memory_find(p, ret_ctx, ret) && ret->kind == SOFT_RANGE_MANAGED &&
			       bytes <= ret->bytes - (p - ret->address)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static void set_prefetched(struct soft_range *r, void *arg)
{
	r->prefetched = *(const int *)arg;
}

static CUresult prefetch_one(CUdeviceptr p, size_t bytes, const CUmemLocation *where)
{
	struct soft_range r;
	CUcontext ctx;
	int to;
	CUresult e = place(where, &to);

	e = e ? e : managed(p, bytes, &ctx, &r);
	if (!e) {
		soft_memory_change(r.address, set_prefetched, &to);
	}
	return e;
}

static CUresult prefetch(int pt, CUdeviceptr p, size_t bytes, CUmemLocation where, unsigned flags,
			 CUstream h)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_refuse(s);
	return e ? e : flags ? CUDA_ERROR_INVALID_VALUE : prefetch_one(p, bytes, &where);
}
SOFT_PAIR(cuMemPrefetchAsync, _ptsz, prefetch,
	  (CUdeviceptr p, size_t bytes, CUdevice dev, CUstream h), p, bytes, location_of(dev), 0, h)
SOFT_PAIR(cuMemPrefetchAsync_v2, _ptsz, prefetch,
	  (CUdeviceptr p, size_t bytes, CUmemLocation where, unsigned int flags, CUstream h), p,
	  bytes, where, flags, h)

static CUresult prefetch_batch(int pt, const CUdeviceptr *p, const size_t *bytes, size_t count,
			       const CUmemLocation *where, const size_t *first, size_t n,
			       unsigned long long flags, CUstream h)
{
	size_t which = 0;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_refuse(s);
	if (!e &&
	    (!p || !bytes || !count || !where || !first || !n || n > count || first[0] || flags)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count && !e; i++) {
		if (which + 1 < n && first[which + 1] == i) {
			which++;
		}
		e = prefetch_one(p[i], bytes[i], &where[which]);
	}
	return e;
}
SOFT_PAIR(cuMemPrefetchBatchAsync, _ptsz, prefetch_batch,
	  (CUdeviceptr * p, size_t *bytes, size_t count, CUmemLocation *where, size_t *first,
	   size_t n, unsigned long long flags, CUstream h),
	  p, bytes, count, where, first, n, flags, h)

struct advice {
	CUmem_advise what;
	int where;
};

static void take_advice(struct soft_range *r, void *arg)
{
	const struct advice *a = arg;

	switch (a->what) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		r->read_mostly = a->what == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		r->preferred = a->where;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		r->preferred = NOWHERE;
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		r->accessed_by |= (uint16_t)(1u << (a->where + 1));
		break;
	default:
		r->accessed_by &= (uint16_t) ~(1u << (a->where + 1));
	}
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t bytes, CUmem_advise what, CUmemLocation where)
{
	struct advice a = { what, NOWHERE };
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (what < CU_MEM_ADVISE_SET_READ_MOSTLY || what > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || what >= CU_MEM_ADVISE_SET_ACCESSED_BY) {
		e = place(&where, &a.where); /* the other kinds of advice have no location */
	}
	e = e ? e : managed(p, bytes, &ctx, &r);
	if (!e) {
		soft_memory_change(r.address, take_advice, &a);
	}
	return e;
}

CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise what, CUdevice dev)
{
	return cuMemAdvise_v2(p, bytes, what, location_of(dev));
}

static CUresult give(void *out, size_t size, int value)
{
	if (size != sizeof(value)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(out, &value, sizeof(value));
	return CUDA_SUCCESS;
}

static int type_of(int where)
{
	return where == NOWHERE	  ? CU_MEM_LOCATION_TYPE_INVALID
	       : where == HOST_ID ? CU_MEM_LOCATION_TYPE_HOST
				  : CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult give_accessed(int *out, size_t size, unsigned mask)
{
	size_t n = 0;

	if (!size || size % sizeof(*out)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (int where = HOST_ID; where < (int)SOFT_MAX_GPUS && n < size / sizeof(*out); where++) {
		if (mask >> (where + 1) & 1) {
			out[n++] = where;
		}
	}
	while (n < size / sizeof(*out)) {
		out[n++] = NOWHERE;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *out, size_t size, CUmem_range_attribute what, CUdeviceptr p,
				size_t bytes)
{
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	e = e ? e : managed(p, bytes, &ctx, &r);
	if (e || !out) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	switch (what) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		return give(out, size, r.read_mostly);
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		return give(out, size, r.preferred);
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		return give_accessed(out, size, r.accessed_by);
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		return give(out, size, r.prefetched);
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		return give(out, size, type_of(r.preferred));
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		return give(out, size, MAX(r.preferred, 0));
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		return give(out, size, type_of(r.prefetched));
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		return give(out, size, MAX(r.prefetched, 0));
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuMemRangeGetAttributes(void **out, size_t *sizes, CUmem_range_attribute *what, size_t n,
				 CUdeviceptr p, size_t bytes)
{
	CUresult e = soft_check();

	if (!e && (!out || !sizes || !what || !n)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n && !e; i++) {
		e = cuMemRangeGetAttribute(out[i], sizes[i], what[i], p, bytes);
	}
	return e;
}
