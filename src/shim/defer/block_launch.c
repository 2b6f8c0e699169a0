/* Launching preemptible clones and kernels with entry stubs: packing of their arguments, and the
 * flag pages. */
#include "shim/defer/block_launch.h"

#include <string.h>

#include "base/clock.h"
#include "gpu/gpu_run.h"
#include "base/lock.h"
#include "gpu/flag.h"
#include "policy/ctx.h"
#include "shim/capture_state.h"
#include "shim/object/driver_device.h"
#include "shim/object/launch_args.h"
#include "shim/object/queue_drain.h"
#include "shim/session/session.h"

#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 65535u
#define MAX_BLOCK 1024u /* threads, in x, in y and in all */
#define MAX_BLOCK_Z 64u
#define MAX_BLOCKS (1u << 29) /* tickets are compared by signed difference */
#define MAX_GATE_X (1u << 24)
#define MAX_PARAM_BYTES 4096u /* of f; packed on the stack */
#define EXIT_NS 100000000u
#define EXIT_STEP_NS 50000u

uint64_t (*shim_block_number)(void);

/* ---- parameters ---- */

/* Returns the number of parameters that the program passes. */
static uint32_t passed(const struct shim_clone *t)
{
	return shim_clone_params(t) - t->numbered;
}

/* Returns the offset behind these in the buffer. */
static uint32_t passed_end(const struct shim_clone *t)
{
	return t->numbered ? shim_clone_param(t, passed(t)).offset : shim_clone_arg_offset(t);
}

/* Returns the parameter buffer of extra, if it has the size of f's parameters, possibly rounded up.
 * NULL in `at`: there is none, or the driver should judge it. */
static struct shim_param_buffer buffer_of(const struct shim_clone *t, void **extra)
{
	struct cubin_param last = shim_clone_param(t, passed(t) - 1);
	struct shim_param_buffer b;

	if (!shim_param_buffer(extra, &b) || b.bytes < (size_t)last.offset + last.bytes ||
	    b.bytes > passed_end(t)) {
		b.at = NULL;
	}
	return b;
}

static bool can_pack(const struct shim_clone *t, const struct shim_launch *l)
{
	if (shim_clone_arg_offset(t) > MAX_PARAM_BYTES || (l->call.params && l->call.extra)) {
		return false;
	}
	return !passed(t) || l->call.params || (l->call.extra && buffer_of(t, l->call.extra).at);
}

/* Packs the parameters for the clone: one buffer with f's layout. Returns false if it cannot. */
static bool pack(const struct shim_launch *l, uint8_t *to)
{
	uint32_t n = passed(l->clone);

	if (!can_pack(l->clone, l)) {
		return false;
	}
	memset(to, 0, shim_clone_arg_offset(l->clone));
	for (uint32_t i = 0; l->call.params && i < n; i++) {
		struct cubin_param p = shim_clone_param(l->clone, i);

		if (!l->call.params[i]) {
			return false;
		}
		memcpy(to + p.offset, l->call.params[i], p.bytes);
	}
	if (!l->call.params && n) {
		struct shim_param_buffer b = buffer_of(l->clone, l->call.extra);

		if (!b.at) {
			return false;
		}
		memcpy(to, b.at, b.bytes);
	}
	if (l->clone->numbered) {
		uint64_t number = shim_block_number();

		memcpy(to + passed_end(l->clone), &number, sizeof(number));
	}
	return true;
}

/* ---- whether a launch can run at block level ---- */

void shim_block_note_reason(const struct shim_launch *l, enum proto_block_why why)
{
	struct shim_clone *t = l->own_clone;

	if (l->record.kernel && load_relaxed(&t->reported_why) != why) {
		store_relaxed(&t->reported_why, (uint8_t)why);
		sched_kernel_set_block(l->record.kernel, (uint8_t)why);
	}
}

void shim_block_refuse(struct shim_launch *l, enum proto_block_why why)
{
	l->record.block_ok = false;
	shim_block_note_reason(l, why);
}

static bool in_range(uint32_t n, uint32_t max)
{
	return n && n <= max;
}

bool shim_shape_fits(const uint32_t grid[3], const uint32_t block[3])
{
	return in_range(grid[0], MAX_GRID_X) && in_range(grid[1], MAX_GRID_YZ) &&
	       in_range(grid[2], MAX_GRID_YZ) && in_range(block[0], MAX_BLOCK) &&
	       in_range(block[1], MAX_BLOCK) && in_range(block[2], MAX_BLOCK_Z) &&
	       block[0] * block[1] * block[2] <= MAX_BLOCK;
}

