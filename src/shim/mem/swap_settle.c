/* Memory of cuMemCreate that must not move any more (shim_swap_settle_in()): it is exported, mapped
 * a second time, bound, or other devices are given access. Until then it has one handle of the
 * driver's for each chunk; afterwards it has one, which can be used in each way that the driver
 * knows. */
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

/* What a region becomes: memory of the driver that is mapped at an address for the copy. */
struct settling {
	struct mem_swap_region *region;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr copy;
	bool mapped; /* by the program, which continues to use it at its address */
};

/* Copies all of it in the current context, in a pause. */
static CUresult copy(const struct settling *s, CUstream stream)
{
	const struct mem_swap_region *r = s->region;
	CUresult result = CUDA_SUCCESS, last;

	for (uint32_t i = 0; i < r->n && result == CUDA_SUCCESS; i++) {
		const struct mem_swap_chunk *c = &r->chunk[i];

		result = shim_work_driver.cuMemcpyDtoDAsync_v2(s->copy + (c->address - r->base),
							       c->address, c->bytes, stream);
	}
	last = shim_work_driver.cuStreamSynchronize(stream);
	return result != CUDA_SUCCESS ? result : last;
}

/* Maps the new memory in the place of the chunks, in a pause. If it cannot be, they are mapped
 * again. */
static CUresult replace(const struct settling *s) REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_region *r = s->region;
	CUresult result;

	for (uint32_t i = 0; i < r->n; i++) {
		(void)shim_swap_chunk_unmap(&r->chunk[i]);
	}
	result = shim_swap_map_memory(r->base, r->reserved, s->handle, 1u << r->device);
	for (uint32_t i = 0; result != CUDA_SUCCESS && i < r->n; i++) {
		if (shim_swap_chunk_map(&r->chunk[i]) != CUDA_SUCCESS) {
			shim_swap_say_lost(&r->chunk[i]);
		}
	}
	return result;
}

/* The region, which is in the map, is no longer then. */
static CUresult settle(const struct settling *s) REQUIRES(shim_swap_mutex)
{
	const struct shim_swap_context *c = shim_swap_context_of(s->region->row);
	struct shim_swap_pause p;
	CUcontext before;
	CUresult r;

	if (!c) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!shim_swap_stop(&p, SHIM_SWAP_WAIT_NS)) {
		return CUDA_ERROR_NOT_READY;
	}
	r = shim_work_driver.cuCtxPushCurrent_v2(c->ctx);
	if (r == CUDA_SUCCESS) {
		r = shim_swap_await(c, shim_swap_last_use(s->region), SHIM_SWAP_WAIT_NS)
			    ? copy(s, c->out)
			    : CUDA_ERROR_NOT_READY;
		if (r == CUDA_SUCCESS && s->mapped) {
			r = replace(s);
		}
		(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
	}
	shim_swap_resume(&p);
	if (r == CUDA_SUCCESS) {
		shim_swap_withdraw(s->region, !s->mapped);
	}
	return r;
}

/* A region that is not mapped is, at addresses of gBPF's, for the time of the copy. */
static CUresult settle_unmapped(const struct settling *s) REQUIRES(shim_swap_mutex)
{
	CUdeviceptr at = 0;
	CUresult r = shim_driver.cuMemAddressReserve(&at, s->region->reserved, 0, 0, 0);

	if (r != CUDA_SUCCESS) {
		return r;
	}
	r = shim_swap_enter(s->region, at);
	if (r == CUDA_SUCCESS) {
		r = settle(s);
		if (r != CUDA_SUCCESS) {
			shim_swap_withdraw(s->region, true);
		}
	}
	(void)shim_driver.cuMemAddressFree(at, s->region->reserved);
	return r;
}

/* Copies by way of addresses of gBPF's for the new memory. */
static CUresult settle_by_copy(struct settling *s)
{
	struct mem_swap_region *r = s->region;
	CUresult result = shim_driver.cuMemAddressReserve(&s->copy, r->reserved, 0, 0, 0);

	if (result != CUDA_SUCCESS) {
		return result;
	}
	result = shim_swap_map_memory(s->copy, r->reserved, s->handle, 1u << r->device);
	if (result == CUDA_SUCCESS) {
		lock_take(&shim_swap_mutex);
		s->mapped = r->chunk[0].place != MEM_SWAP_NOWHERE;
		result = s->mapped ? settle(s) : settle_unmapped(s);
		lock_release(&shim_swap_mutex);
		(void)shim_work_driver.cuMemUnmap(s->copy, r->reserved);
	}
	(void)shim_driver.cuMemAddressFree(s->copy, r->reserved);
	return result;
}

CUresult shim_swap_settle_in(struct mem_swap_region *r, CUmemGenericAllocationHandle handle)
{
	struct settling s = { .region = r, .handle = handle };
	CUresult result = r->was_mapped ? settle_by_copy(&s) : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS) {
		shim_swap_discard(r);
	}
	return result;
}
