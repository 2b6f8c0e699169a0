/* Managed memory that can leave the device (shim/mem/swap_managed.h): its charges, allocations and
 * frees. */
#include "shim/mem/swap_managed.h"

#include <stdlib.h>

#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/managed_int.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#define PAGE 4096u

struct mem_swap_map shim_managed_map;
static uint32_t n_regions; /* [atomic] changed under the mutex */
/* Of regions that the driver is freeing: they are not in the map, and it may wait for work. */
static struct {
	uint64_t on_device, on_host; /* bytes */
} freeing GUARDED_BY(shim_swap_mutex);

bool shim_managed_any(void)
{
	return load_acquire(&n_regions) != 0 && shim_mem_joined();
}

/* ---- charges ---- */

void shim_managed_on_device(struct mem_swap_chunk *c)
{
	shim_mem_managed_add(c->region->row, c->bytes);
	c->handle = 1;
}

void shim_managed_release_device(struct mem_swap_chunk *c)
{
	if (c->handle) {
		shim_mem_managed_sub(c->region->row, c->bytes);
		shim_mem_release(c->region->row, c->bytes);
		c->handle = 0;
	}
}

bool shim_managed_charge_host(struct mem_swap_chunk *c)
{
	bool done = shim_swap_charge_host(c->bytes);

	while (!done && shim_swap_pool_free_oldest()) {
		done = shim_swap_charge_host(c->bytes);
	}
	c->host = done;
	return done;
}

void shim_managed_release_host(struct mem_swap_chunk *c)
{
	if (c->host) {
		shim_swap_uncharge_host(c->bytes);
		c->host = 0;
	}
}

void shim_managed_place(struct mem_swap_chunk *c, enum mem_swap_place to)
{
	uint64_t was = c->place == MEM_SWAP_HOST ? c->bytes : 0;
	uint64_t is = to == MEM_SWAP_HOST ? c->bytes : 0;
	int row = c->region->row;

	if (c->place == MEM_SWAP_DEVICE) {
		shim_mem_kind_sub(row, PROTO_KIND_CHUNK, c->bytes);
	}
	mem_swap_place(&shim_managed_map, c, to);
	if (to == MEM_SWAP_DEVICE) {
		shim_mem_kind_add(row, PROTO_KIND_CHUNK, c->bytes);
	}
	shim_swap_show_away(row);
	store_release(&shim_swap_on_host, shim_swap_on_host + is - was);
}

/* ---- allocations ---- */

/* An allocation that is made. */
struct making {
	size_t bytes;
	unsigned flags;
	CUdevice device;
	int row;
	CUdeviceptr at; /* 0: the driver has given none */
};

/* Returns the device of the current context in *ret if its managed memory can leave: the device
 * uses it in place, while the host may access it. Another GPU of the process could make the driver
 * move it. */
static bool can_leave(CUdevice *ret)
{
	int can = 0;

	return shim_mem_row(1) < 0 && shim_driver.cuCtxGetDevice(ret) == CUDA_SUCCESS &&
	       shim_driver.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
						*ret) == CUDA_SUCCESS &&
	       can;
}

/* Returns true if the device has as much free as the allocation and all managed memory of the
 * process on the host, and is as large as all of it: the driver is never asked for more managed
 * memory than the device could have, wherever gBPF means to keep it. */
static bool fits_device(int row, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	uint64_t on_host = shim_managed_map.at[row][MEM_SWAP_HOST].bytes + freeing.on_host;
	uint64_t on_device = shim_managed_map.at[row][MEM_SWAP_DEVICE].bytes + freeing.on_device;
	size_t available = 0, total = 0;

	return shim_driver.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS &&
	       bytes <= available && on_host <= available - bytes && on_host + bytes <= total &&
	       on_device <= total - on_host - bytes;
}

static void destroy(struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < r->n; i++) {
		shim_managed_release_device(&r->chunk[i]);
		shim_managed_release_host(&r->chunk[i]);
	}
	mem_advice_destroy(r->advice);
	free(r);
}

static int enter(struct mem_swap_region *r, CUdeviceptr base) REQUIRES(shim_swap_mutex)
{
	int err = mem_swap_add(&shim_managed_map, r, base);

	for (uint32_t i = 0; !err && i < r->n; i++) {
		shim_managed_place(&r->chunk[i],
				   r->chunk[i].handle ? MEM_SWAP_DEVICE : MEM_SWAP_HOST);
	}
	store_release(&n_regions, (uint32_t)shim_managed_map.n);
	return err;
}

/* Removes a region from the map, which keeps its charges. */
static void withdraw(struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < r->n; i++) {
		shim_managed_place(&r->chunk[i], MEM_SWAP_NOWHERE);
	}
	mem_swap_remove(&shim_managed_map, r);
	store_release(&n_regions, (uint32_t)shim_managed_map.n);
}

/* Charges a region by chunks: all is charged to the device already, or each where there is room. */
static bool charge(struct mem_swap_region *r, bool charged) REQUIRES(shim_swap_mutex)
{
	bool done = true;

	for (uint32_t i = 0; i < r->n && done; i++) {
		struct mem_swap_chunk *c = &r->chunk[i];

		if (charged || shim_mem_try_charge(r->row, c->bytes)) {
			shim_managed_on_device(c);
		} else {
			done = shim_managed_charge_host(c);
		}
	}
	return done;
}

/* Removes what is left of allocations whose addresses the driver has given again: their context is
 * being destroyed. */
static void drop_stale(CUdeviceptr at, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r;

	while ((r = mem_swap_next(&shim_managed_map, at)) != NULL && r->base < at + bytes &&
	       at < r->base + r->bytes) {
		withdraw(r);
		destroy(r);
	}
}

