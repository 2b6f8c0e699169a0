/* The executable graphs of the process, the nodes of the graphs that they were made from, and these
 * graphs: a node's handle ends with its graph, so the program's destruction of a graph is kept back
 * until the last of its execs has ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array_grow.h"
#include "base/clock.h"
#include "shim/fork_lock.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/object/green_context.h"
#include "shim/object/handle_set.h"
#include "shim/probe/probe_graph_int.h"

#define EXECS_MAX 65536u
#define NODES_MAX (1u << 20)
#define NESTING_MAX 8u
#define LOCK_TIMEOUT_NS 1000000000u
#define LOCK_STEP_NS 100000u

struct lock shim_probe_graphs_mutex = LOCK_INITIALIZER(PROBE_GRAPHS);
struct shim_probe_exec *shim_probe_execs;
static struct shim_probe_exec *free_execs GUARDED_BY(shim_probe_graphs_mutex);
static struct strmap execs GUARDED_BY(shim_probe_graphs_mutex);	 /* > struct shim_probe_exec */
static struct strmap graphs GUARDED_BY(shim_probe_graphs_mutex); /* > struct graph */

/* A graph with execs. */
struct graph {
	uint32_t n_execs;
	bool destroyed; /* by the program */
};

/* ---- nodes ---- */

struct found {
	struct shim_probe_place *v;
	size_t n, cap;
	bool bodies, failed;
	bool kernels; /* look up their kernels, too */
};

static void ask_kernel(struct shim_probe_place *p)
{
	CUDA_KERNEL_NODE_PARAMS params;

	memset(&params, 0, sizeof(params));
	if (shim_driver.cuGraphKernelNodeGetParams_v2(p->node, &params) == CUDA_SUCCESS) {
		p->kern = params.kern;
		p->func = params.func;
	}
}

static void add_place(struct found *f, CUgraphNode node, bool nested)
{
	struct shim_probe_place *grown =
		array_grow(f->v, f->n, &f->cap, sizeof(*grown), 64, NODES_MAX);

	if (!grown) {
		f->failed = true;
		return;
	}
	f->v = grown;
	f->v[f->n++] = (struct shim_probe_place){ .node = node, .nested = nested };
	if (f->kernels) {
		ask_kernel(&f->v[f->n - 1]);
	}
}

static void find_in(struct found *f, CUgraph g, unsigned depth);

static void find_node(struct found *f, CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type;
	CUgraph child;

	if (shim_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
		return;
	}
	if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
		add_place(f, node, depth > 0);
	} else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		f->bodies = true;
	} else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < NESTING_MAX &&
		   shim_driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
		find_in(f, child, depth + 1);
	}
}

static void find_in(struct found *f, CUgraph g, unsigned depth)
{
	CUgraphNode *nodes;
	size_t n = 0;

	if (shim_driver.cuGraphGetNodes(g, NULL, &n) != CUDA_SUCCESS || !n) {
		return;
	}
	nodes = n <= NODES_MAX ? calloc(n, sizeof(nodes[0])) : NULL;
	if (!nodes) {
		f->failed = true;
		return;
	}
	if (shim_driver.cuGraphGetNodes(g, nodes, &n) == CUDA_SUCCESS) {
		for (size_t i = 0; i < n && !f->failed; i++) {
			find_node(f, nodes[i], depth);
		}
	}
	free(nodes);
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct shim_probe_place *)a)->node;
	uintptr_t y = (uintptr_t)((const struct shim_probe_place *)b)->node;

	return x < y ? -1 : x > y;
}

static int64_t places(struct found *f, struct shim_probe_place **ret)
{
	if (f->failed) {
		free(f->v);
		return -ENOMEM;
	}
	if (f->n) {
		qsort(f->v, f->n, sizeof(f->v[0]), by_address);
	}
	*ret = f->v;
	return (int64_t)f->n;
}

int64_t shim_probe_places_of(CUgraph g, struct shim_probe_place **ret, bool *ret_bodies)
{
	struct found f = { .v = NULL };

	find_in(&f, g, 0);
	*ret_bodies = f.bodies;
	return places(&f, ret);
}

struct shim_probe_place *shim_probe_place(const struct shim_probe_exec *x, CUgraphNode node)
{
	const struct shim_probe_place key = { .node = node };

	return x->n_places ? bsearch(&key, x->places, x->n_places, sizeof(key), by_address) : NULL;
}

/* ---- graphs ---- */

static bool use_graph(CUgraph g) REQUIRES(shim_probe_graphs_mutex)
{
	struct graph *known = strmap_get(&graphs, shim_handle_key(g).text);

	if (!known) {
		known = calloc(1, sizeof(*known));
		if (!known || strmap_add(&graphs, shim_handle_key(g).text, known) < 0) {
			free(known);
			return false;
		}
	}
	known->n_execs++;
	return true;
}

