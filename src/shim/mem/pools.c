/* Memory pools: cuMemAllocAsync and cuMemAllocFromPoolAsync. A pool takes memory from the device in
 * steps and keeps what is freed, so charged is what it holds
 * (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT).
 *
 * Before an allocation the step by which the pool may have to grow is charged, then the figure is
 * taken from the driver; one allocation of the process at a time, so that the difference is its,
 * except while one waits for memory. A pool gives memory back at synchronizations, where it is
 * measured again, and when it is trimmed, which happens before any call is refused for lack of
 * memory. */
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/graphs.h"
#include "shim/mem/overhead.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define POOLS_MAX 256u

static struct lock mutex = LOCK_INITIALIZER(MEM_POOLS);
static struct {
	CUmemoryPool pool;
	int row;
	uint64_t charged;
	uint64_t excess; /* that it holds beyond the charge */
	bool doomed;	 /* the program has destroyed it */
	bool strict;	 /* it has all of its memory: that is of a kind of its own, can be
			  * exported, or has a greatest size */
} pools[POOLS_MAX] GUARDED_BY(mutex);
static uint32_t n_pools; /* [atomic] */
static uint64_t holder;	 /* [atomic] of the mutex: a thread's pthread_self(); 0: none */

static void note_holder(void) REQUIRES(mutex)
{
	store_relaxed(&holder, (uint64_t)pthread_self());
}

/* Only this thread can have stored its own name. */
static bool is_holder(void)
{
	return load_relaxed(&holder) == (uint64_t)pthread_self();
}

static void lock(void) ACQUIRES(mutex)
{
	lock_take(&mutex);
	note_holder();
}

static void unlock(void) RELEASES(mutex)
{
	store_relaxed(&holder, UINT64_C(0));
	lock_release(&mutex);
}

/* Returns a figure of a pool, bytes; UINT64_MAX: the driver does not say. */
static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute what)
{
	uint64_t bytes = 0;

	return shim_driver.cuMemPoolGetAttribute(pool, what, &bytes) == CUDA_SUCCESS ? bytes
										     : UINT64_MAX;
}

