/* Movement of memory that can leave the device. A chunk moves only while nothing on the device can
 * use it: no thread is in a call that submits work, and all work of all contexts on the device is
 * done. Otherwise it stays where it is. */
#include <signal.h>

#include "base/clock.h"
#include "policy/read.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define CLOSE_NS UINT64_C(5000000) /* for calls that submit work to return */
#define DRAIN_NS UINT64_C(5000000) /* for the work to be done: a kernel may wait for the host */
#define CONTEXTS_MAX 16u
#define BATCH 64u /* chunks that move in one pause */

struct lock shim_swap_mutex = LOCK_INITIALIZER(MEM_SWAP);
struct mem_swap_map shim_swap_map;

static struct context {
	CUcontext ctx; /* NULL: free */
	CUdevice device;
	uint64_t epoch;	 /* when it was seen */
	CUstream copies; /* NULL: it, or an event, could not be made */
	CUevent event;
	CUevent copied[BATCH]; /* of each chunk of a batch */
	bool ending;	       /* its work cannot be waited for */
} contexts[CONTEXTS_MAX] GUARDED_BY(shim_swap_mutex);
static uint32_t n_unknown GUARDED_BY(shim_swap_mutex); /* contexts that the table has no room for */

/* ---- contexts ---- */

/* Makes the context's stream and events. */
static void prepare(struct context *c) REQUIRES(shim_swap_mutex)
{
	CUcontext before;
	CUresult r = shim_driver.cuCtxPushCurrent_v2(c->ctx);

	if (r != CUDA_SUCCESS) {
		return;
	}
	r = shim_driver.cuEventCreate(&c->event, CU_EVENT_DISABLE_TIMING);
	for (unsigned i = 0; i < BATCH && r == CUDA_SUCCESS; i++) {
		r = shim_driver.cuEventCreate(&c->copied[i], CU_EVENT_DISABLE_TIMING);
	}
	if (r != CUDA_SUCCESS ||
	    shim_driver.cuStreamCreate(&c->copies, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
		c->copies = NULL;
	}
	(void)shim_driver.cuCtxPopCurrent_v2(&before);
}

void shim_swap_see(CUcontext ctx, CUdevice device, bool made)
{
	struct context *c = NULL;

	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			c = &contexts[i];
			break;
		}
		c = !c && !contexts[i].ctx ? &contexts[i] : c;
	}
	if (!c) {
		n_unknown++;
	} else if (!c->ctx || (made && c->ending)) {
		*c = (struct context){ .ctx = ctx, .device = device, .epoch = shim_mem_epoch() };
		prepare(c);
	}
}

void shim_swap_context_seen(CUcontext ctx, CUdevice device)
{
	if (shim_swap_is_on()) {
		lock_take(&shim_swap_mutex);
		shim_swap_see(ctx, device, true);
		lock_release(&shim_swap_mutex);
	}
}

/* Returns true if the device's primary context has not been seen: one that was made by a private
 * call of the driver. */
static bool has_other_primary(CUdevice device) REQUIRES(shim_swap_mutex)
{
	CUcontext ctx = NULL;
	unsigned flags;
	int active = 0;
	bool known = false;

	if (shim_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS) {
		return true;
	}
	if (!active) {
		return false;
	}
	if (shim_driver.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS) {
		return true;
	}
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		known |= contexts[i].ctx == ctx;
	}
	(void)shim_driver.cuDevicePrimaryCtxRelease_v2(device);
	return !known;
}

/* Returns a context on the row's device, or NULL, unless all of them can be drained and copied in.
 */
static struct context *context_of(int row) REQUIRES(shim_swap_mutex)
{
	struct context *found = NULL;

	for (unsigned i = 0; i < CONTEXTS_MAX && !n_unknown; i++) {
		struct context *c = &contexts[i];

		if (c->ctx && shim_mem_row(c->device) == row) {
			if (c->ending || !c->copies) {
				return NULL;
			}
			found = c;
		}
	}
	return found && !has_other_primary(found->device) ? found : NULL;
}

CUresult shim_swap_record(CUcontext ctx, CUevent event)
{
	CUresult r = CUDA_ERROR_NOT_READY;

	if (!shim_capture_trylock()) {
		return r;
	}
	if (!shim_capture_any()) {
		r = shim_work_driver.cuCtxRecordEvent(ctx, event);
	}
	shim_capture_unlock();
	return r;
}

static bool is_done_by(CUevent event, uint64_t until)
{
	CUresult r = shim_work_driver.cuEventQuery(event);

	while (r == CUDA_ERROR_NOT_READY && clock_now_ns() < until) {
		clock_sleep_ns(20000);
		r = shim_work_driver.cuEventQuery(event);
	}
	return r == CUDA_SUCCESS;
}

