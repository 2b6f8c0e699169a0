/* Kernel nodes of an executable graph: each takes the form that its kernel has. An exec that was
 * updated from another graph is changed through a copy of that graph. A node that cannot be changed
 * runs the program's kernel, and that is reported. */
#include "shim/probe/probe_graph_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ptx/probe.h"
#include "shim/code/shim_code.h"

#define COPY_SHARE 100u

/* ---- changing a node ---- */

/* code: shim/code adds the argument of the entry stub. */
static CUresult set(const struct shim_probe_exec *x, const struct shim_probe_node *n,
		    const CUDA_KERNEL_NODE_PARAMS *p, bool code)
{
	if (x->copy) {
		return code ? SHIM_REAL(cuGraphKernelNodeSetParams_v2)(n->node, p)
			    : shim_driver.cuGraphKernelNodeSetParams_v2(n->node, p);
	}
	return code ? SHIM_REAL(cuGraphExecKernelNodeSetParams_v2)(x->exec, n->node, p)
		    : shim_driver.cuGraphExecKernelNodeSetParams_v2(x->exec, n->node, p);
}

/* A patched kernel's parameters are followed by the stub's argument, which the form does not have:
 * a buffer with them is passed without. */
struct short_extra {
	void *list[SHIM_EXTRA_LIST];
	size_t bytes;
};

static void shorten(struct short_extra *s, CUDA_KERNEL_NODE_PARAMS *p, const void *handle)
{
	const struct cubin_kernel *k = p->extra ? shim_code_kernel(handle) : NULL;
	struct shim_param_buffer b;

	if (k) {
		(void)shim_param_buffer(p->extra, &b); /* the driver made the list */
	}
	if (k && b.at) {
		s->bytes = k->param_bytes;
		shim_param_buffer_list(s->list, b.at, &s->bytes);
		p->extra = s->list;
	}
}

static CUresult set_form(const struct shim_probe_exec *x, const struct shim_probe_node *n,
			 const CUDA_KERNEL_NODE_PARAMS *own, const struct shim_probe_form *f)
{
	static const uint64_t none; /* a node's parameters are those of all its launches */
	CUDA_KERNEL_NODE_PARAMS p = *own;
	struct short_extra extra;
	struct shim_launch_args args;
	CUresult r;

	p.func = f->handle;
	p.kern = NULL;
	p.ctx = NULL;
	p.sharedMemBytes =
		shim_probe_form_smem(f, p.sharedMemBytes, p.blockDimX, p.blockDimY, p.blockDimZ);
	shorten(&extra, &p, n->handle);
	if (!f->passing.passed) {
		return set(x, n, &p, f->code);
	}
	r = shim_probe_number_args(&args, f, &none, p.kernelParams, p.extra);
	if (r == CUDA_SUCCESS) {
		p.kernelParams = args.params;
		p.extra = args.extra;
		r = set(x, n, &p, f->code);
	}
	shim_launch_args_close(&args);
	return r;
}

static void count_form(struct shim_probe_exec *x, struct shim_probe_form *f, int step)
{
	if (f) {
		store_release(&x->n_forms, load_relaxed(&x->n_forms) + (uint32_t)step);
	}
}

/* The exec runs n->next from now on. */
static void changed(struct shim_probe_exec *x, struct shim_probe_node *n)
{
	struct shim_probe_form *before = n->form;

	if (n->next != before) {
		n->form = n->next;
		count_form(x, n->form, 1);
		count_form(x, before, -1);
		if (before) {
			shim_probe_form_unhold(before);
		}
	}
}

static void take_next(struct shim_probe_exec *x, struct shim_probe_node *n,
		      struct shim_probe_form *f)
{
	struct shim_probe_form *given_up = n->next != n->form ? n->next : NULL;

	if (f && f != n->form) {
		shim_probe_form_hold(f);
	}
	n->next = f;
	if (given_up) {
		shim_probe_form_unhold(given_up);
	}
	if (!x->copy) {
		changed(x, n);
	}
}

/* Gives the node the program's kernel. */
static bool change_to_own(struct shim_probe_exec *x, struct shim_probe_node *n)
{
	CUDA_KERNEL_NODE_PARAMS p;

	if (shim_probe_node_kept_params(n, &p) != CUDA_SUCCESS ||
	    set(x, n, &p, false) != CUDA_SUCCESS) {
		return false;
	}
	take_next(x, n, NULL);
	return true;
}