/* Returns whether the graph is to be destroyed now. */
static bool leave_graph(CUgraph g) REQUIRES(shim_probe_graphs_mutex)
{
	struct graph *known = strmap_get(&graphs, shim_handle_key(g).text);
	bool destroyed = known && known->n_execs == 1 && known->destroyed;

	if (known && --known->n_execs == 0) {
		(void)strmap_del(&graphs, shim_handle_key(g).text);
		free(known);
	}
	return destroyed;
}

bool shim_probe_graph_kept(CUgraph g, CUresult *ret)
{
	struct graph *known;

	if (!shim_attached()) {
		return false;
	}
	lock_take(&shim_probe_graphs_mutex);
	known = strmap_get(&graphs, shim_handle_key(g).text);
	if (known) {
		*ret = known->destroyed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
		known->destroyed = true;
	}
	lock_release(&shim_probe_graphs_mutex);
	return known != NULL;
}

/* ---- execs ---- */

/* Returns a struct that no exec has; NULL: no memory. */
static struct shim_probe_exec *take_free_exec(void)
{
	struct shim_probe_exec *x;

	lock_take(&shim_probe_graphs_mutex);
	x = free_execs;
	if (x) {
		free_execs = x->next_free;
	} else if (execs.live < EXECS_MAX && (x = calloc(1, sizeof(*x))) != NULL) {
		lock_init(&x->mutex, LOCK_PROBE_EXEC);
		x->next = shim_probe_execs;
		store_release(&shim_probe_execs, x);
	}
	lock_release(&shim_probe_graphs_mutex);
	return x;
}

static void put_exec(struct shim_probe_exec *x)
{
	lock_take(&shim_probe_graphs_mutex);
	x->next_free = free_execs;
	free_execs = x;
	lock_release(&shim_probe_graphs_mutex);
}

/* Takes an exec from the table. Returns the graph that is to be destroyed now, NULL: none. Caller
 * holds the exec's mutex. */
static CUgraph remove_exec(struct shim_probe_exec *x)
{
	CUgraph g;

	lock_take(&shim_probe_graphs_mutex);
	shim_probe_exec_account(x);
	(void)strmap_del(&execs, shim_handle_key(x->exec).text);
	g = leave_graph(x->graph) ? x->graph : NULL;
	free(x->places);
	x->places = NULL;
	x->n_places = 0;
	x->graph = NULL;
	store_release(&x->exec, NULL);
	lock_release(&shim_probe_graphs_mutex);
	return g;
}

struct shim_probe_exec *shim_probe_exec_begin(CUgraphExec exec)
{
	struct shim_probe_exec *x;

	if (!exec || !shim_attached()) {
		return NULL;
	}
	lock_take(&shim_probe_graphs_mutex);
	x = strmap_get(&execs, shim_handle_key(exec).text);
	lock_release(&shim_probe_graphs_mutex);
	return x && shim_probe_exec_enter(x, exec) ? x : NULL;
}

/* UNCHECKED: see shim_probe_exec_enter(). */
UNCHECKED void shim_probe_exec_end(struct shim_probe_exec *x)
{
	if (x) {
		lock_release(&x->mutex);
	}
}

bool shim_probe_exec_lock(struct shim_probe_exec *x)
{
	uint64_t until = clock_now_ns() + clock_patience(LOCK_TIMEOUT_NS);
	bool taken = lock_try(&x->mutex);

	while (!taken && clock_now_ns() < until) {
		clock_sleep_ns(LOCK_STEP_NS);
		taken = lock_try(&x->mutex);
	}
	return taken;
}

/* Forgets an exec. Returns the graph that is to be destroyed once the exec has ended. */
static CUgraph forget(CUgraphExec exec)
{
	struct shim_probe_exec *x = shim_probe_exec_begin(exec);
	CUgraph g;

	if (!x) {
		return NULL;
	}
	g = remove_exec(x);
	shim_probe_exec_clear(x);
	shim_probe_exec_end(x);
	put_exec(x);
	return g;
}

static void destroy_graph(CUgraph g)
{
	if (g) {
		(void)SHIM_REAL(cuGraphDestroy)(g);
	}
}

static CUresult destroy_exec(CUgraphExec exec)
{
	CUgraph g = forget(exec);
	CUresult r = shim_driver.cuGraphExecDestroy(exec);

	destroy_graph(g);
	return r;
}

void shim_probe_graphs_setup(void)
{
	shim_real.cuGraphExecDestroy = destroy_exec;
}

/* Fills a struct. Returns false if there is no memory. */
static bool fill(struct shim_probe_exec *x, CUgraphExec exec, CUgraph g,
		 struct shim_probe_place *list, uint32_t n)
{
	bool added;