/* Waits for all work of all contexts on the row's device. */
static bool drain(int row) REQUIRES(shim_swap_mutex)
{
	uint64_t until = clock_now_ns() + clock_patience(DRAIN_NS);
	bool done = true;

	for (unsigned i = 0; i < CONTEXTS_MAX && done; i++) {
		const struct context *c = &contexts[i];

		if (c->ctx && shim_mem_row(c->device) == row) {
			done = shim_swap_record(c->ctx, c->event) == CUDA_SUCCESS &&
			       is_done_by(c->event, until);
		}
	}
	return done;
}

/* A pause in which no work is on the row's device, and none is submitted. Its thread runs no
 * handler of the program, which could submit work and wait for the pause to end. */
struct pause {
	struct context *context; /* to copy in; NULL: work goes on, and nothing is stopped */
	sigset_t signals;
	int cancel;
};

static void resume(struct pause *p)
{
	if (p->context) {
		policy_work_open();
	}
	p->context = NULL;
	(void)pthread_sigmask(SIG_SETMASK, &p->signals, NULL);
	(void)pthread_setcancelstate(p->cancel, NULL);
}

/* Returns whether there is a pause; if so, resume() follows. */
static bool stop(struct pause *p, int row) REQUIRES(shim_swap_mutex)
{
	struct context *c = context_of(row);
	sigset_t all;

	sigfillset(&all);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &p->cancel);
	(void)pthread_sigmask(SIG_SETMASK, &all, &p->signals);
	p->context = c && policy_work_close(clock_patience(CLOSE_NS)) ? c : NULL;
	if (p->context && drain(row)) {
		return true;
	}
	resume(p);
	return false;
}

/* ---- movement ---- */

/* Begins to copy a chunk between its address and the host, behind the copies before it. */
static CUresult begin_copy(const struct context *c, const struct mem_swap_chunk *k, bool out)
	REQUIRES(shim_swap_mutex)
{
	return shim_work_driver.cuMemcpyDtoDAsync_v2(out ? k->host_address : k->address,
						     out ? k->address : k->host_address, k->bytes,
						     c->copies);
}

/* Moves chunks that have memory of the host to it: each is remapped while the next ones are copied.
 * Returns the bytes that the device has no more. */
static uint64_t move_out(int row, struct mem_swap_chunk *const list[], unsigned n)
	REQUIRES(shim_swap_mutex)
{
	struct pause p;
	CUcontext before;
	CUresult r = CUDA_SUCCESS;
	unsigned begun = 0;
	uint64_t freed = 0;

	if (!n || !stop(&p, row)) {
		return 0;
	}
	if (shim_work_driver.cuCtxPushCurrent_v2(p.context->ctx) == CUDA_SUCCESS) {
		while (begun < n && r == CUDA_SUCCESS) {
			r = begin_copy(p.context, list[begun], true);
			if (r == CUDA_SUCCESS) {
				r = shim_work_driver.cuEventRecord(p.context->copied[begun],
								   p.context->copies);
				begun += r == CUDA_SUCCESS;
			}
		}
		for (unsigned i = 0; i < begun; i++) {
			struct mem_swap_chunk *k = list[i];

			if (shim_work_driver.cuEventSynchronize(p.context->copied[i]) ==
				    CUDA_SUCCESS &&
			    shim_swap_chunk_remap(k, k->handle, k->host, p.context->device)) {
				mem_swap_place(&shim_swap_map, k, MEM_SWAP_HOST);
			}
		}
		(void)shim_work_driver.cuStreamSynchronize(p.context->copies);
		(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
	}
	resume(&p);
	for (unsigned i = 0; i < n; i++) {
		if (list[i]->place == MEM_SWAP_HOST) {
			shim_swap_chunk_release(list[i]);
			freed += list[i]->bytes;
		}
	}
	return freed;
}

/* Moves the oldest chunks out, as many as fit into one pause. Returns the bytes that are free of
 * charge by it; 0: no more can be. */
static uint64_t out_once(int row, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	struct context *c = context_of(row);
	struct mem_swap_chunk *list[BATCH], *k = shim_swap_map.at[row][MEM_SWAP_DEVICE].first;
	uint64_t sum = 0, freed;
	unsigned n = 0;

	for (; c && k && n < BATCH && sum < bytes; k = k->next) {
		if (!shim_swap_chunk_back(k, c->device)) {
			break; /* the host has no room */
		}
		sum += k->bytes;
		list[n++] = k;
	}
	freed = move_out(row, list, n);
	for (unsigned i = 0; i < n; i++) {
		if (list[i]->place == MEM_SWAP_DEVICE) {
			shim_swap_chunk_unback(list[i]);
		}
	}
	shim_mem_release(row, freed);
	return freed;
}

void shim_swap_ask_for_host(uint64_t bytes)
{
	if (shim_mem_left(PROTO_ACCOUNT_HOST) < bytes &&
	    shim_mem_charge_now(PROTO_ACCOUNT_HOST, bytes)) {
		shim_mem_release(PROTO_ACCOUNT_HOST, bytes);
	}
}

void shim_swap_out(int row, uint64_t bytes)
{
	CUstreamCaptureMode mode;
	uint64_t left, freed;

	if (!shim_swap_is_on()) {
		return;
	}
	mode = shim_capture_exempt();
	do {
		left = shim_mem_left(row);
		if (left < bytes) {
			shim_swap_ask_for_host(MIN(bytes - left, BATCH * SHIM_SWAP_CHUNK));
		}
		lock_take(&shim_swap_mutex);
		left = shim_mem_left(row);
		freed = left < bytes ? out_once(row, bytes - left) : 0;
		lock_release(&shim_swap_mutex);
	} while (freed);
	shim_capture_restore(mode);
}

/* Gives chunks on the host memory of the device again, as many as the limit has room for and fit
 * into one pause. Returns how many. */
static unsigned take_device_memory(int row, CUdevice device, struct mem_swap_chunk *list[BATCH])
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *k = shim_swap_map.at[row][MEM_SWAP_HOST].last;
	unsigned n = 0;

	for (; k && n < BATCH && shim_mem_try_charge(row, k->bytes); k = k->prev) {
		if (shim_swap_chunk_create(k, device) != CUDA_SUCCESS) {
			shim_mem_release(row, k->bytes);
			break;
		}
		list[n++] = k;
	}
	return n;
}

