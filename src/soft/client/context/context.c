/* Contexts: creation and destruction on the server, the current context of threads, limits. */
#include "soft/client/context/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/memory/pool.h"
#include "soft/client/process.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"
#include "soft/client/texture/texture_table.h"

#define API_VERSION 13000u
#define STACK_LIMIT_MAX (512u << 10)

static const size_t default_limits[16] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 1u << 20,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20,
	[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
	[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
	[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

/* Held while the server has given a slot away and the tables by slot do not say so yet: a context
 * that another thread creates may get the slot of one that is being destroyed. Taken before
 * soft.lock. */
static struct lock slots_lock = LOCK_INITIALIZER(SOFT_SLOTS);

static void destroy_on_server(uint32_t slot)
{
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_DESTROY, .context = slot };
	struct soft_reply r;

	soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

/* Enables scheduling of the context, whose work could otherwise never end. */
static void enable_scheduling(uint32_t slot)
{
	struct soft_request q = {
		.op = SOFT_REQ_GROUP, .context = slot, .object = SOFT_GROUP_SCHEDULE, .value = 1
	};
	struct soft_reply r;

	soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

static CUresult fill(CUcontext ctx)
{
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_CREATE, .index = ctx->gpu };
	struct soft_reply r;
	CUresult e = soft_link_call(&q, -1, &r, sizeof(r), NULL);

	if (e == CUDA_ERROR_OUT_OF_MEMORY) {
		soft_link_explain(&r);
	}
	if (e) {
		return e;
	}
	if (r.context.slot >= SOFT_MAX_CONTEXTS) {
		return CUDA_ERROR_UNKNOWN;
	}
	ctx->slot = r.context.slot;
	e = soft_window_open(ctx->gpu, &ctx->window);
	soft.contexts[ctx->slot] = ctx;
	e = e ? e : soft_stream_create(ctx, 0, SOFT_STREAM_LEGACY, &ctx->legacy);
	if (e) {
		soft.contexts[ctx->slot] = NULL;
		soft_texture_drop_context(ctx);
		soft_memory_drop_context(ctx);
		destroy_on_server(ctx->slot);
	}
	return e;
}

CUresult soft_context_create(unsigned flags, CUdevice dev, CUcontext *ret)
{
	CUcontext ctx;
	CUresult e;

	if ((flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft.lock);
	ctx = soft_object_create(SOFT_OBJECT_CONTEXT, sizeof(*ctx));
	if (ctx) {
		ctx->id = ++soft.next_id;
		ctx->flags = flags;
		ctx->refs = 1;
		ctx->device = dev;
		ctx->gpu = soft.visible[dev];
		ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
		memcpy(ctx->limits, default_limits, sizeof(ctx->limits));
		lock_init(&ctx->staging_lock, LOCK_SOFT_STAGING);
		lock_init(&ctx->call_lock, LOCK_SOFT_CALL);
	}
	lock_release(&soft.lock);
	if (!ctx) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_take(&slots_lock);
	e = fill(ctx);
	lock_release(&slots_lock);
	if (e) {
		lock_take(&soft.lock);
		soft_object_destroy(ctx);
		lock_release(&soft.lock);
		return e;
	}
	*ret = ctx;
	return CUDA_SUCCESS;
}

CUresult soft_context_destroy(CUcontext ctx)
{
	enable_scheduling(ctx->slot);
	soft_context_drain(ctx);
	/* Before the server gives the addresses to allocations of other threads. */
	soft_pool_leave(ctx);
	soft_memory_drop_context(ctx);
	lock_take(&slots_lock);
	destroy_on_server(ctx->slot);
	soft_texture_drop_context(ctx);
	soft_streams_drop_context(ctx);
	soft_events_drop_context(ctx);
	lock_take(&soft.lock);
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (soft.stream_used[i] == 1 && soft.stream_owner[i] == ctx->slot) {
			store_relaxed(&soft.stream_used[i],
				      2); /* the server has ended their operations */
		}
	}
	soft.contexts[ctx->slot] = NULL;
	soft_object_destroy(ctx->legacy);
	soft_object_destroy(ctx);
	lock_release(&soft.lock);
	lock_release(&slots_lock);
	return load_relaxed(&soft.dead) ? SOFT_DEAD : CUDA_SUCCESS;
}

CUresult soft_context_check_device(CUdevice dev)
{
	CUresult e = soft_check();

	return e ? e : dev >= 0 && dev < soft.gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Replaces the handle, which may be that of a green context, by the context that it means. */
static CUresult check_handle(CUcontext *ctx)
{
	CUresult e = soft_check();
	CUgreenCtx g;

	return e ? e : soft_green_resolve(*ctx, ctx, &g);
}

CUresult cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_context_create(flags, dev, ret);
	return e ? e : soft_context_push(*ret);
}

CUresult cuCtxCreate(CUcontext *ret, unsigned int flags, CUdevice dev)
{
	return cuCtxCreate_v2(ret, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *affinity, int n, unsigned int flags,
			CUdevice dev)
{
	return affinity || n ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
			     : cuCtxCreate_v2(ret, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ret, CUctxCreateParams *p, unsigned int flags, CUdevice dev)
{
	if (p && (p->numExecAffinityParams || p->cigParams)) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return cuCtxCreate_v2(ret, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUcontext popped;
	CUresult e = check_handle(&ctx);

	if (e) {
		return e;
	}
	if (ctx->primary) { /* also for a green handle */
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (soft_thread_context() == ctx) {
		soft_context_pop(&popped);
	}
	soft_handle_destroying(ctx);
	return soft_context_destroy(ctx);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

/* From before threads had current contexts: counts uses of the current one. */
CUresult cuCtxAttach(CUcontext *ret, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	add_relaxed(&ctx->refs, 1u);
	*ret = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
	CUresult e = check_handle(&ctx);

	if (e) {
		return e;
	}
	if (ctx != soft_thread_context()) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!ctx->primary && add_relaxed(&ctx->refs, -1u) == 1) {
		return cuCtxDestroy_v2(ctx);
	}
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext h)
{
	CUcontext ctx = h;
	CUresult e = check_handle(&ctx);

	return e ? e : soft_context_push(h);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
	CUcontext ctx;
	CUresult e = soft_check();

	e = e ? e : soft_context_pop(&ctx);
	if (!e && ret) {
		*ret = ctx;
	}
	return e;
}

CUresult cuCtxPopCurrent(CUcontext *ret)
{
	return cuCtxPopCurrent_v2(ret);
}

CUresult cuCtxSetCurrent(CUcontext h)
{
	CUcontext ctx = h;
	CUresult e = ctx ? check_handle(&ctx) : soft_check();

	if (!e) {
		soft_context_set_current(h);
	}
	return e;
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = soft_thread_handle();
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && ret) {
		*ret = ctx->device;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetDevice_v2(CUdevice *ret, CUcontext ctx)
{
	CUresult e;

	if (!ctx) {
		return cuCtxGetDevice(ret);
	}
	e = check_handle(&ctx);
	if (!e && ret) {
		*ret = ctx->device;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetFlags(unsigned int *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && ret) {
		*ret = ctx->flags;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if ((flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	ctx->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ret)
{
	CUresult e = ctx ? check_handle(&ctx) : soft_context_current(&ctx);

	if (!e && ret) {
		*ret = ctx->id;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *ret)
{
	CUresult e = ctx ? check_handle(&ctx) : soft_context_current(&ctx);

	if (!e && ret) {
		*ret = API_VERSION;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Waits for all work of the context, or of the green context if g is not NULL. */
static CUresult drain(CUcontext ctx, CUgreenCtx g)
{
	CUresult e = soft_capture_sync_context(ctx);

	e = e ? e : g ? soft_green_drain(g) : soft_context_drain(ctx);
	soft_pool_trim_idle();
	return e;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	return e ? e : drain(ctx, soft_thread_green());
}

CUresult cuCtxSynchronize_v2(CUcontext h)
{
	CUgreenCtx g = soft_thread_green();
	CUcontext ctx;
	CUresult e = soft_check();

	e = e ? e : h ? soft_green_resolve(h, &ctx, &g) : soft_context_current(&ctx);
	return e ? e : drain(ctx, g);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && least) {
		*least = 0;
	}
	if (!e && greatest) {
		*greatest = SOFT_PRIORITY_GREATEST;
	}
	return e;
}

CUresult cuCtxGetLimit(size_t *ret, CUlimit what)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((unsigned)what > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	}
	*ret = ctx->limits[what];
	return CUDA_SUCCESS;
}

static CUresult set_heap(CUcontext ctx, size_t bytes)
{
	struct soft_request q = { .op = SOFT_REQ_GROUP,
				  .context = ctx->slot,
				  .object = SOFT_GROUP_HEAP,
				  .value = bytes };
	struct soft_reply r;

	return soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

/* Most limits always hold on the soft GPU: stacks grow with the kernel, and output is drained while
 * kernels run. */
CUresult cuCtxSetLimit(CUlimit what, size_t value)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if ((unsigned)what >= CU_LIMIT_PERSISTING_L2_CACHE_SIZE) { /* there is no such cache */
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	}
	if ((what == CU_LIMIT_STACK_SIZE && value > STACK_LIMIT_MAX) ||
	    (what == CU_LIMIT_PRINTF_FIFO_SIZE && value > soft.hello.memory_bytes)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (what == CU_LIMIT_MAX_L2_FETCH_GRANULARITY) {
		value = MIN(value, 128u);
	}
	if (what == CU_LIMIT_MALLOC_HEAP_SIZE) {
		e = set_heap(ctx, value);
		if (e) {
			return e;
		}
	}
	ctx->limits[what] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CUcontext ctx;

	return soft_context_current(&ctx);
}

/* Cache preferences are stored and have no effect. */
CUresult cuCtxGetCacheConfig(CUfunc_cache *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && ret) {
		*ret = ctx->cache_config;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!e) {
		ctx->cache_config = config;
	}
	return e;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e && ret) {
		*ret = ctx->shared_config;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A device of this compute capability always has banks of four bytes. */
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	return e ? e
	       : (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *ret, CUexecAffinityType type)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	(void)ret;
	(void)type;
	return e ? e : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}
