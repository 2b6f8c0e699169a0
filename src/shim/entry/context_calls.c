/* Contexts that end. Their streams end with them, so their queues are closed first, while the
 * driver still knows the events in them. A primary context ends with its last release; this
 * process's retains and releases are counted to detect it. Closing too early costs little (queues
 * are opened again when used); closing too late leaves resumable runs in a destroyed context. */
#include "cuabi/api.h"
#include "shim/code/shim_code.h"
#include "shim/defer/block_launch.h"
#include "shim/object/driver_device.h"
#include "shim/object/green_context.h"
#include "shim/object/stream_queue.h"

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

static void ending(CUcontext ctx)
{
	shim_code_context_end(ctx);
	if (ctx && shim_attached()) {
		shim_queue_close_context(ctx);
		shim_block_context_end(ctx);
		shim_device_context_end(ctx);
	}
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
	CUresult r = shim_real.cuDevicePrimaryCtxRetain(ret, device);

	if (r == CUDA_SUCCESS && device >= 0 && device < MAX_DEVICES) {
		add_acqrel(&retained[device], 1);
	}
	return r;
}

static void releasing(CUdevice device)
{
	uint32_t n;

	if (device < 0 || device >= MAX_DEVICES) {
		return;
	}
	n = load_relaxed(&retained[device]);
	while (n && !cas_acqrel(&retained[device], &n, n - 1)) {
	}
	if (n <= 1 && (shim_attached() || shim_code_any())) {
		ending(shim_context_primary(device));
	}
	if (n <= 1) {
		shim_green_context_end(device, false);
	}
}

static void resetting(CUdevice device)
{
	if (shim_attached() || shim_code_any()) {
		ending(shim_context_primary(device));
	}
	shim_green_context_end(device, true);
	if (device >= 0 && device < MAX_DEVICES) { /* a reset may also drop the references */
		store_relaxed(&retained[device], 0u);
	}
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	releasing(device);
	return shim_real.cuDevicePrimaryCtxRelease(device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	releasing(device);
	return shim_real.cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	resetting(device);
	return shim_real.cuDevicePrimaryCtxReset(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	resetting(device);
	return shim_real.cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	ending(ctx);
	return shim_real.cuCtxDestroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	ending(ctx);
	return shim_real.cuCtxDestroy_v2(ctx);
}

CUresult cuCtxDetach(CUcontext ctx)
{
	ending(ctx);
	return shim_real.cuCtxDetach(ctx);
}
