/* The primary context of each device, which all libraries of the process share; reference-counted.
 */
#include "soft/client/context/context.h"
#include "soft/client/process.h"

static struct lock primary_lock = LOCK_INITIALIZER(SOFT_PRIMARY);

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&primary_lock);
	if (!soft.primary[dev]) {
		e = soft_context_create(soft.primary_flags[dev], dev, &soft.primary[dev]);
		if (e) {
			soft.primary[dev] = NULL;
		} else {
			soft.primary[dev]->primary = true;
			soft.primary[dev]->refs = 0;
		}
	}
	if (!e) {
		soft.primary[dev]->refs++;
		*ret = soft.primary[dev];
	}
	lock_release(&primary_lock);
	return e;
}

static CUresult end_primary(CUdevice dev)
{
	CUcontext ctx = soft.primary[dev];

	soft.primary[dev] = NULL;
	return soft_context_destroy(ctx);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	lock_take(&primary_lock);
	if (!soft.primary[dev]) {
		e = CUDA_ERROR_INVALID_CONTEXT;
	} else if (--soft.primary[dev]->refs == 0) {
		e = end_primary(dev);
	}
	lock_release(&primary_lock);
	return e;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	lock_take(&primary_lock);
	e = soft.primary[dev] ? end_primary(dev) : CUDA_SUCCESS;
	lock_release(&primary_lock);
	return e;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if ((flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft.primary_flags[dev] = flags;
	if (soft.primary[dev]) {
		soft.primary[dev]->flags = flags;
	}
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *ret_flags, int *ret_active)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret_flags || !ret_active) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_flags = soft.primary_flags[dev];
	*ret_active = soft.primary[dev] != NULL;
	return CUDA_SUCCESS;
}
