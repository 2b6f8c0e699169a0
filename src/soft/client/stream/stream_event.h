/* Recording events and waiting for them, for calls whose work includes either. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H

#include "soft/client/process.h"

CUresult soft_event_record(CUstream s, CUevent ev, unsigned flags); /* CU_EVENT_RECORD_* */
CUresult soft_event_wait(CUstream s, CUevent ev, unsigned flags);   /* CU_EVENT_WAIT_* */
/* Between soft_ring_begin and soft_ring_end. */
CUresult soft_event_add_record(CUstream s, CUevent ev) REQUIRES(soft.ring_lock);
CUresult soft_event_add_wait(CUstream s, CUevent ev) REQUIRES(soft.ring_lock);
CUresult soft_event_submit_wait(CUstream s,
				CUevent ev); /* caller has checked that no capture is active */
void soft_events_drop_context(
	CUcontext ctx); /* the context has been destroyed: so are its events */

/* context_event.c: for all streams of a context, or of its green context (green NULL: all). */
CUresult soft_context_record(CUcontext ctx, CUgreenCtx green, CUevent ev);
CUresult soft_context_wait(CUcontext ctx, CUgreenCtx green, CUevent ev);

#endif
