/* Streams: slots of the shared page, creation, destruction and queries. */
#include "soft/client/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph_exec.h"
#include "soft/client/memory/memory.h"
#include "soft/client/printf_output.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"

static CUstream streams[SOFT_MAX_STREAMS] GUARDED_BY(soft.lock); /* by slot */
static uint32_t slots GUARDED_BY(soft.lock); /* [atomic to read]; those that have been used */

static int take_slot(void) REQUIRES(soft.lock)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (soft.stream_used[i] == 2 &&
		    soft_word_reached(&soft.shared->streams[i].done, soft.stream_count[i])) {
			store_relaxed(&soft.stream_used[i], 0);
		}
		if (soft.stream_used[i] == 0) {
			store_relaxed(&soft.stream_used[i], 1);
			store_release(&slots, MAX(slots, i + 1));
			return (int)i;
		}
	}
	return -1;
}

CUresult soft_stream_create(CUcontext ctx, int priority, uint32_t flags, CUstream *ret)
{
	return soft_stream_create_in(ctx, NULL, priority, flags, ret);
}

CUresult soft_stream_create_in(CUcontext ctx, CUgreenCtx green, int priority, uint32_t flags,
			       CUstream *ret)
{
	struct soft_record_stream r = { .r.op = SOFT_OP_STREAM_CREATE,
					.priority = priority,
					.flags = flags,
					.part = green ? green->id : 0 };
	CUstream s;
	int slot;
	CUresult e;

	lock_take(&soft.lock);
	slot = take_slot();
	s = slot >= 0 ? soft_object_create(SOFT_OBJECT_STREAM, sizeof(*s)) : NULL;
	if (s) {
		s->context = ctx;
		s->slot = (uint32_t)slot;
		store_relaxed(&soft.stream_owner[slot], (uint8_t)ctx->slot);
		s->priority = priority;
		s->flags = flags & SOFT_STREAM_NON_BLOCKING ? CU_STREAM_NON_BLOCKING
							    : CU_STREAM_DEFAULT;
		s->legacy = flags & SOFT_STREAM_LEGACY;
		s->green = green;
		s->green_id = green ? green->id : 0;
		s->id = ++soft.next_id;
		s->domain_map[1] = 1;
		streams[slot] = s;
	} else if (slot >= 0) {
		store_relaxed(&soft.stream_used[slot], 0);
	}
	lock_release(&soft.lock);
	if (!s) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, NULL);
	store_relaxed(&s->created, load_relaxed(&s->submitted)); /* others look at it already */
	*ret = s;
	return e;
}

CUresult soft_stream_destroy(CUstream s)
{
	struct soft_record_stream r = { .r.op = SOFT_OP_STREAM_DESTROY };
	CUresult e;

	soft_capture_drop_stream(s);
	e = soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, NULL);
	lock_take(&soft.lock);
	store_relaxed(&soft.stream_used[s->slot], 2);
	streams[s->slot] = NULL;
	soft_object_destroy(s);
	lock_release(&soft.lock);
	return e;
}

CUresult soft_streams_each(CUcontext ctx, CUresult (*fn)(CUstream s, void *arg), void *arg)
{
	CUresult e = CUDA_SUCCESS;

	lock_take(&soft.lock);
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS && !e; i++) {
		if (streams[i] && (!ctx || streams[i]->context == ctx)) {
			e = fn(streams[i], arg);
		}
	}
	lock_release(&soft.lock);
	return e;
}

void soft_streams_drop_context(CUcontext ctx)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		CUstream s;

		lock_take(&soft.lock);
		s = streams[i] && streams[i]->context == ctx && streams[i] != ctx->legacy
			    ? streams[i]
			    : NULL;
		if (s || (streams[i] && streams[i]->context == ctx)) {
			streams[i] = NULL;
		}
		lock_release(&soft.lock);
		if (s) {
			soft_capture_drop_stream(s);
			lock_take(&soft.lock);
			soft_object_destroy(s);
			lock_release(&soft.lock);
		}
	}
}

bool soft_stream_slot_is(uint32_t slot, const struct CUcontext_st *ctx)
{
	return load_relaxed(&soft.stream_used[slot]) &&
	       load_relaxed(&soft.stream_owner[slot]) == ctx->slot;
}

