/* Streams that come and go, and change. */
#include "cuabi/api.h"
#include "shim/entry/gate.h"
#include "shim/object/green_context.h"
#include "shim/object/stream_queue.h"
#include "shim/defer/wait.h"

static CUresult created(CUresult r, CUstream *stream)
{
	if (r == CUDA_SUCCESS && stream && shim_attached()) {
		shim_queue_reap_all();
		shim_queue_created(*stream);
		shim_green_cap(stream);
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

/* Before the driver forgets it: markers in it are still to be asked about. True: the driver
 * destroys it later. It lets the stream's work finish as well, and waits for none of it. */
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

/* Others say how fast, or how to wait: what the stream keeps may go with the new ones. These say
 * what fences order. */
static bool matters(CUstreamAttrID what)
{
	return what == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
	       what == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

/* What the stream keeps goes with the attributes of before. */
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
		shim_wait_drain(q);
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