static CUresult allocate(struct making *m, struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	CUcontext ctx = NULL;
	CUresult result;

	(void)shim_driver.cuCtxGetCurrent(&ctx);
	if (ctx) {
		ctx = shim_green_base(ctx);
		shim_swap_see(ctx, m->device, false);
	}
	r->owner = (uint64_t)(uintptr_t)ctx;
	r->epoch = shim_mem_epoch();
	r->device = m->device;
	if (!fits_device(m->row,
			 shim_mem_round(m->bytes))) { /* other threads have allocated meanwhile */
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = shim_driver.cuMemAllocManaged(&m->at, m->bytes, m->flags);
	if (result != CUDA_SUCCESS) {
		m->at = 0;
		return result;
	}
	drop_stale(m->at, m->bytes);
	if (enter(r, m->at) < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < r->n && result == CUDA_SUCCESS; i++) {
		result = r->chunk[i].host ? shim_managed_keep(&r->chunk[i]) : result;
	}
	if (result != CUDA_SUCCESS) { /* it could migrate beyond the limit */
		withdraw(r);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

/* Makes the region, whose bytes are charged to the device or not. */
static CUresult make(struct making *m, bool charged) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r = shim_swap_region_create(m->bytes, m->row);
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	if (r) {
		r->advice = mem_advice_create(m->bytes);
	}
	if (!r || !r->advice) {
		free(r);
		shim_mem_release(m->row, charged ? shim_mem_round(m->bytes) : 0);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	r->reserved = ROUND_UP(r->bytes, PAGE); /* of addresses: others may follow */
	if (charge(r, charged)) {
		result = allocate(m, r);
	}
	if (result != CUDA_SUCCESS) {
		destroy(r);
	}
	return result;
}

CUresult shim_managed_alloc(CUdeviceptr *ret, size_t bytes, unsigned flags, int row, bool *ret_full)
{
	struct making m = { .bytes = bytes, .flags = flags, .row = row };
	uint64_t all = shim_mem_round(bytes);
	CUstreamCaptureMode mode;
	bool charged, fits;
	CUresult r;

	*ret_full = false;
	if (!shim_swap_is_on() || bytes < SHIM_SWAP_MIN || !shim_mem_limited(row) ||
	    all > shim_mem_limit(row) + shim_mem_swap_limit(row) || !can_leave(&m.device)) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	lock_take(&shim_swap_mutex);
	fits = fits_device(row, all);
	lock_release(&shim_swap_mutex);
	if (!fits) { /* nothing leaves for it in vain */
		*ret_full = all <= shim_mem_limit(row);
		if (!*ret_full) { /* else a wait may follow */
			shim_mem_note_full(row, all, "cuMemAllocManaged");
		}
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mode = shim_capture_exempt();
	shim_mem_move_begin();
	charged = shim_mem_charge_or_host(row, all);
	if (!charged) {
		shim_swap_ask_for_host(all - MIN(all, shim_mem_room(row)));
	}
	lock_take(&shim_swap_mutex);
	if (!charged) {
		shim_swap_pool_settle();
	}
	r = make(&m, charged);
	lock_release(&shim_swap_mutex);
	if (r != CUDA_SUCCESS && m.at) {
		(void)shim_driver.cuMemFree_v2(m.at);
	}
	shim_mem_move_end();
	shim_capture_restore(mode);
	if (r == CUDA_SUCCESS) {
		*ret = m.at;
	}
	return r;
}

/* The driver begins to free a region, or has freed or refused it. */
static void note_freeing(const struct mem_swap_region *r, bool begins) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < r->n; i++) {
		uint64_t *sum = r->chunk[i].host ? &freeing.on_host : &freeing.on_device;

		*sum = begins ? *sum + r->chunk[i].bytes : *sum - r->chunk[i].bytes;
	}
}

bool shim_managed_free(CUdeviceptr address, CUresult *ret)
{
	struct mem_swap_region *r;

	if (!shim_managed_any()) {
		return false;
	}
	/* Before the driver frees it, since another thread may get the same addresses at once. */
	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_managed_map, address);
	r = r && r->base == address ? r : NULL;
	if (r) {
		withdraw(r);
		note_freeing(r, true);
	}
	lock_release(&shim_swap_mutex);
	if (!r) {
		return false;
	}
	shim_mem_move_begin();
	*ret = shim_driver.cuMemFree_v2(address);
	lock_take(&shim_swap_mutex);
	note_freeing(r, false);
	if (*ret == CUDA_SUCCESS) {
		destroy(r);
	} else if (enter(r, address) < 0) { /* its bytes stay charged */
		mem_advice_destroy(r->advice);
		free(r);
	}
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
	return true;
}

void shim_managed_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_swap_region *r;

	if (!shim_managed_any()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	while ((r = mem_swap_of_owner(&shim_managed_map, (uint64_t)(uintptr_t)ctx, epoch)) !=
	       NULL) {
		withdraw(r);
		destroy(r);
	}
	lock_release(&shim_swap_mutex);
}

/* ---- parts of it ---- */

struct shim_managed_range shim_managed_find(CUdeviceptr address, uint64_t bytes)
{
	struct shim_managed_range g = { .region = mem_swap_find(&shim_managed_map, address) };
	/* The driver's ranges are whole pages: behind the last byte of a region is its page. */
	const struct mem_swap_region *next =
		mem_swap_next(&shim_managed_map, ROUND_UP(address, PAGE));
	uint64_t at;

	if (!g.region) {
		g.spans = next && next->base >= address && next->base - address < bytes;
		return g;
	}
	at = address - g.region->base;
	g.spans = !bytes || bytes > g.region->bytes - at;
	g.begin = at - at % PAGE;
	g.end = g.spans ? g.region->bytes : MIN(ROUND_UP(at + bytes, PAGE), g.region->bytes);
	return g;
}