static uint32_t resident(struct shim_clone *t, struct shim_launch *l)
{
	const CUlaunchConfig config = { .gridDimX = l->call.grid[0],
					.gridDimY = l->call.grid[1],
					.gridDimZ = l->call.grid[2],
					.blockDimX = l->call.block[0],
					.blockDimY = l->call.block[1],
					.blockDimZ = l->call.block[2],
					.sharedMemBytes = l->smem,
					.attrs = l->attrs,
					.numAttrs = l->n_attrs };

	return t->code && l->cluster > 1 ? shim_clone_cluster_resident(t, &config, l->cluster)
					 : shim_clone_resident(t, l->record.threads, l->smem);
}

/* The driver refuses launches of a kernel with other dimensions than it was compiled for. */
static bool has_required_shape(const struct shim_clone *t, const uint32_t block[3])
{
	const uint32_t *required = t->code ? t->code->required_block : block;

	return !required[0] || memcmp(required, block, sizeof(t->code->required_block)) == 0;
}

void shim_block_check(struct shim_launch *l, struct shim_clone *t)
{
	struct sched_launch *r = &l->record;
	uint8_t excluded;

	l->clone = NULL;
	excluded = load_relaxed(&t->excluded);
	if (unlikely(excluded)) { /* a former load's code may have been freed */
		if (!(excluded & SHIM_CLONE_FORMER)) { /* the statistics are the next clone's */
			shim_block_note_reason(l, PROTO_BLOCK_HUNG);
		}
		return;
	}
	if (!shim_shape_fits(l->call.grid, l->call.block) || r->blocks > MAX_BLOCKS ||
	    !can_pack(t, l)) {
		if (shim_clone_arg_offset(t) > MAX_PARAM_BYTES) {
			shim_block_note_reason(l, PROTO_BLOCK_PARAMETERS);
		}
		return;
	}
	r->resident = resident(t, l);
	if (!r->resident || !has_required_shape(t, l->call.block)) {
		shim_block_note_reason(l, PROTO_BLOCK_OCCUPANCY);
		return;
	}
	shim_block_note_reason(l, PROTO_BLOCK_OK);
	l->clone = t;
	r->block_ok = true;
	r->stop = t->code ? GBPF_STOP_MACHINE_CODE : GBPF_STOP_CLONE;
}

/* ---- launching ---- */

/* Returns ptx_gate_arg.wave: the blocks that ask for leases before they enter the gate. */
static uint32_t wave_of(const struct sched_launch *l)
{
	switch (l->gate_mode) {
	case GBPF_GATE_OFF:
		return 0;
	case GBPF_GATE_TOGETHER:
		return l->resident ? l->resident : UINT32_MAX;
	default:
		return UINT32_MAX;
	}
}

void (*shim_block_taken)(const struct shim_launch *l, uint64_t now_ns);

