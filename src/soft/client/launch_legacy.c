/* The launch calls from before CUDA 4, which set shape and parameters on the function first. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/module/function.h"
#include "soft/client/process.h"

CUresult cuFuncSetBlockShape(CUfunction h, int x, int y, int z)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (x <= 0 || y <= 0 || z <= 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	f->old_block[0] = (unsigned)x;
	f->old_block[1] = (unsigned)y;
	f->old_block[2] = (unsigned)z;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (!e) {
		f->old_shared = bytes;
	}
	return e;
}

CUresult cuParamSetSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	return e ? e : bytes <= SOFT_MAX_PARAM_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction h, int offset, void *p, unsigned int bytes)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (offset < 0 || (unsigned)offset > SOFT_MAX_PARAM_BYTES ||
	    bytes > SOFT_MAX_PARAM_BYTES - (unsigned)offset || !p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!f->old_params) {
		f->old_params = calloc(1, SOFT_MAX_PARAM_BYTES);
	}
	if (!f->old_params) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(f->old_params + offset, p, bytes);
	return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction h, int offset, unsigned int value)
{
	return cuParamSetv(h, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction h, int offset, float value)
{
	return cuParamSetv(h, offset, &value, sizeof(value));
}

static CUresult launch_old(CUfunction h, int gx, int gy, CUstream s)
{
	size_t bytes = SOFT_MAX_PARAM_BYTES;
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (f->old_params) {
		void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, f->old_params,
				  CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };

		return cuLaunchKernel(f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0],
				      f->old_block[1], f->old_block[2], f->old_shared, s, NULL,
				      extra);
	}
	return cuLaunchKernel(f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0], f->old_block[1],
			      f->old_block[2], f->old_shared, s, NULL, NULL);
}

CUresult cuLaunch(CUfunction f)
{
	return launch_old(f, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int gx, int gy)
{
	return launch_old(f, gx, gy, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int gx, int gy, CUstream s)
{
	return launch_old(f, gx, gy, s);
}
