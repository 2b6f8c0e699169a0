/* Queries about the driver and the device (version, name, memory, bus, UUID, peers), and names of
 * errors. */
#include <stdio.h>
#include <string.h>

#include "cuabi/lookup.h"
#include "soft/client/context/context.h"
#include "soft/client/process.h"
#include "soft/identity.h"

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
	*ret = soft.gpus;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *ret, int ordinal)
{
	CUresult e = soft_context_check_device(ordinal);

	if (!e && ret) {
		*ret = ordinal;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetName(char *out, int cap, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!out || cap <= 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(out, (size_t)cap, "%s", SOFT_NAME);
	return CUDA_SUCCESS;
}

int soft_info_find_gpu(const char *text, size_t n)
{
	for (uint32_t gpu = 0; gpu < MIN(soft.hello.gpus, SOFT_MAX_GPUS); gpu++) {
		char number[16], name[48];

		snprintf(number, sizeof(number), "%u", gpu);
		soft_identity_text(name, gpu);
		if ((n == strlen(number) && strncmp(text, number, n) == 0) ||
		    (n > 4 && n <= strlen(name) && strncmp(text, name, n) == 0)) {
			return (int)gpu;
		}
	}
	return -1;
}

static CUresult uuid(CUuuid *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	soft_identity_uuid((unsigned char *)ret->bytes, soft.visible[dev]);
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

/* LUIDs exist only on Windows: returns zeros, as the driver on Linux does. */
CUresult cuDeviceGetLuid(char *ret, unsigned int *ret_mask, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e || !ret || !ret_mask) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	memset(ret, 0, 8);
	*ret_mask = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (!e && ret) {
		*ret = soft.hello.memory_bytes;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!major || !minor) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*major = SOFT_ARCH / 10;
	*minor = SOFT_ARCH % 10;
	return CUDA_SUCCESS;
}

/* Each soft GPU is alone on its bus; numbers start at 1. */
static unsigned bus_of(CUdevice dev)
{
	return soft_identity_bus(soft.visible[dev]);
}

CUresult cuDeviceGetPCIBusId(char *out, int cap, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!out || cap <= 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(out, (size_t)cap, "0000:%02X:00.0", bus_of(dev));
	return CUDA_SUCCESS;
}

/* Parses "domain:bus:device.function"; domain and function may be missing. */
static bool parse_bus(const char *id, unsigned *ret_bus)
{
	unsigned domain = 0, slot = 0, function = 0;
	int end = -1;

	if (sscanf(id, "%x:%x:%x.%x%n", &domain, ret_bus, &slot, &function, &end) < 4 &&
	    sscanf(id, "%x:%x:%x%n", &domain, ret_bus, &slot, &end) < 3) {
		domain = 0;
		if (sscanf(id, "%x:%x.%x%n", ret_bus, &slot, &function, &end) < 3) {
			return false;
		}
	}
	return end >= 0 && !id[end] && !domain && !slot && !function;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *ret, const char *id)
{
	CUresult e = soft_check();
	unsigned bus;

	if (e) {
		return e;
	}
	if (!ret || !id) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (int dev = 0; dev < soft.gpus; dev++) {
		if (parse_bus(id, &bus) && bus == bus_of(dev)) {
			*ret = dev;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_pair(CUdevice a, CUdevice b)
{
	CUresult e = soft_context_check_device(a);

	return e ? e : soft_context_check_device(b);
}

/* Copies between soft GPUs work, but a kernel reaches only memory of its own context: there is no
 * peer access. */
CUresult cuDeviceCanAccessPeer(int *ret, CUdevice a, CUdevice b)
{
	CUresult e = check_pair(a, b);

	if (!e && ret) {
		*ret = 0;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetP2PAttribute(int *ret, CUdevice_P2PAttribute what, CUdevice a, CUdevice b)
{
	CUresult e = check_pair(a, b);

	if (e) {
		return e;
	}
	if (!ret || (int)what < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
	    (int)what > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (a == b) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	*ret = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!soft_object_is(peer, SOFT_OBJECT_CONTEXT)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	return soft_object_is(peer, SOFT_OBJECT_CONTEXT) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
							 : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDeviceGetExecAffinitySupport(int *ret, CUexecAffinityType type, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (!e && ret) {
		*ret = 0;
	}
	(void)type;
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetProperties(CUdevprop *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

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
			    (int)soft.hello.clock_khz,
			    SOFT_PITCH };
	return CUDA_SUCCESS;
}
