/* Launching execs: submits the prepared records of all steps without interleaving. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph_exec.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"

static CUgraphExec dying GUARDED_BY(soft.lock); /* [atomic to read] */

bool soft_exec_ended(CUgraphExec x)
{
	return !x->launched ||
	       soft_word_reached(&soft.shared->streams[x->last_slot].done, x->last_target);
}

/* Removes from the list an exec whose launch has ended; NULL: none has. */
static CUgraphExec take_ended(void)
{
	CUgraphExec x, *at = &dying;

	lock_take(&soft.lock);
	while (*at && !soft_exec_ended(*at)) {
		at = &(*at)->next_dying;
	}
	x = *at;
	if (x) {
		store_relaxed(at, x->next_dying);
	}
	lock_release(&soft.lock);
	return x;
}

void soft_exec_reap(void)
{
	while (load_relaxed(&dying) && !soft_in_host_function()) {
		CUgraphExec x = take_ended();

		if (!x) {
			return;
		}
		soft_exec_destroy(x);
	}
}

/* Finds the stream of each branch for this launch. */
static CUresult find_streams(CUgraphExec x, CUstream s, CUstream *ret)
{
	for (uint32_t i = 0; i < x->n_branches; i++) {
		struct soft_exec_branch *l = &x->branches[i];

		if (i == 0 && l->ctx == s->context) {
			ret[0] = s;
			continue;
		}
		if (!soft_object_is(l->ctx, SOFT_OBJECT_CONTEXT) ||
		    (l->stream && (!soft_object_is(l->stream, SOFT_OBJECT_STREAM) ||
				   l->stream->id != l->stream_id))) {
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		}
		if (!l->stream) {
			CUresult e = soft_exec_branch_stream(l);

			if (e) {
				return e;
			}
		}
		ret[i] = l->stream;
	}
	return CUDA_SUCCESS;
}

/* Adds an operation without effect, for whose completion others can wait. */
static CUresult add_marker(CUstream s) REQUIRES(soft.ring_lock)
{
	return soft_ring_add_wait(s, s->slot, s->submitted);
}

static CUresult add_host(CUstream s, struct soft_record_host *r) REQUIRES(soft.ring_lock)
{
	struct soft_host_call *c = malloc(sizeof(*c));
	struct soft_record_host own = *r;
	CUresult e;

	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(c, (const void *)(uintptr_t)r->cookie, sizeof(*c));
	store_release(&c->ready, 1u);
	own.cookie = (uint64_t)(uintptr_t)c;
	e = soft_ring_add(s, &own.r, sizeof(own));
	if (e) {
		free(c);
	}
	return e;
}

static CUresult add_records(struct soft_exec_step *st, CUstream s, CUstream launch)
	REQUIRES(soft.ring_lock)
{
	CUresult e = CUDA_SUCCESS;

	for (size_t at = 0; at < st->records.len && !e;) {
		struct soft_record *r = (struct soft_record *)(void *)(st->records.data + at);

		if (r->op == SOFT_OP_HOST) {
			e = add_host(s, (struct soft_record_host *)(void *)r);
		} else {
			struct soft_record_launch *l = (struct soft_record_launch *)(void *)r;

			if (r->op == SOFT_OP_LAUNCH && s != launch && launch->priority &&
			    !(l->flags & SOFT_LAUNCH_PRIORITY)) {
				struct soft_record_launch *own = l;

				own->flags |= SOFT_LAUNCH_PRIORITY;
				own->priority = launch->priority;
				e = soft_ring_add(s, r, r->bytes);
				own->flags &= ~SOFT_LAUNCH_PRIORITY;
			} else {
				e = soft_ring_add(s, r, r->bytes);
			}
		}
		at += r->bytes;
	}
	return e;
}

static CUresult add_step(CUgraphExec x, struct soft_exec_step *st, const CUstream *streams,
			 CUstream launch) REQUIRES(soft.ring_lock)
{
	CUstream s = streams[st->branch];
	CUresult e = CUDA_SUCCESS;

	for (uint32_t i = 0; i < st->n_waits && !e; i++) {
		const struct soft_exec_step *d = &x->steps[x->waits[st->first_wait + i]];

		e = soft_ring_add_wait(s, streams[d->branch]->slot, d->target);
	}
	if (!e && st->node && !st->disabled) {
		const struct soft_work *w = &st->node->work;

		if (w->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
			e = soft_object_is(w->event, SOFT_OBJECT_EVENT)
				    ? soft_event_add_record(s, w->event)
				    : CUDA_ERROR_INVALID_HANDLE;
		} else if (w->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
			e = soft_object_is(w->event, SOFT_OBJECT_EVENT)
				    ? soft_event_add_wait(s, w->event)
				    : CUDA_ERROR_INVALID_HANDLE;
		} else {
			e = add_records(st, s, launch);
		}
	}
	st->target = s->submitted;
	return e;
}

/* Makes the other branches wait for the point in the launch's stream where the graph begins. */
static CUresult add_fork(CUgraphExec x, const CUstream *streams, CUstream launch)
	REQUIRES(soft.ring_lock)
{
	CUresult e = CUDA_SUCCESS;

	if (x->launched && x->last_slot != launch->slot && !soft_exec_ended(x)) {
		e = soft_ring_add_wait(launch, x->last_slot, x->last_target);
	}
	if (x->n_branches == 1 && streams[0] == launch) {
		return e;
	}
	e = e ? e : add_marker(launch);
	for (uint32_t i = 0; i < x->n_branches && !e; i++) {
		if (streams[i] != launch) {
			e = soft_ring_add_wait(streams[i], launch->slot, launch->submitted);
		}
	}
	return e;
}

