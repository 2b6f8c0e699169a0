#include "code_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/code/shim_code_int.h"

int rig_self_tests, rig_self_test;
int rig_driver_version = 13000;
CUresult rig_link;
unsigned rig_lookups;
CUfunction rig_invalid;
int rig_primary_active = 1;
unsigned char *rig_image;
size_t rig_image_bytes;
struct rig_seen rig_seen;

unsigned rig_links;

static unsigned char *gates[4]; /* the gate with either padding, then the stub with programs */
static size_t gate_bytes[4];
static unsigned linked; /* which of them the linker was given last */

/* Instead of code_test.c: the fake runs nothing. */
int shim_code_test(const struct cubin_stub *s, unsigned arch, struct report *r)
{
	rig_self_tests++;
	return rig_self_test ? report_set(r, rig_self_test, "test", "block 3 has run twice") : 0;
}

bool rig_is_zero(const void *p)
{
	static const unsigned char zero[64];

	return p && memcmp(p, zero, sizeof(zero)) == 0;
}

/* ---- what the driver says ---- */

static CUresult driver_version(int *ret)
{
	*ret = rig_driver_version;
	return CUDA_SUCCESS;
}

static char *link_log;

static CUresult link_create(unsigned n, CUjit_option *options, void **values, CUlinkState *ret)
{
	for (unsigned i = 0; i < n; i++) {
		link_log = options[i] == CU_JIT_ERROR_LOG_BUFFER ? values[i] : link_log;
	}
	*ret = (CUlinkState)(uintptr_t)0x7700;
	return CUDA_SUCCESS;
}

static CUresult link_add(CUlinkState s, CUjitInputType type, void *data, size_t bytes,
			 const char *name, unsigned n, CUjit_option *options, void **values)
{
	linked = (strstr(data, "[1024]") != NULL) + 2 * (strstr(data, RIG_PROBE_TEXT) != NULL);
	rig_links++;
	return CUDA_SUCCESS;
}

static CUresult link_complete(CUlinkState s, void **ret, size_t *ret_bytes)
{
	if (rig_link) {
		snprintf(link_log, 32, "ptxas fatal: no such gate\nmore");
		return rig_link;
	}
	*ret = gates[linked];
	*ret_bytes = gate_bytes[linked];
	return CUDA_SUCCESS;
}

