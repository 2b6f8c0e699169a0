/* Memory of graphs on a driver that takes it at their first launch, in steps, and keeps it until it
 * is trimmed, as NVIDIA's does: shim/mem/graphs.c between a double of that driver and one of the
 * account. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "shim/mem/charge.h"
#include "shim/mem/graphs.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define ROW 5
#define GRAPH ((CUgraph)0x1000)
#define CHILD ((CUgraph)0x2000)
#define EXEC ((CUgraphExec)0x3000)
#define OTHER ((CUgraphExec)0x4000)
#define LIMIT (100 * MIB)

struct cuabi_slots shim_real;
struct cuabi_table shim_driver;

/* The driver: one node of 20 MiB in each graph; GRAPH contains CHILD. */
static uint64_t reserved, in_use, grows_to;
static unsigned launches;
/* The account. */
static uint64_t used, most;

static CUresult get_nodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	*n = g == GRAPH ? 2 : 1;
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
	ret->poolProps.location.id = 1;
	ret->bytesize = 20 * MIB;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(CUdevice device, CUgraphMem_attribute what, void *ret)
{
	uint64_t value = what == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved : in_use;

	assert_int_equal(device, 1);
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
	return device == 1 ? ROW : -1;
}

bool shim_mem_try_charge(int row, uint64_t bytes)
{
	assert_int_equal(row, ROW);
	if (used + bytes > LIMIT) {
		return false;
	}
	used += bytes;
	most = used > most ? used : most;
	return true;
}

bool shim_mem_charge(int row, uint64_t bytes, const char *call)
{
	return shim_mem_try_charge(row, bytes);
}

void shim_mem_force(int row, uint64_t bytes)
{
	used += bytes;
}

void shim_mem_release(int row, uint64_t bytes)
{
	assert_true(used >= bytes);
	used -= bytes;
}

uint64_t shim_mem_used(int row)
{
	return used;
}

uint64_t shim_mem_limit(int row)
{
	return LIMIT;
}

void shim_mem_move_begin(void)
{
}

void shim_mem_move_end(void)
{
}

static int set_up(void **state)
{
	shim_driver.cuGraphGetNodes = get_nodes;
	shim_driver.cuGraphNodeGetType = get_type;
	shim_driver.cuGraphChildGraphNodeGetGraph = get_child;
	shim_driver.cuGraphMemAllocNodeGetParams = get_params;
	shim_driver.cuDeviceGetGraphMemAttribute = get_attribute;
	shim_driver.cuDeviceGraphMemTrim = trim;
	shim_driver.cuGraphLaunch = launch;
	shim_driver.cuGraphUpload = launch;
	shim_mem_install_graphs();
	shim_mem_graph_exec_destroyed(EXEC);
	shim_mem_graph_exec_destroyed(OTHER);
	reserved = in_use = 0;
	shim_mem_graphs_measure(false);
	used = most = 0;
	grows_to = 0;
	launches = 0;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_first_launch_is_charged_before_and_corrected_after,
				       set_up),
		cmocka_unit_test_setup(an_upload_is_charged_as_a_launch, set_up),
		cmocka_unit_test_setup(a_launch_beyond_the_limit_is_refused, set_up),
		cmocka_unit_test_setup(at_the_limit_what_other_graphs_left_is_used_or_trimmed,
				       set_up),
		cmocka_unit_test_setup(memory_that_was_trimmed_is_charged_again, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
