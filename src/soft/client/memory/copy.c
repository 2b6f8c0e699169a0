/* Copies. The server accesses device memory and pinned host memory directly; everything else is
 * copied in pieces through a staging buffer of the context. */
#include "soft/client/memory/copy.h"

#include <sched.h>
#include <string.h>

#include "soft/bulk.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/ring_submit.h"

#define PIECE_MAX (SOFT_STAGING_BYTES / 16) /* fits into the caches of both sides */

static struct soft_staged *nth(CUcontext ctx, uint32_t i) REQUIRES(ctx->staging_lock)
{
	return &ctx->staged[(ctx->staged_first + i) % SOFT_STAGED_MAX];
}

static bool ended(const struct soft_staged *g)
{
	return !g->held && soft_word_reached(&soft.shared->streams[g->stream_slot].done, g->target);
}

static void reap(CUcontext ctx) REQUIRES(ctx->staging_lock)
{
	while (ctx->staged_n && ended(nth(ctx, 0))) {
		ctx->staged_first = (ctx->staged_first + 1) % SOFT_STAGED_MAX;
		ctx->staged_n--;
	}
}

/* Returns the offset of free space between the newest and the oldest piece, or -1. */
static int64_t find_room(const CUcontext ctx, uint32_t bytes) REQUIRES(ctx->staging_lock)
{
	uint32_t head = ctx->staging_head, oldest;

	if (!ctx->staged_n) {
		return 0;
	}
	oldest = nth(ctx, 0)->begin;
	if (ctx->staged_n == SOFT_STAGED_MAX) {
		return -1;
	}
	if (head > oldest) {
		if (SOFT_STAGING_BYTES - head >= bytes) {
			return head;
		}
		return oldest > bytes ? 0 : -1; /* never fill it up: head == oldest means full */
	}
	return oldest - head > bytes ? (int64_t)head : -1;
}

/* Releases staging_lock while waiting, so other threads may take and return pieces. */
static CUresult wait_for(CUcontext ctx, uint32_t slot, uint32_t target) REQUIRES(ctx->staging_lock)
{
	struct soft_stream_word *w = &soft.shared->streams[slot];
	CUresult e;

	lock_release(&ctx->staging_lock);
	e = soft_word_wait(&w->done, &w->waiters, target, ctx);
	lock_take(&ctx->staging_lock);
	return e;
}

/* Takes a piece of the staging buffer; waits for older ones. Returns CUDA_ERROR_NOT_READY if the
 * oldest piece has yet to be fetched, by this thread or another: release the lock and try again. */
static CUresult stage(CUcontext ctx, CUstream s, uint32_t bytes, struct soft_staged **ret)
	REQUIRES(ctx->staging_lock)
{
	int64_t at;

	bytes = ROUND_UP(bytes, 64);
	if (!ctx->staging) {
		struct soft_range hidden = { .kind = SOFT_RANGE_HOST, .hidden = 1 };
		CUresult e =
			soft_memory_create(ctx, SOFT_STAGING_BYTES, &hidden, &ctx->staging, NULL);

		if (e) {
			return e;
		}
	}
	for (;;) {
		struct soft_staged *old;
		CUresult e;

		reap(ctx);
		at = find_room(ctx, bytes);
		if (at >= 0) {
			break;
		}
		old = nth(ctx, 0);
		if (old->held) {
			return CUDA_ERROR_NOT_READY;
		}
		e = wait_for(ctx, old->stream_slot, old->target);
		if (e) {
			return e;
		}
	}
	*ret = nth(ctx, ctx->staged_n++);
	**ret = (struct soft_staged){ .begin = (uint32_t)at,
				      .bytes = bytes,
				      .stream = s,
				      .stream_slot = s->slot,
				      .held = true };
	ctx->staging_head = (uint32_t)at + bytes;
	return CUDA_SUCCESS;
}

