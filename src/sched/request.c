/* Requests of latency queues: opened on the own board by the launch that begins one, closed by the
 * agent when the queues are drained and the linger has passed. Opening costs a compare-and-swap;
 * while one is open, a load. The order of steps in request_close is argued in docs/SCHEDULING.md.
 */
#include "sched/sched_int.h"

#include <errno.h>
#include <limits.h>

#include "base/clock.h"
#include "base/fd.h"

static struct sched_board_gpu *own_board(struct sched *s, uint32_t gpu)
{
	uint32_t index = load_relaxed(&s->gpu_index[gpu]);

	return index < SCHED_MAX_GPUS ? &load_acquire(&s->own)->gpu[index] : NULL;
}

bool request_open(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_board_gpu *b = own_board(s, gpu);
	uint32_t expected = 0;

	if (!__atomic_compare_exchange_n(&s->req[gpu].open, &expected, 1u, 0, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST)) {
		return false;
	}
	store_relaxed(&s->req[gpu].opened_ns, now);
	if (b) {
		store_relaxed(&b->opened_ns, now);
		store_seqcst(&b->open, 1u);
	}
	return true;
}

bool requests_any(const struct sched *s)
{
	for (uint32_t g = 0; g < SCHED_MAX_GPUS; g++) {
		if (load_seqcst(&s->req[g].open)) {
			return true;
		}
	}
	return false;
}

/* Can the device say nothing (a stream that only its own thread can name, or that captures): then a
 * synchronization of the application must have covered everything, or the markers, which such a
 * queue gets after each launch from now on. When neither comes the request ends after a while: too
 * early costs latency, too late would hold others for nothing. */
static bool drained_unknown(struct sched_queue *q, uint64_t entered, uint64_t total, uint64_t now)
{
	store_relaxed(&q->marks_all, 1u);
	(void)queue_retire_reached(q);
	if (q->unknown_since == 0 || q->unknown_entered != entered) {
		q->unknown_since = now;
		q->unknown_entered = entered;
	}
	return load_acquire(&q->sync_seq) == entered || load_acquire(&q->retired) == total ||
	       now - q->unknown_since > UNKNOWN_NS;
}

/* Finished: every launch that came in was taken by the driver, and the queue is idle. */
static bool queue_drained(struct sched_queue *q, uint64_t now)
{
	struct sched *s = q->s;
	uint64_t left = load_seqcst(&q->left), entered = load_seqcst(&q->entered);
	uint64_t total = tally_sum(&q->total);
	int idle;

	if (left != entered) {
		return false;
	}
	if (q->drained == entered) {
		return true;
	}
	idle = s->cfg.device->queue_idle(s->cfg.dev, q->dev_queue);
	if (idle == -EAGAIN ? !drained_unknown(q, entered, total, now) : idle == 0) {
		if (idle ==
		    0) { /* a synchronization that returned before this has seen only a part */
			store_relaxed(&q->sync_seq, (uint64_t)0);
		}
		return false;
	}
	store_relaxed(&q->drained, entered);
	q->drain_ns = load_acquire(&q->sync_seq) == entered ? load_relaxed(&q->sync_ns) : now;
	(void)queue_retire_idle(q, total);
	return true;
}

/* True when all latency queues of the GPU are drained; when the last one was, and how long its
 * request lingers. */
static bool all_drained(struct sched *s, uint32_t gpu, uint64_t now, uint64_t *last,
			uint64_t *linger)
{
	bool all = true;

	queues_each(s, q)
	{
		if (load_relaxed(&q->gpu) != gpu || !load_relaxed(&q->entered) || !queue_use(q)) {
			continue;
		}
		if (queue_drained(q, now)) {
			*last = MAX(*last, q->drain_ns);
			*linger = MAX(*linger, load_relaxed(&q->linger_ns));
		} else {
			all = false;
		}
		queue_unuse(q);
	}
	return all;
}

static bool something_entered(struct sched *s, uint32_t gpu)
{
	queues_each(s, q)
	{
		if (load_relaxed(&q->gpu) == gpu && load_relaxed(&q->live) &&
		    load_seqcst(&q->entered) != load_relaxed(&q->drained)) {
			return true;
		}
	}
	return false;
}

static void account(struct sched *s, uint64_t duration_ns)
{
	stat_add(s, requests, 1u);
	stat_add(s, request_ns, duration_ns);
	stat_add(s, request_hist[sched_hist_bucket(duration_ns)], 1u);
}

/* First the private word, then a second look (a launch counts itself in before it looks at that
 * word), then the board, then a look at the private word: whatever a launch does meanwhile, the
 * board ends up open if a request is. */
static void request_close(struct sched *s, uint32_t gpu, uint64_t drained_ns, uint64_t now)
{
	struct sched_board_gpu *b = own_board(s, gpu);
	struct request *r = &s->req[gpu];
	uint64_t opened = load_relaxed(&r->opened_ns);

	store_seqcst(&r->open, 0u);
	fence_seqcst();
	if (something_entered(s, gpu)) {
		uint32_t expected = 0;

		/* Still the same request, unless the launch has opened the next one by itself. */
		if (cas_acqrel(&r->open, &expected, 1u)) {
			return;
		}
	}
	if (b) {
		store_relaxed(&b->last_end_ns, now);
		store_seqcst(&b->open, 0u);
		(void)add_acqrel(&b->seq, 1u);
		fence_seqcst();
		if (load_seqcst(&r->open)) {
			store_seqcst(&b->open, 1u);
		}
		futex_wake_shared(&b->seq, INT_MAX);
	}
	account(s, drained_ns > opened ? drained_ns - opened : 0);
}

uint64_t requests_step(struct sched *s, uint64_t now)
{
	uint64_t sleep = UINT64_MAX;

	for (uint32_t g = 0; g < SCHED_MAX_GPUS; g++) {
		uint64_t last = 0, linger = 0;

		if (!load_acquire(&s->req[g].open)) {
			continue;
		}
		if (!all_drained(s, g, now, &last, &linger)) {
			sleep = MIN(sleep, (uint64_t)OPEN_POLL_NS);
		} else if (now < last + linger) {
			sleep = MIN(sleep, MIN(last + linger - now, (uint64_t)OPEN_POLL_NS));
		} else {
			request_close(s, g, last, now);
		}
	}
	return sleep;
}
