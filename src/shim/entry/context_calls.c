/* Contexts that end. Their streams end with them, so their queues are closed first, while the
 * driver still knows the events in them. A primary context ends with its last release; this
 * process's retains and releases are counted to detect it. Closing too early costs little (queues
 * are opened again when used); closing too late leaves resumable runs in a destroyed context. */
#include "cuabi/api.h"
#include "shim/code/shim_code.h"
#include "shim/entry/parts.h"
#include "shim/mem/charge.h"
#include "shim/object/ended_primary.h"
#include "shim/object/green_context.h"

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

static bool has_parts(void)
{
	return shim_attached() || shim_code_any() || shim_mem_joined();
}

/* Begins the end of the primary context if this may be its last release. */
static struct shim_end releasing(CUdevice device)
{
	struct shim_end e = { .of = NULL };
	uint32_t n;

	if (device < 0 || device >= MAX_DEVICES) {
		return e;
	}
	n = load_relaxed(&retained[device]);
	while (n && !cas_acqrel(&retained[device], &n, n - 1)) {
	}
	if (n <= 1 && has_parts()) {
		e = shim_parts_context_ending(shim_context_primary(device));
	}
	if (n <= 1) {
		shim_green_context_end(device, false);
	}
	return e;
}

static struct shim_end resetting(CUdevice device)
{
	struct shim_end e = { .of = NULL };

	if (has_parts()) {
		e = shim_parts_context_ending(shim_context_primary(device));
	}
	shim_green_context_end(device, true);
	if (device >= 0 && device < MAX_DEVICES) { /* a reset may also drop the references */
		store_relaxed(&retained[device], 0u);
	}
	return e;
}

/* Others, such as the runtime's private calls, may hold references of the primary context. */
static bool is_active(CUdevice device)
{
	unsigned flags;
	int active = 0;

	return shim_real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
	       active;
}

static CUresult ended(CUresult r, const struct shim_end *e)
{
	shim_parts_context_ended(e, r == CUDA_SUCCESS);
	return r;
}

/* ... of a device's primary context. */
static CUresult primary_ended(CUresult r, CUdevice device, const struct shim_end *e, bool gone)
{
	if (e->of && gone) {
		shim_primary_ended(device, (CUcontext)unqual(e->of));
	}
	shim_parts_context_ended(e, gone);
	return r;
}

static CUresult released(CUresult r, CUdevice device, const struct shim_end *e)
{
	return primary_ended(r, device, e, e->of && r == CUDA_SUCCESS && !is_active(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	struct shim_end e = releasing(device);

	return released(shim_real.cuDevicePrimaryCtxRelease(device), device, &e);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct shim_end e = releasing(device);

	return released(shim_real.cuDevicePrimaryCtxRelease_v2(device), device, &e);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	struct shim_end e = resetting(device);
	CUresult r = shim_real.cuDevicePrimaryCtxReset(device);

	return primary_ended(r, device, &e, r == CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct shim_end e = resetting(device);
	CUresult r = shim_real.cuDevicePrimaryCtxReset_v2(device);

	return primary_ended(r, device, &e, r == CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	struct shim_end e = shim_parts_context_ending(ctx);

	return ended(shim_real.cuCtxDestroy(ctx), &e);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct shim_end e = shim_parts_context_ending(ctx);

	return ended(shim_real.cuCtxDestroy_v2(ctx), &e);
}

/* Destroys the context, and so pops it, unless cuCtxAttach was called more often. */
CUresult cuCtxDetach(CUcontext ctx)
{
	struct shim_end e = shim_parts_context_ending(ctx);
	CUcontext now = NULL;
	CUresult r = shim_real.cuCtxDetach(ctx);
	bool stays = shim_real.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == ctx;

	shim_parts_context_ended(&e, r == CUDA_SUCCESS && !stays);
	return r;
}
