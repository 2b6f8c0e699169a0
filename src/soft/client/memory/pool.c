/* Stream-ordered memory: allocation, free, reuse. A freed block may be reused at once by the stream
 * that freed it, since its work comes later; by other streams when the work before the free has
 * ended; and, if memory is short, by another stream that first waits for that work. */
#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/host_call.h"
#include "soft/client/memory/memory.h"
#include "soft/client/memory/pool.h"
#include "soft/client/ring_submit.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"
#include <stdlib.h>

/* A block that is not divided may exceed the request by this many bytes, or be up to twice as
 * large.
 */
#define WASTE_MAX (64u << 10)
#define STEP_BYTES (UINT64_C(32) << 20) /* by which a pool grows, H200 */
#define UNIT_BYTES (UINT64_C(2) << 20)	/* the same if there is no memory for a step */

struct lock soft_pool_lock = LOCK_INITIALIZER(SOFT_POOLS);
static uint64_t idle_bytes; /* of all pools; read without the lock */

static bool ended(const struct soft_pool_block *b)
{
	return b->fresh || soft_word_reached(&soft.shared->streams[b->slot].done, b->target);
}

static bool context_lives(const struct soft_pool_block *b)
{
	return soft_object_is(b->ctx, SOFT_OBJECT_CONTEXT) && b->ctx->id == b->ctx_id;
}

static void remove_block(struct soft_pool_block **at)
{
	struct soft_pool_block *b = *at;

	if (b->live) {
		b->pool->used -= b->used;
	} else {
		store_relaxed(&idle_bytes, idle_bytes - b->bytes);
	}
	if (--b->chunk->blocks == 0) {
		b->pool->reserved -= b->chunk->bytes;
		free(b->chunk);
	}
	*at = b->next;
	free(b);
}

static struct soft_pool_block **place_of(struct soft_pool_block *b)
{
	struct soft_pool_block **at = &b->pool->blocks;

	while (*at != b) {
		at = &(*at)->next;
	}
	return at;
}

void soft_pool_prune(CUmemoryPool p)
{
	struct soft_pool_block **at = &p->blocks;

	while (*at) {
		if (context_lives(*at)) {
			at = &(*at)->next;
		} else {
			remove_block(at);
		}
	}
}

/* Keeps unused blocks of a context from use and from being trimmed. They count as held until the
 * server has freed them with the context; then they are pruned. */
static void retire_idle(CUmemoryPool p, void *ctx)
{
	for (struct soft_pool_block *b = p->blocks; b; b = b->next) {
		if (!b->live && b->ctx == ctx) {
			store_relaxed(&idle_bytes, idle_bytes - b->bytes);
			b->live = true;
			b->used = 0;
		}
	}
}

void soft_pool_leave(CUcontext ctx)
{
	lock_take(&soft_pool_lock);
	soft_pool_each(retire_idle, ctx);
	lock_release(&soft_pool_lock);
}

/* Returns true if no work uses the chunk whose first block this is. */
static bool is_idle(const struct soft_pool_block *first)
{
	const struct soft_pool_block *b = first;

	while (b && b->chunk == first->chunk && !b->live && ended(b)) {
		b = b->next;
	}
	return !b || b->chunk != first->chunk;
}

void soft_pool_trim(CUmemoryPool p, uint64_t keep)
{
	struct soft_pool_block **at = &p->blocks;

	soft_pool_prune(p);
	while (*at && p->reserved > keep) {
		struct soft_pool_block *first = *at;
		bool idle = is_idle(first);

		if (idle) {
			soft_memory_request(SOFT_REQ_FREE, first->ctx, first->chunk->address, 0, 0);
		}
		for (uint32_t n = first->chunk->blocks; n > 0; n--) {
			if (idle) {
				remove_block(at);
			} else {
				at = &(*at)->next;
			}
		}
	}
	if (p->destroyed && !p->blocks) {
		soft_pool_destroy(p);
	}
}

static void trim_to_threshold(CUmemoryPool p, void *arg) REQUIRES(soft_pool_lock)
{
	(void)arg;
	soft_pool_trim(p, p->destroyed ? 0 : p->threshold);
}

