/* Memory of graphs on a driver that takes it at their first launch, in steps, and keeps it until it
 * is trimmed, as NVIDIA's does, and on one that takes it when a node is made, as the soft GPU does:
 * shim/mem/graphs.c between a double of that driver and one of the account. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/graphs.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define ROW 5
#define GRAPH ((CUgraph)0x1000)
#define CHILD ((CUgraph)0x2000)
#define TWO ((CUgraph)0x5000)
#define OWN ((CUgraph)0x7000) /* that the driver is tried with */
#define EXEC ((CUgraphExec)0x3000)
#define OTHER ((CUgraphExec)0x4000)
#define LIMIT (100 * MIB)

struct cuabi_slots shim_real;
struct cuabi_table shim_driver;

/* The driver: one node of 20 MiB on device 1 in each graph; GRAPH contains CHILD, TWO has a second
 * node on device 2, whose memory is counted apart. */
static uint64_t reserved, in_use, grows_to;
static uint64_t reserved_2;
static unsigned launches;
/* The account. */
static uint64_t used, most;
static uint64_t used_2;
/* Called when a charge waits, which holds nothing; returns false if that fails. */
static bool (*on_wait)(int row);
static unsigned waits;
/* Of a driver that takes memory when a node is made. */
static unsigned made;
static bool refuses, takes_late;
static void (*on_make)(void); /* called before the driver returns */

static CUresult add_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			 CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	if (refuses) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	made += g != OWN;
	reserved += takes_late ? 0 : p->bytesize;
	in_use = reserved;
	if (g == OWN) {
		return CUDA_SUCCESS;
	}
	*ret = (CUgraphNode)0x6000;
	if (on_make) {
		on_make();
	}
	return CUDA_SUCCESS;
}

static CUresult create(CUgraph *ret, unsigned flags)
{
	*ret = OWN;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph g)
{
	assert_ptr_equal(g, OWN);
	reserved -= takes_late ? 0 : 2 * MIB;
	in_use = reserved;
	return CUDA_SUCCESS;
}

CUstreamCaptureMode shim_capture_exempt(void)
{
	return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void shim_capture_restore(CUstreamCaptureMode before)
{
}

static CUresult add_any_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			     CUgraphNodeParams *p)
{
	return add_node(ret, g, after, n, &p->alloc);
}

static CUresult add_any_node_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after,
				const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *p)
{
	return add_node(ret, g, after, n, &p->alloc);
}

static CUresult add_20_mib(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps.location = { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
					 .bytesize = 20 * MIB };
	CUgraphNode node;

	return shim_real.cuGraphAddMemAllocNode(&node, GRAPH, NULL, 0, &p);
}

static CUresult get_nodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	*n = g == GRAPH || g == TWO ? 2 : 1;
	for (size_t i = 0; nodes && i < *n; i++) {
		nodes[i] = (CUgraphNode)((uintptr_t)g + i);
	}
	return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *ret)
{
	*ret = (uintptr_t)node == (uintptr_t)GRAPH + 1 ? CU_GRAPH_NODE_TYPE_GRAPH
						       : CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *ret)
{
	*ret = CHILD;
	return CUDA_SUCCESS;
}

static CUresult get_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	ret->poolProps.location.id = (uintptr_t)node == (uintptr_t)TWO + 1 ? 2 : 1;
	ret->bytesize = 20 * MIB;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(CUdevice device, CUgraphMem_attribute what, void *ret)
{
	uint64_t value = what == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved : in_use;

	if (device == 2) {
		value = what == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved_2 : 0;
	}
	memcpy(ret, &value, sizeof(value));
	return CUDA_SUCCESS;
}

static CUresult trim(CUdevice device)
{
	reserved = in_use;
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	launches++;
	reserved = reserved > grows_to ? reserved : grows_to;
	assert_true(used >= reserved); /* charged before it is taken */
	return CUDA_SUCCESS;
}

bool shim_mem_joined(void)
{
	return true;
}

int shim_mem_row(CUdevice device)
{
	return device == 1 || device == 2 ? ROW + device - 1 : -1;
}

