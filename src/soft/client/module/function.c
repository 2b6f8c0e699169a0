/* Queries about functions: attributes and parameters. */
#include "soft/client/module/function.h"

#include "soft/client/module/library.h"
#include "soft/client/process.h"
#include "soft/client/strict.h"

CUresult soft_function_resolve(CUfunction h, CUfunction *ret)
{
	if (soft_object_is(h, SOFT_OBJECT_FUNCTION)) {
		*ret = h;
		return CUDA_SUCCESS;
	}
	if (soft_object_is(h, SOFT_OBJECT_KERNEL)) {
		return soft_library_function((CUkernel)(void *)h, ret);
	}
	(void)soft_handle_refuse(h, SOFT_OBJECT_FUNCTION);
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult soft_function_current(CUfunction h, CUfunction *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	return e ? e : soft_function_resolve(h, ret);
}

/* ---- attributes ---- */

static CUresult get_attribute(int *ret, CUfunction_attribute what, CUfunction h)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	switch (what) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret = (int)f->max_threads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*ret = (int)f->shared_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*ret = (int)f->const_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*ret = (int)f->local_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret = (int)f->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*ret = (int)f->module->arch;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret = (int)SOFT_ARCH;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret = (int)f->max_dynamic_shared;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret = f->carveout - 1;
		break;
	default:
		if ((unsigned)what > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		*ret = 0;
	}
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *ret, CUfunction_attribute what, CUfunction f)
{
	return get_attribute(ret, what, f);
}

CUresult cuKernelGetAttribute(int *ret, CUfunction_attribute what, CUkernel k, CUdevice dev)
{
	bool pushed;
	CUresult e = soft_kernel_enter(k, dev, &pushed);

	e = e ? e : get_attribute(ret, what, (CUfunction)(void *)k);
	soft_kernel_leave(dev, pushed);
	return e;
}

static CUresult set_attribute(CUfunction h, CUfunction_attribute what, int value)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (what == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
		if (value < -1 || value > 100) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		f->carveout = value + 1;
		return CUDA_SUCCESS;
	}
	if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
	    (uint64_t)value + f->shared_bytes > SOFT_SHARED_PER_BLOCK) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	f->max_dynamic_shared = (uint32_t)value;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value)
{
	return set_attribute(f, what, value);
}

/* Applies to every context in which the kernel is used from now on. */
CUresult cuKernelSetAttribute(CUfunction_attribute what, int value, CUkernel k, CUdevice dev)
{
	bool pushed;
	CUresult e = soft_kernel_enter(k, dev, &pushed);

	e = e ? e : set_attribute((CUfunction)(void *)k, what, value);
	soft_kernel_leave(dev, pushed);
	if (!e && what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		k->dynamic_shared = value + 1;
	} else if (!e) {
		k->carveout = value + 2;
	}
	return e;
}

CUresult cuFuncSetCacheConfig(CUfunction h, CUfunc_cache config)
{
	CUfunction f;

	return (unsigned)config > 3 ? CUDA_ERROR_INVALID_VALUE : soft_function_current(h, &f);
}

CUresult cuFuncSetSharedMemConfig(CUfunction h, CUsharedconfig config)
{
	CUfunction f;

	return (unsigned)config > 2 ? CUDA_ERROR_INVALID_VALUE : soft_function_current(h, &f);
}

CUresult cuFuncGetModule(CUmodule *ret, CUfunction h)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (!e && ret) {
		*ret = f->module;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetName(const char **ret, CUfunction h)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (!e && ret) {
		*ret = f->name;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult param_info(CUfunction h, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (index >= f->n_params) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (ret_offset) {
		*ret_offset = f->params[index].offset;
	}
	if (ret_bytes) {
		*ret_bytes = f->params[index].bytes;
	}
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	return param_info(f, index, ret_offset, ret_bytes);
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	return param_info((CUfunction)(void *)k, index, ret_offset, ret_bytes);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *ret, CUfunction h)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (!e && ret) {
		*ret = 1; /* loaded */
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncLoad(CUfunction h)
{
	CUfunction f;

	return soft_function_current(h, &f);
}
