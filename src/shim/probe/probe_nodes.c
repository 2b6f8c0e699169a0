/* Kernel nodes of an executable graph: each takes the form that its kernel has. The parameters are
 * copied once, by the driver, into a node of a graph of the shim's own, so that later changes of
 * the program's graph do not matter. An exec that was updated from another graph is changed through
 * a copy of that graph. A node that cannot be changed runs the program's kernel, and that is
 * reported. */
#include "shim/probe/probe_graph_int.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/probe.h"
#include "shim/code/shim_code.h"
#include "shim/object/green_context.h"

static const char green[] = "it runs in a green context";

static CUresult params_of(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret)
{
	memset(ret, 0, sizeof(*ret));
	return shim_driver.cuGraphKernelNodeGetParams_v2(node, ret);
}

/* A form is of the primary context, so a node of a green one would leave its multiprocessors. */
static void learn_from(struct shim_probe_node *n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	n->handle = shim_kernel_noted(p->kern, p->func);
	n->ctx = p->ctx;
	if (p->ctx && shim_green_of(p->ctx)) {
		n->lost = green;
	}
}

/* ---- the parameters with the program's kernel ---- */

/* Only the device knows the parameters of a node that kernels may change. */
static bool is_updatable(CUgraphNode node)
{
	CUlaunchAttributeValue v;

	memset(&v, 0, sizeof(v));
	return shim_driver.cuGraphKernelNodeGetAttribute(
		       node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &v) ==
		       CUDA_SUCCESS &&
	       v.deviceUpdatableKernelNode.deviceUpdatable;
}

/* Why the node's parameters, in the program's graph, are not the exec's; NULL: they are. Caller
 * holds shim_probe_graphs_mutex, so they stay. */
static const char *why_lost(const struct shim_probe_exec *x, const struct shim_probe_node *n)
{
	const struct shim_probe_place *p = x->copy ? NULL : shim_probe_place(x, n->node);

	if (x->copy) {
		return NULL;
	}
	return !p			? "the graph has changed"
	       : p->gone		? "the node was destroyed"
	       : p->edited && !n->saved ? "the node was changed before a tool asked for its kernel"
					: NULL;
}

/* Reads the node's parameters from the graph. */
static CUresult read_node(const struct shim_probe_exec *x, struct shim_probe_node *n,
			  CUDA_KERNEL_NODE_PARAMS *ret)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	n->lost = n->lost ? n->lost : why_lost(x, n);
	if (!n->lost) {
		r = params_of(n->node, ret);
		n->lost = r != CUDA_SUCCESS	  ? "the driver does not return its parameters"
			  : is_updatable(n->node) ? "kernels of the GPU may change the node"
						  : NULL;
	}
	return r;
}

/* Has the driver copy parameters to a node of the shim's. raw: as the driver gives them. */
static CUresult save(struct shim_probe_exec *x, struct shim_probe_node *n,
		     const CUDA_KERNEL_NODE_PARAMS *p, bool raw)
{
	CUresult r = x->own ? CUDA_SUCCESS : shim_driver.cuGraphCreate(&x->own, 0);

	if (r != CUDA_SUCCESS) {
		x->own = NULL;
	} else if (n->saved) {
		r = raw ? shim_driver.cuGraphKernelNodeSetParams_v2(n->saved, p)
			: SHIM_REAL(cuGraphKernelNodeSetParams_v2)(n->saved, p);
	} else {
		r = raw ? shim_driver.cuGraphAddKernelNode_v2(&n->saved, x->own, NULL, 0, p)
			: SHIM_REAL(cuGraphAddKernelNode_v2)(&n->saved, x->own, NULL, 0, p);
	}
	if (r != CUDA_SUCCESS) {
		n->lost = "its parameters cannot be copied";
	}
	return r;
}

/* Asks which kernel the node has; of a node that the program has changed since, for the report. */
static void learn(const struct shim_probe_exec *x, struct shim_probe_node *n)
{
	const struct shim_probe_place *place;
	CUDA_KERNEL_NODE_PARAMS p;

	pthread_mutex_lock(&shim_probe_graphs_mutex);
	place = shim_probe_place(x, n->node);
	if ((x->copy || (place && !place->gone)) && params_of(n->node, &p) == CUDA_SUCCESS) {
		learn_from(n, &p);
	}
	n->learned = true;
	pthread_mutex_unlock(&shim_probe_graphs_mutex);
}

/* Returns the exec's parameters with the program's kernel, which stay until the node is saved
 * again. */
static CUresult own_params(struct shim_probe_exec *x, struct shim_probe_node *n,
			   CUDA_KERNEL_NODE_PARAMS *ret)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&shim_probe_graphs_mutex);
	if (!n->saved) {
		r = read_node(x, n, ret);
		r = r == CUDA_SUCCESS && n->lost ? CUDA_ERROR_NOT_SUPPORTED : r;
		r = r == CUDA_SUCCESS ? save(x, n, ret, true) : r;
	} else {
		n->lost = n->lost ? n->lost : why_lost(x, n);
	}
	pthread_mutex_unlock(&shim_probe_graphs_mutex);
	if (r != CUDA_SUCCESS) {
		n->saved = NULL;
	}
	return r == CUDA_SUCCESS ? params_of(n->saved, ret) : r;
}

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
	void *list[5];
	size_t bytes;
};

