/* Recording events and waiting for them, for calls that do more than that. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_EVENT_H

#include "soft/client/process.h"

CUresult event_record(CUstream s, CUevent ev, unsigned flags); /* CU_EVENT_RECORD_* */
CUresult event_wait(CUstream s, CUevent ev, unsigned flags);   /* CU_EVENT_WAIT_* */
/* Between ring_begin and ring_end. */
CUresult event_add_record(CUstream s, CUevent ev);
CUresult event_add_wait(CUstream s, CUevent ev);
CUresult event_put_wait(CUstream s, CUevent ev); /* nobody captures */
void events_forget(CUcontext ctx);		 /* the context has ended: its events too */

/* context_event.c: of all streams of a context, or of a green one of it (NULL: of all). */
CUresult context_record(CUcontext ctx, CUgreenCtx green, CUevent ev);
CUresult context_wait(CUcontext ctx, CUgreenCtx green, CUevent ev);

#endif
