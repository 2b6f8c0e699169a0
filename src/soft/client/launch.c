/* Launches, and what programs ask about functions: attributes, occupancy. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/client.h"

/* A function handle, or a kernel handle used as one, as the driver allows. */
static CUresult resolve(CUfunction h, CUfunction *ret)
{
	if (object_is(h, OBJECT_FUNCTION)) {
		*ret = h;
		return CUDA_SUCCESS;
	}
	if (object_is(h, OBJECT_KERNEL)) {
		return library_function((CUkernel)(void *)h, ret);
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_shape(const CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared)
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];

	if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535 ||
	    block[0] > 1024 || block[1] > 1024 || block[2] > 64 || !threads || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (threads > f->max_threads) {
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

static CUresult put_launch(CUstream s, CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared,
			   const unsigned char *params)
{
	struct soft_record_launch r = { .r.op = SOFT_OP_LAUNCH, .function = f->id, .shared_bytes = shared,
					.param_bytes = f->param_bytes };

	memcpy(r.grid, grid, sizeof(r.grid));
	memcpy(r.block, block, sizeof(r.block));
	return ring_put(s, &r.r, sizeof(r), params, f->param_bytes, NULL);
}

static CUresult launch(int pt, CUfunction h, const unsigned grid[3], const unsigned block[3], unsigned shared,
		       CUstream sh, void **params, void **extra)
{
	unsigned char packed[SOFT_MAX_PARAM_BYTES];
	CUfunction f;
	CUstream s;
	CUresult e = soft_stream(sh, pt, &s);

	e = e ? e : resolve(h, &f);
	e = e ? e : check_shape(f, grid, block, shared);
	e = e ? e : f->module->context == s->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	e = e ? e : params && extra ? CUDA_ERROR_INVALID_VALUE : pack(f, params, extra, packed);
	return e ? e : put_launch(s, f, grid, block, shared, packed);
}

static CUresult launch_kernel(int pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			      unsigned bz, unsigned shared, CUstream s, void **params, void **extra)
{
	const unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };

	return launch(pt, f, grid, block, shared, s, params, extra);
}
PAIR(cuLaunchKernel, _ptsz, launch_kernel,
     (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
      unsigned int bz, unsigned int shared, CUstream s, void **params, void **extra),
     f, gx, gy, gz, bx, by, bz, shared, s, params, extra)

/* Attributes that change nothing here are accepted; those that a program's correctness may rest on are refused. */
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
		return (uint64_t)v->clusterDim.x * v->clusterDim.y * v->clusterDim.z == 1 ? CUDA_SUCCESS :
											     CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult launch_ex(int pt, const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
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
	return e ? e : launch_kernel(pt, f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
				     c->blockDimZ, c->sharedMemBytes, c->hStream, params, extra);
}
PAIR(cuLaunchKernelEx, _ptsz, launch_ex, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra), c, f,
     params, extra)

/* The calls from before CUDA 4: shape and parameters are set on the function first. */

static CUresult current_function(CUfunction h, CUfunction *ret)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	return e ? e : resolve(h, ret);
}

CUresult cuFuncSetBlockShape(CUfunction h, int x, int y, int z)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

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
	CUresult e = current_function(h, &f);

	if (!e) {
		f->old_shared = bytes;
	}
	return e;
}

CUresult cuParamSetSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	return e ? e : bytes <= SOFT_MAX_PARAM_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction h, int offset, void *p, unsigned int bytes)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (e) {
		return e;
	}
	if (offset < 0 || (unsigned)offset > SOFT_MAX_PARAM_BYTES || bytes > SOFT_MAX_PARAM_BYTES - (unsigned)offset || !p) {
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
	CUresult e = current_function(h, &f);

	if (e) {
		return e;
	}
	if (f->old_params) {
		void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, f->old_params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
				  CU_LAUNCH_PARAM_END };

		return launch_kernel(0, f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0], f->old_block[1],
				     f->old_block[2], f->old_shared, s, NULL, extra);
	}
	return launch_kernel(0, f, (unsigned)gx, (unsigned)gy, 1, f->old_block[0], f->old_block[1], f->old_block[2],
			     f->old_shared, s, NULL, NULL);
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

/* Attributes. */

