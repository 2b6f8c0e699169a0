/* Which memory executable graphs name, for swap_fetch.c: the words of their kernels' arguments that
 * may be addresses, and the addresses of their copies and memsets, also in child graphs. The driver
 * cannot be asked for the parameters of an executable graph, so they are learnt from the graph when
 * it is instantiated or updated, and from the calls that set those of one node.
 *
 * As of other launches this is only a guess, on which no result depends: a launch uses what it has
 * not named where it is. Not known are the bodies of conditional nodes, and what lies beyond the
 * limits below. Too much is known of a node in a child graph that is set by itself, and of nodes
 * that are set after an update from another graph: their earlier addresses remain until the next
 * update. */
#include "shim/mem/swap_graphs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array_grow.h"
#include "base/clock.h"
#include "mem/region.h"
#include "ptx/probe_pointers.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/object/launch_args.h"
#include "shim/shim.h"

#define NAMES_MAX 32768u	 /* of an executable graph */
#define ALL_NAMES_MAX (1u << 21) /* of all: 48 MiB with their addresses */
#define NODES_MAX 65536u	 /* that are looked at, in all child graphs together */
#define DEPTH_MAX 16u		 /* of graphs in graphs */
/* Nothing more is looked at after that time, which is read with every 64th node. */
#define LEARN_NS UINT64_C(200000000)
#define PARAMS_MAX 64u
#define PARAM_BYTES_MAX 32768u
#define KERNELS 32u
#define KERNELS_BUSY_NS UINT64_C(50000)

/* A node, which may be a child graph, names an address. */
struct name {
	CUgraphNode node;
	uint64_t address;
};

struct graph {
	struct name *name; /* owned; sorted, each once; not none */
	uint64_t *address; /* owned; those of the names, sorted, each once; NULL: to be made */
	uint32_t n, n_addresses;
};

static struct mem_regions graphs GUARDED_BY(shim_swap_mutex); /* by handle; owner: struct graph */
static uint32_t all_names;				      /* [atomic] changed under the mutex */

/* The sizes of a kernel's parameters. */
struct layout {
	const void *kernel; /* NULL: none */
	unsigned n;
	uint16_t bytes[PARAMS_MAX];
};

/* What is learnt from a graph, or of a node. */
struct learning {
	CUgraphNode node; /* to which names are noted now */
	struct name *name;
	size_t n, room;
	bool ends; /* a limit is reached */
	unsigned nodes;
	uint64_t until_ns;
	struct layout layout[KERNELS]; /* by a hash of the kernel */
};

/* ---- names ---- */

static int by_node(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	if (x->node != y->node) {
		return (uintptr_t)x->node < (uintptr_t)y->node ? -1 : 1;
	}
	return x->address < y->address ? -1 : x->address > y->address;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void sort(struct learning *l)
{
	size_t n = 0;

	if (l->n) {
		qsort(l->name, l->n, sizeof(*l->name), by_node);
	}
	for (size_t i = 0; i < l->n; i++) {
		if (!n || by_node(&l->name[n - 1], &l->name[i]) != 0) {
			l->name[n++] = l->name[i];
		}
	}
	l->n = n;
}

static bool make_addresses(struct graph *g)
{
	uint64_t *at = malloc(g->n * sizeof(*at));
	uint32_t n = 0;

	if (!at) {
		return false;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		at[i] = g->name[i].address;
	}
	qsort(at, g->n, sizeof(*at), by_value);
	for (uint32_t i = 0; i < g->n; i++) {
		if (!n || at[n - 1] != at[i]) {
			at[n++] = at[i];
		}
	}
	g->address = at;
	g->n_addresses = n;
	return true;
}

static void destroy(struct graph *g)
{
	if (g) {
		free(g->name);
		free(g->address);
		free(g);
	}
}

/* Returns a graph that has the names, which it owns then, or NULL without host memory, or if there
 * are none. */
static struct graph *create(struct name *name, size_t n)
{
	struct graph *g = n ? calloc(1, sizeof(*g)) : NULL;

	if (!g) {
		free(name);
		return NULL;
	}
	g->name = realloc(name, n * sizeof(*name)); /* it was made for more */
	if (!g->name) {
		g->name = name;
	}
	g->n = (uint32_t)n;
	return g;
}

/* Removes what is known of a handle, and returns it; NULL: nothing. */
static struct graph *take(CUgraphExec exec) REQUIRES(shim_swap_mutex)
{
	struct mem_region r;
	struct graph *g;

	if (!mem_regions_take(&graphs, (uint64_t)(uintptr_t)exec, &r)) {
		return NULL;
	}
	g = (struct graph *)(uintptr_t)r.owner;
	store_relaxed(&all_names, all_names - g->n);
	return g;
}

/* Adds what is known of a handle of which nothing is; forgets it if there is no room. */
static void put(CUgraphExec exec, struct graph *g) REQUIRES(shim_swap_mutex)
{
	const struct mem_region r = { .key = (uint64_t)(uintptr_t)exec,
				      .owner = (uint64_t)(uintptr_t)g,
				      .count = 1 };

	if (g && g->n <= ALL_NAMES_MAX - all_names && mem_regions_add(&graphs, &r) == 0) {
		store_relaxed(&all_names, all_names + g->n);
		return;
	}
	destroy(g);
}

uint32_t shim_swap_graph_names(CUgraphExec exec, const uint64_t **ret)
{
	const struct mem_region *m = mem_regions_find(&graphs, (uint64_t)(uintptr_t)exec);
	struct graph *g = m ? (struct graph *)(uintptr_t)m->owner : NULL;

	if (!g || (!g->address && !make_addresses(g))) {
		return 0;
	}
	*ret = g->address;
	return g->n_addresses;
}

/* ---- what nodes name ---- */

static void note(struct learning *l, uint64_t address)
{
	struct name *grown;

	if (address < SHIM_SWAP_ADDRESS_MIN) {
		return;
	}
	grown = array_grow(l->name, l->n, &l->room, sizeof(*grown), 64, NAMES_MAX);
	if (!grown) {
		l->ends = true;
		return;
	}
	l->name = grown;
	l->name[l->n++] = (struct name){ l->node, address };
}

static void note_words(struct learning *l, const void *at, size_t bytes)
{
	for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, (const char *)at + i, sizeof(word));
		note(l, word);
	}
}