/* Gives the node a form, which the caller holds as a user. */
static void change_to(struct shim_probe_exec *x, struct shim_probe_node *n,
		      struct shim_probe_form *f)
{
	CUDA_KERNEL_NODE_PARAMS p;
	CUresult r = shim_probe_node_params(x, n, &p);

	if (r == CUDA_SUCCESS) {
		r = set_form(x, n, &p, f);
		if (r == CUDA_SUCCESS) {
			take_next(x, n, f);
			if (load_relaxed(&f->budget_ppm)) {
				shim_probe_form_unmixed(f);
			}
			return;
		}
		n->refused = f->number;
		n->refusal = r;
	}
	shim_probe_form_left_out(f, n->lost, r);
	if (n->next) { /* an older form */
		(void)change_to_own(x, n);
	}
}

/* ---- execs that were updated from another graph ---- */

static bool update(const struct shim_probe_exec *x)
{
	CUgraphExecUpdateResultInfo info;

	memset(&info, 0, sizeof(info));
	return shim_driver.cuGraphExecUpdate_v2(x->exec, x->copy, &info) == CUDA_SUCCESS;
}

static void all_changed(struct shim_probe_exec *x)
{
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		changed(x, &x->nodes[i]);
	}
}

/* Brings what was changed in the copy to the exec. If the driver refuses, all nodes get the
 * program's kernels. */
static void commit(struct shim_probe_exec *x)
{
	bool any = false;

	for (uint32_t i = 0; i < x->n_nodes; i++) {
		any = any || x->nodes[i].next != x->nodes[i].form;
	}
	if (!any) {
		return;
	}
	if (update(x)) {
		all_changed(x);
		return;
	}
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		if (n->next) {
			n->refused = n->next->number;
			n->refusal = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
			shim_probe_form_left_out(n->next, NULL, n->refusal);
			(void)change_to_own(x, n);
		}
	}
	if (update(x)) {
		all_changed(x);
	}
}

/* ---- all nodes ---- */

static bool take_nodes_of(struct shim_probe_exec *x, CUgraph g);

static bool make_nodes(struct shim_probe_exec *x)
{
	if (x->nodes || !x->n_places) {
		return x->nodes != NULL;
	}
	if (x->copy) {
		return take_nodes_of(x, x->copy);
	}
	x->nodes = calloc(x->n_places, sizeof(x->nodes[0]));
	if (!x->nodes) {
		return false;
	}
	x->n_nodes = x->n_places;
	for (uint32_t i = 0; i < x->n_nodes; i++) { /* handles of places never change */
		x->nodes[i].node = x->places[i].node;
	}
	return true;
}

static struct shim_probe_kernel *look_up(const struct shim_probe_exec *x,
					 const struct shim_probe_node *n, bool builds)
{
	CUcontext ctx = n->ctx ? n->ctx : load_relaxed(&x->ctx);

	if (!n->handle) {
		return NULL;
	}
	return builds ? shim_probe_find(n->handle, ctx) : shim_probe_kernel_known(n->handle, ctx);
}

/* Returns the form that the node is to run, as a user of it; NULL: none. */
static struct shim_probe_form *wanted(const struct shim_probe_exec *x,
				      const struct shim_probe_node *n)
{
	CUcontext ctx = n->ctx ? n->ctx : load_relaxed(&x->ctx);
	struct shim_probe_form *f = n->kernel ? shim_probe_form_take(n->kernel, n->handle) : NULL;

	if (f && f->number == n->refused) {
		shim_probe_form_left_out(f, NULL, n->refusal);
	}
	if (f && f->late) {
		shim_probe_form_left_out(
			f, "in graphs nothing reports the last blocks of machine code", 0);
		shim_probe_form_end(f);
		f = NULL;
	}
	if (f && f->bracket) {
		shim_probe_form_left_out(f, "programs of begin and end do not run in graphs", 0);
	}
	if (f && (!f->handle || f->number == n->refused || (f->library && f->ctx != ctx))) {
		shim_probe_form_end(f);
		f = NULL;
	}
	return f;
}

static void settle_node(struct shim_probe_exec *x, struct shim_probe_node *n, bool builds)
{
	struct shim_probe_form *f;

	if (!n->learned) {
		shim_probe_node_learn(x, n);
	}
	n->kernel = look_up(x, n, builds);
	f = wanted(x, n);
	if (f && (x->lost || n->lost)) {
		shim_probe_form_left_out(f, x->lost ? x->lost : n->lost, 0);
	} else if (f && f != n->next) {
		change_to(x, n, f);
	} else if (!f && n->next) {
		(void)change_to_own(x, n);
	}
	if (f) {
		shim_probe_form_end(f);
	}
}

