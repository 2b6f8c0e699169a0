/* Memory of pools that can leave the device (shim/mem/swap_async.h): which pools have such memory,
 * what is kept of it, and what programs are answered about the pools. Regions are made and freed in
 * swap_region.c. */
#include "shim/mem/swap_async.h"

#include <pthread.h>
#include <string.h>

#include "base/array_grow.h"
#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_region.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#define POOLS_MAX 256u
#define KEPT_MAX 65536u
#define QUERIES_MAX 16u			/* streams that an allocation asks about at most */
#define DONE_NS UINT64_C(5000000)	/* for work to be done with kept regions */
#define REFUSED_NS UINT64_C(1000000000) /* likewise, before an allocation is refused */
#define AGAIN_NS UINT64_C(50000)

/* Bytes of a pool, as the program sees them. */
struct figures {
	uint64_t used, reserved;
};

/* By number of the pool, less 1. A place is free once the pool is destroyed and has no regions. */
static struct pool {
	CUmemoryPool handle; /* NULL: destroyed, or none */
	uint64_t threshold;  /* what it keeps at synchronizations, bytes */
	struct figures now;  /* of its regions: live ones; and addresses of these and kept ones */
	struct figures high; /* of all that the pool has, at allocations since the latest reset */
	uint64_t live;	     /* addresses of live regions, bytes */
	bool over;	     /* counted in n_over */
} pools[POOLS_MAX] GUARDED_BY(shim_swap_mutex);
/* [atomic] pools with freed regions that have more than their threshold; changed under the mutex */
static uint32_t n_over;

/* Freed regions, in the order of their frees. */
static struct kept {
	struct shim_swap_leaving left; /* with an event */
	uint64_t reserved, owner;      /* of the region */
	uint32_t pool;		       /* its number */
	uint64_t stream;	       /* see stream_key() */
} * kept GUARDED_BY(shim_swap_mutex);  /* owned */
static size_t kept_room GUARDED_BY(shim_swap_mutex);
static uint32_t n_kept; /* [atomic] changed under the mutex */

/* ---- pools ---- */

/* Returns the number of a pool, 0 if it has no regions. */
static uint32_t number_of(CUmemoryPool handle) REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < POOLS_MAX; i++) {
		if (pools[i].handle == handle) {
			return i + 1;
		}
	}
	return 0;
}

static struct pool *pool_of(const struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	return r->pool ? &pools[r->pool - 1] : NULL;
}

/* Counts a pool, of which a figure has changed, in n_over. */
static void note_over(struct pool *p) REQUIRES(shim_swap_mutex)
{
	bool over = p->now.reserved > MAX(p->threshold, p->live);

	if (over != p->over) {
		p->over = over;
		store_release(&n_over, over ? n_over + 1 : n_over - 1);
	}
}

/* Returns the number of a pool, which becomes known; 0: there are too many. */
static uint32_t see(CUmemoryPool handle) REQUIRES(shim_swap_mutex)
{
	uint32_t number = number_of(handle);
	uint64_t threshold = 0;

	for (uint32_t i = 0; i < POOLS_MAX && !number; i++) {
		if (!pools[i].handle && !pools[i].now.reserved) {
			(void)shim_driver.cuMemPoolGetAttribute(
				handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
			pools[i] = (struct pool){ .handle = handle, .threshold = threshold };
			number = i + 1;
		}
	}
	return number;
}

/* Returns what the driver has for a pool. */
static struct figures of_driver(CUmemoryPool handle)
{
	struct figures f = { 0 };

	(void)shim_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &f.used);
	(void)shim_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
						&f.reserved);
	return f;
}

/* Counts a region that the program has got from a pool. made: it is new. */
static void count(struct mem_swap_region *r, uint32_t number, bool made, struct figures driver)
	REQUIRES(shim_swap_mutex)
{
	struct pool *p = &pools[number - 1];

	r->pool = number;
	p->now.used += r->bytes;
	p->now.reserved += made ? r->reserved : 0;
	p->live += r->reserved;
	note_over(p);
	p->high.used = MAX(p->high.used, p->now.used + driver.used);
	p->high.reserved = MAX(p->high.reserved, p->now.reserved + driver.reserved);
}

void shim_swap_async_freed(const struct mem_swap_region *r, bool freed)
{
	struct pool *p = pool_of(r);

	if (p) {
		p->now.used += freed ? -r->bytes : r->bytes;
		p->live += freed ? -r->reserved : r->reserved;
		note_over(p);
	}
}

