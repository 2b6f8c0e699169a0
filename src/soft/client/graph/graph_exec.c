/* Instantiation: nodes in an order that keeps the edges, child graphs unfolded, spread over a few
 * lanes. Steps of one lane follow each other by themselves; others are waited for, once. */
#include "soft/client/graph/graph_exec.h"
#include "soft/client/strict.h"

#include <stdlib.h>
#include <string.h>

struct list32 { /* of steps */
	uint32_t *v, n;
};

static CUresult add_step(CUgraphExec x, CUgraphNode node, const uint32_t *deps, uint32_t n,
			 uint32_t *ret)
{
	struct step *st;

	if (x->n == x->cap) {
		uint32_t cap = x->cap ? x->cap * 2 : 16;
		struct step *grown =
			cap > 4 * GRAPH_MAX_NODES ? NULL : realloc(x->steps, cap * sizeof(*grown));

		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		x->steps = grown;
		x->cap = cap;
	}
	st = &x->steps[x->n];
	memset(st, 0, sizeof(*st));
	buf_init(&st->records);
	st->node = node;
	st->ctx = node ? node->work.ctx : NULL;
	st->deps = malloc((n + 1) * sizeof(*deps));
	if (!st->deps) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (n) {
		memcpy(st->deps, deps, n * sizeof(*deps));
	}
	st->n_deps = n;
	*ret = x->n++;
	return CUDA_SUCCESS;
}

static CUresult unfold(CUgraphExec x, CUgraph g, uint32_t entry, bool has_entry, unsigned depth,
		       struct list32 *ret_last, CUgraphNode *ret_node);

/* A child graph is a step before it, its nodes, and a step after it. */
static CUresult unfold_child(CUgraphExec x, CUgraphNode n, const uint32_t *deps, uint32_t n_deps,
			     unsigned depth, uint32_t *ret, CUgraphNode *ret_node)
{
	struct list32 last = { 0 };
	uint32_t begin;
	CUresult e = add_step(x, NULL, deps, n_deps, &begin);

	e = e ? e : unfold(x, n->work.child, begin, true, depth + 1, &last, ret_node);
	e = e ? e : add_step(x, NULL, last.n ? last.v : &begin, last.n ? last.n : 1, ret);
	free(last.v);
	return e;
}

static CUresult unfold_node(CUgraphExec x, CUgraphNode n, const uint32_t *step_of, uint32_t entry,
			    bool has_entry, unsigned depth, uint32_t *ret, CUgraphNode *ret_node)
{
	uint32_t n_deps = n->n_deps;
	uint32_t *deps = malloc((n_deps + 1u) * sizeof(*deps));
	CUresult e;

	if (!deps) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t j = 0; j < n_deps; j++) {
		deps[j] = step_of[n->deps[j].from->index];
	}
	if (!n_deps && has_entry) {
		deps[n_deps++] = entry;
	}
	e = n->work.type == CU_GRAPH_NODE_TYPE_GRAPH
		    ? unfold_child(x, n, deps, n_deps, depth, ret, ret_node)
		    : add_step(x, n, deps, n_deps, ret);
	free(deps);
	return e;
}

/* Puts the steps of a graph behind those that are there. ret_last: those that nobody waits for. */
static CUresult unfold(CUgraphExec x, CUgraph g, uint32_t entry, bool has_entry, unsigned depth,
		       struct list32 *ret_last, CUgraphNode *ret_node)
{
	uint32_t *order = NULL, *step_of = calloc(g->n + 1u, sizeof(*step_of));
	CUresult e = depth > GRAPH_MAX_DEPTH ? CUDA_ERROR_INVALID_VALUE
		     : step_of		     ? graph_order(g, &order)
					     : CUDA_ERROR_OUT_OF_MEMORY;

