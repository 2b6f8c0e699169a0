/* Launches: shape and parameters are checked here, so that the server need not answer. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/client.h"

static CUresult check_shape(const CUfunction f, const unsigned grid[3], const unsigned block[3],
			    unsigned shared)
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];

	if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 ||
	    grid[2] > 65535 || block[0] > 1024 || block[1] > 1024 || block[2] > 64 || !threads ||
	    threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (threads > f->max_threads || threads * f->local_bytes > SOFT_BLOCK_BYTES_MAX) {
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	}
	return shared > f->max_dynamic_shared ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Parameters from an array of pointers, or from a packed buffer. */
static CUresult pack(const CUfunction f, void **params, void **extra, unsigned char *out)
{
	const void *packed = NULL;
	size_t bytes = 0;

	memset(out, 0, f->param_bytes);
	if (params) {
		for (uint32_t i = 0; i < f->n_params; i++) {
			if (!params[i]) {
				return CUDA_ERROR_INVALID_VALUE;
			}
			memcpy(out + f->params[i].offset, params[i], f->params[i].bytes);
		}
		return CUDA_SUCCESS;
	}
	for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END && i < 8; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			packed = extra[i + 1];
		} else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
			bytes = *(size_t *)extra[i + 1];
		} else {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	if (f->n_params && (!packed || bytes > SOFT_MAX_PARAM_BYTES)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (packed) {
		memcpy(out, packed, MIN(bytes, f->param_bytes));
	}
	return CUDA_SUCCESS;
}

static CUresult put_launch(CUstream s, CUfunction f, const unsigned grid[3],
			   const unsigned block[3], unsigned shared, const unsigned char *params)
{
	struct soft_record_launch r = { .r.op = SOFT_OP_LAUNCH,
					.function = f->id,
					.shared_bytes = shared,
					.param_bytes = f->param_bytes };

	memcpy(r.grid, grid, sizeof(r.grid));
	memcpy(r.block, block, sizeof(r.block));
	return ring_put(s, &r.r, sizeof(r), params, f->param_bytes, NULL);
}

static CUresult launch(int pt, CUfunction h, const unsigned grid[3], const unsigned block[3],
		       unsigned shared, CUstream sh, void **params, void **extra)
{
	unsigned char packed[SOFT_MAX_PARAM_BYTES];
	CUfunction f;
	CUstream s;
	CUresult e = soft_stream(sh, pt, &s);

	e = e ? e : function_resolve(h, &f);
	e = e ? e : check_shape(f, grid, block, shared);
	e = e ? e : f->module->context == s->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	e = e ? e : params && extra ? CUDA_ERROR_INVALID_VALUE : pack(f, params, extra, packed);
	return e ? e : put_launch(s, f, grid, block, shared, packed);
}

static CUresult launch_kernel(int pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
			      unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
			      void **params, void **extra)
{
	const unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };

	return launch(pt, f, grid, block, shared, s, params, extra);
}
PAIR(cuLaunchKernel, _ptsz, launch_kernel,
     (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
      unsigned int by, unsigned int bz, unsigned int shared, CUstream s, void **params,
      void **extra),
     f, gx, gy, gz, bx, by, bz, shared, s, params, extra)

/* Attributes that change nothing here are accepted; those that a program's correctness may rest on
 * are refused. */
static CUresult check_attribute(const CUlaunchAttribute *a)
{
	const CUlaunchAttributeValue *v = &a->value;

	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return v->cooperative ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return (uint64_t)v->clusterDim.x * v->clusterDim.y * v->clusterDim.z == 1
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult launch_ex(int pt, const CUlaunchConfig *c, CUfunction f, void **params,
			  void **extra)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!c || (c->numAttrs && !c->attrs)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < c->numAttrs && !e; i++) {
		e = check_attribute(&c->attrs[i]);
	}
	return e ? e
		 : launch_kernel(pt, f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
				 c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, params,
				 extra);
}
PAIR(cuLaunchKernelEx, _ptsz, launch_ex,
     (const CUlaunchConfig *c, CUfunction f, void **params, void **extra), c, f, params, extra)

/* The calls from before CUDA 4: shape and parameters are set on the function first. */

CUresult cuFuncSetBlockShape(CUfunction h, int x, int y, int z)
{
	CUfunction f;
	CUresult e = function_current(h, &f);

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
	CUresult e = function_current(h, &f);

	if (!e) {
		f->old_shared = bytes;
	}
	return e;
}

CUresult cuParamSetSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	CUresult e = function_current(h, &f);

	return e ? e : bytes <= SOFT_MAX_PARAM_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction h, int offset, void *p, unsigned int bytes)
{
	CUfunction f;
	CUresult e = function_current(h, &f);

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
	CUresult e = function_current(h, &f);

	if (e) {
		return e;
	}
	if (f->old_params) {
		void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, f->old_params,
				  CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };

		return launch_kernel(0, f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0],
				     f->old_block[1], f->old_block[2], f->old_shared, s, NULL,
				     extra);
	}
	return launch_kernel(0, f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0], f->old_block[1],
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
