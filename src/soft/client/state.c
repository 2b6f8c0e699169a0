/* State of the process: initialization, behaviour over fork, current contexts, and objects behind
 * handles. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "soft/client/context/green.h"
#include "soft/client/host_call.h"
#include "soft/client/printf_output.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"

#define STACK_MAX 64u
/* A destroyed object is reused after that many others of its kind were destroyed: a thread that was
 * in a call with it when another thread destroyed it still finds the old object. */
#define FREE_MIN 256u

struct soft_process soft = {
	.lock = LOCK_INITIALIZER(SOFT),
	.control_lock = LOCK_INITIALIZER(SOFT_LINK),
	.ring_lock = LOCK_INITIALIZER(SOFT_RING),
	.control = -1,
	.event = -1,
	.bell = -1,
};

/* Per-thread state: the stack of contexts and the per-thread default streams. */
struct thread_state {
	CUcontext stack[STACK_MAX];
	uint64_t ids[STACK_MAX]; /* of the contexts, since a new context may reuse the memory of a
				    destroyed one */
	CUgreenCtx greens[STACK_MAX]; /* the green context, if the handle was one */
	uint64_t green_ids[STACK_MAX];
	unsigned depth;
	CUstream own[SOFT_MAX_CONTEXTS];
	uint64_t own_ids[SOFT_MAX_CONTEXTS];
};

static __thread struct thread_state *thread;
static pthread_key_t thread_key;
/* Destroyed objects by kind, oldest first. */
static struct {
	struct soft_object *first, *last;
	unsigned n;
} free_objects[32] GUARDED_BY(soft.lock);

static void thread_end(void *p)
{
	struct thread_state *t = p;

	for (unsigned i = 0; i < t->depth && !soft.forked; i++) {
		soft_strict_leave(t->greens[i]);
	}
	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS && !soft.forked; i++) {
		lock_take(&soft.lock);
		if (t->own[i] && soft.contexts[i] && soft.contexts[i]->id == t->own_ids[i]) {
			lock_release(&soft.lock);
			soft_stream_destroy(t->own[i]);
		} else {
			lock_release(&soft.lock);
		}
	}
	thread = NULL;
	free(t);
}

static struct thread_state *thread_get(void)
{
	if (!thread) {
		thread = calloc(1, sizeof(*thread));
		if (thread) {
			pthread_setspecific(thread_key, thread);
		}
	}
	return thread;
}

/* After fork, the child must not use the ring and the sockets, which it shares with its parent. It
 * closes them so that the server notices when the parent exits. */
static void in_child(void)
{
	if (soft.state) {
		soft.forked = 1;
		close(soft.control);
		close(soft.event);
		close(soft.bell);
	}
}

/* Parses CUDA_VISIBLE_DEVICES: numbers or UUIDs, up to the first invalid entry. */
static void find_visible(void)
{
	const char *p = getenv("CUDA_VISIBLE_DEVICES");
	uint32_t seen = 0;

	soft.gpus = 0;
	for (uint32_t i = 0; !p && i < MIN(soft.hello.gpus, SOFT_MAX_GPUS); i++) {
		soft.visible[soft.gpus++] = i;
	}
	while (p) {
		size_t n = strcspn(p, ",");
		int i = soft_info_find_gpu(p, n);

		if (i < 0) {
			return;
		}
		if (seen & 1u << i) { /* no GPU is visible if one is named twice, as with NVIDIA's
					 driver */
			soft.gpus = 0;
			return;
		}
		seen |= 1u << i;
		soft.visible[soft.gpus++] = (uint32_t)i;
		p = p[n] ? p + n + 1 : NULL;
	}
}