void soft_copy_fill(struct soft_record_copy *r, uint64_t dst, uint64_t dst_pitch, uint64_t src,
		    uint64_t src_pitch, uint64_t width, uint64_t height)
{
	*r = (struct soft_record_copy){ .r.op = SOFT_OP_COPY,
					.dst = dst,
					.src = src,
					.dst_pitch = dst_pitch,
					.src_pitch = src_pitch,
					.width = width,
					.height = height };
}

static CUresult put_copy(CUstream s, uint64_t dst, uint64_t dst_pitch, uint64_t src,
			 uint64_t src_pitch, uint64_t width, uint64_t height, bool bulk,
			 uint32_t *ret_target)
{
	struct soft_record_copy r;

	soft_copy_fill(&r, dst, dst_pitch, src, src_pitch, width, height);
	r.bulk = bulk;
	return soft_ring_submit(s, &r.r, sizeof(r), NULL, 0, ret_target);
}

static void copy_rows(uint8_t *dst, uint64_t dst_pitch, const uint8_t *src, uint64_t src_pitch,
		      uint64_t width, uint64_t height, bool bulk)
{
	for (uint64_t i = 0; i < height; i++) {
		if (bulk) {
			soft_bulk_copy(dst + i * dst_pitch, src + i * src_pitch, width);
		} else {
			memcpy(dst + i * dst_pitch, src + i * src_pitch, width);
		}
	}
}

/* Large copies bypass the caches, so that only the staging buffer stays there. */
static bool is_bulk(const struct soft_copy *c)
{
	return c->width >= SOFT_BULK_MIN_BYTES / c->height;
}

/* Returns the rows, and the bytes of a row, of the next piece. */
static void next_piece(const struct soft_copy *c, uint64_t row, uint64_t column, uint64_t *width,
		       uint64_t *rows)
{
	*width = MIN(c->width - column, PIECE_MAX);
	*rows = *width == c->width ? MIN(c->height - row, MAX(PIECE_MAX / c->width, 1u)) : 1;
}

/* Copies from the program's own memory to the device. */
static CUresult upload(CUstream s, const struct soft_copy *c, uint32_t *target)
{
	CUcontext ctx = s->context;
	CUresult e = CUDA_SUCCESS;

	for (uint64_t row = 0, column = 0; row < c->height && !e;) {
		struct soft_staged *g;
		uint64_t width, rows;

		next_piece(c, row, column, &width, &rows);
		lock_take(&ctx->staging_lock);
		e = stage(ctx, s, (uint32_t)(width * rows), &g);
		if (!e) {
			uint64_t from = c->src + row * c->src_pitch + column;

			copy_rows((uint8_t *)(uintptr_t)(ctx->staging + g->begin), width,
				  (const uint8_t *)(uintptr_t)from, c->src_pitch, width, rows,
				  false);
			e = put_copy(s, c->dst + row * c->dst_pitch + column, c->dst_pitch,
				     ctx->staging + g->begin, width, width, rows, is_bulk(c),
				     target);
			g->target = *target;
			g->held = false;
		}
		lock_release(&ctx->staging_lock);
		if (e == CUDA_ERROR_NOT_READY) {
			sched_yield();
			e = CUDA_SUCCESS;
			continue;
		}
		column += width;
		if (column == c->width) {
			column = 0;
			row += rows;
		}
	}
	return e;
}

/* Copies from the device to the program's own memory: fetches each piece while the next one is
 * copied. */
struct fetch {
	struct soft_staged *staged;
	uint64_t to, width, rows;
};

static CUresult finish_fetch(CUstream s, const struct soft_copy *c, struct fetch *f)
{
	CUresult e;

	if (!f->staged) {
		return CUDA_SUCCESS;
	}
	e = soft_stream_wait(s, f->staged->target);
	if (!e) {
		copy_rows((uint8_t *)(uintptr_t)f->to, c->dst_pitch,
			  (const uint8_t *)(uintptr_t)(s->context->staging + f->staged->begin),
			  f->width, f->width, f->rows, is_bulk(c));
	}
	lock_take(&s->context->staging_lock);
	f->staged->held = false;
	lock_release(&s->context->staging_lock);
	f->staged = NULL;
	return e;
}

