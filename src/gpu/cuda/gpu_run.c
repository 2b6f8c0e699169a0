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
#include "gpu/cuda/gpu_run_submit_int.h"

#define NEAR_NS 5000u  /* looks near the expected end */
#define READ_NS 4000u  /* until a counter has come */
#define QUERY_NS 8000u /* the driver is asked no more often */
#define WAIT_NS 20000u /* period of steps while waiting for room or for the end of the run */
#define LOOK_MOST_NS 1000000u
/* Without the scheduler, or where it sees no request: by force after so long. */
#define WAIT_FORCE_NS 200000000u
#define MAX_PARAMS 65536u

static struct gpu_run *gpu_run_of(const struct gpu_queue *q)
{
	return load_acquire(&q->run);
}

static CUresult create(struct gpu_device *d, struct gpu_queue *q, struct gpu_run **ret)
{
	struct gpu_run *c = calloc(1, sizeof(*c));
	CUresult e;

	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->d = d;
	c->home = gpu_run_context_of(d, q->ctx);
	e = c->home ? gpu_run_line_take(c) : CUDA_ERROR_OUT_OF_MEMORY;
	if (e) {
		free(c);
		return e;
	}
	c->newest = *c->done; /* the line's previous run stored this number */
	pthread_mutex_init(&c->lock, NULL);
	store_release(&q->run, c);
	*ret = c;
	return CUDA_SUCCESS;
}

/* ---- progress ---- */

static bool busy(const struct gpu_run *c)
{
	if (load_acquire(&c->dead)) {
		return false;
	}
	/* Loads n_pending before newest. Pairs with submit_piece, which stores newest before it
	 * subtracts from n_pending: a thread that reads n_pending 0 also reads the number of the
	 * last piece. */
	return load_acquire(&c->unput) ||
	       __atomic_load_n((const uint32_t *)c->done, __ATOMIC_ACQUIRE) !=
		       load_acquire(&c->newest);
}

int gpu_run_busy(void *dev, void *dev_queue)
{
	struct gpu_run *c = gpu_run_of(dev_queue);

	(void)dev;
	return c && busy(c);
}

/* Retires what has finished, unless another thread holds the lock: a thread that waits for a launch
 * must see its end without a step by another one. */
static void retire_finished(struct gpu_run *c)
{
	if (load_acquire(&c->finished) != load_acquire(&c->launched) &&
	    pthread_mutex_trylock(&c->lock) == 0) {
		gpu_run_retire(c, clock_now_ns());
		pthread_mutex_unlock(&c->lock);
	}
}

int gpu_run_look(void *dev, void *dev_queue, struct sched_run_progress *ret)
{
	struct gpu_run *c = gpu_run_of(dev_queue);
	uint32_t state;

	(void)dev;
	memset(ret, 0, sizeof(*ret));
	if (!c) {
		return 0;
	}
	retire_finished(c);
	state = load_relaxed(&c->state);
	ret->done = load_acquire(&c->finished);
	ret->launched = load_acquire(&c->launched);
	if (!busy(c)) { /* busy() was called after launched was loaded, so those have finished */
		ret->done = ret->launched;
	}
	ret->end_ns = load_relaxed(&c->end_ns);
	ret->interruptions = load_relaxed(&c->interruptions);
	ret->stopped = state == CHAIN_HALT || state == CHAIN_READ;
	ret->waiting = state == CHAIN_HALT;
	ret->feeding = load_acquire(&c->unput) != 0;
	/* Not full: a launch of any size fits. */
	ret->full =
		ret->launched - ret->done >= GPU_RUN_DEPTH ||
		(ret->done != ret->launched && load_relaxed(&c->span) > GPU_RUN_TICKETS_MAX / 2);
	return (int)(load_relaxed(&c->error) ? xchg_acqrel(&c->error, 0u) : 0);
}

