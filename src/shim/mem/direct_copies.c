/* Small copies by the direct plan (mem/direct.h, docs/MEMORY.md). Legacy and per-thread default
 * streams and all streams that were not made non-blocking are ordered with the legacy default
 * stream, which is done only when all of them are: the driver is asked about that one. A blocking
 * copy waits for it, as the driver's would; another one is the driver's if there is work left. */

#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/window.h"
#include "shim/capture_state.h"
#include "shim/fork_lock.h"
#include "shim/mem/copies.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

/* Below, the driver takes the same for pageable memory. */
#define PINNED_ASKED_MIN ((size_t)16 << 10)
#define PINNED_ENTRIES 64u
#define PINNED_USES 127u
#define TIMED_MAX_NS 200000u

static struct mem_direct direct;
/* Held while a window is mapped, and across fork: until it is marked, a child would inherit it. */
static struct lock opening = LOCK_INITIALIZER(DIRECT_OPENING);
/* [atomic] What the driver has said of pages of the program, as the question takes 0.3 us (H200):
 * number << 8 | uses left << 1 | is page-locked. If that is no longer right, copies are timed as of
 * the wrong kind, until it is asked again. */
static uint64_t pinned_pages[PINNED_ENTRIES];
uint32_t shim_copy_direct_most[2];

/* Returns true if the driver knows the device's side as memory of one allocation, of that context:
 * a copy of another one's memory waits for the work of both contexts (H200, 580.159.04). Memory
 * with SYNC_MEMOPS may be read by another device as soon as the copy has returned, and the way of
 * its reads may be shorter than that of the CPU's stores. */
static bool is_allocated(CUdeviceptr address, size_t bytes, CUcontext ctx)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE,
				       CU_POINTER_ATTRIBUTE_CONTEXT,
				       CU_POINTER_ATTRIBUTE_SYNC_MEMOPS };
	CUdeviceptr base = 0;
	CUcontext of = NULL;
	size_t size = 0;
	int synced = 1;
	void *to[] = { &base, &size, &of, &synced };

	return shim_driver.cuPointerGetAttributes(ARRAY_SIZE(what), what, to, address) ==
		       CUDA_SUCCESS &&
	       of == ctx && !synced && address >= base && address - base <= size &&
	       bytes <= size - (address - base);
}

/* Memory of cuMemAlloc stays where it is, as one object, until it is freed. */
static bool is_mappable(CUdeviceptr address)
{
	return !shim_swap_has(address) &&
	       shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address,
				      CU_MEMORYTYPE_DEVICE) &&
	       shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0) &&
	       shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, 1);
}

/* Returns true if the stream is done. An asynchronous copy may be made while another stream
 * captures, but asking about the legacy stream would end that capture. */
static bool is_done(CUstream stream)
{
	CUresult e = CUDA_ERROR_NOT_READY;

	shim_capture_lock();
	if (!shim_capture_any()) {
		e = shim_driver.cuStreamQuery(stream);
	}
	shim_capture_unlock();
	return e == CUDA_SUCCESS;
}

/* Returns the type of memory that the driver knows; 0: it does not know any there. */
static unsigned type_of(const void *host)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE };
	unsigned type = 0;
	void *to[] = { &type };

	(void)shim_driver.cuPointerGetAttributes(1, what, to, (uintptr_t)host);
	return type;
}

static bool is_pinned(const void *host)
{
	uint64_t page = (uintptr_t)host >> 12, *entry = &pinned_pages[page % PINNED_ENTRIES],
		 known = load_relaxed(entry);
	bool is;

	if (known >> 8 == page && known >> 1 & PINNED_USES) {
		store_relaxed(entry, known - 2);
		return known & 1;
	}
	is = type_of(host) == CU_MEMORYTYPE_HOST;
	store_relaxed(entry, page << 8 | PINNED_USES << 1 | is);
	return is;
}

/* Returns true if the copy may wait for the stream that is asked about: the driver's would, too. An
 * asynchronous copy down to pageable memory returns when the bytes are there. */