static CUresult begin_fetch(CUstream s, const struct soft_copy *c, uint64_t row, uint64_t column,
			    struct fetch *f)
{
	CUcontext ctx = s->context;
	struct soft_staged *g;
	uint32_t target = 0;
	CUresult e;

	lock_take(&ctx->staging_lock);
	e = stage(ctx, s, (uint32_t)(f->width * f->rows), &g);
	if (!e) {
		e = put_copy(s, ctx->staging + g->begin, f->width,
			     c->src + row * c->src_pitch + column, c->src_pitch, f->width, f->rows,
			     false, &target);
		g->target = target;
		g->held = !e;
		f->staged = e ? NULL : g;
		f->to = c->dst + row * c->dst_pitch + column;
	}
	lock_release(&ctx->staging_lock);
	return e;
}

#define FETCHES 4u /* pieces in flight at once */

struct fetches {
	struct fetch f[FETCHES];
	unsigned first, n;
};

static CUresult finish_oldest(CUstream s, const struct soft_copy *c, struct fetches *q)
{
	struct fetch *f = &q->f[q->first % FETCHES];

	if (!q->n) {
		return CUDA_SUCCESS;
	}
	q->first++;
	q->n--;
	return finish_fetch(s, c, f);
}

static CUresult download(CUstream s, const struct soft_copy *c)
{
	struct fetches q = { 0 };
	CUresult e = CUDA_SUCCESS, last;

	for (uint64_t row = 0, column = 0; row < c->height && !e;) {
		struct fetch *now = &q.f[(q.first + q.n) % FETCHES];

		if (q.n == FETCHES) {
			e = finish_oldest(s, c, &q);
			continue;
		}
		next_piece(c, row, column, &now->width, &now->rows);
		e = begin_fetch(s, c, row, column, now);
		if (e == CUDA_ERROR_NOT_READY) { /* no space: pieces of this or another thread
						    occupy it */
			sched_yield();
			e = finish_oldest(s, c, &q);
			continue;
		}
		q.n += !e;
		column += now->width;
		if (column == c->width) {
			column = 0;
			row += now->rows;
		}
	}
	while (q.n) {
		last = finish_oldest(s, c, &q);
		e = e ? e : last;
	}
	return e;
}

/* Returns the number of bytes from the first to the end of the last on one side. Returns false on
 * overflow. */
static bool extent(const struct soft_copy *c, uint64_t pitch, uint64_t slice, uint64_t *ret)
{
	uint64_t rows, slices;

	return !checked_mul(pitch, c->height - 1, &rows) &&
	       !checked_mul(slice, c->depth - 1, &slices) && !checked_add(rows, slices, &rows) &&
	       !checked_add(rows, c->width, ret);
}

/* Whether the server reaches that side: device memory, or host memory that it shares. */
bool soft_copy_reachable(const struct soft_copy *c, bool dst)
{
	uint64_t bytes;

	if (!extent(c, dst ? c->dst_pitch : c->src_pitch, dst ? c->dst_slice : c->src_slice,
		    &bytes)) {
		return false;
	}
	return soft_memory_allows(dst ? c->dst : c->src, bytes, dst ? 2 : 1);
}

/* Replaces addresses of registered memory by their device addresses. */
static void registered(struct soft_copy *c)
{
	uint64_t device, bytes;

	if (extent(c, c->dst_pitch, c->dst_slice, &bytes)) {
		device = soft_register_device_address(c->dst, bytes);
		c->dst = device ? device : c->dst;
	}
	if (extent(c, c->src_pitch, c->src_slice, &bytes)) {
		device = soft_register_device_address(c->src, bytes);
		c->src = device ? device : c->src;
	}
}

