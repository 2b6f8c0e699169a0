/* The primary context of the device: one for all libraries of the process, counted. */
#include "soft/client/client.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice dev)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&once);
	if (!soft.primary) {
		e = context_new(soft.primary_flags, &soft.primary);
		if (e) {
			soft.primary = NULL;
		} else {
			soft.primary->primary = true;
		}
	}
	if (!e) {
		soft.primary->refs++;
		*ret = soft.primary;
	}
	pthread_mutex_unlock(&once);
	return e;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUcontext ctx = soft.primary;
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ctx || !ctx->refs) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (--ctx->refs == 0) {
		soft.primary = NULL;
		return context_end(ctx);
	}
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUcontext ctx = soft.primary;
	CUresult e = context_check_device(dev);

	if (e || !ctx) {
		return e;
	}
	soft.primary = NULL;
	return context_end(ctx);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if ((flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft.primary_flags = flags;
	if (soft.primary) {
		soft.primary->flags = flags;
	}
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *ret_flags, int *ret_active)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret_flags || !ret_active) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_flags = soft.primary_flags;
	*ret_active = soft.primary != NULL;
	return CUDA_SUCCESS;
}
