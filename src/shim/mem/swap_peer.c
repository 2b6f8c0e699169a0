/* Peer access: memory of cuMemAlloc on a device that kernels of other devices of the process can
 * use (cuCtxEnablePeerAccess). Its chunks are mapped for those devices, too, wherever they are, and
 * do not leave the device. What is on the host is used there by all, and may return. The driver
 * gives access by context and this file by device: a device sees no less than CUDA says. */
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#define ACCESSES_MAX 256u

/* Access of a context to what has been and will be allocated in another one. */
static struct access {
	CUcontext from, to;
	CUdevice device; /* of from */
	int row;	 /* of the other one's device */
	uint64_t epoch;	 /* when it was enabled */
} accesses[ACCESSES_MAX] GUARDED_BY(shim_swap_mutex);
static unsigned n_accesses GUARDED_BY(shim_swap_mutex);

/* Returns the other devices, one bit each, that have access to memory of cuMemAlloc of a row. */
static uint32_t peers_of(int row) REQUIRES(shim_swap_mutex)
{
	uint32_t devices = 0;

	for (unsigned i = 0; i < n_accesses; i++) {
		devices |= accesses[i].row == row ? 1u << accesses[i].device : 0;
	}
	return devices;
}

/* Returns true for memory of cuMemAlloc of this process. */
static bool is_concerned(const struct mem_swap_region *r)
{
	return !r->by_handle && !r->imported;
}

uint32_t shim_swap_access(const struct mem_swap_region *r)
{
	return 1u << r->device | (is_concerned(r) ? peers_of(r->row) : 0);
}

enum mem_swap_place shim_swap_device_place(const struct mem_swap_region *r)
{
	return is_concerned(r) && peers_of(r->row) ? MEM_SWAP_PEER : MEM_SWAP_DEVICE;
}

/* Has chunks of a row's device that are on it move, or no longer, as its peers want now. */
static void place_again(int row) REQUIRES(shim_swap_mutex)
{
	for (size_t i = 0; i < shim_swap_map.n; i++) {
		struct mem_swap_region *r = shim_swap_map.region[i];
		enum mem_swap_place place = shim_swap_device_place(r);

		for (uint32_t k = 0; r->row == row && k < r->n; k++) {
			struct mem_swap_chunk *c = &r->chunk[k];

			if (c->place != place &&
			    (c->place == MEM_SWAP_DEVICE || c->place == MEM_SWAP_PEER)) {
				shim_swap_place(c, place);
			}
		}
	}
}

/* Maps all chunks of a row's device for another device as well. They may be in use. */
static CUresult map_for(int row, CUdevice device) REQUIRES(shim_swap_mutex)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < shim_swap_map.n; i++) {
		const struct mem_swap_region *r = shim_swap_map.region[i];
		bool is = r->row == row && is_concerned(r);

		for (uint32_t k = 0; is && k < r->n && result == CUDA_SUCCESS; k++) {
			const struct mem_swap_chunk *c = &r->chunk[k];

			if (c->place != MEM_SWAP_NOWHERE) {
				result = shim_swap_set_access(c->address, c->bytes, 1u << device);
			}
		}
	}
	return result;
}

static void remove_at(unsigned i) REQUIRES(shim_swap_mutex)
{
	int row = accesses[i].row;

	accesses[i] = accesses[--n_accesses];
	place_again(row);
}

/* Adds an access that the driver has given. On errors nothing has changed, except that chunks may
 * be mapped for the device until they move. */
static CUresult add(const struct access *a) REQUIRES(shim_swap_mutex)
{
	CUresult r;

	if (n_accesses == ACCESSES_MAX) {
		return CUDA_ERROR_TOO_MANY_PEERS;
	}
	r = map_for(a->row, a->device);
	if (r == CUDA_SUCCESS) {
		accesses[n_accesses++] = *a;
		place_again(a->row);
	}
	return r;
}

