/* Machine code with entry stubs: which images get them, and that every call that launches passes
 * the stub's argument. The stub, its compilation and the kernels are ptxas's. */
#include "code_rig.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/fatbin.h"
#include "shim/code/shim_code.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/loaded_image.h"

static uint64_t address = 0x1234;
static uint32_t number = 77;
/* With room behind them: the rig reads the stub's argument there also where none is passed. */
static void *two_params[3] = { &address, &number };

static CUmodule load(void)
{
	CUmodule m = RIG_MODULE;

	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	fake->reset();
	return m;
}

/* ---- images ---- */

/* The image that the driver was given by the last load; the copy is freed by now. */
static uint64_t loaded(void)
{
	int at = fixture_find(CUABI_IDX_cuModuleLoadDataEx);

	at = at < 0 ? fixture_find(CUABI_IDX_cuModuleLoadData) : at;
	assert_true(at >= 0);
	return fake->get((unsigned)at).a[1];
}

static void machine_code_is_patched(void **state)
{
	CUmodule m = RIG_MODULE;

	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	assert_int_not_equal(loaded(), (uintptr_t)rig_image);
	assert_int_equal(rig_self_tests, 1);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* Returns the reason. */
static enum proto_block_why is_loaded_as_it_is(void)
{
	const struct ptx_block_entry *e;
	enum proto_block_why why;
	CUmodule m = RIG_MODULE;

	fake->reset();
	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	assert_int_equal(loaded(), (uintptr_t)rig_image);
	why = shim_image_entry(m, "two", &e);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	return why;
}

static void gbpf_block_switches_it_off(void **state)
{
	setenv("GBPF_BLOCK", "ptx", 1);
	is_loaded_as_it_is();
	setenv("GBPF_BLOCK", "off", 1);
	is_loaded_as_it_is();
	setenv("GBPF_BLOCK", "0", 1);
	is_loaded_as_it_is();
}

static void latency_tenants_keep_their_code(void **state)
{
	double_block_wanted = false;
	is_loaded_as_it_is();
}

static void refused_image_is_replaced_by_original(void **state)
{
	CUmodule m = RIG_MODULE;

	fake->fail_with(CUABI_IDX_cuModuleLoadDataEx, CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadDataEx), 1);
	assert_int_equal(fake->get((unsigned)fixture_find(CUABI_IDX_cuModuleLoadData)).a[1],
			 (uintptr_t)rig_image);
	fake->reset();
	assert_int_equal(cuLaunchKernel(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL), 0);
	assert_ptr_equal(rig_seen.params[1], &number);
	assert_false(rig_seen.zero);
}

/* The caller frees it. */
static unsigned char *copy_of_image(void)
{
	unsigned char *image = malloc(rig_image_bytes);

	assert_non_null(image);
	memcpy(image, rig_image, rig_image_bytes);
	return image;
}

static void damaged_code_is_loaded_as_it_is(void **state)
{
	unsigned char *image = copy_of_image();
	CUmodule m = RIG_MODULE;

	image[0x12] = 62; /* e_machine */
	assert_int_equal(cuModuleLoadData(&m, image), CUDA_SUCCESS);
	assert_int_equal(loaded(), (uintptr_t)image);
	free(image);
}

/* The image, which is freed, is loaded as it is, and the operator learns the reason. */
static void is_noted(unsigned char *image, const char *reason)
{
	CUmodule m = RIG_MODULE;

	double_noted[0] = 0;
	assert_int_equal(cuModuleLoadData(&m, image), CUDA_SUCCESS);
	assert_int_equal(loaded(), (uintptr_t)image);
	assert_non_null(strstr(double_noted, "machine-code: machine code of "));
	assert_non_null(strstr(double_noted, reason));
	free(image);
}

static void code_that_is_not_understood_is_noted(void **state)
{
	unsigned char *image = copy_of_image();

	image[0x10] = 1; /* e_type: a relocatable file */
	is_noted(image, "unpatched: ");
}

/* Nor can any of its kernels be patched: each begins with an unknown instruction. */
static void code_without_a_patched_kernel_is_noted(void **state)
{
	unsigned char *image = copy_of_image();
	Elf64_Ehdr head;

	memcpy(&head, image, sizeof(head));
	for (unsigned i = 0; i < head.e_shnum; i++) {
		Elf64_Shdr s;

		memcpy(&s, image + head.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_flags & SHF_EXECINSTR) {
			memset(image + s.sh_offset, 0xff, 16);
		}
	}
	is_noted(image, "unpatched: none of 3 kernels can be patched; ");
	assert_non_null(strstr(double_noted, ": its first instruction is of an unknown kind"));
}

