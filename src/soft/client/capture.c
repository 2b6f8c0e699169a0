/* Captures: streams whose work becomes nodes. A stream has a set of nodes that its next one depends
 * on; an event that is recorded in a capture carries such a set to other streams. */
#include "soft/client/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/graph.h"

struct edges {		      /* what comes before the next node */
	struct graph_edge *v; /* owned */
	uint32_t n;
};

struct capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	const void *thread; /* that began it */
	CUstream origin;
	CUgraph graph;
	bool own_graph;
	bool invalid;
	struct edges lost; /* of streams that were destroyed before they were joined */
	struct capture *next;
};

struct capturing {		 /* a stream's part */
	struct capture *capture; /* NULL: the stream does not capture */
	struct edges deps;
	CUgraphNode *nodes; /* owned; what was shown to the program */
	CUgraphEdgeData *data;
};

struct captured {    /* an event's part */
	uint64_t id; /* of the capture of its last record; 0: that was not captured */
	struct edges deps;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything here; before soft.lock */
static struct capture *captures;
static unsigned n_captures;
static uint64_t last_id;
static __thread CUstreamCaptureMode thread_mode;
static __thread char thread_mark;

static bool nobody(void)
{
	return load_relaxed(&n_captures) == 0;
}

static struct capture *of(const CUstream s)
{
	return s->capturing ? s->capturing->capture : NULL;
}

static CUresult edges_set(struct edges *e, const struct graph_edge *v, uint32_t n)
{
	struct graph_edge *copy = malloc((n + 1) * sizeof(*copy));

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

static CUresult edges_add(struct edges *e, const struct graph_edge *v, uint32_t n)
{
	struct graph_edge *grown = realloc(e->v, (e->n + n + 1) * sizeof(*grown));

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

static CUresult join(CUstream s, struct capture *c, const struct graph_edge *v, uint32_t n)
{
	if (!s->capturing) {
		s->capturing = calloc(1, sizeof(*s->capturing));
	}
	if (!s->capturing) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->capturing->capture = c;
	return edges_set(&s->capturing->deps, v, n);
}

static void leave(CUstream s)
{
	s->capturing->capture = NULL;
	s->capturing->deps.n = 0;
}

/* Runs fn for every stream of the capture; until it answers something else than 0. */
struct each {
	struct capture *c;
	CUresult (*fn)(CUstream s, struct capture *c);
};

static CUresult each_one(CUstream s, void *arg)
{
	struct each *x = arg;

	return of(s) == x->c ? x->fn(s, x->c) : CUDA_SUCCESS;
}

static CUresult each_stream(struct capture *c, CUresult (*fn)(CUstream s, struct capture *c))
{
	struct each x = { c, fn };

	return streams_each(NULL, each_one, &x);
}

static CUresult leave_one(CUstream s, struct capture *c)
{
	(void)c;
	leave(s);
	return CUDA_SUCCESS;
}

static void end(struct capture *c)
{
	struct capture **at = &captures;

	each_stream(c, leave_one);
	while (*at != c) {
		at = &(*at)->next;
	}
	*at = c->next;
	sub_acqrel(&n_captures, 1u);
	c->graph->capturing = false;
	free(c->lost.v);
	free(c);
}

static struct capture *find(uint64_t id)
{
	struct capture *c = captures;

	while (c && c->id != id) {
		c = c->next;
	}
	return c;
}

/* The legacy stream would wait for blocking streams, so nobody may use it while one captures. */
static CUresult is_blocking(CUstream s, struct capture *c)
{
	(void)c;
	return s->flags & CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS
						 : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static CUresult legacy_conflict(CUstream s, bool invalidate)
{
	CUresult e = CUDA_SUCCESS;

	if (s != s->context->legacy) {
		return CUDA_SUCCESS;
	}
	for (struct capture *c = captures; c; c = c->next) {
		if (c->origin->context == s->context && each_stream(c, is_blocking)) {
			c->invalid |= invalidate;
			e = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return e;
}

static CUresult check_locked(CUstream s, bool *ret)
{
	struct capture *c = of(s);

	if (!c) {
		return legacy_conflict(s, true);
	}
	*ret = !c->invalid;
	return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_check(CUstream s, bool *ret)
{
	CUresult e;

	*ret = false;
	if (nobody()) {
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	e = check_locked(s, ret);
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult capture_add(CUstream s, struct work *w)
{
	struct graph_edge edge = { 0 };
	struct capture *c;
	CUresult e;

	pthread_mutex_lock(&lock);
	c = of(s);
	if (!c || c->invalid) {
		work_finish(w);
		e = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		e = graph_add(c->graph, s->capturing->deps.v, s->capturing->deps.n, w, &edge.from);
		e = e ? e : edges_set(&s->capturing->deps, &edge, 1);
		c->invalid |= e != CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult capture_unsafe(void)
{
	CUresult e = CUDA_SUCCESS;

	if (nobody() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next) {
		bool own = c->thread == &thread_mark && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool others = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (own || others) {
			c->invalid = true;
			e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult capture_refuse(CUstream s)
{
	bool capturing = false;
	CUresult e;

	if (nobody()) {
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	e = check_locked(s, &capturing);
	if (capturing) {
		of(s)->invalid = true;
		e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult capture_sync(CUstream s)
{
	return capture_refuse(s);
}

struct in_context {
	CUcontext ctx;
	bool any;
};

static CUresult invalidate_one(CUstream s, void *arg)
{
	struct in_context *x = arg;

	if (of(s)) {
		of(s)->invalid = true;
		x->any = true;
	}
	return CUDA_SUCCESS;
}

CUresult capture_sync_context(CUcontext ctx)
{
	struct in_context x = { ctx, false };

	if (nobody()) {
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	streams_each(ctx, invalidate_one, &x);
	pthread_mutex_unlock(&lock);
	return x.any ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Events. */

static CUresult keep(CUevent ev, const struct capture *c, const struct edges *deps)
{
	if (!ev->captured) {
		ev->captured = calloc(1, sizeof(*ev->captured));
	}
	if (!ev->captured) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ev->captured->id = c->id;
	return edges_set(&ev->captured->deps, deps->v, deps->n);
}

static CUresult add_event(CUstream s, CUgraphNodeType type, CUevent ev)
{
	struct work w;
	CUresult e = work_event(&w, type, ev);

	return e ? e : capture_add(s, &w);
}

CUresult capture_record(CUstream s, CUevent ev, bool external, bool *ret)
{
	CUresult e = CUDA_SUCCESS;

	*ret = false;
	if (!nobody()) {
		pthread_mutex_lock(&lock);
		e = check_locked(s, ret);
		if (!e && *ret && !external) {
			e = keep(ev, of(s), &s->capturing->deps);
		}
		pthread_mutex_unlock(&lock);
	}
	if (e) {
		return e;
	}
	if (*ret) {
		return external ? add_event(s, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ev) : CUDA_SUCCESS;
	}
	if (external) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (ev->captured) {
		ev->captured->id = 0;
	}
	return CUDA_SUCCESS;
}

/* The stream waits for an event of a capture that goes on: it takes part from now on. */
static CUresult wait_captured(CUstream s, struct capture *to, const struct edges *deps)
{
	struct capture *c = of(s);

	if (to->invalid) {
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	if (!c && s == s->context->legacy) {
		to->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (c && c != to) {
		c->invalid = to->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	return c ? edges_add(&s->capturing->deps, deps->v, deps->n) : join(s, to, deps->v, deps->n);
}

static CUresult wait_locked(CUstream s, CUevent ev, bool external, bool *ret)
{
	struct capture *c = of(s), *to = ev->captured ? find(ev->captured->id) : NULL;

	if (to && !external) {
		*ret = true;
		return wait_captured(s, to, &ev->captured->deps);
	}
	if (!c) {
		return legacy_conflict(s, true);
	}
	if (c->invalid) {
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	*ret = true;
	if (!external && (ev->recorded || capture_event(ev))) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	return CUDA_SUCCESS;
}

CUresult capture_wait(CUstream s, CUevent ev, bool external, bool *ret)
{
	CUresult e = CUDA_SUCCESS;

	*ret = false;
	if (!nobody()) {
		pthread_mutex_lock(&lock);
		e = wait_locked(s, ev, external, ret);
		pthread_mutex_unlock(&lock);
	}
	if (e) {
		return e;
	}
	if (*ret) {
		return external ? add_event(s, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ev) : CUDA_SUCCESS;
	}
	if (external) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return capture_event(ev) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

bool capture_event(const CUevent ev)
{
	return ev->captured && ev->captured->id;
}

CUresult capture_asked(CUevent ev)
{
	struct capture *c;

	if (!capture_event(ev)) {
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	c = find(ev->captured->id);
	if (c) {
		c->invalid = true;
	}
	pthread_mutex_unlock(&lock);
	return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_forget_event(CUevent ev)
{
	if (ev->captured) {
		free(ev->captured->deps.v);
		free(ev->captured);
		ev->captured = NULL;
	}
}

void capture_forget_stream(CUstream s)
{
	struct capturing *p = s->capturing;
	struct capture *c;

	if (!p) {
		return;
	}
	pthread_mutex_lock(&lock);
	c = p->capture;
	if (c && c->origin == s) {
		CUgraph g = c->own_graph ? c->graph : NULL;

		end(c);
		graph_delete(g);
	} else if (c) {
		edges_add(&c->lost, p->deps.v, p->deps.n);
	}
	s->capturing = NULL;
	pthread_mutex_unlock(&lock);
	free(p->deps.v);
	free(p->nodes);
	free(p->data);
	free(p);
}

/* Beginning and ending. */

static CUresult begin_locked(CUstream s, CUgraph g, bool own, const struct graph_edge *deps,
			     uint32_t n, CUstreamCaptureMode mode)
{
	struct capture *c;
	CUresult e;

	if (of(s)) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (g->capturing) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct capture){ .id = ++last_id,
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

static CUresult check_begin(int pt, CUstream h, CUstreamCaptureMode mode, CUstream *ret)
{
	CUresult e = soft_stream(h, pt, ret);

	if (e) {
		return e;
	}
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return *ret == (*ret)->context->legacy ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					       : CUDA_SUCCESS;
}

static CUresult begin(int pt, CUstream h, CUstreamCaptureMode mode)
{
	CUgraph g;
	CUstream s;
	CUresult e = check_begin(pt, h, mode, &s);

	e = e ? e : graph_new(&g);
	if (e) {
		return e;
	}
	pthread_mutex_lock(&lock);
	e = begin_locked(s, g, true, NULL, 0, mode);
	pthread_mutex_unlock(&lock);
	if (e) {
		graph_delete(g);
	}
	return e;
}
PAIR(cuStreamBeginCapture, _ptsz, begin, (CUstream h), h, CU_STREAM_CAPTURE_MODE_GLOBAL)
PAIR(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream h, CUstreamCaptureMode mode), h, mode)

/* Nodes of the graph and what is said of the edges from them; caller frees. */
static CUresult read_edges(CUgraph g, const CUgraphNode *nodes, const CUgraphEdgeData *data,
			   size_t n, struct graph_edge **ret)
{
	if (n && (!nodes || n > GRAPH_MAX_NODES)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < n; i++) {
		if (!object_is(nodes[i], OBJECT_NODE) || nodes[i]->graph != g) {
			free(*ret);
			*ret = NULL;
			return CUDA_ERROR_INVALID_VALUE;
		}
		(*ret)[i].from = nodes[i];
		if (data) {
			(*ret)[i].data = data[i];
		}
	}
	return CUDA_SUCCESS;
}

static CUresult begin_to(int pt, CUstream h, CUgraph g, const CUgraphNode *deps,
			 const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode)
{
	struct graph_edge *edges = NULL;
	CUstream s;
	CUresult e = check_begin(pt, h, mode, &s);

	e = e ? e : graph_check(g);
	e = e ? e : read_edges(g, deps, data, n, &edges);
	if (e) {
		return e;
	}
	pthread_mutex_lock(&lock);
	e = begin_locked(s, g, false, edges, (uint32_t)n, mode);
	pthread_mutex_unlock(&lock);
	free(edges);
	return e;
}
PAIR(cuStreamBeginCaptureToGraph, _ptsz, begin_to,
     (CUstream h, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
      CUstreamCaptureMode mode),
     h, g, deps, data, n, mode)

static CUresult is_joined(CUstream s, struct capture *c)
{
	const struct edges *all = &c->origin->capturing->deps, *own = &s->capturing->deps;

	return graph_before(c->graph, own->v, own->n, all->v, all->n)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static CUresult end_locked(CUstream s, CUgraph *ret)
{
	struct capture *c = of(s);
	CUgraph g;
	CUresult e = CUDA_SUCCESS;
	bool own;

	if (!c) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (c->origin != s) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != &thread_mark) {
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	}
	if (c->invalid) {
		e = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		const struct edges *all = &s->capturing->deps;

		e = each_stream(c, is_joined);
		if (!e && !graph_before(c->graph, c->lost.v, c->lost.n, all->v, all->n)) {
			e = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
		}
	}
	g = c->graph;
	own = c->own_graph;
	end(c);
	if (e && own) {
		graph_delete(g);
	}
	*ret = e ? NULL : g;
	return e;
}

static CUresult end_capture(int pt, CUstream h, CUgraph *ret)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	e = end_locked(s, ret);
	pthread_mutex_unlock(&lock);
	return e;
}
PAIR(cuStreamEndCapture, _ptsz, end_capture, (CUstream h, CUgraph *ret), h, ret)

/* Questions. */

static CUresult status_locked(CUstream s, CUstreamCaptureStatus *ret, struct capture **ret_c)
{
	CUresult e = legacy_conflict(s, false);

	*ret_c = of(s);
	*ret = !*ret_c		   ? CU_STREAM_CAPTURE_STATUS_NONE
	       : (*ret_c)->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return e;
}

static CUresult is_capturing(int pt, CUstream h, CUstreamCaptureStatus *ret)
{
	struct capture *c;
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	e = status_locked(s, ret, &c);
	pthread_mutex_unlock(&lock);
	return e;
}
PAIR(cuStreamIsCapturing, _ptsz, is_capturing, (CUstream h, CUstreamCaptureStatus *ret), h, ret)

/* The stream's set as the program may read it until its next call. */
static CUresult show(struct capturing *p, const CUgraphNode **nodes, const CUgraphEdgeData **data,
		     size_t *ret_n)
{
	static const CUgraphEdgeData plain;
	uint32_t n = p->deps.n;
	bool lossy = false;

	free(p->nodes);
	free(p->data);
	p->nodes = calloc(n + 1u, sizeof(*p->nodes));
	p->data = calloc(n + 1u, sizeof(*p->data));
	if (!p->nodes || !p->data) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < n; i++) {
		p->nodes[i] = p->deps.v[i].from;
		p->data[i] = p->deps.v[i].data;
		lossy |= memcmp(&p->data[i], &plain, sizeof(plain)) != 0;
	}
	if (nodes) {
		*nodes = p->nodes;
	}
	if (data) {
		*data = p->data;
	}
	if (ret_n) {
		*ret_n = n;
	}
	return lossy && nodes && !data ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

static CUresult info(int pt, CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
		     const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *n)
{
	struct capture *c;
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	e = status_locked(s, ret, &c);
	if (!e && c && !c->invalid) {
		if (id) {
			*id = c->id;
		}
		if (graph) {
			*graph = c->graph;
		}
		e = nodes || data || n ? show(s->capturing, nodes, data, n) : e;
	}
	pthread_mutex_unlock(&lock);
	return e;
}
PAIR(cuStreamGetCaptureInfo, _ptsz, info, (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id), h,
     ret, id, NULL, NULL, NULL, NULL)
PAIR(cuStreamGetCaptureInfo_v2, _ptsz, info,
     (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
      const CUgraphNode **deps, size_t *n),
     h, ret, id, graph, deps, NULL, n)
PAIR(cuStreamGetCaptureInfo_v3, _ptsz, info,
     (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
      const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n),
     h, ret, id, graph, deps, edges, n)

static CUresult update_locked(CUstream s, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n,
			      unsigned flags)
{
	struct capture *c = of(s);
	struct graph_edge *edges;
	CUresult e;

	if (!c) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (c->invalid) {
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	e = read_edges(c->graph, nodes, data, n, &edges);
	if (e) {
		return e;
	}
	e = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
		    ? edges_set(&s->capturing->deps, edges, (uint32_t)n)
		    : edges_add(&s->capturing->deps, edges, (uint32_t)n);
	free(edges);
	return e;
}

static CUresult update(int pt, CUstream h, CUgraphNode *nodes, const CUgraphEdgeData *data,
		       size_t n, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream(h, pt, &s);

	if (e || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	e = update_locked(s, nodes, data, n, flags);
	pthread_mutex_unlock(&lock);
	return e;
}
PAIR(cuStreamUpdateCaptureDependencies, _ptsz, update,
     (CUstream h, CUgraphNode *deps, size_t n, unsigned int flags), h, deps, NULL, n, flags)
PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz, update,
     (CUstream h, CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, unsigned int flags), h,
     deps, data, n, flags)

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