/* Asks about the program's parameters: its arrays have no entry for the argument of an entry stub,
 * which the driver counts as well. */
static bool param_size(const CUDA_KERNEL_NODE_PARAMS *p, bool library, unsigned i, size_t *ret)
{
	CUkernel kernel = p->func ? (CUkernel)(void *)p->func : p->kern;
	size_t offset;
	CUresult r = library ? SHIM_REAL(cuKernelGetParamInfo)(kernel, i, &offset, ret)
			     : SHIM_REAL(cuFuncGetParamInfo)(p->func, i, &offset, ret);

	return r == CUDA_SUCCESS && *ret <= PARAM_BYTES_MAX;
}

/* Finds out whether the handle of a function is that of a library's kernel, about which the driver
 * is asked by another call. Waits while another thread adds kernels. Returns false if there is no
 * more time. */
static bool find_kind(struct learning *l, const void *handle, bool *ret_library)
{
	struct shim_kernel_glance k;
	struct ptx_pointers words;

	while (!shim_mem_session()->kernel_of(handle, &k, &words)) {
		if (clock_now_ns() >= l->until_ns) {
			l->ends = true;
			return false;
		}
		clock_sleep_ns(KERNELS_BUSY_NS);
	}
	*ret_library = k.library;
	return true;
}

/* Returns NULL if there is no more time. */
static const struct layout *layout_of(struct learning *l, const CUDA_KERNEL_NODE_PARAMS *p)
{
	const void *kernel = p->func ? (const void *)p->func : (const void *)p->kern;
	struct layout *t =
		&l->layout[((uintptr_t)kernel * 0x9e3779b97f4a7c15u >> 32) % ARRAY_SIZE(l->layout)];
	bool library = true;
	size_t bytes;

	if (t->kernel == kernel) {
		return t;
	}
	if (p->func && !find_kind(l, kernel, &library)) {
		return NULL;
	}
	*t = (struct layout){ .kernel = kernel };
	while (t->n < PARAMS_MAX && param_size(p, library, t->n, &bytes)) {
		t->bytes[t->n++] = (uint16_t)bytes;
	}
	return t;
}

static void note_kernel(struct learning *l, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct shim_param_buffer buffer;

	if (p->kernelParams) {
		const struct layout *t = layout_of(l, p);

		for (unsigned i = 0; t && i < t->n; i++) {
			if (p->kernelParams[i]) {
				note_words(l, p->kernelParams[i], t->bytes[i]);
			}
		}
	} else if (p->extra && shim_param_buffer(p->extra, &buffer) && buffer.at) {
		note_words(l, buffer.at, MIN(buffer.bytes, (size_t)PARAM_BYTES_MAX));
	}
}

static bool has_address(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

static void note_graph(struct learning *l, CUgraph g, unsigned depth);

static void note_params(struct learning *l, const CUgraphNodeParams *p, unsigned depth)
{
	const CUDA_MEMCPY3D *copy = &p->memcpy.copyParams;

	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		note_kernel(l, &p->kernel);
	} else if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		note(l, has_address(copy->srcMemoryType) ? copy->srcDevice : 0);
		note(l, has_address(copy->dstMemoryType) ? copy->dstDevice : 0);
	} else if (p->type == CU_GRAPH_NODE_TYPE_MEMSET) {
		note(l, p->memset.dst);
	} else if (p->type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MAX) {
		note_graph(l, p->graph.graph, depth + 1);
	}
}

