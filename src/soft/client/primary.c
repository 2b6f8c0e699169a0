/* The primary context of the device: one for all libraries of the process, counted. */
#include "soft/client/client.h"

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&primary_lock);
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
	pthread_mutex_unlock(&primary_lock);
	return e;
}

static CUresult end_primary(void)
{
	CUcontext ctx = soft.primary;

	soft.primary = NULL;
	return context_end(ctx);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	pthread_mutex_lock(&primary_lock);
	if (!soft.primary) {
		e = CUDA_ERROR_INVALID_CONTEXT;
	} else if (--soft.primary->refs == 0) {
		e = end_primary();
	}
	pthread_mutex_unlock(&primary_lock);
	return e;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult e = context_check_device(dev);

	if (e) {
		return e;
	}
	pthread_mutex_lock(&primary_lock);
	e = soft.primary ? end_primary() : CUDA_SUCCESS;
	pthread_mutex_unlock(&primary_lock);
	return e;
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