static CUresult get_attribute(int *ret, CUfunction_attribute what, CUfunction h)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

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
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret = 70;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret = (int)f->max_dynamic_shared;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret = -1;
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
	return dev ? CUDA_ERROR_INVALID_DEVICE : get_attribute(ret, what, (CUfunction)(void *)k);
}

static CUresult set_attribute(CUfunction h, CUfunction_attribute what, int value)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (e) {
		return e;
	}
	if (what == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
		return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

CUresult cuKernelSetAttribute(CUfunction_attribute what, int value, CUkernel k, CUdevice dev)
{
	return dev ? CUDA_ERROR_INVALID_DEVICE : set_attribute((CUfunction)(void *)k, what, value);
}

CUresult cuFuncSetCacheConfig(CUfunction h, CUfunc_cache config)
{
	CUfunction f;

	(void)config;
	return current_function(h, &f);
}

CUresult cuFuncSetSharedMemConfig(CUfunction h, CUsharedconfig config)
{
	CUfunction f;

	(void)config;
	return current_function(h, &f);
}

CUresult cuFuncGetModule(CUmodule *ret, CUfunction h)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (!e && ret) {
		*ret = f->module;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetName(const char **ret, CUfunction h)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (!e && ret) {
		*ret = f->name;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult param_info(CUfunction h, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

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
	CUresult e = current_function(h, &f);

	if (!e && ret) {
		*ret = 1; /* loaded */
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncLoad(CUfunction h)
{
	CUfunction f;

	return current_function(h, &f);
}

/* Occupancy. */

static unsigned blocks_per_sm(const CUfunction f, unsigned threads, size_t dynamic_shared)
{
	unsigned rounded = ROUND_UP(threads, 32), n = SOFT_BLOCKS_PER_SM;
	size_t shared = f->shared_bytes + dynamic_shared;

	n = MIN(n, SOFT_THREADS_PER_SM / rounded);
	n = MIN(n, SOFT_REGISTERS_PER_SM / (rounded * MAX(f->registers, 16u)));
	if (shared) {
		n = (unsigned)MIN(n, SOFT_SHARED_PER_SM / shared);
	}
	return shared > SOFT_SHARED_PER_BLOCK || threads > f->max_threads ? 0 : MAX(n, 1u);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret, CUfunction h, int threads, size_t dynamic_shared)
{
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (e) {
		return e;
	}
	if (!ret || threads <= 0 || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (int)blocks_per_sm(f, (unsigned)threads, dynamic_shared);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret, CUfunction f, int threads,
							      size_t dynamic_shared, unsigned int flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE :
			     cuOccupancyMaxActiveBlocksPerMultiprocessor(ret, f, threads, dynamic_shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *ret_grid, int *ret_block, CUfunction h, CUoccupancyB2DSize of_block,
					  size_t dynamic_shared, int limit)
{
	unsigned best = 0, best_threads = 0, best_blocks = 0;
	CUfunction f;
	CUresult e = current_function(h, &f);

	if (e) {
		return e;
	}
	if (!ret_grid || !ret_block || limit < 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned t = MIN(f->max_threads, limit ? (unsigned)limit : 1024u) / 32 * 32; t >= 32; t -= 32) {
		size_t shared = of_block ? of_block((int)t) : dynamic_shared;
		unsigned n = blocks_per_sm(f, t, shared);

		if (n * t > best) {
			best = n * t;
			best_threads = t;
			best_blocks = n;
		}
	}
	*ret_block = (int)(best_threads ? best_threads : 1);
	*ret_grid = (int)(MAX(best_blocks, 1u) * soft.hello.sms);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *ret_grid, int *ret_block, CUfunction f,
						   CUoccupancyB2DSize of_block, size_t dynamic_shared, int limit,
						   unsigned int flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE :
			     cuOccupancyMaxPotentialBlockSize(ret_grid, ret_block, f, of_block, dynamic_shared, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *ret, CUfunction h, int blocks, int threads)
{
	CUfunction f;
	CUresult e = current_function(h, &f);
	size_t each;

	if (e) {
		return e;
	}
	if (!ret || blocks <= 0 || threads <= 0 || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	each = MIN(SOFT_SHARED_PER_SM / (unsigned)blocks, SOFT_SHARED_PER_BLOCK);
	*ret = each > f->shared_bytes ? each - f->shared_bytes : 0;
	return CUDA_SUCCESS;
}
