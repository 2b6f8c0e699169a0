/* Events of a whole context or green context: recorded after all of its work, awaited by all of its
 * streams. */
#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"

/* The streams concerned and the event. */
struct members {
	CUgreenCtx green; /* NULL: all streams of the context */
	CUstream own;
	CUevent event;
};

static CUresult check(CUcontext h, CUcontext *ctx, CUgreenCtx *green)
{
	CUresult e = soft_check();

	*green = soft_thread_green();
	if (e || !h) {
		return e ? e : soft_context_current(ctx);
	}
	e = soft_green_resolve(h, ctx, green);
	return e ? e : soft_context_error(*ctx);
}

static CUresult check_event(CUcontext ctx, CUevent ev)
{
	CUresult e =
		soft_handle_is(ev, SOFT_OBJECT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;

	e = e ? e : soft_capture_sync_context(ctx);
	return e ? e : soft_capture_has_event(ev) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult wait_for(CUstream s, void *arg)
{
	const struct members *m = arg;
	CUresult e = CUDA_SUCCESS;

	if (s != m->own && (!m->green || s->green == m->green)) {
		soft_strict_submit(m->own);
		e = soft_ring_begin();
		if (!e) {
			e = soft_ring_add_wait(m->own, s->slot, s->submitted);
			soft_ring_end();
		}
	}
	return e;
}

CUresult soft_context_record(CUcontext ctx, CUgreenCtx green, CUevent ev)
{
	struct members m = { .green = green };
	CUresult e = check_event(ctx, ev), last;

	if (e) {
		return e;
	}
	if (ev->context != ctx) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = soft_stream_create(ctx, 0, SOFT_STREAM_NON_BLOCKING, &m.own);
	if (e) {
		return e;
	}
	e = soft_streams_each(ctx, wait_for, &m);
	e = e ? e : soft_event_record(m.own, ev, 0);
	last = soft_stream_destroy(m.own);
	return e ? e : last;
}

static CUresult wait_in(CUstream s, void *arg)
{
	const struct members *m = arg;

	return m->green && s->green != m->green ? CUDA_SUCCESS
						: soft_event_submit_wait(s, m->event);
}

CUresult soft_context_wait(CUcontext ctx, CUgreenCtx green, CUevent ev)
{
	struct members m = { .green = green, .event = ev };
	CUresult e = check_event(ctx, ev);

	return e ? e : soft_streams_each(ctx, wait_in, &m);
}

CUresult cuCtxRecordEvent(CUcontext h, CUevent ev)
{
	CUcontext ctx;
	CUgreenCtx g;
	CUresult e = check(h, &ctx, &g);

	return e ? e : soft_context_record(ctx, g, ev);
}

CUresult cuCtxWaitEvent(CUcontext h, CUevent ev)
{
	CUcontext ctx;
	CUgreenCtx g;
	CUresult e = check(h, &ctx, &g);

	return e ? e : soft_context_wait(ctx, g, ev);
}