static uint64_t held_by(CUmemoryPool pool)
{
	return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static uint64_t used_of(CUmemoryPool pool)
{
	return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

/* Returns the pool's index, n_pools if it is not charged. */
static unsigned index_of(CUmemoryPool pool) REQUIRES(mutex)
{
	unsigned i = 0;

	while (i < n_pools && pools[i].pool != pool) {
		i++;
	}
	return i;
}

/* Adds a pool that takes memory from the row's device. Returns false if there are too many. */
static bool add(CUmemoryPool pool, int row, bool strict) REQUIRES(mutex)
{
	if (n_pools == POOLS_MAX) {
		return false;
	}
	pools[n_pools].pool = pool;
	pools[n_pools].row = row;
	pools[n_pools].charged = pools[n_pools].excess = 0;
	pools[n_pools].doomed = false;
	pools[n_pools].strict = strict;
	store_release(&n_pools, n_pools + 1);
	return true;
}

/* Adds the default pool of a device when it is used first; device: negative: any. Other pools that
 * are not known are on the host, or were imported: their creator is charged. Returns false if there
 * are too many. */
static bool add_default(CUmemoryPool pool, CUdevice device) REQUIRES(mutex)
{
	CUmemoryPool own = NULL;
	int row;

	if ((device < 0 && shim_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) ||
	    shim_driver.cuDeviceGetDefaultMemPool(&own, device) != CUDA_SUCCESS || own != pool) {
		return true;
	}
	row = shim_mem_row(device);
	return row >= 0 && add(pool, row, false);
}

static void set_excess(unsigned i, uint64_t bytes) REQUIRES(mutex)
{
	shim_mem_excess_add(pools[i].row, bytes);
	shim_mem_excess_sub(pools[i].row, pools[i].excess);
	pools[i].excess = bytes;
}

/* Releases bytes that a pool is charged for. */
static void uncharge(unsigned i, uint64_t bytes) REQUIRES(mutex)
{
	shim_mem_kind_sub(pools[i].row, PROTO_KIND_POOL, bytes);
	shim_mem_release(pools[i].row, bytes);
	pools[i].charged -= bytes;
}

/* Lowers a pool's charge to what it holds. It grows only in allocate(). */
static void measure(unsigned i) REQUIRES(mutex)
{
	uint64_t held = held_by(pools[i].pool);

	if (held == UINT64_MAX) {
		return;
	}
	if (pools[i].excess) {
		set_excess(i, held > pools[i].charged ? held - pools[i].charged : 0);
	}
	if (held < pools[i].charged) {
		uncharge(i, pools[i].charged - held);
	}
}

/* Destroys a pool which the program has destroyed, once the driver holds nothing for it. A pool of
 * which nothing is in use may still hold memory: of frees that wait in a stream, and of a context
 * that another thread is destroying. That stays charged, or it would appear as overhead. Returns
 * false if the pool is still there. */
static bool bury(unsigned i) REQUIRES(mutex)
{
	if (!pools[i].doomed || used_of(pools[i].pool)) {
		return false;
	}
	(void)shim_driver.cuMemPoolTrimTo(pools[i].pool, 0);
	if (held_by(pools[i].pool)) {
		measure(i);
		return false;
	}
	(void)shim_driver.cuMemPoolDestroy(pools[i].pool);
	set_excess(i, 0);
	uncharge(i, pools[i].charged);
	pools[i] = pools[n_pools - 1];
	store_release(&n_pools, n_pools - 1);
	return true;
}

/* The driver counts questions about pools as errors that invalidate captures, also when the program
 * has called something that it may call during a capture, such as cuMemGetInfo. */
static void measure_all(bool trim) REQUIRES(mutex)
{
	CUstreamCaptureMode mode = shim_capture_exempt();

	for (unsigned i = 0; i < n_pools;) {
		if (trim) {
			(void)shim_driver.cuMemPoolTrimTo(pools[i].pool, 0);
		}
		measure(i);
		i += !bury(i);
	}
	shim_capture_restore(mode);
}

void shim_mem_pools_measure(bool trim)
{
	if (!load_acquire(&n_pools) || !shim_mem_joined() || is_holder()) {
		return; /* this thread allocates from a pool */
	}
	if (trim) { /* a call that is refused otherwise waits for another thread's measurement */
		lock_take(&mutex);
	} else if (!lock_try(&mutex)) {
		return;
	}
	note_holder();
	measure_all(trim);
	unlock();
}

void shim_mem_settle(void)
{
	shim_mem_linear_settle();
	shim_swap_settle();
	if (unlikely(load_acquire(&n_pools))) {
		/* What pools keep may be what another thread waits for. */
		shim_mem_pools_measure(shim_mem_waits());
	}
	shim_mem_graphs_measure(false);
}

/* An allocation as the program has asked for it. */
struct request {
	CUdeviceptr *ret;
	size_t bytes;
	CUmemoryPool pool; /* NULL: that of the stream's device */
	CUstream stream;
	bool per_thread;
};

static const char *name_of(const struct request *a)
{
	return a->pool ? "cuMemAllocFromPoolAsync" : "cuMemAllocAsync";
}

static CUresult run(const struct request *a)
{
	if (a->pool) {
		return a->per_thread ? shim_driver.cuMemAllocFromPoolAsync_ptsz(a->ret, a->bytes,
										a->pool, a->stream)
				     : shim_driver.cuMemAllocFromPoolAsync(a->ret, a->bytes,
									   a->pool, a->stream);
	}
	return a->per_thread ? shim_driver.cuMemAllocAsync_ptsz(a->ret, a->bytes, a->stream)
			     : shim_driver.cuMemAllocAsync(a->ret, a->bytes, a->stream);
}

/* Returns true if the pool may serve the request out of what is charged. */
static bool has_room(unsigned i, size_t bytes) REQUIRES(mutex)
{
	uint64_t used = used_of(pools[i].pool);

	return used <= pools[i].charged && pools[i].charged - used >= bytes;
}

/* Trims all pools and charges the step. Returns what is charged; UINT64_MAX: there is no memory
 * now. */
static uint64_t charge_trimmed(unsigned i, size_t bytes) REQUIRES(mutex)
{
	uint64_t step = shim_mem_round_step(bytes);

	for (unsigned k = 0; k < n_pools; k++) {
		(void)shim_driver.cuMemPoolTrimTo(pools[k].pool, 0);
		measure(k);
	}
	return shim_mem_try_charge(pools[i].row, step) ? step : UINT64_MAX;
}

/* Waits for the step as long as the vGPU's calls wait, without the mutex: other threads allocate
 * from pools meanwhile, and what they free is what the call waits for. *i becomes the pool's index
 * again. Returns what is charged; UINT64_MAX: there is no memory, or the pool was destroyed. */
static uint64_t wait_for_step(unsigned *i, const struct request *a) REQUIRES(mutex)
{
	CUmemoryPool pool = pools[*i].pool;
	int row = pools[*i].row;
	uint64_t step = shim_mem_round_step(a->bytes);
	bool is_charged;

	unlock();
	is_charged = shim_mem_charge(row, step, name_of(a));
	lock();
	*i = index_of(pool);
	if (*i == n_pools || pools[*i].doomed || pools[*i].row != row) {
		shim_mem_release(row, is_charged ? step : 0);
		return UINT64_MAX;
	}
	measure(*i);
	if (is_charged) {
		return step;
	}
	return has_room(*i, a->bytes) ? 0 : UINT64_MAX;
}

/* Allocates, and corrects the charge, which includes `step` for this call. Returns false if the
 * pool has grown beyond the limit by more than that: then the memory is freed again. */
static bool run_charged(unsigned i, const struct request *a, uint64_t step, CUresult *ret)
	REQUIRES(mutex)
{
	uint64_t held;

	set_excess(i, pools[i].excess + shim_mem_round_step(a->bytes)); /* as much as it may grow */
	*ret = run(a);
	held = held_by(pools[i].pool);
	shim_mem_kind_add(pools[i].row, PROTO_KIND_POOL, step);
	pools[i].charged += step;
	if (held == UINT64_MAX) {
		held = pools[i].charged;
	}
	if (held <= pools[i].charged) {
		uncharge(i, pools[i].charged - held);
		set_excess(i, 0);
		return true;
	}
	if (shim_mem_recharge(pools[i].row, pools[i].charged, held, name_of(a))) {
		shim_mem_kind_add(pools[i].row, PROTO_KIND_POOL, held - pools[i].charged);
		pools[i].charged = held;
		set_excess(i, 0);
		return true;
	}
	set_excess(i, held - pools[i].charged);
	if (*ret == CUDA_SUCCESS) {
		(void)(a->per_thread ? shim_driver.cuMemFreeAsync_ptsz(*a->ret, a->stream)
				     : shim_driver.cuMemFreeAsync(*a->ret, a->stream));
		(void)shim_driver.cuMemPoolTrimTo(pools[i].pool, 0);
	}
	return false;
}

/* Returns true if memory of the current context can stand in for the pool's: no other process and
 * no other context can access it, nor can another device be given access later. */
static bool is_private(unsigned i) REQUIRES(mutex)
{
	CUdevice own = -1;
	int devices = 0;

	if (pools[i].strict || !shim_mem_has_one_context() ||
	    shim_driver.cuCtxGetDevice(&own) != CUDA_SUCCESS ||
	    shim_driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) {
		return false;
	}
	for (int d = 0; d < devices; d++) {
		int can = 1;

		if (d != own &&
		    (shim_driver.cuDeviceCanAccessPeer(&can, d, own) != CUDA_SUCCESS || can)) {
			return false;
		}
	}
	return true;
}

/* At the limit, where a whole step cannot be charged: allocates the units that the request needs as
 * cuMemAlloc does. Such memory is the program's at once on every stream, and cuMemFreeAsync frees
 * it in the stream's order. Returns false if there is not so much left either. */
static bool run_outside(unsigned i, const struct request *a) REQUIRES(mutex)
{
	if (!a->bytes || !is_private(i)) {
		return false;
	}
	shim_mem_linear_settle();
	return shim_mem_linear_try(a->ret, a->bytes, pools[i].row) == CUDA_SUCCESS;
}

/* Charges the step by which the pool may grow, and allocates. At the limit a pool that has room
 * needs none, unless the room is scattered or still in use by other streams: then it grows, or the
 * driver refuses if the device is full, too. Pools are trimmed then; what does not make room for a
 * step may do for the request, outside the pool. Then the call waits. The mutex is released while
 * the call waits. */
static CUresult grow(unsigned i, const struct request *a, struct shim_mem_attempt *attempt)
	REQUIRES(mutex)
{
	uint64_t step = shim_mem_round_step(a->bytes);
	CUresult r;

	measure(i);
	if (!shim_mem_try_charge(pools[i].row, step)) {
		if (has_room(i, a->bytes) && run_charged(i, a, 0, &r) &&
		    r != CUDA_ERROR_OUT_OF_MEMORY) {
			return r;
		}
		step = charge_trimmed(i, a->bytes);
		if (step == UINT64_MAX && run_outside(i, a)) {
			return CUDA_SUCCESS;
		}
		if (step == UINT64_MAX) {
			step = wait_for_step(&i, a);
		}
		if (step == UINT64_MAX) { /* less than a step may have become free */
			return i < n_pools && !pools[i].doomed && run_outside(i, a)
				       ? CUDA_SUCCESS
				       : CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	attempt->charged = run_charged(i, a, step, &r);
	return attempt->charged ? r : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The current pool of the stream's device, which a call without a pool uses. */
static CUmemoryPool pool_of(const struct request *a, CUdevice *ret_device)
{
	CUcontext ctx = NULL, popped;
	CUmemoryPool pool = NULL;
	CUdevice device = -1;
	CUresult r;

	if ((uintptr_t)a->stream > (uintptr_t)CU_STREAM_PER_THREAD &&
	    shim_driver.cuStreamGetCtx(a->stream, &ctx) == CUDA_SUCCESS && ctx &&
	    shim_driver.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
		r = shim_driver.cuCtxGetDevice(&device);
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	} else {
		r = shim_driver.cuCtxGetDevice(&device);
	}
	*ret_device = device;
	return r == CUDA_SUCCESS && shim_driver.cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS
		       ? pool
		       : NULL;
}

/* A capture's memory is its graph's. */
static CUresult capture(const struct request *a)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	CUdevice device = -1;
	uint64_t charged;

	(void)pool_of(a, &device);
	shim_mem_move_begin();
	if (shim_mem_graph_node_begin(device, a->bytes, &charged)) {
		r = run(a);
		shim_mem_graph_node_end(device, charged, r == CUDA_SUCCESS);
	}
	shim_mem_move_end();
	return r;
}

/* *ret_row becomes that of the pool's device, negative if it is not charged. */
static CUresult allocate_once(const struct request *a, CUmemoryPool pool, CUdevice device,
			      struct shim_mem_attempt *attempt, int *ret_row)
{
	CUresult r;
	unsigned i;

	lock();
	i = index_of(pool);
	if (i < n_pools && pools[i].doomed) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else if (i == n_pools && !add_default(pool, device)) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		*ret_row = i < n_pools ? pools[i].row : -1;
		shim_mem_move_begin();
		r = i < n_pools ? grow(i, a, attempt) : run(a);
		shim_mem_move_end();
	}
	unlock();
	return r;
}

/* In a process whose memory can leave the device: allocates memory that can. Returns false if that
 * is not possible; then the pool itself may serve the request. */
static bool allocate_swapped(const struct request *a, CUmemoryPool pool, CUdevice device)
{
	struct shim_swap_request s = { .bytes = a->bytes,
				       .row = -1,
				       .pool = pool,
				       .stream = a->stream,
				       .per_thread = a->per_thread };
	unsigned i;

	if (a->bytes < SHIM_SWAP_MIN || !shim_swap_is_on()) {
		return false;
	}
	lock();
	i = index_of(pool);
	if (i == n_pools && add_default(pool, device)) {
		i = index_of(pool);
	}
	if (i < n_pools && !pools[i].doomed && pools[i].row == shim_mem_row_current() &&
	    is_private(i)) {
		s.row = pools[i].row;
	}
	unlock();
	return s.row >= 0 && shim_swap_async_alloc(a->ret, &s) == CUDA_SUCCESS;
}

static CUresult allocate(const struct request *a)
{
	struct shim_mem_attempt attempt = { 0 };
	CUmemoryPool pool = a->pool;
	CUdevice device = -1;
	int row = -1;
	CUresult r;

	if (!shim_mem_joined() || !a->ret) {
		return run(a);
	}
	if (shim_capture_any() && shim_capture_has(a->stream, a->per_thread)) {
		return capture(a);
	}
	if (!pool) {
		pool = pool_of(a, &device);
	}
	if (allocate_swapped(a, pool, device)) {
		return CUDA_SUCCESS;
	}
	do { /* it waits without the mutex, so that other threads can free what they have */
		r = allocate_once(a, pool, device, &attempt, &row);
	} while (shim_mem_again(&attempt, row, a->bytes, r, name_of(a)));
	return r;
}

static CUresult from_pool(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate(&(struct request){ ret, bytes, pool, stream, false });
}

static CUresult from_pool_ptsz(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate(&(struct request){ ret, bytes, pool, stream, true });
}

/* A pool on a device is charged from its creation on; without room for it there is no pool. */
static CUresult create(CUmemoryPool *ret, const CUmemPoolProps *props)
{
	int row = props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE
			  ? shim_mem_row(props->location.id)
			  : -1;
	CUresult r = shim_driver.cuMemPoolCreate(ret, props);
	bool added;

	if (r != CUDA_SUCCESS || row < 0) {
		return r;
	}
	lock();
	added = add(*ret, row,
		    props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
			    props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->maxSize ||
			    props->usage);
	unlock();
	if (!added) {
		(void)shim_driver.cuMemPoolDestroy(*ret);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

static CUresult plain(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
	return allocate(&(struct request){ ret, bytes, NULL, stream, false });
}

static CUresult plain_ptsz(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
	return allocate(&(struct request){ ret, bytes, NULL, stream, true });
}

static CUresult trim(CUmemoryPool pool, size_t bytes)
{
	CUresult r = shim_driver.cuMemPoolTrimTo(pool, bytes);

	if (r == CUDA_SUCCESS) {
		shim_swap_async_trim(pool, bytes);
	}
	shim_mem_settle();
	/* A measurement of another thread may have asked before: shim_mem_settle() does not wait
	 * for it, yet what the program has given back must not count any more. */
	if (load_acquire(&n_pools) && shim_mem_joined() && !is_holder()) {
		lock();
		measure_all(false);
		unlock();
	}
	return r;
}

/* A device whose current pool is destroyed gets its default pool. */
static void leave_current(CUmemoryPool pool)
{
	CUmemoryPool now = NULL, own;
	CUdevice device;

	if (shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    shim_driver.cuDeviceGetMemPool(&now, device) == CUDA_SUCCESS && now == pool &&
	    shim_driver.cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS) {
		(void)shim_driver.cuDeviceSetMemPool(device, own);
	}
}

/* Has a pool keep nothing that is not in use, as one that the driver has destroyed: the program
 * cannot trim it any more. */
static void give_back(unsigned i) REQUIRES(mutex)
{
	uint64_t threshold = 0;

	(void)shim_driver.cuMemPoolSetAttribute(pools[i].pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
						&threshold);
	(void)shim_driver.cuMemPoolTrimTo(pools[i].pool, 0);
	measure(i);
}

/* The driver keeps a destroyed pool's memory while allocations of it live, but cannot be asked
 * about it any more. So a charged pool is destroyed once nothing of it is in use. */
static CUresult destroy(CUmemoryPool pool)
{
	CUresult r = CUDA_SUCCESS;
	unsigned i;

	if (!load_acquire(&n_pools) || !shim_mem_joined()) {
		return shim_driver.cuMemPoolDestroy(pool);
	}
	lock();
	i = index_of(pool);
	if (i == n_pools) {
		r = shim_driver.cuMemPoolDestroy(pool);
	} else if (pools[i].doomed) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		pools[i].doomed = true;
		shim_swap_async_destroyed(pool);
		leave_current(pool);
		give_back(i);
		(void)bury(i);
	}
	unlock();
	return r;
}

/* Pools give memory back to the device at synchronizations. */
static CUresult settled(CUresult r)
{
	shim_mem_settle();
	return r;
}

static CUresult synchronize_stream(CUstream stream)
{
	return settled(shim_driver.cuStreamSynchronize(stream));
}

static CUresult synchronize_stream_ptsz(CUstream stream)
{
	return settled(shim_driver.cuStreamSynchronize_ptsz(stream));
}

static CUresult synchronize_event(CUevent event)
{
	return settled(shim_driver.cuEventSynchronize(event));
}

static CUresult synchronize_context(void)
{
	return settled(shim_driver.cuCtxSynchronize());
}

static CUresult synchronize_context_v2(CUcontext ctx)
{
	return settled(shim_driver.cuCtxSynchronize_v2(ctx));
}

void shim_mem_install_pools(void)
{
	shim_real.cuStreamSynchronize = synchronize_stream;
	shim_real.cuStreamSynchronize_ptsz = synchronize_stream_ptsz;
	shim_real.cuEventSynchronize = synchronize_event;
	shim_real.cuCtxSynchronize = synchronize_context;
	shim_real.cuCtxSynchronize_v2 = synchronize_context_v2;
	shim_real.cuMemAllocAsync = plain;
	shim_real.cuMemAllocAsync_ptsz = plain_ptsz;
	shim_real.cuMemAllocFromPoolAsync = from_pool;
	shim_real.cuMemAllocFromPoolAsync_ptsz = from_pool_ptsz;
	shim_real.cuMemPoolTrimTo = trim;
	shim_real.cuMemPoolCreate = create;
	shim_real.cuMemPoolDestroy = destroy;
}
