/* Advancing a resumable run: noticing that it was interrupted, reading how far its blocks came, and
 * submitting what is missing. docs/STATES.md has the states and transitions. This file must never
 * make the GPU wait for the host, and never wait itself for something that only the host can bring
 * about. */
#include "gpu/gpu_run.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

#define STEP_MIN_NS 5000u    /* steps near the expected end */
#define STEP_MAX_NS 1000000u /* period of steps while nothing is expected */
#define READ_NS 4000u	     /* expected duration of a counter's copy */
#define QUERY_NS 8000u	     /* minimum period of stream queries */
#define WAIT_NS 20000u	     /* halted, or no duration is known */
#define LATE_MAX_NS 50000u   /* maximum period of steps past the expected end */

/* ---- advancing; the context is current ---- */

/* Returns true if the stream is idle although pieces have not stored their numbers: their blocks
 * have left. */
static bool ran_empty(struct gpu_run *run, const struct gpu_queue *q, uint64_t now)
	REQUIRES(run->lock)
{
	CUresult r;

	if (run->pieces.head == run->pieces.tail || now - run->halt.query_ns < QUERY_NS) {
		return false;
	}
	run->halt.empty_ns = gpu_run_midpoint(MAX(run->halt.query_ns, run->pieces.front_ns), now);
	run->halt.query_ns = now;
	r = run->device->real->cuStreamQuery(q->stream);
	if (r == CUDA_ERROR_NOT_READY) {
		return false;
	}
	if (r != CUDA_SUCCESS) {
		gpu_run_fail(run, r);
		return false;
	}
	gpu_run_retire(run,
		       now); /* pieces that finished before the query returned are visible now */
	return run->pieces.head != run->pieces.tail;
}

static void read_counter(struct gpu_run *run) REQUIRES(run->lock)
{
	CUresult r = run->device->real->cuMemcpyDtoHAsync_v2(
		(void *)(uintptr_t)(run->line.words + 1), run->line.counter, sizeof(uint32_t),
		run->home->io);

	r = r ? r : gpu_run_gate_read(run, true);
	if (r) {
		gpu_run_fail(run, r);
		return;
	}
	(void)add_relaxed(&run->seen.interruptions, 1u);
	(void)add_relaxed(&run->device->runs->counts.interruptions, 1u);
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_READING);
}

/* Delay before an interrupted run is resumed again. It grows while resuming achieves nothing,
 * because of a lease that no board shows. */
static uint64_t retry_delay_ns(const struct gpu_run *run) REQUIRES(run->lock)
{
	return run->halt.n_same < 2
		       ? 0
		       : MIN(UINT64_C(10000) << MIN(run->halt.n_same, 7u), STEP_MAX_NS);
}

/* Returns whether the counter should be behind its value on the device: all of a launch with an
 * entry stub has run, but its end was not published since the counter was taken meanwhile. */
static bool lags_behind(const struct gpu_run *run, uint32_t counter) REQUIRES(run->lock)
{
	uint32_t i, ran;

	return counter != load_acquire(run->line.words + 1) &&
	       gpu_run_locate(run, counter, &i, &ran) && !ran;
}

static void finish_read(struct gpu_run *run, uint64_t now) REQUIRES(run->lock)
{
	CUresult r = run->device->real->cuStreamQuery(run->home->io);
	uint32_t counter;
	bool ok;

	if (r == CUDA_ERROR_NOT_READY) {
		return;
	}
	counter = load_acquire(run->line.words + 1);
	ok = !r && gpu_run_gate_progress(run, &counter, true);
	if (ok && lags_behind(run, counter)) {
		gpu_run_bypass_restore(run, counter);
		return;
	}
	if (ok) {
		gpu_run_learn_stopped(run, counter);
	}
	/* Either the counter is at its end but the last number is missing, or its value is
	 * impossible: something has overwritten it. */
	if (!ok || counter == run->list.ticket || !gpu_run_rewind(run, counter)) {
		gpu_run_fail(run, r ? r : CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	if (counter != run->halt.counter) {
		run->halt.n_same = 0;
	} else {
		(void)add_relaxed(&run->seen.futile, 1u);
		run->halt.same_since_ns = run->halt.n_same ? run->halt.same_since_ns : now;
		run->halt.n_same++;
	}
	run->halt.counter = counter;
	run->halt.since_ns = now;
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_HALTED);
}

void gpu_run_submit_all(struct gpu_run *run, const struct gpu_queue *q, uint32_t max, bool forced)
{
	uint32_t refused;
	CUresult e;

	do {
		e = gpu_run_submit(run, q, max, forced, &refused);
		if (e) {
			store_relaxed(&run->seen.error, (uint32_t)e);
		}
	} while (e && refused != UINT32_MAX);
}

static void resume(struct gpu_run *run, const struct gpu_queue *q, bool may_run, bool force,
		   uint64_t now) REQUIRES(run->lock)
{
	/* A process with the flag page can leave words in it that no board shows and that never
	 * expire: force one piece after GPU_RUN_FORCE_NS. */
	if (may_run && !force && run->halt.n_same &&
	    now - run->halt.same_since_ns > GPU_RUN_FORCE_NS) {
		(void)add_relaxed(&run->device->runs->counts.forced, 1u);
		run->halt.same_since_ns = now;
		store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_ACTIVE);
		gpu_run_submit_all(run, q, 1, true);
		return;
	}
	if (force) {
		(void)add_relaxed(&run->device->runs->counts.forced, 1u);
	} else if (now - run->halt.since_ns < retry_delay_ns(run)) {
		return;
	}
	if (may_run) {
		store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_ACTIVE);
		gpu_run_submit_all(run, q, UINT32_MAX, false);
	} else {
		store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_FORCED);
		gpu_run_submit_all(run, q, 1, true);
	}
}