static void trim_all(CUmemoryPool p, void *arg) REQUIRES(soft_pool_lock)
{
	(void)arg;
	soft_pool_trim(p, 0);
}

void soft_pool_trim_idle(void)
{
	if (load_relaxed(&idle_bytes) && !soft_in_host_function()) {
		lock_take(&soft_pool_lock);
		soft_pool_each(trim_to_threshold, NULL);
		lock_release(&soft_pool_lock);
	}
}

static bool divides(const struct CUmemoryPool_st *p)
{
	return !p->props.handleTypes;
}

static bool fits(const struct soft_pool_block *b, CUcontext ctx, uint64_t bytes)
{
	return !b->live && b->ctx == ctx && b->ctx_id == ctx->id && b->bytes >= bytes &&
	       (divides(b->pool) || b->bytes - bytes <= WASTE_MAX || b->bytes / 2 <= bytes);
}

/* Returns the smallest block that the stream may use without waiting. */
static struct soft_pool_block *pick(CUmemoryPool p, CUstream s, uint64_t bytes)
{
	struct soft_pool_block *best = NULL;

	for (struct soft_pool_block *b = p->blocks; b; b = b->next) {
		if (fits(b, s->context, bytes) && (!best || b->bytes < best->bytes) &&
		    (b->fresh || b->slot == s->slot || (p->reuse[1] && ended(b)))) {
			best = b;
		}
	}
	return best;
}

/* Returns a block that the stream may use after it has waited for the stream that freed it. */
static struct soft_pool_block *pick_with_wait(CUmemoryPool p, CUstream s, uint64_t bytes)
{
	for (struct soft_pool_block *b = p->blocks; b && p->reuse[2]; b = b->next) {
		struct soft_record_wait r = { .r.op = SOFT_OP_WAIT,
					      .stream = b->slot,
					      .target = b->target };

		if (fits(b, s->context, bytes) &&
		    soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, NULL) == CUDA_SUCCESS) {
			return b;
		}
	}
	return NULL;
}

static void count_used(CUmemoryPool p, struct soft_pool_block *b, uint64_t bytes)
{
	b->live = true;
	b->used = bytes;
	p->used += bytes;
	p->used_high = MAX(p->used_high, p->used);
}

/* Returns true if one unused block may become part of the next: when the work on both has ended, or
 * precedes the same stream's later work. */
static bool may_merge(const struct soft_pool_block *a, const struct soft_pool_block *b)
{
	return b && a->chunk == b->chunk && !a->live && !b->live &&
	       ((ended(a) && ended(b)) || (!a->fresh && !b->fresh && a->slot == b->slot));
}

/* Joins unused neighbours. */
static void merge(CUmemoryPool p)
{
	for (struct soft_pool_block *a = p->blocks; a;) {
		struct soft_pool_block *b = a->next;

		if (!may_merge(a, b)) {
			a = b;
			continue;
		}
		if (a->fresh || (!b->fresh && (int32_t)(b->target - a->target) > 0)) {
			a->slot = b->slot;
			a->target = b->target;
		}
		a->fresh = a->fresh && b->fresh;
		a->bytes += b->bytes;
		a->chunk->blocks--;
		a->next = b->next;
		free(b);
	}
}

/* Makes what exceeds the request a block of its own, if there is memory for its description. */
static void divide(struct soft_pool_block *b, uint64_t bytes)
{
	uint64_t whole = ROUND_UP(bytes, (uint64_t)SOFT_PAGE);
	struct soft_pool_block *rest =
		divides(b->pool) && whole < b->bytes ? malloc(sizeof(*rest)) : NULL;

	if (rest) {
		*rest = *b;
		rest->address += whole;
		rest->bytes -= whole;
		b->bytes = whole;
		b->next = rest;
		b->chunk->blocks++;
	}
}

/* Takes an unused block for a request. */
static CUresult take(CUmemoryPool p, struct soft_pool_block *b, uint64_t bytes, uint64_t *ret)
{
	struct soft_range range = { .kind = SOFT_RANGE_POOL,
				    .address = b->address,
				    .bytes = bytes,
				    .owner = b,
				    .ctx = b->ctx };
	CUresult e = soft_memory_add(b->ctx->window, &range);

	if (e) {
		return e;
	}
	divide(b, bytes);
	store_relaxed(&idle_bytes, idle_bytes - b->bytes);
	b->fresh = false;
	count_used(p, b, bytes);
	*ret = b->address;
	return CUDA_SUCCESS;
}