CUresult cuInit(unsigned int flags)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	CUresult r = CUDA_SUCCESS;

	if (flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (soft.forked) {
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	if (visible && (visible[0] == 0 || strcmp(visible, "-1") == 0)) {
		return CUDA_ERROR_NO_DEVICE;
	}
	lock_take(&soft.lock);
	if (load_relaxed(&soft.dead)) {
		r = SOFT_DEAD;
	} else if (!soft.state) {
		r = soft_link_open();
		if (!r && (pthread_key_create(&thread_key, thread_end) ||
			   pthread_atfork(NULL, NULL, in_child) || soft_link_agent_start() < 0)) {
			r = CUDA_ERROR_OPERATING_SYSTEM;
		}
		if (!r) {
			find_visible();
			store_release(&soft.state, 1);
		}
	}
	lock_release(&soft.lock);
	return r ? r : soft.gpus ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult soft_check(void)
{
	if (!load_acquire(&soft.state) || soft.forked) {
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	return load_relaxed(&soft.dead) ? SOFT_DEAD : CUDA_SUCCESS;
}

CUresult soft_context_error(CUcontext ctx)
{
	uint32_t e;

	if (load_relaxed(&soft.dead)) {
		return SOFT_DEAD;
	}
	e = load_acquire(&soft.shared->context_error[ctx->slot]);
	if (e && e != load_relaxed(&ctx->seen_error)) {
		store_relaxed(&ctx->seen_error, e);
		soft_output_drain(); /* the text of a failed assertion; the caller may not wait */
		soft_log_wait();
	}
	return (CUresult)e;
}

CUcontext soft_thread_context(void)
{
	return thread && thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUgreenCtx soft_thread_green(void)
{
	return thread && thread->depth ? thread->greens[thread->depth - 1] : NULL;
}

CUcontext soft_thread_handle(void)
{
	CUgreenCtx g = soft_thread_green();

	return g ? soft_green_handle(g) : soft_thread_context();
}

CUresult soft_context_current(CUcontext *ret_ctx)
{
	CUresult r = soft_check();
	CUcontext ctx;
	CUgreenCtx g;

	if (r) {
		return r;
	}
	ctx = soft_thread_context();
	if (!ctx) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	g = soft_thread_green();
	if (!soft_object_is(ctx, SOFT_OBJECT_CONTEXT) ||
	    ctx->id != thread->ids[thread->depth - 1] ||
	    (g && (!soft_green_is(g) || g->id != thread->green_ids[thread->depth - 1]))) {
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	*ret_ctx = ctx;
	soft_strict_context(ctx);
	return soft_context_error(ctx);
}

/* Replaces the top of the thread's stack by the handle. */
static void set_top(struct thread_state *t, CUcontext h)
{
	CUgreenCtx g = soft_object_is(h, SOFT_OBJECT_GREEN) ? (CUgreenCtx)(void *)h : NULL;
	CUcontext ctx = g ? g->primary : h;
	unsigned at = t->depth - 1;

	t->stack[at] = ctx;
	t->ids[at] = g ? g->primary_id : ctx ? ctx->id : 0;
	t->greens[at] = g;
	t->green_ids[at] = g ? g->id : 0;
	soft_strict_enter(g);
}

CUresult soft_context_push(CUcontext h)
{
	struct thread_state *t = thread_get();

	if (!t || t->depth == STACK_MAX) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	t->depth++;
	set_top(t, h);
	return CUDA_SUCCESS;
}

CUresult soft_context_pop(CUcontext *ret)
{
	struct thread_state *t = thread_get();

	if (!t || !t->depth) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	*ret = soft_thread_handle();
	soft_strict_leave(soft_thread_green());
	t->depth--;
	return CUDA_SUCCESS;
}

void soft_context_set_current(CUcontext h)
{
	struct thread_state *t = thread_get();

	if (!t) {
		return;
	}
	soft_strict_leave(soft_thread_green());
	if (!h) {
		t->depth -= t->depth > 0;
		return;
	}
	if (!t->depth) {
		t->depth = 1;
	}
	set_top(t, h);
}

static CUresult own_stream(CUcontext ctx, CUstream *ret)
{
	struct thread_state *t = thread_get();
	CUresult r;

	if (!t) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!t->own[ctx->slot] || t->own_ids[ctx->slot] != ctx->id) {
		r = soft_stream_create(ctx, 0, 0, &t->own[ctx->slot]);
		if (r) {
			t->own[ctx->slot] = NULL;
			return r;
		}
		t->own_ids[ctx->slot] = ctx->id;
	}
	*ret = t->own[ctx->slot];
	return CUDA_SUCCESS;
}

CUresult soft_stream_resolve(CUstream h, int pt, CUstream *ret)
{
	bool implied = !h || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD;
	CUcontext ctx = NULL;
	CUresult r;

	/* In a host function no context is current; a stream names its own. */
	if (soft_in_host_function()) {
		r = implied ? CUDA_ERROR_NOT_PERMITTED : soft_check();
	} else {
		r = soft_context_current(&ctx);
	}
	if (r) {
		return r;
	}
	if (h == CU_STREAM_PER_THREAD || (!h && pt)) {
		return soft_thread_green() ? CUDA_ERROR_INVALID_HANDLE : own_stream(ctx, ret);
	}
	if (!h || h == CU_STREAM_LEGACY) {
		*ret = soft_thread_green() ? soft_thread_green()->legacy : ctx->legacy;
		return CUDA_SUCCESS;
	}
	if (!soft_handle_is(h, SOFT_OBJECT_STREAM)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (soft_green_stream_orphaned(h)) {
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	*ret = h;
	return soft_context_error(h->context);
}

void *soft_object_create(enum soft_object_kind kind, size_t size)
{
	struct soft_object *o = NULL;

	if (free_objects[kind & 31].n > FREE_MIN) {
		o = free_objects[kind & 31].first;
		free_objects[kind & 31].first = o->next_free;
		free_objects[kind & 31].n--;
		memset(o, 0, size);
	} else {
		o = calloc(1, size);
	}
	if (o) {
		o->kind = kind;
		soft_strict_object_created(o, kind);
	}
	return o;
}

void soft_object_destroy(void *object)
{
	struct soft_object *o = object;
	unsigned list = o->kind & 31;

	o->kind = SOFT_OBJECT_FREE;
	if (soft_strict_on()) { /* never recycle the handle, so that its later use is detected */
		soft_strict_object_destroyed(o);
		return;
	}
	o->next_free = NULL;
	if (free_objects[list].n++) {
		free_objects[list].last->next_free = o;
	} else {
		free_objects[list].first = o;
	}
	free_objects[list].last = o;
}

bool soft_object_is(const void *object, enum soft_object_kind kind)
{
	const struct soft_object *o = object;

	return o && (uintptr_t)o % _Alignof(struct soft_object) == 0 && (uintptr_t)o >= SOFT_PAGE &&
	       o->kind == kind;
}
