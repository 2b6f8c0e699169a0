/* Launches: the configuration between <<<>>> and the generated stub, and cudaLaunchKernel and its
 * relatives. */
#include <limits.h>

#include "cudart/rt_api.h"
#include "cudart/rt_calls.h"
#include "cudart/rt_int.h"
#include "cudart/rt_registry.h"

#define MAX_NESTED 16 /* configurations whose stubs have not run: arguments that launch kernels */

static _Thread_local struct {
	struct dim3 grid, block;
	size_t shared;
	void *stream;
} pushed[MAX_NESTED];
static _Thread_local unsigned n_pushed;

RT_EXPORT unsigned int __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block,
						   size_t shared, void *stream);
RT_EXPORT cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block,
						 size_t *shared, void *stream);

/* Returns 0 if the stub is to be called. */
unsigned int __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
					 void *stream)
{
	if (n_pushed == MAX_NESTED) {
		(void)cudart_leave(cudaErrorInvalidConfiguration);
		return 1;
	}
	pushed[n_pushed].grid = grid;
	pushed[n_pushed].block = block;
	pushed[n_pushed].shared = shared;
	pushed[n_pushed].stream = stream;
	n_pushed++;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared,
				       void *stream)
{
	if (n_pushed == 0) {
		return cudart_leave(cudaErrorMissingConfiguration);
	}
	n_pushed--;
	*grid = pushed[n_pushed].grid;
	*block = pushed[n_pushed].block;
	*shared = pushed[n_pushed].shared;
	*(void **)stream = pushed[n_pushed].stream;
	return cudaSuccess;
}

#if CUDART_ABI == 12
static bool within(CUdevice device, CUdevice_attribute first, struct dim3 d)
{
	const unsigned sizes[] = { d.x, d.y, d.z };

	for (int i = 0; i < 3; i++) {
		int max = INT_MAX;

		(void)cudart_driver.cuDeviceGetAttribute(&max, (CUdevice_attribute)(first + i),
							 device);
		if (sizes[i] == 0 || sizes[i] > (unsigned)max) {
			return false;
		}
	}
	return true;
}

/* The driver answers INVALID_VALUE for all that is wrong with a launch; version 12 tells a
 * configuration that no kernel can have from the rest, version 13 does not. */
static cudaError_t launch_error(CUresult r, struct dim3 grid, struct dim3 block)
{
	CUdevice device;
	int max = INT_MAX;

	if (r != CUDA_ERROR_INVALID_VALUE || cudart_driver.cuCtxGetDevice(&device)) {
		return r == CUDA_ERROR_INVALID_HANDLE ? cudaErrorInvalidResourceHandle
						      : cudart_from_driver(r);
	}
	(void)cudart_driver.cuDeviceGetAttribute(&max, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
						 device);
	if (!within(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, grid) ||
	    !within(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, block) ||
	    (unsigned long long)block.x * block.y * block.z > (unsigned)max) {
		return cudaErrorInvalidConfiguration;
	}
	return cudaErrorInvalidValue;
}
#else
static cudaError_t launch_error(CUresult r, struct dim3 grid, struct dim3 block)
{
	(void)grid;
	(void)block;
	return r == CUDA_ERROR_INVALID_HANDLE ? cudaErrorInvalidResourceHandle
					      : cudart_from_driver(r);
}
#endif

cudaError_t cudart_launch_handle(cudaKernel_t k, struct dim3 grid, struct dim3 block, void **args,
				 size_t shared, cudaStream_t stream)
{
	CUresult r;

	if (!k) {
		return cudaErrorInvalidDeviceFunction;
	}
	if (shared > UINT_MAX) {
		return cudaErrorInvalidValue;
	}
	r = cudart_driver.cuLaunchKernel((CUfunction)(void *)k, grid.x, grid.y, grid.z, block.x,
					 block.y, block.z, (unsigned)shared, stream, args, NULL);
	return r ? launch_error(r, grid, block) : cudaSuccess;
}

cudaError_t cudart_launch_kernel(const void *func, struct dim3 grid, struct dim3 block, void **args,
				 size_t shared, cudaStream_t stream)
{
	CUkernel k;
	cudaError_t e = cudart_kernel(func, &k);

	return e ? e : cudart_launch_handle(k, grid, block, args, shared, stream);
}

cudaError_t cudart_launch_cooperative_kernel(const void *func, struct dim3 grid, struct dim3 block,
					     void **args, size_t shared, cudaStream_t stream)
{
	CUkernel k;
	CUresult r;
	cudaError_t e = cudart_kernel(func, &k);

	if (e) {
		return e;
	}
	r = cudart_driver.cuLaunchCooperativeKernel((CUfunction)(void *)k, grid.x, grid.y, grid.z,
						    block.x, block.y, block.z, (unsigned)shared,
						    stream, args);
	return r ? launch_error(r, grid, block) : cudaSuccess;
}

CUlaunchConfig cudart_driver_config(const cudaLaunchConfig_t *c, cudaStream_t stream)
{
	return (CUlaunchConfig){
		.gridDimX = c->gridDim.x,
		.gridDimY = c->gridDim.y,
		.gridDimZ = c->gridDim.z,
		.blockDimX = c->blockDim.x,
		.blockDimY = c->blockDim.y,
		.blockDimZ = c->blockDim.z,
		.sharedMemBytes = (unsigned)c->dynamicSmemBytes,
		.hStream = stream,
		.attrs = c->attrs,
		.numAttrs = c->numAttrs,
	};
}

/* own: a null stream is the calling thread's own. */
cudaError_t cudart_launch_kernel_ex_c(bool own, const cudaLaunchConfig_t *c, const void *func,
				      void **args)
{
	CUlaunchConfig config;
	CUkernel k;
	CUresult r;
	cudaError_t e = c ? cudart_kernel(func, &k) : cudaErrorInvalidValue;

	if (e) {
		return e;
	}
	config = cudart_driver_config(c, own ? cudart_own_stream(c->stream) : c->stream);
	r = cudart_driver.cuLaunchKernelEx(&config, (CUfunction)(void *)k, args, NULL);
	return r ? launch_error(r, c->gridDim, c->blockDim) : cudaSuccess;
}
