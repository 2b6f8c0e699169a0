/* Batches: many copies in one stream, whose order among themselves is undefined. */
#include <string.h>

#include "soft/client/memory/array.h"
#include "soft/client/memory/copy.h"
#include "soft/client/process.h"

static CUresult batch_stream(int pt, CUstream h, CUstream *ret)
{
	return h && h != CU_STREAM_LEGACY ? soft_stream_resolve(h, pt, ret)
	       : pt && !h		  ? soft_stream_resolve(h, pt, ret)
			  : CUDA_ERROR_INVALID_VALUE; /* the driver refuses the legacy stream */
}

static bool order_known(unsigned order)
{
	return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
	       order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* Attribute i applies from copy first[i] on. */
static CUresult check_attributes(const CUmemcpyAttributes *a, const size_t *first, size_t n,
				 size_t count)
{
	if (!a || !first || !n || n > count || first[0]) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n; i++) {
		if (!order_known(a[i].srcAccessOrder) || a[i].flags & ~1u || first[i] >= count ||
		    (i && first[i] <= first[i - 1])) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

/* A source that is valid only during the call is read before it returns. */
static CUresult run(CUstream s, const struct soft_copy *c, unsigned order)
{
	return soft_copy_run(s, c, order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
}

static CUresult batch(int pt, const CUdeviceptr *dst, const CUdeviceptr *src, const size_t *bytes,
		      size_t count, const CUmemcpyAttributes *a, const size_t *first, size_t n,
		      size_t *ret_failed, CUstream h)
{
	size_t which = 0;
	CUstream s;
	CUresult e = soft_check();

	if (ret_failed) {
		*ret_failed = SIZE_MAX;
	}
	e = e ? e : batch_stream(pt, h, &s);
	if (!e && (!dst || !src || !bytes || !count)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	e = e ? e : check_attributes(a, first, n, count);
	for (size_t i = 0; i < count && !e; i++) {
		struct soft_copy c = {
			.dst = dst[i], .src = src[i], .width = bytes[i], .height = 1
		};

		if (which + 1 < n && first[which + 1] == i) {
			which++;
		}
		e = bytes[i] ? run(s, &c, a[which].srcAccessOrder) : CUDA_ERROR_INVALID_VALUE;
		if (e && ret_failed) {
			*ret_failed = i;
		}
	}
	return e;
}
SOFT_PAIR(cuMemcpyBatchAsync, _ptsz, batch,
	  (CUdeviceptr * dst, CUdeviceptr *src, size_t *bytes, size_t count, CUmemcpyAttributes *a,
	   size_t *first, size_t n, size_t *ret_failed, CUstream h),
	  dst, src, bytes, count, a, first, n, ret_failed, h)
SOFT_PAIR(cuMemcpyBatchAsync_v2, _ptsz, batch,
	  (CUdeviceptr * dst, CUdeviceptr *src, size_t *bytes, size_t count, CUmemcpyAttributes *a,
	   size_t *first, size_t n, CUstream h),
	  dst, src, bytes, count, a, first, n, NULL, h)

/* Extents and pitches count elements: those of the array if one side is an array. */
static CUresult element(const CUDA_MEMCPY3D_BATCH_OP *op, unsigned *ret)
{
	*ret = 1;
	if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		return soft_array_element_bytes(op->dst.op.array.array, ret);
	}
	return op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY
		       ? soft_array_element_bytes(op->src.op.array.array, ret)
		       : CUDA_SUCCESS;
}

struct operand {
	CUmemorytype type;
	CUarray array;
	uint64_t address;
	size_t x, y, z, pitch, rows;
};

static CUresult operand(const CUmemcpy3DOperand *o, unsigned bytes, struct operand *ret)
{
	*ret = (struct operand){ 0 };
	switch (o->type) {
	case CU_MEMCPY_OPERAND_TYPE_POINTER:
		ret->type = CU_MEMORYTYPE_UNIFIED;
		ret->address = o->op.ptr.ptr;
		ret->rows = o->op.ptr.layerHeight;
		return checked_mul(o->op.ptr.rowLength, (size_t)bytes, &ret->pitch)
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	case CU_MEMCPY_OPERAND_TYPE_ARRAY:
		ret->type = CU_MEMORYTYPE_ARRAY;
		ret->array = o->op.array.array;
		ret->y = o->op.array.offset.y;
		ret->z = o->op.array.offset.z;
		return checked_mul(o->op.array.offset.x, (size_t)bytes, &ret->x)
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult resolve(const CUDA_MEMCPY3D_BATCH_OP *op, struct soft_copy *ret)
{
	CUDA_MEMCPY3D_PEER p = { .Height = op->extent.height, .Depth = op->extent.depth };
	struct operand d = { 0 }, s = { 0 };
	unsigned bytes;
	CUresult e = element(op, &bytes);

	e = e ? e : operand(&op->dst, bytes, &d);
	e = e ? e : operand(&op->src, bytes, &s);
	if (e) {
		return e;
	}
	if (checked_mul(op->extent.width, (size_t)bytes, &p.WidthInBytes) ||
	    !order_known(op->srcAccessOrder) || op->flags & ~1u) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	p.dstMemoryType = d.type;
	p.dstArray = d.array;
	p.dstDevice = d.address;
	p.dstXInBytes = d.x;
	p.dstY = d.y;
	p.dstZ = d.z;
	p.dstPitch = d.pitch;
	p.dstHeight = d.rows;
	p.srcMemoryType = s.type;
	p.srcArray = s.array;
	p.srcDevice = s.address;
	p.srcXInBytes = s.x;
	p.srcY = s.y;
	p.srcZ = s.z;
	p.srcPitch = s.pitch;
	p.srcHeight = s.rows;
	return soft_copy_resolve(&p, ret);
}

static CUresult batch_3d(int pt, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops,
			 size_t *ret_failed, unsigned long long flags, CUstream h)
{
	CUstream s;
	CUresult e = soft_check();

	if (ret_failed) {
		*ret_failed = SIZE_MAX;
	}
	e = e ? e : batch_stream(pt, h, &s);
	if (!e && (!count || !ops || flags)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count && !e; i++) {
		struct soft_copy c;

		e = resolve(&ops[i], &c);
		e = e ? e : run(s, &c, ops[i].srcAccessOrder);
		if (e && ret_failed) {
			*ret_failed = i;
		}
	}
	return e;
}
SOFT_PAIR(cuMemcpy3DBatchAsync, _ptsz, batch_3d,
	  (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed, unsigned long long flags,
	   CUstream h),
	  count, ops, ret_failed, flags, h)
SOFT_PAIR(cuMemcpy3DBatchAsync_v2, _ptsz, batch_3d,
	  (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream h), count,
	  ops, NULL, flags, h)
