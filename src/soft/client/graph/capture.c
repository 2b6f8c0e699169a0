/* Captures: work submitted to a capturing stream becomes nodes of a graph. Each such stream has a
 * set of nodes on which its next node depends; an event recorded in a capture carries such a set to
 * other streams. */
#include "soft/client/graph/capture.h"

#include "soft/client/graph/capture_int.h"
#include "soft/client/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

struct lock soft_capture_lock = LOCK_INITIALIZER(SOFT_CAPTURE); /* taken before soft.lock */
static struct soft_capture *captures GUARDED_BY(soft_capture_lock);
static unsigned n_captures GUARDED_BY(soft_capture_lock); /* [atomic to read] */
static uint64_t last_id GUARDED_BY(soft_capture_lock);
static __thread CUstreamCaptureMode thread_mode;
static __thread char thread_mark;

/* Relaxed: a thread sees captures that it has begun; against those of other threads the program
 * must order its calls. */
static bool no_captures(void)
{
	return load_relaxed(&n_captures) == 0;
}

CUresult soft_edges_set(struct soft_edges *e, const struct soft_graph_edge *v, uint32_t n)
{
	struct soft_graph_edge *copy = malloc((n + 1) * sizeof(*copy));

	if (!copy) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (n) {
		memcpy(copy, v, n * sizeof(*copy));
	}
	free(e->v);
	e->v = copy;
	e->n = n;
	return CUDA_SUCCESS;
}

CUresult soft_edges_add(struct soft_edges *e, const struct soft_graph_edge *v, uint32_t n)
{
	struct soft_graph_edge *grown = realloc(e->v, (e->n + n + 1) * sizeof(*grown));

	if (!grown) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e->v = grown;
	for (uint32_t i = 0; i < n; i++) {
		bool there = false;

		for (uint32_t j = 0; j < e->n && !there; j++) {
			there = grown[j].from == v[i].from;
		}
		if (!there) {
			grown[e->n++] = v[i];
		}
	}
	return CUDA_SUCCESS;
}

static CUresult join(CUstream s, struct soft_capture *c, const struct soft_graph_edge *v,
		     uint32_t n) REQUIRES(soft_capture_lock)
{
	if (!s->capturing) {
		s->capturing = calloc(1, sizeof(*s->capturing));
	}
	if (!s->capturing) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->capturing->capture = c;
	return soft_edges_set(&s->capturing->deps, v, n);
}

static void leave(CUstream s)
{
	s->capturing->capture = NULL;
	s->capturing->deps.n = 0;
}

/* Calls fn for every stream of the capture until it returns other than 0. */
struct each_call {
	struct soft_capture *c;
	CUresult (*fn)(CUstream s, struct soft_capture *c);
};

static CUresult each_one(CUstream s, void *arg)
{
	struct each_call *x = arg;

	return soft_capture_of(s) == x->c ? x->fn(s, x->c) : CUDA_SUCCESS;
}

CUresult soft_capture_each(struct soft_capture *c,
			   CUresult (*fn)(CUstream s, struct soft_capture *c))
{
	struct each_call x = { c, fn };

	return soft_streams_each(NULL, each_one, &x);
}

static CUresult leave_one(CUstream s, struct soft_capture *c)
{
	(void)c;
	leave(s);
	return CUDA_SUCCESS;
}

void soft_capture_close(struct soft_capture *c)
{
	struct soft_capture **at = &captures;

	soft_capture_each(c, leave_one);
	while (*at != c) {
		at = &(*at)->next;
	}
	*at = c->next;
	sub_acqrel(&n_captures, 1u);
	c->graph->capturing = false;
	free(c->lost.v);
	free(c);
}

static struct soft_capture *find(uint64_t id) REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = captures;

	while (c && c->id != id) {
		c = c->next;
	}
	return c;
}

/* The legacy stream synchronizes with blocking streams, so it must not be used while one of them
 * captures. */
