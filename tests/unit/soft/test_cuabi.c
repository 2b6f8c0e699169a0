/* The driver's binary interface as src/cuabi declares it: layouts, gate classes, lookups by name
 * and version, and completeness of the soft GPU's client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cuabi/api.h"
#include "cuabi/lookup.h"
#include "cuabi/table.h"

#include <dlfcn.h>

#define SIZE(type, n) assert_int_equal(sizeof(type), n)
#define AT(type, member, n) assert_int_equal(offsetof(type, member), n)

static void structures_have_the_drivers_layout(void **state)
{
	(void)state;
	SIZE(CUuuid, 16);
	SIZE(CUipcEventHandle, 64);
	SIZE(CUipcMemHandle, 64);
	SIZE(CUdevprop, 56);
	SIZE(CUdevResource, 144);
	assert_int_equal(offsetof(CUdevResource, sm), 96);
	SIZE(CUctxCreateParams, 24);
	SIZE(CUlaunchAttributeValue, 64);
	SIZE(CUlaunchAttribute, 72);
	AT(CUlaunchAttribute, value, 8);
	SIZE(CUlaunchConfig, 56);
	AT(CUlaunchConfig, hStream, 32);
	AT(CUlaunchConfig, numAttrs, 48);
	SIZE(CUDA_LAUNCH_PARAMS, 56);
	SIZE(CUDA_KERNEL_NODE_PARAMS, 72);
	AT(CUDA_KERNEL_NODE_PARAMS, kern, 56);
	SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS, 32);
	SIZE(CUDA_MEMCPY2D, 128);
	AT(CUDA_MEMCPY2D, dstDevice, 88);
	AT(CUDA_MEMCPY2D, Height, 120);
	SIZE(CUDA_MEMCPY2D_v1, 96);
	SIZE(CUDA_MEMCPY3D, 200);
	AT(CUDA_MEMCPY3D, Depth, 192);
	SIZE(CUDA_MEMCPY3D_PEER, 200);
	AT(CUDA_MEMCPY3D_PEER, dstContext, 152);
	SIZE(CUDA_MEMCPY3D_v1, 144);
	SIZE(CUDA_ARRAY3D_DESCRIPTOR, 40);
	SIZE(CUmemLocation, 8);
	SIZE(CUmemAllocationProp, 32);
	AT(CUmemAllocationProp, allocFlags, 24);
	SIZE(CUmemAccessDesc, 12);
	SIZE(CUmemPoolProps, 88);
	SIZE(CUmemcpyAttributes, 24);
	SIZE(CUstreamBatchMemOpParams, 48);
	SIZE(CUeglFrame, 64);
}

static void the_table_is_an_array_in_order_of_names(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct cuabi_table), CUABI_COUNT * sizeof(void *));
	assert_int_equal(offsetof(struct cuabi_table, cuInit), CUABI_IDX_cuInit * sizeof(void *));
	assert_int_equal(offsetof(struct cuabi_table, cuLaunchKernel),
			 CUABI_IDX_cuLaunchKernel * sizeof(void *));
	for (int i = 0; i < CUABI_COUNT; i++) {
		assert_int_equal(cuabi_index(cuabi_names[i]), i);
	}
	assert_int_equal(cuabi_index("cuNope"), -1);
	assert_int_equal(cuabi_index(""), -1);
}

static int ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

/* A copy, memset or other stream-ordered call that is added to the list must have a gate. */
static void every_stream_ordered_call_has_a_gate(void **state)
{
	(void)state;
	for (int i = 0; i < CUABI_COUNT; i++) {
		const char *n = cuabi_names[i];
		const struct cuabi_gate *g = &cuabi_gates[i];

		if (strncmp(n, "cuMemcpy", 8) == 0 || strncmp(n, "cuMemsetD", 9) == 0 ||
		    strstr(n, "Async") || strncmp(n, "cuLaunch", 8) == 0 ||
		    strncmp(n, "cuStreamWait", 12) == 0 || strncmp(n, "cuStreamWrite", 13) == 0 ||
		    strncmp(n, "cuEventRecord", 13) == 0 || strncmp(n, "cuGraphLaunch", 13) == 0 ||
		    strstr(n, "Synchronize") || strstr(n, "StreamQuery")) {
			if (strstr(n, "AsyncNotification")) {
				continue;
			}
			assert_int_not_equal(g->gate, CUABI_GATE_PASS);
			assert_true(g->declared);
		}
		assert_int_equal(g->per_thread, ends(n, "_ptsz") || ends(n, "_ptds"));
		assert_int_equal(g->gate == CUABI_GATE_ASYNC, g->stream_arg >= 0);
		if (ends(n, "_ptds")) {
			assert_int_equal(g->gate, CUABI_GATE_SYNC_PTDS);
		}
	}
	assert_int_equal(cuabi_gates[CUABI_IDX_cuMemcpyHtoDAsync_v2].stream_arg, 3);
	assert_int_equal(cuabi_gates[CUABI_IDX_cuMemcpyHtoD_v2].gate, CUABI_GATE_SYNC_LEGACY);
	assert_int_equal(cuabi_gates[CUABI_IDX_cuMemFree_v2].gate, CUABI_GATE_WAIT);
}

