// Kernels as objects: attributes, dynamic shared memory, occupancy, handles, cooperative and extended launches, libraries.
#include "runtime.h"

extern "C" {
int strcmp(const char *a, const char *b);
int snprintf(char *out, size_t cap, const char *format, ...);
}

extern "C" __global__ void sum(int *out, int n)
{
	extern __shared__ int room[];

	room[THREAD] = n * THREAD;
	__nvvm_bar_sync(0);
	if (THREAD == 0) {
		*out = 0;
		for (int i = 0; i < SREG(ntid_x); i++) {
			*out += room[i];
		}
	}
}

__global__ void plain(int *out)
{
	__shared__ int fixed[64];

	fixed[THREAD] = THREAD;
	__nvvm_bar_sync(0);
	*out = fixed[63 - THREAD];
}

static const char library_text[] = ".version 7.0\n.target sm_80\n.address_size 64\n.global .u32 word = 6;\n"
				   ".visible .entry set(.param .u64 p)\n{\n.reg .u64 %a;\n.reg .u32 %v;\n"
				   "ld.param.u64 %a, [p];\nld.global.u32 %v, [word];\nst.global.u32 [%a], %v;\nret;\n}\n";

static void libraries(int *p)
{
	cudaLibrary_t library;
	cudaKernel_t kernel;
	void *args[] = { &p }, *word;
	size_t bytes;
	int value;

	OK(cudaLibraryLoadData(&library, library_text, nullptr, nullptr, 0, nullptr, nullptr, 0));
	OK(cudaLibraryGetKernel(&kernel, library, "set"));
	FAILS(cudaErrorSymbolNotFound, cudaLibraryGetKernel(&kernel, library, "missing"));
	OK(cudaLibraryGetGlobal(&word, &bytes, library, "word"));
	CHECK(bytes == 4);
	OK(cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), args, 0, nullptr)); // a handle in place of a function
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 6);
	OK(cudaLibraryUnload(library));
}

// nvcc gives unrolled matrix products tens of thousands of registers.
static void many_registers(int *p)
{
	static char text[4 << 20];
	const int n = 40000;
	int at = snprintf(text, sizeof(text), ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry sum(.param .u64 p)\n{\n"
			  ".reg .u64 %%a;\n.reg .u32 %%r<%d>;\nld.param.u64 %%a, [p];\nld.global.u32 %%r0, [%%a];\n", n + 1);
	cudaLibrary_t library;
	cudaKernel_t kernel;
	void *args[] = { &p };
	int value = 7;

	for (int i = 0; i < n; i++) {
		at += snprintf(text + at, sizeof(text) - at, "add.u32 %%r%d, %%r%d, 1;\n", i + 1, i);
	}
	snprintf(text + at, sizeof(text) - at, "st.global.u32 [%%a], %%r%d;\nret;\n}\n", n);
	OK(cudaMemcpy(p, &value, 4, cudaMemcpyHostToDevice));
	OK(cudaLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
	OK(cudaLibraryGetKernel(&kernel, library, "sum"));
	OK(cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), args, 0, nullptr));
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 7 + n);
	OK(cudaLibraryUnload(library));
}

int main()
{
	cudaLaunchConfig_t config = {};
	cudaFuncAttributes a;
	cudaFunction_t function;
	cudaKernel_t kernel;
	const char *name;
	int *p, value, blocks, n = 2;
	size_t offset, bytes;
	void *args[] = { &p, &n };

	OK(cudaMalloc((void **)&p, 4));
	OK(cudaFuncGetAttributes(&a, (void *)plain));
	CHECK(a.sharedSizeBytes == 256 && a.maxThreadsPerBlock == 1024 && a.binaryVersion > 0 && a.numRegs > 0);
	FAILS((CUDART_ABI == 13 ? cudaErrorInvalidResourceHandle : cudaErrorInvalidDeviceFunction),
	      cudaFuncGetAttributes(&a, &n));

	sum<<<1, 32, 32 * 4>>>(p, 1);
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 496);
	FAILS(cudaErrorInvalidValue, cudaLaunchKernel((void *)sum, dim3(1), dim3(32), args, 64 << 10, nullptr));
	OK(cudaFuncSetAttribute((void *)sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
	OK(cudaLaunchKernel((void *)sum, dim3(1), dim3(32), args, 64 << 10, nullptr));
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 992);

	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (void *)sum, 1024, 0));
	CHECK(blocks == 1);
	OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, (void *)plain, 1, 64));
	CHECK(bytes > 0);
	OK(cudaFuncGetName(&name, (void *)sum));
	CHECK(strcmp(name, "sum") == 0);
	OK(cudaFuncGetParamInfo((void *)sum, 1, &offset, &bytes));
	CHECK(offset == 8 && bytes == 4);
	OK(cudaGetFuncBySymbol(&function, (void *)sum));
	OK(cudaGetKernel(&kernel, (void *)sum));
	n = 3;
	OK(__cudaLaunchKernel(kernel, dim3(1), dim3(4), args, 16, nullptr));
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 18);

	OK(cudaLaunchCooperativeKernel((void *)sum, dim3(1), dim3(8), args, 32, nullptr));
	config.gridDim = { 1, 1, 1 };
	config.blockDim = { 16, 1, 1 };
	config.dynamicSmemBytes = 64;
	OK(cudaLaunchKernelExC(&config, (void *)sum, args));
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 360);
	libraries(p);
	many_registers(p);
	return 0;
}
