/* Memory that can leave the device (shim/mem/swap_region.h): allocations and frees. */
#include "shim/mem/swap_region.h"

#include <stdlib.h>

#include "base/array_grow.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#define DRIVER_VERSION_MIN 12050     /* cuCtxRecordEvent */
#define FIRST_ID (UINT64_C(1) << 40) /* the driver's numbers of buffers are below */

static uint64_t next_id GUARDED_BY(shim_swap_mutex) = FIRST_ID;
static uint32_t is_on;	     /* [atomic] */
static uint32_t has_regions; /* [atomic] also in a process whose memory cannot leave */

/* What the program has freed, and work may use until the event is reached. */
static struct shim_swap_leaving *leaving GUARDED_BY(shim_swap_mutex); /* owned */
static size_t leaving_room GUARDED_BY(shim_swap_mutex);
static uint32_t n_leaving; /* [atomic] changed under the mutex */

/* An allocation: what is asked for, and what there is then. */
struct allocation {
	size_t bytes;
	size_t packed; /* of the first allocation in a pack; 0: it is none */
	int row;
	CUdevice device;
	bool by_handle; /* the program maps it: it has no address */
	uint32_t handle_types;
	struct mem_swap_region *region; /* by_handle: the caller's */
	CUdeviceptr base;
};

bool shim_swap_is_on(void)
{
	return load_acquire(&is_on) && shim_mem_joined();
}

bool shim_swap_has_regions(void)
{
	return load_acquire(&has_regions) && shim_mem_joined();
}

uint64_t shim_swap_new_id(void)
{
	return next_id++;
}

/* ---- allocations ---- */

/* Returns whether an address in an imported region is one that the program has open. */
static bool is_open_at(const struct mem_swap_region *r, CUdeviceptr address)
{
	uint64_t offset = address - r->base;

	return r->opened ? offset % MEM_PACK_GRAIN == 0 && r->opened[offset / MEM_PACK_GRAIN]
			 : !offset;
}

/* Returns the live region of shim_swap_alloc(), or, imported, of another process, with that base,
 * or NULL. (The base of what is imported is any address that is open in it.) *ret_part becomes the
 * allocation with that address, if the region is a pack, or NULL. */
static struct mem_swap_region *live_at(CUdeviceptr base, bool imported,
				       struct mem_pack_part **ret_part) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r = mem_swap_find(&shim_swap_map, base);

	*ret_part = r && !imported ? shim_packs_live(r, base) : NULL;
	if (r && r->pack) {
		return *ret_part && mem_pack_address(*ret_part) == base ? r : NULL;
	}
	return r && !r->freed && !r->by_handle && r->imported == imported &&
			       (imported ? is_open_at(r, base) : r->base == base)
		       ? r
		       : NULL;
}

struct mem_swap_region *shim_swap_find_by_id(CUdeviceptr base, uint64_t id)
{
	struct mem_swap_region *r = mem_swap_find(&shim_swap_map, base);

	return r && r->id == id ? r : NULL;
}

/* Shows memory of handles on the device that is not mapped, or no longer. */
static void show_unmapped(const struct mem_swap_region *r, bool is)
{
	for (uint32_t i = 0; r->by_handle && i < r->n; i++) {
		if (r->chunk[i].handle) {
			(is ? shim_mem_kind_add : shim_mem_kind_sub)(r->row, PROTO_KIND_CREATED,
								     r->chunk[i].bytes);
		}
	}
}

/* Frees what a region has that is not mapped, and its charges. */
static void discard(struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct mem_swap_chunk *c = &r->chunk[i];

		if (c->handle) {
			shim_swap_chunk_release(c);
			if (!r->imported) {
				shim_mem_release(r->row, c->bytes);
			}
		}
		shim_swap_chunk_unback(c);
	}
	free(r->opened);
	free(r);
}

void shim_swap_discard(struct mem_swap_region *r)
{
	lock_take(&shim_swap_mutex);
	show_unmapped(r, false);
	discard(r);
	lock_release(&shim_swap_mutex);
}

