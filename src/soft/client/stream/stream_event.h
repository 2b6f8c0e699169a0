/* Recording events and waiting for them, for calls that do more than that. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H

#include "soft/client/process.h"

CUresult soft_event_record(CUstream s, CUevent ev, unsigned flags); /* CU_EVENT_RECORD_* */
CUresult soft_event_wait(CUstream s, CUevent ev, unsigned flags);   /* CU_EVENT_WAIT_* */
/* Between ring_begin and ring_end. */
CUresult soft_event_add_record(CUstream s, CUevent ev);
CUresult soft_event_add_wait(CUstream s, CUevent ev);
CUresult soft_event_submit_wait(CUstream s, CUevent ev); /* nobody captures */
void soft_events_drop_context(CUcontext ctx);		 /* the context has ended: its events too */

/* context_event.c: of all streams of a context, or of a green one of it (NULL: of all). */
CUresult soft_context_record(CUcontext ctx, CUgreenCtx green, CUevent ev);
CUresult soft_context_wait(CUcontext ctx, CUgreenCtx green, CUevent ev);

#endif
