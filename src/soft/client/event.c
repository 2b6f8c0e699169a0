/* Events: a record is an operation of its stream; the event remembers which one, and the shared
 * page when it was reached. */
#include "soft/client/event.h"

#include "base/atomic.h"
#include "soft/client/capture.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)

static CUevent events[SOFT_MAX_EVENTS]; /* by slot; soft.lock */

CUresult cuEventCreate(CUevent *ret, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);
	CUevent ev = NULL;

	if (e) {
		return e;
	}
	if (!ret ||
	    (flags & ~(unsigned)EVENT_FLAGS)) { /* events of several processes are not supported */
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&soft.lock);
	for (uint32_t i = 0; i < SOFT_MAX_EVENTS && !ev; i++) {
		uint32_t slot = (soft.next_event + i) % SOFT_MAX_EVENTS;

		if (soft.event_used[slot]) {
			continue;
		}
		ev = object_new(OBJECT_EVENT, sizeof(*ev));
		if (!ev) {
			break;
		}
		soft.event_used[slot] = 1;
		soft.next_event = slot + 1;
		ev->context = ctx;
		ev->slot = slot;
		ev->flags = flags;
		events[slot] = ev;
	}
	pthread_mutex_unlock(&soft.lock);
	*ret = ev;
	return ev ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* soft.lock held. */
static void forget(CUevent ev)
{
	capture_forget_event(ev);
	events[ev->slot] = NULL;
	soft.event_used[ev->slot] = 0;
	object_delete(ev);
}

void events_forget(CUcontext ctx)
{
	pthread_mutex_lock(&soft.lock);
	for (uint32_t i = 0; i < SOFT_MAX_EVENTS; i++) {
		if (events[i] && events[i]->context == ctx) {
			forget(events[i]);
		}
	}
	pthread_mutex_unlock(&soft.lock);
}

CUresult cuEventDestroy_v2(CUevent ev)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!object_is(ev, OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_lock(&soft.lock);
	forget(ev);
	pthread_mutex_unlock(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent ev)
{
	return cuEventDestroy_v2(ev);
}

CUresult event_record(CUstream s, CUevent ev, unsigned flags)
{
	bool captured;
	CUresult e;

	if (!object_is(ev, OBJECT_EVENT) || ev->context != s->context) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = capture_record(s, ev, flags & CU_EVENT_RECORD_EXTERNAL, &captured);
	return e || captured ? e : ring_put_record(s, ev);
}

CUresult event_put_wait(CUstream s, CUevent ev)
{
	return ev->recorded ? ring_put_wait(s, ev) : CUDA_SUCCESS;
}

CUresult event_wait(CUstream s, CUevent ev, unsigned flags)
{
	bool captured;
	CUresult e;

	if (!object_is(ev, OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = capture_wait(s, ev, flags & CU_EVENT_WAIT_EXTERNAL, &captured);
	return e || captured ? e : event_put_wait(s, ev);
}

static CUresult record(int pt, CUevent ev, CUstream h, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	return e ? e : event_record(s, ev, flags);
}
PAIR(cuEventRecord, _ptsz, record, (CUevent ev, CUstream h), ev, h, 0)
PAIR(cuEventRecordWithFlags, _ptsz, record, (CUevent ev, CUstream h, unsigned int flags), ev, h,
     flags)

static CUresult check_event(CUevent ev)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	return object_is(ev, OBJECT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Before an event is asked or waited for. */
static CUresult check_settled(CUevent ev)
{
	CUresult e = check_event(ev);

	e = e ? e : capture_asked(ev);
	e = e ? e : capture_unsafe();
	return e ? e : soft_context_error(ev->context);
}

static bool reached(const CUevent ev)
{
	return !ev->recorded ||
	       word_reached(&soft.shared->streams[ev->stream_slot].done, ev->target);
}

CUresult cuEventQuery(CUevent ev)
{
	CUresult e = check_settled(ev);

	return e ? e : reached(ev) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent ev)
{
	struct soft_stream_word *w;
	CUresult e = check_settled(ev);

	if (e || !ev->recorded) {
		return e;
	}
	w = &soft.shared->streams[ev->stream_slot];
	return ev->flags & CU_EVENT_BLOCKING_SYNC
		       ? word_wait_how(&w->done, &w->waiters, ev->target, ev->context, true)
		       : word_wait(&w->done, &w->waiters, ev->target, ev->context);
}

CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	CUresult e = check_event(a);

	e = e ? e : check_event(b);
	if (e) {
		return e;
	}
	if (!ms) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = capture_asked(a);
	e = e ? e : capture_asked(b);
	if (e) {
		return e;
	}
	if (!a->recorded || !b->recorded || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = soft_context_error(a->context);
	e = e ? e : soft_context_error(b->context);
	if (!e && (!reached(a) || !reached(b))) {
		return CUDA_ERROR_NOT_READY;
	}
	if (!e) {
		*ms = (float)((double)(int64_t)(soft.shared->events[b->slot].when_ns -
						soft.shared->events[a->slot].when_ns) /
			      1e6);
	}
	return e;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b)
{
	return cuEventElapsedTime(ms, a, b);
}