CUresult shim_swap_enter(struct mem_swap_region *r, CUdeviceptr base)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t n = 0;

	if (mem_swap_add(&shim_swap_map, r, base) < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (; n < r->n && result == CUDA_SUCCESS; n += result == CUDA_SUCCESS) {
		result = shim_swap_chunk_map(&r->chunk[n]);
	}
	if (result != CUDA_SUCCESS) {
		while (n) {
			(void)shim_swap_chunk_unmap(&r->chunk[--n]);
		}
		mem_swap_remove(&shim_swap_map, r);
		return result;
	}
	show_unmapped(r, false);
	for (uint32_t i = 0; i < r->n; i++) {
		struct mem_swap_chunk *c = &r->chunk[i];

		shim_swap_place(c, r->imported ? MEM_SWAP_NOWHERE
				   : c->handle ? shim_swap_device_place(r)
					       : MEM_SWAP_HOST);
	}
	return CUDA_SUCCESS;
}

void shim_swap_withdraw(struct mem_swap_region *r, bool unmap)
{
	for (uint32_t i = 0; i < r->n; i++) {
		if (r->chunk[i].place == MEM_SWAP_NOWHERE && !r->imported) {
			continue; /* its memory was passed on */
		}
		shim_swap_place(&r->chunk[i], MEM_SWAP_NOWHERE);
		if (unmap) {
			(void)shim_swap_chunk_unmap(&r->chunk[i]);
		}
	}
	mem_swap_remove(&shim_swap_map, r);
	show_unmapped(r, true);
}

/* Frees a region of shim_swap_alloc(), and its addresses. */
static void drop(struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	uint32_t share = r->share;

	if (r->imported) {
		shim_mem_import_freed(r->base);
	}
	shim_swap_async_dropped(r);
	shim_packs_dropped(r);
	shim_swap_withdraw(r, true);
	(void)shim_driver.cuMemAddressFree(r->base, r->reserved);
	shim_swap_free_slot(r->slot);
	discard(r);
	shim_mem_unnote_share(share);
}

/* Gives a chunk memory where there is room: of the device, if charged says that its bytes are
 * charged there or they can be now. full: not of the host if the driver refuses them; *full becomes
 * true then. */