/* Returns false for a node of another type, or if the driver does not say what it does. */
static bool params_of(CUgraphNode node, CUgraphNodeParams *ret)
{
	CUDA_MEMSET_NODE_PARAMS memset_params;
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;

	memset(ret, 0, sizeof(*ret));
	if (shim_driver.cuGraphNodeGetType(node, &ret->type) != CUDA_SUCCESS) {
		return false;
	}
	if (ret->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		r = shim_driver.cuGraphKernelNodeGetParams_v2(node, &ret->kernel);
	} else if (ret->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		r = shim_driver.cuGraphMemcpyNodeGetParams(node, &ret->memcpy.copyParams);
	} else if (ret->type == CU_GRAPH_NODE_TYPE_MEMSET) {
		r = shim_driver.cuGraphMemsetNodeGetParams(node, &memset_params);
		ret->memset.dst = r == CUDA_SUCCESS ? memset_params.dst : 0;
	} else if (ret->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		r = shim_driver.cuGraphChildGraphNodeGetGraph(node, &ret->graph.graph);
	}
	return r == CUDA_SUCCESS;
}

static void note_graph(struct learning *l, CUgraph g, unsigned depth)
{
	CUgraphNodeParams p;
	CUgraphNode *nodes;
	size_t n = 0;

	if (l->ends || shim_driver.cuGraphGetNodes(g, NULL, &n) != CUDA_SUCCESS || !n) {
		return;
	}
	n = MIN(n, (size_t)NODES_MAX);
	nodes = calloc(n, sizeof(*nodes));
	if (!nodes || shim_driver.cuGraphGetNodes(g, nodes, &n) != CUDA_SUCCESS) {
		n = 0;
	}
	for (size_t i = 0; i < n && !l->ends; i++) {
		l->ends = ++l->nodes > NODES_MAX ||
			  (l->nodes % 64 == 0 && clock_now_ns() >= l->until_ns);
		l->node = depth ? l->node : nodes[i];
		if (!l->ends && params_of(nodes[i], &p)) {
			note_params(l, &p, depth);
		}
	}
	free(nodes);
}

/* ---- calls of the program ---- */

void shim_swap_graph_learn(CUgraphExec exec, CUgraph g)
{
	struct learning l = { .until_ns = 0 };
	struct graph *old, *new;

	if (!shim_swap_is_on()) {
		return;
	}
	l.until_ns = clock_now_ns() + LEARN_NS;
	note_graph(&l, g, 0);
	sort(&l);
	new = create(l.name, l.n);
	if (new) {
		(void)make_addresses(new);
	}
	lock_take(&shim_swap_mutex);
	old = take(exec);
	put(exec, new);
	lock_release(&shim_swap_mutex);
	destroy(old);
}

/* Returns how many names are of nodes before this one. */
static size_t count_before(const struct graph *g, CUgraphNode node)
{
	size_t lo = 0, hi = g ? g->n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if ((uintptr_t)g->name[mid].node < (uintptr_t)node) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

/* Returns a graph with the names of another one, or of none, but those of a node replaced by the
 * learnt ones; the same graph, changed, if these are as many; NULL: it names nothing. Programs set
 * all nodes of a graph before each launch, so that copies of all names would take long. */
static struct graph *replace_node(struct graph *g, const struct learning *l)
{
	size_t n = g ? g->n : 0, first = count_before(g, l->node), end = first, after, all;
	struct name *name;

	while (end < n && g->name[end].node == l->node) {
		end++;
	}
	if (end - first == l->n) {
		if (l->n && memcmp(&g->name[first], l->name, l->n * sizeof(*name)) != 0) {
			memcpy(&g->name[first], l->name, l->n * sizeof(*name));
			free(g->address);
			g->address = NULL;
		}
		return g;
	}
	after = MIN(n - end, NAMES_MAX - MIN(first + l->n, (size_t)NAMES_MAX));
	all = first + l->n + after;
	name = all && all <= NAMES_MAX ? malloc(all * sizeof(*name)) : NULL;
	if (!name) {
		return NULL;
	}
	for (size_t i = 0; i < all; i++) {
		name[i] = i < first	     ? g->name[i]
			  : i < first + l->n ? l->name[i - first]
					     : g->name[end + i - first - l->n];
	}
	return create(name, all);
}

void shim_swap_graph_set_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *p)
{
	struct learning l = { .node = node };
	struct graph *old, *new;

	if (!p || !shim_swap_is_on()) {
		return;
	}
	l.until_ns = clock_now_ns() + LEARN_NS;
	note_params(&l, p, 1); /* the nodes of a child graph name what the node does */
	sort(&l);
	lock_take(&shim_swap_mutex);
	old = take(exec);
	new = replace_node(old, &l);
	put(exec, new);
	lock_release(&shim_swap_mutex);
	if (new != old) {
		destroy(old);
	}
	free(l.name);
}

void shim_swap_graph_forget(CUgraphExec exec)
{
	struct graph *g;

	if (!load_relaxed(&all_names) || !shim_swap_is_on()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	g = take(exec);
	lock_release(&shim_swap_mutex);
	destroy(g);
}
