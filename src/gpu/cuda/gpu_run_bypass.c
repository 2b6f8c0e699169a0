/* Kernels whose blocks wait for blocks of higher index: not legal without a cooperative launch, but
 * working as long as all blocks fit the device. When some blocks leave because of a lease, the
 * others wait forever and the stream never becomes idle. After a period without progress the
 * missing blocks are therefore launched on a bypass stream, where no lease stops them.
 *
 * Blocks that have not begun may still arrive (the launch may just be slow), and launches behind it
 * must not begin before the bypass blocks have ended. So the counter is taken first: an atomic
 * exchange sets it to a value before all tickets of the run, and each block that draws a ticket
 * afterwards leaves. The gate is closed likewise, for launches with an entry stub, whose end is
 * published only while the counter has not been taken. Bypass blocks draw from a counter of their
 * own, which continues at the old value. When both streams are idle, the counter and the word at
 * PTX_BLOCK_READY are restored to the end of the launch, and what is behind it is submitted again.
 * Each ticket is given once, even if the suspicion was wrong. */
#include "gpu/cuda/gpu_run_bypass_int.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

/* No progress for this time after a lease, or for the other one if no lease was seen; at least four
 * times the expected duration. Time under a lease does not count: there may be no progress then.
 * Time between leases does, however short it is, because leases may follow each other forever. */
#define STALL_NS 20000000u
#define STALL_NO_LEASE_NS 200000000u
#define CALM_LOOK_NS 20000u	 /* counted for a single look between two leases */
#define PROBE_PERIOD_NS 2000000u /* period of reads of the counter */
#define HEARTBEAT_NS 4000000u	 /* period of launches of a kernel of our own while watching */
#define HEARTBEATS_MIN 8u	 /* that must complete before a launch is declared hung */

static bool lease_seen(const struct gpu_run *run)
{
	return (int32_t)(run->hang.lease_head - run->pieces.tail) > 0;
}

/* Accounts the time since the last look at the same piece. */
static void account_calm(struct gpu_run *run, bool may_run, uint64_t now)
{
	struct gpu_run_hang *h = &run->hang;
	bool empty = run->pieces.head == run->pieces.tail;
	bool first_lease = !may_run && !lease_seen(run);

	if (empty || first_lease || h->front != run->pieces.tail) {
		h->front = run->pieces.tail;
		h->calm_ns = h->calm_until_ns = 0;
		h->probing = false;
	}
	if (!may_run) {
		h->calm_until_ns = 0;
		h->lease_head = run->pieces.head;
	} else if (!empty) {
		h->calm_ns += h->calm_until_ns ? now - h->calm_until_ns : CALM_LOOK_NS;
		h->calm_until_ns = now;
	}
}

static bool is_stalled(const struct gpu_run *run)
{
	const struct gpu_run_piece *front =
		&run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX];
	uint64_t min = lease_seen(run) ? STALL_NS : STALL_NO_LEASE_NS;

	return run->hang.calm_ns >= MAX(min, 4 * front->est_ns);
}

static void begin_take(struct gpu_run *run)
{
	uint32_t first =
		run->list
			.entry[run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX].entry %
			       GPU_RUN_DEPTH]
			.first;
	CUresult e;

	run->hang.probing = false;
	(void)add_acqrel(&run->seen.n_pending, 1u); /* keeps the run busy until finish_bypass */
	e = gpu_run_take(run, first - GPU_RUN_TICKETS_MAX);
	if (e) {
		gpu_run_fail(run, e);
		return;
	}
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_TAKING);
}

void gpu_run_bypass_watch(struct gpu_run *run, bool may_run, uint64_t now)
{
	uint32_t counter;

	account_calm(run, may_run, now);
	if (!run->home->bypass.take || run->pieces.head == run->pieces.tail || !is_stalled(run)) {
		run->hang.probing = false;
		return;
	}
	if (!may_run) {
		return;
	}
	if (run->hang.probing && now - run->hang.probe_ns < PROBE_PERIOD_NS) {
		return;
	}
	if (run->hang.probing &&
	    run->device->real->cuStreamQuery(run->home->io) == CUDA_ERROR_NOT_READY) {
		return;
	}
	counter = load_acquire(run->line.words + 1) + (uint32_t)gpu_run_gate_value(run);
	if (!run->hang.probing || counter != run->hang.counter) {
		run->hang.same_calm_ns = run->hang.calm_ns;
		run->hang.counter =
			counter; /* the first value is not used: the copy has not been made yet */
	} else if (run->hang.calm_ns - run->hang.same_calm_ns >= STALL_NS / 2) {
		begin_take(run);
		return;
	}
	run->hang.probing = true;
	run->hang.probe_ns = now;
	if (run->device->real->cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(run->line.words + 1),
						    run->line.counter, sizeof(uint32_t),
						    run->home->io) != CUDA_SUCCESS ||
	    gpu_run_gate_read(run, false) != CUDA_SUCCESS) {
		run->hang.probing = false;
	}
}

