/* Limits a tenant to a part of the multiprocessors by green contexts, in the process sharing mode.
 * A non-blocking stream can be created in a green context of the primary one instead: modules,
 * memory and events remain the primary context's, and only a query for the stream's context shows
 * the difference. Those queries are answered here as if the stream were the primary context's.
 *
 * Blocking streams, the default streams and streams of other contexts cannot be moved. They keep
 * all multiprocessors, and the tenant's statistics report that (sched_report_cap). The
 * multiprocessor count that the program reads is the capped one, as under MPS, so that kernels
 * whose blocks wait for each other are not larger than what fits. */
#include "shim/object/green_context.h"

#include "base/compiler.h"
#include "base/lock.h"
#include "cuabi/api.h"
#include "shim/capture_state.h"
#include "shim/fork_lock.h"
#include "shim/object/stream_queue.h"

#define DEVICES 16u
#define MAX_CAPPED 4096u
#define MAX_KNOWN 64u

static struct lock mutex = LOCK_INITIALIZER(GREEN);
static uint32_t percent = 100; /* [atomic] */
static struct {
	CUgreenCtx green; /* [atomic] changed under mutex */
	uint32_t sms;	  /* [atomic] multiprocessors; 0: not determined yet; UINT32_MAX: the driver
			     cannot cap */
} own[DEVICES];
static struct {
	CUstream stream;
	CUdevice device;
} capped[MAX_CAPPED] GUARDED_BY(mutex);
static uint32_t n_capped; /* [atomic] changed under mutex */
static struct {
	CUgreenCtx green;
	CUcontext ctx, primary; /* NULL: not converted to a context yet */
	CUdevice device;
} known[MAX_KNOWN] GUARDED_BY(mutex);
static uint32_t n_known; /* [atomic] */

/* ---- the program's green contexts ---- */

static void note_green(CUgreenCtx green, CUdevice device)
{
	lock_take(&mutex);
	if (n_known < MAX_KNOWN) {
		known[n_known].green = green;
		known[n_known].device = device;
		known[n_known].ctx = known[n_known].primary = NULL;
		store_release(&n_known, n_known + 1);
	}
	lock_release(&mutex);
}

static void note_context(CUgreenCtx green, CUcontext ctx)
{
	lock_take(&mutex);
	for (uint32_t i = 0; i < n_known; i++) {
		if (known[i].green == green && !known[i].ctx) {
			known[i].primary = shim_context_primary(known[i].device);
			known[i].ctx = known[i].primary ? ctx : NULL;
		}
	}
	lock_release(&mutex);
}

static CUcontext forget_green(CUgreenCtx green)
{
	CUcontext ctx = NULL;

	lock_take(&mutex);
	for (uint32_t i = 0; i < n_known; i++) {
		if (known[i].green == green) {
			ctx = known[i].ctx;
			known[i] = known[n_known - 1];
			store_release(&n_known, n_known - 1);
			break;
		}
	}
	lock_release(&mutex);
	return ctx;
}

static bool find_known(CUcontext ctx, CUcontext *ret_primary, CUgreenCtx *ret_green)
{
	bool found = false;

	if (likely(!load_acquire(&n_known)) || !ctx) {
		return false;
	}
	lock_take(&mutex);
	for (uint32_t i = 0; i < n_known && !found; i++) {
		found = known[i].ctx == ctx;
		*ret_primary = known[i].primary;
		*ret_green = known[i].green;
	}
	lock_release(&mutex);
	return found;
}

CUcontext shim_green_base(CUcontext ctx)
{
	CUcontext primary;
	CUgreenCtx green;

	return find_known(ctx, &primary, &green) ? primary : ctx;
}

CUgreenCtx shim_green_of(CUcontext ctx)
{
	CUcontext primary;
	CUgreenCtx green;

	return find_known(ctx, &primary, &green) ? green : NULL;
}

CUresult cuGreenCtxCreate(CUgreenCtx *ret, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
	CUresult r = shim_real.cuGreenCtxCreate(ret, desc, device, flags);

	if (r == CUDA_SUCCESS) {
		note_green(*ret, device);
	}
	return r;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
	CUresult r = shim_real.cuCtxFromGreenCtx(ret, green);

	if (r == CUDA_SUCCESS) {
		note_context(green, *ret);
	}
	return r;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext ctx = forget_green(green);

	if (shim_attached()) {
		shim_queue_close_green(green, ctx);
	}
	return shim_real.cuGreenCtxDestroy(green);
}

/* ---- the shim's green contexts ---- */

void shim_green_set_percent(uint32_t value)
{
	store_relaxed(&percent, value);
}

