// What NVIDIA's runtime 13.0 returned on an H100 (driver 580.159.04) for calls with ordinary and wrong arguments, in this
// order, and which of them it kept as the last error: all but success and cudaErrorNotReady.
#include "runtime.h"

extern "C" int strcmp(const char *a, const char *b);

__device__ int variable;

__global__ void k(int *p)
{
	*p = variable;
}

static int wrong;

static void returned(int line, const char *call, int fact, cudaError_t e)
{
	cudaError_t kept = fact == cudaErrorNotReady ? cudaSuccess : (cudaError_t)fact, last = cudaGetLastError();

	if (e != fact || last != kept) {
		printf("probes.cu:%d: %s: %d (last error %d), NVIDIA's %d\n", line, call, e, last, fact);
		wrong++;
	}
}

#define P(fact, call) returned(__LINE__, #call, fact, call)
#define LAUNCHED(fact, ...)                                                                        \
	do {                                                                                       \
		__VA_ARGS__;                                                                       \
		P(fact, cudaPeekAtLastError());                                                    \
	} while (0)

static char host[4096];

static void names(void)
{
	const char *fact[1000] = {};

#define FACT(value, name) fact[value] = #name;
#include "error_names.def"
	for (int i = 0; i < 1000; i++) {
		const char *name = cudaGetErrorName((cudaError_t)i), *want = fact[i] ? fact[i] : "unrecognized error code";

		if (strcmp(name, want) != 0) {
			printf("error %d: %s, NVIDIA's %s\n", i, name, want);
			wrong++;
		}
	}
#undef FACT
#define FACT(value, name) CHECK(name == value);
#include "error_names.def"
}

static void devices(void)
{
	int dev = -1, v = 0;
	static cudaDeviceProp pr;

	P(0, cudaGetDevice(&dev));
	P(101, cudaSetDevice(5));
	P(101, cudaSetDevice(-1));
	P(101, cudaGetDeviceProperties(&pr, 9));
	P(1, cudaDeviceGetAttribute(&v, (CUdevice_attribute)9999, 0));
	P(101, cudaDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 7));
	P(217, cudaDeviceEnablePeerAccess(0, 0));
	P(0, cudaDeviceCanAccessPeer(&v, 0, 0));
	P(101, cudaDeviceCanAccessPeer(&v, 0, 3));
	P(1, cudaDriverGetVersion(nullptr));
	P(0, cudaRuntimeGetVersion(&v));
	CHECK(v / 1000 == CUDART_ABI);
}

static void memory(void)
{
	void *p = nullptr;
	size_t a = 1;

	P(0, cudaMalloc(&p, 0));
	CHECK(p == nullptr);
	P(1, cudaMalloc(nullptr, 4));
	P(2, cudaMalloc(&p, 1ull << 50));
	P(0, cudaFree(nullptr));
	P(1, cudaFree(host));
	P(1, cudaFreeHost(host));
	P(0, cudaFreeHost(nullptr));
	P(1, cudaMemcpy(nullptr, host, 4, cudaMemcpyHostToDevice));
	P(21, cudaMemcpy(host, host + 64, 4, (cudaMemcpyKind)9));
	P(0, cudaMemcpy(host, host + 64, 4, cudaMemcpyHostToHost));
	P(0, cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
	P(1, cudaMemset(nullptr, 0, 4));
	P(0, cudaMemset(nullptr, 0, 0));
	P(0, cudaMalloc(&p, 4096));
	P(1, cudaMemcpy(p, host, 64, cudaMemcpyDeviceToHost));
	P(1, cudaMemcpy(host, p, 64, cudaMemcpyHostToDevice));
	P(0, cudaMemcpy(host, p, 64, cudaMemcpyDefault));
	P(0, cudaMemcpy(p, p, 64, cudaMemcpyHostToHost));
	P(1, cudaMemcpy(p, host, 1 << 30, cudaMemcpyHostToDevice));
	P(1, cudaHostRegister(nullptr, 64, 0));
	P(1, cudaHostRegister(host, 0, 0));
	P(713, cudaHostUnregister(host));
	P(0, cudaHostAlloc(&p, 0, 0));
	P(1, cudaHostAlloc(&p, 64, 99));
	P(1, cudaHostGetDevicePointer(&p, host, 0));
	P(0, cudaMallocManaged(&p, 0, 1));
	P(1, cudaMallocManaged(&p, 64, 9));
	P(0, cudaMallocPitch(&p, &a, 0, 0));
	CHECK(p == nullptr && a == 0);
	P(0, cudaMallocAsync(&p, 0, nullptr));
	P(0, cudaFreeAsync(nullptr, nullptr));
	P(1, cudaIpcOpenMemHandle(&p, cudaIpcMemHandle_t(), 1));
}

static void streams_and_events(void)
{
	cudaStream_t st;
	cudaEvent_t e1, e2;
	float ms;

	P(1, cudaStreamCreate(nullptr));
	P(0, cudaStreamCreate(&st));
	P(0, cudaStreamQuery(st)); // nothing is in it
	P(400, cudaStreamDestroy(nullptr));
	P(0, cudaEventCreate(&e1));
	P(0, cudaEventCreate(&e2));
	P(400, cudaEventElapsedTime(&ms, e1, e2));
	P(0, cudaEventQuery(e1));
	P(0, cudaEventSynchronize(e1));
	P(400, cudaEventDestroy(nullptr));
}

static void kernels(void)
{
	void *p = nullptr;
	cudaFuncAttributes fa;
	int v;

	P(0, cudaMalloc(&p, 64));
#if CUDART_ABI == 13
	LAUNCHED(1, (k<<<0, 1>>>((int *)p)));
	LAUNCHED(1, (k<<<1, 2000>>>((int *)p)));
#endif
	LAUNCHED(1, (k<<<1, 1, 1 << 20>>>((int *)p)));
	LAUNCHED(0, (k<<<1, 1>>>((int *)p)));
	P(98, cudaLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, nullptr));
	P(0, cudaFuncGetAttributes(&fa, (const void *)k));
	P(98, cudaFuncGetAttributes(&fa, nullptr));
#if CUDART_ABI == 13
	P(400, cudaLaunchKernel(host, dim3(1), dim3(1), nullptr, 0, nullptr));
	P(400, cudaFuncGetAttributes(&fa, host));
	P(400, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&v, host, 64, 0));