static CUresult fill_chunk(struct mem_swap_chunk *c, bool charged, bool *full)
	REQUIRES(shim_swap_mutex)
{
	int row = c->region->row;

	if (charged || shim_mem_try_charge(row, c->bytes)) {
		if (shim_swap_chunk_create(c) == CUDA_SUCCESS) {
			return CUDA_SUCCESS;
		}
		shim_mem_release(row, c->bytes);
		if (full) {
			*full = true;
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return shim_swap_chunk_back(c) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives all chunks memory, whose bytes are charged or not; full as for fill_chunk(). What is not
 * used of the charge is released. */
static CUresult fill(struct mem_swap_region *r, bool charged, bool *full) REQUIRES(shim_swap_mutex)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t i = 0;

	for (; i < r->n && result == CUDA_SUCCESS; i++) {
		result = fill_chunk(&r->chunk[i], charged, full);
	}
	for (; charged && i < r->n; i++) {
		shim_mem_release(r->row, r->chunk[i].bytes);
	}
	return result;
}

CUresult shim_swap_place_region(struct mem_swap_region *r)
{
	CUdeviceptr base = 0;
	CUcontext ctx = NULL;
	CUresult result;

	if (shim_driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx ||
	    shim_driver.cuMemAddressReserve(&base, r->reserved, 0, 0, 0) != CUDA_SUCCESS) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	ctx = shim_green_base(ctx);
	shim_swap_see(ctx, r->device, false); /* a private call of the driver may have made it */
	store_release(&has_regions, 1u);
	r->owner = (uint64_t)(uintptr_t)ctx;
	r->epoch = shim_mem_epoch();
	result = base < SHIM_SWAP_ADDRESS_MIN ? CUDA_ERROR_NOT_SUPPORTED : shim_swap_enter(r, base);
	if (result != CUDA_SUCCESS) {
		(void)shim_driver.cuMemAddressFree(base, r->reserved);
		return result;
	}
	r->slot = shim_swap_take_slot();
	return result;
}

struct mem_swap_region *shim_swap_region_create(uint64_t bytes, int row)
{
	uint64_t large = bytes >= SHIM_SWAP_LARGE ? SHIM_SWAP_CHUNK_MAX : SHIM_SWAP_CHUNK;

	return mem_swap_region_create(bytes, large, SHIM_SWAP_CHUNK, row);
}

/* Makes the region, whose bytes are charged or not; full as for fill_chunk(). */
static CUresult make(struct allocation *a, bool charged, bool *full) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r = shim_swap_region_create(a->bytes, a->row);
	CUresult result;

	if (!r) {
		shim_mem_release(a->row, charged ? shim_mem_round(a->bytes) : 0);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	r->device = a->device;
	r->by_handle = a->by_handle;
	r->handle_types = a->handle_types;
	r->id = next_id++;
	result = fill(r, charged, full);
	if (result == CUDA_SUCCESS && !a->by_handle) {
		result = shim_swap_place_region(r);
	}
	if (result != CUDA_SUCCESS) {
		discard(r);
		return result;
	}
	a->base = r->base;
	if (a->packed && !shim_packs_begin(r, a->packed, &a->base)) {
		drop(r);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	show_unmapped(r, true);
	shim_swap_pool_want(a->row);
	a->region = r;
	return CUDA_SUCCESS;
}

/* Charges bytes if they fit by what was freed and is done with, after waits for other memory. */
static bool charge_freed(int row, uint64_t bytes)
{
	(void)shim_swap_async_make_room(row, bytes, false);
	shim_swap_settle();
	return shim_mem_try_charge(row, bytes);
}

/* Returns how much of all bytes may lie on the host: chunks use the device's room whole, or not. */
static uint64_t host_part(uint64_t all, uint64_t room)
{
	return all - MIN(all, room - room % MIN(all, SHIM_SWAP_CHUNK_MAX));
}

/* Has gbpfd grant the device's room for the chunks that the host has none for. */
static void ask_for_rest(int row, uint64_t all)
{
	uint64_t chunk = all >= SHIM_SWAP_LARGE ? SHIM_SWAP_CHUNK_MAX : MIN(all, SHIM_SWAP_CHUNK);
	uint64_t host = shim_mem_room(PROTO_ACCOUNT_SWAP) + shim_swap_pool_bytes();

	host -= host % chunk;
	if (all > host) {
		shim_mem_ask(row, all - host);
	}
}

/* full: as for fill_chunk(), where the limit has room for all. */
static CUresult try_alloc(struct allocation *a, bool *full)
{
	uint64_t all = shim_mem_round(a->bytes);
	bool charged;
	CUresult r;

	shim_mem_move_begin();
	charged = shim_mem_charge_or_host(a->row, all) || charge_freed(a->row, all);
	if (!charged) {
		ask_for_rest(a->row, all);
		shim_swap_ask_for_host(host_part(all, shim_mem_room(a->row)));
	}
	lock_take(&shim_swap_mutex);
	if (!charged) {
		shim_swap_pool_settle();
	}
	r = make(a, charged, charged ? full : NULL);
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
	return r;
}

static CUresult alloc(struct allocation *a)
{
	struct shim_mem_attempt attempt = { .or_host = true };
	uint64_t all = shim_mem_round(a->bytes);
	CUstreamCaptureMode mode;
	bool full;
	CUresult r;

	if (!shim_mem_limited(a->row) ||
	    all > shim_mem_limit(a->row) + shim_mem_swap_limit(a->row)) {
		return CUDA_ERROR_NOT_SUPPORTED; /* nothing leaves for it in vain */
	}
	mode = shim_capture_exempt();
	do {
		full = false;
		r = try_alloc(a, &full);
		attempt.charged = full;
	} while (shim_mem_again(&attempt, a->row, all, r, NULL));
	if (full) {
		r = try_alloc(a, NULL);
	}
	shim_capture_restore(mode);
	return r;
}

/* Allocates for the current context. */
static CUresult alloc_here(CUdeviceptr *ret, struct allocation *a)
{
	CUresult r = shim_driver.cuCtxGetDevice(&a->device);

	r = r == CUDA_SUCCESS ? alloc(a) : CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS) {
		*ret = a->base;
	}
	return r;
}

CUresult shim_swap_alloc(CUdeviceptr *ret, size_t bytes, int row)
{
	return alloc_here(ret, &(struct allocation){ .bytes = bytes, .row = row });
}

CUresult shim_swap_alloc_pack(CUdeviceptr *ret, size_t bytes, int row)
{
	return alloc_here(
		ret, &(struct allocation){ .bytes = MEM_PACK_BYTES, .packed = bytes, .row = row });
}

CUresult shim_swap_create(struct mem_swap_region **ret, size_t bytes, int row,
			  const CUmemAllocationProp *prop)
{
	struct allocation a = { .bytes = bytes,
				.row = row,
				.device = prop->location.id,
				.by_handle = true,
				.handle_types = (uint32_t)prop->requestedHandleTypes };
	CUresult r = alloc(&a);

	*ret = r == CUDA_SUCCESS ? a.region : NULL;
	return r;
}

/* ---- frees ---- */

/* Frees what the program has freed and nothing uses any more, a region or an allocation in a pack,
 * and a pack that is empty then; unless it waits for another event. back: and moves chunks into the
 * room of a region. */
static void free_region(CUdeviceptr base, uint64_t id, bool back)
{
	struct mem_swap_region *r;
	struct mem_pack_part *part;
	uint32_t *awaited;

	shim_mem_move_begin();
	lock_take(&shim_swap_mutex);
	r = shim_packs_find(base, id, &part);
	awaited = part ? &part->awaited : r ? &r->awaited : NULL;
	if (r && *awaited > 1) {
		--*awaited;
	} else if (r && (!part || shim_packs_give(part))) {
		int row = r->row;

		r->freed = true;
		if (back && shim_swap_map.at[row][MEM_SWAP_HOST].first) {
			shim_swap_back_into(r);
		}
		drop(r);
		if (back && shim_swap_map.at[row][MEM_SWAP_HOST].first) {
			shim_swap_back(row);
		}
	}
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
}

/* The driver has refused to free it. */
static void keep_region(CUdeviceptr base, uint64_t id)
{
	struct mem_pack_part *part;
	struct mem_swap_region *r;

	lock_take(&shim_swap_mutex);
	r = shim_packs_find(base, id, &part);
	if (r) {
		*(part ? &part->freed : &r->freed) = false;
		shim_swap_async_freed(r, false);
	}
	lock_release(&shim_swap_mutex);
}

bool shim_swap_leave(const struct shim_swap_leaving *l)
{
	struct shim_swap_leaving *grown =
		array_grow(leaving, n_leaving, &leaving_room, sizeof(*grown), 64, UINT32_MAX);
	const struct shim_swap_context *c;
	struct mem_pack_part *part;
	struct mem_swap_region *r;

	if (!grown) {
		return false;
	}
	leaving = grown;
	leaving[n_leaving] = *l;
	c = l->event ? shim_swap_context(l->ctx) : NULL;
	if (c && c->ending) { /* since the event was recorded; it ends with the context */
		(void)shim_driver.cuEventDestroy_v2(l->event);
		leaving[n_leaving].event = NULL;
	}
	store_release(&n_leaving, n_leaving + 1);
	r = shim_packs_find(l->base, l->id, &part);
	if (r) {
		*(part ? &part->awaited : &r->awaited) += l->others;
		shim_swap_async_left(r);
	}
	return true;
}

static bool leave(const struct shim_swap_leaving *l)
{
	bool noted;

	lock_take(&shim_swap_mutex);
	noted = shim_swap_leave(l);
	lock_release(&shim_swap_mutex);
	return noted;
}

CUdeviceptr shim_swap_revive(struct mem_swap_region *r, uint64_t bytes)
{
	r->freed = false;
	r->bytes = bytes;
	r->id = next_id++;
	return r->base;
}

static void unleave(uint32_t i) REQUIRES(shim_swap_mutex)
{
	leaving[i] = leaving[n_leaving - 1];
	store_release(&n_leaving, n_leaving - 1);
}

/* Begins to free a live region, or an allocation in a pack: it is no address of the program any
 * more. Returns false if there is none with that base. */
static bool begin_free(CUdeviceptr base, bool imported, struct shim_swap_leaving *ret)
{
	struct mem_pack_part *part;
	struct mem_swap_region *r;

	if (!shim_swap_has_regions()) {
		return false;
	}
	lock_take(&shim_swap_mutex);
	r = live_at(base, imported, &part);
	*ret = (struct shim_swap_leaving){ 0 };
	if (r && r->opens > 1) {
		r->opens--;
		if (r->opened) {
			r->opened[(base - r->base) / MEM_PACK_GRAIN]--;
		}
	} else if (r) {
		*(part ? &part->freed : &r->freed) = true;
		shim_swap_async_freed(r, true);
		*ret = (struct shim_swap_leaving){ .base = base,
						   .id = part ? part->id : r->id,
						   .packed = part != NULL,
						   .ctx = (CUcontext)(uintptr_t)r->owner };
	}
	lock_release(&shim_swap_mutex);
	return r != NULL;
}

/* Frees an allocation in a pack if it need not wait: an event would take longer than all else.
 * Returns whether it did. */
static bool free_if_idle(const struct shim_swap_leaving *l)
{
	bool idle;

	lock_take(&shim_swap_mutex);
	idle = l->packed && shim_swap_is_idle(l->ctx);
	lock_release(&shim_swap_mutex);
	if (idle) {
		free_region(l->base, l->id, true);
	}
	return idle;
}

/* The driver waits for all work in cuMemFree, too. While a stream of the process captures, nothing
 * can be waited for: the memory is freed later. */
static bool free_behind_work(CUdeviceptr address, bool imported, CUresult *ret)
{
	CUstreamCaptureMode mode;
	struct shim_swap_leaving l;
	CUresult r;

	if (!begin_free(address, imported, &l)) {
		return false;
	}
	if (!l.base) { /* it is open still */
		*ret = CUDA_SUCCESS;
		return true;
	}
	mode = shim_capture_exempt();
	r = free_if_idle(&l) ? CUDA_SUCCESS : shim_swap_record_behind(l.ctx, &l.event);
	if (l.event) {
		r = shim_driver.cuEventSynchronize(l.event);
		(void)shim_driver.cuEventDestroy_v2(l.event);
		if (r == CUDA_SUCCESS && !shim_swap_leave_for_others(&l)) {
			free_region(l.base, l.id, true);
		}
	} else if (r == CUDA_ERROR_NOT_READY) {
		l.others = l.again = true;
		r = leave(&l) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		keep_region(l.base, l.id);
	}
	shim_capture_restore(mode);
	*ret = r;
	return true;
}

bool shim_swap_free(CUdeviceptr address, CUresult *ret)
{
	return free_behind_work(address, false, ret);
}

bool shim_swap_close(CUdeviceptr address, CUresult *ret)
{
	return free_behind_work(address, true, ret);
}

/* Returns the context of a stream. A green one can be current to one thread only, and ends with its
 * primary context, which represents it. */
static CUresult context_of_stream(CUstream stream, CUcontext *ret)
{
	CUgreenCtx green = NULL;
	CUresult r;

	if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) {
		r = shim_driver.cuCtxGetCurrent(ret);
	} else if (shim_driver.cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && green) {
		r = shim_driver.cuStreamGetCtx_v2(stream, ret, &green);
	} else {
		r = shim_driver.cuStreamGetCtx(stream, ret);
	}
	if (r == CUDA_SUCCESS) {
		*ret = shim_green_base(*ret);
	}
	return r;
}

bool shim_swap_free_async(CUdeviceptr address, CUstream stream, bool per_thread, CUresult *ret)
{
	struct shim_swap_leaving l;
	CUresult r;

	if (!begin_free(address, false, &l)) {
		return false;
	}
	if (shim_capture_any() && shim_capture_has(stream, per_thread)) {
		r = CUDA_ERROR_INVALID_VALUE; /* the graph does not allocate it */
	} else {
		r = context_of_stream(stream, &l.ctx);
		r = r == CUDA_SUCCESS ? shim_swap_make_event(l.ctx, &l.event) : r;
	}
	if (r == CUDA_SUCCESS) {
		r = per_thread ? shim_driver.cuEventRecord_ptsz(l.event, stream)
			       : shim_driver.cuEventRecord(l.event, stream);
		if (r == CUDA_SUCCESS && !shim_swap_async_keep(&l, stream, per_thread) &&
		    !leave(&l)) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (r != CUDA_SUCCESS) {
			(void)shim_driver.cuEventDestroy_v2(l.event);
		}
	}
	if (r != CUDA_SUCCESS) {
		keep_region(l.base, l.id);
	}
	*ret = r;
	return true;
}

bool shim_swap_is_reached(CUevent event)
{
	CUresult r = shim_driver.cuEventQuery(event);

	return r != CUDA_ERROR_NOT_READY && r != CUDA_ERROR_CAPTURED_EVENT;
}

/* Returns true if no work can use a region any more that was freed. */
static bool has_left(struct shim_swap_leaving *l) REQUIRES(shim_swap_mutex)
{
	if (!l->event) {
		struct mem_pack_part *part;
		const struct mem_swap_region *r = shim_packs_find(l->base, l->id, &part);
		const struct shim_swap_context *c;

		if (!r) {
			return true;
		}
		l->ctx = (CUcontext)(uintptr_t)r->owner;
		c = shim_swap_context(l->ctx);
		if (!c || c->ending) {
			return false;
		}
		(void)shim_swap_record_behind(l->ctx, &l->event);
	}
	return l->event && shim_swap_is_reached(l->event);
}

/* Takes a region that was freed and that no work uses. Returns false if there is none. */
static bool take_left(struct shim_swap_leaving *ret)
{
	bool found = false;

	lock_take(&shim_swap_mutex);
	for (uint32_t i = 0; i < n_leaving && !found; i++) {
		if (has_left(&leaving[i])) {
			*ret = leaving[i];
			if (ret->event) {
				(void)shim_driver.cuEventDestroy_v2(ret->event);
			}
			unleave(i);
			found = true;
		}
	}
	lock_release(&shim_swap_mutex);
	return found;
}

void shim_swap_settle(void)
{
	CUstreamCaptureMode mode;
	struct shim_swap_leaving l;

	shim_swap_async_settle();
	if (!load_acquire(&n_leaving) || !shim_swap_has_regions()) {
		return;
	}
	mode = shim_capture_exempt();
	while (take_left(&l)) {
		if (l.again) {
			(void)shim_swap_leave_for_others(&l);
		}
		free_region(l.base, l.id, false); /* the caller may need the room */
	}
	shim_capture_restore(mode);
}

void shim_swap_give_back(void)
{
	CUstreamCaptureMode mode = shim_capture_exempt();

	if (shim_swap_is_on() && lock_try(&shim_swap_mutex)) {
		shim_swap_async_leave_host();
		shim_swap_pool_drop(SHIM_SWAP_POOL_IDLE_NS);
		lock_release(&shim_swap_mutex);
		shim_swap_settle();
	}
	shim_capture_restore(mode);
}

/* ---- ends of contexts ---- */

/* Forgets the events of a context, which ends with them. */
static void drop_events(CUcontext ctx) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < n_leaving; i++) {
		if (leaving[i].event && leaving[i].ctx == ctx) {
			(void)shim_driver.cuEventDestroy_v2(leaving[i].event);
			leaving[i].event = NULL;
		}
	}
}