void shim_swap_async_dropped(const struct mem_swap_region *r)
{
	struct pool *p = pool_of(r);

	if (p) {
		p->now.used -= r->freed ? 0 : r->bytes;
		p->now.reserved -= r->reserved;
		p->live -= r->freed ? 0 : r->reserved;
		note_over(p);
	}
}

void shim_swap_async_left(struct mem_swap_region *r)
{
	struct pool *p = pool_of(r);

	if (p) {
		p->now.reserved -= r->reserved;
		note_over(p);
	}
	r->pool = 0;
}

CUmemoryPool shim_swap_async_pool(const struct mem_swap_region *r)
{
	const struct pool *p = pool_of(r);

	return p ? p->handle : NULL;
}

/* ---- what is kept ---- */

/* Returns what is equal for calls of a stream. Streams that have one after the other may be equal,
 * too. */
static uint64_t stream_key(CUstream stream, bool per_thread)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread)) {
		return (uint64_t)pthread_self();
	}
	return (uint64_t)(uintptr_t)(stream ? stream : CU_STREAM_LEGACY);
}

static bool is_done(const struct kept *k)
{
	return shim_swap_is_reached(k->left.event);
}

static struct mem_swap_region *region_of(const struct kept *k) REQUIRES(shim_swap_mutex)
{
	return shim_swap_find_by_id(k->left.base, k->left.id);
}

/* Returns what a freed region has at a place, bytes. */
static uint64_t bytes_at(const struct mem_swap_region *r, enum mem_swap_place place)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		bytes += r->chunk[i].place == place ? r->chunk[i].bytes : 0;
	}
	return bytes;
}

static void remove_at(uint32_t i) REQUIRES(shim_swap_mutex)
{
	memmove(&kept[i], &kept[i + 1], (n_kept - i - 1) * sizeof(*kept));
	store_release(&n_kept, n_kept - 1);
}

/* Has a settlement free what is kept, which is the pool's no more. Returns false without host
 * memory. compact() follows. */
static bool let_go(uint32_t i) REQUIRES(shim_swap_mutex)
{
	if (!shim_swap_leave(&kept[i].left)) {
		return false;
	}
	kept[i].pool = 0;
	return true;
}

/* Removes what was let go. */
static void compact(void) REQUIRES(shim_swap_mutex)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_kept; i++) {
		if (kept[i].pool) {
			kept[n++] = kept[i];
		}
	}
	store_release(&n_kept, n);
}

static bool add(const struct kept *k) REQUIRES(shim_swap_mutex)
{
	struct kept *grown = array_grow(kept, n_kept, &kept_room, sizeof(*kept), 64, KEPT_MAX);

	if (!grown) {
		return false;
	}
	kept = grown;
	kept[n_kept] = *k;
	store_release(&n_kept, n_kept + 1);
	return true;
}

bool shim_swap_async_keep(const struct shim_swap_leaving *l, CUstream stream, bool per_thread)
{
	struct kept k = { .left = *l, .stream = stream_key(stream, per_thread) };
	const struct shim_swap_context *c;
	const struct mem_swap_region *r;
	bool done = false;

	lock_take(&shim_swap_mutex);
	r = region_of(&k);
	c = shim_swap_context(shim_green_base(l->ctx));
	if (r && shim_swap_async_pool(r) && c && !c->ending) {
		k.pool = r->pool;
		k.reserved = r->reserved;
		k.owner = r->owner;
		done = add(&k);
	}
	lock_release(&shim_swap_mutex);
	return done;
}

void shim_swap_async_end(CUcontext ctx)
{
	for (uint32_t i = 0; i < n_kept; i++) {
		if (kept[i].owner == (uint64_t)(uintptr_t)ctx || kept[i].left.ctx == ctx) {
			(void)let_go(i);
		}
	}
	compact();
}

/* Has a pool keep so much less that it has that many bytes, as far as work is done with it. */
static void keep_less(uint32_t number, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	const struct pool *p = &pools[number - 1];

	for (uint32_t i = 0; i < n_kept && p->now.reserved > bytes; i++) {
		if (kept[i].pool == number && is_done(&kept[i])) {
			(void)let_go(i);
		}
	}
	compact();
}

