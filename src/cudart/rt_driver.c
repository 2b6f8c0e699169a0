/* The driver library: found by the loader under its usual name, so that gBPF's shim, the soft GPU
 * and NVIDIA's driver serve alike. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuabi/lookup.h"
#include "cudart/rt_api.h"
#include "cudart/rt_int.h"

struct cuabi_table cudart_driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t started = cudaErrorInsufficientDriver; /* written by start */
static int n_devices;
static void *library;

static void start(void)
{
	int version = 0;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		return;
	}
	cuabi_table_load(&cudart_driver, library);
	started = cudart_from_driver(cudart_driver.cuInit(0));
	if (!started) {
		started = cudart_from_driver(cudart_driver.cuDriverGetVersion(&version));
	}
	if (!started && version < CUDART_ABI * 1000) {
		started = cudaErrorInsufficientDriver;
	}
	if (!started) {
		started = cudart_from_driver(cudart_driver.cuDeviceGetCount(&n_devices));
	}
	if (!started && n_devices == 0) {
		started = cudaErrorNoDevice;
	}
}

cudaError_t cudart_enter(void)
{
	pthread_once(&once, start);
	return started;
}

int cudart_devices(void)
{
	return n_devices;
}

cudaError_t cudart_get_device_count(int *ret)
{
	cudaError_t e = cudart_enter();

	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = e ? 0 : n_devices;
	return e;
}

/* Without a driver the version is 0, and no error. */
cudaError_t cudart_driver_get_version(int *ret)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = 0;
	pthread_once(&once, start);
	return library ? cudart_from_driver(cudart_driver.cuDriverGetVersion(ret)) : cudaSuccess;
}

cudaError_t cudart_runtime_get_version(int *ret)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	*ret = CUDART_ABI * 1000 + (CUDART_ABI == 12 ? 90 : 0);
	return cudaSuccess;
}

/* NVIDIA's tables of private functions: there are none here. */
cudaError_t cudart_get_export_table(const void **ret, const CUuuid *id)
{
	(void)id;
	if (ret) {
		*ret = NULL;
	}
	return cudaErrorNotSupported;
}

cudaError_t cudart_get_driver_entry_point_by_version(const char *name, void **ret,
						     unsigned int version, unsigned long long flags,
						     CUdriverProcAddressQueryResult *result)
{
	CUdriverProcAddressQueryResult own = CU_GET_PROC_ADDRESS_SUCCESS;
	CUresult r;

	if (!name || !ret) {
		return cudaErrorInvalidValue;
	}
	*ret = NULL;
	r = cudart_driver.cuGetProcAddress_v2(name, ret, (int)version, flags, &own);
	if (result) { /* the result says what is missing, the error does not */
		*result = own;
		return r == CUDA_ERROR_NOT_FOUND ? cudaSuccess : cudart_from_driver(r);
	}
	return cudart_from_driver(r);
}

cudaError_t cudart_get_driver_entry_point(const char *name, void **ret, unsigned long long flags,
					  CUdriverProcAddressQueryResult *result)
{
	return cudart_get_driver_entry_point_by_version(name, ret, CUDART_ABI * 1000, flags,
							result);
}

cudaError_t cudart_unsupported(const char *name)
{
	const char *debug = getenv("GBPF_DEBUG");

	if (debug && debug[0] && strcmp(debug, "0") != 0) {
		fprintf(stderr, "libcudart: %s: not supported\n", name);
	}
	return cudaErrorNotSupported;
}