static void advance(struct gpu_run *run, const struct gpu_queue *q, bool may_run, bool force,
		    uint64_t now) REQUIRES(run->lock)
{
	uint32_t state = load_relaxed(&run->seen.state);

	if (state >= GPU_RUN_TAKING) {
		gpu_run_bypass_step(run, q, now);
		return;
	}
	if (state == GPU_RUN_ACTIVE || state == GPU_RUN_FORCED) {
		run->halt.request_ns = may_run ? 0
				       : run->halt.request_ns > run->pieces.front_ns
					       ? run->halt.request_ns
					       : now;
		if (ran_empty(run, q, now)) {
			run->hang.probing = false;
			read_counter(run);
		} else if (run->pieces.head == run->pieces.tail &&
			   (!may_run || state == GPU_RUN_FORCED)) {
			run->halt.since_ns = now;
			store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_HALTED);
		} else {
			if (may_run) {
				store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_ACTIVE);
				gpu_run_submit_all(run, q, UINT32_MAX, false);
			}
			gpu_run_bypass_watch(run, may_run, now);
		}
	}
	if (load_relaxed(&run->seen.state) == GPU_RUN_READING) {
		finish_read(run, now);
	}
	if (load_relaxed(&run->seen.state) == GPU_RUN_HALTED && (may_run || force)) {
		resume(run, q, may_run, force, now);
	}
}

/* Returns ns until the next piece can be submitted. While the device has enough work for this
 * thread's reaction time and the error of estimates, one step serves several ends; the ends of long
 * pieces are observed each, so that the time of the next submission is known precisely. */
static uint64_t room_in_ns(const struct gpu_run *run, uint64_t front_ns, uint64_t end, uint64_t now)
	REQUIRES(run->lock)
{
	uint64_t left = end - now, reserve = GPU_RUN_RESERVE_NS + left / 16;
	uint64_t at = end - MIN(reserve, end),
		 front = run->pieces.front_ns + front_ns + front_ns / 64;

	if (run->pieces.head - run->pieces.tail > 1 && front_ns >= GPU_RUN_LONG_NS && front < at) {
		at = front;
	}
	return at > now ? at - now : MAX(left / 8, STEP_MIN_NS);
}

/* Returns ns until the next step: until there is room for the next piece, or the expected end. */
static uint64_t next_step_ns(struct gpu_run *run, uint64_t now) REQUIRES(run->lock)
{
	uint32_t state = load_relaxed(&run->seen.state);
	uint64_t front, end, ns;

	if (!gpu_run_unfinished(run) && state < GPU_RUN_TAKING) {
		return UINT64_MAX;
	}
	if (state == GPU_RUN_READING || state == GPU_RUN_TAKING) {
		return READ_NS;
	}
	if (state > GPU_RUN_TAKING) {
		return state == GPU_RUN_WATCHING ? STEP_MAX_NS / 2 : WAIT_NS;
	}
	if (state == GPU_RUN_HALTED || run->pieces.head == run->pieces.tail) {
		return MAX(WAIT_NS, retry_delay_ns(run));
	}
	front = run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX].est_ns;
	if (!front) {
		return WAIT_NS;
	}
	end = run->pieces.front_ns + run->pieces.est_ns;
	if (end <= now) { /* overdue: it takes longer than estimated */
		return MIN(MAX((now - end) / 8, STEP_MIN_NS), LATE_MAX_NS);
	}
	if (load_relaxed(&run->seen.n_pending) ||
	    run->list.head - run->list.tail == GPU_RUN_DEPTH) {
		ns = room_in_ns(run, front, end, now);
	} else {
		ns = (end - now) - (end - now) / 8;
	}
	return MIN(MAX(ns, STEP_MIN_NS), STEP_MAX_NS);
}

static bool capturing(const struct gpu_run *run, const struct gpu_queue *q)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return run->device->real->cuStreamIsCapturing(q->stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t gpu_run_step_locked(struct gpu_run *run, const struct gpu_queue *q, bool may_run,
			     bool force)
{
	uint64_t now = clock_now_ns();
	struct gpu_scope scope;

	gpu_run_retire(run, now);
	/* A counter that was taken while the last launch ended must be restored all the same. */
	if (!gpu_run_unfinished(run) && load_relaxed(&run->seen.state) < GPU_RUN_TAKING) {
		/* No piece stores the numbers of launches that were refused after an interruption.
		 */
		store_release(&run->seen.newest, load_acquire(run->line.words));
		return UINT64_MAX;
	}
	if (gpu_scope_enter(run->device, q->ctx, &scope)) {
		gpu_run_fail(run, CUDA_ERROR_CONTEXT_IS_DESTROYED);
		return UINT64_MAX;
	}
	if (capturing(run, q)) {
		gpu_scope_leave(run->device, &scope);
		return STEP_MAX_NS;
	}
	run->halt.force_all = may_run && force;
	advance(run, q, may_run, force, now);
	gpu_scope_leave(run->device, &scope);
	return next_step_ns(run, clock_now_ns());
}

uint64_t gpu_run_step(void *dev, void *dev_queue, bool may_run, bool force)
{
	struct gpu_run *run = gpu_run_of(dev_queue);
	uint64_t ns;

	(void)dev;
	if (!run) {
		return UINT64_MAX;
	}
	lock_take(&run->lock);
	ns = gpu_run_step_locked(run, dev_queue, may_run, force);
	lock_release(&run->lock);
	return ns;
}