uint64_t gpu_run_took(void *dev, void *dev_queue, uint64_t launch)
{
	struct gpu_run *c = gpu_run_of(dev_queue);
	uint64_t word = c ? load_relaxed(&c->took[launch % GPU_RUN_DEPTH]) : 0;

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
 * scheduler. The lock is held, and released while sleeping. */
static bool ran_empty(struct gpu_run *c, const struct gpu_queue *q, uint64_t now)
{
	CUresult r;

	if (c->p_head == c->p_tail || now - c->query_ns < QUERY_NS) {
		return false;
	}
	c->empty_ns = chain_between(MAX(c->query_ns, c->front_ns), now);
	c->query_ns = now;
	r = c->d->real->cuStreamQuery(q->stream);
	if (r == CUDA_ERROR_NOT_READY) {
		return false;
	}
	if (r != CUDA_SUCCESS) {
		gpu_run_fail(c, r);
		return false;
	}
	gpu_run_retire(c, now); /* what ended before the query answered is visible after it */
	return c->p_head != c->p_tail;
}

static void read_counter(struct gpu_run *c)
{
	CUresult r = c->d->real->cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(c->done + 1), c->counter,
						      sizeof(uint32_t), c->home->io);

	if (r) {
		gpu_run_fail(c, r);
		return;
	}
	(void)add_relaxed(&c->interruptions, 1u);
	(void)add_relaxed(&c->d->runs->counts.interruptions, 1u);
	store_relaxed(&c->state, (uint32_t)CHAIN_READ);
}

/* Where every try is in vain (a lease that no board shows) they become rarer. */
static uint64_t patience(const struct gpu_run *c)
{
	return c->fruitless < 2 ? 0 : MIN(UINT64_C(10000) << MIN(c->fruitless, 7u), LOOK_MOST_NS);
}