void shim_swap_async_trim(CUmemoryPool pool, uint64_t bytes)
{
	CUstreamCaptureMode mode;
	uint64_t driver;
	uint32_t number;

	if (!load_acquire(&n_kept) || !shim_swap_is_on()) {
		return;
	}
	mode = shim_capture_exempt();
	driver = of_driver(pool).reserved;
	lock_take(&shim_swap_mutex);
	number = number_of(pool);
	if (number) {
		keep_less(number, bytes - MIN(bytes, driver));
	}
	lock_release(&shim_swap_mutex);
	shim_capture_restore(mode);
}

void shim_swap_async_destroyed(CUmemoryPool pool)
{
	uint32_t number;

	if (!shim_swap_is_on()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	number = number_of(pool);
	if (number) {
		pools[number - 1].handle = NULL;
		for (uint32_t i = 0; i < n_kept; i++) {
			if (kept[i].pool == number) {
				(void)let_go(i);
			}
		}
		compact();
	}
	lock_release(&shim_swap_mutex);
}

void shim_swap_async_settle(void)
{
	bool all = shim_mem_waits(); /* what pools keep may be what another thread waits for */
	CUstreamCaptureMode mode;

	if (!load_acquire(all ? &n_kept : &n_over) || !shim_swap_is_on()) {
		return;
	}
	mode = shim_capture_exempt();
	lock_take(&shim_swap_mutex);
	for (uint32_t i = 0; i < POOLS_MAX; i++) {
		uint64_t most = all ? 0 : pools[i].threshold;

		if (pools[i].now.reserved > most) {
			keep_less(i + 1, most);
		}
	}
	lock_release(&shim_swap_mutex);
	shim_capture_restore(mode);
}

/* Lets go what is done, the oldest first, until that many bytes of the row's device are free by it,
 * or more by a part of a region, but not more than `most`. Returns the bytes; *ret_some becomes
 * true if something was let go. */
static uint64_t let_done_go(int row, uint64_t bytes, uint64_t most, bool *ret_some)
	REQUIRES(shim_swap_mutex)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n_kept && sum < bytes; i++) {
		const struct mem_swap_region *r = region_of(&kept[i]);
		uint64_t less;

		if (!r || r->row != row) {
			continue;
		}
		less = bytes_at(r, MEM_SWAP_DEVICE);
		if (less <= most - sum && is_done(&kept[i]) && let_go(i)) {
			sum += less;
			*ret_some = true;
		}
	}
	compact();
	return sum;
}

/* The same, with a wait for work until that time; any: for the first one that is done. Returns
 * whether something was let go. */
static bool let_go_until(int row, uint64_t bytes, bool any, uint64_t until_ns)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	bool more = true, some = false;

	while (more) {
		lock_take(&shim_swap_mutex);
		bytes -= MIN(bytes, let_done_go(row, bytes, UINT64_MAX, &some));
		more = bytes && n_kept;
		lock_release(&shim_swap_mutex);
		more = more && !(any && some) && clock_now_ns() < until_ns;
		if (more) {
			clock_sleep_ns(AGAIN_NS);
		}
	}
	shim_capture_restore(mode);
	return some;
}

bool shim_swap_async_make_room(int row, uint64_t bytes, bool wait)
{
	uint64_t room, until;

	if (!load_acquire(&n_kept) || !shim_swap_is_on()) {
		return false;
	}
	room = shim_mem_room(row);
	until = wait ? clock_now_ns() + clock_patience(DONE_NS) : 0;
	return bytes > room && let_go_until(row, bytes - room, false, until);
}

uint64_t shim_swap_async_free(int row, uint64_t bytes, uint64_t most, uint64_t reserve)
{
	CUstreamCaptureMode mode;
	uint64_t used, freed;
	bool some = false;

	if (!load_acquire(&n_kept) || !shim_swap_is_on()) {
		return 0;
	}
	shim_swap_settle(); /* what it frees is not to be missing from the reserve */
	mode = shim_capture_exempt();
	lock_take(&shim_swap_mutex);
	used = shim_mem_used(row);
	freed = let_done_go(row, bytes, MIN(most, used - MIN(used, reserve)), &some);
	lock_release(&shim_swap_mutex);
	shim_capture_restore(mode);
	if (some) {
		shim_swap_settle();
	}
	return freed;
}

void shim_swap_async_leave_host(void)
{
	for (uint32_t i = 0; i < n_kept; i++) {
		const struct mem_swap_region *r = region_of(&kept[i]);

		if (r && bytes_at(r, MEM_SWAP_HOST) && is_done(&kept[i])) {
			(void)let_go(i);
		}
	}
	compact();
}

