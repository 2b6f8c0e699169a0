/* Launches of graphs that name memory which has left the device: shim/mem/swap_graphs.c and
 * swap_fetch.c over an account, a policy and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "policy/ctx.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_graphs.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define EXEC ((CUgraphExec)(uintptr_t)0x5000)
#define OTHER ((CUgraphExec)(uintptr_t)0x6000)
#define GRAPH(i) ((CUgraph)(uintptr_t)(((i) + 1) << 8))
#define NODE(g, i) ((CUgraphNode)(uintptr_t)(((g) + 1) << 8 | (i)))
#define KERNEL ((CUfunction)(uintptr_t)64)
#define HUGE_NODE ((CUgraphNode)(uintptr_t)0x7000) /* each of the huge graph's */
#define HUGE ((CUgraph)(uintptr_t)0x8000)
#define NODES 4u

/* The driver: graphs of a few nodes each, and one of many memsets, none of the same address. */
static struct {
	size_t n;
	CUgraphNodeParams node[NODES];
} graph[4];
static uint64_t words[NODES][3]; /* of the arguments of GRAPH(0)'s kernels */
static void *params[NODES][2];
static unsigned looks, memsets; /* calls of the driver about nodes; of them about memsets */
static uint64_t look_ns;	/* that each of the former takes */
static bool names_none;		/* the huge graph */
static unsigned of_functions;	/* calls about parameters of functions, no kernels */

static CUresult get_nodes(CUgraph g, CUgraphNode *ret, size_t *n)
{
	size_t i = ((uintptr_t)g >> 8) - 1;

	if (g == HUGE) {
		for (size_t k = 0; ret && k < *n; k++) {
			ret[k] = HUGE_NODE;
		}
		*n = ret ? *n : 200000;
		return CUDA_SUCCESS;
	}
	for (size_t k = 0; ret && k < *n; k++) {
		ret[k] = NODE(i, k);
	}
	*n = ret ? *n : graph[i].n;
	return CUDA_SUCCESS;
}

static const CUgraphNodeParams *node_of(CUgraphNode node)
{
	return &graph[((uintptr_t)node >> 8) - 1].node[(uintptr_t)node & 255];
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *ret)
{
	looks++;
	rig.now += look_ns;
	*ret = node == HUGE_NODE ? CU_GRAPH_NODE_TYPE_MEMSET : node_of(node)->type;
	return CUDA_SUCCESS;
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret)
{
	*ret = node_of(node)->kernel;
	return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *ret)
{
	*ret = node_of(node)->memcpy.copyParams;
	return CUDA_SUCCESS;
}

static CUresult get_memset(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->dst = node != HUGE_NODE ? node_of(node)->memset.dst
		   : names_none	     ? 0
				     : (UINT64_C(1) << 33) + ++memsets;
	return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *ret)
{
	*ret = node_of(node)->graph.graph;
	return CUDA_SUCCESS;
}

static CUresult of_function(CUfunction f, size_t i, size_t *ret_offset, size_t *ret_size)
{
	of_functions++;
	return shim_driver.cuFuncGetParamInfo(f, i, ret_offset, ret_size);
}

static CUresult of_kernel(CUkernel kernel, size_t i, size_t *ret_offset, size_t *ret_size)
{
	return shim_driver.cuFuncGetParamInfo((CUfunction)(void *)kernel, i, ret_offset, ret_size);
}

/* ---- graphs of the tests ---- */

/* Adds a node to a graph. */
static CUgraphNodeParams *add(unsigned g, CUgraphNodeType type)
{
	CUgraphNodeParams *p = &graph[g].node[graph[g].n++];

	p->type = type;
	return p;
}

/* Returns parameters of a kernel whose second argument is a struct that contains the address. */
static CUDA_KERNEL_NODE_PARAMS kernel_of(unsigned i, CUdeviceptr at)
{
	words[i][0] = 5;
	words[i][1] = 6;
	words[i][2] = at;
	params[i][0] = &words[i][0];
	params[i][1] = &words[i][1];
	rig.param_bytes[0] = 8;
	rig.param_bytes[1] = 16;
	return (CUDA_KERNEL_NODE_PARAMS){ .func = KERNEL, .kernelParams = params[i] };
}

