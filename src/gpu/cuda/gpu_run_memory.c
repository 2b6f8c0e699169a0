/* Memory for the words of runs. A context has slabs of device memory (ticket counters, at
 * PTX_BLOCK_READY behind them the words that say how far launches are, at PTX_GATE_WORD the gates)
 * and of pinned host memory
 * (how far the run is); each run has one line of both. A returned line is reused at its counter's
 * value, so no word is ever reset. */
#include "gpu/cuda/gpu_run_memory_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag.h"
#include "gpu/own_memory.h"

/* Close before the 32-bit wrap, so that every process exercises it. */
#define FIRST_TICKET 0xffffe000u
#define SLAB_BYTES (GPU_RUN_LINE_BYTES * GPU_RUN_LINES)
#define SET_NS 20000000u
#define SET_POLL_NS 20000u
_Static_assert(SLAB_BYTES == PTX_BLOCK_READY && 2 * SLAB_BYTES == PTX_GATE_WORD,
	       "the second and the third part of the device's memory");

struct gpu_runs *gpu_runs_of(struct gpu_device *d)
{
	struct gpu_runs *all = load_acquire(&d->runs);

	if (all) {
		return all;
	}
	lock_take(&d->lock);
	all = d->runs;
	if (!all) {
		all = calloc(1, sizeof(*all));
		if (all) {
			lock_init(&all->lock, LOCK_RUNS);
			store_release(&d->runs, all);
		}
	}
	lock_release(&d->lock);
	return all;
}

static struct gpu_run_context *find(struct gpu_runs *all, CUcontext ctx) REQUIRES(all->lock)
{
	struct gpu_run_context *x;

	for (x = all->contexts; x && x->ctx != ctx; x = x->next) {
	}
	return x;
}

struct gpu_run_context *gpu_run_context_of(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_runs *all = gpu_runs_of(d);
	struct gpu_run_context *x;

	if (!all) {
		return NULL;
	}
	lock_take(&all->lock);
	x = find(all, ctx);
	if (!x) {
		x = find(all, NULL);
		if (!x) {
			x = calloc(1, sizeof(*x));
			if (x) {
				x->next = all->contexts;
				all->contexts = x;
			}
		}
		if (x) {
			x->ctx = ctx;
		}
	}
	lock_release(&all->lock);
	return x;
}

