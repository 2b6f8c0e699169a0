/* Events as markers. An event belongs to a context, so each context has two pools: of events with
 * times, and of those without, for markers that measure nothing. (A timed event behind a CUDA graph
 * of two H200s costs 45 us, one without times nothing that shows.) Returning an event is lock-free
 * and taking one only tries its lock, since both happen on the launch path. When a context ends,
 * the generation of its entry is incremented, and events of an older generation are dropped when
 * they are returned. */
#include "gpu/gpu.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag_lease.h"
#include "gpu/cuda/flag_lease_int.h"

struct gpu_event {
	CUevent event;
	struct gpu_context *home;
	uint64_t generation;
	bool timed;
	struct gpu_event *next;
};

static TLS_FAST char thread_mark;

const void *gpu_thread(void)
{
	return &thread_mark;
}

int gpu_device_create(struct gpu_device **ret, const struct cuabi_table *real)
{
	struct gpu_device *d = calloc(1, sizeof(*d));

	if (!d) {
		return -ENOMEM;
	}
	if (gpu_leases_create(d) < 0) {
		free(d);
		return -ENOMEM;
	}
	d->real = real;
	lock_init(&d->lock, LOCK_DEVICE);
	*ret = d;
	return 0;
}

/* ---- pools ---- */

static void push(struct gpu_events *of, struct gpu_event *e)
{
	e->next = load_relaxed(&of->returned);
	while (!cas_acqrel(&of->returned, &e->next, e)) {
	}
}

static bool try_take_lock(struct gpu_context *c)
{
	for (int tries = 0; tries < 100; tries++) {
		if (!load_relaxed(&c->take_lock) && !xchg_acqrel(&c->take_lock, 1u)) {
			return true;
		}
		cpu_relax();
	}
	return false;
}

/* Takes an event from the pool; NULL: create one. take_lock is held, so that no other thread
 * dismantles the list being read. */
static struct gpu_event *pop(struct gpu_events *of)
{
	struct gpu_event *e =
		of->ready ? of->ready : xchg_acqrel(&of->returned, (struct gpu_event *)NULL);

	of->ready = e ? e->next : NULL;
	return e;
}

static void free_all(struct gpu_event *e)
{
	struct gpu_event *next;

	for (; e; e = next) {
		next = e->next;
		free(e);
	}
}

/* Frees what was returned. Events in `ready` of a context that has ended are recognized by their
 * generation and freed by take(). */
static void free_returned(struct gpu_context *c)
{
	for (unsigned i = 0; i < ARRAY_SIZE(c->events); i++) {
		free_all(xchg_acqrel(&c->events[i].returned, (struct gpu_event *)NULL));
	}
}

void gpu_device_destroy(struct gpu_device *d)
{
	if (!d) {
		return;
	}
	for (uint32_t i = 0; i < d->n_contexts; i++) {
		struct gpu_context *c = &d->contexts[i];

		free_returned(c);
		for (unsigned k = 0; k < ARRAY_SIZE(c->events); k++) {
			free_all(c->events[k].ready);
		}
	}
	gpu_clock_forget_all(d);
	gpu_leases_destroy(d);
	gpu_runs_destroy(d);
	lock_finish(&d->lock);
	free(d);
}

static struct gpu_context *find(struct gpu_device *d, CUcontext ctx)
{
	uint32_t n = load_acquire(&d->n_contexts);

	for (uint32_t i = 0; i < n; i++) {
		if (load_acquire(&d->contexts[i].ctx) == ctx) {
			return &d->contexts[i];
		}
	}
	return NULL;
}

static struct gpu_context *find_or_add(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_context *c = find(d, ctx);
	uint32_t i;

	if (c) {
		return c;
	}
	lock_take(&d->lock);
	c = find(d, ctx);
	for (i = 0; !c && i < GPU_MAX_CONTEXTS; i++) {
		if (!d->contexts[i].ctx) {
			c = &d->contexts[i];
			store_release(&c->ctx, ctx);
			store_release(&d->n_contexts, MAX(d->n_contexts, i + 1));
		}
	}
	lock_release(&d->lock);
	return c;
}

void gpu_context_forget(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_context *c;

	gpu_runs_forget(d, ctx);
	gpu_leases_forget(d, ctx);
	lock_take(&d->lock);
	gpu_clock_forget_context(d, ctx);
	c = find(d, ctx);
	if (c) {
		(void)add_acqrel(&c->generation, 1u);
		free_returned(c);
		store_release(&c->ctx, (CUcontext)NULL);
	}
	lock_release(&d->lock);
}

/* ---- operations ---- */

/* Makes the context current until leave(). Threads of the application usually have it current
 * already. Returns 0 or -EIO. */
static int enter(struct gpu_device *d, CUcontext ctx, bool *ret_pushed)
{
	CUcontext now = NULL;

	*ret_pushed = false;
	if (d->real->cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == ctx) {
		return 0;
	}
	if (d->real->cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS) {
		return -EIO;
	}
	*ret_pushed = true;
	return 0;
}

static void leave(struct gpu_device *d, bool pushed)
{
	CUcontext popped;

	if (pushed) {
		(void)d->real->cuCtxPopCurrent_v2(&popped);
	}
}

int gpu_scope_enter(struct gpu_device *d, CUcontext ctx, struct gpu_scope *ret)
{
	int err = enter(d, ctx, &ret->pushed);

	if (err) {
		return err;
	}
	ret->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (d->real->cuThreadExchangeStreamCaptureMode(&ret->mode) != CUDA_SUCCESS) {
		ret->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	}
	return 0;
}

void gpu_scope_leave(struct gpu_device *d, const struct gpu_scope *s)
{
	CUstreamCaptureMode mode = s->mode;

	(void)d->real->cuThreadExchangeStreamCaptureMode(&mode);
	leave(d, s->pushed);
}

