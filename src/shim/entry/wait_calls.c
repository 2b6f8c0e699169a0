/* Synchronizations and queries of streams and contexts: deferred calls are submitted before the
 * driver is asked to wait, and the scheduler is notified of what has finished. They are never held
 * themselves. */
#include "cuabi/api.h"
#include "shim/capture_state.h"
#include "shim/object/queue_drain.h"

/* Returns the queue, NULL if the call belongs to a capture. */
static struct shim_queue *queue_to_wait_for(CUstream stream, bool per_thread)
{
	struct shim_thread *t = shim_thread_self();

	if (!t || (shim_capture_any() && shim_capture_has(stream, per_thread))) {
		return NULL;
	}
	return shim_queue_of(t, stream, per_thread);
}

/* Returns true if only the driver's own work is to be done. */
static inline bool plain(void)
{
	return likely(sched_idle(shim.sched) && !load_relaxed(&shim.error));
}

static CUresult synchronize(CUstream stream, bool per_thread, CUresult (*real)(CUstream))
{
	struct shim_queue *q = queue_to_wait_for(stream, per_thread);
	CUresult r;

	if (q && shim_pending()) {
		if (q->kind == SHIM_QUEUE_LEGACY) { /* calls of blocking streams are deferred behind
						       this queue's */
			shim_queue_drain_siblings(q);
		}
		shim_queue_drain(q);
	}
	r = real(stream);
	if (q && r == CUDA_SUCCESS) {
		sched_synced(shim.sched, q->sched);
	}
	return shim_error_take(r);
}

static CUresult query(CUstream stream, bool per_thread, CUresult (*real)(CUstream))
{
	struct shim_queue *q = queue_to_wait_for(stream, per_thread);
	CUresult r;

	if (q && shim_pending() &&
	    (sched_queue_deferred(q->sched) ||
	     (q->kind == SHIM_QUEUE_LEGACY && shim_queue_sibling_deferred(q)))) {
		return CUDA_ERROR_NOT_READY;
	}
	r = real(stream);
	if (q && r == CUDA_SUCCESS) {
		sched_synced(shim.sched, q->sched);
	}
	return r == CUDA_SUCCESS ? shim_error_take(r) : r;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return plain() ? shim_real.cuStreamSynchronize(stream)
		       : synchronize(stream, false, shim_real.cuStreamSynchronize);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return plain() ? shim_real.cuStreamSynchronize_ptsz(stream)
		       : synchronize(stream, true, shim_real.cuStreamSynchronize_ptsz);
}

CUresult cuStreamQuery(CUstream stream)
{
	return plain() ? shim_real.cuStreamQuery(stream)
		       : query(stream, false, shim_real.cuStreamQuery);
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return plain() ? shim_real.cuStreamQuery_ptsz(stream)
		       : query(stream, true, shim_real.cuStreamQuery_ptsz);
}

static CUresult synchronized(CUcontext ctx, CUresult r)
{
	if (r == CUDA_SUCCESS && !sched_idle(shim.sched)) {
		shim_queue_context_synchronized(ctx);
	}
	return shim_error_take(r);
}

CUresult cuCtxSynchronize(void)
{
	shim_drain_pending();
	return synchronized(NULL, shim_real.cuCtxSynchronize());
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	shim_drain_pending();
	return synchronized(ctx, shim_real.cuCtxSynchronize_v2(ctx));
}
