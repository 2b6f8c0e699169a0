/* Linear device memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree.
 *
 * The driver takes whole 2 MiB units for an allocation above 1 MiB. Smaller ones share blocks of 2
 * MiB, so the first allocation in a block is charged for it and the last one that is freed returns
 * it. The address tells the block; a unit is charged before the driver is asked, and returned if
 * the block was charged already. At the limit, where no unit can be charged, the driver is asked
 * first: the allocation stays if it lies in a block that was charged already.
 *
 * In a process whose memory can leave the device all this is for what swap_region.c and packs.c do
 * not serve. */
#include "mem/region.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define SMALL_MAX (1u << 20) /* largest allocation that shares a block */

static struct lock mutex = LOCK_INITIALIZER(MEM_LINEAR);
/* By address; bytes 0: in a block; count: enum proto_kind, not the first. */
static struct mem_regions regions GUARDED_BY(mutex);
/* Freed by cuMemFreeAsync: charged until the stream has come there. */
#define LEAVING_MAX 256u
static struct {
	CUevent event;
	int row;
	uint64_t bytes;
} leaving[LEAVING_MAX] GUARDED_BY(mutex);
static uint32_t n_leaving; /* [atomic] */
/* By number of the block; count: allocations in it, all or none of which are managed; owner: their
 * kind, MANAGED or SMALL. */
static struct mem_regions blocks GUARDED_BY(mutex);

/* An allocation in the making. */
struct taking {
	int row;
	uint64_t charged, epoch;
	bool is_small;
	enum proto_kind kind;
};

static CUcontext current(void)
{
	CUcontext ctx = NULL;

	(void)shim_driver.cuCtxGetCurrent(&ctx);
	return ctx;
}

/* Counts an allocation to its block. Returns 0 (the unit is the block's charge), 1 (the block was
 * charged before) or -ENOMEM. */
static int enter_block(int row, uint64_t address, enum proto_kind kind) REQUIRES(mutex)
{
	struct mem_region *b = mem_regions_find(&blocks, address / SHIM_MEM_UNIT);

	if (b) {
		b->count++;
		return 1;
	}
	return mem_regions_add(&blocks, &(struct mem_region){ .key = address / SHIM_MEM_UNIT,
							      .bytes = SHIM_MEM_UNIT,
							      .owner = kind,
							      .row = (uint32_t)row,
							      .count = 1 });
}

/* Returns the bytes to be released with an allocation. */
static uint64_t leave(const struct mem_region *r) REQUIRES(mutex)
{
	enum proto_kind kind = (enum proto_kind)r->count;
	uint64_t bytes = r->bytes;
	struct mem_region *b, gone;

	if (!bytes) {
		b = mem_regions_find(&blocks, r->key / SHIM_MEM_UNIT);
		if (!b || --b->count) {
			return 0;
		}
		b->count = 1; /* 0 would mean a free slot */
		(void)mem_regions_take(&blocks, r->key / SHIM_MEM_UNIT, &gone);
		bytes = gone.bytes;
		kind = (enum proto_kind)gone.owner;
	}
	if (kind == PROTO_KIND_MANAGED) {
		shim_mem_managed_sub((int)r->row, bytes);
	}
	shim_mem_kind_sub((int)r->row, kind, bytes);
	return bytes;
}

/* Removes what is left of an allocation at an address that the driver has given to another one: its
 * context is being destroyed, and shim_mem_linear_context_ended() comes later. Returns the bytes to
 * be released. */
static uint64_t take_stale(uint64_t address) REQUIRES(mutex)
{
	struct mem_region stale;

	return mem_regions_take(&regions, address, &stale) ? leave(&stale) : 0;
}

/* Notes an allocation. Returns how much of its charge is returned, or negative: out of host memory.
 */