static bool may_wait(const struct shim_copy_request *r, bool own_stream)
{
	return own_stream && r->way == MEM_COPY_DOWN && !type_of(r->host) &&
	       !type_of((const char *)r->host + (r->bytes - 1));
}

/* Exempt from captures that another thread begins meanwhile, as a copy would be. */
static bool synchronize(CUstream stream)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	CUresult e = shim_driver.cuStreamSynchronize(stream);

	shim_capture_restore(mode);
	return e == CUDA_SUCCESS;
}

static bool is_legacy(const struct gpu_copy_queue *q)
{
	return q->stream == CU_STREAM_LEGACY || (!q->stream && !q->per_thread);
}

/* Returns true if all work that the copy is ordered behind is done. */
static bool is_first(const struct shim_copy_request *r, CUcontext ctx)
{
	CUstream asked = CU_STREAM_LEGACY;
	bool own = is_legacy(&r->queue);
	unsigned flags = 0; /* of a default stream */

	if (!shim_copy_is_of_context(r->queue.stream, ctx) ||
	    ((uintptr_t)r->queue.stream > (uintptr_t)CU_STREAM_PER_THREAD &&
	     shim_driver.cuStreamGetFlags(r->queue.stream, &flags) != CUDA_SUCCESS)) {
		return false;
	}
	if (flags & CU_STREAM_NON_BLOCKING) {
		asked = r->queue.stream;
		own = true;
	}
	if (r->blocking && own) {
		return synchronize(asked);
	}
	return is_done(asked) || (may_wait(r, own) && synchronize(asked));
}

static enum mem_direct_kind kind_of(const struct shim_copy_request *r)
{
	unsigned kind = r->blocking ? MEM_DIRECT_BLOCKING : MEM_DIRECT_ASYNC;

	return r->bytes >= PINNED_ASKED_MIN && is_pinned(r->host) ? kind + MEM_DIRECT_PINNED : kind;
}

/* The driver refuses other addresses. */
static bool is_range(const void *host, size_t bytes)
{
	uintptr_t end;

	return host && !checked_add((uintptr_t)host, bytes, &end);
}

/* Returns true if it is memory that the CPU reads slowly. */
static bool is_combined(const void *host)
{
	unsigned flags = 0;

	return shim_driver.cuMemHostGetFlags(&flags, unqual(host)) == CUDA_SUCCESS &&
	       (flags & CU_MEMHOSTALLOC_WRITECOMBINED);
}

static void open_window(CUdeviceptr address)
{
	bool may = is_mappable(address);

	lock_take(&opening);
	mem_direct_open(&direct, address, may);
	lock_release(&opening);
}

/* Returns true if the plan has made the copy. */
static bool by_plan(const struct shim_copy_request *r, enum mem_direct_kind kind)
{
	bool waits = r->blocking && is_legacy(&r->queue), first;
	CUcontext ctx;

	switch (mem_direct_find(&direct, r->device, r->bytes, !waits)) {
	case MEM_DIRECT_OPEN:
		open_window(r->device);
		return false;
	case MEM_DIRECT_OPEN_NEXT:
		open_window(r->device + (r->bytes - 1));
		return false;
	case MEM_DIRECT_NO:
		return false;
	case MEM_DIRECT_YES:
		break;
	}
	ctx = shim_copy_current_context();
	if (!ctx || !is_range(r->host, r->bytes) || shim_swap_has((uintptr_t)r->host) ||
	    (r->way == MEM_COPY_UP && kind >= MEM_DIRECT_PINNED && is_combined(r->host)) ||
	    !mem_direct_pays(&direct, r->way, kind, r->bytes) ||
	    !gpu_windows_is_host(&shim_driver, r->host, r->bytes) ||
	    !is_allocated(r->device, r->bytes, ctx)) {
		return false;
	}
	first = is_first(r, ctx);
	if (!waits) {
		mem_direct_asked(&direct, r->device, first);
	}
	return first &&
	       (r->way == MEM_COPY_UP ? mem_direct_up(&direct, r->device, r->host, r->bytes)
				      : mem_direct_down(&direct, r->host, r->device, r->bytes));
}

