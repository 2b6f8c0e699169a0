/* How each kind of call is copied: its arguments, and the memory they point to as far as the driver
 * would have read it before returning. A call whose copy would not mean the same is refused, and
 * the caller waits instead. Must not block. */
#include "shim/defer/call_copy.h"

#include <stdlib.h>
#include <string.h>

#include "shim/capture_state.h"
#include "shim/defer/kernel_copy.h"
#include "shim/object/driver_device.h"
#include "shim/object/event_uses.h"
#include "shim/object/graph_events.h"
#include "shim/object/interprocess.h"
#include "shim/object/queue_drain.h"

#define MAX_COPIED_BYTES 65536u
#define MAX_OPERATIONS 256u
#define MAX_COPIES 4096u

static void release_event(struct shim_deferred_call *k)
{
	if (k->event.event) {
		shim_event_submitted(&k->event);
	}
}

/* Runs the call, at block level if the scheduler decided so. The parameters are packed from the
 * copy's arguments. The driver may refuse the clone although it would accept f. */
static CUresult run_at_level(struct shim_deferred_call *k)
{
	if (k->launch.clone && k->call.launch.level == GBPF_LEVEL_BLOCK) {
		CUresult r;

		k->launch.record = k->call.launch;
		r = shim_block_launch(k->q, &k->launch);

		if (r != CUDA_ERROR_NOT_SUPPORTED) {
			return r;
		}
	}
	if (k->what->copy_rule == SHIM_COPY_RECORD && k->call.joins_run) {
		return shim_event_record(&k->event);
	}
	return shim_launch_issue(&k->launch, k->what, k->a);
}

static int run_deferred(struct sched_call *sc)
{
	struct shim_deferred_call *k = (struct shim_deferred_call *)sc;
	CUcontext popped;
	bool pushed = shim_real.cuCtxPushCurrent_v2(k->ctx) == CUDA_SUCCESS,
	     capturing = shim_capture_any();
	CUstreamCaptureMode mode =
		capturing ? shim_capture_exempt() : CU_STREAM_CAPTURE_MODE_RELAXED;
	struct shim_thread *t = shim_thread_self();
	CUresult r;

	if (t) {
		t->deferred++;
	}
	r = run_at_level(k);
	if (t) {
		t->deferred--;
	}
	shim_queue_count_brackets(k->q, k->launch.call.brackets);
	if (capturing) {
		shim_capture_restore(mode);
	}
	if (pushed) {
		shim_real.cuCtxPopCurrent_v2(&popped);
	}
	shim_error_note(r);
	if (r != CUDA_SUCCESS) {
		store_relaxed(&k->q->reported_error, (uint32_t)r);
	}
	release_event(k);
	return (int)r;
}

static void free_deferred(struct sched_call *sc)
{
	struct shim_deferred_call *k = (struct shim_deferred_call *)sc;

	release_event(k);
	free(k);
	sub_acqrel(&shim.deferred, 1);
}

struct shim_deferred_call *shim_deferred_new(const struct shim_call *c, const uint64_t *a,
					     size_t blob_bytes)
{
	struct shim_deferred_call *k = calloc(1, sizeof(*k) + blob_bytes);

	if (k) {
		k->what = c;
		memcpy(k->a, a, c->nargs * sizeof(a[0]));
	}
	return k;
}

/* Returns true if the driver knows the memory (pinned, device or managed), so that it is accessed
 * in stream order. Pageable memory is read before the driver's call returns, and written by then.
 */
static bool is_known(uint64_t address)
{
	unsigned type = 0;

	return shim_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
		       CUDA_SUCCESS &&
	       type;
}

/* Asks the driver itself, for which memory that has left the device is the host's. */
static bool has_attribute(CUpointer_attribute what, uint64_t address, int wanted)
{
	int is = -1;

	return shim_driver.cuPointerGetAttribute(&is, what, address) == CUDA_SUCCESS &&
	       is == wanted;
}

/* Returns true if the address is memory of the device that the host cannot access and that no
 * program has made synchronous, so that calls with it do not wait for the work. */
static bool is_of_device(uint64_t address, CUdevice device)
{
	return has_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, CU_MEMORYTYPE_DEVICE) &&
	       has_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, device) &&
	       has_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0) &&
	       has_attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address, 0);
}

static struct shim_deferred_call *copy_device(const struct shim_call *c, const uint64_t *a)
{
	CUdevice device = 0;
	unsigned flags = 0;

	return shim_real.cuCtxGetFlags(&flags) == CUDA_SUCCESS && !(flags & CU_CTX_SYNC_MEMOPS) &&
			       shim_real.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
			       is_of_device(a[c->copy_arg[0]], device) &&
			       is_of_device(a[c->copy_arg[1]], device)
		       ? shim_deferred_new(c, a, 0)
		       : NULL;
}