/* Launches the missing blocks of the launch on the bypass stream. Their tickets continue at
 * `counter`. */
static CUresult launch_bypass(struct gpu_run *run, struct gpu_run_entry *l, uint32_t missing)
{
	size_t bytes = l->params_bytes + sizeof(struct ptx_block_arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	/* Not the run's word: pieces behind this launch have not run. */
	uint64_t done = run->line.words_device + GPU_RUN_BYPASS_WORD;
	struct ptx_block_arg arg;

	if (l->gate) {
		return gpu_run_gate_bypass(run, l, l->total - missing,
					   run->line.counter + GPU_RUN_BYPASS_COUNTER, done);
	}
	memcpy(&arg, l->params + l->params_bytes, sizeof(arg));
	arg.tickets = run->line.counter + GPU_RUN_BYPASS_COUNTER;
	arg.done = done;
	arg.first = l->first;
	arg.total = l->total;
	arg.groups = 0;
	memcpy(l->params + l->params_bytes, &arg, sizeof(arg));
	return run->device->real->cuLaunchKernel(l->clone, missing, 1, 1, l->block[0], l->block[1],
						 l->block[2], l->smem, run->home->bypass.stream,
						 NULL, extra);
}

/* Returns whether launch i, of which so many blocks have begun, may be the one that hangs. If none
 * has begun there was progress meanwhile, and what is before it can end, even if that has not
 * stored its number: the last block of a launch with an entry stub does not after the taking.
 * Exception: it was submitted to an empty stream. Then something else is in its way, for example on
 * a hardware channel that both streams share, a host function that waits for these blocks. */
static bool may_hang(const struct gpu_run *run, uint32_t i, uint32_t ran)
{
	uint32_t front = run->pieces.tail;

	if (i == run->list.head || ran) {
		return i != run->list.head;
	}
	return run->pieces.none_done && front != run->pieces.head &&
	       run->pieces.piece[front % GPU_RUN_PIECES_MAX].entry == i;
}

static void counter_taken(struct gpu_run *run, uint64_t now)
{
	uint32_t counter = gpu_run_taken(run);
	uint32_t i, ran;

	if (!gpu_run_gate_progress(run, &counter, false) ||
	    !gpu_run_locate(run, counter, &i, &ran)) {
		gpu_run_fail(run, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	run->hang.restore = counter;
	store_relaxed(&run->seen.state,
		      (uint32_t)(may_hang(run, i, ran) ? GPU_RUN_WATCHING : GPU_RUN_BYPASS));
	run->hang.watch_ns = run->hang.beat_ns = now;
	run->hang.n_beats = 0;
}

/* The launch's blocks that have begun never ended, so they wait for those that left; or no block of
 * it gets to the device although its stream has nothing else. */
static void declare_hung(struct gpu_run *run, uint64_t now)
{
	struct gpu_run_entry *l;
	uint32_t i, ran;
	CUresult e;

	if (!gpu_run_locate(run, run->hang.restore, &i, &ran)) {
		gpu_run_fail(run, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	if (!may_hang(run, i, ran)) { /* the launches before it ended after the taking */
		store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_BYPASS);
		return;
	}
	l = &run->list.entry[i % GPU_RUN_DEPTH];
	e = gpu_run_beat(run);
	e = e ? e : launch_bypass(run, l, l->total - ran);
	if (e) {
		gpu_run_fail(run, e);
		return;
	}
	if (ran) { /* else no block of it waits for anything */
		gpu_run_strike_open(run, l, l->total - ran, now);
	}
	(void)sub_acqrel(&run->seen.n_pending, l->total - l->covered);
	l->covered = l->total;
	run->hang.restore = l->first + l->total;
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_BYPASS);
	(void)add_relaxed(&run->device->runs->counts.hung, 1u);
}

/* Returns the launch that is being watched, some of whose blocks have begun and some have not; NULL
 * if there is none. */
static const struct gpu_run_entry *watched(const struct gpu_run *run)
{
	uint32_t i, ran;

	if (!gpu_run_locate(run, run->hang.restore, &i, &ran) || i == run->list.head || !ran) {
		return NULL;
	}
	return &run->list.entry[i % GPU_RUN_DEPTH];
}

static uint64_t watch_ns(const struct gpu_run *run)
{
	const struct gpu_run_piece *front =
		&run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX];
	const struct gpu_run_entry *l = watched(run);

	return MAX(l ? gpu_run_strike_watch_ns(run, l) : GPU_RUN_WATCH_MIN_NS, 4 * front->est_ns);
}

/* The stream became idle: its blocks were only slow, or another context had the device. This is an
 * ordinary interruption. */
static void ended(struct gpu_run *run, uint64_t now)
{
	const struct gpu_run_entry *l = watched(run);

	if (l) {
		gpu_run_strike_ended(run, l, now);
	}
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_BYPASS);
}

/* Watches the stream after the counter was taken: all further blocks leave. Launches of our own
 * kernel show whether this context has the device. */
static void watch(struct gpu_run *run, const struct gpu_queue *q, uint64_t now)
{
	CUresult e = run->device->real->cuStreamQuery(q->stream);

	if (e == CUDA_SUCCESS) {
		ended(run, now);
	} else if (e != CUDA_ERROR_NOT_READY) {
		gpu_run_fail(run, e);
	} else if (now - run->hang.beat_ns < HEARTBEAT_NS) {
		return;
	} else if (run->hang.n_beats < HEARTBEATS_MIN || now - run->hang.watch_ns < watch_ns(run)) {
		run->hang.n_beats++;
		run->hang.beat_ns = now;
		e = gpu_run_beat(run);
		if (e) {
			gpu_run_fail(run, e);
		}
	} else {
		declare_hung(run, now);
	}
}

/* Returns what the counter must be for the next launch: with an entry stub no tickets are drawn, so
 * it is the launch's first one however many blocks have run. */
static uint32_t counter_to_restore(const struct gpu_run *run)
{
	uint32_t i, drawn;

	if (gpu_run_locate(run, run->hang.restore, &i, &drawn) && i != run->list.head &&
	    run->list.entry[i % GPU_RUN_DEPTH].gate) {
		return run->hang.restore - drawn;
	}
	return run->hang.restore;
}

/* Restores the counter. Nothing of the run is on the device. */
static void restore_counter(struct gpu_run *run)
{
	const struct cuabi_table *real = run->device->real;
	uint32_t value = counter_to_restore(run);
	CUresult e = real->cuMemsetD32Async(run->line.counter, value, 1, run->home->io);

	e = e ? e
	      : real->cuMemsetD32Async(run->line.counter + PTX_BLOCK_READY, value, 1,
				       run->home->io);
	e = e ? e : gpu_run_gate_reopen(run);
	if (e) {
		gpu_run_fail(run, e);
		return;
	}
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_RESTORING);
}

