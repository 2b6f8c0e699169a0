/* Occupancy: how many blocks of a function one SM holds at once, by the rules by which the server
 * places blocks. Registers do not limit it. */
#include "soft/client/launch.h"
#include "soft/client/module/function.h"

unsigned soft_occupancy_blocks(const CUfunction f, unsigned threads, size_t dynamic_shared)
{
	unsigned rounded = ROUND_UP(threads, 32), n = SOFT_BLOCKS_PER_SM;
	size_t shared = f->shared_bytes + dynamic_shared;
	uint64_t local = (uint64_t)f->local_bytes * threads;

	if (shared > SOFT_SHARED_PER_BLOCK || threads > f->max_threads) {
		return 0;
	}
	n = MIN(n, SOFT_THREADS_PER_SM / rounded);
	n = (unsigned)MIN(n, SOFT_SHARED_PER_SM / (shared + SOFT_SHARED_RESERVED));
	if (local) { /* local memory of the resident blocks comes from a fixed area of the server */
		n = (unsigned)MIN(n, SOFT_BLOCK_BYTES_MAX / soft.hello.sms / local);
	}
	return MAX(n, 1u);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret, CUfunction h, int threads,
						     size_t dynamic_shared)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (!ret || threads <= 0 || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (int)soft_occupancy_blocks(f, (unsigned)threads, dynamic_shared);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret, CUfunction f, int threads,
							      size_t dynamic_shared,
							      unsigned int flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
			   : cuOccupancyMaxActiveBlocksPerMultiprocessor(ret, f, threads,
									 dynamic_shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *ret_grid, int *ret_block, CUfunction h,
					  CUoccupancyB2DSize of_block, size_t dynamic_shared,
					  int limit)
{
	unsigned best = 0, best_threads = 0, best_blocks = 0;
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	if (e) {
		return e;
	}
	if (!ret_grid || !ret_block || limit < 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned t = MIN(f->max_threads, limit ? (unsigned)limit : 1024u) / 32 * 32; t >= 32;
	     t -= 32) {
		size_t shared = of_block ? of_block((int)t) : dynamic_shared;
		unsigned n = soft_occupancy_blocks(f, t, shared);

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
						   CUoccupancyB2DSize of_block,
						   size_t dynamic_shared, int limit,
						   unsigned int flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
			   : cuOccupancyMaxPotentialBlockSize(ret_grid, ret_block, f, of_block,
							      dynamic_shared, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *ret, CUfunction h, int blocks, int threads)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);
	size_t each;

	if (e) {
		return e;
	}
	if (!ret || blocks <= 0 || threads <= 0 || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	each = SOFT_SHARED_PER_SM / (unsigned)blocks;
	each = each > SOFT_SHARED_RESERVED ? each - SOFT_SHARED_RESERVED : 0;
	each = MIN(each, SOFT_SHARED_PER_BLOCK);
	*ret = each > f->shared_bytes ? each - f->shared_bytes : 0;
	return CUDA_SUCCESS;
}

/* Only clusters of one block exist. */
static CUresult check_cluster(const CUlaunchConfig *c)
{
	struct soft_record_launch r = { 0 };
	CUresult e = c && (!c->numAttrs || c->attrs) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (unsigned i = 0; !e && i < c->numAttrs; i++) {
		e = soft_launch_attribute(&c->attrs[i], &r);
	}
	return e;
}

CUresult cuOccupancyMaxActiveClusters(int *ret, CUfunction h, const CUlaunchConfig *c)
{
	uint64_t threads;
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	e = e ? e : ret ? check_cluster(c) : CUDA_ERROR_INVALID_VALUE;
	if (e) {
		return e;
	}
	threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
	if (!threads || threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (int)(soft_occupancy_blocks(f, (unsigned)threads, c->sharedMemBytes) *
		     soft.hello.sms);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *ret, CUfunction h, const CUlaunchConfig *c)
{
	CUfunction f;
	CUresult e = soft_function_current(h, &f);

	e = e ? e : ret ? check_cluster(c) : CUDA_ERROR_INVALID_VALUE;
	if (!e) {
		*ret = 1;
	}
	return e;
}