CUresult shim_block_launch(struct shim_queue *q, const struct shim_launch *l)
{
	uint8_t params[MAX_PARAM_BYTES] ALIGNED(16);
	struct gpu_block_launch bl = { .clone = l->clone->handle,
				       .id = l->clone->id,
				       .resident = l->record.resident,
				       .smem = l->smem,
				       .piece_blocks = l->record.piece_blocks,
				       .block_ns = l->record.block_ns,
				       .params = params,
				       .params_bytes = shim_clone_arg_offset(l->clone) };
	uint64_t now;
	CUresult r;

	if (l->clone->code) {
		bl.gate = true;
		bl.wave = wave_of(&l->record);
		bl.n_attrs = l->n_attrs;
		bl.attrs = l->attrs;
	}
	if (!pack(l, params)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (unlikely(!load_relaxed(&q->block.prepared))) { /* a deferred launch comes here first;
							      takes up to 20 ms */
		shim_block_prepare_queue(q);
	}
	memcpy(bl.grid, l->call.grid, sizeof(bl.grid));
	memcpy(bl.block, l->call.block, sizeof(bl.block));
	now = unlikely(l->form != NULL) ? clock_now_ns() : 0;
	r = gpu_run_launch(shim_device_gpu(), &q->dev, &bl);
	/* A deferred launch does not hold the form. But the form's struct and tools stay until what
	 * was deferred with its clone is drained (probe_forms.c). */
	if (r == CUDA_SUCCESS && unlikely(l->form != NULL)) {
		shim_block_taken(l, now);
	}
	if (r == CUDA_SUCCESS) {
		shim_block_note_unfinished(q);
	}
	return r;
}

/* ---- process exit ---- */

/* The agent completes the runs: the scheduler is off by now, so nothing is held any more. */
void shim_block_exit(void)
{
	uint64_t until = clock_now_ns() + EXIT_NS;

	while (shim_pending() && clock_now_ns() < until) {
		clock_sleep_ns(EXIT_STEP_NS);
	}
}

/* ---- flag pages: one for each device, in the first context whose runs need it ---- */

#define MAX_CONTEXTS 64u

static struct lock pages_mutex = LOCK_INITIALIZER(PAGES);
static struct page {
	CUcontext ctx; /* NULL: free */
	uint32_t gpu;
	/* Owned. NULL: another context of the device has it, or none can be created. */
	struct gpu_flag *flag;
} pages[MAX_CONTEXTS] GUARDED_BY(pages_mutex);

/* Called by the agent thread when the number of lease slots changes. */
static void slots_changed(uint32_t slots)
{
	lock_take(&pages_mutex);
	for (unsigned i = 0; i < MAX_CONTEXTS; i++) {
		if (pages[i].ctx && pages[i].flag) {
			gpu_run_set_flag(shim_device_gpu(), pages[i].ctx, pages[i].flag, slots);
		}
	}
	lock_release(&pages_mutex);
}

/* NULL: no entry of that context. */
static struct page *page_of(CUcontext ctx) REQUIRES(pages_mutex)
{
	for (unsigned i = 0; i < MAX_CONTEXTS; i++) {
		if (pages[i].ctx == ctx) {
			return &pages[i];
		}
	}
	return NULL;
}

static bool device_has_page(uint32_t gpu) REQUIRES(pages_mutex)
{
	for (unsigned i = 0; i < MAX_CONTEXTS; i++) {
		if (pages[i].ctx && pages[i].flag && pages[i].gpu == gpu) {
			return true;
		}
	}
	return false;
}

static void make_page(CUcontext ctx, uint32_t gpu) REQUIRES(pages_mutex)
{
	struct page *p = page_of(NULL);

	if (!p) {
		return;
	}
	p->ctx = ctx;
	p->gpu = gpu;
	p->flag = NULL;
	if (device_has_page(gpu) || gpu_flag_create(shim_device_gpu(), ctx, &p->flag) < 0) {
		return;
	}
	gpu_run_set_flag(shim_device_gpu(), ctx, p->flag, shim_session_lease_slots());
	(void)shim_session_offer_flag(gpu, gpu_flag_fd(p->flag));
}

void shim_block_prepare_context(void)
{
	CUstreamCaptureMode before;
	CUcontext ctx = NULL;
	CUdevice d = 0;

	if (!shim_device_gpu() || shim_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx ||
	    shim_real.cuCtxGetDevice(&d) != CUDA_SUCCESS || d < 0) {
		return;
	}
	lock_take(&pages_mutex);
	store_release(&shim_session_slots_changed, slots_changed);
	if (!page_of(ctx)) {
		before = shim_capture_exempt(); /* it allocates while another thread may capture */
		make_page(ctx, (uint32_t)d);
		shim_capture_restore(before);
	}
	lock_release(&pages_mutex);
}

void shim_block_prepare_queue(struct shim_queue *q)
{
	CUcontext popped;

	if (shim_device_gpu() && shim_real.cuCtxPushCurrent_v2(q->dev.ctx) == CUDA_SUCCESS) {
		shim_block_prepare_context();
		gpu_run_prepare(shim_device_gpu(), &q->dev);
		shim_real.cuCtxPopCurrent_v2(&popped);
	}
	/* Set last: otherwise another thread's launch would create it while it holds its queue. */
	store_relaxed(&q->block.prepared, true);
}

/* The context's queues are closed. */
static void context_forget(CUcontext ctx)
{
	struct gpu_flag *f = NULL;
	CUstreamCaptureMode before;
	struct page *p;

	lock_take(&pages_mutex);
	p = page_of(ctx);
	if (p && p->flag) {
		f = p->flag;
		(void)shim_session_offer_flag(p->gpu, -1);
		gpu_run_set_flag(shim_device_gpu(), ctx, NULL, 0);
	}
	if (p) {
		*p = (struct page){ .ctx = NULL };
	}
	lock_release(&pages_mutex);
	if (f) { /* without the mutex: it waits for work on the device, and the agent takes that */
		before = shim_capture_exempt();
		gpu_flag_destroy(f);
		shim_capture_restore(before);
	}
}

const struct shim_part shim_block_part = { .if_attached = true, .context_forget = context_forget };