static CUresult func_name(const char **ret, CUfunction f)
{
	*ret = f == RIG_TWO || f == RIG_ITS_FUNCTION || f == RIG_OTHER ? "two"
	       : f == RIG_NONE					       ? "none"
								       : "many";
	return f == (CUfunction)(void *)RIG_KERNEL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult func_module(CUmodule *ret, CUfunction f)
{
	*ret = f == RIG_OTHER || f == RIG_ITS_FUNCTION ? RIG_OTHER_MODULE : RIG_MODULE;
	return CUDA_SUCCESS;
}

static CUresult kernel_name(const char **ret, CUkernel k)
{
	*ret = "two";
	return k == RIG_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult count_func_name(const char **ret, CUfunction f)
{
	rig_lookups++;
	return f == rig_invalid ? CUDA_ERROR_INVALID_HANDLE : func_name(ret, f);
}

static CUresult count_kernel_name(const char **ret, CUkernel k)
{
	rig_lookups++;
	return kernel_name(ret, k);
}

static CUresult kernel_library(CUlibrary *ret, CUkernel k)
{
	*ret = RIG_LIBRARY;
	return CUDA_SUCCESS;
}

static CUresult kernel_function(CUfunction *ret, CUkernel k)
{
	*ret = RIG_ITS_FUNCTION;
	return CUDA_SUCCESS;
}

/* two's parameters with the stub's argument; of RIG_OTHER without. */
static CUresult param_info(const void *f, size_t i, size_t *ret_offset, size_t *ret_bytes)
{
	static const size_t offset[] = { 0, 8, 16 }, bytes[] = { 8, 4, 64 };

	if (i >= (f == RIG_OTHER ? 2 : 3)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_offset = offset[i];
	*ret_bytes = bytes[i];
	return CUDA_SUCCESS;
}

static CUresult func_param(CUfunction f, size_t i, size_t *ret_offset, size_t *ret_bytes)
{
	return param_info(f, i, ret_offset, ret_bytes);
}

static CUresult kernel_param(CUkernel k, size_t i, size_t *ret_offset, size_t *ret_bytes)
{
	return param_info(k, i, ret_offset, ret_bytes);
}

static CUresult func_attribute(int *ret, CUfunction_attribute what, CUfunction f)
{
	*ret = what == CU_FUNC_ATTRIBUTE_NUM_REGS ? 22 : 1024;
	return CUDA_SUCCESS;
}

static CUresult active_blocks(int *ret, CUfunction f, int threads, size_t smem)
{
	*ret = 2;
	return CUDA_SUCCESS;
}

static CUresult active_clusters(int *ret, CUfunction f, const CUlaunchConfig *config)
{
	*ret = 4;
	return CUDA_SUCCESS;
}

static CUresult kernel_attribute(int *ret, CUfunction_attribute what, CUkernel k, CUdevice d)
{
	return func_attribute(ret, what, NULL);
}

static CUresult primary_state(CUdevice d, unsigned *flags, int *active)
{
	*flags = 0;
	*active = rig_primary_active;
	return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *ret, CUdevice d)
{
	*ret = FAKE_CTX;
	return CUDA_SUCCESS;
}

/* ---- what it is given ---- */

/* The parameters that the machine code has, with the stub's argument. */
static unsigned params_of(const void *f)
{
	return f == RIG_NONE ? 1 : f == RIG_MANY ? 151 : f == RIG_OTHER ? 2 : 3;
}

static CUresult see(const void *f, void **params, void **extra)
{
	rig_seen = (struct rig_seen){ .calls = rig_seen.calls + 1, .n = params_of(f) };
	if (params) {
		memcpy(rig_seen.params, params, rig_seen.n * sizeof(params[0]));
		rig_seen.zero = f != RIG_OTHER && rig_is_zero(params[rig_seen.n - 1]);
	}
	if (extra) {
		rig_seen.extra_bytes = *(size_t *)extra[3];
		memcpy(rig_seen.buffer, extra[1],
		       MIN(rig_seen.extra_bytes, sizeof(rig_seen.buffer)));
	}
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,
		       void **extra)
{
	return see(f, params, extra);
}

static CUresult cooperative(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			    unsigned by, unsigned bz, unsigned smem, CUstream s, void **params)
{
	return see(f, params, NULL);
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	return see(f, params, extra);
}

static CUresult multi_device(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	return see(list[n - 1].function, list[n - 1].kernelParams, NULL);
}

static CUresult add_v1(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
		       const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return see(p->func, p->kernelParams, p->extra);
}

static CUresult see_v2(const CUDA_KERNEL_NODE_PARAMS *p)
{
	return see(p->func ? (const void *)p->func : p->kern, p->kernelParams, p->extra);
}

static CUresult add_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
		       const CUDA_KERNEL_NODE_PARAMS *p)
{
	return see_v2(p);
}

static CUresult set_v1(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return see(p->func, p->kernelParams, p->extra);
}

static CUresult set_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	return see_v2(p);
}

static CUresult exec_set_v1(CUgraphExec e, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return see(p->func, p->kernelParams, p->extra);
}

static CUresult exec_set_v2(CUgraphExec e, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	return see_v2(p);
}

static CUresult add_any(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			CUgraphNodeParams *p)
{
	return see_v2(&p->kernel);
}

static CUresult add_any_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after,
			   const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *p)
{
	return see_v2(&p->kernel);
}

static CUresult set_any(CUgraphNode node, CUgraphNodeParams *p)
{
	return see_v2(&p->kernel);
}

static CUresult exec_set_any(CUgraphExec e, CUgraphNode node, CUgraphNodeParams *p)
{
	return see_v2(&p->kernel);
}

/* The legacy calls: what cuParamSet* has set is read by the launch. */
static struct {
	uint32_t size;
	unsigned char bytes[256];
} legacy;

static CUresult param_size(CUfunction f, unsigned bytes)
{
	legacy.size = bytes;
	return CUDA_SUCCESS;
}

static CUresult param_set(CUfunction f, int at, void *from, unsigned bytes)
{
	memcpy(legacy.bytes + at, from, bytes);
	return CUDA_SUCCESS;
}

static CUresult legacy_launch(CUfunction f)
{
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, legacy.bytes, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &(size_t){ legacy.size }, CU_LAUNCH_PARAM_END };

	return see(f, NULL, extra);
}

static CUresult legacy_grid(CUfunction f, int w, int h)
{
	return legacy_launch(f);
}

