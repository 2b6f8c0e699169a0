/* Table of queues by stream. Lookups that miss the thread's cache come here. table_mutex must not
 * be held while the scheduler may block. */
#include "shim/object/stream_queue.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "shim/capture_state.h"
#include "shim/fork_lock.h"
#include "shim/object/driver_device.h"
#include "shim/object/ended_primary.h"
#include "shim/object/green_context.h"
#include "shim/object/queue_drain.h"

#define BUCKETS 1024u
#define MAX_DESTROY_PENDING 256u
#define POLL_NS 50000u

static struct lock table_mutex = LOCK_INITIALIZER(TABLE);
static struct shim_queue *buckets[BUCKETS] GUARDED_BY(table_mutex);
static struct shim_queue *free_list GUARDED_BY(table_mutex);
static struct shim_queue *live GUARDED_BY(table_mutex); /* all open queues, by next_live */
static uint32_t n_destroy_pending; /* [atomic] of live, those whose stream is to be destroyed;
				      changed under table_mutex */
static uint32_t
	reaping; /* [atomic] threads that are destroying such streams; changed under table_mutex */

static unsigned bucket_of(CUstream stream, CUcontext ctx, const void *owner)
{
	uint64_t h =
		(uintptr_t)stream * 0x9e3779b97f4a7c15u ^ (uintptr_t)ctx ^ (uintptr_t)owner << 1;

	h *= 0xff51afd7ed558ccdu;
	return (unsigned)(h >> 40) % BUCKETS;
}

void shim_queue_refresh(struct shim_thread *t)
{
	t->queue_generation = load_acquire(&shim.queue_generation);
	memset(t->queues, 0, sizeof(t->queues));
	memset(t->fallback, 0, sizeof(t->fallback));
}

/* Returns the device ordinal of a context; 0 if the driver does not report it. */
static uint32_t ordinal_of(CUcontext ctx)
{
	CUdevice device = 0;
	CUcontext popped;

	if (shim_real.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
		if (shim_real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
			device = 0;
		}
		shim_real.cuCtxPopCurrent_v2(&popped);
	}
	return device < 0 ? 0 : (uint32_t)device;
}

/* Fills the queue's properties from the driver. Returns false if it refuses the handle. */
static bool describe(struct shim_queue *q, int *ret_priority)
{
	CUstream stream = q->dev.stream;
	unsigned flags = 0;

	*ret_priority = 0;
	q->blocking = true;
	if (q->kind != SHIM_QUEUE_CREATED) {
		return true;
	}
	if (shim_real.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS) {
		return false;
	}
	q->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	if (shim_real.cuStreamGetPriority(stream, ret_priority) != CUDA_SUCCESS) {
		*ret_priority = 0;
	}
	if (shim_real.cuStreamGetGreenCtx(stream, &q->green) != CUDA_SUCCESS) {
		q->green = NULL;
	}
	/* A green context belongs to one thread at a time, so its primary context represents it. */
	if (q->green &&
	    shim_real.cuStreamGetCtx_v2(stream, &q->dev.ctx, &q->green) == CUDA_SUCCESS) {
		return q->dev.ctx != NULL;
	}
	if (shim_real.cuStreamGetCtx(stream, &q->dev.ctx) !=
		    CUDA_SUCCESS && /* not all drivers report green contexts */
	    shim_real.cuCtxGetCurrent(&q->dev.ctx) != CUDA_SUCCESS) {
		return false;
	}
	q->dev.ctx = shim_green_base(q->dev.ctx);
	return q->dev.ctx != NULL;
}

/* Returns a cleared queue; NULL: no memory. */
static struct shim_queue *take_closed(void) REQUIRES(table_mutex)
{
	const size_t rest = offsetof(struct shim_queue, touched);
	struct shim_queue *q = free_list;

	if (!q) {
		return calloc(1, sizeof(*q));
	}
	free_list = q->table.next;
	store_relaxed(&q->reported_error, 0u); /* a thread may still be draining it */
	memset((char *)q + rest, 0, sizeof(*q) - rest);
	return q;
}