/* Debuggers and tools see the program's own code. */
static void tools_see_the_original(void **state)
{
	static const char *const variables[] = {
		"CUDA_INJECTION64_PATH=/proc/self/exe",	  "NV_SANITIZER_INJECTION_PORT_BASE=49152",
		"NV_SANITIZER_INJECTION_TRANSPORT_TYPE=", "NV_NSIGHT_INJECTION_PORT_BASE=49152",
		"NV_COMPUTE_PROFILER_PERFWORKS_DIR=/x",	  "CUDA_DEVICE_WAITS_ON_EXCEPTION=1",
		"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
	};
	void *h = dlopen(getenv("GBPF_REAL_CUDA"), RTLD_NOW | RTLD_NOLOAD);
	uint32_t *flag = h ? dlsym(h, "cudbgIpcFlag") : NULL;
	char name[64];

	for (unsigned i = 0; i < ARRAY_SIZE(variables); i++) {
		assert_int_equal(putenv(unqual(variables[i])), 0);
		assert_int_equal(is_loaded_as_it_is(), PROTO_BLOCK_TOOL);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(variables[i], "="), variables[i]);
		assert_int_equal(unsetenv(name), 0);
	}
	assert_non_null(flag);
	*flag = 1;
	assert_int_equal(is_loaded_as_it_is(), PROTO_BLOCK_TOOL);
	*flag = 0;
	dlclose(h);
}

static void settings_without_a_tool_change_nothing(void **state)
{
	static const char *const variables[] = {
		"CUDA_INJECTION64_PATH=none",
		"CUDA_INJECTION64_PATH=",
		"CUDA_DEVICE_WAITS_ON_EXCEPTION=0",
		"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0",
		"NV_SANITIZER=1",
	};
	char name[64];

	for (unsigned i = 0; i < ARRAY_SIZE(variables); i++) {
		assert_int_equal(putenv(unqual(variables[i])), 0);
		machine_code_is_patched(state);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(variables[i], "="), variables[i]);
		assert_int_equal(unsetenv(name), 0);
		fake->reset();
	}
}

/* ---- fat binaries ---- */

struct container {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes;
	struct entry {
		uint16_t kind, version;
		uint32_t header_bytes;
		uint64_t padded;
		uint32_t stored, options;
		uint16_t minor, major;
		uint32_t arch, name_at, name_bytes;
		uint64_t flags, zero, unpacked;
	} entry;
};

/* Returns a fat binary of n copies of the image for that architecture; the caller frees it. */
static unsigned char *fat_binary(unsigned n, uint32_t arch, size_t *ret_bytes)
{
	size_t padded = (rig_image_bytes + 7) / 8 * 8, each = sizeof(struct entry) + padded;
	struct container c = { .magic = PTX_FATBIN_MAGIC,
			       .version = 1,
			       .header_bytes = PTX_FATBIN_HEADER_BYTES,
			       .bytes = n * each,
			       .entry = { .kind = PTX_FATBIN_CUBIN,
					  .header_bytes = sizeof(struct entry),
					  .padded = padded,
					  .arch = arch } };
	unsigned char *p;

	*ret_bytes = PTX_FATBIN_HEADER_BYTES + n * each;
	p = calloc(1, *ret_bytes);
	assert_non_null(p);
	memcpy(p, &c, PTX_FATBIN_HEADER_BYTES);
	for (unsigned i = 0; i < n; i++) {
		unsigned char *at = p + PTX_FATBIN_HEADER_BYTES + i * each;

		memcpy(at, &c.entry, sizeof(c.entry));
		memcpy(at + sizeof(c.entry), rig_image, rig_image_bytes);
	}
	return p;
}

/* Returns whether the image is patched, given directly and in a wrapper. */
static bool fat_is_patched(unsigned n, uint32_t arch)
{
	size_t bytes;
	unsigned char *image = fat_binary(n, arch, &bytes);
	struct ptx_fatbin_wrapper w = { PTX_FATBIN_WRAPPER_MAGIC, 1, image, NULL };
	CUmodule m = RIG_MODULE;
	bool patched;

	fake->reset();
	assert_int_equal(cuModuleLoadData(&m, image), CUDA_SUCCESS);
	patched = loaded() != (uintptr_t)image;
	fake->reset();
	assert_int_equal(cuModuleLoadData(&m, &w), CUDA_SUCCESS);
	assert_int_equal(loaded() != (uintptr_t)&w, patched);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	free(image);
	return patched;
}