/* ---- allocations ---- */

/* Streams whose work goes on: events of one are reached in the order of its frees. */
struct busy {
	uint64_t stream[QUERIES_MAX];
	unsigned n;
};

/* Returns true if work that is before a free of another stream is known to be done. */
static bool is_done_elsewhere(const struct kept *k, struct busy *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		if (b->stream[i] == k->stream) {
			return false;
		}
	}
	if (b->n == QUERIES_MAX) {
		return false;
	}
	b->stream[b->n++] = k->stream;
	return is_done(k);
}

/* Returns the kept region for a request, n_kept: none. One of the stream is right whether its work
 * is done or not; rather one that is on the device, as any of another stream has to be. */
static uint32_t choose(const struct shim_swap_request *a, uint32_t number, uint64_t owner)
	REQUIRES(shim_swap_mutex)
{
	uint64_t stream = stream_key(a->stream, a->per_thread);
	uint64_t reserved = shim_mem_round(a->bytes);
	uint32_t found = n_kept;
	struct busy b = { 0 };

	for (uint32_t i = 0; i < n_kept; i++) {
		const struct kept *k = &kept[i];
		bool same = k->stream == stream;
		const struct mem_swap_region *r;

		if (k->pool != number || k->reserved != reserved || k->owner != owner) {
			continue;
		}
		r = region_of(k);
		if (!r) {
			continue;
		}
		if (bytes_at(r, MEM_SWAP_HOST)) {
			found = same && found == n_kept ? i : found;
		} else if (same || is_done_elsewhere(k, &b)) {
			return i;
		}
	}
	return found;
}

/* Orders the stream's later work behind an event. */
static CUresult wait_for(const struct shim_swap_request *a, CUevent event)
{
	return a->per_thread ? shim_driver.cuStreamWaitEvent_ptsz(a->stream, event, 0)
			     : shim_driver.cuStreamWaitEvent(a->stream, event, 0);
}

/* Returns whether new memory of the device can take the place of a kept region that is on the host,
 * partly or as a whole. */
static bool has_better(uint32_t i, int row) REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_region *r = region_of(&kept[i]);
	uint64_t room = shim_mem_room(row);

	if (!bytes_at(r, MEM_SWAP_HOST) || shim_swap_is_held(row)) {
		return false;
	}
	return room >= r->reserved ||
	       (room + bytes_at(r, MEM_SWAP_DEVICE) >= r->reserved && is_done(&kept[i]));
}

/* Takes a kept region for a request: it is the program's again. Returns false if there is none. */
static bool take(const struct shim_swap_request *a, uint32_t number, struct figures driver,
		 struct kept *ret) REQUIRES(shim_swap_mutex)
{
	CUcontext ctx = NULL;
	struct mem_swap_region *r;
	uint32_t i;

	if (shim_driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS) {
		return false;
	}
	i = choose(a, number, (uint64_t)(uintptr_t)shim_green_base(ctx));
	if (i == n_kept) {
		return false;
	}
	if (has_better(i, a->row) && let_go(i)) {
		compact();
		return false;
	}
	*ret = kept[i];
	remove_at(i);
	r = region_of(ret);
	ret->left.base = shim_swap_revive(r, a->bytes);
	ret->left.id = r->id;
	count(r, number, false, driver);
	return true;
}

/* Frees a region again that was taken. Without host memory it stays until its context ends. */
static void put_back(const struct kept *k)
{
	struct mem_swap_region *r;

	lock_take(&shim_swap_mutex);
	r = region_of(k);
	if (r) {
		r->freed = true;
		shim_swap_async_freed(r, true);
	}
	if (!r || !shim_swap_leave(&k->left)) {
		(void)shim_driver.cuEventDestroy_v2(k->left.event);
	}
	lock_release(&shim_swap_mutex);
}

/* Counts a region that was made. */
static void counted(CUdeviceptr base, uint32_t number, struct figures driver)
{
	struct mem_swap_region *r;

	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_swap_map, base);
	if (r) {
		count(r, number, true, driver);
	}
	lock_release(&shim_swap_mutex);
}

/* The wait is for the stream's own work, which it does not delay, or for an event that is reached;
 * and for that of another stream which had the handle before. It is made without the mutex: the
 * driver may block in it. */
