/* Memory of cuMemCreate that can leave the device, as its program maps and unmaps it
 * (shim/mem/swap_region.h). What it can no longer be after other calls: swap_settle.c. */
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

bool shim_swap_is_mapped(const struct mem_swap_region *r)
{
	bool is;

	lock_take(&shim_swap_mutex);
	is = r->chunk[0].place != MEM_SWAP_NOWHERE;
	lock_release(&shim_swap_mutex);
	return is;
}

/* Notes the current context, if a private call of the driver has made it. */
static void see_current(CUdevice device) REQUIRES(shim_swap_mutex)
{
	CUcontext ctx = NULL;
	CUdevice current;

	if (shim_driver.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx &&
	    shim_driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device) {
		shim_swap_see(shim_green_base(ctx), device, false);
	}
}

CUresult shim_swap_map_at(struct mem_swap_region *r, CUdeviceptr base)
{
	CUresult result;

	lock_take(&shim_swap_mutex);
	see_current(r->device);
	result = shim_swap_enter(r, base);
	r->was_mapped |= result == CUDA_SUCCESS;
	lock_release(&shim_swap_mutex);
	return result;
}

CUresult shim_swap_unmap(struct mem_swap_region *r)
{
	CUresult result;

	lock_take(&shim_swap_mutex);
	result = shim_work_driver.cuMemUnmap(r->base, r->reserved); /* all chunks, or none */
	if (result == CUDA_SUCCESS) {
		shim_swap_withdraw(r, false);
	}
	lock_release(&shim_swap_mutex);
	return result;
}

uint64_t shim_swap_kept(const struct mem_swap_region *r)
{
	uint64_t bytes = 0;

	lock_take(&shim_swap_mutex);
	for (uint32_t i = 0; !r->was_mapped && i < r->n; i++) {
		bytes += r->chunk[i].handle ? r->chunk[i].bytes : 0;
	}
	lock_release(&shim_swap_mutex);
	return bytes;
}