static bool wanted(void)
{
	return load_relaxed(&percent) < 100;
}

/* Splits off one group of at least min_sms multiprocessors (0: the smallest possible). *ret_all:
 * those of the device. */
static CUresult split(CUdevice device, unsigned min_sms, CUdevResource *ret, unsigned *ret_all)
{
	CUdevResource all;
	unsigned groups = 1;
	CUresult r = shim_real.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);

	if (r != CUDA_SUCCESS) {
		return r;
	}
	*ret_all = all.sm.smCount;
	return shim_real.cuDevSmResourceSplitByCount(ret, &groups, &all, NULL, 0, min_sms);
}

bool shim_green_possible(CUdevice device)
{
	CUdevResource r;
	unsigned all;

	return split(device, 0, &r, &all) == CUDA_SUCCESS && r.sm.smCount < all;
}

/* Stores the tenant's share of the device, rounded up to a size that it can be split into. Returns
 * false if it cannot be split or nothing would be left over. */
static bool share_of(CUdevice device, CUdevResource *ret)
{
	unsigned all = 0, min_sms;
	CUdevResource whole;

	if (split(device, 0, &whole, &all) != CUDA_SUCCESS) {
		return false;
	}
	min_sms = (unsigned)((uint64_t)all * load_relaxed(&percent) + 99) / 100;
	return split(device, min_sms, ret, &all) == CUDA_SUCCESS && ret->sm.smCount < all;
}

/* Returns the multiprocessors that the cap leaves of the device; 0: there is no cap. */
static uint32_t sms_of(CUdevice device)
{
	CUdevResource r;
	uint32_t sms;

	if (!wanted() || device < 0 || (unsigned)device >= DEVICES) {
		return 0;
	}
	sms = load_relaxed(&own[device].sms);
	if (!sms) {
		sms = share_of(device, &r) ? r.sm.smCount : UINT32_MAX;
		store_relaxed(&own[device].sms, sms);
	}
	return sms == UINT32_MAX ? 0 : sms;
}

CUresult cuDeviceGetAttribute(int *ret, CUdevice_attribute what, CUdevice device)
{
	CUresult r = shim_real.cuDeviceGetAttribute(ret, what, device);
	uint32_t sms = r == CUDA_SUCCESS && what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
			       ? sms_of(device)
			       : 0;

	if (sms) {
		*ret = (int)sms;
	}
	return r;
}

static CUgreenCtx own_green(CUdevice device) REQUIRES(mutex)
{
	CUdevResourceDesc desc;
	CUgreenCtx made;
	CUdevResource r;

	if (!own[device].green && share_of(device, &r) &&
	    shim_real.cuDevResourceGenerateDesc(&desc, &r, 1) == CUDA_SUCCESS &&
	    shim_real.cuGreenCtxCreate(&made, desc, device, CU_GREEN_CTX_DEFAULT_STREAM) ==
		    CUDA_SUCCESS) {
		store_relaxed(&own[device].green, made);
	}
	return own[device].green;
}

/* Creates a stream in the shim's green context and records it. */
static bool make(CUdevice device, int priority, CUstream *ret)
{
	CUgreenCtx green;
	bool made = false;

	lock_take(&mutex);
	green = n_capped < MAX_CAPPED ? own_green(device) : NULL;
	if (green && shim_real.cuGreenCtxStreamCreate(ret, green, CU_STREAM_NON_BLOCKING,
						      priority) == CUDA_SUCCESS) {
		capped[n_capped].stream = *ret;
		capped[n_capped].device = device;
		store_relaxed(&n_capped, n_capped + 1);
		made = true;
	}
	lock_release(&mutex);
	return made;
}

/* Returns PROTO_CAP_DONE if *stream was replaced, else the reason why it keeps all multiprocessors.
 */
static enum proto_cap replace(CUstream *stream)
{
	CUcontext ctx = NULL;
	CUdevice device = 0;
	unsigned flags = 0;
	int priority = 0;
	CUstream made;

	if (shim_real.cuStreamGetFlags(*stream, &flags) != CUDA_SUCCESS ||
	    !(flags & CU_STREAM_NON_BLOCKING)) {
		return PROTO_CAP_BLOCKING;
	}
	if (shim_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS ||
	    shim_real.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
	    (unsigned)device >= DEVICES || ctx != shim_context_primary(device)) {
		return PROTO_CAP_CONTEXT;
	}
	if (!sms_of(device)) {
		return PROTO_CAP_DRIVER;
	}
	(void)shim_real.cuStreamGetPriority(*stream, &priority);
	if (!make(device, priority, &made)) {
		return PROTO_CAP_DRIVER;
	}
	if (!shim_queue_replace(
		    *stream,
		    made)) { /* another thread has destroyed the stream: drop the replacement */
		shim_green_destroyed(made);
		shim_real.cuStreamDestroy_v2(made);
		return PROTO_CAP_DRIVER;
	}
	shim_real.cuStreamDestroy_v2(*stream);
	*stream = made;
	return PROTO_CAP_DONE;
}

