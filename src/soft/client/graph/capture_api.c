/* The API of captures: begin, end, queries and updates of dependencies. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/graph/capture_int.h"
#include "soft/client/strict.h"

static CUresult check_begin(int pt, CUstream h, CUstreamCaptureMode mode, CUstream *ret)
{
	CUresult e = soft_stream_resolve(h, pt, ret);

	if (e) {
		return e;
	}
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return (*ret)->legacy ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult begin(int pt, CUstream h, CUstreamCaptureMode mode)
{
	CUgraph g;
	CUstream s;
	CUresult e = check_begin(pt, h, mode, &s);

	e = e ? e : soft_graph_create(&g);
	if (e) {
		return e;
	}
	lock_take(&soft_capture_lock);
	e = soft_capture_begin(s, g, true, NULL, 0, mode);
	lock_release(&soft_capture_lock);
	if (e) {
		soft_graph_destroy(g);
	}
	return e;
}
SOFT_PAIR(cuStreamBeginCapture, _ptsz, begin, (CUstream h), h, CU_STREAM_CAPTURE_MODE_GLOBAL)
SOFT_PAIR(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream h, CUstreamCaptureMode mode), h, mode)

/* Reads nodes of the graph and the data of the edges from them. Caller frees. */
static CUresult read_edges(CUgraph g, const CUgraphNode *nodes, const CUgraphEdgeData *data,
			   size_t n, struct soft_graph_edge **ret)
{
	if (n && (!nodes || n > SOFT_GRAPH_MAX_NODES)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < n; i++) {
		if (!soft_object_is(nodes[i], SOFT_OBJECT_NODE) || nodes[i]->graph != g) {
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
	struct soft_graph_edge *edges = NULL;
	CUstream s;
	CUresult e = check_begin(pt, h, mode, &s);

	e = e ? e : soft_graph_check(g);
	e = e ? e : read_edges(g, deps, data, n, &edges);
	if (e) {
		return e;
	}
	lock_take(&soft_capture_lock);
	e = soft_capture_begin(s, g, false, edges, (uint32_t)n, mode);
	lock_release(&soft_capture_lock);
	free(edges);
	return e;
}
SOFT_PAIR(cuStreamBeginCaptureToGraph, _ptsz, begin_to,
	  (CUstream h, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
	   CUstreamCaptureMode mode),
	  h, g, deps, data, n, mode)

static CUresult is_joined(CUstream s, struct soft_capture *c)
{
	const struct soft_edges *all = &c->origin->capturing->deps, *own = &s->capturing->deps;

	return soft_graph_reachable(c->graph, own->v, own->n, all->v, all->n)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static CUresult end_locked(CUstream s, CUgraph *ret) REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = soft_capture_of(s);
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
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != soft_capture_thread()) {
		e = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* the capture ends nevertheless */
	} else if (c->invalid) {
		e = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		const struct soft_edges *all = &s->capturing->deps;

		e = soft_capture_each(c, is_joined);
		if (!e && !soft_graph_reachable(c->graph, c->lost.v, c->lost.n, all->v, all->n)) {
			e = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
		}
	}
	g = c->graph;
	own = c->own_graph;
	soft_capture_close(c);
	if (e && own) {
		soft_graph_destroy(g);
	}
	*ret = e ? NULL : g;
	return e;
}

static CUresult end_capture(int pt, CUstream h, CUgraph *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_capture_lock);
	e = end_locked(s, ret);
	lock_release(&soft_capture_lock);
	return e;
}
SOFT_PAIR(cuStreamEndCapture, _ptsz, end_capture, (CUstream h, CUgraph *ret), h, ret)

/* ---- queries ---- */

static CUresult status_locked(CUstream s, CUstreamCaptureStatus *ret, struct soft_capture **ret_c)
	REQUIRES(soft_capture_lock)
{
	CUresult e = soft_capture_legacy_conflict(s, false);

	*ret_c = soft_capture_of(s);
	*ret = !*ret_c		   ? CU_STREAM_CAPTURE_STATUS_NONE
	       : (*ret_c)->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return e;
}

static CUresult is_capturing(int pt, CUstream h, CUstreamCaptureStatus *ret)
{
	struct soft_capture *c;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_capture_lock);
	e = status_locked(s, ret, &c);
	lock_release(&soft_capture_lock);
	soft_strict_delay();
	return e;
}
SOFT_PAIR(cuStreamIsCapturing, _ptsz, is_capturing, (CUstream h, CUstreamCaptureStatus *ret), h,
	  ret)

/* Copies the stream's set to memory that the program may read until its next call. */
static CUresult show(struct soft_capturing *p, const CUgraphNode **nodes,
		     const CUgraphEdgeData **data, size_t *ret_n)
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
	struct soft_capture *c;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_capture_lock);
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
	lock_release(&soft_capture_lock);
	return e;
}
SOFT_PAIR(cuStreamGetCaptureInfo, _ptsz, info,
	  (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id), h, ret, id, NULL, NULL, NULL,
	  NULL)
SOFT_PAIR(cuStreamGetCaptureInfo_v2, _ptsz, info,
	  (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
	   const CUgraphNode **deps, size_t *n),
	  h, ret, id, graph, deps, NULL, n)
SOFT_PAIR(cuStreamGetCaptureInfo_v3, _ptsz, info,
	  (CUstream h, CUstreamCaptureStatus *ret, uint64_t *id, CUgraph *graph,
	   const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n),
	  h, ret, id, graph, deps, edges, n)

static CUresult update_locked(CUstream s, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n,
			      unsigned flags) REQUIRES(soft_capture_lock)
{
	struct soft_capture *c = soft_capture_of(s);
	struct soft_graph_edge *edges;
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
		    ? soft_edges_set(&s->capturing->deps, edges, (uint32_t)n)
		    : soft_edges_add(&s->capturing->deps, edges, (uint32_t)n);
	free(edges);
	return e;
}

static CUresult update(int pt, CUstream h, CUgraphNode *nodes, const CUgraphEdgeData *data,
		       size_t n, unsigned flags)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	if (e || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_capture_lock);
	e = update_locked(s, nodes, data, n, flags);
	lock_release(&soft_capture_lock);
	return e;
}
SOFT_PAIR(cuStreamUpdateCaptureDependencies, _ptsz, update,
	  (CUstream h, CUgraphNode *deps, size_t n, unsigned int flags), h, deps, NULL, n, flags)
SOFT_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz, update,
	  (CUstream h, CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
	   unsigned int flags),
	  h, deps, data, n, flags)