static int64_t add_locked(const struct taking *t, uint64_t address) REQUIRES(mutex)
{
	struct mem_region r = { .key = address,
				.bytes = t->is_small ? 0 : t->charged,
				.owner = (uint64_t)(uintptr_t)current(),
				.epoch = t->epoch,
				.row = (uint32_t)t->row,
				.count = t->kind };
	enum proto_kind kind = t->kind;
	int err, shared = 0;

	shim_mem_release(t->row, take_stale(address));
	err = mem_regions_add(&regions, &r);

	if (!err && t->is_small) {
		kind = kind == PROTO_KIND_MANAGED ? kind : PROTO_KIND_SMALL;
		shared = enter_block(t->row, address, kind);
		if (shared < 0) {
			err = shared;
			(void)mem_regions_take(&regions, address, &r);
		}
	}
	if (!err && !shared && kind == PROTO_KIND_MANAGED) {
		shim_mem_managed_add(t->row, t->charged);
	}
	if (!err && !shared) {
		shim_mem_kind_add(t->row, kind, t->charged);
	}
	return err ? err : shared ? (int64_t)t->charged : 0;
}

static int64_t add(const struct taking *t, uint64_t address)
{
	int64_t back;

	lock_take(&mutex);
	back = add_locked(t, address);
	lock_release(&mutex);
	return back;
}

/* Charges an allocation before the driver is asked. Returns false if it exceeds the limit; else
 * allocated() follows. call: NULL: only if it fits at once. */
static bool begin(struct taking *t, int row, uint64_t bytes, enum proto_kind kind, const char *call)
{
	*t = (struct taking){ .row = row,
			      .charged = shim_mem_round(bytes),
			      .is_small = bytes <= SMALL_MAX,
			      .kind = kind };
	shim_mem_move_begin();
	if (!(call ? shim_mem_charge(row, t->charged, call)
		   : shim_mem_try_charge(row, t->charged))) {
		shim_mem_move_end();
		return false;
	}
	t->epoch = shim_mem_epoch();
	return true;
}