/* Moves chunks that have memory of the device to it, the first ones of the list: each is copied
 * while the next one is remapped. Returns how many are there. If a copy fails, they are mapped to
 * the host again, which has not changed; one that cannot be stays on the device, whatever it has.
 */
static unsigned move_back(int row, struct mem_swap_chunk *list[], unsigned n)
	REQUIRES(shim_swap_mutex)
{
	unsigned moved = 0;
	struct pause p;
	CUcontext before;
	CUresult r, last;

	if (!n || !stop(&p, row)) {
		return 0;
	}
	r = shim_work_driver.cuCtxPushCurrent_v2(p.context->ctx);
	if (r == CUDA_SUCCESS) {
		while (moved < n && r == CUDA_SUCCESS &&
		       shim_swap_chunk_remap(list[moved], list[moved]->host, list[moved]->handle,
					     p.context->device)) {
			r = begin_copy(p.context, list[moved++], false);
		}
		last = shim_work_driver.cuStreamSynchronize(p.context->copies);
		r = r == CUDA_SUCCESS ? last : r;
		(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
	}
	while (r != CUDA_SUCCESS && moved &&
	       shim_swap_chunk_remap(list[moved - 1], list[moved - 1]->handle,
				     list[moved - 1]->host, p.context->device)) {
		moved--;
	}
	resume(&p);
	return moved;
}

void shim_swap_back(int row)
{
	const struct context *c = context_of(row);
	struct mem_swap_chunk *list[BATCH];
	unsigned n = c ? take_device_memory(row, c->device, list) : 0;
	unsigned moved = move_back(row, list, n);

	for (unsigned i = 0; i < n; i++) {
		if (i < moved) {
			mem_swap_place(&shim_swap_map, list[i], MEM_SWAP_DEVICE);
			shim_swap_chunk_unback(list[i]);
		} else {
			shim_swap_chunk_release(list[i]);
			shim_mem_release(row, list[i]->bytes);
		}
	}
}

/* ---- ends of contexts ---- */

bool shim_swap_is_ending(CUcontext ctx)
{
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			return contexts[i].ending;
		}
	}
	return true;
}

void shim_swap_set_ending(CUcontext ctx, bool ending)
{
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			contexts[i].ending = ending;
		}
	}
}

bool shim_swap_forget(CUcontext ctx, uint64_t epoch)
{
	bool known = false, left = false;

	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			known = true;
			if (contexts[i].epoch <= epoch) { /* its stream and event have ended */
				contexts[i] = (struct context){ 0 };
			}
		}
		left |= contexts[i].ctx != NULL;
	}
	n_unknown -= !known && n_unknown;
	return left;
}