CUresult soft_context_drain(CUcontext ctx)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		uint32_t target = load_acquire(&soft.stream_count[i]);
		struct soft_stream_word *w = &soft.shared->streams[i];

		if (soft_stream_slot_is(i, ctx) && !soft_word_reached(&w->done, target)) {
			soft_word_wait(&w->done, &w->waiters, target, ctx);
		}
	}
	soft_output_drain(); /* includes output of kernels that ended earlier */
	return soft_context_error(ctx);
}

CUresult soft_green_drain(CUgreenCtx g)
{
	CUcontext ctx = g->primary;

	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		struct soft_stream_word *w = &soft.shared->streams[i];
		uint32_t target = load_acquire(&soft.stream_count[i]);
		bool ours;

		lock_take(&soft.lock);
		ours = streams[i] && streams[i]->green == g && streams[i]->green_id == g->id;
		lock_release(&soft.lock);
		if (ours) {
			soft_word_wait(&w->done, &w->waiters, target, ctx);
		}
	}
	soft_output_drain();
	return soft_context_error(ctx);
}

static CUresult create(CUstream *ret, unsigned flags, int priority)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	priority = MIN(MAX(priority, SOFT_PRIORITY_GREATEST), 0);
	return soft_stream_create_in(ctx, soft_thread_green(), priority,
				     flags ? SOFT_STREAM_NON_BLOCKING : 0, ret);
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
	if (!soft_handle_is(s, SOFT_OBJECT_STREAM) || s->legacy) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (soft_green_stream_orphaned(s)) {
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	soft_handle_destroying(s);
	return soft_stream_destroy(s);
}

CUresult cuStreamDestroy(CUstream s)
{
	return cuStreamDestroy_v2(s);
}

/* Returns true if the stream in that slot is ordered with a legacy stream: work of the one waits
 * for earlier work of the other. So is what is left of a destroyed one, if it was. */
static bool is_ordered_with(CUstream legacy, uint32_t slot)
{
	CUstream s;
	bool is;

	if (slot == legacy->slot || !soft_stream_slot_is(slot, legacy->context)) {
		return false;
	}
	lock_take(&soft.lock);
	s = streams[slot];
	is = !s || (s->green_id == legacy->green_id && !(s->flags & CU_STREAM_NON_BLOCKING) &&
		    load_relaxed(&s->submitted) != load_relaxed(&s->created));
	lock_release(&soft.lock);
	return is;
}

/* The driver counts the work of all streams that a legacy stream is ordered with as its own, when
 * it is asked about it or waits for it (H200, 580.159.04). */
static bool siblings_reached(CUstream s)
{
	for (uint32_t i = 0; s->legacy && i < load_acquire(&slots); i++) {
		if (!soft_word_reached(&soft.shared->streams[i].done,
				       load_acquire(&soft.stream_count[i])) &&
		    is_ordered_with(s, i)) {
			return false;
		}
	}
	return true;
}

static CUresult drain_siblings(CUstream s)
{
	CUresult e = CUDA_SUCCESS;

	for (uint32_t i = 0; s->legacy && !e && i < load_acquire(&slots); i++) {
		uint32_t target = load_acquire(&soft.stream_count[i]);
		struct soft_stream_word *w = &soft.shared->streams[i];

		if (!soft_word_reached(&w->done, target) && is_ordered_with(s, i)) {
			e = soft_word_wait(&w->done, &w->waiters, target, s->context);
		}
	}
	return e;
}

static CUresult synchronize(int pt, CUstream h)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_sync(s);
	e = e ? e : soft_stream_drain(s);
	e = e ? e : drain_siblings(s);
	soft_handle_recheck(h > CU_STREAM_PER_THREAD ? h : NULL, SOFT_OBJECT_STREAM);
	soft_exec_reap();
	soft_pool_trim_idle();
	return e;
}
SOFT_PAIR(cuStreamSynchronize, _ptsz, synchronize, (CUstream h), h)

static CUresult query(int pt, CUstream h)
{
	uint32_t submitted;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_sync(s);
	if (e) {
		return e;
	}
	submitted = load_acquire(&s->submitted);
	if ((submitted != s->created && !soft_strict_reached(s->slot, submitted)) ||
	    !siblings_reached(s)) {
		return CUDA_ERROR_NOT_READY;
	}
	return soft_context_error(s->context);
}
SOFT_PAIR(cuStreamQuery, _ptsz, query, (CUstream h), h)