static CUresult legacy_grid_async(CUfunction f, int w, int h, CUstream s)
{
	return legacy_launch(f);
}

/* ---- set-up ---- */

static void answers(struct cuabi_table *t)
{
	t->cuDriverGetVersion = driver_version;
	t->cuLinkCreate_v2 = link_create;
	t->cuLinkAddData_v2 = link_add;
	t->cuLinkComplete = link_complete;
	t->cuFuncGetName = func_name;
	t->cuFuncGetModule = func_module;
	t->cuKernelGetName = kernel_name;
	t->cuKernelGetLibrary = kernel_library;
	t->cuKernelGetFunction = kernel_function;
	t->cuFuncGetParamInfo = func_param;
	t->cuKernelGetParamInfo = kernel_param;
	t->cuDevicePrimaryCtxGetState = primary_state;
	t->cuDevicePrimaryCtxRetain = primary_retain;
	t->cuOccupancyMaxActiveBlocksPerMultiprocessor = active_blocks;
	t->cuOccupancyMaxActiveClusters = active_clusters;
	t->cuFuncGetAttribute = func_attribute;
	t->cuKernelGetAttribute = kernel_attribute;
}

static void launches(struct cuabi_table *t)
{
	t->cuLaunchKernel = t->cuLaunchKernel_ptsz = launch;
	t->cuLaunchKernelEx = t->cuLaunchKernelEx_ptsz = launch_ex;
	t->cuLaunchCooperativeKernel = t->cuLaunchCooperativeKernel_ptsz = cooperative;
	t->cuLaunchCooperativeKernelMultiDevice = multi_device;
	t->cuLaunch = legacy_launch;
	t->cuLaunchGrid = legacy_grid;
	t->cuLaunchGridAsync = legacy_grid_async;
	t->cuParamSetSize = param_size;
	t->cuParamSetv = param_set;
	t->cuGraphAddKernelNode = add_v1;
	t->cuGraphAddKernelNode_v2 = add_v2;
	t->cuGraphKernelNodeSetParams = set_v1;
	t->cuGraphKernelNodeSetParams_v2 = set_v2;
	t->cuGraphExecKernelNodeSetParams = exec_set_v1;
	t->cuGraphExecKernelNodeSetParams_v2 = exec_set_v2;
	t->cuGraphAddNode = add_any;
	t->cuGraphAddNode_v2 = add_any_v2;
	t->cuGraphNodeSetParams = set_any;
	t->cuGraphExecNodeSetParams = exec_set_any;
}

static unsigned char *read_file(const char *name, size_t *ret_bytes)
{
	char path[512];
	struct buf b;

	snprintf(path, sizeof(path), "%s/%s", getenv("GBPF_TEST_DATA"), name);
	buf_init(&b);
	if (buf_read_file(&b, path, 1 << 20) < 0) {
		fprintf(stderr, "cannot read %s\n", path);
		return NULL;
	}
	*ret_bytes = b.len;
	return (unsigned char *)buf_steal(&b);
}

int rig_setup(void **state)
{
	setenv("GBPF_CACHE", "off", 1); /* nothing is written into the user's home */
	if (fixture_setup(state) < 0) {
		return -1;
	}
	gates[0] = read_file("gate_64.cubin", &gate_bytes[0]);
	gates[1] = read_file("gate_1024.cubin", &gate_bytes[1]);
	gates[2] = read_file("../cubins/probe_64.sm_90.cubin", &gate_bytes[2]);
	gates[3] = read_file("../cubins/probe_1024.sm_90.cubin", &gate_bytes[3]);
	rig_image = read_file("kernels.cubin", &rig_image_bytes);
	(void)shim_resolve(0);
	answers(&shim_driver);
	shim_driver.cuFuncGetName = count_func_name;
	shim_driver.cuKernelGetName = count_kernel_name;
	launches(&shim_driver);
	/* What is not led elsewhere goes to the driver. No other thread runs yet. */
	answers((struct cuabi_table *)(void *)&shim_real);
	launches((struct cuabi_table *)(void *)&shim_real);
	return gates[0] && gates[1] && gates[2] && gates[3] && rig_image ? 0 : -1;
}

int rig_before(void **state)
{
	double_block_wanted = true;
	unsetenv("GBPF_BLOCK");
	rig_seen.calls = 0;
	rig_primary_active = 1;
	return fixture_before(state);
}
