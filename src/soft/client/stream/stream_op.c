/* Stream operations that are neither kernels nor copies: waits for and writes of values in memory,
 * and host functions. */
#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"
#include "soft/client/host_call.h"
#include "soft/client/memory/copy.h"
#include "soft/client/memory/memory.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream_op.h"
#include <stdlib.h>

static CUresult fill(struct soft_record_value *r, CUdeviceptr address, uint64_t value,
		     unsigned unit, unsigned mode)
{
	*r = (struct soft_record_value){ .r.op = SOFT_OP_VALUE,
					 .address = address,
					 .value = value,
					 .unit = unit,
					 .mode = mode };
	return address % unit || !soft_memory_valid(address, unit) ? CUDA_ERROR_INVALID_VALUE
								   : CUDA_SUCCESS;
}

static CUresult fill_wait(struct soft_record_value *r, CUdeviceptr address, uint64_t value,
			  unsigned unit, unsigned flags)
{
	flags &= ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
	return flags > CU_STREAM_WAIT_VALUE_NOR ? CUDA_ERROR_INVALID_VALUE
						: fill(r, address, value, unit, flags);
}

static CUresult fill_write(struct soft_record_value *r, CUdeviceptr address, uint64_t value,
			   unsigned unit, unsigned flags)
{
	return flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
		       ? CUDA_ERROR_INVALID_VALUE
		       : fill(r, address, value, unit, SOFT_VALUE_WRITE);
}

CUresult soft_stream_op_value(const CUstreamBatchMemOpParams *op, struct soft_record_value *ret,
			      bool *ret_none)
{
	const struct CUstreamMemOpValue_st *v = &op->value;

	*ret_none = false;
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return fill_wait(ret, v->address, v->value, 4, v->flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return fill_wait(ret, v->address, v->value64, 8, v->flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return fill_write(ret, v->address, v->value, 4, v->flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return fill_write(ret, v->address, v->value64, 8, v->flags);
	case CU_STREAM_MEM_OP_BARRIER:
		*ret_none = true; /* memory is coherent */
		return op->barrier.flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		*ret_none = true;
		return op->barrier.flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult capture_batch(CUstream s, unsigned count, const CUstreamBatchMemOpParams *ops,
			      unsigned flags)
{
	struct soft_work w;
	CUresult e = soft_work_values(&w, s->context, count, ops, flags);

	return e ? e : soft_capture_add(s, &w);
}

/* Checks all operations before it submits the first. */
static CUresult batch_mem_op(int pt, CUstream h, unsigned count,
			     const CUstreamBatchMemOpParams *ops, unsigned flags)
{
	struct soft_record_value r;
	bool none, capturing = false;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || (count && !ops) || count > SOFT_STREAM_OP_BATCH_MAX || flags) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < count && !e; i++) {
		e = soft_stream_op_value(&ops[i], &r, &none);
	}
	e = e ? e : soft_capture_check(s, &capturing);
	if (capturing) {
		return capture_batch(s, count, ops, flags);
	}
	for (unsigned i = 0; i < count && !e; i++) {
		e = soft_stream_op_value(&ops[i], &r, &none);
		e = e || none ? e : soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, NULL);
	}
	return e;
}
SOFT_PAIR(cuStreamBatchMemOp, _ptsz, batch_mem_op,
	  (CUstream h, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags), h,
	  count, ops, flags)
SOFT_PAIR(cuStreamBatchMemOp_v2, _ptsz, batch_mem_op,
	  (CUstream h, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags), h,
	  count, ops, flags)

static CUresult one(int pt, CUstream h, CUdeviceptr address, uint64_t value,
		    CUstreamBatchMemOpType operation, unsigned flags)
{
	CUstreamBatchMemOpParams op = { 0 };

	op.value.operation = operation;
	op.value.address = address;
	op.value.value64 = value;
	op.value.flags = flags;
	return batch_mem_op(pt, h, 1, &op, 0);
}

#define VALUE_ENTRIES(name, type, operation)                                                       \
	SOFT_PAIR(name, _ptsz, one, (CUstream h, CUdeviceptr p, type v, unsigned int f), h, p, v,  \
		  operation, f)                                                                    \
	SOFT_PAIR(name##_v2, _ptsz, one, (CUstream h, CUdeviceptr p, type v, unsigned int f), h,   \
		  p, v, operation, f)
VALUE_ENTRIES(cuStreamWaitValue32, uint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
VALUE_ENTRIES(cuStreamWaitValue64, uint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
VALUE_ENTRIES(cuStreamWriteValue32, uint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
VALUE_ENTRIES(cuStreamWriteValue64, uint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)

static CUresult attach_mem(int pt, CUstream h, CUdeviceptr p, size_t bytes, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	(void)p;
	(void)bytes;
	(void)flags; /* managed memory is always visible everywhere */
	return e ? e : soft_capture_refuse(s);
}
SOFT_PAIR(cuStreamAttachMemAsync, _ptsz, attach_mem,
	  (CUstream h, CUdeviceptr p, size_t bytes, unsigned int flags), h, p, bytes, flags)

/* ---- host functions ---- */

static CUresult put_host(CUstream s, const struct soft_host_call *call)
{
	struct soft_record_host r = { .r.op = SOFT_OP_HOST };
	struct soft_host_call *c = malloc(sizeof(*c));
	CUresult e;

	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = *call;
	store_release(&c->ready, 1u);
	r.cookie = (uint64_t)(uintptr_t)c;
	e = soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, NULL);
	if (e) {
		free(c);
	}
	return e;
}

static CUresult capture_host(CUstream s, CUhostFn fn, void *user)
{
	struct soft_work w;
	CUresult e = soft_work_host(&w, fn, user);

	return e ? e : soft_capture_add(s, &w);
}

static CUresult launch_host(int pt, CUstream h, CUhostFn fn, void *user)
{
	struct soft_host_call call = { .fn = fn, .user = user, .stream = h };
	bool capturing;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : fn ? soft_capture_check(s, &capturing) : CUDA_ERROR_INVALID_VALUE;
	if (e) {
		return e;
	}
	return capturing ? capture_host(s, fn, user) : put_host(s, &call);
}
SOFT_PAIR(cuLaunchHostFunc, _ptsz, launch_host, (CUstream h, CUhostFn fn, void *user), h, fn, user)

static CUresult add_callback(int pt, CUstream h, CUstreamCallback cb, void *user, unsigned flags)
{
	struct soft_host_call call = { .callback = cb, .user = user, .stream = h };
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : flags || !cb ? CUDA_ERROR_INVALID_VALUE : soft_capture_refuse(s);
	return e ? e : put_host(s, &call);
}
SOFT_PAIR(cuStreamAddCallback, _ptsz, add_callback,
	  (CUstream h, CUstreamCallback cb, void *user, unsigned int flags), h, cb, user, flags)