	lock_take(&shim_probe_graphs_mutex);
	added = use_graph(g);
	if (added && strmap_add(&execs, shim_handle_key(exec).text, x) < 0) {
		(void)leave_graph(g);
		added = false;
	}
	if (added) {
		x->graph = g;
		x->places = list;
		x->n_places = n;
		store_release(&x->exec, exec);
		shim_probe_exec_count_begin(x);
	}
	lock_release(&shim_probe_graphs_mutex);
	return added;
}

/* Returns whether one of the kernels communicates with kernels on other GPUs. */
static bool communicates(const struct shim_probe_place *list, int64_t n)
{
	const void *before = NULL;

	for (int64_t i = 0; i < n; i++) {
		const void *handle = list[i].kern ? (const void *)list[i].kern : list[i].func;

		if (handle != before && shim_kernel_communicates(list[i].kern, list[i].func)) {
			return true;
		}
		before = handle;
	}
	return false;
}

void shim_probe_graph_instantiated(CUgraphExec exec, CUgraph g, uint64_t flags)
{
	struct shim_probe_place *list = NULL;
	struct shim_probe_exec *x;
	struct found f = { .kernels = true };
	int64_t n;
	bool added;

	find_in(&f, g, 0);
	n = places(&f, &list);
	shim_kernel_set_graph(exec, communicates(list, n));
	destroy_graph(forget(exec)); /* of an exec that has ended with its context */
	x = n > 0 || (n == 0 && f.bodies) ? take_free_exec() : NULL;
	if (!x) {
		free(n >= 0 ? list : NULL);
		return;
	}
	lock_take(&x->mutex);
	added = fill(x, exec, g, list, (uint32_t)n);
	x->ctx = NULL;
	(void)shim_driver.cuCtxGetCurrent(&x->ctx);
	x->bodies = f.bodies;
	x->updated_ns = x->copy_ns = 0;
	x->lost = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
			  ? "kernels of the GPU may launch the graph"
		  : x->ctx && shim_green_of(x->ctx) ? "it was made in a green context"
						    : NULL;
	x->seen = 0;
	lock_release(&x->mutex);
	if (!added) {
		free(list);
		put_exec(x);
	}
}

/* ---- changes of the program's graphs ---- */

/* Marks a place. Returns whether the exec has it. */
static bool mark_place(const struct shim_probe_exec *x, CUgraphNode node, bool edited, bool gone)
{
	struct shim_probe_place *p;

	lock_take(&shim_probe_graphs_mutex);
	p = shim_probe_place(x, node);
	if (p) {
		p->edited = p->edited || edited;
		p->gone = p->gone || gone;
	}
	lock_release(&shim_probe_graphs_mutex);
	return p != NULL;
}

static void change_place(CUgraphNode node, bool ends)
{
	for (struct shim_probe_exec *x = load_acquire(&shim_probe_execs); x; x = x->next) {
		if (!mark_place(x, node, ends, ends)) {
			continue;
		}
		if (ends && load_acquire(&x->n_forms) && shim_probe_exec_lock(x)) {
			shim_probe_exec_restore_node(x, node);
			shim_probe_exec_end(x);
		} else if (!ends && shim_probe_exec_lock(x)) {
			shim_probe_exec_keep(x, node);
			shim_probe_exec_end(x);
		}
		(void)mark_place(x, node, true, false);
	}
}

void shim_probe_graph_node_changing(CUgraphNode node, bool ends)
{
	struct found f = { .v = NULL };

	if (!node || !load_acquire(&shim_probe_execs) || !shim_attached()) {
		return;
	}
	find_node(&f, node, 0);
	for (size_t i = 0; i < f.n; i++) {
		change_place(f.v[i].node, ends || f.v[i].node != node);
	}
	free(f.v);
}

bool shim_probe_exec_is_of(struct shim_probe_exec *x, CUgraph g)
{
	struct shim_probe_place *list = NULL;
	bool same = false, bodies;
	int64_t n = shim_probe_places_of(g, &list, &bodies);

	lock_take(&shim_probe_graphs_mutex);
	if (n >= 0 && x->graph == g && (uint64_t)n == x->n_places) {
		same = true;
		for (uint32_t i = 0; i < x->n_places && same; i++) {
			same = x->places[i].node == list[i].node && !x->places[i].gone;
		}
		for (uint32_t i = 0; i < x->n_places && same; i++) {
			x->places[i].edited = false;
		}
	}
	lock_release(&shim_probe_graphs_mutex);
	free(n >= 0 ? list : NULL);
	return same;
}

void shim_probe_graphs_forget(void)
{
	shim_lock_after_fork(&shim_probe_graphs_mutex, LOCK_PROBE_GRAPHS);
}
