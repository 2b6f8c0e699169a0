/* Operations in streams that are neither kernels nor copies: waits for and writes of values in
 * memory, host functions. */
#include <stdlib.h>

#include "soft/client/client.h"
#include "soft/client/host.h"

static CUresult value_op(int pt, CUstream h, CUdeviceptr address, uint64_t value, unsigned unit,
			 unsigned mode)
{
	struct soft_record_value r = { .r.op = SOFT_OP_VALUE,
				       .address = address,
				       .value = value,
				       .unit = unit,
				       .mode = mode };
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e) {
		return e;
	}
	if (address % unit || !memory_valid(address, unit, NULL)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return ring_put(s, &r.r, sizeof(r), NULL, 0, NULL);
}

static CUresult wait_value(int pt, CUstream h, CUdeviceptr address, uint64_t value, unsigned unit,
			   unsigned flags)
{
	flags &= ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
	return flags > CU_STREAM_WAIT_VALUE_NOR ? CUDA_ERROR_INVALID_VALUE
						: value_op(pt, h, address, value, unit, flags);
}

static CUresult write_value(int pt, CUstream h, CUdeviceptr address, uint64_t value, unsigned unit,
			    unsigned flags)
{
	return flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
		       ? CUDA_ERROR_INVALID_VALUE
		       : value_op(pt, h, address, value, unit, SOFT_VALUE_WRITE);
}

#define VALUE_ENTRIES(name, impl, type, unit)                                                      \
	PAIR(name, _ptsz, impl, (CUstream h, CUdeviceptr p, type v, unsigned int f), h, p, v,      \
	     unit, f)                                                                              \
	PAIR(name##_v2, _ptsz, impl, (CUstream h, CUdeviceptr p, type v, unsigned int f), h, p, v, \
	     unit, f)
VALUE_ENTRIES(cuStreamWaitValue32, wait_value, uint32_t, 4)
VALUE_ENTRIES(cuStreamWaitValue64, wait_value, uint64_t, 8)
VALUE_ENTRIES(cuStreamWriteValue32, write_value, uint32_t, 4)
VALUE_ENTRIES(cuStreamWriteValue64, write_value, uint64_t, 8)

static CUresult batch_mem_op(int pt, CUstream h, unsigned count, CUstreamBatchMemOpParams *ops,
			     unsigned flags)
{
	CUresult e = CUDA_SUCCESS;

	if ((count && !ops) || count > 256 || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < count && !e; i++) {
		const struct CUstreamMemOpValue_st *v = &ops[i].value;

		switch (ops[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			e = wait_value(pt, h, v->address, v->value, 4, v->flags);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			e = wait_value(pt, h, v->address, v->value64, 8, v->flags);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			e = write_value(pt, h, v->address, v->value, 4, v->flags);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			e = write_value(pt, h, v->address, v->value64, 8, v->flags);
			break;
		case CU_STREAM_MEM_OP_BARRIER:
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
			break; /* memory is coherent */
		default:
			e = CUDA_ERROR_INVALID_VALUE;
		}
	}
	return e;
}
PAIR(cuStreamBatchMemOp, _ptsz, batch_mem_op,
     (CUstream h, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags), h, count,
     ops, flags)
PAIR(cuStreamBatchMemOp_v2, _ptsz, batch_mem_op,
     (CUstream h, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags), h, count,
     ops, flags)

static CUresult attach_mem(int pt, CUstream h, CUdeviceptr p, size_t bytes, unsigned flags)
{
	CUstream s;

	(void)p;
	(void)bytes;
	(void)flags; /* managed memory is visible everywhere always */
	return soft_stream(h, pt, &s);
}
PAIR(cuStreamAttachMemAsync, _ptsz, attach_mem,
     (CUstream h, CUdeviceptr p, size_t bytes, unsigned int flags), h, p, bytes, flags)

/* Host functions. */

struct host_call {
	CUhostFn fn;
	CUstreamCallback callback;
	void *user;
	CUstream stream;
};

void host_run(uint64_t cookie, CUresult context_error)
{
	struct host_call *c = (struct host_call *)(uintptr_t)cookie;

	if (c->callback) {
		c->callback(c->stream, context_error, c->user);
	} else if (!context_error) {
		c->fn(c->user);
	}
	free(c);
}

static CUresult put_host(int pt, CUstream h, struct host_call call)
{
	struct soft_record_host r = { .r.op = SOFT_OP_HOST };
	struct host_call *c;
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e) {
		return e;
	}
	if (!call.fn && !call.callback) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	c = malloc(sizeof(*c));
	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = call;
	c->stream = h;
	r.cookie = (uint64_t)(uintptr_t)c;
	e = ring_put(s, &r.r, sizeof(r), NULL, 0, NULL);
	if (e) {
		free(c);
	}
	return e;
}

static CUresult launch_host(int pt, CUstream h, CUhostFn fn, void *user)
{
	return put_host(pt, h, (struct host_call){ .fn = fn, .user = user });
}
PAIR(cuLaunchHostFunc, _ptsz, launch_host, (CUstream h, CUhostFn fn, void *user), h, fn, user)

static CUresult add_callback(int pt, CUstream h, CUstreamCallback cb, void *user, unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE
		     : put_host(pt, h, (struct host_call){ .callback = cb, .user = user });
}
PAIR(cuStreamAddCallback, _ptsz, add_callback,
     (CUstream h, CUstreamCallback cb, void *user, unsigned int flags), h, cb, user, flags)
