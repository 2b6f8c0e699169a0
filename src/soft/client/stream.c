/* Streams: slots of the shared page, and what programs ask about them. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/client.h"

static int take_slot(void)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (soft.stream_used[i] == 2 &&
		    word_reached(&soft.shared->streams[i].done, soft.stream_count[i])) {
			soft.stream_used[i] = 0;
		}
		if (soft.stream_used[i] == 0) {
			soft.stream_used[i] = 1;
			return (int)i;
		}
	}
	return -1;
}

CUresult stream_new(CUcontext ctx, int priority, uint32_t flags, CUstream *ret)
{
	struct soft_record_stream r = { .r.op = SOFT_OP_STREAM_CREATE,
					.priority = priority,
					.flags = flags };
	CUstream s;
	int slot;
	CUresult e;

	pthread_mutex_lock(&soft.lock);
	slot = take_slot();
	s = slot >= 0 ? object_new(OBJECT_STREAM, sizeof(*s)) : NULL;
	if (s) {
		s->context = ctx;
		s->slot = (uint32_t)slot;
		soft.stream_owner[slot] = (uint8_t)ctx->slot;
		s->priority = priority;
		s->flags = flags & SOFT_STREAM_NON_BLOCKING ? CU_STREAM_NON_BLOCKING
							    : CU_STREAM_DEFAULT;
		s->id = ++soft.next_id;
	} else if (slot >= 0) {
		soft.stream_used[slot] = 0;
	}
	pthread_mutex_unlock(&soft.lock);
	if (!s) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = ring_put(s, &r.r, sizeof(r), NULL, 0, NULL);
	*ret = s;
	return e;
}

CUresult stream_end(CUstream s)
{
	struct soft_record_stream r = { .r.op = SOFT_OP_STREAM_DESTROY };
	CUresult e = ring_put(s, &r.r, sizeof(r), NULL, 0, NULL);

	pthread_mutex_lock(&soft.lock);
	soft.stream_used[s->slot] = 2;
	object_delete(s);
	pthread_mutex_unlock(&soft.lock);
	return e;
}

CUresult context_drain(CUcontext ctx)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		uint32_t target = load_acquire(&soft.stream_count[i]);
		struct soft_stream_word *w = &soft.shared->streams[i];

		if (soft.stream_used[i] && soft.stream_owner[i] == ctx->slot &&
		    !word_reached(&w->done, target)) {
			word_wait(&w->done, &w->waiters, target, ctx);
		}
	}
	return soft_context_error(ctx);
}

static CUresult create(CUstream *ret, unsigned flags, int priority)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	priority = MIN(MAX(priority, SOFT_PRIORITY_GREATEST), 0);
	return stream_new(ctx, priority, flags ? SOFT_STREAM_NON_BLOCKING : 0, ret);
}

CUresult cuStreamCreate(CUstream *ret, unsigned int flags)
{
	return create(ret, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	return create(ret, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream s)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!object_is(s, OBJECT_STREAM) || s == s->context->legacy) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	return stream_end(s);
}

CUresult cuStreamDestroy(CUstream s)
{
	return cuStreamDestroy_v2(s);
}

static CUresult synchronize(int pt, CUstream h)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	return e ? e : stream_drain(s);
}
PAIR(cuStreamSynchronize, _ptsz, synchronize, (CUstream h), h)

static CUresult query(int pt, CUstream h)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e) {
		return e;
	}
	if (!word_reached(&soft.shared->streams[s->slot].done, load_acquire(&s->submitted))) {
		return CUDA_ERROR_NOT_READY;
	}
	return soft_context_error(s->context);
}
PAIR(cuStreamQuery, _ptsz, query, (CUstream h), h)

static CUresult get_priority(int pt, CUstream h, int *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = s->priority;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamGetPriority, _ptsz, get_priority, (CUstream h, int *ret), h, ret)

static CUresult get_flags(int pt, CUstream h, unsigned *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = s->flags;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamGetFlags, _ptsz, get_flags, (CUstream h, unsigned int *ret), h, ret)

static CUresult get_id(int pt, CUstream h, unsigned long long *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = s->id;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamGetId, _ptsz, get_id, (CUstream h, unsigned long long *ret), h, ret)

static CUresult get_context(int pt, CUstream h, CUcontext *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = s->context;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamGetCtx, _ptsz, get_context, (CUstream h, CUcontext *ret), h, ret)

static CUresult get_context_v2(int pt, CUstream h, CUcontext *ret, CUgreenCtx *green)
{
	if (green) {
		*green = NULL;
	}
	return get_context(pt, h, ret);
}
PAIR(cuStreamGetCtx_v2, _ptsz, get_context_v2, (CUstream h, CUcontext *ret, CUgreenCtx *green), h,
     ret, green)

static CUresult get_device(int pt, CUstream h, CUdevice *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = 0;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamGetDevice, _ptsz, get_device, (CUstream h, CUdevice *ret), h, ret)

static CUresult is_capturing(int pt, CUstream h, CUstreamCaptureStatus *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (!e && ret) {
		*ret = CU_STREAM_CAPTURE_STATUS_NONE; /* capture is not supported, so nobody
							 captures */
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PAIR(cuStreamIsCapturing, _ptsz, is_capturing, (CUstream h, CUstreamCaptureStatus *ret), h, ret)

/* Capture is not supported, so nobody captures and these answer that. */

static CUresult capture_info(int pt, CUstream h, CUstreamCaptureStatus *ret)
{
	return is_capturing(pt, h, ret);
}
PAIR(cuStreamGetCaptureInfo, _ptsz, capture_info,
     (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id), h, ret)
PAIR(cuStreamGetCaptureInfo_v2, _ptsz, capture_info,
     (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
      const CUgraphNode **deps, size_t *n),
     h, ret)
PAIR(cuStreamGetCaptureInfo_v3, _ptsz, capture_info,
     (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
      const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n),
     h, ret)

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	static __thread CUstreamCaptureMode own;
	CUstreamCaptureMode before = own;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	own = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static CUresult wait_event(int pt, CUstream h, CUevent ev, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e) {
		return e;
	}
	if (!object_is(ev, OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return ev->recorded ? ring_put_wait(s, ev) : CUDA_SUCCESS;
}
PAIR(cuStreamWaitEvent, _ptsz, wait_event, (CUstream h, CUevent ev, unsigned int flags), h, ev,
     flags)
