/* A resumable run as its callers see it: taking launches and events, reporting progress, closing.
 * docs/PREEMPTION.md argues why order is kept and why no deadlock is possible. This file must never
 * make the GPU wait for the host, and never wait itself for something that only the host can bring
 * about. */
#include "gpu/gpu_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

#define WAIT_POLL_NS 20000u /* period of steps while waiting for room or for the end of the run */
#define MAX_PARAMS 65536u
#define GATE_GRID_X_MAX (1u << 24) /* blocks find the first one of their cluster up to there */

static CUresult create(struct gpu_device *d, struct gpu_queue *q, struct gpu_run **ret)
{
	struct gpu_run *run = calloc(1, sizeof(*run));
	CUresult e;

	if (!run) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	run->device = d;
	run->home = gpu_run_context_of(d, q->ctx);
	e = run->home ? gpu_run_line_take(run) : CUDA_ERROR_OUT_OF_MEMORY;
	if (e) {
		free(run);
		return e;
	}
	run->seen.newest = *run->line.words; /* the line's previous run stored this number */
	lock_init(&run->lock, LOCK_RUN);
	store_release(&q->run, run);
	*ret = run;
	return CUDA_SUCCESS;
}

/* ---- progress ---- */

static bool busy(const struct gpu_run *run)
{
	if (load_acquire(&run->seen.failed)) {
		return false;
	}
	/* Loads n_pending before newest. Pairs with submit_piece, which stores newest before it
	 * subtracts from n_pending: a thread that reads n_pending 0 also reads the number of the
	 * last piece. */
	return load_acquire(&run->seen.n_pending) ||
	       load_acquire(run->line.words) != load_acquire(&run->seen.newest);
}

int gpu_run_busy(void *dev, void *dev_queue)
{
	struct gpu_run *run = gpu_run_of(dev_queue);

	(void)dev;
	return run && busy(run);
}

/* Retires what has finished, unless another thread holds the lock: a thread that waits for a launch
 * must see its end without a step by another one. */
static void retire_finished(struct gpu_run *run)
{
	if (load_acquire(&run->seen.finished) != load_acquire(&run->seen.launched) &&
	    lock_try(&run->lock)) {
		gpu_run_retire(run, clock_now_ns());
		lock_release(&run->lock);
	}
}

int gpu_run_look(void *dev, void *dev_queue, struct sched_run_progress *ret)
{
	struct gpu_run *run = gpu_run_of(dev_queue);
	uint32_t state;

	(void)dev;
	memset(ret, 0, sizeof(*ret));
	if (!run) {
		return 0;
	}
	retire_finished(run);
	state = load_relaxed(&run->seen.state);
	ret->done = load_acquire(&run->seen.finished);
	ret->launched = load_acquire(&run->seen.launched);
	if (!busy(run)) { /* busy() was called after launched was loaded, so those have finished */
		ret->done = ret->launched;
	}
	ret->end_ns = load_relaxed(&run->seen.end_ns);
	ret->interruptions = load_relaxed(&run->seen.interruptions);
	ret->futile = load_relaxed(&run->seen.futile);
	ret->stopped = state == GPU_RUN_HALTED || state == GPU_RUN_READING;
	ret->waiting = state == GPU_RUN_HALTED;
	ret->feeding = load_acquire(&run->seen.n_pending) != 0;
	/* Not full: a launch of any size fits. */
	ret->full = ret->launched - ret->done >= GPU_RUN_DEPTH ||
		    (ret->done != ret->launched &&
		     load_relaxed(&run->seen.n_tickets) > GPU_RUN_TICKETS_MAX / 2);
	return (int)(load_relaxed(&run->seen.error) ? xchg_acqrel(&run->seen.error, 0u) : 0);
}

uint64_t gpu_run_took(void *dev, void *dev_queue, uint64_t launch)
{
	struct gpu_run *run = gpu_run_of(dev_queue);
	uint64_t word = run ? load_relaxed(&run->seen.took[launch % GPU_RUN_DEPTH]) : 0;

	(void)dev;
	return (word & 0xffff) == (launch & 0xffff) ? word >> 16 : 0;
}

void gpu_run_counts(const struct gpu_device *d, struct gpu_run_counts *ret)
{
	const struct gpu_runs *all = load_acquire(&d->runs);

	memset(ret, 0, sizeof(*ret));
	if (all) {
		ret->launches = load_relaxed(&all->counts.launches);
		ret->interruptions = load_relaxed(&all->counts.interruptions);
		ret->resumed_blocks = load_relaxed(&all->counts.resumed_blocks);
		ret->forced = load_relaxed(&all->counts.forced);
		ret->hung = load_relaxed(&all->counts.hung);
	}
}