static void counter_came(struct gpu_run *c, uint64_t now)
{
	CUresult r = c->d->real->cuStreamQuery(c->home->io);
	uint32_t counter;

	if (r == CUDA_ERROR_NOT_READY) {
		return;
	}
	counter = __atomic_load_n((const uint32_t *)(c->done + 1), __ATOMIC_ACQUIRE);
	if (!r) {
		chain_learn_stopped(c, counter);
	}
	/* Nothing is missing, but the last number did not come: nor can that be. */
	if (r || counter == c->ticket || !gpu_run_rewind(c, counter)) {
		gpu_run_fail(c, r ? r : CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	if (counter != c->stopped_at) {
		c->fruitless = 0;
	} else if (!c->fruitless++) {
		c->vain_ns = now;
	}
	c->stopped_at = counter;
	c->halt_ns = now;
	store_relaxed(&c->state, (uint32_t)CHAIN_HALT);
}

static void gpu_run_submit_all(struct gpu_run *c, const struct gpu_queue *q, uint32_t most,
			       bool forced)
{
	uint32_t refused;
	CUresult e;

	do {
		e = gpu_run_submit(c, q, most, forced, &refused);
		if (e) {
			store_relaxed(&c->error, (uint32_t)e);
		}
	} while (e && refused != UINT32_MAX);
}

static void resume(struct gpu_run *c, const struct gpu_queue *q, bool may_run, bool force,
		   uint64_t now)
{
	/* Who may write leases may leave words there that no board shows and that do not run out.
	 */
	if (may_run && !force && c->fruitless && now - c->vain_ns > WAIT_FORCE_NS) {
		(void)add_relaxed(&c->d->runs->counts.forced, 1u);
		c->vain_ns = now;
		store_relaxed(&c->state, (uint32_t)CHAIN_RUN);
		gpu_run_submit_all(c, q, 1, true);
		return;
	}
	if (force) {
		(void)add_relaxed(&c->d->runs->counts.forced, 1u);
	} else if (now - c->halt_ns < patience(c)) {
		return;
	}
	if (may_run) {
		store_relaxed(&c->state, (uint32_t)CHAIN_RUN);
		gpu_run_submit_all(c, q, UINT32_MAX, false);
	} else {
		store_relaxed(&c->state, (uint32_t)CHAIN_FORCED);
		gpu_run_submit_all(c, q, 1, true);
	}
}

static void advance(struct gpu_run *c, const struct gpu_queue *q, bool may_run, bool force,
		    uint64_t now)
{
	uint32_t state = load_relaxed(&c->state);

	if (state >= CHAIN_TAKE) {
		gpu_run_bypass_step(c, q, now);
		return;
	}
	if (state == CHAIN_RUN || state == CHAIN_FORCED) {
		c->stop_ns = may_run ? 0 : c->stop_ns > c->front_ns ? c->stop_ns : now;
		if (ran_empty(c, q, now)) {
			c->probing = false;
			read_counter(c);
		} else if (c->p_head == c->p_tail && (!may_run || state == CHAIN_FORCED)) {
			c->halt_ns = now;
			store_relaxed(&c->state, (uint32_t)CHAIN_HALT);
		} else {
			if (may_run) {
				store_relaxed(&c->state, (uint32_t)CHAIN_RUN);
				gpu_run_submit_all(c, q, UINT32_MAX, false);
			}
			gpu_run_bypass_watch(c, may_run, now);
		}
	}
	if (load_relaxed(&c->state) == CHAIN_READ) {
		counter_came(c, now);
	}
	if (load_relaxed(&c->state) == CHAIN_HALT && (may_run || force)) {
		resume(c, q, may_run, force, now);
	}
}

/* Something waits for room. While the device has enough to do for the time that this thread may
 * take, and for errors, one look for several ends will do; ends of long pieces are looked at, to
 * know when the next one's time has come. */
static uint64_t until_room(const struct gpu_run *c, uint64_t front_ns, uint64_t end, uint64_t now)
{
	uint64_t left = end - now, reserve = CHAIN_RESERVE_NS + left / 16;
	uint64_t at = end - MIN(reserve, end), front = c->front_ns + front_ns + front_ns / 64;

	if (c->p_head - c->p_tail > 1 && front_ns >= CHAIN_LONG_NS && front < at) {
		at = front;
	}
	return at > now ? at - now : MAX(left / 8, NEAR_NS);
}

/* Until there is room for the next piece, or the end, as far as durations are known. */
static uint64_t until_news(struct gpu_run *c, uint64_t now)
{
	uint32_t state = load_relaxed(&c->state);
	uint64_t front, end, ns;

	if (!gpu_run_unfinished(c)) {
		return UINT64_MAX;
	}
	if (state == CHAIN_READ || state == CHAIN_TAKE) {
		return READ_NS;
	}
	if (state > CHAIN_TAKE) {
		return state == CHAIN_WATCH ? LOOK_MOST_NS / 2 : WAIT_NS;
	}
	if (state == CHAIN_HALT || c->p_head == c->p_tail) {
		return MAX(WAIT_NS, patience(c));
	}
	front = c->piece[c->p_tail % CHAIN_PIECES].est_ns;
	if (!front) {
		return WAIT_NS;
	}
	end = c->front_ns + c->out_ns;
	if (end <= now) { /* late: it takes longer than thought */
		return MIN(MAX((now - end) / 8, NEAR_NS), 50000u);
	}
	if (load_relaxed(&c->unput) || c->head - c->tail == GPU_RUN_DEPTH) {
		ns = until_room(c, front, end, now);
	} else {
		ns = (end - now) - (end - now) / 8;
	}
	return MIN(MAX(ns, NEAR_NS), LOOK_MOST_NS);
}

static bool capturing(const struct gpu_run *c, const struct gpu_queue *q)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return c->d->real->cuStreamIsCapturing(q->stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static uint64_t step(struct gpu_run *c, const struct gpu_queue *q, bool may_run, bool force)
{
	uint64_t now = clock_now_ns();
	struct gpu_scope scope;

	gpu_run_retire(c, now);
	if (!gpu_run_unfinished(c)) {
		/* Numbers of launches that were refused after they had been interrupted. */
		store_release(&c->newest,
			      __atomic_load_n((const uint32_t *)c->done, __ATOMIC_ACQUIRE));
		return UINT64_MAX;
	}
	if (gpu_scope_enter(c->d, q->ctx, &scope)) {
		gpu_run_fail(c, CUDA_ERROR_CONTEXT_IS_DESTROYED);
		return UINT64_MAX;
	}
	if (capturing(c, q)) {
		gpu_scope_leave(c->d, &scope);
		return LOOK_MOST_NS;
	}
	c->force_all = may_run && force;
	advance(c, q, may_run, force, now);
	gpu_scope_leave(c->d, &scope);
	return until_news(c, clock_now_ns());
}

uint64_t gpu_run_step(void *dev, void *dev_queue, bool may_run, bool force)
{
	struct gpu_run *c = gpu_run_of(dev_queue);
	uint64_t ns;

	(void)dev;
	if (!c) {
		return UINT64_MAX;
	}
	pthread_mutex_lock(&c->lock);
	ns = step(c, dev_queue, may_run, force);
	pthread_mutex_unlock(&c->lock);
	return ns;
}

/* ---- launching ---- */

/* The scheduler sees to it that there is room, and decides when an interrupted chain goes on; this
 * is for who comes without it. The lock is held. */
static void wait_for_room(struct gpu_run *c, const struct gpu_queue *q, uint32_t blocks)
{
	uint64_t begin = clock_now_ns();

	while (c->head - c->tail == GPU_RUN_DEPTH ||
	       (gpu_run_unfinished(c) &&
		c->ticket - c->launch[c->tail % GPU_RUN_DEPTH].first + blocks >
			GPU_RUN_TICKETS_MAX)) {
		uint64_t ns = step(c, q, true, clock_now_ns() - begin > WAIT_FORCE_NS);

		if (ns == UINT64_MAX) {
			break;
		}
		pthread_mutex_unlock(&c->lock);
		clock_sleep_ns(MIN(ns, WAIT_NS));
		pthread_mutex_lock(&c->lock);
	}
}

/* Stores the launch's parameters and grid in the entry. Returns false if out of memory. */
static bool copy_params(struct gpu_run_entry *l, const struct gpu_block_launch *b)
{
	struct ptx_block_arg arg = { .grid_x = b->grid[0],
				     .grid_y = b->grid[1],
				     .grid_z = b->grid[2] };
	uint32_t bytes = b->params_bytes + (uint32_t)sizeof(arg);

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

static uint64_t initial_block_ps(const struct gpu_run *c, const struct gpu_block_launch *b)
{
	if (c->learned == b->id && c->block_ps) {
		return c->block_ps;
	}
	return b->resident ? MIN(b->block_ns, UINT64_C(1000000000000)) * 1000 / b->resident : 0;
}

/* Appends the launch to the list and submits what there is room for. The lock is held; the list has
 * room. */
static CUresult append(struct gpu_run *c, const struct gpu_queue *q,
		       const struct gpu_block_launch *b, uint32_t blocks)
{
	struct gpu_run_entry *l = &c->launch[c->head % GPU_RUN_DEPTH];
	uint32_t refused, mine = c->head;
	CUresult e = CUDA_SUCCESS;

	if (load_relaxed(&c->dead)) {
		return (CUresult)load_relaxed(&c->dead);
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
	l->first = c->ticket;
	l->covered = l->out = l->ran = 0;
	l->used_ns = 0;
	l->piece = b->piece_blocks;
	l->resident = b->resident;
	l->block_ps = initial_block_ps(c, b);
	c->ticket += blocks;
	if (!gpu_run_unfinished(c)) {
		c->next = c->head;
		store_relaxed(&c->end_ns, UINT64_C(0));
	}
	(void)add_acqrel(&c->unput, blocks);
	c->head++;
	gpu_run_count_tickets(c);
	store_release(&c->launched, c->launched + 1);
	if (load_relaxed(&c->state) == CHAIN_RUN) {
		do {
			e = gpu_run_submit(c, q, UINT32_MAX, false, &refused);
			if (e && refused != mine) {
				store_relaxed(&c->error, (uint32_t)e);
			}
		} while (e && refused != UINT32_MAX && refused != mine);
	}
	if (e && refused == mine) {
		c->head--;
		store_release(&c->launched, c->launched - 1);
		return e;
	}
	if (load_relaxed(&c->dead)) {
		return e;
	}
	(void)add_relaxed(&c->d->runs->counts.launches, 1u);
	return CUDA_SUCCESS;
}

CUresult gpu_run_record(struct gpu_device *d, struct gpu_queue *q, CUevent event, uint64_t *ret_seq)
{
	struct gpu_run *c = gpu_run_of(q);
	struct gpu_run_entry *l;
	CUresult e = CUDA_SUCCESS;

	*ret_seq = 0;
	if (!c || !gpu_run_busy(d, q)) {
		return d->real->cuEventRecord(event, q->stream);
	}
	pthread_mutex_lock(&c->lock);
	wait_for_room(c, q, 0);
	if (load_relaxed(&c->dead) || !gpu_run_unfinished(c)) {
		e = d->real->cuEventRecord(event, q->stream);
	} else {
		l = &c->launch[c->head % GPU_RUN_DEPTH];
		l->clone = NULL;
		l->event = event;
		l->recorded = false;
		l->total = l->covered = l->out = l->ran = 0;
		l->first = c->ticket;
		(void)add_acqrel(&c->unput, 1u);
		c->head++;
		*ret_seq = c->launched + 1;
		store_release(&c->launched, *ret_seq);
		if (load_relaxed(&c->state) == CHAIN_RUN) {
			gpu_run_submit_all(c, q, UINT32_MAX, false);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return e;
}

static bool too_much(const struct gpu_block_launch *l, uint32_t *ret_blocks)
{
	uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1];

	if (!blocks || blocks > GPU_RUN_TICKETS_MAX / 2 || !l->grid[2] ||
	    blocks * l->grid[2] > GPU_RUN_TICKETS_MAX / 2 || l->params_bytes > MAX_PARAMS ||
	    l->params_bytes % 8 || l->smem > INT32_MAX) {
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
		uint64_t ns = gpu_run_step(d, q, true, clock_now_ns() - begin > WAIT_FORCE_NS);

		if (ns != UINT64_MAX) {
			clock_sleep_ns(MIN(ns, WAIT_NS));
		}
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult gpu_run_launch(struct gpu_device *d, struct gpu_queue *q, const struct gpu_block_launch *l)
{
	struct gpu_run *c = gpu_run_of(q);
	struct gpu_scope scope;
	uint32_t blocks = 0;
	CUresult e = CUDA_SUCCESS;

	if (q->home || too_much(l, &blocks)) {
		return drain_and_refuse(d, q);
	}
	if (gpu_scope_enter(d, q->ctx, &scope)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!c) {
		e = create(d, q, &c);
	}
	if (e) {
		gpu_scope_leave(d, &scope);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	pthread_mutex_lock(&c->lock);
	wait_for_room(c, q, blocks);
	gpu_run_retire(c, clock_now_ns());
	e = append(c, q, l, blocks);
	pthread_mutex_unlock(&c->lock);
	gpu_scope_leave(d, &scope);
	return e;
}

void gpu_run_close(struct gpu_device *d, struct gpu_queue *q)
{
	struct gpu_run *c = q->run;

	if (!c) {
		return;
	}
	(void)d;
	if (!busy(c) && !load_relaxed(&c->dead)) {
		gpu_run_retire(c, clock_now_ns());
		gpu_run_line_return(c);
	} else {
		gpu_run_fail(c, CUDA_ERROR_CONTEXT_IS_DESTROYED); /* the line is not returned, so
								       it is never reused */
	}
	for (uint32_t i = 0; i < GPU_RUN_DEPTH; i++) {
		free(c->launch[i].params);
	}
	pthread_mutex_destroy(&c->lock);
	q->run = NULL;
	free(c);
}