#endif
	P(1, cudaFuncSetAttribute((const void *)k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
	P(1, cudaFuncSetAttribute((const void *)k, (CUfunction_attribute)77, 1));
	P(1, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&v, (const void *)k, 0, 0));
	P(0, cudaDeviceSynchronize());
}

static void symbols_and_arrays(void)
{
	cudaChannelFormatDesc cd = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindSigned);
	cudaArray_t arr;
	void *p;
	size_t a;

	P(13, cudaGetSymbolAddress(&p, host));
	P(0, cudaGetSymbolSize(&a, &variable));
	P(1, cudaMemcpyToSymbol(&variable, host, 4, 4, cudaMemcpyHostToDevice));
	P(1, cudaMemcpyToSymbol(&variable, host, 8, 0, cudaMemcpyHostToDevice));
	P(21, cudaMemcpyFromSymbol(host, &variable, 4, 0, cudaMemcpyHostToDevice));
	P(1, cudaMallocArray(&arr, &cd, 0, 0, 0));
	P(0, cudaMallocArray(&arr, &cd, 64, 64, 0));
	P(0, cudaFreeArray(nullptr));
}

static void captures_and_graphs(void)
{
	cudaStream_t st;
	cudaGraph_t g;
	cudaGraphExec_t ge;
	void *p;

	P(0, cudaStreamCreate(&st));
	P(900, cudaStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
	P(0, cudaStreamBeginCapture(st, CU_STREAM_CAPTURE_MODE_GLOBAL));
	P(900, cudaMalloc(&p, 64));
	P(901, cudaStreamEndCapture(st, &g));
	P(1, cudaGraphCreate(&g, 1));
	P(0, cudaGraphCreate(&g, 0));
#if CUDART_ABI == 13
	P(0, cudaGraphInstantiate(&ge, g, 0));
#endif
	P(1, cudaGraphLaunch(nullptr, nullptr));
}

static void limits_and_flags(void)
{
	size_t a;
	unsigned u;

	P(1, cudaDeviceSetLimit((CUlimit)99, 1));
	P(1, cudaDeviceGetLimit(&a, (CUlimit)99));
	P(0, cudaSetDeviceFlags(8));
	P(1, cudaSetDeviceFlags(0xffff));
	P(0, cudaGetDeviceFlags(&u));
	CHECK(u == 8);
}

int main()
{
	names();
	devices();
	memory();
	streams_and_events();
	kernels();
	symbols_and_arrays();
	captures_and_graphs();
	limits_and_flags();
	return wrong != 0;
}