static CUresult add_all(CUgraphExec x, const CUstream *streams, CUstream launch)
	REQUIRES(soft.ring_lock)
{
	CUresult e = add_fork(x, streams, launch);

	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = add_step(x, &x->steps[i], streams, launch);
	}
	for (uint32_t i = 0; i < x->n_joins && !e; i++) {
		const struct soft_exec_step *d = &x->steps[x->joins[i]];

		e = soft_ring_add_wait(streams[0], streams[d->branch]->slot, d->target);
	}
	if (!e && streams[0] != launch) {
		e = soft_ring_add_wait(launch, streams[0]->slot, streams[0]->submitted);
	}
	x->launched = true;
	x->last_slot = launch->slot;
	x->last_target = launch->submitted;
	return e;
}

CUresult soft_exec_launch(CUgraphExec x, CUstream s)
{
	CUstream streams[SOFT_GRAPH_BRANCHES_MAX];
	CUresult e = find_streams(x, s, streams);

	e = e ? e
	      : soft_graph_memory_launch(
			x->graph, x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (e) {
		return e;
	}
	soft_strict_submit(s);
	e = soft_ring_begin();
	if (!e) {
		e = add_all(x, streams, s);
		soft_ring_end();
	}
	soft_graph_memory_launched(x->graph);
	return e;
}

/* A launch into a capture adds the graph as a child graph. */
static CUresult capture_launch(CUstream s, CUgraphExec x)
{
	struct soft_work w = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUresult e = soft_graph_check_copyable(x->graph);

	e = e ? e : soft_graph_clone(x->graph, &w.child);
	return e ? e : soft_capture_add(s, &w);
}

static CUresult launch(int pt, CUgraphExec x, CUstream h)
{
	bool capturing;
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_exec_check(x);
	e = e ? e : soft_capture_check(s, &capturing);
	if (e) {
		return e;
	}
	soft_exec_reap();
	return capturing ? capture_launch(s, x) : soft_exec_launch(x, s);
}
SOFT_PAIR(cuGraphLaunch, _ptsz, launch, (CUgraphExec x, CUstream h), x, h)

static CUresult upload(int pt, CUgraphExec x, CUstream h)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_refuse(s);
	return e ? e : soft_exec_check(x); /* there is nothing to upload */
}
SOFT_PAIR(cuGraphUpload, _ptsz, upload, (CUgraphExec x, CUstream h), x, h)

CUresult cuGraphExecDestroy(CUgraphExec x)
{
	CUresult e = soft_exec_check(x);

	if (e) {
		return e;
	}
	soft_handle_destroying(x);
	if (soft_exec_ended(x)) {
		soft_exec_destroy(x);
		return CUDA_SUCCESS;
	}
	soft_graph_memory_release(x->graph);
	soft_strict_object_destroyed(x);
	lock_take(&soft.lock);
	x->dying = true;
	x->next_dying = dying;
	store_relaxed(&dying, x);
	lock_release(&soft.lock);
	return CUDA_SUCCESS;
}

/* ---- instantiation ---- */

/* Whether the graph contains only work that a kernel could launch. */
static bool only_device_work(const CUgraph g)
{
	for (uint32_t i = 0; i < g->n; i++) {
		CUgraphNodeType type = g->nodes[i]->work.type;

		if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY &&
		    type != CU_GRAPH_NODE_TYPE_MEMSET && type != CU_GRAPH_NODE_TYPE_GRAPH) {
			return false;
		}
	}
	return true;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph g, uint64_t flags, CUgraphNode *ret_node)
{
	const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
			       CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
			       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	CUresult e = soft_graph_check(g);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
		return only_device_work(g) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
	return flags & ~known ? CUDA_ERROR_INVALID_VALUE
			      : soft_exec_create(g, flags, ret, ret_node);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph g, unsigned long long flags)
{
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE
							  : instantiate(ret, g, flags, NULL);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *ret, CUgraph g, CUgraphNode *ret_node, char *log,
			       size_t log_bytes)
{
	CUgraphNode node = NULL;
	CUresult e = instantiate(ret, g, 0, &node);

	if (ret_node) {
		*ret_node = node;
	}
	if (log && log_bytes) {
		log[0] = 0;
	}
	return e;
}

CUresult cuGraphInstantiate(CUgraphExec *ret, CUgraph g, CUgraphNode *ret_node, char *log,
			    size_t log_bytes)
{
	return cuGraphInstantiate_v2(ret, g, ret_node, log, log_bytes);
}

static CUresult with_params(int pt, CUgraphExec *ret, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUstream s;
	CUresult e = CUDA_SUCCESS;

	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	p->hErrNode_out = NULL;
	if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		e = soft_stream_resolve(p->hUploadStream, pt, &s);
		e = e ? e : soft_capture_refuse(s);
	}
	e = e ? e : instantiate(ret, g, p->flags, &p->hErrNode_out);
	p->result_out = e == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
			: e == CUDA_ERROR_NOT_SUPPORTED
				? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
			: e == CUDA_ERROR_INVALID_VALUE && soft_graph_check(g) == CUDA_SUCCESS
				? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
				: CUDA_GRAPH_INSTANTIATE_ERROR;
	return e;
}
SOFT_PAIR(cuGraphInstantiateWithParams, _ptsz, with_params,
	  (CUgraphExec * ret, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p), ret, g, p)

CUresult cuGraphExecGetFlags(CUgraphExec x, uint64_t *ret)
{
	CUresult e = soft_exec_check(x);

	if (!e && ret) {
		*ret = x->flags;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
