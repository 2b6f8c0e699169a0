/* What a queue has not passed to the driver yet: deferred calls, which are drained here, and the
 * unfinished resumable run. A queue with an unfinished run counts in shim.deferred
 * (shim_pending()), so that every call that is ordered after the run or waits for it is checked. */
#include "shim/object/queue_drain.h"

#include "gpu/gpu_run.h"
#include "shim/object/event_uses.h"

#define MAX_SIBLINGS 128u

void shim_error_note(CUresult r)
{
	int none = 0;

	if (r != CUDA_SUCCESS) {
		(void)cas_acqrel(&shim.error, &none, (int)r);
	}
}

void shim_queue_drain(struct shim_queue *q)
{
	struct sched_queue *own = load_acquire(&q->sched);
	int err = own ? sched_drain(shim.sched, own) : 0; /* NULL: closed, hence drained */

	/* Errors of deferred calls were stored when the calls ran; the rest concern runs whose
	 * blocks had to be launched again. */
	if (err && (uint32_t)err != xchg_acqrel(&q->reported_error, 0u)) {
		shim_error_note((CUresult)err);
	}
}

void shim_drain_all(void)
{
	int err = sched_drain(shim.sched, NULL);

	if (err && !shim_queue_error_reported((uint32_t)err)) {
		shim_error_note((CUresult)err);
	}
	shim_queue_reap_all();
}

/* Drains each sibling once, for what it had deferred at the call: other threads may keep adding to
 * them. */
void shim_queue_drain_siblings(struct shim_queue *q)
{
	struct shim_queue *list[MAX_SIBLINGS];
	unsigned n = MAX_SIBLINGS;

	while (q->blocking && n == MAX_SIBLINGS) { /* the list was full: drain the rest */
		n = shim_queue_siblings_deferred(q, list, MAX_SIBLINGS);
		for (unsigned i = 0; i < n; i++) {
			shim_queue_drain(list[i]); /* another thread may be closing it */
		}
	}
}

CUresult shim_error_take(CUresult r)
{
	int error = 0;

	if (unlikely(load_relaxed(&shim.error))) {
		error = xchg_acqrel(&shim.error, 0);
	}
	return r != CUDA_SUCCESS ? r : (CUresult)error;
}

/* ---- the unfinished run ---- */

/* Records a launch as unfinished. Ids start at 1 and are never 0, so that a thread which found an
 * older launch finished clears only that one (the compare-and-swap in shim_block_finished()).
 * shim.deferred is incremented before the id becomes visible: a thread that sees the id and a count
 * of 1 knows that nothing else is deferred. Pairs with the acquire loads in shim_block_unfinished()
 * and shim_pending(). */
void shim_block_note_unfinished(struct shim_queue *q)
{
	uint32_t n = add_relaxed(&q->block.launches, 2u) | 1u,
		 old = load_relaxed(&q->block.unfinished);

	if (old && cas_acqrel(&q->block.unfinished, &old, n)) {
		return;
	}
	add_acqrel(&shim.deferred, 1);
	if (xchg_acqrel(&q->block.unfinished, n)) {
		sub_acqrel(&shim.deferred, 1);
	}
}

uint32_t shim_block_unfinished(const struct gpu_queue *dev)
{
	return load_acquire(&container_of(dev, const struct shim_queue, dev)->block.unfinished);
}

void shim_block_finished(struct gpu_queue *dev, uint32_t seen)
{
	struct shim_queue *q = container_of(dev, struct shim_queue, dev);

	if (seen && cas_acqrel(&q->block.unfinished, &seen, 0u)) {
		sub_acqrel(&shim.deferred, 1);
	}
}

void shim_block_close(struct shim_queue *q)
{
	shim_event_forget_queue(q);
	if (q->dev.run) {
		gpu_run_close(shim_device_gpu(), &q->dev);
	}
	if (xchg_acqrel(&q->block.unfinished, 0u)) {
		sub_acqrel(&shim.deferred, 1);
	}
}
