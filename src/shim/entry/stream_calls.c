/* Creation, destruction and attributes of streams. */
#include "cuabi/api.h"
#include "shim/entry/gate.h"
#include "shim/mem/overhead.h"
#include "shim/object/green_context.h"
#include "shim/object/queue_drain.h"
#include "shim/object/stream_queue.h"

static CUresult created(CUresult r, CUstream *stream)
{
	if (r == CUDA_SUCCESS && stream && shim_attached()) {
		shim_queue_reap_all();
		shim_queue_created(*stream);
		shim_green_cap(stream);
		shim_mem_overhead_changed();
	}
	return r;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
	return created(shim_real.cuStreamCreate(ret, flags), ret);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
	return created(shim_real.cuStreamCreateWithPriority(ret, flags, priority), ret);
}

CUresult cuGreenCtxStreamCreate(CUstream *ret, CUgreenCtx green, unsigned flags, int priority)
{
	CUresult r = shim_real.cuGreenCtxStreamCreate(ret, green, flags, priority);

	if (r == CUDA_SUCCESS && ret && shim_attached()) {
		shim_queue_created(*ret);
	}
	return r;
}

/* Closes the stream's queue before the driver destroys the stream, since its markers can still be
 * queried. Returns true if the destruction is postponed. Does not wait for the stream's work, which
 * the driver lets finish as well. */
static bool destroying(CUstream stream)
{
	bool later = false;

	if (shim_attached() && (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
		later = shim_queue_close_stream(stream);
		shim_queue_reap_all();
	}
	shim_green_destroyed(stream);
	return later;
}

CUresult cuStreamDestroy(CUstream stream)
{
	return destroying(stream) ? CUDA_SUCCESS : shim_real.cuStreamDestroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	return destroying(stream) ? CUDA_SUCCESS : shim_real.cuStreamDestroy_v2(stream);
}

/* Returns true for attributes that determine what fences order. The others are hints on speed or
 * waiting, which may apply to deferred calls as well. */
static bool matters(CUstreamAttrID what)
{
	return what == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
	       what == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

/* Drains the stream's deferred calls, which must run with the previous attributes. */
static void changing(CUstream stream, bool per_thread)
{
	struct shim_thread *t;
	struct shim_queue *q;

	if (likely(!shim_pending())) {
		return;
	}
	t = shim_thread_self();
	q = t ? shim_queue_of(t, stream, per_thread) : NULL;
	if (q) {
		shim_queue_drain(q);
	} else {
		shim_drain_all();
	}
}

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID what, const CUstreamAttrValue *value)
{
	if (matters(what)) {
		changing(stream, false);
	}
	return shim_real.cuStreamSetAttribute(stream, what, value);
}

CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID what,
				   const CUstreamAttrValue *value)
{
	if (matters(what)) {
		changing(stream, true);
	}
	return shim_real.cuStreamSetAttribute_ptsz(stream, what, value);
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	changing(to, false);
	return shim_real.cuStreamCopyAttributes(to, from);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from)
{
	changing(to, true);
	return shim_real.cuStreamCopyAttributes_ptsz(to, from);
}