static void add_kernel(unsigned g, unsigned i, CUdeviceptr at)
{
	add(g, CU_GRAPH_NODE_TYPE_KERNEL)->kernel = kernel_of(i, at);
}

static void add_memset(unsigned g, CUdeviceptr at)
{
	add(g, CU_GRAPH_NODE_TYPE_MEMSET)->memset.dst = at;
}

static void launch(CUgraphExec exec)
{
	unsigned before = looks;
	struct shim_swap_launch l;

	rig.now += SECOND; /* a fetch that has brought nothing is not tried again at once */
	shim_work_launch_graph(&l, exec, NULL, false);
	rig_end_if_left();
	assert_false(l.closed);
	shim_work_launched(&l, CUDA_SUCCESS);
	rig_check();
	assert_int_equal(looks, before); /* the driver is asked nothing about graphs */
}

static void all_out(uint64_t limit)
{
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
	assert_int_equal(shim_mem_used(0), 0);
	rig_limit(limit);
}

/* ---- tests ---- */

static void what_a_graphs_kernels_name_comes_back(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);

	add_kernel(0, 0, a);
	add_kernel(0, 1, b + MIB);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	words[0][2] = words[1][2] = c; /* the program has the room for itself again */
	all_out(3 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0));
	assert_false(rig_on_device(c, 0));
}

/* A library's kernel, whose parameters the driver says by its own call, while another thread adds
 * kernels. */