static uint64_t *used_of(int row)
{
	assert_true(row == ROW || row == ROW + 1);
	return row == ROW ? &used : &used_2;
}

bool shim_mem_try_charge(int row, uint64_t bytes)
{
	uint64_t *of = used_of(row);

	if (*of + bytes > LIMIT) {
		return false;
	}
	*of += bytes;
	most = used > most ? used : most;
	return true;
}

bool shim_mem_charge(int row, uint64_t bytes, const char *call)
{
	shim_mem_graphs_measure(true); /* the mutex is free, or nothing is trimmed */
	waits++;
	return (!on_wait || on_wait(row)) && shim_mem_try_charge(row, bytes);
}

void shim_mem_force(int row, uint64_t bytes)
{
	*used_of(row) += bytes;
}

void shim_mem_release(int row, uint64_t bytes)
{
	if (bytes) {
		assert_true(*used_of(row) >= bytes);
		*used_of(row) -= bytes;
	}
}

/* Not reset, as what graphs.c is charged for: a part of what is used, and of what was. */
static uint64_t of_kind[2];

void shim_mem_kind_add(int row, enum proto_kind kind, uint64_t bytes)
{
	assert_int_equal(kind, PROTO_KIND_GRAPH);
	of_kind[row != ROW] += bytes;
}

void shim_mem_kind_sub(int row, enum proto_kind kind, uint64_t bytes)
{
	assert_int_equal(kind, PROTO_KIND_GRAPH);
	assert_true(of_kind[row != ROW] >= bytes);
	of_kind[row != ROW] -= bytes;
}

void shim_mem_move_begin(void)
{
}

void shim_mem_move_end(void)
{
}

/* Memory of other vGPUs, or of the host, may be asked for then: the mutex is free. */
static unsigned fetches;
uint64_t shim_swap_on_host;

void shim_swap_launch(struct shim_swap_launch *l)
{
	assert_ptr_equal(l->graph, EXEC);
	assert_int_equal(launches, 0);
	l->timed_in = (CUcontext)(uintptr_t)7;
	shim_mem_graph_exec_destroyed(OTHER);
	fetches++;
}

void shim_swap_launched(const struct shim_swap_launch *l, CUresult r)
{
	assert_int_equal(launches, 1);
	fetches++;
}

static int set_up(void **state)
{
	shim_swap_on_host = 0;
	fetches = 0;
	shim_driver.cuGraphGetNodes = get_nodes;
	shim_driver.cuGraphNodeGetType = get_type;
	shim_driver.cuGraphChildGraphNodeGetGraph = get_child;
	shim_driver.cuGraphMemAllocNodeGetParams = get_params;
	shim_driver.cuDeviceGetGraphMemAttribute = get_attribute;
	shim_driver.cuDeviceGraphMemTrim = trim;
	shim_driver.cuGraphLaunch = launch;
	shim_driver.cuGraphUpload = launch;
	shim_driver.cuGraphAddMemAllocNode = add_node;
	shim_driver.cuGraphCreate = create;
	shim_driver.cuGraphDestroy = destroy;
	shim_driver.cuGraphAddNode = add_any_node;
	shim_driver.cuGraphAddNode_v2 = add_any_node_v2;
	shim_mem_install_graphs();
	shim_mem_graph_exec_destroyed(EXEC);
	shim_mem_graph_exec_destroyed(OTHER);
	reserved = reserved_2 = in_use = 0;
	shim_mem_graphs_measure(false);
	used = used_2 = most = 0;
	on_wait = NULL;
	waits = 0;
	grows_to = 0;
	launches = 0;
	made = 0;
	refuses = takes_late = false;
	on_make = NULL;
	return 0;
}

static void the_first_launch_is_charged_before_and_corrected_after(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	assert_int_equal(used, 0);
	grows_to = 34 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(most, 64 * MIB); /* 20 and 20 of the child, in steps of 32 */
	assert_int_equal(used, 34 * MIB);
	most = 0;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(most, 0); /* not again */
	assert_int_equal(launches, 2);
}

