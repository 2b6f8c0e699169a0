/* Synchronizations and queries of streams and contexts: deferred calls are submitted before the
 * driver is asked to wait, and the scheduler is notified of what has finished. They are never held
 * themselves. */
#include "shim/defer/wait.h"

#include "cuabi/api.h"
#include "shim/capture_state.h"

#define MAX_SIBLINGS 128u

void shim_error_note(CUresult r)
{
	int none = 0;

	if (r != CUDA_SUCCESS) {
		(void)cas_acqrel(&shim.error, &none, (int)r);
	}
}

void shim_wait_drain(struct shim_queue *q)
{
	struct sched_queue *own = load_acquire(&q->sched);
	int err = own ? sched_drain(shim.sched, own) : 0; /* NULL: closed, hence drained */

	/* Errors of deferred calls were stored when the calls ran; the rest concern runs whose
	 * blocks had to be launched again. */
	if (err && (uint32_t)err != xchg_acqrel(&q->reported_error, 0u)) {
		shim_error_note((CUresult)err);
	}
}

void shim_drain_all(void)
{
	int err = sched_drain(shim.sched, NULL);

	if (err && !shim_queue_error_reported((uint32_t)err)) {
		shim_error_note((CUresult)err);
	}
	shim_queue_reap_all();
}

/* Drains each sibling once, for what it had deferred at the call: other threads may keep adding to
 * them. */
void shim_wait_drain_siblings(struct shim_queue *q)
{
	struct shim_queue *list[MAX_SIBLINGS];
	unsigned n = MAX_SIBLINGS;

	while (q->blocking && n == MAX_SIBLINGS) { /* the list was full: drain the rest */
		n = shim_queue_siblings_deferred(q, list, MAX_SIBLINGS);
		for (unsigned i = 0; i < n; i++) {
			shim_wait_drain(list[i]); /* another thread may be closing it */
		}
	}
}

CUresult shim_error_take(CUresult r)
{
	int error = 0;

	if (unlikely(load_relaxed(&shim.error))) {
		error = xchg_acqrel(&shim.error, 0);
	}
	return r != CUDA_SUCCESS ? r : (CUresult)error;
}

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
			shim_wait_drain_siblings(q);
		}
		shim_wait_drain(q);
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
