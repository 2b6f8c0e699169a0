// Two devices: the current one of each thread, properties, attributes, copies between them, limits, versions.
#include "runtime.h"

extern "C" {
typedef unsigned long pthread_t;
int pthread_create(pthread_t *ret, const void *attributes, void *(*fn)(void *), void *arg);
int pthread_join(pthread_t thread, void **ret);
void *dlsym(void *handle, const char *name);
}

__device__ int on_each;

__global__ void add(int *p)
{
	*p += ++on_each;
}

static void *other_thread(void *)
{
	int device;

	OK(cudaGetDevice(&device));
	CHECK(device == 0);
	return nullptr;
}

static void properties()
{
	cudaDeviceProp p;
	int value;

#if CUDART_ABI == 12
	char old[728 + 64];

	OK(cudaGetDeviceProperties_v2(&p, 1));
	for (char &c : old) {
		c = 77;
	}
	OK(cudaGetDeviceProperties((cudaDeviceProp *)old, 1)); // of programs that CUDA 11 compiled
	for (int i = 0; i < 728; i++) {
		CHECK(old[i] == ((char *)&p)[i]);
	}
	CHECK(old[728] == 77);
	CHECK(p.clockRate > 0);
#else
	OK(cudaGetDeviceProperties(&p, 1));
#endif
	CHECK(p.major == 8 && p.minor == 6 && p.warpSize == 32 && p.name[0] != 0);
	CHECK(p.maxThreadsPerBlock == 1024 && p.maxThreadsDim[2] == 64 && p.maxGridSize[0] == 0x7fffffff);
	CHECK(p.sharedMemPerBlock == 48 << 10 && p.totalGlobalMem > 0 && p.multiProcessorCount == 4);
	CHECK(p.sharedMemPerBlockOptin == 99 << 10 && p.memoryPoolsSupported == 1 && p.unifiedAddressing == 1);
	OK(cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
	CHECK(value == 32);
	FAILS(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
	FAILS(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0));
}

int main()
{
	CUdriverProcAddressQueryResult found;
	int device, value, *p[2], driver, runtime;
	unsigned flags;
	pthread_t thread;
	size_t limit;
	void *fn;

	OK(cudaDriverGetVersion(&driver));
	OK(cudaRuntimeGetVersion(&runtime));
	CHECK(driver >= 12000 && runtime / 1000 == CUDART_ABI);
	OK(cudaGetDeviceCount(&value));
	CHECK(value == 2);
	properties();
	OK(cudaGetDevice(&device));
	CHECK(device == 0);
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		OK(cudaMalloc((void **)&p[i], 4));
		OK(cudaMemset(p[i], 0, 4));
		for (int n = 0; n <= i; n++) {
			add<<<1, 1>>>(p[i]);
		}
		OK(cudaDeviceSynchronize());
	}
	OK(cudaMemcpy(&value, p[1], 4, cudaMemcpyDeviceToHost));
	CHECK(value == 3); // each device has a variable of its own
	pthread_create(&thread, nullptr, other_thread, nullptr);
	pthread_join(thread, nullptr);
	OK(cudaGetDevice(&device));
	CHECK(device == 1);
	OK(cudaMemcpyPeer(p[0], 0, p[1], 1, 4));
	OK(cudaSetDevice(0));
	OK(cudaMemcpy(&value, p[0], 4, cudaMemcpyDefault));
	CHECK(value == 3);

	OK(cudaDeviceGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK(limit > 0);
	FAILS(cudaErrorInvalidValue, cudaDeviceGetLimit(&limit, (CUlimit)99));
	OK(cudaGetDeviceFlags(&flags));
	CHECK(flags & CU_CTX_MAP_HOST);
	OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 12000, 0, &found));
	CHECK(fn && found == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cudaGetDriverEntryPoint("cuNothing", &fn, 0, &found));
	CHECK(!fn && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cudaProfilerStart());
	OK(cudaProfilerStop());
	OK(cudaDeviceReset());
	OK(cudaMalloc((void **)&p[0], 4));
	add<<<1, 1>>>(p[0]);
	OK(cudaDeviceSynchronize());
	return 0;
}