static void swapped_memory_comes_back_before_a_launch(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	shim_mem_graph_instantiated(OTHER, GRAPH);
	shim_swap_on_host = 1;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(fetches, 2);
	shim_swap_on_host = 0;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(fetches, 2);
}

static void an_upload_is_charged_as_a_launch(void **state)
{
	shim_mem_graph_instantiated(EXEC, CHILD);
	grows_to = 20 * MIB;
	assert_int_equal(shim_real.cuGraphUpload(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(used, 20 * MIB);
}

static void a_launch_beyond_the_limit_is_refused(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	used = 37 * MIB; /* of another row: less than 64 MiB are left */
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(launches, 0);
	assert_int_equal(used, 37 * MIB);
	used = 36 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(used, 36 * MIB);
}

static void at_the_limit_what_other_graphs_left_is_used_or_trimmed(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	shim_mem_graph_instantiated(OTHER, GRAPH);
	grows_to = 64 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(used, 64 * MIB);
	assert_int_equal(shim_real.cuGraphLaunch(OTHER, NULL), CUDA_SUCCESS); /* there is room */
	assert_int_equal(used, 64 * MIB);
	shim_mem_graph_exec_destroyed(OTHER);
	shim_mem_graph_instantiated(OTHER, GRAPH);
	in_use = 30 * MIB; /* less than 40 are free in it: trimmed, it charges 64 */
	grows_to = 94 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(OTHER, NULL), CUDA_SUCCESS);
	assert_int_equal(used, 94 * MIB);
	assert_int_equal(most, 94 * MIB);
}

static void memory_that_was_trimmed_is_charged_again(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	grows_to = 40 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuDeviceGraphMemTrim(1), CUDA_SUCCESS);
	assert_int_equal(used, 0);
	most = 0;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(most, 64 * MIB);
	assert_int_equal(used, 40 * MIB);
}

static bool free_second(int row)
{
	assert_int_equal(row, ROW + 1);
	assert_int_equal(used, 0);
	used_2 = 0;
	/* Another thread launches a graph meanwhile. */
	shim_mem_graph_instantiated(OTHER, CHILD);
	assert_int_equal(shim_real.cuGraphLaunch(OTHER, NULL), CUDA_SUCCESS);
	return true;
}

static void a_launch_that_waits_for_one_device_holds_nothing_of_another(void **state)
{
	shim_mem_graph_instantiated(EXEC, TWO);
	used_2 = LIMIT;
	on_wait = free_second;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(waits, 1);
	assert_int_equal(launches, 2);
	assert_int_equal(used + used_2, 0); /* the driver has taken nothing */
}

/* Of two devices one has memory at a time. */
static bool move_memory(int row)
{
	used = row == ROW ? 0 : LIMIT;
	used_2 = row == ROW ? LIMIT : 0;
	return true;
}

static void a_launch_waits_once_for_each_device(void **state)
{
	shim_mem_graph_instantiated(EXEC, TWO);
	used_2 = LIMIT;
	on_wait = move_memory;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(waits, 2);
	assert_int_equal(launches, 0);
	assert_int_equal(used, 0);
	assert_int_equal(used_2, LIMIT);
}

static bool free_after_other_launch(int row)
{
	used = 0;
	on_wait = NULL;
	grows_to = 34 * MIB;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(used, 34 * MIB);
	return true;
}

static void memory_that_came_during_the_wait_is_charged_once(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	used = LIMIT;
	on_wait = free_after_other_launch;
	assert_int_equal(shim_real.cuGraphLaunch(EXEC, NULL), CUDA_SUCCESS);
	assert_int_equal(launches, 2);
	assert_int_equal(used, 34 * MIB);
	assert_int_equal(of_kind[0], 34 * MIB);
}

static bool destroy_exec(int row)
{
	used = 0;
	shim_mem_graph_exec_destroyed(EXEC);
	return true;
}

static void an_exec_that_is_destroyed_during_the_wait_leaves_no_charge(void **state)
{
	shim_mem_graph_instantiated(EXEC, GRAPH);
	used = LIMIT;
	on_wait = destroy_exec;
	(void)shim_real.cuGraphLaunch(EXEC, NULL); /* the driver refuses it */
	assert_int_equal(waits, 1);
	assert_int_equal(used, 0);
}

