/* Instantiation: flattens child graphs, orders the nodes so that edges are respected, and spreads
 * them over up to SOFT_GRAPH_BRANCHES_MAX branches. A branch is submitted to one stream, so only
 * dependencies between branches need waits, and each at most one. */
#include "soft/client/graph/graph_exec.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"

#include <stdlib.h>
#include <string.h>

struct list32 { /* of step indexes */
	uint32_t *v, n;
};

static CUresult add_step(CUgraphExec x, CUgraphNode node, const uint32_t *deps, uint32_t n,
			 uint32_t *ret)
{
	struct soft_exec_step *st;

	if (x->n == x->cap) {
		uint32_t cap = x->cap ? x->cap * 2 : 16;
		struct soft_exec_step *grown = cap > 4 * SOFT_GRAPH_MAX_NODES
						       ? NULL
						       : realloc(x->steps, cap * sizeof(*grown));

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

/* Adds the steps of a child graph: one before it, its nodes, and one after it. */
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

/* Appends the steps of a graph. ret_last: the steps without successors. */
static CUresult unfold(CUgraphExec x, CUgraph g, uint32_t entry, bool has_entry, unsigned depth,
		       struct list32 *ret_last, CUgraphNode *ret_node)
{
	uint32_t *order = NULL, *step_of = calloc(g->n + 1u, sizeof(*step_of));
	CUresult e = depth > SOFT_GRAPH_MAX_DEPTH ? CUDA_ERROR_INVALID_VALUE
		     : step_of			  ? soft_graph_order(g, &order)
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

/* ---- branches ---- */

static bool fits(const struct soft_exec_branch *l, CUcontext ctx)
{
	return !ctx || !l->ctx || l->ctx == ctx;
}

/* Chooses the branch of a step: one whose last step it depends on, else a new one, else the
 * shortest. tail[i]: the last step of branch i. */
static uint32_t choose_branch(CUgraphExec x, const struct soft_exec_step *st, const uint32_t *tail)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < x->n_branches; i++) {
		if (!fits(&x->branches[i], st->ctx)) {
			continue;
		}
		for (uint32_t j = 0; j < st->n_deps; j++) {
			if (x->branches[i].n && st->deps[j] == tail[i]) {
				return i;
			}
		}
	}
	if (x->n_branches < SOFT_GRAPH_BRANCHES_MAX) {
		return x->n_branches;
	}
	for (uint32_t i = 0; i < x->n_branches; i++) {
		if (fits(&x->branches[i], st->ctx) &&
		    (best == UINT32_MAX || x->branches[i].n < x->branches[best].n)) {
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

/* Number of steps of each branch that are known to have ended. */
struct seen {
	uint32_t of[SOFT_GRAPH_BRANCHES_MAX];
};

static CUresult place(CUgraphExec x, uint32_t index, uint32_t *tail, struct seen *branches,
		      struct seen *at)
{
	struct soft_exec_step *st = &x->steps[index];
	CUresult e = CUDA_SUCCESS;
	struct seen *own;

	st->branch = choose_branch(x, st, tail);
	if (st->branch == UINT32_MAX) {
		return CUDA_ERROR_NOT_SUPPORTED; /* more contexts than branches */
	}
	if (st->branch == x->n_branches) {
		x->n_branches++;
	}
	if (!x->branches[st->branch].ctx) {
		x->branches[st->branch].ctx = st->ctx;
	}
	own = &branches[st->branch];
	st->first_wait = x->n_waits;
	for (uint32_t j = st->n_deps;
	     j-- > 0 &&
	     !e;) { /* newest first: waiting for it often makes the older waits redundant */
		const struct soft_exec_step *d = &x->steps[st->deps[j]];

		if (own->of[d->branch] > d->at) {
			continue;
		}
		if (d->branch != st->branch) {
			e = add_wait(x, st->deps[j]);
		}
		for (uint32_t i = 0; i < SOFT_GRAPH_BRANCHES_MAX; i++) {
			own->of[i] = MAX(own->of[i], at[st->deps[j]].of[i]);
		}
	}
	st->n_waits = x->n_waits - st->first_wait;
	st->at = x->branches[st->branch].n++;
	own->of[st->branch] = st->at + 1;
	at[index] = *own;
	tail[st->branch] = index;
	return e;
}

static CUresult place_all(CUgraphExec x)
{
	struct seen branches[SOFT_GRAPH_BRANCHES_MAX] = { 0 }, *at = calloc(x->n + 1u, sizeof(*at));
	uint32_t tail[SOFT_GRAPH_BRANCHES_MAX] = { 0 };
	CUresult e = at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	x->joins = calloc(SOFT_GRAPH_BRANCHES_MAX, sizeof(*x->joins));
	e = x->joins ? e : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = place(x, i, tail, branches, at);
	}
	for (uint32_t i = 1; i < x->n_branches && !e; i++) {
		if (branches[0].of[i] < x->branches[i].n) {
			x->joins[x->n_joins++] = tail[i];
		}
	}
	free(at);
	return e;
}

CUresult soft_exec_branch_stream(struct soft_exec_branch *l)
{
	CUresult e = CUDA_SUCCESS;

	if (!l->stream) {
		e = soft_stream_create(l->ctx, 0, SOFT_STREAM_NON_BLOCKING, &l->stream);
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
	x->n_branches = MAX(x->n_branches, 1u);
	for (uint32_t i = 0; i < x->n_branches && !e; i++) {
		x->branches[i].ctx = x->branches[i].ctx ? x->branches[i].ctx : ctx;
		e = i ? soft_exec_branch_stream(&x->branches[i]) : CUDA_SUCCESS;
	}
	for (uint32_t i = 0; i < x->n && !e; i++) {
		e = soft_exec_step_emit(x, &x->steps[i]);
		if (e && ret_node) {
			*ret_node = x->steps[i].node;
		}
	}
	return e;
}

CUresult soft_exec_create(CUgraph g, uint64_t flags, CUgraphExec *ret, CUgraphNode *ret_node)
{
	CUgraphExec x;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	soft_exec_reap();
	lock_take(&soft.lock);
	x = soft_object_create(SOFT_OBJECT_EXEC, sizeof(*x));
	lock_release(&soft.lock);
	if (!x) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	x->flags = flags;
	e = soft_graph_clone(g, &x->graph);
	if (!e) {
		soft_graph_hide(x->graph);
		e = soft_graph_memory_acquire(x->graph);
	}
	e = e ? e : build(x, ctx, ret_node);
	if (e) {
		if (ret_node && *ret_node) { /* the node in the program's graph */
			uint64_t origin = (*ret_node)->origin;

			*ret_node = NULL;
			for (uint32_t i = 0; i < g->n; i++) {
				if (g->nodes[i]->id == origin) {
					*ret_node = g->nodes[i];
				}
			}
		}
		soft_exec_destroy(x);
		return e;
	}
	*ret = x;
	return CUDA_SUCCESS;
}

void soft_exec_destroy(CUgraphExec x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		soft_exec_step_clear(&x->steps[i]);
		free(x->steps[i].deps);
	}
	for (uint32_t i = 0; i < SOFT_GRAPH_BRANCHES_MAX; i++) {
		CUstream s = x->branches[i].stream;

		if (s && soft_object_is(s, SOFT_OBJECT_STREAM) &&
		    s->id == x->branches[i].stream_id) {
			soft_stream_destroy(s);
		}
	}
	free(x->steps);
	free(x->waits);
	free(x->joins);
	if (x->graph && !x->dying) {
		soft_graph_memory_release(x->graph);
	}
	soft_graph_destroy(x->graph);
	lock_take(&soft.lock);
	soft_object_destroy(x);
	lock_release(&soft.lock);
}

CUresult soft_exec_check(CUgraphExec x)
{
	CUresult e = soft_check();

	return e						  ? e
	       : soft_handle_is(x, SOFT_OBJECT_EXEC) && !x->dying ? CUDA_SUCCESS
								  : CUDA_ERROR_INVALID_VALUE;
}

struct soft_exec_step *soft_exec_find_step(CUgraphExec x, CUgraphNode n)
{
	if (!soft_object_is(n, SOFT_OBJECT_NODE)) {
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
