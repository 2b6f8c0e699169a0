/* Device memory mapped into the client: a second mapping of the memfd that holds it, so that it can
 * be unmapped without regard to the window's addresses. Maps whole units, which may hold other
 * allocations of this client, or none. */
#include "soft/client/memory/cpu_window.h"

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "soft/client/memory/memory.h"
#include "soft/client/server_link.h"

#define UNIT_MAX ((uint64_t)1 << 30)

static void (*watch)(CUdeviceptr base, uint64_t bytes); /* [atomic] NULL: nobody asks */

void soft_cpu_windows_gone(uint64_t address, uint64_t bytes)
{
	void (*gone)(CUdeviceptr, uint64_t) = load_acquire(&watch);

	if (gone) {
		gone(address, bytes);
	}
}

CUresult soft_cpu_windows_watch(void (*gone)(CUdeviceptr base, uint64_t bytes))
{
	store_release(&watch, gone);
	return CUDA_SUCCESS;
}

CUresult soft_cpu_window_open(CUdeviceptr address, uint64_t unit, CUdeviceptr *ret_base,
			      uint64_t *ret_bytes, void **ret_at)
{
	struct soft_request q = { .op = SOFT_REQ_WINDOW };
	struct soft_range range;
	struct soft_reply r;
	CUcontext ctx;
	CUresult e = soft_check();
	int fd = -1;

	if (e || unit < SOFT_PAGE || unit > UNIT_MAX || (unit & (unit - 1)) ||
	    !soft_memory_find(address, &ctx, &range) || range.kind != SOFT_RANGE_DEVICE ||
	    range.hidden || range.module) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	q.index = ctx->gpu;
	q.value = MAX(address & ~(unit - 1), ctx->window->base);
	q.more[0] = (address & ~(unit - 1)) + unit - q.value;
	e = soft_link_call(&q, -1, &r, sizeof(r), &fd);
	if (!e) {
		*ret_at = shm_map_own(fd, q.more[0], (off_t)r.value);
		e = *ret_at ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
	}
	fd_close(fd);
	*ret_base = q.value;
	*ret_bytes = q.more[0];
	return e;
}
