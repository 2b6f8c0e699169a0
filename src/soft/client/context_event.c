/* Events of a whole context: recorded behind all of its work, waited for by all of its streams. */
#include "soft/client/capture.h"
#include "soft/client/event.h"
#include "soft/client/strict.h"

static CUresult check(CUcontext *ctx, CUevent ev)
{
	CUresult e = soft_check();

	if (!e && *ctx && !handle_is(*ctx, OBJECT_CONTEXT)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	e = e ? e : *ctx ? soft_context_error(*ctx) : soft_current(ctx);
	e = e ? e : handle_is(ev, OBJECT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	e = e ? e : capture_sync_context(*ctx);
	return e ? e : capture_event(ev) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult wait_for(CUstream s, void *arg)
{
	CUstream own = arg;
	CUresult e = CUDA_SUCCESS;

	if (s != own) {
		strict_submit(own);
		ring_begin();
		e = ring_add_wait(own, s->slot, s->submitted);
		ring_end();
	}
	return e;
}

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent ev)
{
	CUstream s;
	CUresult e = check(&ctx, ev), last;

	if (e) {
		return e;
	}
	if (ev->context != ctx) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = stream_new(ctx, 0, SOFT_STREAM_NON_BLOCKING, &s);
	if (e) {
		return e;
	}
	e = streams_each(ctx, wait_for, s);
	e = e ? e : event_record(s, ev, 0);
	last = stream_end(s);
	return e ? e : last;
}

static CUresult wait_in(CUstream s, void *ev)
{
	return event_put_wait(s, ev);
}

CUresult cuCtxWaitEvent(CUcontext ctx, CUevent ev)
{
	CUresult e = check(&ctx, ev);

	return e ? e : streams_each(ctx, wait_in, ev);
}
