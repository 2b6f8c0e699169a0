/* Properties of kernels, occupancy, and handles of the driver for them. */
#include "cudart/rt_api.h"
#include "cudart/rt_calls.h"
#include "cudart/rt_int.h"
#include "cudart/rt_registry.h"

cudaError_t cudart_get_kernel(cudaKernel_t *ret, const void *func)
{
	return ret ? cudart_kernel(func, ret) : cudaErrorInvalidValue;
}

cudaError_t cudart_get_func_by_symbol(cudaFunction_t *ret, const void *func)
{
	return ret ? cudart_function(func, ret) : cudaErrorInvalidValue;
}

static int attribute(CUfunction f, CUfunction_attribute what, CUresult *r)
{
	int value = 0;

	if (!*r) {
		*r = cudart_driver.cuFuncGetAttribute(&value, what, f);
	}
	return value;
}

cudaError_t cudart_func_get_attributes(struct cudaFuncAttributes *ret, const void *func)
{
	CUfunction f;
	CUresult r = CUDA_SUCCESS;
	cudaError_t e = ret ? cudart_function(func, &f) : cudaErrorInvalidValue;

	if (e) {
		return e;
	}
	*ret = (struct cudaFuncAttributes){ 0 };
	ret->sharedSizeBytes = (size_t)attribute(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &r);
	ret->constSizeBytes = (size_t)attribute(f, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &r);
	ret->localSizeBytes = (size_t)attribute(f, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &r);
	ret->maxThreadsPerBlock = attribute(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &r);
	ret->numRegs = attribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, &r);
	ret->ptxVersion = attribute(f, CU_FUNC_ATTRIBUTE_PTX_VERSION, &r);
	ret->binaryVersion = attribute(f, CU_FUNC_ATTRIBUTE_BINARY_VERSION, &r);
	ret->cacheModeCA = attribute(f, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &r);
	ret->maxDynamicSharedSizeBytes =
		attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &r);
	ret->preferredShmemCarveout =
		attribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &r);
	ret->clusterDimMustBeSet = attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &r);
	ret->requiredClusterWidth = attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &r);
	ret->requiredClusterHeight = attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &r);
	ret->requiredClusterDepth = attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &r);
	ret->clusterSchedulingPolicyPreference =
		attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &r);
	ret->nonPortableClusterSizeAllowed =
		attribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, &r);
	return cudart_from_driver(r);
}

cudaError_t cudart_func_set_attribute(const void *func, CUfunction_attribute what, int value)
{
	CUfunction f;
	cudaError_t e = cudart_function(func, &f);

	return e ? e : cudart_from_driver(cudart_driver.cuFuncSetAttribute(f, what, value));
}

cudaError_t cudart_func_set_cache_config(const void *func, CUfunc_cache config)
{
	CUfunction f;
	cudaError_t e = cudart_function(func, &f);

	return e ? e : cudart_from_driver(cudart_driver.cuFuncSetCacheConfig(f, config));
}

cudaError_t cudart_func_set_shared_mem_config(const void *func, CUsharedconfig config)
{
	CUfunction f;
	cudaError_t e = cudart_function(func, &f);

	return e ? e : cudart_from_driver(cudart_driver.cuFuncSetSharedMemConfig(f, config));
}

cudaError_t cudart_func_get_name(const char **ret, const void *func)
{
	CUkernel k;
	cudaError_t e = cudart_kernel(func, &k);

	return e ? e : cudart_from_driver(cudart_driver.cuKernelGetName(ret, k));
}

cudaError_t cudart_func_get_param_info(const void *func, size_t index, size_t *offset,
				       size_t *bytes)
{
	CUkernel k;
	cudaError_t e = cudart_kernel(func, &k);

	return e ? e
		 : cudart_from_driver(cudart_driver.cuKernelGetParamInfo(k, index, offset, bytes));
}

cudaError_t cudart_occupancy_max_active_blocks_per_multiprocessor_with_flags(
	int *ret, const void *func, int block, size_t shared, unsigned int flags)
{
	CUfunction f;
	cudaError_t e = cudart_function(func, &f);

	return e ? e
		 : cudart_from_driver(
			   cudart_driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
				   ret, f, block, shared, flags));
}

cudaError_t cudart_occupancy_max_active_blocks_per_multiprocessor(int *ret, const void *func,
								  int block, size_t shared)
{
	return cudart_occupancy_max_active_blocks_per_multiprocessor_with_flags(ret, func, block,
										shared, 0);
}

cudaError_t cudart_occupancy_available_dynamic_s_mem_per_block(size_t *ret, const void *func,
							       int blocks, int block)
{
	CUfunction f;
	cudaError_t e = cudart_function(func, &f);

	return e ? e
		 : cudart_from_driver(cudart_driver.cuOccupancyAvailableDynamicSMemPerBlock(
			   ret, f, blocks, block));
}

typedef CUresult (*cluster_query)(int *ret, CUfunction f, const CUlaunchConfig *config);

static cudaError_t ask_clusters(cluster_query query, int *ret, const void *func,
				const cudaLaunchConfig_t *config)
{
	CUlaunchConfig c;
	CUfunction f;
	cudaError_t e = config ? cudart_function(func, &f) : cudaErrorInvalidValue;

	if (e) {
		return e;
	}
	c = cudart_driver_config(config, config->stream);
	return cudart_from_driver(query(ret, f, &c));
}

cudaError_t cudart_occupancy_max_potential_cluster_size(int *ret, const void *func,
							const cudaLaunchConfig_t *config)
{
	return ask_clusters(cudart_driver.cuOccupancyMaxPotentialClusterSize, ret, func, config);
}

cudaError_t cudart_occupancy_max_active_clusters(int *ret, const void *func,
						 const cudaLaunchConfig_t *config)
{
	return ask_clusters(cudart_driver.cuOccupancyMaxActiveClusters, ret, func, config);
}

#if CUDART_ABI == 12
/* Devices have had doubles since compute capability 1.3: nothing to convert. */
cudaError_t cudart_set_double_for_device(double *value)
{
	(void)value;
	return cudaSuccess;
}

cudaError_t cudart_set_double_for_host(double *value)
{
	(void)value;
	return cudaSuccess;
}
#endif