static CUresult is_blocking(CUstream s, struct soft_capture *c)
{
	(void)c;
	return s->flags & CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS
						 : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult soft_capture_legacy_conflict(CUstream s, bool invalidate)
{
	CUresult e = CUDA_SUCCESS;

	if (!s->legacy) {
		return CUDA_SUCCESS;
	}
	for (struct soft_capture *c = captures; c; c = c->next) {
		if (c->origin->context == s->context && soft_capture_each(c, is_blocking)) {
			c->invalid |= invalidate;
			e = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return e;
}

static CUresult check_locked(CUstream s, bool *ret) REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = soft_capture_of(s);

	if (!c) {
		return soft_capture_legacy_conflict(s, true);
	}
	*ret = !c->invalid;
	return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult soft_capture_check(CUstream s, bool *ret)
{
	CUresult e;

	*ret = false;
	if (no_captures()) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft_capture_lock);
	e = check_locked(s, ret);
	lock_release(&soft_capture_lock);
	return e;
}

CUresult soft_capture_add(CUstream s, struct soft_work *w)
{
	struct soft_graph_edge edge = { 0 };
	struct soft_capture *c;
	CUresult e;

	lock_take(&soft_capture_lock);
	c = soft_capture_of(s);
	if (!c || c->invalid) {
		soft_work_finish(w);
		e = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		e = soft_graph_add(c->graph, s->capturing->deps.v, s->capturing->deps.n, w,
				   &edge.from);
		e = e ? e : soft_edges_set(&s->capturing->deps, &edge, 1);
		c->invalid |= e != CUDA_SUCCESS;
	}
	lock_release(&soft_capture_lock);
	return e;
}

CUresult soft_capture_unsafe(void)
{
	CUresult e = CUDA_SUCCESS;

	if (no_captures() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft_capture_lock);
	for (struct soft_capture *c = captures; c; c = c->next) {
		bool own = c->thread == &thread_mark && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool others = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (own || others) {
			c->invalid = true;
			e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	lock_release(&soft_capture_lock);
	return e;
}

CUresult soft_capture_refuse(CUstream s)
{
	bool capturing = false;
	CUresult e;

	if (no_captures()) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft_capture_lock);
	e = check_locked(s, &capturing);
	if (capturing) {
		soft_capture_of(s)->invalid = true;
		e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	lock_release(&soft_capture_lock);
	return e;
}

CUresult soft_capture_sync(CUstream s)
{
	CUresult e = soft_capture_refuse(s);

	return e ? e : soft_capture_unsafe(); /* also fails if captures of other streams forbid this
						 thread to wait */
}

struct in_context {
	CUcontext ctx;
	bool any;
};

static CUresult invalidate_one(CUstream s, void *arg)
{
	struct in_context *x = arg;

	if (soft_capture_of(s)) {
		soft_capture_of(s)->invalid = true;
		x->any = true;
	}
	return CUDA_SUCCESS;
}

CUresult soft_capture_sync_context(CUcontext ctx)
{
	struct in_context x = { ctx, false };

	if (no_captures()) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft_capture_lock);
	soft_streams_each(ctx, invalidate_one, &x);
	lock_release(&soft_capture_lock);
	return x.any ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* ---- events ---- */

static CUresult keep(CUevent ev, const struct soft_capture *c, const struct soft_edges *deps)
	REQUIRES(soft_capture_lock)
{
	if (!ev->captured) {
		ev->captured = calloc(1, sizeof(*ev->captured));
	}
	if (!ev->captured) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ev->captured->id = c->id;
	return soft_edges_set(&ev->captured->deps, deps->v, deps->n);
}

static CUresult add_event(CUstream s, CUgraphNodeType type, CUevent ev)
{
	struct soft_work w;
	CUresult e = soft_work_event(&w, type, ev);

	return e ? e : soft_capture_add(s, &w);
}

CUresult soft_capture_record(CUstream s, CUevent ev, bool external, bool *ret)
{
	CUresult e = CUDA_SUCCESS;

	*ret = false;
	if (!no_captures()) {
		lock_take(&soft_capture_lock);
		e = check_locked(s, ret);
		if (!e && *ret && !external) {
			e = keep(ev, soft_capture_of(s), &s->capturing->deps);
		}
		lock_release(&soft_capture_lock);
	}
	if (e) {
		return e;
	}
	if (*ret) {
		return external ? add_event(s, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ev) : CUDA_SUCCESS;
	}
	if (external) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (ev->captured) {
		ev->captured->id = 0;
	}
	return CUDA_SUCCESS;
}

/* The stream waits for an event of an active capture, so it joins that capture. */
static CUresult wait_captured(CUstream s, struct soft_capture *to, const struct soft_edges *deps)
	REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = soft_capture_of(s);

	if (to->invalid) {
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	if (!c && s->legacy) {
		to->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (c && c != to) {
		c->invalid = to->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	return c ? soft_edges_add(&s->capturing->deps, deps->v, deps->n)
		 : join(s, to, deps->v, deps->n);
}

static CUresult wait_locked(CUstream s, CUevent ev, bool external, bool *ret)
	REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = soft_capture_of(s),
			    *to = ev->captured ? find(ev->captured->id) : NULL;

	if (to && !external) {
		*ret = true;
		return wait_captured(s, to, &ev->captured->deps);
	}
	if (!c) {
		return soft_capture_legacy_conflict(s, true);
	}
	if (c->invalid) {
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	*ret = true;
	if (!external && (load_acquire(&ev->last) || ev->shared || soft_capture_has_event(ev))) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	return CUDA_SUCCESS;
}

CUresult soft_capture_wait(CUstream s, CUevent ev, bool external, bool *ret)
{
	CUresult e = CUDA_SUCCESS;

	*ret = false;
	if (!no_captures()) {
		lock_take(&soft_capture_lock);
		e = wait_locked(s, ev, external, ret);
		lock_release(&soft_capture_lock);
	}
	if (e) {
		return e;
	}
	if (*ret) {
		return external ? add_event(s, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ev) : CUDA_SUCCESS;
	}
	if (external) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	return soft_capture_check_event(ev, false);
}

bool soft_capture_has_event(const CUevent ev)
{
	return ev->captured && ev->captured->id;
}

CUresult soft_capture_check_event(CUevent ev, bool invalidate)
{
	struct soft_capture *c;

	if (!soft_capture_has_event(ev)) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft_capture_lock);
	c = find(ev->captured->id);
	if (c) {
		c->invalid |= invalidate;
	}
	lock_release(&soft_capture_lock);
	return c ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

void soft_capture_drop_event(CUevent ev)
{
	if (ev->captured) {
		free(ev->captured->deps.v);
		free(ev->captured);
		ev->captured = NULL;
	}
}

void soft_capture_drop_stream(CUstream s)
{
	struct soft_capturing *p = s->capturing;
	struct soft_capture *c;

	if (!p) {
		return;
	}
	lock_take(&soft_capture_lock);
	c = p->capture;
	if (c && c->origin == s) {
		CUgraph g = c->own_graph ? c->graph : NULL;

		soft_capture_close(c);
		soft_graph_destroy(g);
	} else if (c) {
		soft_edges_add(&c->lost, p->deps.v, p->deps.n);
	}
	s->capturing = NULL;
	lock_release(&soft_capture_lock);
	free(p->deps.v);
	free(p->nodes);
	free(p->data);
	free(p);
}

const void *soft_capture_thread(void)
{
	return &thread_mark;
}

CUresult soft_capture_begin(CUstream s, CUgraph g, bool own, const struct soft_graph_edge *deps,
			    uint32_t n, CUstreamCaptureMode mode)
{
	struct soft_capture *c;
	CUresult e;

	if (soft_capture_of(s)) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (g->capturing) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct soft_capture){ .id = ++last_id,
				    .mode = mode,
				    .thread = &thread_mark,
				    .origin = s,
				    .graph = g,
				    .own_graph = own,
				    .next = captures };
	e = join(s, c, deps, n);
	if (e) {
		if (s->capturing) {
			leave(s);
		}
		free(c);
		return e;
	}
	g->capturing = true;
	captures = c;
	add_acqrel(&n_captures, 1u);
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
