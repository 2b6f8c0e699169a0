/* Ranges of memory that this process has allocated, by which pointers are classified without asking
 * the server; and the allocation calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/cpu_window.h"
#include "soft/client/memory/memory.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"

static uint32_t after(const struct soft_window *w, uint64_t address)
{
	uint32_t lo = 0, hi = w->n_ranges;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (w->ranges[mid].address <= address) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

CUresult soft_memory_add(struct soft_window *w, const struct soft_range *r)
{
	static uint64_t next_id;
	CUresult e = CUDA_SUCCESS;
	uint32_t i;

	lock_take(&w->lock);
	if (w->n_ranges == w->cap_ranges) {
		uint32_t cap = w->cap_ranges ? w->cap_ranges * 2 : 64;
		struct soft_range *grown = realloc(w->ranges, cap * sizeof(*grown));

		if (grown) {
			w->ranges = grown;
			w->cap_ranges = cap;
		} else {
			e = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (!e) {
		i = after(w, r->address);
		memmove(w->ranges + i + 1, w->ranges + i, (w->n_ranges - i) * sizeof(*r));
		w->ranges[i] = *r;
		w->ranges[i].id = add_relaxed(&next_id, 1u) + 1;
		w->n_ranges++;
	}
	lock_release(&w->lock);
	return e;
}

/* Reserves the window's addresses, so that pinned memory can be mapped at its device address. */
CUresult soft_window_open(uint32_t gpu, struct soft_window **ret)
{
	static struct lock lock = LOCK_INITIALIZER(SOFT_RANGES_ONCE);
	struct soft_window *w = &soft.windows[gpu];
	void *at = (void *)(uintptr_t)(SOFT_WINDOW_FIRST + gpu * SOFT_WINDOW_STRIDE), *p = at;

	lock_take(&lock);
	if (!w->base) {
		p = mmap(at, soft.hello.window_bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == at) {
			lock_init(&w->lock, LOCK_SOFT_RANGES);
			w->gpu = gpu;
			w->bytes = soft.hello.window_bytes;
			store_release(&w->base, (uint64_t)(uintptr_t)at);
		} else if (p != MAP_FAILED) { /* Linux before 4.17 takes the address as a hint */
			munmap(p, soft.hello.window_bytes);
		}
	}
	lock_release(&lock);
	*ret = w;
	return p == at ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

struct soft_window *soft_window_at(uint64_t address)
{
	uint64_t i = (address - SOFT_WINDOW_FIRST) / SOFT_WINDOW_STRIDE;
	struct soft_window *w;

	if (!soft_memory_in_window(address)) {
		return NULL;
	}
	w = &soft.windows[i];
	return load_acquire(&w->base) && address - w->base < w->bytes ? w : NULL;
}

bool soft_memory_in_window(uint64_t address)
{
	return address >= SOFT_WINDOW_FIRST &&
	       (address - SOFT_WINDOW_FIRST) / SOFT_WINDOW_STRIDE < SOFT_MAX_GPUS;
}

bool soft_memory_find(uint64_t address, CUcontext *ret_ctx, struct soft_range *ret)
{
	struct soft_window *w = soft_window_at(address);
	bool found = false;
	uint32_t i;

	if (!w) {
		return false;
	}
	lock_take(&w->lock);
	i = after(w, address);
	if (i > 0 && address - w->ranges[i - 1].address < w->ranges[i - 1].bytes) {
		*ret = w->ranges[i - 1];
		*ret_ctx = ret->ctx;
		found = true;
	}
	lock_release(&w->lock);
	return found;
}

#define RIGHTS_RW 3

static uint8_t device_rights(const struct soft_range *r)
{
	return r->kind == SOFT_RANGE_MAPPED ? r->rights : RIGHTS_RW;
}

static uint8_t cpu_rights(const struct soft_range *r)
{
	return soft_range_is_host(r) ? RIGHTS_RW : r->cpu_rights;
}

/* Returns whether ranges cover all bytes, and each of them has the rights. */
static bool allows(uint64_t address, uint64_t bytes, uint8_t rights,
		   uint8_t (*rights_of)(const struct soft_range *))
{
	struct soft_range r;
	CUcontext ctx;
	uint64_t part;

	do {
		if (!soft_memory_find(address, &ctx, &r) || (rights_of(&r) & rights) != rights) {
			return false;
		}
		part = MIN(bytes, r.bytes - (address - r.address));
		address += part;
		bytes -= part;
	} while (bytes);
	return true;
}

bool soft_memory_allows(uint64_t address, uint64_t bytes, uint8_t rights)
{
	return allows(address, bytes, rights, device_rights);
}

bool soft_memory_cpu_allows(uint64_t address, uint64_t bytes, uint8_t rights)
{
	return allows(address, bytes, rights, cpu_rights);
}

bool soft_memory_valid(uint64_t address, uint64_t bytes)
{
	return soft_memory_allows(address, bytes, 1);
}

void soft_memory_each(struct soft_window *w, uint64_t address, uint64_t bytes,
		      void (*each)(struct soft_range *, void *), void *arg)
{
	lock_take(&w->lock);
	for (uint32_t i = address ? after(w, address - 1) : 0;
	     i < w->n_ranges && w->ranges[i].address - address < bytes; i++) {
		each(&w->ranges[i], arg);
	}
	lock_release(&w->lock);
}

CUresult soft_memory_request(uint32_t op, CUcontext ctx, uint64_t value, uint64_t more0,
			     uint32_t object)
{
	struct soft_request q = { .op = op,
				  .context = ctx ? ctx->slot : 0,
				  .object = object,
				  .value = value,
				  .more = { more0 } };
	struct soft_reply r;

	return soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

int soft_memory_ordinal(uint32_t gpu)
{
	for (int i = 0; i < soft.gpus; i++) {
		if (soft.visible[i] == gpu) {
			return i;
		}
	}
	return 0;
}

bool soft_memory_check_location(const CUmemLocation *where)
{
	return where->type == CU_MEM_LOCATION_TYPE_DEVICE && where->id >= 0 &&
	       where->id < soft.gpus;
}

/* Also mapped memory of the host, which the program may read and write itself. */
static bool is_of_host(const struct soft_range *r)
{
	return soft_range_is_host(r) || soft_range_is_mapped_host(r);
}

/* The driver's rules: synchronous copies wait, except between two device addresses; so do all
 * copies of memory with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS. */
bool soft_memory_blocks(uint64_t dst, uint64_t src, bool sync)
{
	struct soft_range d, s;
	CUcontext ctx;
	bool to = soft_memory_find(dst, &ctx, &d), from = src && soft_memory_find(src, &ctx, &s);

	if ((to && d.sync) || (from && s.sync)) {
		return true;
	}
	if (!sync) {
		return false;
	}
	if (src && !from) {
		return true;
	}
	return !to || is_of_host(&d) || (src && is_of_host(&s));
}

bool soft_memory_change(uint64_t address, void (*change)(struct soft_range *, void *), void *arg)
{
	struct soft_window *w = soft_window_at(address);
	bool found;
	uint32_t i;

	if (!w) {
		return false;
	}
	lock_take(&w->lock);
	i = after(w, address);
	found = i > 0 && w->ranges[i - 1].address == address;
	if (found) {
		change(&w->ranges[i - 1], arg);
	}
	lock_release(&w->lock);
	return found;
}

CUresult soft_memory_map_host(uint64_t address, uint64_t bytes, int fd, int protection)
{
	void *at = (void *)(uintptr_t)address;

	if (mmap(at, ROUND_UP(bytes, SOFT_PAGE), protection, MAP_SHARED | MAP_FIXED, fd, 0) != at) {
		return CUDA_ERROR_MAP_FAILED;
	}
	return CUDA_SUCCESS;
}

void soft_memory_unmap_host(uint64_t address, uint64_t bytes)
{
	mmap((void *)(uintptr_t)address, ROUND_UP(bytes, SOFT_PAGE), PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void free_on_server(CUcontext ctx, uint64_t address)
{
	struct soft_request q = { .op = SOFT_REQ_FREE, .context = ctx->slot, .value = address };
	struct soft_reply r;

	soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

CUresult soft_memory_create(CUcontext ctx, uint64_t bytes, const struct soft_range *like,
			    uint64_t *ret_address, int *ret_fd)
{
	bool host = soft_range_is_host(like);
	struct soft_request q = { .op = SOFT_REQ_ALLOC,
				  .context = ctx->slot,
				  .value = bytes,
				  .object = host ? SOFT_MEMORY_PINNED : SOFT_MEMORY_DEVICE };
	struct soft_reply r;
	struct soft_range range = *like;
	int fd = -1;
	CUresult e = soft_link_call(&q, -1, &r, sizeof(r), &fd);

	if (e) {
		return e;
	}
	range.address = r.value;
	range.bytes = bytes;
	range.ctx = ctx;
	if (host) {
		e = fd < 0 ? CUDA_ERROR_MAP_FAILED
			   : soft_memory_map_host(r.value, bytes, fd, PROT_READ | PROT_WRITE);
	}
	e = e ? e : soft_memory_add(ctx->window, &range);
	if (ret_fd && !e) {
		*ret_fd = fd;
	} else {
		fd_close(fd);
	}
	if (e) {
		free_on_server(ctx, r.value);
		return e;
	}
	*ret_address = r.value;
	return CUDA_SUCCESS;
}

bool soft_memory_forget(struct soft_window *w, uint64_t address, struct soft_range *ret)
{
	bool found;
	uint32_t i;

	lock_take(&w->lock);
	i = after(w, address);
	found = i > 0 && w->ranges[i - 1].address == address;
	if (found) {
		*ret = w->ranges[i - 1];
		memmove(w->ranges + i - 1, w->ranges + i, (w->n_ranges - i) * sizeof(*ret));
		w->n_ranges--;
	}
	lock_release(&w->lock);
	return found;
}

CUresult soft_memory_delete(CUcontext ctx, uint64_t address, bool notify_server)
{
	struct soft_range r;

	if (!soft_memory_forget(ctx->window, address, &r)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (soft_range_is_host(&r)) {
		soft_memory_unmap_host(r.address, r.bytes);
	} else if (r.kind == SOFT_RANGE_DEVICE) {
		soft_cpu_windows_gone(r.address, r.bytes);
	}
	if (notify_server) {
		free_on_server(ctx, address);
	}
	return CUDA_SUCCESS;
}

/* Forgets the ranges of a context: all, or those of one module. */
static void drop(struct soft_window *w, CUcontext ctx, uint32_t module)
{
	uint32_t kept = 0;

	lock_take(&w->lock);
	for (uint32_t i = 0; i < w->n_ranges; i++) {
		const struct soft_range *r = &w->ranges[i];

		if (r->ctx != ctx || (module && r->module != module)) {
			w->ranges[kept++] = *r;
		} else if (!module && soft_range_is_host(r)) {
			soft_memory_unmap_host(r->address, r->bytes);
		}
	}
	w->n_ranges = kept;
	lock_release(&w->lock);
}

void soft_memory_drop_module(CUcontext ctx, uint32_t id)
{
	drop(ctx->window, ctx, id + 1);
}

void soft_memory_drop_context(CUcontext ctx)
{
	drop(ctx->window, ctx, 0);
	soft_cpu_windows_gone(ctx->window->base, ctx->window->bytes);
}

/* ---- entry points ---- */

CUresult soft_memory_allocate(uint64_t *ret, size_t bytes, const struct soft_range *like)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	e = e ? e : soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (!ret || !bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return soft_memory_create(ctx, bytes, like, ret, NULL);
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
	struct soft_range like = { 0 };
	uint64_t p;
	CUresult e = soft_memory_allocate(ret ? &p : NULL, bytes, &like);

	if (!e) {
		*ret = p;
	}
	return e;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ret, size_t *ret_pitch, size_t width, size_t height,
			    unsigned int unit)
{
	size_t pitch = ROUND_UP(width, SOFT_PITCH), bytes;

	if (!ret_pitch || !width || !height || (unit != 4 && unit != 8 && unit != 16) ||
	    width > (1ull << 40) || checked_mul(pitch, height, &bytes)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_pitch = pitch;
	return cuMemAlloc_v2(ret, bytes);
}

/* Waits for kernels that may still use the memory before it frees it, as the driver does. */
static CUresult release(uint64_t address, bool host)
{
	CUcontext ctx;
	struct soft_range r;
	CUresult e = soft_check();

	e = e ? e : soft_capture_unsafe();
	if (!e && !address) {
		return e;
	}
	if (e || (!host && soft_graph_memory_free_outside(address, &e))) {
		return e;
	}
	if (!soft_memory_find(address, &ctx, &r) || r.address != address || r.hidden || r.module ||
	    (host ? r.kind != SOFT_RANGE_HOST || r.host
		  : r.kind == SOFT_RANGE_HOST || r.kind == SOFT_RANGE_OPENED ||
			     r.kind == SOFT_RANGE_MAPPED)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_context_drain(ctx);
	if (e == SOFT_DEAD) {
		return e;
	}
	if (r.kind == SOFT_RANGE_POOL || r.kind == SOFT_RANGE_IMPORTED) {
		soft_pool_free_now(ctx, &r);
	} else {
		soft_memory_delete(ctx, address, true);
	}
	return e;
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
	return release(p, false);
}

CUresult cuMemFreeHost(void *p)
{
	return release((uint64_t)(uintptr_t)p, true);
}

CUresult cuMemHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
	struct soft_range like = { .kind = SOFT_RANGE_HOST, .flags = flags };
	uint64_t p;
	CUresult e;

	if (flags & ~7u) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (ret && !bytes) { /* zero bytes: success without an allocation */
		e = soft_check();
		*ret = e ? *ret : NULL;
		return e;
	}
	e = soft_memory_allocate(ret ? &p : NULL, bytes, &like);
	if (!e) {
		*ret = (void *)(uintptr_t)p;
	}
	return e;
}

CUresult cuMemAllocHost_v2(void **ret, size_t bytes)
{
	return cuMemHostAlloc(ret, bytes, 0);
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	struct soft_request q = { .op = SOFT_REQ_MEMORY };
	struct soft_reply r;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	q.index = e ? 0 : ctx->gpu;
	e = e ? e : soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	if (!ret_free || !ret_total) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_free = r.value;
	*ret_total = r.bytes;
	return CUDA_SUCCESS;
}

/* The API from before CUDA 3.2, with 32-bit sizes and device addresses. No device memory lies
 * there, so calls that return such an address are not supported, and calls that take one find
 * nothing. */

CUresult cuMemAllocHost(void **ret, unsigned int bytes)
{
	return cuMemAllocHost_v2(ret, bytes);
}

CUresult cuMemFree(CUdeviceptr_v1 p)
{
	return cuMemFree_v2(p);
}

CUresult cuMemGetInfo(unsigned int *ret_free, unsigned int *ret_total)
{
	size_t available, total;
	CUresult e = cuMemGetInfo_v2(ret_free ? &available : NULL, &total);

	if (e) {
		return e;
	}
	if (!ret_total) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_free = (unsigned)MIN(available, UINT32_MAX);
	*ret_total = (unsigned)MIN(total, UINT32_MAX);
	return CUDA_SUCCESS;
}