static bool push(const struct shim_probe_exec *x)
{
	CUcontext ctx = load_relaxed(&x->ctx);

	return ctx && shim_driver.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS;
}

static void pop(bool pushed)
{
	CUcontext popped;

	if (pushed) {
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
}

void shim_probe_exec_settle(struct shim_probe_exec *x, bool builds)
{
	uint64_t now = load_acquire(&shim_probe_forms_generation);
	bool pushed;

	if (x->bodies) {
		shim_probe_tools_note_bodies();
	}
	if (make_nodes(x)) {
		pushed = push(x);
		for (uint32_t i = 0; i < x->n_nodes; i++) {
			settle_node(x, &x->nodes[i], builds);
		}
		if (x->copy) {
			commit(x);
		}
		pop(pushed);
	}
	x->seen = now;
}

static bool is_current(const struct shim_probe_node *n, const struct shim_probe_form *f)
{
	return n->kernel && load_seqcst(&n->kernel->form) == f;
}

void shim_probe_exec_restore(struct shim_probe_exec *x, bool all, bool ends)
{
	bool pushed = push(x);

	for (uint32_t i = 0; i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		if (n->next && (all || !is_current(n, n->next))) {
			(void)change_to_own(x, n);
		}
	}
	if (x->copy) {
		commit(x);
	}
	for (uint32_t i = 0; ends && i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		if (n->form && !is_current(n, n->form)) {
			take_next(x, n, NULL);
			changed(x, n);
		}
	}
	pop(pushed);
	x->seen = 0;
}

struct shim_probe_node *shim_probe_exec_node(const struct shim_probe_exec *x, CUgraphNode node)
{
	for (uint32_t i = 0, j = x->n_nodes; !x->copy && i < j;) {
		uint32_t middle = i + (j - i) / 2;
		uintptr_t here = (uintptr_t)x->nodes[middle].node;

		if (here == (uintptr_t)node) {
			return &x->nodes[middle];
		}
		if (here < (uintptr_t)node) {
			i = middle + 1;
		} else {
			j = middle;
		}
	}
	return NULL;
}

void shim_probe_exec_restore_node(struct shim_probe_exec *x, CUgraphNode node)
{
	struct shim_probe_node *n = shim_probe_exec_node(x, node);
	bool pushed = push(x);

	if (n && n->next) {
		(void)change_to_own(x, n);
	}
	pop(pushed);
	x->seen = 0; /* for the report */
}

void shim_probe_exec_note_refusal(struct shim_probe_exec *x, CUresult r)
{
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		if (r == CUDA_SUCCESS || n->form) {
			n->refused = r != CUDA_SUCCESS ? n->form->number : 0;
			n->refusal = r;
		}
	}
}

void shim_probe_exec_clear(struct shim_probe_exec *x)
{
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		take_next(x, &x->nodes[i], NULL);
		changed(x, &x->nodes[i]);
	}
	free(x->nodes);
	x->nodes = NULL;
	x->n_nodes = 0;
	if (x->own) {
		(void)shim_driver.cuGraphDestroy(x->own);
	}
	if (x->copy) {
		(void)shim_driver.cuGraphDestroy(x->copy);
	}
	x->own = x->copy = NULL;
	x->seen = 0;
}

void shim_probe_exec_renew(struct shim_probe_exec *x)
{
	if (x->copy) {
		shim_probe_exec_clear(x);
	}
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		take_next(x, n, NULL);
		*n = (struct shim_probe_node){ .node = n->node, .saved = n->saved };
	}
	x->seen = 0;
}

void shim_probe_exec_set(struct shim_probe_exec *x, CUgraphNode node,
			 const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct shim_probe_place *place;
	struct shim_probe_node *n;

	x->seen = 0;
	lock_take(&shim_probe_graphs_mutex);
	place = shim_probe_place(x, node);
	if (place) {
		shim_probe_exec_recount(x, place, p);
		place->edited = true;
	}
	lock_release(&shim_probe_graphs_mutex);
	if (!x->lost && make_nodes(x) && (n = shim_probe_exec_node(x, node)) != NULL) {
		take_next(x, n, NULL);
		shim_probe_node_set(x, n, p);
	}
}

