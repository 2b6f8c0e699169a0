/* Green contexts: creation on the primary context, destruction, conversion to a context handle,
 * queries and events. */
#include "base/atomic.h"
#include "base/clock.h"
#include "soft/client/context/context.h"
#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/strict.h"
#include <string.h>

#define NUMBER_NS 1000000u
#define NUMBER_TRIES 1000u

bool soft_green_is(const void *h)
{
	const struct CUgreenCtx_st *g = h;

	return soft_object_is(h, SOFT_OBJECT_GREEN) &&
	       soft_object_is(g->primary, SOFT_OBJECT_CONTEXT) && g->primary->id == g->primary_id;
}

CUresult soft_green_resolve(CUcontext h, CUcontext *ret_ctx, CUgreenCtx *ret_green)
{
	CUgreenCtx g = (CUgreenCtx)(void *)h;

	*ret_green = NULL;
	*ret_ctx = h;
	if (!soft_object_is(h, SOFT_OBJECT_GREEN)) {
		return soft_handle_is(h, SOFT_OBJECT_CONTEXT) ? CUDA_SUCCESS
							      : CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!g->converted) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	*ret_green = g;
	*ret_ctx = g->primary;
	return soft_green_is(g) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUcontext soft_green_context(CUcontext h)
{
	CUgreenCtx g;
	CUcontext ctx;

	return soft_green_resolve(h, &ctx, &g) == CUDA_SUCCESS ? ctx : h;
}

bool soft_green_stream_orphaned(const CUstream s)
{
	return s->green && (!soft_green_is(s->green) || s->green->id != s->green_id);
}

static CUresult check(CUgreenCtx g)
{
	CUresult e = soft_check();

	if (e || !soft_handle_is(g, SOFT_OBJECT_GREEN)) {
		return e ? e : CUDA_ERROR_INVALID_CONTEXT;
	}
	return soft_green_is(g) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult make_part(CUgreenCtx g)
{
	struct soft_request q = { .op = SOFT_REQ_PART, .object = SOFT_PART_NEW, .value = g->sms.n };
	struct soft_reply r;
	CUresult e;

	for (uint32_t i = 0; i < g->sms.n; i++) {
		uint64_t range = g->sms.range[i].first | (uint64_t)g->sms.range[i].n << 16;

		q.more[i / 2] |= range << i % 2 * 32;
	}
	/* Numbers are limited, and the server reuses one only after it has processed the records
	 * that name it. So waits for up to a second. */
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	for (unsigned i = 0; e == CUDA_ERROR_NOT_READY && i < NUMBER_TRIES; i++) {
		clock_sleep_ns(NUMBER_NS);
		e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	}
	e = e == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : e;
	g->part = e ? 0 : r.value32 + 1;
	return e;
}

static void drop_part(CUgreenCtx g)
{
	struct soft_request q = { .op = SOFT_REQ_PART,
				  .object = SOFT_PART_FREE,
				  .index = g->part - 1 };
	struct soft_reply r;

	if (g->part) {
		soft_link_call(&q, -1, &r, sizeof(r), NULL);
	}
}

static void green_delete(CUgreenCtx g)
{
	drop_part(g);
	lock_take(&soft.lock);
	soft_object_destroy(g);
	lock_release(&soft.lock);
}

static CUgreenCtx green_new(CUdevResourceDesc desc, CUcontext primary)
{
	CUgreenCtx g;

	lock_take(&soft.lock);
	g = soft_object_create(SOFT_OBJECT_GREEN, sizeof(*g));
	if (g) {
		g->primary = primary;
		g->primary_id = primary->id;
		g->id = ++soft.next_id;
		g->sms = desc->sms;
	}
	lock_release(&soft.lock);
	return g;
}

CUresult cuGreenCtxCreate(CUgreenCtx *ret, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CUresult e = soft_context_check_device(dev);
	CUcontext primary;
	CUgreenCtx g;

	if (e) {
		return e;
	}
	if (!ret || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
	    !soft_object_is(desc, SOFT_OBJECT_RESOURCES) || desc->device != dev) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = cuDevicePrimaryCtxRetain(&primary, dev);
	if (e) {
		return e;
	}
	g = green_new(desc, primary);
	e = g ? make_part(g) : CUDA_ERROR_OUT_OF_MEMORY;
	e = e ? e : soft_stream_create_in(primary, g, 0, SOFT_STREAM_LEGACY, &g->legacy);
	if (e) {
		if (g) {
			green_delete(g);
		}
		cuDevicePrimaryCtxRelease_v2(dev);
		return e;
	}
	*ret = g;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx g)
{
	CUresult e = check(g);
	CUdevice dev;

	if (e) {
		return e;
	}
	dev = g->primary->device;
	soft_handle_destroying(g);
	e = soft_stream_destroy(g->legacy);
	green_delete(g);
	cuDevicePrimaryCtxRelease_v2(dev);
	return e;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx g)
{
	CUresult e = check(g);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	g->converted = true;
	*ret = soft_green_handle(g);
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx g, CUdevResource *ret, CUdevResourceType type)
{
	CUresult e = check(g);

	return e ? e : soft_sm_resource_fill(ret, type, g->primary->device, &g->sms);
}

CUresult cuCtxGetDevResource(CUcontext h, CUdevResource *ret, CUdevResourceType type)
{
	struct soft_sm_ranges all;
	CUresult e = soft_check();
	CUcontext ctx;
	CUgreenCtx g;

	e = e ? e : soft_green_resolve(h, &ctx, &g);
	if (e) {
		return e;
	}
	all = g ? g->sms : soft_sm_resource_all();
	return soft_sm_resource_fill(ret, type, ctx->device, &all);
}

CUresult cuGreenCtxGetId(CUgreenCtx g, unsigned long long *ret)
{
	CUresult e;

	if (!g) {
		g = soft_thread_green();
	}
	e = check(g);
	if (!e && ret) {
		*ret = g->id;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGreenCtxStreamCreate(CUstream *ret, CUgreenCtx g, unsigned int flags, int priority)
{
	CUresult e = check(g);

	if (e) {
		return e;
	}
	if (!ret || flags != CU_STREAM_NON_BLOCKING) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	priority = MIN(MAX(priority, SOFT_PRIORITY_GREATEST), 0);
	return soft_stream_create_in(g->primary, g, priority, SOFT_STREAM_NON_BLOCKING, ret);
}

/* An event of a green context is recorded as that of a context is. */

CUresult cuGreenCtxRecordEvent(CUgreenCtx g, CUevent ev)
{
	CUresult e = check(g);

	return e ? e : soft_context_record(g->primary, g, ev);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx g, CUevent ev)
{
	CUresult e = check(g);

	return e ? e : soft_context_wait(g->primary, g, ev);
}

CUresult cuStreamGetGreenCtx(CUstream h, CUgreenCtx *ret)
{
	CUstream s;
	CUresult e = soft_stream_resolve(h, 0, &s);

	if (!e && ret) {
		*ret = s->green;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