static void so_does_what_kernels_of_libraries_name(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	rig.of_library = true;
	rig.busy_looks = 3;
	add_kernel(0, 0, a);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	rig.of_library = false;
	assert_int_equal(of_functions, 0);
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

/* For longer than learning may take. */
static void kernels_that_are_busy_are_not_waited_for_without_end(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	rig.busy_looks = UINT32_MAX;
	add_memset(0, a);
	add_kernel(0, 1, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	rig.busy_looks = 0;
	all_out(2 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
	assert_false(rig_on_device(b, 0));
}

static void so_does_what_a_buffer_of_parameters_names(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	uint64_t buffer[2] = { 5, a };
	size_t bytes = sizeof(buffer);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	add(0, CU_GRAPH_NODE_TYPE_KERNEL)->kernel =
		(CUDA_KERNEL_NODE_PARAMS){ .func = KERNEL, .extra = extra };
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

static void so_does_what_its_copies_and_memsets_name(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);
	CUdeviceptr d = rig_alloc(CHUNK);
	CUDA_MEMCPY3D *copy = &add(0, CU_GRAPH_NODE_TYPE_MEMCPY)->memcpy.copyParams;

	copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy->srcDevice = a;
	copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	copy->dstDevice = b;
	copy = &add(0, CU_GRAPH_NODE_TYPE_MEMCPY)->memcpy.copyParams;
	copy->srcMemoryType = copy->dstMemoryType = CU_MEMORYTYPE_HOST;
	copy->srcDevice = copy->dstDevice = d;
	add_memset(0, c);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(4 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0) && rig_on_device(c, 0));
	assert_false(rig_on_device(d, 0));
}

static void so_does_what_child_graphs_name(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = GRAPH(1);
	add_memset(1, a);
	add(1, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = GRAPH(2);
	add_memset(2, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(2 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0) && rig_on_device(b, 0));
}

static void a_graph_that_contains_itself_ends(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = GRAPH(0);
	add_memset(0, a);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

/* Of an address in the first chunk. */
static void each_address_inside_names_a_gib(void **state)
{
	CUdeviceptr a = rig_alloc(1088 * MIB), b = rig_alloc(640 * MIB);

	add_memset(0, a + 8);
	add_memset(0, b + 8);
	add_memset(1, a + 8);
	add_memset(1, b + 8);
	add_memset(1, a + 1024 * MIB);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	shim_swap_graph_learn(OTHER, GRAPH(1));
	all_out(2000 * MIB);
	launch(EXEC);
	assert_true(rig_on_device(a, 15) && rig_on_device(b, 0) && rig_on_device(b, 9));
	assert_false(rig_on_device(a, 16));
	launch(OTHER);
	assert_true(rig_on_device(a, 16));
}

/* Each names from there on what another one has named before. */
static void addresses_next_to_each_other_name_a_gib_together(void **state)
{
	CUdeviceptr a = rig_alloc(1280 * MIB);

	add_memset(0, a + 4);
	add_memset(0, a + 8);
	add_memset(0, a + MIB);
	add_memset(1, a + 4);
	add_memset(1, a + 65 * MIB);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	shim_swap_graph_learn(OTHER, GRAPH(1));
	all_out(1280 * MIB);
	launch(EXEC);
	assert_true(rig_on_device(a, 15));
	assert_false(rig_on_device(a, 16));
	launch(OTHER);
	assert_true(rig_on_device(a, 16));
	assert_false(rig_on_device(a, 17));
}

static void a_policy_can_leave_it_on_the_host(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add_memset(0, a);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(CHUNK);
	rig.verdict = GBPF_MEM_IN_PLACE;
	launch(EXEC);
	assert_false(rig_on_device(a, 0));
	rig.verdict = GBPF_MEM_FETCH;
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

/* b was allocated, and came back, after a. */
static void what_a_graph_has_named_last_leaves_last(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);

	add_memset(0, a);
	add_memset(1, b);
	add_memset(2, c);
	all_out(2 * CHUNK);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	launch(EXEC);
	shim_swap_graph_learn(OTHER, GRAPH(1));
	launch(OTHER);
	launch(EXEC);
	shim_swap_graph_learn(OTHER, GRAPH(2));
	launch(OTHER);
	assert_true(rig_on_device(a, 0) && rig_on_device(c, 0));
	assert_false(rig_on_device(b, 0));
}

/* The arguments that a call sets are those of the launches after it, and of no others. */
static void a_node_that_is_set_names_what_it_has_then(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	add_kernel(0, 0, a);
	add_kernel(0, 1, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	p.kernel = kernel_of(2, c);
	shim_swap_graph_set_node(EXEC, NODE(0, 0), &p);
	all_out(3 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(b, 0) && rig_on_device(c, 0));
	assert_false(rig_on_device(a, 0));
	p.kernel = kernel_of(2, a);
	shim_swap_graph_set_node(EXEC, NODE(0, 1), &p);
	all_out(3 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0) && rig_on_device(c, 0));
	assert_false(rig_on_device(b, 0));
}

static void a_node_that_is_set_may_name_more(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);
	CUdeviceptr d = rig_alloc(CHUNK), e = rig_alloc(CHUNK);
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };

	add_memset(0, a);
	add_memset(0, b);
	add_memset(0, c);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	p.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	p.memcpy.copyParams.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	p.memcpy.copyParams.srcDevice = d;
	p.memcpy.copyParams.dstDevice = e;
	shim_swap_graph_set_node(EXEC, NODE(0, 1), &p);
	all_out(5 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0) && rig_on_device(c, 0));
	assert_true(rig_on_device(d, 0) && rig_on_device(e, 0));
	assert_false(rig_on_device(b, 0));
}

static void a_child_graph_that_is_set_replaces_the_one_before(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(CHUNK);
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH };

	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = GRAPH(1);
	add_memset(0, c);
	add_memset(1, a);
	add_memset(2, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	p.graph.graph = GRAPH(2);
	shim_swap_graph_set_node(EXEC, NODE(0, 0), &p);
	all_out(3 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(b, 0) && rig_on_device(c, 0));
	assert_false(rig_on_device(a, 0));
}

static void a_graph_that_named_nothing_names_what_is_set(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	add_memset(0, 0);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	p.memset.dst = a;
	shim_swap_graph_set_node(EXEC, NODE(0, 0), &p);
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
	p.memset.dst = 0;
	shim_swap_graph_set_node(EXEC, NODE(0, 0), &p);
	all_out(CHUNK);
	launch(EXEC);
	assert_false(rig_on_device(a, 0));
}

static void an_update_replaces_what_was_known(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	add_memset(0, a);
	add_memset(1, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	shim_swap_graph_learn(EXEC, GRAPH(1));
	all_out(2 * CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(b, 0));
	assert_false(rig_on_device(a, 0));
}

static void a_graph_that_has_ended_names_nothing(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	add_memset(0, a);
	add_memset(1, b);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	shim_swap_graph_learn(OTHER, GRAPH(1));
	shim_swap_graph_forget(EXEC);
	all_out(2 * CHUNK);
	launch(EXEC);
	launch(OTHER);
	assert_false(rig_on_device(a, 0));
	assert_true(rig_on_device(b, 0));
}

static void memory_that_was_freed_is_not_named(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add_memset(0, a);
	shim_swap_graph_learn(EXEC, GRAPH(0));
	all_out(CHUNK);
	mem_swap_find(&shim_swap_map, a)->freed = true; /* but work may use it */
	launch(EXEC);
	assert_false(rig_on_device(a, 0));
}

/* Its nodes name many addresses, or none. */
static void a_huge_graph_is_known_in_part(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add_memset(0, a);
	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = HUGE;
	shim_swap_graph_learn(EXEC, GRAPH(0));
	assert_in_range(looks, 32768, 33000);
	looks = 0;
	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = HUGE;
	names_none = true;
	shim_swap_graph_learn(OTHER, GRAPH(0));
	assert_in_range(looks, 65536, 66000);
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
	all_out(CHUNK);
	launch(OTHER);
	assert_true(rig_on_device(a, 0));
}

static void learning_takes_no_longer_than_its_limit(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add_memset(0, a);
	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = HUGE;
	look_ns = 1000000;
	shim_swap_graph_learn(EXEC, GRAPH(0));
	assert_in_range(looks, 100, 300);
	all_out(CHUNK);
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

/* 64 graphs that have as many names as one may have are all that are known. */
static void all_graphs_together_are_known_in_part(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	add(0, CU_GRAPH_NODE_TYPE_GRAPH)->graph.graph = HUGE;
	add_memset(1, a);
	for (uintptr_t i = 1; i <= 70; i++) {
		shim_swap_graph_learn((CUgraphExec)(i << 20), GRAPH(0));
	}
	shim_swap_graph_learn(EXEC, GRAPH(1));
	all_out(CHUNK);
	launch(EXEC);
	assert_false(rig_on_device(a, 0));
	for (uintptr_t i = 1; i <= 70; i++) {
		shim_swap_graph_forget((CUgraphExec)(i << 20));
	}
	shim_swap_graph_learn(EXEC, GRAPH(1));
	launch(EXEC);
	assert_true(rig_on_device(a, 0));
}

static int set_up(void **state)
{
	shim_swap_graph_forget(EXEC);
	shim_swap_graph_forget(OTHER);
	memset(graph, 0, sizeof(graph));
	looks = memsets = of_functions = 0;
	look_ns = 0;
	names_none = false;
	return rig_set_up(state);
}

static int join(void **state)
{
	int err = rig_join(state);

	shim_real.cuFuncGetParamInfo = of_function;
	shim_real.cuKernelGetParamInfo = of_kernel;
	shim_driver.cuGraphGetNodes = get_nodes;
	shim_driver.cuGraphNodeGetType = get_type;
	shim_driver.cuGraphKernelNodeGetParams_v2 = get_kernel;
	shim_driver.cuGraphMemcpyNodeGetParams = get_copy;
	shim_driver.cuGraphMemsetNodeGetParams = get_memset;
	shim_driver.cuGraphChildGraphNodeGetGraph = get_child;
	return err;
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_a_graphs_kernels_name_comes_back),
		TEST(so_does_what_kernels_of_libraries_name),
		TEST(kernels_that_are_busy_are_not_waited_for_without_end),
		TEST(so_does_what_a_buffer_of_parameters_names),
		TEST(so_does_what_its_copies_and_memsets_name),
		TEST(so_does_what_child_graphs_name),
		TEST(a_graph_that_contains_itself_ends),
		TEST(each_address_inside_names_a_gib),
		TEST(addresses_next_to_each_other_name_a_gib_together),
		TEST(a_policy_can_leave_it_on_the_host),
		TEST(what_a_graph_has_named_last_leaves_last),
		TEST(a_node_that_is_set_names_what_it_has_then),
		TEST(a_node_that_is_set_may_name_more),
		TEST(a_child_graph_that_is_set_replaces_the_one_before),
		TEST(a_graph_that_named_nothing_names_what_is_set),
		TEST(an_update_replaces_what_was_known),
		TEST(a_graph_that_has_ended_names_nothing),
		TEST(memory_that_was_freed_is_not_named),
		TEST(a_huge_graph_is_known_in_part),
		TEST(learning_takes_no_longer_than_its_limit),
		TEST(all_graphs_together_are_known_in_part),
	};

	return cmocka_run_group_tests_name("swap graphs", tests, join, NULL);
}