	ret_last->v = calloc(g->n + 1u, sizeof(*ret_last->v));
	e = e ? e : ret_last->v ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < g->n; i++) {
		g->nodes[i]->mark = 0;
	}
	for (uint32_t i = 0; i < g->n && !e; i++) {
		CUgraphNode n = g->nodes[order[i]];

		for (uint32_t j = 0; j < n->n_deps; j++) {
			n->deps[j].from->mark = 1;
		}
		e = unfold_node(x, n, step_of, entry, has_entry, depth, &step_of[n->index],
				ret_node);
		if (e && ret_node && !*ret_node) {
			*ret_node = n;
		}
	}
	for (uint32_t i = 0; i < g->n && !e; i++) {
		if (!g->nodes[i]->mark) {
			ret_last->v[ret_last->n++] = step_of[i];
		}
	}
	free(order);
	free(step_of);
	return e;
}

/* Lanes. */

static bool fits(const struct lane *l, CUcontext ctx)
{
	return !ctx || !l->ctx || l->ctx == ctx;
}

/* Behind a step that it depends on and nobody follows yet; else in a new lane; else where there is
 * least. tail[i]: the last step of lane i. */
static uint32_t choose_lane(CUgraphExec x, const struct step *st, const uint32_t *tail)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < x->n_lanes; i++) {
		if (!fits(&x->lanes[i], st->ctx)) {
			continue;
		}
		for (uint32_t j = 0; j < st->n_deps; j++) {
			if (x->lanes[i].n && st->deps[j] == tail[i]) {
				return i;
			}
		}
	}
	if (x->n_lanes < GRAPH_MAX_LANES) {
		return x->n_lanes;
	}
	for (uint32_t i = 0; i < x->n_lanes; i++) {
		if (fits(&x->lanes[i], st->ctx) &&
		    (best == UINT32_MAX || x->lanes[i].n < x->lanes[best].n)) {
			best = i;
		}
	}
	return best;
}

static CUresult add_wait(CUgraphExec x, uint32_t step)
{
	if (x->n_waits == x->cap_waits) {
		uint32_t cap = x->cap_waits ? x->cap_waits * 2 : 16;
		uint32_t *grown = realloc(x->waits, cap * sizeof(*grown));

		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		x->waits = grown;
		x->cap_waits = cap;
	}
	x->waits[x->n_waits++] = step;
	return CUDA_SUCCESS;
}

/* What a lane has waited for: of each lane so many steps. */
struct seen {
	uint32_t of[GRAPH_MAX_LANES];
};

static CUresult place(CUgraphExec x, uint32_t index, uint32_t *tail, struct seen *lanes,
		      struct seen *at)
{
	struct step *st = &x->steps[index];
	CUresult e = CUDA_SUCCESS;
	struct seen *own;

	st->lane = choose_lane(x, st, tail);
	if (st->lane == UINT32_MAX) {
		return CUDA_ERROR_NOT_SUPPORTED; /* more contexts than lanes */
	}
	if (st->lane == x->n_lanes) {
		x->n_lanes++;
	}
	if (!x->lanes[st->lane].ctx) {
		x->lanes[st->lane].ctx = st->ctx;
	}
	own = &lanes[st->lane];
	st->first_wait = x->n_waits;
	for (uint32_t j = st->n_deps; j-- > 0 && !e;) { /* later steps tell of earlier ones */
		const struct step *d = &x->steps[st->deps[j]];

		if (own->of[d->lane] > d->at) {
			continue;
		}
		if (d->lane != st->lane) {
			e = add_wait(x, st->deps[j]);
		}
		for (uint32_t i = 0; i < GRAPH_MAX_LANES; i++) {
			own->of[i] = MAX(own->of[i], at[st->deps[j]].of[i]);
		}
	}
	st->n_waits = x->n_waits - st->first_wait;
	st->at = x->lanes[st->lane].n++;
	own->of[st->lane] = st->at + 1;
	at[index] = *own;
	tail[st->lane] = index;
	return e;
}

static CUresult place_all(CUgraphExec x)
{
	struct seen lanes[GRAPH_MAX_LANES] = { 0 }, *at = calloc(x->n + 1u, sizeof(*at));
	uint32_t tail[GRAPH_MAX_LANES] = { 0 };
	CUresult e = at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	x->joins = calloc(GRAPH_MAX_LANES, sizeof(*x->joins));
	e = x->joins ? e : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = place(x, i, tail, lanes, at);
	}
	for (uint32_t i = 1; i < x->n_lanes && !e; i++) {
		if (lanes[0].of[i] < x->lanes[i].n) {
			x->joins[x->n_joins++] = tail[i];
		}
	}
	free(at);
	return e;
}