void shim_probe_exec_keep(struct shim_probe_exec *x, CUgraphNode node)
{
	struct shim_probe_node *n;
	bool pushed;

	if (!x->lost && !x->copy && make_nodes(x) && (n = shim_probe_exec_node(x, node)) != NULL) {
		pushed = push(x);
		shim_probe_node_keep(x, n);
		pop(pushed);
	}
}

/* The nodes of a child graph have other parameters, which are not known. */
static void lose_nested(struct shim_probe_exec *x, const struct shim_probe_place *lost)
{
	struct shim_probe_place *place;
	struct shim_probe_node *n;

	lock_take(&shim_probe_graphs_mutex);
	place = shim_probe_place(x, lost->node);
	if (place) {
		place->edited = true;
	}
	lock_release(&shim_probe_graphs_mutex);
	n = shim_probe_exec_node(x, lost->node);
	if (n) {
		take_next(x, n, NULL);
		n->kept = n->learned = false;
		n->lost = "its child graph was replaced";
	}
}

void shim_probe_exec_set_child(struct shim_probe_exec *x, CUgraphNode node, CUgraph child)
{
	struct shim_probe_place *list = NULL;
	CUgraph old = NULL;
	bool bodies, known;
	int64_t n;

	x->seen = 0;
	known = shim_driver.cuGraphChildGraphNodeGetGraph(node, &old) == CUDA_SUCCESS;
	n = known ? shim_probe_places_of(old, &list, &bodies) : -1;
	if (n < 0 || !make_nodes(x)) {
		x->lost = "a child graph was replaced";
		shim_probe_exec_restore(x, true, false);
	}
	for (int64_t i = 0; i < n; i++) {
		lose_nested(x, &list[i]);
	}
	free(n >= 0 ? list : NULL);
	if (n > 0 && !x->lost) {
		(void)shim_probe_exec_pair(x, old, child);
	}
}

/* ---- updates from other graphs ---- */

/* The nodes of a graph, as the exec's. Returns whether there are any. */
static bool take_nodes_of(struct shim_probe_exec *x, CUgraph g)
{
	struct shim_probe_place *list = NULL;
	bool bodies;
	int64_t n = shim_probe_places_of(g, &list, &bodies);

	if (n <= 0) {
		return false;
	}
	x->nodes = calloc((size_t)n, sizeof(x->nodes[0]));
	x->n_nodes = x->nodes ? (uint32_t)n : 0;
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		x->nodes[i].node = list[i].node;
	}
	free(list);
	return x->n_nodes > 0;
}

/* Returns whether a tool matches a node of a graph. */
static bool any_matches(struct shim_probe_exec *x, CUgraph g)
{
	bool any = false;

	(void)take_nodes_of(x, g);
	for (uint32_t i = 0; i < x->n_nodes && !any; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		any = shim_probe_node_learn_from(n, n->node) && look_up(x, n, true);
	}
	shim_probe_exec_clear(x);
	return any;
}

/* Returns whether a graph that no tool asks for yet is copied: not if that takes more than a
 * hundredth of the time between two updates, for then the next one comes soon. */
static bool is_worth(const struct shim_probe_exec *x, uint64_t before_ns)
{
	return x->updated_ns - before_ns >= COPY_SHARE * x->copy_ns;
}

void shim_probe_exec_updated(struct shim_probe_exec *x, CUgraph from)
{
	uint64_t before_ns = x->updated_ns;
	CUgraph copy = NULL;

	x->updated_ns = clock_now_ns();
	x->lost = "it was updated from another graph before a tool asked for its kernels";
	shim_probe_exec_clear(x);
	if (!(load_acquire(&shim.probes_attached) && any_matches(x, from)) &&
	    !is_worth(x, before_ns)) {
		return;
	}
	if (shim_driver.cuGraphClone(&copy, from) != CUDA_SUCCESS) {
		x->lost = "it was updated from a graph that the driver does not copy";
		return;
	}
	x->copy = copy;
	x->lost = NULL;
	x->copy_ns = clock_now_ns() - x->updated_ns;
}

void shim_probe_exec_leave_copy(struct shim_probe_exec *x)
{
	if (x->copy) {
		shim_probe_exec_restore(x, true, false);
		shim_probe_exec_clear(x);
		x->lost = "it was updated from another graph, and changed since";
	}
}
