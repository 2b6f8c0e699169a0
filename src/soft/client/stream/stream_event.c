/* Events. A record is an operation of its stream; the event stores which one, and the shared page
 * shows when the stream has reached it. */
#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/ring_submit.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"
#include <string.h>
#include <unistd.h>

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUevent events[SOFT_MAX_EVENTS] GUARDED_BY(soft.lock); /* by slot */

/* Sends a request about an interprocess event, whose state the server keeps. */

static CUresult ask(CUevent ev, unsigned verb, struct soft_reply *r)
{
	struct soft_request q = {
		.op = SOFT_REQ_EVENT, .object = verb, .index = ev->index, .value = ev->key
	};

	return soft_link_call(&q, -1, r, sizeof(*r), NULL);
}

/* Creates an event in a free slot. */
static CUevent new_event(CUcontext ctx, unsigned flags) REQUIRES(soft.lock)
{
	for (uint32_t i = 0; i < SOFT_MAX_EVENTS; i++) {
		uint32_t slot = (soft.next_event + i) % SOFT_MAX_EVENTS;
		CUevent ev;

		if (soft.event_used[slot]) {
			continue;
		}
		ev = soft_object_create(SOFT_OBJECT_EVENT, sizeof(*ev));
		if (ev) {
			soft.event_used[slot] = 1;
			soft.next_event = slot + 1;
			ev->context = ctx;
			ev->slot = slot;
			ev->flags = flags;
			events[slot] = ev;
		}
		return ev;
	}
	return NULL;
}

static void forget(CUevent ev) REQUIRES(soft.lock);

static CUresult event_new(CUcontext ctx, unsigned flags, CUevent *ret)
{
	struct soft_reply r;
	CUresult e = CUDA_SUCCESS;
	CUevent ev;

	lock_take(&soft.lock);
	ev = new_event(ctx, flags);
	lock_release(&soft.lock);
	if (!ev) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (flags & CU_EVENT_INTERPROCESS) {
		e = ask(ev, SOFT_EVENT_CREATE, &r);
		ev->shared = !e;
		ev->index = r.value32;
		ev->key = r.value;
	}
	if (e) {
		lock_take(&soft.lock);
		forget(ev);
		lock_release(&soft.lock);
		return e;
	}
	*ret = ev;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *ret, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || (flags & ~(unsigned)EVENT_FLAGS) ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return event_new(ctx, flags, ret);
}

static void forget(CUevent ev) REQUIRES(soft.lock)
{
	soft_capture_drop_event(ev);
	events[ev->slot] = NULL;
	soft.event_used[ev->slot] = 0;
	soft_object_destroy(ev);
}

void soft_events_drop_context(CUcontext ctx)
{
	lock_take(&soft.lock);
	for (uint32_t i = 0; i < SOFT_MAX_EVENTS; i++) {
		struct soft_reply r;

		if (events[i] && events[i]->context == ctx) {
			if (events[i]->shared) {
				ask(events[i], SOFT_EVENT_CLOSE, &r);
			}
			forget(events[i]);
		}
	}
	lock_release(&soft.lock);
}