/* Takes a chunk from the device, of one unused block. */
static CUresult add_chunk(CUmemoryPool p, CUcontext ctx, uint64_t bytes)
{
	struct soft_request q = { .op = SOFT_REQ_ALLOC,
				  .context = ctx->slot,
				  .value = bytes,
				  .object = SOFT_MEMORY_DEVICE };
	struct soft_pool_block *b = calloc(1, sizeof(*b));
	struct soft_pool_chunk *c = calloc(1, sizeof(*c));
	struct soft_reply r;
	CUresult e =
		b && c ? soft_link_call(&q, -1, &r, sizeof(r), NULL) : CUDA_ERROR_OUT_OF_MEMORY;

	if (e) {
		free(b);
		free(c);
		return e;
	}
	*c = (struct soft_pool_chunk){ .address = r.value, .bytes = bytes, .blocks = 1 };
	*b = (struct soft_pool_block){ .next = p->blocks,
				       .chunk = c,
				       .pool = p,
				       .ctx = ctx,
				       .ctx_id = ctx->id,
				       .address = r.value,
				       .bytes = bytes,
				       .fresh = true };
	p->blocks = b;
	p->reserved += bytes;
	p->reserved_high = MAX(p->reserved_high, p->reserved);
	store_relaxed(&idle_bytes, idle_bytes + bytes);
	return CUDA_SUCCESS;
}

/* Grows the pool by a multiple of step and takes a block of the new chunk. */
static CUresult make(CUmemoryPool p, CUcontext ctx, uint64_t bytes, uint64_t step, uint64_t *ret)
{
	uint64_t whole;
	CUresult e;

	if (!divides(p)) {
		step = SOFT_PAGE;
	}
	if (bytes > UINT64_MAX - step) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	whole = ROUND_UP(bytes, step);
	if (p->props.maxSize &&
	    (whole > p->props.maxSize || p->reserved > p->props.maxSize - whole)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = add_chunk(p, ctx, whole);
	return e ? e : take(p, p->blocks, bytes, ret);
}

/* Takes a block out of what the pool holds. Returns CUDA_ERROR_OUT_OF_MEMORY if there is none. */
static CUresult take_held(CUmemoryPool p, CUstream s, uint64_t bytes, uint64_t *ret)
{
	struct soft_pool_block *b;

	if (divides(p)) {
		merge(p);
	}
	b = pick(p, s, bytes);
	return b ? take(p, b, bytes, ret) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* As make(), with less than a step at the end of the device's memory. */
static CUresult make_any(CUmemoryPool p, CUcontext ctx, uint64_t bytes, uint64_t *ret)
{
	CUresult e = make(p, ctx, bytes, STEP_BYTES, ret);

	return e == CUDA_ERROR_OUT_OF_MEMORY ? make(p, ctx, bytes, UNIT_BYTES, ret) : e;
}

static CUresult pool_alloc(CUmemoryPool p, CUstream s, uint64_t bytes, uint64_t *ret)
{
	struct soft_pool_block *b;
	CUresult e;

	lock_take(&soft_pool_lock);
	soft_pool_prune(p);
	e = take_held(p, s, bytes, ret);
	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		e = make(p, s->context, bytes, STEP_BYTES, ret);
	}
	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		soft_pool_each(trim_all, NULL);
		e = make_any(p, s->context, bytes, ret);
	}
	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		b = pick_with_wait(p, s, bytes);
		e = b ? take(p, b, bytes, ret) : e;
	}
	lock_release(&soft_pool_lock);
	if (e == CUDA_ERROR_OUT_OF_MEMORY && load_relaxed(&idle_bytes)) {
		soft_context_drain(s->context); /* frees that are still queued may make room */
		lock_take(&soft_pool_lock);
		soft_pool_each(trim_all, NULL);
		e = make_any(p, s->context, bytes, ret);
		lock_release(&soft_pool_lock);
	}
	return e;
}