CUresult gpu_private_stream(struct gpu_device *d, CUstream *ret)
{
	int least = 0, greatest = 0;

	(void)d->real->cuCtxGetStreamPriorityRange(&least, &greatest);
	return d->real->cuStreamCreateWithPriority(ret, CU_STREAM_NON_BLOCKING, greatest);
}

/* Returns true if the stream is being captured: recording or querying it would add to the graph or
 * invalidate the capture. The context is current. */
static bool capturing(struct gpu_device *d, const struct gpu_queue *q)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return d->real->cuStreamIsCapturing(q->stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool foreign(const struct gpu_queue *q)
{
	return q->home && q->home != gpu_thread();
}

static struct gpu_event *make(struct gpu_device *d, struct gpu_context *c, bool timed)
{
	struct gpu_event *e = calloc(1, sizeof(*e));

	if (!e) {
		return NULL;
	}
	e->home = c;
	e->generation = load_acquire(&c->generation);
	e->timed = timed;
	if (d->real->cuEventCreate(&e->event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) !=
	    CUDA_SUCCESS) {
		free(e);
		return NULL;
	}
	return e;
}

static struct gpu_event *take(struct gpu_device *d, CUcontext ctx, bool timed)
{
	struct gpu_context *c = find_or_add(d, ctx);
	struct gpu_event *e;

	if (!c || !try_take_lock(c)) {
		return NULL;
	}
	while ((e = pop(&c->events[timed])) && e->generation != load_acquire(&c->generation)) {
		free(e); /* of the context that had this entry before */
	}
	store_release(&c->take_lock, 0u);
	return e ? e : make(d, c, timed);
}

static void give_back(struct gpu_event *e)
{
	if (e->generation != load_acquire(&e->home->generation)) {
		free(e);
		return;
	}
	push(&e->home->events[e->timed], e);
}

static struct gpu_event *take_of_base(struct gpu_device *d, CUcontext base, bool timed)
{
	struct gpu_event *e = NULL;
	bool pushed;

	if (enter(d, base, &pushed) == 0) {
		e = take(d, base, timed);
		leave(d, pushed);
	}
	return e;
}

static int mark(void *dev, void *dev_queue, bool timed, struct sched_marker *m)
{
	const struct gpu_queue *q = dev_queue;
	struct gpu_device *d = dev;
	struct gpu_event *e;
	bool pushed;
	int err;

	if (foreign(q)) {
		return -EAGAIN;
	}
	err = enter(d, q->ctx, &pushed);
	if (err) {
		return err;
	}
	e = capturing(d, q) ? NULL
	    : q->base	    ? take_of_base(d, q->base, timed)
			    : take(d, q->ctx, timed);
	if (!e) {
		err = -EAGAIN;
	} else if (d->real->cuEventRecord(e->event, q->stream) != CUDA_SUCCESS) {
		give_back(e);
		err = -EIO;
	} else {
		m->event = e;
	}
	leave(d, pushed);
	return err;
}

static int status(CUresult r)
{
	return r == CUDA_SUCCESS ? 1 : r == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

/* As enter(), for the context of an event; -EIO if it has ended. */
static int enter_event(struct gpu_device *d, const struct gpu_event *e, bool *ret_pushed)
{
	CUcontext ctx = load_acquire(&e->home->ctx);

	return ctx && e->generation == load_acquire(&e->home->generation)
		       ? enter(d, ctx, ret_pushed)
		       : -EIO;
}

static int mark_done(void *dev, const struct sched_marker *m)
{
	const struct gpu_event *e = m->event;
	struct gpu_device *d = dev;
	bool pushed;
	int ret = enter_event(d, e, &pushed);

	if (ret == 0) {
		ret = status(d->real->cuEventQuery(e->event));
		leave(d, pushed);
	}
	return ret;
}

static int64_t mark_span_ns(void *dev, const struct sched_marker *from,
			    const struct sched_marker *to)
{
	const struct gpu_event *a = from->event, *b = to->event;
	struct gpu_device *d = dev;
	float ms = -1;
	bool pushed;

	if (a->home != b->home || a->generation != b->generation || enter_event(d, a, &pushed)) {
		return -EIO;
	}
	if (d->real->cuEventElapsedTime(&ms, a->event, b->event) != CUDA_SUCCESS) {
		ms = -1;
	}
	leave(d, pushed);
	return ms >= 0 && ms < 1e9f ? (int64_t)((double)ms * 1e6) : -EIO;
}

static void mark_release(void *dev, struct sched_marker *m)
{
	if (m->event) {
		give_back(m->event);
		m->event = NULL;
	}
}

static int queue_idle(void *dev, void *dev_queue)
{
	const struct gpu_queue *q = dev_queue;
	struct gpu_device *d = dev;
	bool pushed;
	int ret;

	if (foreign(q)) {
		return -EAGAIN;
	}
	if (gpu_run_busy(d, dev_queue)) {
		return 0; /* the stream may be idle, but stopped blocks will be submitted again */
	}
	ret = enter(d, q->ctx, &pushed);
	if (ret) {
		return ret;
	}
	ret = capturing(d, q) ? -EAGAIN : status(d->real->cuStreamQuery(q->stream));
	leave(d, pushed);
	return ret;
}

const struct sched_device_ops gpu_sched_ops = {
	.mark = mark,
	.mark_done = mark_done,
	.mark_span_ns = mark_span_ns,
	.mark_release = mark_release,
	.queue_idle = queue_idle,
	.lease = gpu_lease,
	.warm = gpu_warm,
	.run_busy = gpu_run_busy,
	.run_step = gpu_run_step,
	.run_look = gpu_run_look,
	.run_took = gpu_run_took,
};
