/* Events: a record is an operation of its stream; the event remembers which one, and the shared
 * page when it was reached. */
#include "base/atomic.h"
#include "soft/client/client.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)

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
	}
	pthread_mutex_unlock(&soft.lock);
	*ret = ev;
	return ev ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
	soft.event_used[ev->slot] = 0;
	object_delete(ev);
	pthread_mutex_unlock(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent ev)
{
	return cuEventDestroy_v2(ev);
}

static CUresult record(int pt, CUevent ev, CUstream h, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e) {
		return e;
	}
	if (!object_is(ev, OBJECT_EVENT) || ev->context != s->context) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return ring_put_record(s, ev);
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

CUresult cuEventQuery(CUevent ev)
{
	CUresult e = check_event(ev);

	if (e) {
		return e;
	}
	e = soft_context_error(ev->context);
	if (!e && ev->recorded &&
	    !word_reached(&soft.shared->streams[ev->stream_slot].done, ev->target)) {
		return CUDA_ERROR_NOT_READY;
	}
	return e;
}

CUresult cuEventSynchronize(CUevent ev)
{
	struct soft_stream_word *w;
	CUresult e = check_event(ev);

	if (e) {
		return e;
	}
	w = &soft.shared->streams[ev->stream_slot];
	return ev->recorded ? word_wait(&w->done, &w->waiters, ev->target, ev->context)
			    : soft_context_error(ev->context);
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
	if (!a->recorded || !b->recorded || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = cuEventQuery(a);
	e = e ? e : cuEventQuery(b);
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