void shim_green_cap(CUstream *stream)
{
	CUstreamCaptureMode before;
	enum proto_cap why;

	if (!wanted() || shim_queue_sm_percent(*stream) >= 100) {
		return;
	}
	before = shim_capture_exempt(); /* creating a context would invalidate captures of the
					   program */
	why = replace(stream);
	shim_capture_restore(before);
	sched_report_cap(shim.sched, load_relaxed(&percent), why);
}

static bool any_of(CUdevice device) REQUIRES(mutex)
{
	for (uint32_t i = 0; i < n_capped; i++) {
		if (capped[i].device == device) {
			return true;
		}
	}
	return false;
}

void shim_green_destroyed(CUstream stream)
{
	if (likely(!load_relaxed(&n_capped))) {
		return;
	}
	lock_take(&mutex);
	for (uint32_t i = 0; i < n_capped; i++) {
		if (capped[i].stream == stream) {
			capped[i] = capped[n_capped - 1];
			store_relaxed(&n_capped, n_capped - 1);
			break;
		}
	}
	lock_release(&mutex);
}

void shim_green_context_end(CUdevice device, bool all)
{
	CUgreenCtx green = NULL;

	if (device < 0 || (unsigned)device >= DEVICES) {
		return;
	}
	lock_take(&mutex);
	for (uint32_t i = 0; i < n_capped && all;) {
		if (capped[i].device == device) {
			capped[i] = capped[n_capped - 1];
			store_relaxed(&n_capped, n_capped - 1);
		} else {
			i++;
		}
	}
	if (!any_of(device)) {
		green = own[device].green;
		store_relaxed(&own[device].green, NULL);
	}
	lock_release(&mutex);
	if (green) {
		shim_real.cuGreenCtxDestroy(green);
	}
}

static void child(void)
{
	shim_lock_after_fork(&mutex, LOCK_GREEN);
	n_capped = n_known = 0;
}

const struct shim_part shim_green_part = { .child = child };

/* ---- queries for a stream's context ---- */

static bool is_own(CUgreenCtx green)
{
	bool found = false;

	for (unsigned i = 0; i < DEVICES && green; i++) {
		found = found || load_relaxed(&own[i].green) == green;
	}
	return found;
}

/* Stores the primary context of a capped stream. Returns false for any other stream. */
static bool primary_of_capped(CUstream stream, CUcontext *ret)
{
	CUgreenCtx green = NULL;
	CUcontext ctx;

	if (likely(!load_relaxed(&n_capped)) ||
	    shim_real.cuStreamGetGreenCtx(stream, &green) != CUDA_SUCCESS || !is_own(green) ||
	    shim_real.cuStreamGetCtx_v2(stream, &ctx, &green) != CUDA_SUCCESS) {
		return false;
	}
	*ret = ctx;
	return true;
}

static CUresult get_context(CUstream stream, CUcontext *ret,
			    CUresult (*real)(CUstream, CUcontext *))
{
	CUgreenCtx green;
	CUcontext ctx;
	CUresult r;

	if (ret && primary_of_capped(stream, &ctx)) {
		*ret = ctx;
		return CUDA_SUCCESS;
	}
	r = real(stream, ret);
	if (r == CUDA_SUCCESS && load_acquire(&n_known) &&
	    shim_real.cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && green) {
		note_context(green, *ret);
	}
	return r;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret)
{
	return get_context(stream, ret, shim_real.cuStreamGetCtx);
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *ret)
{
	return get_context(stream, ret, shim_real.cuStreamGetCtx_ptsz);
}

static CUresult hidden(CUresult r, CUgreenCtx *green)
{
	if (r == CUDA_SUCCESS && green && is_own(*green)) {
		*green = NULL;
	}
	return r;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ret, CUgreenCtx *green)
{
	return hidden(shim_real.cuStreamGetCtx_v2(stream, ret, green), green);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ret, CUgreenCtx *green)
{
	return hidden(shim_real.cuStreamGetCtx_v2_ptsz(stream, ret, green), green);
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green)
{
	return hidden(shim_real.cuStreamGetGreenCtx(stream, green), green);
}