static struct shim_deferred_call *copy_source(const struct shim_call *c, const uint64_t *a,
					      unsigned arg, uint64_t bytes)
{
	struct shim_deferred_call *k;

	if (is_known(a[arg])) {
		return shim_deferred_new(c, a, 0);
	}
	if (!a[arg] || bytes > MAX_COPIED_BYTES) {
		return NULL;
	}
	k = shim_deferred_new(c, a, bytes);
	if (k) {
		memcpy(k->blob, (const void *)(uintptr_t)a[arg], bytes);
		k->a[arg] = (uintptr_t)k->blob;
	}
	return k;
}

static struct shim_deferred_call *copy_struct(const struct shim_call *c, const uint64_t *a,
					      size_t bytes)
{
	struct shim_deferred_call *k = shim_deferred_new(c, a, bytes);

	if (k) {
		memcpy(k->blob, (const void *)(uintptr_t)a[0], bytes);
		k->a[0] = (uintptr_t)k->blob;
	}
	return k;
}

static bool is_end_known(CUmemorytype type, const void *host, CUdeviceptr device)
{
	if (type == CU_MEMORYTYPE_HOST) {
		return is_known((uintptr_t)host);
	}
	return type == CU_MEMORYTYPE_UNIFIED ? is_known(device) : true;
}

static struct shim_deferred_call *copy_2d(const struct shim_call *c, const uint64_t *a)
{
	const CUDA_MEMCPY2D *m = (const CUDA_MEMCPY2D *)(uintptr_t)a[0];
	bool known = m && is_end_known(m->srcMemoryType, m->srcHost, m->srcDevice) &&
		     is_end_known(m->dstMemoryType, m->dstHost, m->dstDevice);

	return known ? copy_struct(c, a, sizeof(*m)) : NULL;
}

static struct shim_deferred_call *copy_3d(const struct shim_call *c, const uint64_t *a)
{
	const CUDA_MEMCPY3D *m = (const CUDA_MEMCPY3D *)(uintptr_t)a[0];
	bool known = m && is_end_known(m->srcMemoryType, m->srcHost, m->srcDevice) &&
		     is_end_known(m->dstMemoryType, m->dstHost, m->dstDevice);

	return known ? copy_struct(c, a, sizeof(*m)) : NULL;
}

static struct shim_deferred_call *copy_array(const struct shim_call *c, const uint64_t *a)
{
	unsigned arg = c->copy_arg[0];
	uint64_t n = (uint32_t)a[c->copy_arg[1]];
	size_t bytes = n * sizeof(CUstreamBatchMemOpParams);
	struct shim_deferred_call *k =
		a[arg] && n <= MAX_OPERATIONS ? shim_deferred_new(c, a, bytes) : NULL;

	if (k) {
		memcpy(k->blob, (const void *)(uintptr_t)a[arg], bytes);
		k->a[arg] = (uintptr_t)k->blob;
	}
	return k;
}

/* Arguments of cuMemcpyBatchAsync: destinations, sources, sizes, count, attributes, the index of
 * the first copy of each attribute, their count, and (before CUDA 13) a place for the index of a
 * refused copy. Sources that the driver reads before it returns cannot be deferred. */
static struct shim_deferred_call *copy_batch(const struct shim_call *c, const uint64_t *a)
{
	const CUmemcpyAttributes *attributes = (const CUmemcpyAttributes *)(uintptr_t)a[4];
	uint64_t n = a[3], n_attributes = a[6], bytes = n * sizeof(uint64_t);
	const uint64_t from[] = { a[0], a[1], a[2], a[5], a[4] };
	const uint64_t size[] = { bytes, bytes, bytes, n_attributes * sizeof(size_t),
				  n_attributes * sizeof(*attributes) };
	const unsigned arg[] = { 0, 1, 2, 5, 4 };
	unsigned char *to;
	struct shim_deferred_call *k;

	/* the driver refuses the legacy default stream */
	if (a[c->stream] <= (uintptr_t)CU_STREAM_LEGACY || !n || n > MAX_COPIES || !n_attributes ||
	    n_attributes > n || !a[0] || !a[1] || !a[2] || !attributes || !a[5]) {
		return NULL;
	}
	for (uint64_t i = 0; i < n_attributes; i++) {
		if (attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
		    attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_ANY) {
			return NULL;
		}
	}
	k = shim_deferred_new(c, a, sizeof(size_t) + 3 * bytes + size[3] + size[4]);
	if (!k) {
		return NULL;
	}
	if (c->nargs > 8 && a[7]) {
		*(size_t *)(uintptr_t)a[7] = SIZE_MAX;
		k->a[7] = (uintptr_t)k->blob;
	}
	to = k->blob + sizeof(size_t);
	for (unsigned i = 0; i < ARRAY_SIZE(from); i++) {
		memcpy(to, (const void *)(uintptr_t)from[i], size[i]);
		k->a[arg[i]] = (uintptr_t)to;
		to += size[i];
	}
	return k;
}

static bool is_ready(struct sched_call *sc)
{
	struct shim_deferred_call *k = (struct shim_deferred_call *)sc;

	return !shim_queue_sibling_before(k->q, sc->number) &&
	       (!k->event.event || shim_event_ready(&k->event));
}

static uint64_t on_placed(struct sched_call *sc)
{
	return shim_event_enqueued(&((struct shim_deferred_call *)sc)->event);
}