static void shorten(struct short_extra *s, CUDA_KERNEL_NODE_PARAMS *p, const void *handle)
{
	const struct cubin_kernel *k = p->extra ? shim_code_kernel(handle) : NULL;
	unsigned n = 0;

	for (unsigned i = 0; k && i < 8 && p->extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (p->extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER && n == 0) {
			s->list[n++] = CU_LAUNCH_PARAM_BUFFER_POINTER;
			s->list[n++] = p->extra[i + 1];
		}
	}
	if (n) {
		s->bytes = k->param_bytes;
		s->list[n++] = CU_LAUNCH_PARAM_BUFFER_SIZE;
		s->list[n++] = &s->bytes;
		s->list[n] = CU_LAUNCH_PARAM_END;
		p->extra = s->list;
	}
}

static CUresult set_form(const struct shim_probe_exec *x, const struct shim_probe_node *n,
			 const CUDA_KERNEL_NODE_PARAMS *own, const struct shim_probe_form *f)
{
	CUDA_KERNEL_NODE_PARAMS p = *own;
	struct short_extra extra;

	p.func = f->handle;
	p.kern = NULL;
	p.ctx = NULL;
	p.sharedMemBytes = f->needs_shared ? PTX_PROBE_SMEM(p.sharedMemBytes) : p.sharedMemBytes;
	shorten(&extra, &p, n->handle);
	return set(x, n, &p, f->code);
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

	if (!n->saved || params_of(n->saved, &p) != CUDA_SUCCESS ||
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
	CUresult r = own_params(x, n, &p);

	if (r == CUDA_SUCCESS && !n->lost) {
		r = set_form(x, n, &p, f);
		if (r == CUDA_SUCCESS) {
			take_next(x, n, f);
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

static bool make_nodes(struct shim_probe_exec *x)
{
	if (x->nodes || !x->n_places) {
		return x->nodes != NULL;
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
		learn(x, n);
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

static struct shim_probe_node *node_of(const struct shim_probe_exec *x, CUgraphNode node)
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
	struct shim_probe_node *n = node_of(x, node);
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

void shim_probe_exec_set(struct shim_probe_exec *x, CUgraphNode node,
			 const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct shim_probe_place *place;
	struct shim_probe_node *n;

	x->seen = 0;
	pthread_mutex_lock(&shim_probe_graphs_mutex);
	place = shim_probe_place(x, node);
	if (place) {
		shim_probe_exec_recount(x, place, p);
		place->edited = place->edited || !load_acquire(&shim.probes_attached);
	}
	pthread_mutex_unlock(&shim_probe_graphs_mutex);
	if (!load_acquire(&shim.probes_attached)) {
		return;
	}
	if (make_nodes(x) && (n = node_of(x, node)) != NULL) {
		take_next(x, n, NULL);
		n->lost = is_updatable(node) ? "kernels of the GPU may change the node" : NULL;
		if (save(x, n, p, false) == CUDA_SUCCESS) {
			CUDA_KERNEL_NODE_PARAMS now;

			(void)params_of(n->saved, &now);
			learn_from(n, &now);
			n->learned = true;
		}
	}
}

void shim_probe_exec_lose_nested(struct shim_probe_exec *x)
{
	x->seen = 0;
	pthread_mutex_lock(&shim_probe_graphs_mutex);
	for (uint32_t i = 0; i < x->n_places; i++) {
		x->places[i].edited = x->places[i].edited || x->places[i].nested;
	}
	pthread_mutex_unlock(&shim_probe_graphs_mutex);
	for (uint32_t i = 0; !x->copy && i < x->n_nodes; i++) {
		struct shim_probe_node *n = &x->nodes[i];

		if (x->places[i].nested) {
			take_next(x, n, NULL);
			n->saved = NULL;
			n->lost = "its child graph was replaced";
		}
	}
}

/* ---- updates from other graphs ---- */

static bool any_matches(const struct shim_probe_exec *x)
{
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		if (x->nodes[i].kernel) {
			return true;
		}
	}
	return false;
}

/* The nodes of a graph, as the exec's. Returns whether a tool matches one. */
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
		CUDA_KERNEL_NODE_PARAMS p;

		x->nodes[i].node = list[i].node;
		if (params_of(list[i].node, &p) == CUDA_SUCCESS) {
			learn_from(&x->nodes[i], &p);
			x->nodes[i].learned = true;
			x->nodes[i].kernel = look_up(x, &x->nodes[i], true);
		}
	}
	free(list);
	return any_matches(x);
}

void shim_probe_exec_updated(struct shim_probe_exec *x, CUgraph from)
{
	CUgraph copy = NULL;

	shim_probe_exec_clear(x);
	x->lost = "it was updated from another graph before a tool asked for its kernels";
	if (!load_acquire(&shim.probes_attached) || !take_nodes_of(x, from)) {
		shim_probe_exec_clear(x);
		return;
	}
	shim_probe_exec_clear(x);
	if (shim_driver.cuGraphClone(&copy, from) != CUDA_SUCCESS) {
		x->lost = "it was updated from a graph that the driver does not copy";
		return;
	}
	if (take_nodes_of(x, copy)) {
		x->copy = copy;
		x->lost = NULL;
	} else {
		(void)shim_driver.cuGraphDestroy(copy);
		shim_probe_exec_clear(x);
	}
}

void shim_probe_exec_leave_copy(struct shim_probe_exec *x)
{
	if (x->copy) {
		shim_probe_exec_restore(x, true, false);
		shim_probe_exec_clear(x);
		x->lost = "it was updated from another graph, and changed since";
	}
}