void gpu_run_bypass_restore(struct gpu_run *run, uint32_t counter)
{
	(void)add_acqrel(&run->seen.n_pending, 1u); /* keeps the run busy until finish_bypass */
	run->hang.restore = counter;
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_BYPASS);
}

static void finish_bypass(struct gpu_run *run)
{
	if (!gpu_run_rewind(run, run->hang.restore)) {
		gpu_run_fail(run, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_ACTIVE);
	/* No piece will store these numbers. */
	store_release(&run->seen.newest, load_acquire(run->line.words));
	(void)sub_acqrel(&run->seen.n_pending, 1u);
}

/* Returns the state of both streams; an error first. */
static CUresult query_both(struct gpu_run *run, const struct gpu_queue *q, uint64_t now)
{
	const struct cuabi_table *real = run->device->real;
	CUresult stream = real->cuStreamQuery(q->stream);
	CUresult bypass = real->cuStreamQuery(run->home->bypass.stream);

	if (run->strike.open) {
		gpu_run_strike_see(run, stream == CUDA_SUCCESS, bypass == CUDA_SUCCESS, now);
	}
	return stream && stream != CUDA_ERROR_NOT_READY ? stream : bypass ? bypass : stream;
}

void gpu_run_bypass_step(struct gpu_run *run, const struct gpu_queue *q, uint64_t now)
{
	const struct cuabi_table *real = run->device->real;
	uint32_t state = load_relaxed(&run->seen.state);
	CUresult e;

	if (state == GPU_RUN_BYPASS) {
		e = query_both(run, q, now);
	} else {
		e = real->cuStreamQuery(state == GPU_RUN_RESTORING ? run->home->io
								   : run->home->bypass.stream);
	}
	if (e == CUDA_ERROR_NOT_READY) {
		return;
	}
	if (e) {
		gpu_run_fail(run, e);
	} else if (state == GPU_RUN_TAKING) {
		counter_taken(run, now);
	} else if (state == GPU_RUN_WATCHING) {
		watch(run, q, now);
	} else if (state == GPU_RUN_BYPASS) {
		if (run->strike.open) {
			gpu_run_strike_close(run);
		}
		restore_counter(run);
	} else {
		finish_bypass(run);
	}
}

void gpu_run_on_hung(struct gpu_device *d, void (*f)(void *arg, CUfunction clone), void *arg)
{
	struct gpu_runs *all = gpu_runs_of(d);

	if (all) {
		all->on_hung_arg = arg;
		all->on_hung = f;
	}
}