static CUresult alloc_from(int pt, CUdeviceptr *ret, size_t bytes, CUmemoryPool p, bool given,
			   CUstream h)
{
	CUstream s;
	uint64_t address;
	bool captured;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_alloc(s, ret, bytes, &captured);
	if (e || captured) {
		return e;
	}
	e = soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (!given) {
		p = soft_pool_current(soft_memory_gpu(s->context));
	}
	if (!ret || !soft_handle_is(p, SOFT_OBJECT_POOL) || p->imported || p->destroyed) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (p->props.location.id !=
	    soft_memory_gpu(s->context)) { /* the pool must lie on the stream's GPU */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	address = 0; /* zero bytes: no address */
	e = bytes ? pool_alloc(p, s, bytes, &address) : CUDA_SUCCESS;
	if (!e) {
		*ret = address;
	}
	return e;
}
SOFT_PAIR(cuMemAllocAsync, _ptsz, alloc_from, (CUdeviceptr * ret, size_t bytes, CUstream h), ret,
	  bytes, NULL, false, h)
SOFT_PAIR(cuMemAllocFromPoolAsync, _ptsz, alloc_from,
	  (CUdeviceptr * ret, size_t bytes, CUmemoryPool p, CUstream h), ret, bytes, p, true, h)

/* Submits a free that the server executes in stream order. */
static CUresult put_free(CUstream s, uint64_t address)
{
	struct soft_record_free f = { .r.op = SOFT_OP_FREE, .address = address };

	return soft_ring_submit(s, &f.r, sizeof(f), NULL, 0, NULL);
}

static CUresult free_block(CUstream s, struct soft_pool_block *b)
{
	CUmemoryPool p = b->pool;
	CUresult e = CUDA_SUCCESS;

	lock_take(&soft_pool_lock);
	if (b->exported) {
		e = put_free(s, b->address);
		remove_block(place_of(b));
	} else {
		b->live = false;
		b->slot = s->slot;
		b->target = load_acquire(&s->submitted);
		p->used -= b->used;
		store_relaxed(&idle_bytes, idle_bytes + b->bytes);
	}
	if (p->destroyed) {
		soft_pool_trim(p, 0);
	}
	lock_release(&soft_pool_lock);
	return e;
}

static CUresult free_async(int pt, CUdeviceptr address, CUstream h)
{
	struct soft_range r;
	CUcontext ctx;
	CUstream s;
	bool captured;
	CUresult e = soft_stream_resolve(h, pt, &s);

	e = e ? e : soft_capture_free(s, address, &captured);
	if (e || captured || soft_graph_memory_free_outside(address, &e)) {
		return e;
	}
	if (!address) {
		return CUDA_SUCCESS;
	}
	e = soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (!soft_memory_find(address, &ctx, &r) || r.address != address || r.hidden || r.module ||
	    (r.kind != SOFT_RANGE_DEVICE && r.kind != SOFT_RANGE_POOL &&
	     r.kind != SOFT_RANGE_IMPORTED) ||
	    ctx != s->context) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_memory_delete(
		ctx, address,
		false); /* of several threads that free it at once only one succeeds */
	if (e) {
		return e;
	}
	return r.kind == SOFT_RANGE_POOL ? free_block(s, r.owner) : put_free(s, address);
}
SOFT_PAIR(cuMemFreeAsync, _ptsz, free_async, (CUdeviceptr p, CUstream h), p, h)

void soft_pool_free_now(CUcontext ctx, const struct soft_range *r)
{
	if (soft_memory_delete(ctx, r->address, false) != CUDA_SUCCESS) {
		return;
	}
	if (r->kind == SOFT_RANGE_IMPORTED) {
		soft_memory_request(SOFT_REQ_IPC_CLOSE, ctx, r->address, 0, 0);
		return;
	}
	free_block(ctx->legacy, r->owner);
	soft_pool_trim_idle();
}

CUmemoryPool soft_pool_of(const struct soft_range *r)
{
	return ((struct soft_pool_block *)r->owner)->pool;
}

CUmemAllocationHandleType soft_pool_handle_types(const struct soft_range *r)
{
	return soft_pool_of(r)->props.handleTypes;
}