/* ---- launching ---- */

/* Steps until the list has a free entry and tickets for `blocks` more. The scheduler normally
 * provides for room and decides when an interrupted run is resumed; this serves callers without a
 * scheduler. Releases the lock while sleeping. */
static void wait_for_room(struct gpu_run *run, const struct gpu_queue *q, uint32_t blocks)
	REQUIRES(run->lock)
{
	uint64_t begin = clock_now_ns();

	while (run->list.head - run->list.tail == GPU_RUN_DEPTH ||
	       (gpu_run_unfinished(run) &&
		run->list.ticket - run->list.entry[run->list.tail % GPU_RUN_DEPTH].first + blocks >
			GPU_RUN_TICKETS_MAX)) {
		uint64_t ns = gpu_run_step_locked(run, q, true,
						  clock_now_ns() - begin > GPU_RUN_FORCE_NS);

		if (ns == UINT64_MAX) {
			break;
		}
		lock_release(&run->lock);
		clock_sleep_ns(MIN(ns, WAIT_POLL_NS));
		lock_take(&run->lock);
	}
}

/* Stores the launch's parameters and grid in the entry. Returns false if out of memory. */
static bool copy_params(struct gpu_run_entry *l, const struct gpu_block_launch *b)
{
	struct ptx_block_arg arg = { .grid_x = b->grid[0],
				     .grid_y = b->grid[1],
				     .grid_z = b->grid[2] };
	uint32_t bytes =
		b->params_bytes + (uint32_t)(b->gate ? sizeof(struct ptx_gate_arg) : sizeof(arg));

	if (bytes > l->room) {
		uint8_t *p = realloc(l->params, ROUND_UP(bytes, 64));

		if (!p) {
			return false;
		}
		l->params = p;
		l->room = ROUND_UP(bytes, 64);
	}
	if (b->params_bytes) {
		memcpy(l->params, b->params, b->params_bytes);
	}
	memcpy(l->params + b->params_bytes, &arg, sizeof(arg));
	l->params_bytes = b->params_bytes;
	return true;
}

static uint64_t initial_block_ps(const struct gpu_run *run, const struct gpu_block_launch *b)
{
	if (run->pace.clone_id == b->id && run->pace.block_ps) {
		return run->pace.block_ps;
	}
	return b->resident ? MIN(b->block_ns, UINT64_C(1000000000000)) * 1000 / b->resident : 0;
}

