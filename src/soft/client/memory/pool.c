/* Stream-ordered memory: allocation, free, reuse. A freed block may be reused at once by the stream
 * that freed it, since its work comes later; by other streams when the work before the free has
 * ended; and, if memory is short, by another stream that first waits for that work. */
#include "base/atomic.h"
#include "soft/client/graph/capture.h"
#include "soft/client/host_call.h"
#include "soft/client/memory/memory.h"
#include "soft/client/memory/pool.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"
#include <stdlib.h>

/* A block may exceed the request by this many bytes, or be up to twice as large. */
#define WASTE_MAX (64u << 10)

pthread_mutex_t soft_pool_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t idle_bytes; /* of all pools; read without the lock */

static bool ended(const struct soft_pool_block *b)
{
	return soft_word_reached(&soft.shared->streams[b->slot].done, b->target);
}

static bool context_lives(const struct soft_pool_block *b)
{
	return soft_object_is(b->ctx, SOFT_OBJECT_CONTEXT) && b->ctx->id == b->ctx_id;
}

static void remove_block(struct soft_pool_block **at)
{
	struct soft_pool_block *b = *at;

	b->pool->reserved -= b->bytes;
	if (b->live) {
		b->pool->used -= b->used;
	} else {
		store_relaxed(&idle_bytes, idle_bytes - b->bytes);
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

static void drop_idle(CUmemoryPool p, void *arg)
{
	struct soft_pool_block **at = &p->blocks;

	while (*at) {
		if ((*at)->live || (*at)->ctx != arg) {
			at = &(*at)->next;
		} else {
			remove_block(at);
		}
	}
}

void soft_pool_leave(CUcontext ctx)
{
	pthread_mutex_lock(&soft_pool_lock);
	soft_pool_each(drop_idle, ctx);
	pthread_mutex_unlock(&soft_pool_lock);
}

void soft_pool_trim(CUmemoryPool p, uint64_t keep)
{
	struct soft_pool_block **at = &p->blocks;

	soft_pool_prune(p);
	while (*at && p->reserved > keep) {
		struct soft_pool_block *b = *at;

		if (b->live || !ended(b)) {
			at = &b->next;
			continue;
		}
		soft_memory_request(SOFT_REQ_FREE, b->ctx, b->address, 0, 0);
		remove_block(at);
	}
	if (p->destroyed && !p->blocks) {
		soft_pool_destroy(p);
	}
}

static void trim_to_threshold(CUmemoryPool p, void *arg)
{
	(void)arg;
	soft_pool_trim(p, p->destroyed ? 0 : p->threshold);
}

static void trim_all(CUmemoryPool p, void *arg)
{
	(void)arg;
	soft_pool_trim(p, 0);
}

void soft_pool_trim_idle(void)
{
	if (load_relaxed(&idle_bytes) && !soft_in_host_function()) {
		pthread_mutex_lock(&soft_pool_lock);
		soft_pool_each(trim_to_threshold, NULL);
		pthread_mutex_unlock(&soft_pool_lock);
	}
}

static bool fits(const struct soft_pool_block *b, CUcontext ctx, uint64_t bytes)
{
	return !b->live && b->ctx == ctx && b->ctx_id == ctx->id && b->bytes >= bytes &&
	       (b->bytes - bytes <= WASTE_MAX || b->bytes / 2 <= bytes);
}

/* Returns the smallest block that the stream may use without waiting. */
static struct soft_pool_block *pick(CUmemoryPool p, CUstream s, uint64_t bytes)
{
	struct soft_pool_block *best = NULL;

	for (struct soft_pool_block *b = p->blocks; b; b = b->next) {
		if (fits(b, s->context, bytes) && (!best || b->bytes < best->bytes) &&
		    (b->slot == s->slot || (p->reuse[1] && ended(b)))) {
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
	store_relaxed(&idle_bytes, idle_bytes - b->bytes);
	count_used(p, b, bytes);
	*ret = b->address;
	return CUDA_SUCCESS;
}

static CUresult make(CUmemoryPool p, CUcontext ctx, uint64_t bytes, uint64_t *ret)
{
	struct soft_pool_block *b = calloc(1, sizeof(*b));
	struct soft_range like = { .kind = SOFT_RANGE_POOL, .owner = b };
	uint64_t whole = bytes / SOFT_PAGE * SOFT_PAGE + (bytes % SOFT_PAGE ? SOFT_PAGE : 0);
	CUresult e;

	if (!b) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (p->props.maxSize &&
	    (whole > p->props.maxSize || p->reserved > p->props.maxSize - whole)) {
		e = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		e = soft_memory_create(ctx, bytes, &like, &b->address, NULL);
	}
	if (e) {
		free(b);
		return e;
	}
	b->pool = p;
	b->ctx = ctx;
	b->ctx_id = ctx->id;
	b->bytes = whole;
	b->next = p->blocks;
	p->blocks = b;
	p->reserved += whole;
	p->reserved_high = MAX(p->reserved_high, p->reserved);
	count_used(p, b, bytes);
	*ret = b->address;
	return CUDA_SUCCESS;
}

static CUresult pool_alloc(CUmemoryPool p, CUstream s, uint64_t bytes, uint64_t *ret)
{
	struct soft_pool_block *b;
	CUresult e;

	pthread_mutex_lock(&soft_pool_lock);
	soft_pool_prune(p);
	b = pick(p, s, bytes);
	e = b ? take(p, b, bytes, ret) : make(p, s->context, bytes, ret);
	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		soft_pool_each(trim_all, NULL);
		e = make(p, s->context, bytes, ret);
	}
	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		b = pick_with_wait(p, s, bytes);
		e = b ? take(p, b, bytes, ret) : e;
	}
	pthread_mutex_unlock(&soft_pool_lock);
	if (e == CUDA_ERROR_OUT_OF_MEMORY && load_relaxed(&idle_bytes)) {
		soft_context_drain(s->context); /* frees that are still queued may make room */
		pthread_mutex_lock(&soft_pool_lock);
		soft_pool_each(trim_all, NULL);
		e = make(p, s->context, bytes, ret);
		pthread_mutex_unlock(&soft_pool_lock);
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

	pthread_mutex_lock(&soft_pool_lock);
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
	pthread_mutex_unlock(&soft_pool_lock);
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
