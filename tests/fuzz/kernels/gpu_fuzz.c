/* Runs random kernels on the GPU of libcuda.so.1 and compares with the plain reference. */
#include <stdlib.h>

#include "cuabi/api.h"
#include "fuzz_main.h"

static CUdeviceptr memory[3];
static unsigned long level = 4; /* GPU_FUZZ_LEVEL: optimizer level, 0 to 4 */

static bool said(CUresult r, const char *what)
{
	const char *name = "?";

	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
		fprintf(stderr, "%s: %s\n", what, name);
	}
	return r != CUDA_SUCCESS;
}

static bool run(void *arg, const struct kernel *k, const char *ptx, size_t bytes, const uint8_t *in,
		uint8_t *out, uint8_t *sums)
{
	char log[2048] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_OPTIMIZATION_LEVEL };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log), (void *)(uintptr_t)level };
	void *params[] = { &memory[0], &memory[1], &memory[2] };
	CUfunction f;
	CUmodule m;
	bool bad;

	if (said(cuModuleLoadDataEx(&m, ptx, 3, options, values), "module")) {
		fprintf(stderr, "%s\n", log);
		return false;
	}
	bad = said(cuModuleGetFunction(&f, m, "k"), "function") ||
	      said(cuMemcpyHtoD_v2(memory[0], in, LANES_MAX * IN_BYTES), "copy") ||
	      said(cuMemsetD8_v2(memory[1], 0, LANES_MAX * OUT_BYTES), "set") ||
	      said(cuMemsetD8_v2(memory[2], 0, SUMS_BYTES), "set") ||
	      said(cuLaunchKernel(f, BLOCKS, 1, 1, kernel_threads(k), 1, 1, 0, NULL, params, NULL),
		   "launch") ||
	      said(cuCtxSynchronize(), "kernel") ||
	      said(cuMemcpyDtoH_v2(out, memory[1], LANES_MAX * OUT_BYTES), "copy") ||
	      said(cuMemcpyDtoH_v2(sums, memory[2], SUMS_BYTES), "copy");
	if (bad) {
		fprintf(stderr, "the context is lost at seed %llu\n",
			(unsigned long long)kernel_seed(k));
		exit(3);
	}
	cuModuleUnload(m);
	return true;
}

int main(int argc, char **argv)
{
	struct fuzz_target gpu = { "gpu", run, NULL };
	CUcontext context;
	CUdevice device;

	level = getenv("GPU_FUZZ_LEVEL") ? strtoul(getenv("GPU_FUZZ_LEVEL"), NULL, 10) : level;
	if (said(cuInit(0), "cuInit") || said(cuDeviceGet(&device, 0), "cuDeviceGet") ||
	    said(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate") ||
	    said(cuMemAlloc_v2(&memory[0], LANES_MAX * IN_BYTES), "memory") ||
	    said(cuMemAlloc_v2(&memory[1], LANES_MAX * OUT_BYTES), "memory") ||
	    said(cuMemAlloc_v2(&memory[2], SUMS_BYTES), "memory")) {
		return 3;
	}
	return fuzz_main(argc, argv, &gpu, 1);
}
