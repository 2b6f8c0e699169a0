/* What the device says about itself, and names of errors. */
#include <stdio.h>
#include <string.h>

#include "cuabi/lookup.h"
#include "soft/client/client.h"

CUresult cuDriverGetVersion(int *ret)
{
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = CUABI_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult r, const char **ret)
{
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = cuabi_result_name(r);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult r, const char **ret)
{
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = cuabi_result_text(r);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *ret)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *ret, int ordinal)
{
	CUresult e = context_check_device(ordinal);

	if (!e && ret) {
		*ret = 0;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetName(char *out, int cap, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!out || cap <= 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(out, (size_t)cap, "gBPF soft GPU");
	return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *ret, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(ret->bytes, "gBPF-soft-device", 16);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *ret, CUdevice dev)
{
	return uuid(ret, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret, CUdevice dev)
{
	return uuid(ret, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *ret, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (!e && ret) {
		*ret = soft.hello.memory_bytes;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!major || !minor) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*major = 7;
	*minor = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *out, int cap, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!out || cap <= 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(out, (size_t)cap, "0000:00:00.0");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *ret, const char *id)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !id || strcmp(id, "0000:00:00.0") != 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *ret, CUdevice a, CUdevice b)
{
	CUresult e = context_check_device(a);

	e = e ? e : context_check_device(b);
	if (!e && ret) {
		*ret = 0;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetProperties(CUdevprop *ret, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (CUdevprop){ 1024,
			    { 1024, 1024, 64 },
			    { INT32_MAX, 65535, 65535 },
			    SOFT_DEFAULT_SHARED_PER_BLOCK,
			    65536,
			    32,
			    INT32_MAX,
			    SOFT_REGISTERS_PER_SM,
			    1000000,
			    SOFT_PITCH };
	return CUDA_SUCCESS;
}

/* Those that are not 0. */
static const struct {
	CUdevice_attribute what;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SOFT_DEFAULT_SHARED_PER_BLOCK },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, SOFT_REGISTERS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, SOFT_PITCH },
	{ CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64 },
	{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, SOFT_THREADS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, SOFT_PITCH },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SOFT_SHARED_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, SOFT_REGISTERS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SOFT_SHARED_PER_BLOCK },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, SOFT_BLOCKS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0 },
	{ CU_DEVICE_ATTRIBUTE_NUMA_ID, -1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0 },
};

CUresult cuDeviceGetAttribute(int *ret, CUdevice_attribute what, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret || (int)what < 1 || (int)what > 256) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = 0;
	if (what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
		*ret = (int)soft.hello.sms;
	}
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
		if (attributes[i].what == what) {
			*ret = attributes[i].value;
		}
	}
	return CUDA_SUCCESS;
}