/* Finds or opens the queue. */
static struct shim_queue *obtain(CUstream stream, enum shim_queue_kind kind, CUcontext ctx,
				 const void *owner) REQUIRES(table_mutex)
{
	unsigned b = bucket_of(stream, ctx, owner);
	struct shim_queue *q;
	int priority;

	for (q = buckets[b]; q; q = q->table.next) {
		if (q->dev.stream == stream && q->owner == owner && (!ctx || q->dev.ctx == ctx)) {
			return q;
		}
	}
	q = take_closed();
	if (!q) {
		return NULL;
	}
	q->kind = kind;
	q->owner = owner;
	q->dev.stream = stream;
	q->dev.ctx = ctx;
	q->dev.home = owner ? gpu_thread() : NULL;
	q->green = kind == SHIM_QUEUE_LEGACY ? shim_green_of(ctx) : NULL;
	if (describe(q, &priority)) {
		CUcontext base = shim_green_base(q->dev.ctx);
		uint32_t gpu = ordinal_of(base);

		q->dev.base = base == q->dev.ctx ? NULL : base;
		store_release(&q->sched, sched_queue_open(shim.sched, &q->dev, gpu, priority));
		shim_device_context_seen(gpu, base);
	}
	if (!q->sched) {
		q->table.next = free_list;
		free_list = q;
		return NULL;
	}
	q->touched = sched_queue_touched(q->sched);
	q->table.next = buckets[b];
	buckets[b] = q;
	q->table.next_live = live;
	live = q;
	return q;
}

struct shim_queue *shim_queue_find(struct shim_thread *t, CUstream stream)
{
	uintptr_t h = (uintptr_t)stream;
	unsigned slot = (h >> 4 ^ h >> 9 ^ h >> 14) % SHIM_THREAD_QUEUES;
	struct shim_queue *q;

	lock_take(&table_mutex);
	q = shim_attached() ? obtain(stream, SHIM_QUEUE_CREATED, NULL, NULL) : NULL;
	lock_release(&table_mutex);
	if (q) {
		t->queues[slot].key = h;
		t->queues[slot].q = q;
	}
	return q;
}

struct shim_queue *shim_queue_find_default(struct shim_thread *t, enum shim_queue_kind kind,
					   CUcontext ctx)
{
	CUstream stream = kind == SHIM_QUEUE_PER_THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	/* Only the thread to which a green context is current can name its default stream. */
	bool own = kind == SHIM_QUEUE_PER_THREAD || shim_green_of(ctx);
	struct shim_queue *q;

	if (shim_primary_is_gone(ctx)) {
		return NULL;
	}
	lock_take(&table_mutex);
	q = shim_attached() ? obtain(stream, kind, ctx, own ? t : NULL) : NULL;
	lock_release(&table_mutex);
	if (!q) {
		return NULL;
	}
	t->fallback[kind].ctx = ctx;
	t->fallback[kind].q = q;
	return q;
}

void shim_queue_created(CUstream stream)
{
	lock_take(&table_mutex);
	if (shim_attached()) {
		obtain(stream, SHIM_QUEUE_CREATED, NULL, NULL);
	}
	lock_release(&table_mutex);
}

static void leave_live(struct shim_queue *q)
{
	struct shim_queue **l = &live;

	while (*l != q) {
		l = &(*l)->table.next_live;
	}
	*l = q->table.next_live;
}

/* Removes the queue from its bucket, so that no thread finds it any more. Returns false if another
 * thread has. */
static bool leave_bucket(struct shim_queue *q) REQUIRES(table_mutex)
{
	CUcontext key = q->kind == SHIM_QUEUE_CREATED ? NULL : q->dev.ctx;
	struct shim_queue **p = &buckets[bucket_of(q->dev.stream, key, q->owner)];

	while (*p && *p != q) {
		p = &(*p)->table.next;
	}
	if (!*p) {
		return false;
	}
	*p = q->table.next;
	add_acqrel(&shim.queue_generation, 1);
	return true;
}

/* Removes the queue from all tables. Returns false if another thread has. */
static bool unlink_queue(struct shim_queue *q) REQUIRES(table_mutex)
{
	if (q->table.destroy_pending) {
		sub_acqrel(&n_destroy_pending, 1u);
	} else if (!leave_bucket(q)) {
		return false;
	}
	leave_live(q);
	return true;
}