static void fat_binaries_for_this_device_are_patched(void **state)
{
	assert_true(fat_is_patched(1, 90));
	assert_false(fat_is_patched(1, 80));  /* another major architecture */
	assert_false(fat_is_patched(1, 100)); /* a later one */
	assert_false(fat_is_patched(2, 90));  /* which one the driver takes is not known */
}

/* ---- launches ---- */

static CUgraphNodeParams any_node(CUfunction f)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	p.kernel = (CUDA_KERNEL_NODE_PARAMS){ .func = f, .kernelParams = two_params };
	return p;
}

static const CUDA_KERNEL_NODE_PARAMS_v1 node_v1 = { .func = RIG_TWO, .kernelParams = two_params };
static const CUDA_KERNEL_NODE_PARAMS node_v2 = { .func = RIG_TWO, .kernelParams = two_params };
static const CUDA_KERNEL_NODE_PARAMS node_kern = { .kern = RIG_KERNEL, .kernelParams = two_params };
static const CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0 };

/* Each makes one call that launches two with two_params. */
static CUresult by_launch(void)
{
	return cuLaunchKernel(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL);
}
static CUresult by_launch_ptsz(void)
{
	return cuLaunchKernel_ptsz(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL);
}
static CUresult by_launch_ex(void)
{
	return cuLaunchKernelEx(&config, RIG_TWO, two_params, NULL);
}
static CUresult by_launch_ex_ptsz(void)
{
	return cuLaunchKernelEx_ptsz(&config, RIG_TWO, two_params, NULL);
}
static CUresult by_cooperative(void)
{
	return cuLaunchCooperativeKernel(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params);
}
static CUresult by_cooperative_ptsz(void)
{
	return cuLaunchCooperativeKernel_ptsz(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, two_params);
}
static CUresult by_multi_device(void)
{
	CUDA_LAUNCH_PARAMS list[] = { { .function = RIG_OTHER, .kernelParams = two_params },
				      { .function = RIG_TWO, .kernelParams = two_params } };

	return cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
}
static CUresult by_kernel_handle(void)
{
	return cuLaunchKernel((CUfunction)(void *)RIG_KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, two_params,
			      NULL);
}
static CUresult by_function_of_kernel(void)
{
	CUfunction f = NULL;

	assert_int_equal(cuKernelGetFunction(&f, RIG_KERNEL), CUDA_SUCCESS);
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL);
}
static CUresult by_node(void)
{
	return cuGraphAddKernelNode(NULL, NULL, NULL, 0, &node_v1);
}
static CUresult by_node_v2(void)
{
	return cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, &node_v2);
}
static CUresult by_node_of_kernel(void)
{
	return cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, &node_kern);
}
static CUresult by_any_node(void)
{
	CUgraphNodeParams p = any_node(RIG_TWO);

	return cuGraphAddNode(NULL, NULL, NULL, 0, &p);
}
static CUresult by_any_node_v2(void)
{
	CUgraphNodeParams p = any_node(RIG_TWO);

	return cuGraphAddNode_v2(NULL, NULL, NULL, NULL, 0, &p);
}
static CUresult by_set(void)
{
	return cuGraphKernelNodeSetParams(NULL, &node_v1);
}
static CUresult by_set_v2(void)
{
	return cuGraphKernelNodeSetParams_v2(NULL, &node_v2);
}
static CUresult by_set_any(void)
{
	CUgraphNodeParams p = any_node(RIG_TWO);

	return cuGraphNodeSetParams(NULL, &p);
}
static CUresult by_exec_set(void)
{
	return cuGraphExecKernelNodeSetParams(NULL, NULL, &node_v1);
}
static CUresult by_exec_set_v2(void)
{
	return cuGraphExecKernelNodeSetParams_v2(NULL, NULL, &node_v2);
}
static CUresult by_exec_set_any(void)
{
	CUgraphNodeParams p = any_node(RIG_TWO);

	return cuGraphExecNodeSetParams(NULL, NULL, &p);
}