/* The first test that makes a node: the driver is not known yet. */
static void nodes_of_a_driver_that_takes_memory_later_are_not_charged(void **state)
{
	takes_late = true;
	used = LIMIT;
	assert_int_equal(add_20_mib(), CUDA_SUCCESS);
	assert_int_equal(add_20_mib(), CUDA_SUCCESS);
	assert_int_equal(used, LIMIT);
	assert_int_equal(waits, 0);
	assert_int_equal(made, 2);
}

static void measure(void)
{
	shim_mem_graphs_measure(false); /* as another thread does, which may charge the node */
}

static void a_driver_that_takes_memory_after_all_is_noticed(void **state)
{
	on_make = measure;
	assert_int_equal(add_20_mib(), CUDA_SUCCESS);
	assert_int_equal(used, 20 * MIB);
	used = 81 * MIB;
	assert_int_equal(add_20_mib(), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(made, 1);
}

static void nodes_by_other_calls_are_charged(void **state)
{
	CUgraphNodeParams p = {
		.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		.alloc = { .poolProps.location = { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
			   .bytesize = 60 * MIB },
	};
	CUgraphNode node;

	assert_int_equal(shim_real.cuGraphAddNode(&node, GRAPH, NULL, 0, &p), CUDA_SUCCESS);
	assert_int_equal(used, 60 * MIB);
	assert_int_equal(shim_real.cuGraphAddNode_v2(&node, GRAPH, NULL, NULL, 0, &p),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(made, 1);
	p.type = CU_GRAPH_NODE_TYPE_HOST;
	assert_int_equal(shim_real.cuGraphAddNode(&node, GRAPH, NULL, 0, &p), CUDA_SUCCESS);
	assert_int_equal(made, 2);
}

static void later_nodes_are_charged_before_the_driver_takes_their_memory(void **state)
{
	used = 80 * MIB;
	assert_int_equal(add_20_mib(), CUDA_SUCCESS);
	assert_int_equal(made, 1);
	assert_int_equal(most, LIMIT);
	assert_int_equal(used, LIMIT);
	assert_int_equal(add_20_mib(), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(made, 1); /* the driver is not asked */
	assert_int_equal(used, LIMIT);
}

static void a_node_that_the_driver_refuses_is_not_charged(void **state)
{
	refuses = true;
	used = 80 * MIB;
	assert_int_equal(add_20_mib(), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(most, LIMIT);
	assert_int_equal(used, 80 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_first_launch_is_charged_before_and_corrected_after,
				       set_up),
		cmocka_unit_test_setup(swapped_memory_comes_back_before_a_launch, set_up),
		cmocka_unit_test_setup(an_upload_is_charged_as_a_launch, set_up),
		cmocka_unit_test_setup(a_launch_beyond_the_limit_is_refused, set_up),
		cmocka_unit_test_setup(at_the_limit_what_other_graphs_left_is_used_or_trimmed,
				       set_up),
		cmocka_unit_test_setup(memory_that_was_trimmed_is_charged_again, set_up),
		cmocka_unit_test_setup(a_launch_that_waits_for_one_device_holds_nothing_of_another,
				       set_up),
		cmocka_unit_test_setup(a_launch_waits_once_for_each_device, set_up),
		cmocka_unit_test_setup(memory_that_came_during_the_wait_is_charged_once, set_up),
		cmocka_unit_test_setup(an_exec_that_is_destroyed_during_the_wait_leaves_no_charge,
				       set_up),
		cmocka_unit_test_setup(nodes_of_a_driver_that_takes_memory_later_are_not_charged,
				       set_up),
		cmocka_unit_test_setup(a_driver_that_takes_memory_after_all_is_noticed, set_up),
		cmocka_unit_test_setup(nodes_by_other_calls_are_charged, set_up),
		cmocka_unit_test_setup(later_nodes_are_charged_before_the_driver_takes_their_memory,
				       set_up),
		cmocka_unit_test_setup(a_node_that_the_driver_refuses_is_not_charged, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