/* Appends the launch to the list, which has room, and submits what there is room for. */
static CUresult append(struct gpu_run *run, const struct gpu_queue *q,
		       const struct gpu_block_launch *b, uint32_t blocks) REQUIRES(run->lock)
{
	struct gpu_run_entry *l = &run->list.entry[run->list.head % GPU_RUN_DEPTH];
	uint32_t refused, mine = run->list.head;
	CUresult e = CUDA_SUCCESS;

	if (load_relaxed(&run->seen.failed)) {
		return (CUresult)load_relaxed(&run->seen.failed);
	}
	if (!copy_params(l, b)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	l->clone = b->clone;
	l->id = b->id;
	l->event = NULL;
	memcpy(l->block, b->block, sizeof(l->block));
	l->smem = PTX_BLOCK_SMEM(b->smem);
	l->total = blocks;
	l->gate = false;
	if (b->gate) {
		gpu_run_gate_copy(l, b);
	}
	l->first = run->list.ticket;
	l->covered = l->out = l->ran = 0;
	l->used_ns = 0;
	l->piece = b->piece_blocks;
	l->resident = b->resident;
	l->block_ps = initial_block_ps(run, b);
	run->list.ticket += blocks;
	if (!gpu_run_unfinished(run)) {
		run->list.next = run->list.head;
		store_relaxed(&run->seen.end_ns, UINT64_C(0));
	}
	(void)add_acqrel(&run->seen.n_pending, blocks);
	run->list.head++;
	gpu_run_count_tickets(run);
	store_release(&run->seen.launched, run->seen.launched + 1);
	if (load_relaxed(&run->seen.state) == GPU_RUN_ACTIVE) {
		do {
			e = gpu_run_submit(run, q, UINT32_MAX, false, &refused);
			if (e && refused != mine) {
				store_relaxed(&run->seen.error, (uint32_t)e);
			}
		} while (e && refused != UINT32_MAX && refused != mine);
	}
	if (e && refused == mine) {
		run->list.head--;
		store_release(&run->seen.launched, run->seen.launched - 1);
		return e;
	}
	if (load_relaxed(&run->seen.failed)) {
		return e;
	}
	(void)add_relaxed(&run->device->runs->counts.launches, 1u);
	return CUDA_SUCCESS;
}

CUresult gpu_run_record(struct gpu_device *d, struct gpu_queue *q, CUevent event, uint64_t *ret_seq)
{
	struct gpu_run *run = gpu_run_of(q);
	struct gpu_run_entry *l;
	CUresult e = CUDA_SUCCESS;

	*ret_seq = 0;
	if (!run || !gpu_run_busy(d, q)) {
		return d->real->cuEventRecord(event, q->stream);
	}
	lock_take(&run->lock);
	wait_for_room(run, q, 0);
	if (load_relaxed(&run->seen.failed) || !gpu_run_unfinished(run)) {
		e = d->real->cuEventRecord(event, q->stream);
	} else {
		l = &run->list.entry[run->list.head % GPU_RUN_DEPTH];
		l->clone = NULL;
		l->gate = false;
		l->event = event;
		l->recorded = false;
		l->total = l->covered = l->out = l->ran = 0;
		l->first = run->list.ticket;
		(void)add_acqrel(&run->seen.n_pending, 1u);
		run->list.head++;
		*ret_seq = run->seen.launched + 1;
		store_release(&run->seen.launched, *ret_seq);
		if (load_relaxed(&run->seen.state) == GPU_RUN_ACTIVE) {
			gpu_run_submit_all(run, q, UINT32_MAX, false);
		}
	}
	lock_release(&run->lock);
	return e;
}

static bool exceeds_limits(const struct gpu_block_launch *l, uint32_t *ret_blocks)
{
	uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1];

	if (!blocks || blocks > GPU_RUN_TICKETS_MAX / 2 || !l->grid[2] ||
	    blocks * l->grid[2] > GPU_RUN_TICKETS_MAX / 2 || l->params_bytes > MAX_PARAMS ||
	    l->params_bytes % 8 || l->smem > INT32_MAX ||
	    (l->gate && (l->n_attrs > GPU_BLOCK_ATTRS_MAX || l->grid[0] > GATE_GRID_X_MAX))) {
		return true;
	}
	*ret_blocks = (uint32_t)(blocks * l->grid[2]);
	return false;
}

/* Waits until the run is idle, and returns CUDA_ERROR_NOT_SUPPORTED: the caller may then submit to
 * the stream what a run cannot take. */
static CUresult drain_and_refuse(struct gpu_device *d, struct gpu_queue *q)
{
	uint64_t begin = clock_now_ns();

	while (gpu_run_busy(d, q)) {
		uint64_t ns = gpu_run_step(d, q, true, clock_now_ns() - begin > GPU_RUN_FORCE_NS);

		if (ns != UINT64_MAX) {
			clock_sleep_ns(MIN(ns, WAIT_POLL_NS));
		}
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult gpu_run_launch(struct gpu_device *d, struct gpu_queue *q, const struct gpu_block_launch *l)
{
	struct gpu_run *run = gpu_run_of(q);
	struct gpu_scope scope;
	uint32_t blocks = 0;
	CUresult e = CUDA_SUCCESS;

	if (q->home || exceeds_limits(l, &blocks)) {
		return drain_and_refuse(d, q);
	}
	if (gpu_scope_enter(d, q->ctx, &scope)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!run) {
		e = create(d, q, &run);
	}
	if (e) {
		gpu_scope_leave(d, &scope);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	lock_take(&run->lock);
	wait_for_room(run, q, blocks);
	gpu_run_retire(run, clock_now_ns());
	e = append(run, q, l, blocks);
	lock_release(&run->lock);
	gpu_scope_leave(d, &scope);
	return e;
}

void gpu_run_close(struct gpu_device *d, struct gpu_queue *q)
{
	struct gpu_run *run = q->run;

	if (!run) {
		return;
	}
	(void)d;
	if (!busy(run) && !load_relaxed(&run->seen.failed)) {
		gpu_run_retire(run, clock_now_ns());
		gpu_run_line_return(run);
	} else {
		gpu_run_fail(run, CUDA_ERROR_CONTEXT_IS_DESTROYED); /* the line is not returned, so
								       it is never reused */
	}
	for (uint32_t i = 0; i < GPU_RUN_DEPTH; i++) {
		free(run->list.entry[i].params);
	}
	lock_finish(&run->lock);
	q->run = NULL;
	free(run);
}