void shim_swap_context_ending(CUcontext ctx, bool ending)
{
	struct shim_swap_context *c;

	if (!shim_swap_has_regions()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	c = shim_swap_context(ctx);
	if (c) {
		c->ending = ending;
		c->first = load_relaxed(&shim_work_interval); /* others have no event of it */
	}
	shim_packs_ending(ctx, ending);
	if (ending) {
		shim_swap_async_end(ctx);
		drop_events(ctx);
	}
	lock_release(&shim_swap_mutex);
}

void shim_swap_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_swap_region *r;

	if (!shim_swap_has_regions()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	while ((r = mem_swap_of_owner(&shim_swap_map, (uint64_t)(uintptr_t)ctx, epoch)) != NULL) {
		drop(r); /* what refers to it by its number finds it gone */
	}
	shim_swap_peer_ended(ctx, epoch);
	if (!shim_swap_forget(ctx, epoch)) {
		shim_swap_pool_drop(0);
	}
	lock_release(&shim_swap_mutex);
}

bool shim_swap_is_possible(void)
{
	int version = 0;

	return shim_driver.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
	       version >= DRIVER_VERSION_MIN;
}

void shim_swap_install(uint32_t gpus)
{
	shim_work_install();
	shim_swap_chunk_setup(gpus);
	shim_swap_install_calls();
	shim_swap_async_install();
	shim_swap_peer_install();
	shim_swap_across_install();
	store_release(&has_regions, 1u);
	store_release(&is_on, 1u);
}