static void names_resolve_by_version_and_stream_kind(void **state)
{
	const uint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	(void)state;
	assert_int_equal(cuabi_resolve("cuMemAlloc", 12000, 0), CUABI_IDX_cuMemAlloc_v2);
	assert_int_equal(cuabi_resolve("cuMemAlloc", 3010, 0), CUABI_IDX_cuMemAlloc);
	assert_int_equal(cuabi_resolve("cuCtxCreate", 11000, 0), CUABI_IDX_cuCtxCreate_v2);
	assert_int_equal(cuabi_resolve("cuCtxCreate", 13000, 0), CUABI_IDX_cuCtxCreate_v4);
	assert_int_equal(cuabi_resolve("cuMemcpyHtoD", 12000, own), CUABI_IDX_cuMemcpyHtoD_v2_ptds);
	assert_int_equal(cuabi_resolve("cuMemcpyHtoD", 6000, own), CUABI_IDX_cuMemcpyHtoD_v2);
	assert_int_equal(cuabi_resolve("cuLaunchKernel", 12000, own),
			 CUABI_IDX_cuLaunchKernel_ptsz);
	assert_int_equal(cuabi_resolve("cuInit", 12000, own), CUABI_IDX_cuInit);
	assert_int_equal(cuabi_resolve("cuMemAlloc_v2", 12000, 0), CUABI_IDX_cuMemAlloc_v2);
	assert_int_equal(cuabi_resolve("cuLaunchKernelEx", 11000, 0), -2);
	assert_int_equal(cuabi_resolve("cuFlyToTheMoon", 12000, 0), -1);
	assert_int_equal(cuabi_resolve("cuInit", -5, 0), -1);
}

static void results_have_names(void **state)
{
	(void)state;
	assert_string_equal(cuabi_result_name(CUDA_SUCCESS), "CUDA_SUCCESS");
	assert_string_equal(cuabi_result_name((CUresult)719), "CUDA_ERROR_LAUNCH_FAILED");
	assert_null(cuabi_result_name((CUresult)12345));
	assert_non_null(cuabi_result_text(CUDA_ERROR_ILLEGAL_ADDRESS));
}

static void the_soft_client_has_every_function(void **state)
{
	(void)state;
	for (int i = 0; i < CUABI_COUNT; i++) {
		assert_non_null(dlsym(RTLD_DEFAULT, cuabi_names[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(structures_have_the_drivers_layout),
		cmocka_unit_test(the_table_is_an_array_in_order_of_names),
		cmocka_unit_test(every_stream_ordered_call_has_a_gate),
		cmocka_unit_test(names_resolve_by_version_and_stream_kind),
		cmocka_unit_test(results_have_names),
		cmocka_unit_test(the_soft_client_has_every_function),
	};
	int version = 0;

	cuDriverGetVersion(&version); /* keeps the client linked */
	return cmocka_run_group_tests_name("cuabi", tests, NULL, NULL) + (version != CUABI_VERSION);
}
