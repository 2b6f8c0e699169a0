/* Kernel nodes of executable graphs between a double of the driver and one of the forms: what the
 * soft GPU does not do (nodes that kernels change, conditional nodes), what a driver refuses, and
 * that each hold of a form is let go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/code/shim_code.h"
#include "shim/object/green_context.h"
#include "shim/probe/probe_graph_int.h"

#define F ((CUfunction)0x10)
#define FORM ((CUfunction)0x20)
#define NEWER ((CUfunction)0x30)
#define SPEAKS ((CUfunction)0x50) /* communicates with kernels on other GPUs */
#define EXEC ((CUgraphExec)0x1000)
#define STREAM ((CUstream)0x2000)
#define CTX ((CUcontext)0x3000)
#define GREEN ((CUcontext)0x4000)
#define NODES_MAX 64u
#define GRAPHS_MAX 8u

struct cuabi_slots shim_real;
struct cuabi_table shim_driver;
struct shim_state shim;
TLS_FAST struct shim_thread *shim_thread_known;
struct lock shim_probe_build_mutex = LOCK_INITIALIZER(PROBE_BUILD);
bool shim_probe_stopped;
uint64_t shim_probe_forms_generation, shim_probe_paused_until;

/* ---- the driver: a graph's nodes, and what an executable graph's nodes run ---- */

static struct node {
	CUgraphNodeType type;
	unsigned graph, child; /* numbers */
	CUfunction f, runs;    /* in the graph; in EXEC */
	unsigned blocks, runs_blocks;
	bool updatable;
	CUcontext ctx;
} nodes[NODES_MAX];
static unsigned n_nodes, n_graphs, n_destroyed;
static bool destroyed[GRAPHS_MAX];
static CUfunction refused; /* CUDA_ERROR_INVALID_VALUE for this kernel */
static bool refuses_update, refuses_launch;
static unsigned n_sets, n_launches;
static unsigned edges[NODES_MAX][2], n_edges; /* numbers of nodes */
static uint64_t clone_ns;		      /* that a copy of a graph takes at least */

static bool is_form(CUfunction f)
{
	return f == FORM || f == NEWER;
}

static struct node *node_of(CUgraphNode n)
{
	return &nodes[(uintptr_t)n - 0x100];
}

static CUgraphNode handle_of(unsigned i)
{
	return (CUgraphNode)(uintptr_t)(0x100 + i);
}

static CUgraph graph_of(unsigned i)
{
	return (CUgraph)(uintptr_t)(0x500 + i);
}

static unsigned number_of(CUgraph g)
{
	return (unsigned)((uintptr_t)g - 0x500);
}

static CUgraphNode add(unsigned graph, CUgraphNodeType type, CUfunction f, unsigned blocks)
{
	nodes[n_nodes] = (struct node){ .type = type,
					.graph = graph,
					.f = f,
					.runs = f,
					.blocks = blocks,
					.runs_blocks = blocks };
	return handle_of(n_nodes++);
}