static CUresult get_priority(int pt, CUstream h, int *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret) {
		*ret = s->priority;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetPriority, _ptsz, get_priority, (CUstream h, int *ret), h, ret)

static CUresult get_flags(int pt, CUstream h, unsigned *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret) {
		*ret = s->flags;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetFlags, _ptsz, get_flags, (CUstream h, unsigned int *ret), h, ret)

static CUresult get_id(int pt, CUstream h, unsigned long long *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret) {
		*ret = s->id;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetId, _ptsz, get_id, (CUstream h, unsigned long long *ret), h, ret)

static CUresult get_context(int pt, CUstream h, CUcontext *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret && s->green) {
		e = cuCtxFromGreenCtx(ret, s->green);
	} else if (!e && ret) {
		*ret = s->context;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetCtx, _ptsz, get_context, (CUstream h, CUcontext *ret), h, ret)

static CUresult get_context_v2(int pt, CUstream h, CUcontext *ret, CUgreenCtx *green)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret) {
		*ret = s->context;
	}
	if (!e && green) {
		*green = s->green;
	}
	return e ? e : ret && green ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetCtx_v2, _ptsz, get_context_v2, (CUstream h, CUcontext *ret, CUgreenCtx *green),
	  h, ret, green)

static CUresult get_device(int pt, CUstream h, CUdevice *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (!e && ret) {
		*ret = s->context->device;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT_PAIR(cuStreamGetDevice, _ptsz, get_device, (CUstream h, CUdevice *ret), h, ret)

static CUresult wait_event(int pt, CUstream h, CUevent ev, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	return e ? e : soft_event_wait(s, ev, flags);
}
SOFT_PAIR(cuStreamWaitEvent, _ptsz, wait_event, (CUstream h, CUevent ev, unsigned int flags), h, ev,
	  flags)

/* Attributes. */

static CUresult get_attribute(int pt, CUstream h, CUstreamAttrID id, CUstreamAttrValue *v)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !v) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	memset(v, 0, sizeof(*v));
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		v->accessPolicyWindow = s->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		v->syncPolicy = s->sync_policy ? s->sync_policy : CU_SYNC_POLICY_AUTO;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		v->priority = s->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		v->memSyncDomain = s->sync_domain;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		v->memSyncDomainMap.default_ = (unsigned char)s->domain_map[0];
		v->memSyncDomainMap.remote = (unsigned char)s->domain_map[1];
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
SOFT_PAIR(cuStreamGetAttribute, _ptsz, get_attribute,
	  (CUstream h, CUstreamAttrID id, CUstreamAttrValue *v), h, id, v)

static CUresult set_policy(CUstream s, unsigned policy)
{
	if (policy < CU_SYNC_POLICY_AUTO || policy > CU_SYNC_POLICY_BLOCKING_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	s->sync_policy = policy;
	return CUDA_SUCCESS;
}

static CUresult set_attribute(int pt, CUstream h, CUstreamAttrID id, const CUstreamAttrValue *v)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !v) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: /* stored, no effect */
		s->window = v->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return set_policy(s, v->syncPolicy);
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		s->priority = MIN(MAX(v->priority, SOFT_PRIORITY_GREATEST), 0);
		s->reprioritized = true;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: /* stored; memory is coherent anyway */
		s->sync_domain = v->memSyncDomain;
		return v->memSyncDomain > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		s->domain_map[0] = v->memSyncDomainMap.default_;
		s->domain_map[1] = v->memSyncDomainMap.remote;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
SOFT_PAIR(cuStreamSetAttribute, _ptsz, set_attribute,
	  (CUstream h, CUstreamAttrID id, const CUstreamAttrValue *v), h, id, v)

static CUresult copy_attributes(int pt, CUstream to, CUstream from)
{
	CUstream t, f;
	CUresult e = soft_stream_resolve(to, pt, &t);

	e = e ? e : soft_stream_resolve(from, pt, &f);
	if (e) {
		return e;
	}
	if (t->context != f->context) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	t->sync_policy = f->sync_policy;
	t->window = f->window;
	t->sync_domain = f->sync_domain;
	t->reprioritized |= t->priority != f->priority;
	t->priority = f->priority;
	memcpy(t->domain_map, f->domain_map, sizeof(t->domain_map));
	return CUDA_SUCCESS;
}
SOFT_PAIR(cuStreamCopyAttributes, _ptsz, copy_attributes, (CUstream to, CUstream from), to, from)
