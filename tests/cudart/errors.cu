// The error model: the last error of each thread, its reset, what launches report, names, and errors that stay.
#include "runtime.h"

extern "C" {
typedef unsigned long pthread_t;
int pthread_create(pthread_t *ret, const void *attributes, void *(*fn)(void *), void *arg);
int pthread_join(pthread_t thread, void **ret);
int strcmp(const char *a, const char *b);
}

static const cudaError_t BAD_CONFIGURATION = CUDART_ABI == 13 ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
static const cudaError_t NO_KERNEL = CUDART_ABI == 13 ? cudaErrorInvalidResourceHandle : cudaErrorInvalidDeviceFunction;

__global__ void nothing(int *)
{
}

__global__ void fault(int *p)
{
	*p = 1;
}

static void *other_thread(void *)
{
	CHECK(cudaPeekAtLastError() == cudaSuccess); // of this thread
	OK(cudaDeviceSynchronize());
	return nullptr;
}

int main()
{
	pthread_t thread;
	void *p;
	int n = -1;

	CHECK(cudaGetLastError() == cudaSuccess);
	OK(cudaGetDeviceCount(&n));
	CHECK(n == 1);
	FAILS(cudaErrorInvalidDevice, cudaSetDevice(1));
	FAILS(cudaErrorInvalidDevice, cudaSetDevice(-1));
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
	pthread_create(&thread, nullptr, other_thread, nullptr);
	pthread_join(thread, nullptr);
	OK(cudaSetDevice(0)); // a success leaves the last error
	CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
	CHECK(cudaGetLastError() == cudaSuccess);

	FAILS(cudaErrorInvalidValue, cudaMalloc(nullptr, 4));
	FAILS(cudaErrorMemoryAllocation, cudaMalloc(&p, 1ull << 50));
	CHECK(p == nullptr);
	OK(cudaMalloc(&p, 0));
	CHECK(p == nullptr);
	FAILS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(&n, &n, 4, (cudaMemcpyKind)9));
	FAILS(NO_KERNEL, cudaLaunchKernel(&n, dim3(1), dim3(1), nullptr, 0, nullptr));
	FAILS(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, nullptr));
	CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
	nothing<<<0, 1>>>(nullptr);
	CHECK(cudaGetLastError() == BAD_CONFIGURATION);
	nothing<<<1, 2000>>>(nullptr);
	CHECK(cudaGetLastError() == BAD_CONFIGURATION);
	nothing<<<1, dim3(1, 1, 65)>>>(nullptr);
	CHECK(cudaGetLastError() == BAD_CONFIGURATION);
	nothing<<<1, 1, 1 << 20>>>(nullptr);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue);
	nothing<<<1, 1>>>(nullptr);
	CHECK(cudaGetLastError() == cudaSuccess);
	FAILS(cudaErrorMissingConfiguration, __cudaPopCallConfiguration(nullptr, nullptr, nullptr, nullptr));
	CHECK(cudaGetLastError() == cudaErrorMissingConfiguration);

	CHECK(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0);
	CHECK(strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
	CHECK(strcmp(cudaGetErrorString((cudaError_t)12345), "unrecognized error code") == 0);
	FAILS(cudaErrorNotSupported, cudaGetExportTable((const void **)&p, nullptr));

	fault<<<1, 1>>>(nullptr);
	FAILS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
	FAILS(cudaErrorIllegalAddress, cudaMalloc(&p, 4)); // the context is lost
	OK(cudaDeviceReset());
	CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
	OK(cudaMalloc(&p, 4)); // a new one
	nothing<<<1, 1>>>(nullptr);
	OK(cudaDeviceSynchronize());
	return 0;
}