CUresult cuEventDestroy_v2(CUevent ev)
{
	struct soft_reply r;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!soft_handle_is(ev, SOFT_OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	soft_handle_destroying(ev);
	if (ev->shared) {
		ask(ev, SOFT_EVENT_CLOSE, &r);
	}
	lock_take(&soft.lock);
	forget(ev);
	lock_release(&soft.lock);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent ev)
{
	return cuEventDestroy_v2(ev);
}

static CUresult put_shared(CUstream s, CUevent ev, unsigned op, uint32_t ticket)
	REQUIRES(soft.ring_lock)
{
	struct soft_record_shared r = {
		.r.op = (uint16_t)op, .key = ev->key, .index = ev->index, .ticket = ticket
	};

	return soft_ring_add(s, &r.r, sizeof(r));
}

CUresult soft_event_add_record(CUstream s, CUevent ev)
{
	struct soft_reply r;
	CUresult e;

	if (!ev->shared) {
		return soft_ring_add_record(s, ev);
	}
	e = ask(ev, SOFT_EVENT_ISSUE, &r);
	return e ? e : put_shared(s, ev, SOFT_OP_SHARED_RECORD, r.value32);
}

CUresult soft_event_add_wait(CUstream s, CUevent ev)
{
	uint64_t last = load_acquire(&ev->last);
	struct soft_reply r;
	CUresult e;

	if (!ev->shared) {
		return last ? soft_ring_add_wait(s, soft_event_slot(last), (uint32_t)last)
			    : CUDA_SUCCESS;
	}
	e = ask(ev, SOFT_EVENT_QUERY, &r);
	return e || r.value32 == r.value ? e : put_shared(s, ev, SOFT_OP_SHARED_WAIT, r.value32);
}

CUresult soft_event_record(CUstream s, CUevent ev, unsigned flags)
{
	bool captured;
	CUresult e;

	if (!soft_handle_is(ev, SOFT_OBJECT_EVENT) || ev->context != s->context) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_capture_record(s, ev, flags & CU_EVENT_RECORD_EXTERNAL, &captured);
	if (e || captured) {
		return e;
	}
	soft_strict_submit(s);
	e = soft_ring_begin();
	if (!e) {
		e = soft_event_add_record(s, ev);
		soft_ring_end();
	}
	return e;
}

CUresult soft_event_submit_wait(CUstream s, CUevent ev)
{
	CUresult e;

	soft_strict_submit(s);
	e = soft_ring_begin();
	if (!e) {
		e = soft_event_add_wait(s, ev);
		soft_ring_end();
	}
	return e;
}

CUresult soft_event_wait(CUstream s, CUevent ev, unsigned flags)
{
	bool captured;
	CUresult e;

	if (!soft_handle_is(ev, SOFT_OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_capture_wait(s, ev, flags & CU_EVENT_WAIT_EXTERNAL, &captured);
	return e || captured ? e : soft_event_submit_wait(s, ev);
}

static CUresult record(int pt, CUevent ev, CUstream h, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	return e ? e : soft_event_record(s, ev, flags);
}
SOFT_PAIR(cuEventRecord, _ptsz, record, (CUevent ev, CUstream h), ev, h, 0)
SOFT_PAIR(cuEventRecordWithFlags, _ptsz, record, (CUevent ev, CUstream h, unsigned int flags), ev,
	  h, flags)

static CUresult check_event(CUevent ev)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	return soft_handle_is(ev, SOFT_OBJECT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Checks an event before a query or a wait. */
static CUresult check_waitable(CUevent ev)
{
	CUresult e = check_event(ev);

	e = e ? e : soft_capture_check_event(ev, true);
	e = e ? e : soft_capture_unsafe();
	return e ? e : soft_context_error(ev->context);
}

static bool reached(const CUevent ev)
{
	uint64_t last = load_acquire(&ev->last);

	return !last || soft_strict_reached(soft_event_slot(last), (uint32_t)last);
}

CUresult cuEventQuery(CUevent ev)
{
	struct soft_reply r;
	CUresult e = check_waitable(ev);

	if (e || !ev->shared) {
		return e ? e : reached(ev) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	}
	e = ask(ev, SOFT_EVENT_QUERY, &r);
	return e ? e : r.value32 == r.value ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Waits for an interprocess event with a temporary stream that contains only the wait. */
static CUresult synchronize_shared(CUevent ev)
{
	uint32_t target;
	CUstream s;
	CUresult e = soft_stream_create(ev->context, 0, SOFT_STREAM_NON_BLOCKING, &s), last;

	if (e) {
		return e;
	}
	e = soft_event_submit_wait(s, ev);
	target = s->submitted;
	e = e ? e : soft_stream_wait(s, target);
	last = soft_stream_destroy(s);
	return e ? e : last;
}

CUresult cuEventSynchronize(CUevent ev)
{
	struct soft_stream_word *w;
	CUresult e = check_waitable(ev);
	uint64_t last;

	if (!e && ev->shared) {
		return synchronize_shared(ev);
	}
	last = e ? 0 : load_acquire(&ev->last);
	if (!last) {
		return e;
	}
	w = &soft.shared->streams[soft_event_slot(last)];
	e = ev->flags & CU_EVENT_BLOCKING_SYNC
		    ? soft_word_wait_mode(&w->done, &w->waiters, (uint32_t)last, ev->context, true)
		    : soft_word_wait(&w->done, &w->waiters, (uint32_t)last, ev->context);
	soft_pool_trim_idle();
	return e;
}

/* ---- interprocess handles ---- */

#define HANDLE_MAGIC 0x3074766574666f73ull

struct event_handle {
	uint64_t magic, key;
	uint32_t index;
	int32_t pid; /* process that created it */
};
_Static_assert(sizeof(struct event_handle) <= sizeof(CUipcEventHandle),
	       "it fits the driver's handle");

CUresult cuIpcGetEventHandle(CUipcEventHandle *ret, CUevent ev)
{
	struct event_handle h = { .magic = HANDLE_MAGIC };
	CUresult e = check_event(ev);

	if (e) {
		return e;
	}
	if (!ret || !ev->shared) {
		return ret ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	}
	h.key = ev->key;
	h.index = ev->index;
	h.pid = getpid();
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &h, sizeof(h));
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
	struct soft_reply r;
	struct event_handle h;
	CUcontext ctx;
	CUevent ev;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	memcpy(&h, &handle, sizeof(h));
	if (!ret || h.magic != HANDLE_MAGIC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (h.pid == getpid()) { /* this process already has the event */
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	e = event_new(ctx, CU_EVENT_DISABLE_TIMING, &ev);
	if (e) {
		return e;
	}
	ev->key = h.key;
	ev->index = h.index;
	e = ask(ev, SOFT_EVENT_OPEN, &r);
	ev->shared = !e;
	if (e) {
		cuEventDestroy_v2(ev);
		return e;
	}
	*ret = ev;
	return CUDA_SUCCESS;
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
	e = soft_capture_check_event(a, false);
	e = e ? e : soft_capture_check_event(b, false);
	if (e) {
		return e;
	}
	if (!load_acquire(&a->last) || !load_acquire(&b->last) ||
	    ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) {
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