/* Completes an allocation: r is the driver's answer for it. */
static CUresult allocated(CUresult r, const struct taking *t, uint64_t address)
{
	int64_t back = r == CUDA_SUCCESS ? add(t, address) : 0;

	if (r != CUDA_SUCCESS || back < 0) {
		if (r == CUDA_SUCCESS) {
			(void)shim_driver.cuMemFree_v2(address);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
		back = (int64_t)t->charged;
	}
	shim_mem_release(t->row, (uint64_t)back);
	shim_mem_move_end();
	return r;
}

/* Allocates at the limit, in a block that is charged. Returns false if the driver has no room
 * there: nothing is allocated. Meanwhile the driver may hold a block that is not charged. The
 * caller declares it as excess, or a measurement would take it for overhead, for good. */
static bool allocate_in_block(CUdeviceptr *ret, size_t bytes, int row)
{
	struct taking t = { .row = row,
			    .charged = SHIM_MEM_UNIT,
			    .is_small = true,
			    .kind = PROTO_KIND_SMALL,
			    .epoch = shim_mem_epoch() };
	CUdeviceptr address;
	bool fits;

	if (shim_driver.cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS) {
		return false;
	}
	/* In one step, or the block's last allocation could be freed in between. One that is left
	 * at the address goes first: with it the block may lose its charge. */
	lock_take(&mutex);
	shim_mem_release(row, take_stale(address));
	fits = mem_regions_find(&blocks, address / SHIM_MEM_UNIT) && add_locked(&t, address) > 0;
	lock_release(&mutex);
	if (fits) {
		*ret = address;
	} else {
		(void)shim_driver.cuMemFree_v2(address);
	}
	return fits;
}

/* Returns true if a small allocation was made without a charge, where none is possible. */
static bool squeeze(CUdeviceptr *ret, size_t bytes, int row)
{
	uint64_t limit = shim_mem_limit(row);
	bool has_blocks, done = false;

	if (bytes > SMALL_MAX || shim_mem_used(row) + SHIM_MEM_UNIT <= limit) {
		return false;
	}
	lock_take(&mutex);
	has_blocks = blocks.n != 0;
	lock_release(&mutex);
	if (has_blocks) {
		shim_mem_move_begin();
		shim_mem_excess_add(row, SHIM_MEM_UNIT);
		done = allocate_in_block(ret, bytes, row);
		shim_mem_excess_sub(row, SHIM_MEM_UNIT);
		shim_mem_move_end();
	}
	return done;
}

static CUresult allocate_once(CUdeviceptr *ret, size_t bytes, int row, struct shim_mem_attempt *a)
{
	struct taking t;
	CUresult r;

	if (shim_swap_is_on() && (bytes < SHIM_SWAP_MIN ? shim_packs_alloc : shim_swap_alloc)(
					 ret, bytes, row) == CUDA_SUCCESS) {
		return CUDA_SUCCESS;
	}
	if (squeeze(ret, bytes, row)) {
		return CUDA_SUCCESS;
	}
	if (!begin(&t, row, bytes, bytes < SHIM_SWAP_MIN ? PROTO_KIND_SMALL : PROTO_KIND_LINEAR,
		   "cuMemAlloc")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->charged = true;
	r = shim_driver.cuMemAlloc_v2(ret, bytes);
	return allocated(r, &t, r == CUDA_SUCCESS ? *ret : 0);
}

CUresult shim_mem_linear_try(CUdeviceptr *ret, size_t bytes, int row)
{
	struct taking t;
	CUresult r;

	if (row != shim_mem_row_current() || !begin(&t, row, bytes, PROTO_KIND_POOL, NULL)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = shim_driver.cuMemAlloc_v2(ret, bytes);
	return allocated(r, &t, r == CUDA_SUCCESS ? *ret : 0);
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
	struct shim_mem_attempt a = { 0 };
	int row = shim_mem_row_current();
	CUresult r;

	if (row < 0 || !ret || !bytes) {
		return shim_driver.cuMemAlloc_v2(ret, bytes); /* refuses it, or a forked child's */
	}
	do {
		r = allocate_once(ret, bytes, row, &a);
	} while (shim_mem_again(&a, row, shim_mem_round(bytes), r, "cuMemAlloc"));
	return r;
}

static CUresult allocate_managed_once(CUdeviceptr *ret, size_t bytes, unsigned flags, int row,
				      struct shim_mem_attempt *a)
{
	struct taking t;
	CUresult r = shim_managed_alloc(ret, bytes, flags, row, &a->charged);

	if (r != CUDA_ERROR_NOT_SUPPORTED) {
		return r;
	}
	if (!begin(&t, row, bytes, PROTO_KIND_MANAGED, "cuMemAllocManaged")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->charged = true;
	r = shim_driver.cuMemAllocManaged(ret, bytes, flags);
	return allocated(r, &t, r == CUDA_SUCCESS ? *ret : 0);
}

static CUresult allocate_managed(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
	struct shim_mem_attempt a = { 0 };
	int row = shim_mem_row_current();
	CUresult r;

	if (row < 0 || !ret || !bytes) {
		return shim_driver.cuMemAllocManaged(ret, bytes, flags);
	}
	do {
		r = allocate_managed_once(ret, bytes, flags, row, &a);
	} while (shim_mem_again(&a, row, shim_mem_round(bytes), r, "cuMemAllocManaged"));
	return r;
}

/* Memory with a pitch as the program has asked for it. */
struct pitched {
	CUdeviceptr *ret;
	size_t *ret_pitch;
	size_t width, height;
	unsigned element;
};

/* The pitch is the driver's to choose: `bytes`, for the width rounded up to 512, are charged first,
 * then what it is. */
static CUresult allocate_pitch_once(const struct pitched *p, uint64_t bytes, int row,
				    struct shim_mem_attempt *a)
{
	uint64_t exact;
	struct taking t;
	CUresult r;

	if (!begin(&t, row, bytes, PROTO_KIND_PITCHED, "cuMemAllocPitch")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->charged = true;
	r = shim_driver.cuMemAllocPitch_v2(p->ret, p->ret_pitch, p->width, p->height, p->element);
	if (r == CUDA_SUCCESS) {
		bytes = *p->ret_pitch * p->height;
		exact = shim_mem_round(bytes);
		if (shim_mem_recharge(row, t.charged, exact, "cuMemAllocPitch")) {
			t.charged = exact;
			t.is_small = bytes <= SMALL_MAX;
		} else {
			(void)shim_driver.cuMemFree_v2(*p->ret);
			r = CUDA_ERROR_OUT_OF_MEMORY;
			a->charged = false;
		}
	}
	return allocated(r, &t, r == CUDA_SUCCESS ? *p->ret : 0);
}

static CUresult allocate_pitch(CUdeviceptr *ret, size_t *ret_pitch, size_t width, size_t height,
			       unsigned element)
{
	const struct pitched p = { ret, ret_pitch, width, height, element };
	struct shim_mem_attempt a = { 0 };
	int row = shim_mem_row_current();
	uint64_t bytes;
	CUresult r;

	if (row < 0 || !ret || !ret_pitch ||
	    __builtin_mul_overflow(width > SIZE_MAX - 511 ? SIZE_MAX : ROUND_UP(width, 512), height,
				   &bytes) ||
	    !bytes) {
		return shim_driver.cuMemAllocPitch_v2(ret, ret_pitch, width, height, element);
	}
	do {
		r = allocate_pitch_once(&p, bytes, row, &a);
	} while (shim_mem_again(&a, row, shim_mem_round(bytes), r, "cuMemAllocPitch"));
	return r;
}

/* Removes the entry of an address before the driver frees it, since another thread may get the same
 * address at once. Returns false if there is none: memory of a pool, or none at all. */
static bool begin_free(CUdeviceptr address, struct mem_region *ret)
{
	bool known;

	if (!shim_mem_joined()) { /* in a forked child: another thread may have held the mutex */
		return false;
	}
	lock_take(&mutex);
	known = mem_regions_take(&regions, address, ret);
	lock_release(&mutex);
	return known;
}

/* Returns the bytes to be released, 0 if the driver has refused: then the entry comes back.
 * (Without host memory for it the bytes stay charged.) */
static uint64_t end_free(CUresult r, const struct mem_region *m)
{
	uint64_t bytes = 0;

	lock_take(&mutex);
	if (r == CUDA_SUCCESS) {
		bytes = leave(m);
	} else {
		(void)mem_regions_add(&regions, m);
	}
	lock_release(&mutex);
	return bytes;
}

static CUresult release(CUdeviceptr address)
{
	struct mem_region m, export;
	bool known, is_exported;
	CUresult r;

	if (shim_swap_free(address, &r) || shim_managed_free(address, &r)) {
		return r;
	}
	shim_mem_move_begin();
	known = begin_free(address, &m);
	is_exported = shim_mem_exports_begin_free(address, &export);
	r = shim_driver.cuMemFree_v2(address);
	if (is_exported) {
		shim_mem_exports_end_free(&export, r == CUDA_SUCCESS);
	}
	if (known) {
		shim_mem_release((int)m.row, end_free(r, &m));
	} else if (r == CUDA_SUCCESS) {
		shim_mem_import_freed(address);
		shim_mem_settle();
	}
	shim_mem_move_end();
	return r;
}

/* Notes that bytes are free once the stream has come here. If that cannot be noted, waits for it.
 * Ends the change that the free is. */
static void release_behind(CUstream stream, bool per_thread, int row, uint64_t bytes)
{
	CUevent event = NULL;
	CUresult r = shim_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

	if (r == CUDA_SUCCESS) {
		r = per_thread ? shim_driver.cuEventRecord_ptsz(event, stream)
			       : shim_driver.cuEventRecord(event, stream);
	}
	lock_take(&mutex);
	if (r == CUDA_SUCCESS && n_leaving < LEAVING_MAX) {
		leaving[n_leaving].event = event;
		leaving[n_leaving].row = row;
		leaving[n_leaving].bytes = bytes;
		store_release(&n_leaving, n_leaving + 1);
		event = NULL;
	}
	lock_release(&mutex);
	if (!event && r == CUDA_SUCCESS) {
		return;
	}
	(void)(per_thread ? shim_driver.cuStreamSynchronize_ptsz(stream)
			  : shim_driver.cuStreamSynchronize(stream));
	shim_mem_release(row, bytes);
	if (event) {
		(void)shim_driver.cuEventDestroy_v2(event);
	}
	shim_mem_move_end();
}

void shim_mem_linear_settle(void)
{
	CUstreamCaptureMode mode;

	if (!load_acquire(&n_leaving) || !shim_mem_joined()) {
		return;
	}
	mode = shim_capture_exempt(); /* for the queries of events */
	lock_take(&mutex);
	for (unsigned i = 0; i < n_leaving;) {
		if (shim_driver.cuEventQuery(leaving[i].event) == CUDA_ERROR_NOT_READY) {
			i++;
			continue;
		}
		(void)shim_driver.cuEventDestroy_v2(leaving[i].event);
		shim_mem_release(leaving[i].row, leaving[i].bytes);
		leaving[i] = leaving[n_leaving - 1];
		store_release(&n_leaving, n_leaving - 1);
		shim_mem_move_over();
	}
	lock_release(&mutex);
	shim_capture_restore(mode);
}

/* cuMemFreeAsync of memory that is no pool's. */
static CUresult free_async(CUdeviceptr address, CUstream stream, bool per_thread,
			   CUresult (*real)(CUdeviceptr, CUstream))
{
	struct mem_region m, export;
	bool known, is_exported;
	uint64_t bytes = 0;
	CUresult r;

	if (shim_swap_free_async(address, stream, per_thread, &r)) {
		return r;
	}
	known = begin_free(address, &m);
	is_exported = shim_mem_exports_begin_free(address, &export);
	if (known) {
		shim_mem_move_begin();
	}
	r = real(address, stream);
	if (is_exported) {
		shim_mem_exports_end_free(&export, r == CUDA_SUCCESS);
	}
	if (known) {
		bytes = end_free(r, &m);
	} else if (r == CUDA_SUCCESS) {
		shim_mem_import_freed(address);
	}
	if (bytes) {
		release_behind(stream, per_thread, (int)m.row, bytes);
	} else if (known) {
		shim_mem_move_end();
	}
	return r;
}

static CUresult release_async(CUdeviceptr address, CUstream stream)
{
	return free_async(address, stream, false, shim_driver.cuMemFreeAsync);
}

static CUresult release_async_ptsz(CUdeviceptr address, CUstream stream)
{
	return free_async(address, stream, true, shim_driver.cuMemFreeAsync_ptsz);
}

void shim_mem_linear_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region m;
	size_t cursor = 0;

	lock_take(&mutex);
	while (mem_regions_take_owned(&regions, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &m)) {
		shim_mem_release((int)m.row, leave(&m));
	}
	lock_release(&mutex);
}

/* The calls of CUDA 2 and 3.1, with addresses and sizes of 32 bits. */
static CUresult allocate_v1(CUdeviceptr_v1 *ret, unsigned bytes)
{
	(void)ret;
	(void)bytes;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult allocate_pitch_v1(CUdeviceptr_v1 *ret, unsigned *ret_pitch, unsigned width,
				  unsigned height, unsigned element)
{
	(void)ret;
	(void)ret_pitch;
	(void)width;
	(void)height;
	(void)element;
	return CUDA_ERROR_NOT_SUPPORTED;
}

void shim_mem_install_linear(void)
{
	shim_real.cuMemAlloc = allocate_v1;
	shim_real.cuMemAllocPitch = allocate_pitch_v1;
	shim_real.cuMemAlloc_v2 = allocate;
	shim_real.cuMemAllocManaged = allocate_managed;
	shim_real.cuMemAllocPitch_v2 = allocate_pitch;
	shim_real.cuMemFree_v2 = release;
	shim_real.cuMemFreeAsync = release_async;
	shim_real.cuMemFreeAsync_ptsz = release_async_ptsz;
}
