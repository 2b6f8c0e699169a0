/* Entries that begin and end captures, and what others ask about them. */
#include "shim/capture_state.h"

#include <pthread.h>

#include "cuabi/api.h"
#include "shim/defer/wait.h"

bool shim_capture_has(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = per_thread ? shim_real.cuStreamIsCapturing_ptsz(stream, &status)
				: shim_real.cuStreamIsCapturing(stream, &status);

	return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUstreamCaptureMode shim_capture_exempt(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	return shim_real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS
		       ? mode
		       : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void shim_capture_restore(CUstreamCaptureMode before)
{
	shim_real.cuThreadExchangeStreamCaptureMode(&before);
}

/* Who begins goes first: threads that help may hold it one after the other without a pause. */
static pthread_rwlock_t beginning = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

void shim_capture_lock(void)
{
	pthread_rwlock_rdlock(&beginning);
}

bool shim_capture_trylock(void)
{
	return pthread_rwlock_tryrdlock(&beginning) == 0;
}

void shim_capture_unlock(void)
{
	pthread_rwlock_unlock(&beginning);
}

void shim_capture_forget(void)
{
	pthread_rwlock_init(&beginning, NULL);
}

/* What the stream still keeps back would be issued into the capture, and what the default stream
 * does would spoil that of a stream that is ordered with it. Nothing else is in the way. Counted
 * from before that, so that no call of another thread falls between. */
static void drain_for(CUstream stream, bool per_thread)
{
	struct shim_thread *t = shim_thread_self();
	struct shim_queue *q = t ? shim_queue_of(t, stream, per_thread) : NULL;

	if (q) {
		shim_wait_drain_siblings(q);
		shim_wait_drain(q);
	} else {
		shim_drain_all();
	}
}

static void begin(CUstream stream, bool per_thread)
{
	add_acqrel(&shim.captures, 1);
	if (unlikely(shim_pending())) {
		drain_for(stream, per_thread);
	}
	pthread_rwlock_wrlock(&beginning);
}

static CUresult begun(CUresult r)
{
	pthread_rwlock_unlock(&beginning);
	if (r != CUDA_SUCCESS) {
		sub_acqrel(&shim.captures, 1);
	}
	return r;
}

/* An invalidated capture ends with an error, but it ends. */
static CUresult ended(CUresult r)
{
	uint32_t n = load_relaxed(&shim.captures);

	if (r != CUDA_ERROR_ILLEGAL_STATE && r != CUDA_ERROR_INVALID_VALUE &&
	    r != CUDA_ERROR_INVALID_HANDLE && r != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
		while (n && !cas_acqrel(&shim.captures, &n, n - 1)) {
		}
	}
	return r;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
	begin(stream, false);
	return begun(shim_real.cuStreamBeginCapture(stream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	begin(stream, true);
	return begun(shim_real.cuStreamBeginCapture_ptsz(stream));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	begin(stream, false);
	return begun(shim_real.cuStreamBeginCapture_v2(stream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	begin(stream, true);
	return begun(shim_real.cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
				     const CUgraphEdgeData *edges, size_t n,
				     CUstreamCaptureMode mode)
{
	begin(stream, false);
	return begun(shim_real.cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, n, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
					  const CUgraphEdgeData *edges, size_t n,
					  CUstreamCaptureMode mode)
{
	begin(stream, true);
	return begun(
		shim_real.cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, n, mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
	return ended(shim_real.cuStreamEndCapture(stream, ret));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret)
{
	return ended(shim_real.cuStreamEndCapture_ptsz(stream, ret));
}
