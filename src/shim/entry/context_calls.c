/* Contexts that end. Their streams end with them, so their queues are closed first, while the
 * driver still knows the events in them. A primary context ends with its last release; this
 * process's retains and releases are counted to detect it. Closing too early costs little (queues
 * are opened again when used); closing too late leaves resumable runs in a destroyed context. */
#include "cuabi/api.h"
#include "shim/code/shim_code.h"
#include "shim/defer/block_launch.h"
#include "shim/mem/charge.h"
#include "shim/mem/copies.h"
#include "shim/object/driver_device.h"
#include "shim/object/ended_primary.h"
#include "shim/object/green_context.h"
#include "shim/object/stream_queue.h"
#include "shim/probe/shim_probe.h"

#define MAX_DEVICES 64

static uint32_t retained[MAX_DEVICES]; /* [atomic] */

/* Borrowed: the reference is released at once. */
CUcontext shim_context_primary(CUdevice device)
{
	CUcontext ctx = NULL;
	unsigned flags;
	int active = 0;

	if (shim_real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
	    !active || shim_real.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS) {
		return NULL;
	}
	shim_real.cuDevicePrimaryCtxRelease_v2(device);
	return ctx;
}

/* What was recorded before a context ends, for shim_code_context_ended() and
 * shim_mem_context_ended(). */
struct recorded {
	uint64_t code, memory;
};

static struct recorded ending(CUcontext ctx)
{
	shim_probe_context_ending(ctx);
	shim_copies_context_ending(ctx);
	shim_code_await_stub(ctx);
	if (ctx && shim_attached()) {
		shim_queue_close_context(ctx);
		shim_block_context_end(ctx);
		shim_device_context_end(ctx);
	}
	return (struct recorded){ shim_code_context_ending(ctx), shim_mem_context_ending(ctx) };
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
	CUresult r = shim_real.cuDevicePrimaryCtxRetain(ret, device);

	if (r == CUDA_SUCCESS) {
		shim_primary_retained(device);
	}
	if (r == CUDA_SUCCESS && device >= 0 && device < MAX_DEVICES) {
		add_acqrel(&retained[device], 1);
	}
	return r;
}

/* Returns the primary context if this may be its last release. */
static CUcontext releasing(CUdevice device, struct recorded *ret_recorded)
{
	CUcontext ctx = NULL;
	uint32_t n;

	if (device < 0 || device >= MAX_DEVICES) {
		return NULL;
	}
	n = load_relaxed(&retained[device]);
	while (n && !cas_acqrel(&retained[device], &n, n - 1)) {
	}
	if (n <= 1 && (shim_attached() || shim_code_any() || shim_mem_joined())) {
		ctx = shim_context_primary(device);
		*ret_recorded = ending(ctx);
	}
	if (n <= 1) {
		shim_green_context_end(device, false);
	}
	return ctx;
}

static CUcontext resetting(CUdevice device, struct recorded *ret_recorded)
{
	CUcontext ctx = NULL;

	if (shim_attached() || shim_code_any() || shim_mem_joined()) {
		ctx = shim_context_primary(device);
		*ret_recorded = ending(ctx);
	}
	shim_green_context_end(device, true);
	if (device >= 0 && device < MAX_DEVICES) { /* a reset may also drop the references */
		store_relaxed(&retained[device], 0u);
	}
	return ctx;
}

/* The context is gone. What another thread has prepared in it since ending(), by loading an image,
 * is gone with it, and must not be taken for that of the next one, whose handle may be the same. */
static void forget(CUcontext ctx, struct recorded recorded)
{
	shim_code_context_ended(ctx, recorded.code);
	shim_mem_context_ended(ctx, recorded.memory);
	if (shim_attached()) {
		shim_block_context_end(ctx);
	}
}

/* Patched machine code is forgotten only when it is gone: a launch without the stub's argument
 * would run with what happens to be behind the parameters. Others, such as the runtime's private
 * calls, may hold references of the primary context. */
static CUresult released(CUresult r, CUdevice device, CUcontext ctx, struct recorded recorded)
{
	unsigned flags;
	int active = 0;
	bool gone = ctx && r == CUDA_SUCCESS &&
		    shim_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
		    !active;

	if (gone) {
		shim_primary_ended(device, ctx);
		forget(ctx, recorded);
	} else {
		shim_mem_context_stays(ctx);
	}
	shim_copies_context_ended(ctx, gone);
	return r;
}

static CUresult ended(CUresult r, CUcontext ctx, struct recorded recorded)
{
	if (r == CUDA_SUCCESS && ctx) {
		forget(ctx, recorded);
	} else {
		shim_mem_context_stays(ctx);
	}
	shim_copies_context_ended(ctx, r == CUDA_SUCCESS);
	return r;
}

static CUresult was_reset(CUresult r, CUdevice device, CUcontext ctx, struct recorded recorded)
{
	if (r == CUDA_SUCCESS && ctx) {
		shim_primary_ended(device, ctx);
	}
	return ended(r, ctx, recorded);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	struct recorded recorded = { 0, 0 };
	CUcontext ctx = releasing(device, &recorded);

	return released(shim_real.cuDevicePrimaryCtxRelease(device), device, ctx, recorded);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct recorded recorded = { 0, 0 };
	CUcontext ctx = releasing(device, &recorded);

	return released(shim_real.cuDevicePrimaryCtxRelease_v2(device), device, ctx, recorded);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	struct recorded recorded = { 0, 0 };
	CUcontext ctx = resetting(device, &recorded);

	return was_reset(shim_real.cuDevicePrimaryCtxReset(device), device, ctx, recorded);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct recorded recorded = { 0, 0 };
	CUcontext ctx = resetting(device, &recorded);

	return was_reset(shim_real.cuDevicePrimaryCtxReset_v2(device), device, ctx, recorded);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	struct recorded recorded = ending(ctx);

	return ended(shim_real.cuCtxDestroy(ctx), ctx, recorded);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct recorded recorded = ending(ctx);

	return ended(shim_real.cuCtxDestroy_v2(ctx), ctx, recorded);
}

/* Destroys the context, and so pops it, unless cuCtxAttach was called more often. */
CUresult cuCtxDetach(CUcontext ctx)
{
	struct recorded recorded = ending(ctx);
	CUcontext now = NULL;
	CUresult r = shim_real.cuCtxDetach(ctx);

	if (shim_real.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == ctx) {
		shim_mem_context_stays(ctx);
		shim_copies_context_ended(ctx, false);
		return r;
	}
	return ended(r, ctx, recorded);
}