CUresult lane_stream(struct lane *l)
{
	CUresult e = CUDA_SUCCESS;

	if (!l->stream) {
		e = stream_new(l->ctx, 0, SOFT_STREAM_NON_BLOCKING, &l->stream);
		if (e) {
			l->stream = NULL;
		} else {
			l->stream_id = l->stream->id;
		}
	}
	return e;
}

static CUresult build(CUgraphExec x, CUcontext ctx, CUgraphNode *ret_node)
{
	struct list32 last = { 0 };
	CUresult e = unfold(x, x->graph, 0, false, 0, &last, ret_node);

	free(last.v);
	e = e ? e : place_all(x);
	x->n_lanes = MAX(x->n_lanes, 1u);
	for (uint32_t i = 0; i < x->n_lanes && !e; i++) {
		x->lanes[i].ctx = x->lanes[i].ctx ? x->lanes[i].ctx : ctx;
		e = i ? lane_stream(&x->lanes[i]) : CUDA_SUCCESS;
	}
	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = step_emit(x, &x->steps[i]);
		if (e && ret_node) {
			*ret_node = x->steps[i].node;
		}
	}
	return e;
}

CUresult exec_new(CUgraph g, uint64_t flags, CUgraphExec *ret, CUgraphNode *ret_node)
{
	CUgraphExec x;
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	if (e) {
		return e;
	}
	exec_reap();
	pthread_mutex_lock(&soft.lock);
	x = object_new(OBJECT_EXEC, sizeof(*x));
	pthread_mutex_unlock(&soft.lock);
	if (!x) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	x->flags = flags;
	e = graph_clone(g, &x->graph);
	if (!e) {
		graph_hide(x->graph);
		e = graph_memory_take(x->graph);
	}
	e = e ? e : build(x, ctx, ret_node);
	if (e) {
		if (ret_node && *ret_node) { /* as the program knows it */
			uint64_t origin = (*ret_node)->origin;

			*ret_node = NULL;
			for (uint32_t i = 0; i < g->n; i++) {
				if (g->nodes[i]->id == origin) {
					*ret_node = g->nodes[i];
				}
			}
		}
		exec_free(x);
		return e;
	}
	*ret = x;
	return CUDA_SUCCESS;
}

void exec_free(CUgraphExec x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		step_clear(&x->steps[i]);
		free(x->steps[i].deps);
	}
	for (uint32_t i = 0; i < GRAPH_MAX_LANES; i++) {
		CUstream s = x->lanes[i].stream;

		if (s && object_is(s, OBJECT_STREAM) && s->id == x->lanes[i].stream_id) {
			stream_end(s);
		}
	}
	free(x->steps);
	free(x->waits);
	free(x->joins);
	if (x->graph && !x->dying) {
		graph_memory_leave(x->graph);
	}
	graph_delete(x->graph);
	pthread_mutex_lock(&soft.lock);
	object_delete(x);
	pthread_mutex_unlock(&soft.lock);
}

CUresult exec_check(CUgraphExec x)
{
	CUresult e = soft_check();

	return e					? e
	       : handle_is(x, OBJECT_EXEC) && !x->dying ? CUDA_SUCCESS
							: CUDA_ERROR_INVALID_VALUE;
}

struct step *exec_step(CUgraphExec x, CUgraphNode n)
{
	if (!object_is(n, OBJECT_NODE)) {
		return NULL;
	}
	if (n->hint < x->n && x->steps[n->hint].node && x->steps[n->hint].node->origin == n->id) {
		return &x->steps[n->hint];
	}
	for (uint32_t i = 0; i < x->n; i++) {
		if (x->steps[i].node && x->steps[i].node->origin == n->id) {
			n->hint = i;
			return &x->steps[i];
		}
	}
	return NULL;
}