/* Allocates the memory, and makes the device set its words in the stream's order. */
static CUresult allocate_slab(struct gpu_device *d, CUstream stream, struct gpu_run_slab *s)
{
	const struct cuabi_table *real = d->real;
	void *host = NULL;
	CUresult e;

	e = real->cuMemHostAlloc(&host, SLAB_BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
	e = e ? e : real->cuMemHostGetDevicePointer_v2(&s->done, host, 0);
	e = e ? e : gpu_own_memory_alloc(real, 3 * SLAB_BYTES, &s->counters, &s->counted);
	e = e ? e : real->cuMemsetD32Async(s->counters, FIRST_TICKET, 2 * SLAB_BYTES / 4, stream);
	e = e ? e
	      : real->cuMemsetD32Async(s->counters + PTX_GATE_WORD, GPU_RUN_GATE_FIRST,
				       SLAB_BYTES / 4, stream);
	if (e) {
		if (s->counters) {
			gpu_own_memory_free(real, s->counters, 3 * SLAB_BYTES, s->counted);
		}
		if (host) {
			(void)real->cuMemFreeHost(host);
		}
		return e;
	}
	memset(host, 0, SLAB_BYTES);
	for (unsigned i = 0; i < GPU_RUN_LINES; i++) {
		s->last[i].ticket = FIRST_TICKET;
		s->last[i].base = gpu_run_gate_base(GPU_RUN_GATE_FIRST);
	}
	s->host = host;
	return CUDA_SUCCESS;
}

static CUresult begin_slab(struct gpu_device *d, struct gpu_run_context *x,
			   struct gpu_run_slab **ret)
{
	struct gpu_run_slab *s = calloc(1, sizeof(*s));
	CUresult e;

	if (!s) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = x->io ? CUDA_SUCCESS : gpu_private_stream(d, &x->io);
	e = e ? e : allocate_slab(d, x->io, s);
	if (e) {
		free(s);
		return e;
	}
	gpu_run_bypass_prepare(d, x, s, FIRST_TICKET);
	*ret = s;
	return CUDA_SUCCESS;
}

/* Returns CUDA_SUCCESS when the device has set the words, CUDA_ERROR_NOT_READY before. */
static CUresult slab_state(struct gpu_device *d, struct gpu_run_context *x)
{
	CUstream io = load_relaxed(&x->io);
	CUresult e, ran;

	if (!io) {
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	e = d->real->cuStreamQuery(io);
	if (e || !x->bypass.take_pending) {
		return e;
	}
	ran = d->real->cuStreamQuery(x->bypass.stream);
	if (ran == CUDA_ERROR_NOT_READY) {
		return ran;
	}
	x->bypass.take = ran ? NULL : x->bypass.take_pending;
	x->bypass.take_pending = NULL;
	return CUDA_SUCCESS;
}

/* Allocates a slab, or continues *s, and waits at most SET_NS for the device. The caller has set
 * x->making and holds no lock: a kernel of the program that never ends may delay this forever. */
static CUresult finish_slab(struct gpu_device *d, struct gpu_run_context *x,
			    struct gpu_run_slab **s)
{
	uint64_t until = clock_now_ns() + SET_NS;
	bool first = !*s;
	CUresult e = first ? begin_slab(d, x, s) : CUDA_SUCCESS;

	if (e) {
		return e;
	}
	while ((e = slab_state(d, x)) == CUDA_ERROR_NOT_READY && first && clock_now_ns() < until) {
		clock_sleep_ns(SET_POLL_NS);
	}
	return e;
}

static void forget_streams(struct gpu_run_context *x)
{
	store_relaxed(&x->io, (CUstream)NULL);
	x->bypass.stream = NULL;
	x->bypass.take = x->bypass.take_pending = NULL;
}

/* Finds a slab with a free line, or allocates one. Releases the lock during the
 * allocation. CUDA_ERROR_NOT_READY: a slab will be available later. */
static CUresult slab_with_room(struct gpu_device *d, struct gpu_run_context *x,
			       struct gpu_run_slab **ret) REQUIRES(d->runs->lock)
{
	uint32_t ended = x->ended;
	struct gpu_run_slab *s;
	CUresult e;

	for (s = x->slabs; s && !s->n_free && s->n == GPU_RUN_LINES; s = s->next) {
	}
	if (s) {
		*ret = s;
		return CUDA_SUCCESS;
	}
	if (x->making) {
		return CUDA_ERROR_NOT_READY;
	}
	x->making = true;
	s = x->unset;
	x->unset = NULL;
	lock_release(&d->runs->lock);
	e = finish_slab(d, x, &s);
	lock_take(&d->runs->lock);
	x->making = false;
	if (x->ended != ended) {
		forget_streams(x); /* those that were made after the context was forgotten */
		free(s);
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	if (e) {
		x->unset = s;
		return e;
	}
	s->next = x->slabs;
	x->slabs = s;
	*ret = s;
	return CUDA_SUCCESS;
}

void gpu_run_prepare(struct gpu_device *d, const struct gpu_queue *q)
{
	struct gpu_run_context *x = gpu_run_context_of(d, q->ctx);
	struct gpu_scope scope;
	struct gpu_run_slab *s;

	if (!x || gpu_scope_enter(d, q->ctx, &scope)) {
		return;
	}
	lock_take(&d->runs->lock);
	(void)slab_with_room(d, x, &s); /* errors are reported by launches */
	lock_release(&d->runs->lock);
	gpu_scope_leave(d, &scope);
}

CUresult gpu_run_line_take(struct gpu_run *run)
{
	struct gpu_device *d = run->device;
	struct gpu_run_slab *s = NULL;
	CUresult e;

	lock_take(&d->runs->lock);
	e = slab_with_room(d, run->home, &s);
	if (!e) {
		run->line.slab = s;
		run->line.index = s->n_free ? s->free[--s->n_free] : s->n++;
		run->line.counter = s->counters + (uint64_t)run->line.index * GPU_RUN_LINE_BYTES;
		run->line.words_device = s->done + (uint64_t)run->line.index * GPU_RUN_LINE_BYTES;
		run->line.words =
			(volatile uint32_t *)(void *)(s->host +
						      (size_t)run->line.index * GPU_RUN_LINE_BYTES);
		run->list.ticket = s->last[run->line.index].ticket;
		run->pieces.number = s->last[run->line.index].number;
		run->gate.base = s->last[run->line.index].base;
	}
	lock_release(&d->runs->lock);
	return e;
}

void gpu_run_line_return(struct gpu_run *run)
{
	struct gpu_runs *all = run->device->runs;

	lock_take(&all->lock);
	run->line.slab->last[run->line.index].ticket = run->list.ticket;
	run->line.slab->last[run->line.index].number = run->pieces.number;
	run->line.slab->last[run->line.index].base = run->gate.base;
	/* Blocks of this run's last launch that have not decided yet may find the next run's values
	 * in the gate, which must be higher than theirs. A run that begins here has 2^30
	 * interruptions before its values begin again. */
	if (run->gate.base >> 32 <= GPU_RUN_GATE_MAX / 2) {
		run->line.slab->free[run->line.slab->n_free++] = (uint16_t)run->line.index;
	}
	lock_release(&all->lock);
}

static void forget_context(struct gpu_run_context *x)
{
	struct gpu_run_slab *s;

	while ((s = x->slabs)) { /* its memory ends with the context */
		x->slabs = s->next;
		gpu_own_memory_sub(s->counted, 3 * SLAB_BYTES);
		free(s);
	}
	if (x->unset) {
		gpu_own_memory_sub(x->unset->counted, 3 * SLAB_BYTES);
	}
	free(x->unset);
	x->unset = NULL;
	store_relaxed(&x->leases, UINT64_C(0));
	store_relaxed(&x->groups, 0u);
	store_relaxed(&x->out, 0u);
	forget_streams(x);
	x->ctx = NULL;
	x->ended++;
}

void gpu_runs_forget(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_runs *all = load_acquire(&d->runs);
	struct gpu_run_context *x;

	if (!all || !ctx) {
		return;
	}
	lock_take(&all->lock);
	x = find(all, ctx);
	if (x) {
		forget_context(x);
	}
	lock_release(&all->lock);
}

void gpu_runs_destroy(struct gpu_device *d)
{
	struct gpu_runs *all = d->runs;
	struct gpu_run_context *x;

	if (!all) {
		return;
	}
	while ((x = all->contexts)) {
		all->contexts = x->next;
		forget_context(x);
		free(x);
	}
	lock_finish(&all->lock);
	free(all);
	d->runs = NULL;
}

void gpu_run_set_flag(struct gpu_device *d, CUcontext ctx, const struct gpu_flag *f, uint32_t slots)
{
	struct gpu_run_context *x = gpu_run_context_of(d, ctx);

	if (!x) {
		return;
	}
	if (f) {
		store_relaxed(&x->leases, gpu_flag_address(f));
	}
	store_release(&x->groups, f ? (MIN(slots, GPU_FLAG_SLOTS) + 3) / 4 : 0u);
}