static CUresult get_nodes(CUgraph g, CUgraphNode *ret, size_t *n)
{
	*n = 0;
	for (unsigned i = 0; i < n_nodes; i++) {
		if (nodes[i].graph == number_of(g)) {
			if (ret) {
				ret[*n] = handle_of(i);
			}
			++*n;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode n, CUgraphNodeType *ret)
{
	*ret = node_of(n)->type;
	return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode n, CUgraph *ret)
{
	*ret = graph_of(node_of(n)->child);
	return CUDA_SUCCESS;
}

static CUresult get_edges(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
			  size_t *n)
{
	*n = 0;
	for (unsigned i = 0; i < n_edges; i++) {
		if (nodes[edges[i][0]].graph == number_of(g)) {
			from[*n] = handle_of(edges[i][0]);
			to[(*n)++] = handle_of(edges[i][1]);
		}
	}
	return CUDA_SUCCESS;
}

static void add_edge(unsigned from, unsigned to)
{
	edges[n_edges][0] = from;
	edges[n_edges++][1] = to;
}

static CUresult get_params(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->func = node_of(n)->f;
	ret->ctx = node_of(n)->ctx;
	ret->gridDimX = node_of(n)->blocks;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(CUgraphNode n, CUkernelNodeAttrID what, CUkernelNodeAttrValue *ret)
{
	assert_int_equal(what, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
	ret->deviceUpdatableKernelNode.deviceUpdatable = node_of(n)->updatable;
	return CUDA_SUCCESS;
}

static CUresult set_params(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	n_sets++;
	if (p->func == refused) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	node_of(n)->f = p->func;
	node_of(n)->blocks = p->gridDimX;
	return CUDA_SUCCESS;
}

static CUresult exec_set_params(CUgraphExec exec, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	assert_ptr_equal(exec, EXEC);
	assert_false(destroyed[node_of(n)->graph]);
	n_sets++;
	if (p->func == refused) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	node_of(n)->runs = p->func;
	node_of(n)->runs_blocks = p->gridDimX;
	return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			 const CUDA_KERNEL_NODE_PARAMS *p)
{
	*ret = add(number_of(g), CU_GRAPH_NODE_TYPE_KERNEL, p->func, p->gridDimX);
	return CUDA_SUCCESS;
}

static CUresult refuse_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			    const CUDA_KERNEL_NODE_PARAMS *p)
{
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUgraph *ret, unsigned flags)
{
	assert_in_range(n_graphs, 0, GRAPHS_MAX - 1);
	*ret = graph_of(n_graphs++);
	return CUDA_SUCCESS;
}

static CUresult clone_graph(CUgraph *ret, CUgraph from)
{
	uint64_t until = clock_now_ns() + clone_ns;
	unsigned n = n_nodes;

	while (clock_now_ns() < until) {
	}
	(void)create(ret, 0);
	for (unsigned i = 0; i < n; i++) {
		if (nodes[i].graph == number_of(from)) {
			(void)add(number_of(*ret), nodes[i].type, nodes[i].f, nodes[i].blocks);
		}
	}
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph g)
{
	assert_false(destroyed[number_of(g)]);
	destroyed[number_of(g)] = true;
	n_destroyed++;
	return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec exec)
{
	assert_false(destroyed[0]);
	return CUDA_SUCCESS;
}

/* The nodes of a graph correspond to those of graph 0 in their order. */
static CUresult exec_update(CUgraphExec exec, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	unsigned at = 0;

	if (refuses_update) {
		for (unsigned i = 0; i < n_nodes; i++) {
			if (nodes[i].graph == number_of(g) && is_form(nodes[i].f)) {
				return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
			}
		}
	}
	for (unsigned i = 0; i < n_nodes; i++) {
		if (nodes[i].graph == number_of(g)) {
			while (nodes[at].graph != 0) {
				at++;
			}
			nodes[at].runs = nodes[i].f;
			nodes[at].runs_blocks = nodes[i].blocks;
			at++;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
	n_launches++;
	for (unsigned i = 0; i < n_nodes && refuses_launch; i++) {
		if (nodes[i].graph == 0 && is_form(nodes[i].runs)) {
			return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult current(CUcontext *ret)
{
	*ret = CTX;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
	assert_ptr_equal(ctx, CTX);
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
	return CUDA_SUCCESS;
}

/* ---- forms ---- */

static struct shim_probe_form form, newer;
static struct shim_probe_kernel kernel;
static const char *left_out;
static CUresult left_out_for;
static bool noted_bodies, captures;

struct shim_probe_kernel *shim_probe_find(const void *handle, CUcontext ctx)
{
	assert_true(ctx == CTX || ctx == GREEN);
	return handle == F ? &kernel : NULL;
}

struct shim_probe_kernel *shim_probe_kernel_known(const void *handle, CUcontext ctx)
{
	return shim_probe_find(handle, ctx);
}

struct shim_probe_form *shim_probe_form_take(struct shim_probe_kernel *k, const void *handle)
{
	if (k->form) {
		k->form->users++;
	}
	return k->form;
}

void shim_probe_form_end(struct shim_probe_form *f)
{
	assert_true(f->users > 0);
	f->users--;
}

void shim_probe_form_hold(struct shim_probe_form *f)
{
	assert_true(f->users > 0);
	f->held++;
}

void shim_probe_form_unhold(struct shim_probe_form *f)
{
	assert_true(f->held > 0);
	f->held--;
}

void shim_probe_form_left_out(struct shim_probe_form *f, const char *why, CUresult r)
{
	assert_true(f->users > 0 || f->held > 0);
	left_out = why ? why : "the driver";
	left_out_for = r;
}

void shim_probe_form_unmixed(struct shim_probe_form *f)
{
	f->unmixed = 1;
}

void shim_probe_tools_note_bodies(void)
{
	noted_bodies = true;
}

struct sched_kernel *shim_kernel_counted(const void *handle)
{
	return NULL;
}

struct sched_kernel *shim_kernel_counted_graph(const void *exec)
{
	return NULL;
}

const void *shim_kernel_noted(CUkernel k, CUfunction f)
{
	return f;
}

bool shim_kernel_communicates(CUkernel k, CUfunction f)
{
	return f == SPEAKS;
}

static bool communicates; /* of EXEC */

void shim_kernel_set_graph(const void *exec, bool is)
{
	assert_ptr_equal(exec, EXEC);
	communicates = is;
}

CUgreenCtx shim_green_of(CUcontext ctx)
{
	return ctx == GREEN ? (CUgreenCtx)0x5000 : NULL;
}

struct cubin_kernel shim_code_own;

struct shim_thread_kernel *shim_thread_find_near(struct shim_thread *t, uintptr_t key,
						 unsigned slot)
{
	return NULL;
}

const struct cubin_kernel *shim_code_lookup(const void *handle, struct shim_thread *t)
{
	return NULL;
}

struct shim_thread *shim_thread_create(void)
{
	static struct shim_thread t;

	return shim_thread_known = &t;
}

bool shim_capture_has(CUstream stream, bool per_thread)
{
	return captures;
}

void shim_probe_wait_paused(void)
{
	fail();
}

/* ---- the program ---- */

static void give(struct shim_probe_form *f)
{
	kernel.form = f;
	shim_probe_forms_generation++;
}

static CUresult launch(void)
{
	return SHIM_REAL(cuGraphLaunch)(EXEC, STREAM);
}

static void instantiate(uint64_t flags)
{
	shim_probe_graph_instantiated(EXEC, graph_of(0), flags);
}

/* Graph 0 has two nodes of F, and one of another kernel. */
static int set_up(void **state)
{
	static bool led;

	memset(nodes, 0, sizeof(nodes));
	memset(destroyed, 0, sizeof(destroyed));
	n_nodes = n_destroyed = n_sets = n_launches = n_edges = 0;
	clone_ns = 0;
	n_graphs = 1;
	refused = NULL;
	refuses_update = refuses_launch = noted_bodies = captures = false;
	left_out = NULL;
	shim_driver.cuGraphGetNodes = get_nodes;
	shim_driver.cuGraphNodeGetType = get_type;
	shim_driver.cuGraphGetEdges_v2 = get_edges;
	shim_driver.cuGraphChildGraphNodeGetGraph = get_child;
	shim_driver.cuGraphKernelNodeGetParams_v2 = get_params;
	shim_driver.cuGraphKernelNodeGetAttribute = get_attribute;
	shim_driver.cuGraphKernelNodeSetParams_v2 = set_params;
	shim_driver.cuGraphExecKernelNodeSetParams_v2 = exec_set_params;
	shim_driver.cuGraphAddKernelNode_v2 = add_node;
	shim_driver.cuGraphCreate = create;
	shim_driver.cuGraphClone = clone_graph;
	shim_driver.cuGraphDestroy = destroy;
	shim_driver.cuGraphExecDestroy = exec_destroy;
	shim_driver.cuGraphExecUpdate_v2 = exec_update;
	shim_driver.cuCtxGetCurrent = current;
	shim_driver.cuCtxPushCurrent_v2 = push;
	shim_driver.cuCtxPopCurrent_v2 = pop;
	shim_real.cuGraphDestroy = destroy;
	shim_real.cuGraphAddKernelNode_v2 = add_node;
	shim_real.cuGraphKernelNodeSetParams_v2 = set_params;
	if (!led) {
		led = true;
		shim_real.cuGraphLaunch = launch_graph;
		shim_probe_graphs_setup();
		shim_probe_lead_graphs();
	}
	shim.attached = shim.probes_attached = 1;
	shim.captures = 0;
	form = (struct shim_probe_form){ .handle = FORM, .number = 1, .ctx = CTX };
	newer = (struct shim_probe_form){ .handle = NEWER, .number = 2, .ctx = CTX };
	kernel = (struct shim_probe_kernel){ .seen = 1 };
	(void)add(0, CU_GRAPH_NODE_TYPE_KERNEL, F, 5);
	(void)add(0, CU_GRAPH_NODE_TYPE_KERNEL, F, 6);
	(void)add(0, CU_GRAPH_NODE_TYPE_KERNEL, (CUfunction)0x40, 7);
	return 0;
}

/* Nothing is held when the executable graph has ended, and all graphs of the shim are destroyed. */
static int tear_down(void **state)
{
	assert_int_equal(SHIM_REAL(cuGraphExecDestroy)(EXEC), CUDA_SUCCESS);
	assert_int_equal(form.held + newer.held + form.users + newer.users, 0);
	for (unsigned i = 1; i < n_graphs; i++) {
		assert_true(destroyed[i]);
	}
	return 0;
}

static void runs(CUfunction a, CUfunction b)
{
	assert_ptr_equal(nodes[0].runs, a);
	assert_ptr_equal(nodes[1].runs, b);
	assert_ptr_equal(nodes[2].runs, (CUfunction)0x40);
	assert_int_equal(nodes[0].runs_blocks, 5);
	assert_int_equal(nodes[1].runs_blocks, 6);
}

static void test_follows_the_kernel(void **state)
{
	instantiate(0);
	assert_int_equal(launch(), CUDA_SUCCESS);
	runs(F, F);
	assert_int_equal(n_sets, 0);
	give(&form);
	launch();
	runs(FORM, FORM);
	assert_int_equal(form.held, 2);
	assert_int_equal(n_sets, 2);
	launch(); /* nothing has changed */
	assert_int_equal(n_sets, 2);
	give(&newer);
	assert_true(shim_probe_graphs_settle()); /* without a launch */
	runs(NEWER, NEWER);
	assert_int_equal(form.held, 0);
	give(NULL);
	launch();
	runs(F, F);
	assert_ptr_equal(nodes[0].f, F); /* the graph is as it was */
	assert_null(left_out);
	assert_int_equal(form.unmixed, 0);
}

static void test_budget(void **state)
{
	instantiate(0);
	form.budget_ppm = 10000;
	give(&form);
	launch();
	runs(FORM, FORM);
	assert_int_equal(form.unmixed, 1);
}

static void test_refused_form(void **state)
{
	instantiate(0);
	give(&form);
	launch();
	refused = NEWER;
	give(&newer);
	launch();
	runs(F, F);
	assert_int_equal(form.held + newer.held, 0);
	assert_string_equal(left_out, "the driver");
	assert_int_equal(left_out_for, CUDA_ERROR_INVALID_VALUE);
	n_sets = 0;
	shim_probe_forms_generation++;
	launch();
	assert_int_equal(n_sets, 0); /* it is not tried again */
	give(&form);
	launch();
	runs(FORM, FORM);
}

static void test_refused_launch(void **state)
{
	instantiate(0);
	refuses_launch = true;
	give(&form);
	assert_int_equal(launch(), CUDA_SUCCESS);
	assert_int_equal(n_launches, 2);
	runs(F, F);
	launch();
	assert_int_equal(n_launches, 3);
	assert_int_equal(left_out_for, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	refuses_launch = false;
	give(&newer);
	launch();
	runs(NEWER, NEWER);
}

static void test_nodes_that_kernels_change(void **state)
{
	nodes[0].updatable = true;
	instantiate(0);
	give(&form);
	launch();
	runs(F, FORM);
	assert_string_equal(left_out, "kernels of the GPU may change the node");
}

static void test_green_context(void **state)
{
	nodes[0].ctx = GREEN;
	instantiate(0);
	give(&form);
	launch();
	runs(F, FORM);
	assert_string_equal(left_out, "it runs in a green context");
}

static void test_graphs_that_kernels_launch(void **state)
{
	instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	give(&form);
	launch();
	runs(F, F);
	assert_int_equal(n_sets, 0);
	assert_string_equal(left_out, "kernels of the GPU may launch the graph");
}

static void test_conditional_nodes(void **state)
{
	(void)add(0, CU_GRAPH_NODE_TYPE_CONDITIONAL, NULL, 0);
	instantiate(0);
	give(&form);
	launch();
	runs(FORM, FORM);
	assert_true(noted_bodies);
}

static void test_destroyed_node(void **state)
{
	instantiate(0);
	give(&form);
	launch();
	shim_probe_graph_node_changing(handle_of(0), true);
	runs(F, FORM);
	nodes[0].graph = GRAPHS_MAX + 1; /* the driver has destroyed it */
	give(&newer);
	launch();
	runs(F, NEWER);
	assert_string_equal(left_out, "the node was destroyed");
}

static void test_graph_outlives_its_execs(void **state)
{
	CUresult r = CUDA_ERROR_UNKNOWN;

	instantiate(0);
	assert_true(shim_probe_graph_kept(graph_of(0), &r));
	assert_int_equal(r, CUDA_SUCCESS);
	assert_true(shim_probe_graph_kept(graph_of(0), &r));
	assert_int_equal(r, CUDA_ERROR_INVALID_VALUE);
	assert_false(destroyed[0]);
	give(&form);
	launch();
	runs(FORM, FORM);
	SHIM_REAL(cuGraphExecDestroy)(EXEC);
	assert_true(destroyed[0]);
	assert_int_equal(form.held, 0);
	assert_false(shim_probe_graph_kept(graph_of(1), &r));
	destroyed[0] = false; /* for tear_down() */
}

static void test_captured_launch(void **state)
{
	instantiate(0);
	give(&form);
	launch();
	shim.captures = 1;
	launch(); /* of another stream */
	runs(FORM, FORM);
	captures = true;
	launch();
	runs(F, F);
	captures = false;
	launch();
	runs(FORM, FORM);
}

/* The program has updated the exec from graph `from`. */
static void update_from(unsigned from)
{
	struct shim_probe_exec *x = shim_probe_exec_begin(EXEC);
	CUgraphExecUpdateResultInfo info;

	assert_non_null(x);
	exec_update(EXEC, graph_of(from), &info);
	shim_probe_exec_was_updated(x, graph_of(from));
	shim_probe_exec_end(x);
}

static unsigned other_graph(void)
{
	CUgraph g;

	clone_graph(&g, graph_of(0));
	return number_of(g);
}

static void test_updated_from_another_graph(void **state)
{
	unsigned other;

	instantiate(0);
	give(&form);
	launch();
	other = other_graph();
	nodes[0].blocks = 99; /* its parameters are not the exec's any more */
	update_from(other);
	destroy(graph_of(other));
	assert_int_equal(form.held, 0);
	launch();
	runs(FORM, FORM);
	give(&newer);
	launch();
	runs(NEWER, NEWER);
	refuses_update = true;
	give(&form);
	launch();
	runs(F, F);
	assert_int_equal(form.held + newer.held, 0);
	assert_int_equal(left_out_for, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}

static void test_changed_after_an_update(void **state)
{
	struct shim_probe_exec *x;
	unsigned other;

	instantiate(0);
	give(&form);
	other = other_graph();
	update_from(other);
	destroy(graph_of(other));
	launch();
	runs(FORM, FORM);
	x = shim_probe_exec_begin_change(EXEC);
	runs(F, F);
	shim_probe_exec_end(x);
	launch();
	runs(F, F);
	assert_string_equal(left_out, "it was updated from another graph, and changed since");
	update_from(0);
	launch();
	runs(FORM, FORM);
}

static void attach(void)
{
	shim.probes_attached = 1;
	give(&form);
	launch();
}

/* The program changes nodes before there is a tool. */
static void test_changed_before_a_tool(void **state)
{
	const CUDA_KERNEL_NODE_PARAMS p = { .func = F, .gridDimX = 6 };
	struct shim_probe_exec *x;

	shim.probes_attached = 0;
	instantiate(0);
	shim_probe_graph_node_changing(handle_of(0), false);
	nodes[0].blocks = 99;
	nodes[1].blocks = 98; /* not those that the exec gets */
	x = shim_probe_exec_begin_change(EXEC);
	shim_probe_exec_was_set(x, handle_of(1), &p);
	shim_probe_exec_end(x);
	n_sets = 0;
	shim_probe_graph_node_changing(handle_of(0), false);
	shim_probe_graph_node_changing(handle_of(1), false);
	assert_int_equal(n_sets, 0); /* they are known */
	attach();
	runs(FORM, FORM);
	assert_null(left_out);
	give(NULL);
	launch();
	runs(F, F);
}

static void test_updated_from_its_own_graph(void **state)
{
	struct shim_probe_exec *x;
	unsigned made = 0;

	shim.probes_attached = 0;
	instantiate(0);
	for (unsigned i = 0; i < 3; i++) { /* the node that has the copy is used again */
		shim_probe_graph_node_changing(handle_of(0), false);
		nodes[0].blocks = nodes[0].runs_blocks = 90 + i;
		x = shim_probe_exec_begin(EXEC);
		shim_probe_exec_was_updated(x, graph_of(0));
		shim_probe_exec_end(x);
		made = made ? made : n_nodes;
	}
	assert_int_equal(n_nodes, made);
	attach();
	assert_int_equal(nodes[0].runs_blocks, 92);
	nodes[0].runs_blocks = 5;
	runs(FORM, FORM);
}

static void test_parameters_that_cannot_be_copied(void **state)
{
	shim.probes_attached = 0;
	instantiate(0);
	shim_driver.cuGraphAddKernelNode_v2 = refuse_node;
	shim_probe_graph_node_changing(handle_of(0), false);
	nodes[0].blocks = 99;
	shim_driver.cuGraphAddKernelNode_v2 = add_node;
	attach();
	runs(F, FORM);
	assert_string_equal(left_out, "its parameters cannot be copied");
}

/* A graph with two nodes. */
static unsigned two_nodes(unsigned blocks)
{
	CUgraph g;

	create(&g, 0);
	(void)add(number_of(g), CU_GRAPH_NODE_TYPE_KERNEL, F, blocks);
	(void)add(number_of(g), CU_GRAPH_NODE_TYPE_KERNEL, F, blocks + 1);
	return number_of(g);
}

/* The program replaces a child graph before there is a tool, then attaches one. Nodes 4 and 5 are
 * the child's, 6 and 7 those of the other one. */
static void replace_child(void)
{
	struct shim_probe_exec *x;

	nodes[3].child = 1;
	shim.probes_attached = 0;
	instantiate(0);
	x = shim_probe_exec_begin_change(EXEC);
	nodes[4].runs_blocks = nodes[5].runs_blocks = 0;
	shim_probe_exec_child_was_set(x, handle_of(3), graph_of(2));
	shim_probe_exec_end(x);
	nodes[6].blocks = nodes[7].blocks = 99;
	attach();
	runs(FORM, FORM);
	destroy(graph_of(1));
	destroy(graph_of(2));
}

static void test_child_that_is_a_chain(void **state)
{
	(void)add(0, CU_GRAPH_NODE_TYPE_GRAPH, NULL, 0);
	two_nodes(10);
	two_nodes(20);
	add_edge(4, 5);
	add_edge(7, 6); /* the second was added first */
	replace_child();
	assert_ptr_equal(nodes[4].runs, FORM);
	assert_ptr_equal(nodes[5].runs, FORM);
	assert_int_equal(nodes[4].runs_blocks, 21);
	assert_int_equal(nodes[5].runs_blocks, 20);
	assert_null(left_out);
}

static void test_child_that_is_no_chain(void **state)
{
	(void)add(0, CU_GRAPH_NODE_TYPE_GRAPH, NULL, 0);
	two_nodes(10);
	two_nodes(20);
	replace_child();
	assert_ptr_equal(nodes[4].runs, F);
	assert_ptr_equal(nodes[5].runs, F);
	assert_string_equal(left_out, "its child graph was replaced");
}

/* Copies of graphs take a hundredth of the time between updates at most. */
static void test_updates_that_follow_quickly(void **state)
{
	unsigned first, second;

	shim.probes_attached = 0;
	clone_ns = 20000000;
	instantiate(0);
	first = other_graph();
	second = other_graph();
	update_from(first);
	assert_int_equal(n_graphs, 4);
	update_from(second);
	assert_int_equal(n_graphs, 4);
	assert_true(destroyed[3]);
	attach();
	runs(F, F);
	assert_string_equal(left_out, "it was updated from another graph before a tool asked for "
				      "its kernels");
	update_from(first);
	launch();
	runs(FORM, FORM);
	destroy(graph_of(first));
	destroy(graph_of(second));
}

static void test_updated_before_a_tool(void **state)
{
	unsigned other;

	shim.probes_attached = 0;
	instantiate(0);
	other = other_graph();
	update_from(other);
	destroy(graph_of(other));
	nodes[0].blocks = 99;
	attach();
	runs(FORM, FORM);
	assert_null(left_out);
}

/* A graph whose child has such a kernel, then one without at the same handle. */
static void test_communicates(void **state)
{
	(void)add(0, CU_GRAPH_NODE_TYPE_GRAPH, NULL, 0);
	nodes[3].child = 1;
	n_graphs = 2;
	(void)add(1, CU_GRAPH_NODE_TYPE_KERNEL, F, 1);
	instantiate(0);
	assert_false(communicates);
	(void)add(1, CU_GRAPH_NODE_TYPE_KERNEL, SPEAKS, 1);
	instantiate(0);
	assert_true(communicates);
	nodes[5].f = F;
	instantiate(0);
	assert_false(communicates);
	destroyed[1] = true; /* it was the program's */
}

static void test_context_ends(void **state)
{
	instantiate(0);
	give(&form);
	launch();
	give(NULL);
	refused = F; /* whatever the driver answers */
	shim_probe_graphs_leave(CTX);
	assert_int_equal(form.held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_follows_the_kernel, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_budget, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refused_form, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refused_launch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nodes_that_kernels_change, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_green_context, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_graphs_that_kernels_launch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_conditional_nodes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_destroyed_node, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_graph_outlives_its_execs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_captured_launch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_updated_from_another_graph, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_changed_after_an_update, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_changed_before_a_tool, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_updated_from_its_own_graph, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_parameters_that_cannot_be_copied, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_child_that_is_a_chain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_child_that_is_no_chain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_updates_that_follow_quickly, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_updated_before_a_tool, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_communicates, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_context_ends, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