static struct shim_deferred_call *copy_with_use(const struct shim_call *c, const uint64_t *a,
						struct shim_queue *q, CUevent event,
						enum shim_event_use use)
{
	struct shim_deferred_call *k = shim_deferred_new(c, a, 0);

	if (k && !shim_event_defer(&k->event, event, q, use)) {
		free(k);
		return NULL;
	}
	if (k) {
		k->call.placed = on_placed;
	}
	return k;
}

static struct shim_deferred_call *copy_event(const struct shim_call *c, const uint64_t *a,
					     struct shim_queue *q, enum shim_event_use use)
{
	CUevent event = (CUevent)(uintptr_t)a[c->copy_arg[0]];

	return event && !shim_interprocess_event(event) ? copy_with_use(c, a, q, event, use) : NULL;
}

static bool launches_graph(const struct shim_call *c)
{
	return c->index == CUABI_IDX_cuGraphLaunch || c->index == CUABI_IDX_cuGraphLaunch_ptsz;
}

static struct shim_deferred_call *copy_of(struct shim_queue *q, const struct shim_call *c,
					  const uint64_t *a)
{
	switch ((enum shim_copy_rule)c->copy_rule) {
	case SHIM_COPY_WAIT:
	case SHIM_COPY_EARLY:
		return NULL;
	case SHIM_COPY_PLAIN:
		if (!launches_graph(c)) {
			return shim_deferred_new(c, a, 0);
		}
		/* Launches of one graph are ordered whatever their streams, like records of one
		 * event. */
		return !a[0] || shim_graph_has_events((CUgraphExec)(uintptr_t)a[0])
			       ? NULL
			       : copy_with_use(c, a, q, (CUevent)(uintptr_t)a[0],
					       SHIM_EVENT_RECORD);
	case SHIM_COPY_AWAIT:
		return copy_event(c, a, q, SHIM_EVENT_AWAIT);
	case SHIM_COPY_SRC:
		return copy_source(c, a, c->copy_arg[0], a[c->copy_arg[1]]);
	case SHIM_COPY_DST:
		return is_known(a[c->copy_arg[0]]) ? shim_deferred_new(c, a, 0) : NULL;
	case SHIM_COPY_UVA:
		return is_known(a[0]) ? copy_source(c, a, 1, a[2]) : NULL;
	case SHIM_COPY_DEVICE:
		return copy_device(c, a);
	case SHIM_COPY_COPY2D:
		return copy_2d(c, a);
	case SHIM_COPY_COPY3D:
		return copy_3d(c, a);
	case SHIM_COPY_ARRAY:
		return copy_array(c, a);
	case SHIM_COPY_BATCH:
		return copy_batch(c, a);
	case SHIM_COPY_RECORD:
		return copy_event(c, a, q, SHIM_EVENT_RECORD);
	case SHIM_COPY_KERNEL:
		return shim_copy_kernel(c, a);
	case SHIM_COPY_KERNELEX:
		return shim_copy_kernel_ex(c, a);
	}
	return NULL;
}

/* The same launch, with the copy's arguments. */
static void describe_copy(struct shim_deferred_call *k, const struct shim_launch *l)
{
	struct shim_kernel_call *call = &k->launch.call;

	if (k->what->copy_rule == SHIM_COPY_KERNELEX) {
		shim_describe_call_ex(call, k->what, k->a);
	} else if (k->what->copy_rule == SHIM_COPY_KERNEL) {
		shim_describe_call(call, k->what, k->a);
	}
	call->choice = l->call.choice;
}

bool shim_call_defer(struct shim_queue *q, const struct shim_call *c, const uint64_t *a,
		     const struct shim_launch *l)
{
	struct shim_deferred_call *k;

	/* Another thread cannot submit to this thread's per-thread default stream, or to the
	 * default stream of a green context that is current here: no handle names that stream
	 * there. */
	if (q->owner || (c->blocking && c->copy_rule != SHIM_COPY_DEVICE)) {
		return false;
	}
	if (l->record.flags & GBPF_F_COOPERATIVE &&
	    !shim_cooperative_fits(
		    q, (CUfunction)(uintptr_t)a[c->copy_rule == SHIM_COPY_KERNELEX ? 1 : 0],
		    &l->record)) {
		return false; /* the driver may refuse it */
	}
	k = copy_of(q, c, a);
	if (!k) {
		return false;
	}
	k->ctx = q->dev.ctx;
	k->q = q;
	if (c->copy_rule == SHIM_COPY_RECORD && shim_device_gpu() && !(c->nargs > 2 && a[2])) {
		k->call.joins_run = true;
	}
	if (l->record.block_ok) {
		k->launch = *l;
		k->call.joins_run = true;
	}
	describe_copy(k, l);
	k->call.ready = k->call.placed || q->blocking ? is_ready : NULL;
	k->call.run = run_deferred;
	k->call.free = free_deferred;
	k->call.launch = l->record;
	k->call.is_launch = c->kind != SHIM_ORDER;
	add_acqrel(&shim.deferred, 1);
	sched_defer(q->sched, &k->call);
	return true;
}