static const struct way {
	const char *name;
	CUresult (*go)(void);
} ways[] = {
#define WAY(f)                                                                                     \
	{                                                                                          \
#f, f                                                                              \
	}
	WAY(by_launch),		WAY(by_launch_ptsz),   WAY(by_launch_ex),
	WAY(by_launch_ex_ptsz), WAY(by_cooperative),   WAY(by_cooperative_ptsz),
	WAY(by_multi_device),	WAY(by_kernel_handle), WAY(by_function_of_kernel),
	WAY(by_node),		WAY(by_node_v2),       WAY(by_node_of_kernel),
	WAY(by_any_node),	WAY(by_any_node_v2),   WAY(by_set),
	WAY(by_set_v2),		WAY(by_set_any),       WAY(by_exec_set),
	WAY(by_exec_set_v2),	WAY(by_exec_set_any),
};

static CUlibrary load_library(void)
{
	CUlibrary l = RIG_LIBRARY;

	assert_int_equal(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, NULL, NULL, 0),
			 CUDA_SUCCESS);
	return l;
}

static void each_launch_passes_the_argument(void **state)
{
	CUmodule m = load();
	CUlibrary l = load_library();

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		rig_seen = (struct rig_seen){ .calls = 0 };
		assert_int_equal(ways[i].go(), CUDA_SUCCESS);
		if (rig_seen.calls != 1 || !rig_seen.zero || rig_seen.params[0] != &address ||
		    rig_seen.params[1] != &number) {
			fail_msg("%s: %u calls, argument %spassed", ways[i].name, rig_seen.calls,
				 rig_seen.zero ? "" : "not ");
		}
	}
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void other_modules_kernels_get_none(void **state)
{
	CUmodule m = load();

	assert_int_equal(cuLaunchKernel(RIG_OTHER, 1, 1, 1, 1, 1, 1, 0, NULL, two_params, NULL), 0);
	assert_int_equal(rig_seen.n, 2);
	assert_ptr_equal(rig_seen.params[1], &number);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_int_equal(by_launch(), CUDA_SUCCESS); /* the handle now names something else */
	assert_false(rig_seen.zero);
}

