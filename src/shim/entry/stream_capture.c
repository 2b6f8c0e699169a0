/* Entry points that begin and end stream captures. */
#include "cuabi/api.h"
#include "shim/capture_state.h"
#include "shim/object/queue_drain.h"

/* Drains the stream's deferred calls, which would otherwise be submitted into the capture, and
 * those of its siblings: work on the default stream would invalidate the capture of a stream that
 * is ordered with it. Other queues do not matter. The caller has incremented shim.captures before,
 * so that a concurrent call of another thread sees the capture. */
static void drain_for(CUstream stream, bool per_thread)
{
	struct shim_thread *t = shim_thread_self();
	struct shim_queue *q = t ? shim_queue_of(t, stream, per_thread) : NULL;

	if (q) {
		shim_queue_drain_siblings(q);
		shim_queue_drain(q);
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
	shim_capture_begin_lock();
}

static CUresult begun(CUresult r)
{
	shim_capture_begin_unlock();
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