/* Drains and closes a queue that unlink_queue() has removed, so that no other thread finds it.
 * Caller does not hold table_mutex. */
static void finish(struct shim_queue *q)
{
	shim_queue_drain(q);
	sched_queue_close(q->sched);
	shim_block_close(q);
	lock_take(&table_mutex);
	store_release(&q->sched, NULL);
	q->table.next = free_list;
	free_list = q;
	lock_release(&table_mutex);
}

bool shim_queue_close_stream(CUstream stream)
{
	bool later = false;
	struct shim_queue *q;

	lock_take(&table_mutex);
	for (q = buckets[bucket_of(stream, NULL, NULL)]; q && q->dev.stream != stream;
	     q = q->table.next) {
	}
	if (q && load_relaxed(&n_destroy_pending) < MAX_DESTROY_PENDING &&
	    sched_queue_deferred(q->sched)) {
		later = q->table.destroy_pending =
			leave_bucket(q); /* always true: it was found in that bucket */
		add_acqrel(&n_destroy_pending, later ? 1u : 0u);
	} else if (q && !unlink_queue(q)) {
		q = NULL;
	}
	lock_release(&table_mutex);
	if (q && !later) {
		finish(q);
	}
	return later;
}

/* Removes from the tables a queue whose stream is to be destroyed and which has nothing deferred;
 * NULL: none. */
static struct shim_queue *take_destroyable(void)
{
	struct shim_queue *q;

	lock_take(&table_mutex);
	for (q = live; q && !(q->table.destroy_pending && !sched_queue_deferred(q->sched));
	     q = q->table.next_live) {
	}
	if (q) {
		(void)unlink_queue(q);
		add_acqrel(&reaping, 1u);
	}
	lock_release(&table_mutex);
	return q;
}

void shim_queue_reap_all(void)
{
	struct shim_queue *q;

	while (load_relaxed(&n_destroy_pending) && !shim_capture_any() &&
	       (q = take_destroyable()) != NULL) {
		CUstream stream = q->dev.stream;
		CUcontext ctx = q->dev.ctx, popped;

		finish(q);
		if (shim_real.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
			shim_error_note(shim_real.cuStreamDestroy_v2(stream));
			shim_real.cuCtxPopCurrent_v2(&popped);
		}
		sub_acqrel(&reaping, 1u);
	}
}

static bool of_context(const struct shim_queue *q, const void *ctx)
{
	return shim_green_base(q->dev.ctx) == ctx || q->dev.ctx == ctx;
}

static bool of_thread(const struct shim_queue *q, const void *thread)
{
	return q->owner == thread;
}

static bool of_green(const struct shim_queue *q, const void *green)
{
	return q->green == green;
}

static void close_all(bool (*is)(const struct shim_queue *q, const void *arg), const void *arg)
{
	struct shim_queue *q;

	do {
		lock_take(&table_mutex);
		q = live;
		while (q && !is(q, arg)) {
			q = q->table.next_live;
		}
		if (q && !unlink_queue(q)) {
			q = NULL;
		}
		lock_release(&table_mutex);
		if (q) {
			finish(q);
		}
	} while (q);
}

/* Closes the queues, and returns only when no other thread is destroying a stream of theirs. */
static void close_for_good(bool (*is)(const struct shim_queue *q, const void *arg), const void *arg)
{
	close_all(is, arg);
	while (load_acquire(&reaping)) { /* perhaps one of these */
		clock_sleep_ns(POLL_NS);
	}
}

static uint64_t close_context(CUcontext ctx)
{
	close_for_good(of_context, ctx);
	return 0;
}

void shim_queue_close_thread(const struct shim_thread *t)
{
	if (shim_attached()) {
		close_all(of_thread, t);
	}
}

void shim_queue_close_green(CUgreenCtx green, CUcontext ctx)
{
	shim_drain_pending();
	shim_queue_reap_all(); /* its streams cannot be destroyed afterwards */
	close_for_good(of_green, green);
	if (ctx) {
		shim_device_context_end(ctx);
	}
}