static void kernels_without_parameters_get_one(void **state)
{
	CUmodule m = load();
	void *empty[] = { CU_LAUNCH_PARAM_END };

	assert_int_equal(cuLaunchKernel(RIG_NONE, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
	assert_true(rig_seen.zero);
	assert_int_equal(cuLaunchKernel(RIG_NONE, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, empty), 0);
	assert_int_equal(rig_seen.extra_bytes, 64);
	assert_true(rig_is_zero(rig_seen.buffer));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void kernels_with_many_parameters_get_one_more(void **state)
{
	CUmodule m = load();
	uint32_t v[150];
	void *params[150];

	for (unsigned i = 0; i < 150; i++) {
		params[i] = &v[i];
	}
	assert_int_equal(cuLaunchKernel(RIG_MANY, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), 0);
	assert_true(rig_seen.zero);
	assert_memory_equal(rig_seen.params, params, sizeof(params));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static CUresult launch_buffer(size_t bytes)
{
	struct {
		uint64_t to;
		uint32_t n, behind;
		uint64_t more[4];
	} buffer = { address, number, 0xaaaaaaaa, { ~UINT64_C(0), 2, 3, 4 } };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	return cuLaunchKernel(RIG_TWO, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
}

static void parameter_buffers_are_extended(void **state)
{
	CUmodule m = load();

	assert_int_equal(launch_buffer(12), CUDA_SUCCESS);
	assert_int_equal(rig_seen.extra_bytes, 16 + 64);
	assert_memory_equal(rig_seen.buffer, &address, 8);
	assert_memory_equal(rig_seen.buffer + 8, &number, 4);
	assert_true(rig_is_zero(rig_seen.buffer + 16));
	/* Longer buffers never reach the argument; the driver judges their length. */
	assert_int_equal(launch_buffer(48), CUDA_SUCCESS);
	assert_int_equal(rig_seen.extra_bytes, 48 + 64);
	assert_true(rig_is_zero(rig_seen.buffer + 16));
	assert_int_equal(launch_buffer(11), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void legacy_launches_set_the_argument(void **state)
{
	CUmodule m = load();

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(cuParamSetv(RIG_TWO, 0, &address, 8), CUDA_SUCCESS);
		assert_int_equal(cuParamSetSize(RIG_TWO, 12), CUDA_SUCCESS);
		assert_int_equal(i == 0	  ? cuLaunch(RIG_TWO)
				 : i == 1 ? cuLaunchGrid(RIG_TWO, 1, 1)
					  : cuLaunchGridAsync(RIG_TWO, 1, 1, NULL),
				 CUDA_SUCCESS);
		assert_int_equal(rig_seen.extra_bytes, 16 + 64);
		assert_memory_equal(rig_seen.buffer, &address, 8);
		assert_true(rig_is_zero(rig_seen.buffer + 16));
	}
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* ---- queries ---- */

static void queries_answer_for_the_original(void **state)
{
	CUmodule m = load();
	size_t offset, bytes;
	int n = 0;

	assert_int_equal(cuFuncGetParamInfo(RIG_TWO, 1, &offset, &bytes), CUDA_SUCCESS);
	assert_int_equal(bytes, 4);
	assert_int_equal(cuFuncGetParamInfo(RIG_TWO, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, RIG_TWO), CUDA_SUCCESS);
	assert_int_equal(n, 8);
	assert_int_equal(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, RIG_OTHER), 0);
	assert_int_equal(n, 22);
	assert_int_equal(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, RIG_TWO),
			 CUDA_SUCCESS);
	assert_int_equal(n, 1024);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* ---- the self-test ---- */

/* ---- block level ---- */

static CUstream stream;

/* Launches two with the attributes, and returns what the scheduler got. */
static const struct sched_launch *launched(CUlaunchAttribute *attrs, unsigned n, CUfunction f)
{
	CUlaunchConfig c = { 64, 1, 1, 32, 1, 1, 0, stream, attrs, n };

	double_why = PROTO_BLOCK_UNKNOWN;
	assert_int_equal(cuLaunchKernelEx(&c, f, two_params, NULL), CUDA_SUCCESS);
	return &double_queue(stream)->launch;
}

static CUmodule load_named(void)
{
	CUfunction f = RIG_TWO;
	CUmodule m = load();

	stream = fixture_stream(CU_STREAM_NON_BLOCKING);
	assert_int_equal(cuModuleGetFunction(&f, m, "two"), CUDA_SUCCESS);
	return m;
}

static void machine_code_may_run_at_block_level(void **state)
{
	CUmodule m = load_named();
	const struct sched_launch *l = launched(NULL, 0, RIG_TWO);

	assert_true(l->block_ok);
	assert_int_equal(l->stop, GBPF_STOP_MACHINE_CODE);
	assert_int_equal(double_why, PROTO_BLOCK_OK);
	assert_true(rig_seen.zero); /* the scheduler did not ask for the block level */
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* The statistics say so only of a kernel that has hung. */
static void an_excluded_clone_is_not_launched(void **state)
{
	CUmodule m = load_named();
	struct shim_clone *t, alive;

	assert_true(launched(NULL, 0, RIG_TWO)->block_ok);
	t = shim_clone_get(RIG_TWO);
	alive = *t;
	t->excluded = SHIM_CLONE_FORMER;
	t->code = NULL; /* as freed with the load: must not be read */
	t->entry = NULL;
	assert_false(launched(NULL, 0, RIG_TWO)->block_ok);
	assert_int_equal(double_why, PROTO_BLOCK_UNKNOWN);
	*t = alive;
	t->excluded = SHIM_CLONE_HUNG;
	assert_false(launched(NULL, 0, RIG_TWO)->block_ok);
	assert_int_equal(double_why, PROTO_BLOCK_HUNG);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* Only the program's thread can name the stream, so the agent cannot launch missing blocks. */
static void a_threads_own_stream_has_no_block_level(void **state)
{
	CUstream s = CU_STREAM_PER_THREAD;
	CUmodule m = load_named();

	double_why = PROTO_BLOCK_UNKNOWN;
	assert_int_equal(cuLaunchKernel(RIG_TWO, 64, 1, 1, 32, 1, 1, 0, s, two_params, NULL), 0);
	assert_false(double_queue(s)->launch.block_ok);
	assert_int_equal(double_why, PROTO_BLOCK_THREAD);
	assert_true(launched(NULL, 0, RIG_TWO)->block_ok);
	assert_int_equal(double_why, PROTO_BLOCK_OK);
	assert_int_equal(
		cuLaunchKernel_ptsz(RIG_TWO, 64, 1, 1, 32, 1, 1, 0, NULL, two_params, NULL), 0);
	assert_int_equal(double_why, PROTO_BLOCK_THREAD);
	assert_true(rig_seen.zero);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

/* Another handle's meaning changes, so the kernel is looked up again. */
static void the_reason_stays_known(void **state)
{
	CUmodule m = load_named();

	for (unsigned i = 0; i < 2; i++) {
		double_why = PROTO_BLOCK_UNKNOWN;
		assert_int_equal(cuLaunchCooperativeKernel(RIG_TWO, 64, 1, 1, 32, 1, 1, 0, stream,
							   two_params),
				 0);
		assert_int_equal(double_why, PROTO_BLOCK_COOPERATIVE);
		add_acqrel(&shim.kernel_generation, 1u);
	}
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void attributes_decide_about_block_level(void **state)
{
	static const struct {
		CUlaunchAttribute a;
		enum proto_block_why why;
	} cases[] = {
		{ { .id = CU_LAUNCH_ATTRIBUTE_IGNORE }, PROTO_BLOCK_OK },
		{ { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 1, 1 } },
		  PROTO_BLOCK_OK },
		{ { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 0, 1 } },
		  PROTO_BLOCK_CLUSTER },
		{ { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 3, 1, 1 } },
		  PROTO_BLOCK_CLUSTER }, /* a grid of 64 */
		{ { .id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
		    .value.preferredClusterDim = { 4, 1, 1 } },
		  PROTO_BLOCK_ATTRIBUTE },
		{ { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE },
		  PROTO_BLOCK_OK },
		{ { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION }, PROTO_BLOCK_OK },
		{ { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 },
		  PROTO_BLOCK_COOPERATIVE },
		{ { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY }, PROTO_BLOCK_ATTRIBUTE },
		{ { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT }, PROTO_BLOCK_ATTRIBUTE },
		{ { .id = (CUlaunchAttributeID)99 }, PROTO_BLOCK_ATTRIBUTE },
	};
	CUmodule m = load_named();

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		CUlaunchAttribute a = cases[i].a;
		bool ok = launched(&a, 1, RIG_TWO)->block_ok;

		if (ok != (cases[i].why == PROTO_BLOCK_OK) ||
		    (double_why != PROTO_BLOCK_UNKNOWN && double_why != cases[i].why)) {
			fail_msg("case %u: %d, %d instead of %d", i, ok, double_why, cases[i].why);
		}
		assert_true(rig_seen.zero);
	}
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static void kernels_that_communicate_are_never_stopped(void **state)
{
	struct cubin_kernel k = { .name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" };

	assert_int_equal(shim_code_why(&k), PROTO_BLOCK_COLLECTIVE);
	k.name = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
	assert_int_equal(shim_code_why(&k), PROTO_BLOCK_COLLECTIVE);
	k.name = "_ZN7nvshmem4wait";
	assert_int_equal(shim_code_why(&k), PROTO_BLOCK_COLLECTIVE);
	k.name = "gemm";
	assert_int_equal(shim_code_why(&k), PROTO_BLOCK_OK);
	k.blocks_are_clusters = true;
	assert_int_equal(shim_code_why(&k), PROTO_BLOCK_CLUSTER);
}

#define TEST(f) cmocka_unit_test_setup(f, rig_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(machine_code_is_patched),
		TEST(gbpf_block_switches_it_off),
		TEST(latency_tenants_keep_their_code),
		TEST(refused_image_is_replaced_by_original),
		TEST(damaged_code_is_loaded_as_it_is),
		TEST(code_that_is_not_understood_is_noted),
		TEST(code_without_a_patched_kernel_is_noted),
		TEST(tools_see_the_original),
		TEST(settings_without_a_tool_change_nothing),
		TEST(fat_binaries_for_this_device_are_patched),
		TEST(each_launch_passes_the_argument),
		TEST(other_modules_kernels_get_none),
		TEST(kernels_without_parameters_get_one),
		TEST(kernels_with_many_parameters_get_one_more),
		TEST(parameter_buffers_are_extended),
		TEST(legacy_launches_set_the_argument),
		TEST(queries_answer_for_the_original),
		TEST(machine_code_may_run_at_block_level),
		TEST(an_excluded_clone_is_not_launched),
		TEST(a_threads_own_stream_has_no_block_level),
		TEST(the_reason_stays_known),
		TEST(attributes_decide_about_block_level),
		TEST(kernels_that_communicate_are_never_stopped),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