static CUresult reuse(CUdeviceptr *ret, const struct shim_swap_request *a, uint32_t *ret_number,
		      struct figures driver)
{
	CUresult r = CUDA_ERROR_NOT_FOUND;
	struct kept k;
	bool found;

	lock_take(&shim_swap_mutex);
	*ret_number = see(a->pool);
	found = *ret_number && take(a, *ret_number, driver, &k);
	lock_release(&shim_swap_mutex);
	if (found) {
		r = wait_for(a, k.left.event);
		if (r != CUDA_SUCCESS) {
			put_back(&k);
			return r;
		}
		(void)shim_driver.cuEventDestroy_v2(k.left.event);
		*ret = k.left.base;
	}
	return r;
}

CUresult shim_swap_async_alloc(CUdeviceptr *ret, const struct shim_swap_request *a)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	struct figures driver = of_driver(a->pool);
	uint32_t number;
	CUresult r = reuse(ret, a, &number, driver);

	if (r == CUDA_ERROR_NOT_FOUND && number) {
		uint64_t until = clock_now_ns() + clock_patience(REFUSED_NS);

		r = shim_swap_alloc(ret, a->bytes, a->row);
		while (r == CUDA_ERROR_OUT_OF_MEMORY && load_acquire(&n_kept) &&
		       let_go_until(a->row, UINT64_MAX, true, until)) {
			shim_swap_settle();
			r = shim_swap_alloc(ret, a->bytes, a->row);
		}
		if (r == CUDA_SUCCESS) {
			counted(*ret, number, driver);
		}
	}
	shim_capture_restore(mode);
	return r;
}

/* ---- what programs are answered ---- */

/* Adds what a pool has in regions to the driver's figure. */
static uint64_t with_regions(CUmemoryPool handle, CUmemPool_attribute what, uint64_t value)
{
	struct figures driver = of_driver(handle), now = { 0 }, high = { 0 };
	uint32_t number;

	lock_take(&shim_swap_mutex);
	number = number_of(handle);
	if (number) {
		now = pools[number - 1].now;
		high = pools[number - 1].high;
	}
	lock_release(&shim_swap_mutex);
	switch (what) {
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return value + now.used;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return value + now.reserved;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return MAX(MAX(value, high.used), driver.used + now.used);
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return MAX(MAX(value, high.reserved), driver.reserved + now.reserved);
	default:
		return value;
	}
}

static bool is_figure(CUmemPool_attribute what)
{
	return what == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || what == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
	       what == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
	       what == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
}

static CUresult get(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	CUresult r = shim_driver.cuMemPoolGetAttribute(handle, what, value);
	uint64_t figure;

	if (r == CUDA_SUCCESS && is_figure(what) && shim_swap_is_on()) {
		memcpy(&figure, value, sizeof(figure));
		figure = with_regions(handle, what, figure);
		memcpy(value, &figure, sizeof(figure));
	}
	return r;
}

static CUresult set(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	CUresult r = shim_driver.cuMemPoolSetAttribute(handle, what, value);
	CUstreamCaptureMode mode;
	struct figures driver;
	uint32_t number;

	if (r != CUDA_SUCCESS || !shim_swap_is_on()) {
		return r;
	}
	mode = shim_capture_exempt();
	driver = of_driver(handle);
	shim_capture_restore(mode);
	lock_take(&shim_swap_mutex);
	number = number_of(handle);
	if (number) {
		struct pool *p = &pools[number - 1];

		if (what == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
			memcpy(&p->threshold, value, sizeof(p->threshold));
			note_over(p);
		} else if (what == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
			p->high.used = driver.used + p->now.used;
		} else if (what == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
			p->high.reserved = driver.reserved + p->now.reserved;
		}
	}
	lock_release(&shim_swap_mutex);
	return r;
}

/* Called before: with all memory of a pool that can be exported. */
static CUresult (*next_export)(CUmemPoolPtrExportData *, CUdeviceptr);

static CUresult export_pointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	return ret && shim_swap_has(address) ? CUDA_ERROR_INVALID_VALUE : next_export(ret, address);
}

void shim_swap_async_install(void)
{
	next_export = shim_real.cuMemPoolExportPointer;
	shim_real.cuMemPoolGetAttribute = get;
	shim_real.cuMemPoolSetAttribute = set;
	shim_real.cuMemPoolExportPointer = export_pointer;
}