uint32_t shim_queue_sm_percent(CUstream stream)
{
	uint32_t percent = 100;

	lock_take(&table_mutex);
	for (struct shim_queue *q = buckets[bucket_of(stream, NULL, NULL)]; q; q = q->table.next) {
		if (q->dev.stream == stream) {
			percent = sched_queue_sm_percent(q->sched);
		}
	}
	lock_release(&table_mutex);
	return percent;
}

bool shim_queue_replace(CUstream old, CUstream new)
{
	struct shim_queue **p = &buckets[bucket_of(old, NULL, NULL)], *q;
	unsigned b = bucket_of(new, NULL, NULL);

	lock_take(&table_mutex);
	while (*p && (*p)->dev.stream != old) {
		p = &(*p)->table.next;
	}
	q = *p;
	if (q) {
		*p = q->table.next;
		q->dev.stream = new;
		q->table.next = buckets[b];
		buckets[b] = q;
	}
	lock_release(&table_mutex);
	return q != NULL;
}

/* For a converted green context these are the queues of its streams, for a primary context all
 * queues on it. */
void shim_queue_context_synchronized(CUcontext ctx)
{
	CUgreenCtx green;

	if (!sched_any_touched(shim.sched) ||
	    (!ctx && shim_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)) {
		return;
	}
	green = shim_green_of(ctx);
	lock_take(&table_mutex);
	for (struct shim_queue *q = live; q; q = q->table.next_live) {
		if (load_relaxed(q->touched) &&
		    (green ? q->green == green : shim_green_base(q->dev.ctx) == ctx)) {
			sched_synced(shim.sched, q->sched);
		}
	}
	lock_release(&table_mutex);
}

/* Returns true if work on each waits for earlier work on the other through the legacy default
 * stream. */
static bool are_siblings(const struct shim_queue *a, const struct shim_queue *b)
{
	bool related = a->kind == SHIM_QUEUE_LEGACY ? b->blocking && b != a
						    : a->blocking && b->kind == SHIM_QUEUE_LEGACY;

	return related && a->green == b->green &&
	       shim_green_base(a->dev.ctx) == shim_green_base(b->dev.ctx);
}

unsigned shim_queue_siblings_deferred(struct shim_queue *of, struct shim_queue **list, unsigned max)
{
	unsigned n = 0;

	lock_take(&table_mutex);
	for (struct shim_queue *q = live; q && n < max; q = q->table.next_live) {
		if (are_siblings(of, q) && sched_queue_deferred(q->sched)) {
			list[n++] = q;
		}
	}
	lock_release(&table_mutex);
	return n;
}

struct shim_queue *shim_queue_sibling_deferred(struct shim_queue *of)
{
	struct shim_queue *found = NULL;

	(void)shim_queue_siblings_deferred(of, &found, 1);
	return found;
}

bool shim_queue_sibling_before(const struct shim_queue *of, uint64_t number)
{
	bool found = false;

	if (!of->blocking || sched_queue_alone(of->sched)) {
		return false;
	}
	if (!lock_try(&table_mutex)) {
		return true;
	}
	for (struct shim_queue *q = live; q && !found; q = q->table.next_live) {
		found = are_siblings(of, q) && sched_queue_behind(q->sched, number);
	}
	lock_release(&table_mutex);
	return found;
}

bool shim_queue_error_reported(uint32_t error)
{
	bool reported = false;

	lock_take(&table_mutex);
	for (struct shim_queue *q = live; q; q = q->table.next_live) {
		reported = (load_relaxed(&q->reported_error) == error &&
			    xchg_acqrel(&q->reported_error, 0u)) ||
			   reported;
	}
	lock_release(&table_mutex);
	return reported;
}

/* The queues belong to the parent. */
static void child(void)
{
	shim_lock_after_fork(&table_mutex, LOCK_TABLE);
	memset(buckets, 0, sizeof(buckets));
	live = free_list = NULL;
	n_destroy_pending = reaping = 0;
	add_acqrel(&shim.queue_generation, 1);
}

const struct shim_part shim_queue_part = { .if_attached = true,
					   .context_ending = close_context,
					   .child = child };