CUresult soft_copy_prepare(struct soft_copy *c, bool *ret_empty)
{
	uint64_t bytes;

	c->depth = c->depth ? c->depth : 1;
	*ret_empty = !c->width || !c->height;
	if (*ret_empty) {
		return CUDA_SUCCESS;
	}
	if (c->height == 1 && c->depth == 1) {
		c->dst_pitch = c->src_pitch = c->width;
	}
	if (c->depth == 1) {
		c->dst_slice = c->src_slice = 0;
	}
	if (c->dst_pitch < c->width || c->src_pitch < c->width || !c->dst || !c->src ||
	    !extent(c, c->dst_pitch, c->dst_slice, &bytes) ||
	    !extent(c, c->src_pitch, c->src_slice, &bytes)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (c->depth > 1 &&
	    (c->dst_slice / c->height < c->dst_pitch || c->src_slice / c->height < c->src_pitch)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	registered(c);
	if (c->depth > 1 && c->dst_slice == c->dst_pitch * c->height &&
	    c->src_slice == c->src_pitch * c->height) {
		c->height *= c->depth;
		c->depth = 1;
	}
	if (c->dst_pitch == c->width && c->src_pitch == c->width) {
		c->width *= c->height;
		c->height = 1;
		c->dst_pitch = c->src_pitch = c->width;
	}
	return CUDA_SUCCESS;
}

/* Copies between two addresses that the server reaches. */
static CUresult direct(CUstream s, const struct soft_copy *c, uint32_t *target)
{
	return put_copy(s, c->dst, c->dst_pitch, c->src, c->src_pitch, c->width, c->height, false,
			target);
}

/* Copies on the host: both sides are the program's own memory. */
static CUresult copy_on_host(CUstream s, const struct soft_copy *c)
{
	CUresult e = soft_stream_drain(s);

	if (!e) {
		copy_rows((uint8_t *)(uintptr_t)c->dst, c->dst_pitch,
			  (const uint8_t *)(uintptr_t)c->src, c->src_pitch, c->width, c->height,
			  is_bulk(c));
	}
	return e;
}

/* Copies slice by slice. *target: count of the stream at the last operation; 0: nothing to wait
 * for. */
static CUresult slices(CUstream s, const struct soft_copy *whole, bool dst, bool src,
		       uint32_t *target)
{
	struct soft_copy c = *whole;
	CUresult e = CUDA_SUCCESS;

	for (uint64_t i = 0; i < whole->depth && !e; i++) {
		if (dst && src) {
			e = direct(s, &c, target);
		} else if (dst) {
			e = upload(s, &c, target);
		} else if (src) {
			e = download(s, &c);
		} else {
			e = copy_on_host(s, &c);
		}
		c.dst += c.dst_slice;
		c.src += c.src_slice;
	}
	return e;
}

static bool is_invalid(const struct soft_copy *c, bool dst, bool reachable)
{
	uint64_t address = dst ? c->dst : c->src, bytes;

	if (reachable || (dst ? c->dst_device : c->src_device)) {
		return !reachable;
	}
	return soft_memory_in_window(address) &&
	       (!extent(c, dst ? c->dst_pitch : c->src_pitch, dst ? c->dst_slice : c->src_slice,
			&bytes) ||
		!soft_memory_cpu_allows(address, bytes, dst ? 2 : 1));
}

bool soft_copy_is_invalid(const struct soft_copy *c)
{
	return is_invalid(c, true, soft_copy_reachable(c, true)) ||
	       is_invalid(c, false, soft_copy_reachable(c, false));
}

CUresult soft_copy_run(CUstream s, const struct soft_copy *given, bool blocking)
{
	struct soft_copy c = *given;
	bool dst, src, empty, captured;
	uint32_t target = 0;
	CUresult e = soft_copy_prepare(&c, &empty);

	if (e || empty) {
		return e;
	}
	dst = soft_copy_reachable(&c, true);
	src = soft_copy_reachable(&c, false);
	if (is_invalid(&c, true, dst) || is_invalid(&c, false, src)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_capture_copy(s, &c, blocking, &captured);
	if (e || captured) {
		return e;
	}
	e = slices(s, &c, dst, src, &target);
	if (e || !dst) {
		return e;
	}
	if (!soft_memory_blocks(c.dst, c.src, blocking)) {
		return CUDA_SUCCESS;
	}
	return soft_stream_wait(s, target);
}