/* Describes the access of the current context to another one. Returns false if it cannot be. */
static bool describe(CUcontext to, struct access *ret)
{
	CUcontext from = NULL, before;
	CUdevice device = -1;

	if (shim_driver.cuCtxGetCurrent(&from) != CUDA_SUCCESS || !from ||
	    shim_driver.cuCtxGetDevice(&ret->device) != CUDA_SUCCESS ||
	    shim_driver.cuCtxPushCurrent_v2(to) != CUDA_SUCCESS) {
		return false;
	}
	(void)shim_driver.cuCtxGetDevice(&device);
	(void)shim_driver.cuCtxPopCurrent_v2(&before);
	ret->from = shim_green_base(from);
	ret->to = shim_green_base(to);
	ret->row = shim_mem_row(device);
	ret->epoch = shim_mem_epoch();
	return ret->row >= 0;
}

static CUresult enable(CUcontext to, unsigned flags)
{
	CUresult r = shim_driver.cuCtxEnablePeerAccess(to, flags);
	CUstreamCaptureMode mode;
	struct access a;

	if (r != CUDA_SUCCESS || !shim_swap_is_on()) {
		return r;
	}
	mode = shim_capture_exempt();
	r = CUDA_ERROR_UNKNOWN;
	if (describe(to, &a)) {
		lock_take(&shim_swap_mutex);
		r = add(&a);
		lock_release(&shim_swap_mutex);
	}
	if (r != CUDA_SUCCESS) {
		(void)shim_driver.cuCtxDisablePeerAccess(to);
	}
	shim_capture_restore(mode);
	return r;
}

/* Chunks stay mapped for the device until they move, which waits for its work. */
static CUresult disable(CUcontext to)
{
	CUresult r = shim_driver.cuCtxDisablePeerAccess(to);
	CUcontext from = NULL;

	if (r != CUDA_SUCCESS || !shim_swap_is_on() ||
	    shim_driver.cuCtxGetCurrent(&from) != CUDA_SUCCESS) {
		return r;
	}
	from = shim_green_base(from);
	to = shim_green_base(to);
	lock_take(&shim_swap_mutex);
	for (unsigned i = 0; i < n_accesses; i++) {
		if (accesses[i].from == from && accesses[i].to == to) {
			remove_at(i--);
		}
	}
	lock_release(&shim_swap_mutex);
	return r;
}

bool shim_swap_leave_for_others(const struct shim_swap_leaving *l)
{
	bool noted = false, all = true;

	lock_take(&shim_swap_mutex);
	for (unsigned i = 0; all && i < SHIM_SWAP_CONTEXTS_MAX; i++) {
		const struct shim_swap_context *c = shim_swap_context_number(i);
		struct shim_swap_leaving other = {
			.base = l->base, .id = l->id, .ctx = c->ctx, .others = true
		};
		CUresult r;

		if (!c->ctx || c->ctx == l->ctx || c->ending) {
			continue;
		}
		r = shim_swap_record_behind(c->ctx, &other.event);
		all = r != CUDA_ERROR_NOT_READY;
		other.again = !all;
		if (r == CUDA_SUCCESS && shim_swap_is_reached(other.event)) {
			(void)shim_driver.cuEventDestroy_v2(other.event);
		} else if ((r == CUDA_SUCCESS || !all) && shim_swap_leave(&other)) {
			noted = true;
		} else if (other.event) {
			(void)shim_driver.cuEventDestroy_v2(other.event);
		}
	}
	lock_release(&shim_swap_mutex);
	return noted;
}

void shim_swap_peer_ended(CUcontext ctx, uint64_t epoch)
{
	for (unsigned i = 0; i < n_accesses; i++) {
		if ((accesses[i].from == ctx || accesses[i].to == ctx) &&
		    accesses[i].epoch <= epoch) {
			remove_at(i--);
		}
	}
}

void shim_swap_peer_install(void)
{
	shim_real.cuCtxEnablePeerAccess = enable;
	shim_real.cuCtxDisablePeerAccess = disable;
}