/* Returns true once the stream is done; false if that takes long. It must not wait for as long as
 * it takes, as the copy would not: another thread may have put work on the stream meanwhile that
 * waits for this thread. */
static bool is_done_soon(CUstream stream)
{
	uint64_t since = clock_now_ns();

	while (!is_done(stream)) {
		if (clock_now_ns() - since > TIMED_MAX_NS) {
			return false;
		}
		cpu_relax();
	}
	return true;
}

/* Has the driver make the copy, for the time that it takes: for an asynchronous copy down that is
 * the time until the bytes are there, without work before it, since they are what the caller wants.
 */
static CUresult timed_by_driver(const struct shim_copy_request *r, enum mem_direct_kind kind)
{
	bool until_there = r->way == MEM_COPY_DOWN && !r->blocking;
	CUcontext ctx = until_there ? shim_copy_current_context() : NULL;
	bool counts = !until_there || (ctx && is_first(r, ctx));
	uint64_t since = clock_now_ns();
	CUresult e = shim_copy_by_driver(r);

	if (e != CUDA_SUCCESS) { /* a refusal takes no time */
		return e;
	}
	if (until_there && counts) {
		counts = is_done_soon(r->queue.stream	    ? r->queue.stream
				      : r->queue.per_thread ? CU_STREAM_PER_THREAD
							    : CU_STREAM_LEGACY);
	}
	mem_direct_took(&direct, r->way, kind, r->bytes, false,
			counts ? clock_now_ns() - since : MEM_DIRECT_UNTIMED);
	return e;
}

bool shim_copy_direct(const struct shim_copy_request *r, CUresult *ret)
{
	enum mem_direct_kind kind;
	bool of_driver, of_plan;
	uint64_t since;

	/* What is deferred is before this copy, if on its stream, or it would be deferred itself;
	 * but what runs resumably may be unfinished although its stream is empty. */
	if (!r->bytes || shim_capture_any() || shim_pending()) {
		return false;
	}
	kind = kind_of(r);
	of_driver = mem_direct_wants_time(&direct, r->way, kind, r->bytes, false);
	of_plan = mem_direct_wants_time(&direct, r->way, kind, r->bytes, true);
	since = of_driver || of_plan ? clock_now_ns() : 0;
	if (by_plan(r, kind)) {
		if (of_plan) {
			mem_direct_took(&direct, r->way, kind, r->bytes, true,
					clock_now_ns() - since);
		}
		*ret = CUDA_SUCCESS;
		sched_copied_directly(shim.sched, r->bytes);
	} else if (of_driver) {
		*ret = timed_by_driver(r, kind);
	} else {
		return false;
	}
	if (*ret == CUDA_SUCCESS) {
		sched_copied(shim.sched, r->way == MEM_COPY_UP, r->bytes);
	}
	return true;
}

void shim_copy_direct_begin(void)
{
	mem_direct_init(&direct, &gpu_window_ops, NULL);
	if (gpu_windows_begin(&shim_driver, &direct)) {
		store_release(&shim_copy_direct_most[MEM_COPY_UP], (uint32_t)MEM_DIRECT_UP_MAX);
		store_release(&shim_copy_direct_most[MEM_COPY_DOWN], (uint32_t)MEM_DIRECT_DOWN_MAX);
	}
}

void shim_copy_direct_exit(void)
{
	if (xchg_acqrel(&shim_copy_direct_most[MEM_COPY_UP], 0u)) {
		store_release(&shim_copy_direct_most[MEM_COPY_DOWN], 0u);
		mem_direct_finish(&direct);
	}
}

void shim_copy_direct_before_fork(void) ACQUIRES(opening)
{
	lock_take(&opening);
}

void shim_copy_direct_after_fork(void) RELEASES(opening)
{
	lock_release(&opening);
}

void shim_copy_direct_forget(void)
{
	shim_lock_after_fork(&opening, LOCK_DIRECT_OPENING);
	if (xchg_acqrel(&shim_copy_direct_most[MEM_COPY_UP], 0u)) {
		store_release(&shim_copy_direct_most[MEM_COPY_DOWN], 0u);
		mem_direct_forget(&direct);
	}
}
