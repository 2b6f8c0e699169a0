/* The table of queues. Its memory is type-stable, so the agent and held threads may look at any
 * entry: they count themselves as users first, and sched_queue_close waits for the users, after
 * which no thread of sched touches the stream. */
#include "sched/sched_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

bool sched_queue_use(struct sched_queue *q)
{
	(void)add_seqcst(&q->life.users, 1u);
	if (load_seqcst(&q->life.live) && !load_seqcst(&q->life.closing)) {
		return true;
	}
	sched_queue_unuse(q);
	return false;
}

void sched_queue_unuse(struct sched_queue *q)
{
	(void)sub_acqrel(&q->life.users, 1u);
}

/* Returns a closed entry or a new one; NULL if there is none. */
static struct sched_queue *take_entry(struct sched *s) REQUIRES(s->lock)
{
	struct sched_queue *q = s->table.free;

	if (q) {
		s->table.free = q->next_free;
		return q;
	}
	if (s->table.n_queues == PROTO_MAX_QUEUES) {
		return NULL;
	}
	q = aligned_alloc(64, ROUND_UP(sizeof(*q), 64));
	if (!q) {
		return NULL;
	}
	memset(q, 0, sizeof(*q));
	q->s = s;
	q->index = s->table.n_queues;
	q->fifo.last = &q->fifo.first;
	lock_init(&q->fifo.lock, LOCK_FIFO);
	lock_init(&q->issue.lock, LOCK_ISSUE);
	store_release(&s->table.queues[q->index], q);
	store_release(&s->table.n_queues, q->index + 1);
	return q;
}

static void reset_entry(struct sched_queue *q, void *dev_queue, uint32_t gpu, int32_t priority)
{
	q->dev_queue = dev_queue;
	store_relaxed(&q->gpu, gpu);
	q->priority = priority;
	q->class_fixed = false;
	store_relaxed(&q->class_id, load_relaxed(&q->s->class_id));
	sched_tally_set(&q->total, 0);
	sched_tally_set(&q->threads, 0);
	for (unsigned i = 0; i < SCHED_KINDS; i++) {
		sched_tally_set(&q->kinds.n[i], 0);
		q->published.kinds[i] = 0;
	}
	sched_tally_set(&q->kinds.bytes, 0);
	q->published.bytes = 0;
	sched_grant_reset(q);
	q->published.threads = 0;
	store_relaxed(&q->shared, 0u);
	q->marks.last_level = q->marks.last_interruptions = q->run.interruptions = 0;
	q->issue.next_is_plain = false;
	store_relaxed(&q->entered, (uint64_t)0);
	sched_tally_set(&q->left, 0);
	store_relaxed(&q->sample_at, (uint64_t)0);
	store_relaxed(&q->unmarked_ns, (uint64_t)0);
	store_relaxed(&q->idle.sync_seq, (uint64_t)0);
	store_relaxed(&q->idle.close_delay_ns, (uint64_t)SCHED_DEFAULT_CLOSE_DELAY_NS);
	store_relaxed(&q->marks.head, 0u);
	store_relaxed(&q->marks.tail, 0u);
	store_relaxed(&q->marks.retired, (uint64_t)0);
	store_relaxed(&q->idle.seen_seq, (uint64_t)0);
	q->marks.last_version = q->marks.last_held_ns = q->marks.last_hash = 0;
	store_relaxed(&q->marks.ended_collective, (uint64_t)0);
	store_relaxed(&q->collective, (uint64_t)0);
	q->idle.seen_ns = 0;
	q->idle.unknown_since_ns = q->idle.unknown_seq = q->idle.quiet_since_ns =
		q->idle.quiet_total = 0;
	store_relaxed(&q->idle.mark_each, 0u);
	q->published.total = 0;
	q->issue.retry_ns = 0;
	q->issue.n_asked = 0;
	q->issue.held_since_ns = 0;
	store_relaxed(&q->error, 0);
	store_relaxed(&q->life.closing, 0u);
}

static void count_latency(struct sched *s, const struct sched_queue *q, int by) REQUIRES(s->lock)
{
	if (q->class_id == GBPF_CLASS_LATENCY) {
		(void)add_relaxed(&s->latency_queues, (uint32_t)by);
	}
}

struct sched_queue *sched_queue_open(struct sched *s, void *dev_queue, uint32_t gpu,
				     int32_t priority)
{
	struct sched_queue *q = NULL;

	if (gpu >= PROTO_MAX_GPUS || load_relaxed(&s->forked)) {
		return NULL;
	}
	lock_take(&s->lock);
	if (s->table.n_open < PROTO_MAX_QUEUES) {
		q = take_entry(s);
	}
	if (q) {
		s->table.n_open++;
		reset_entry(q, dev_queue, gpu, priority);
	}
	lock_release(&s->lock);
	if (!q) {
		return NULL;
	}
	sched_hook_queue_create(q);
	lock_take(&s->lock);
	count_latency(s, q, 1);
	store_seqcst(&q->life.live, 1u);
	sched_update_active_locked(s);
	lock_release(&s->lock);
	return q;
}

uint32_t sched_queue_sm_percent(const struct sched_queue *q)
{
	return q->sm_percent;
}

void sched_queue_close(struct sched_queue *q)
{
	struct sched *s = q->s;

	if (load_relaxed(&s->forked)) {
		return; /* the queue is the parent's, and a thread of the parent may have held its
			   locks */
	}
	while (load_acquire(&q->pending)) {
		(void)sched_drain(s, q);
		(void)sched_run_try_end(
			q); /* ends a run that is through: the agent may have exited */
	}
	store_seqcst(&q->life.closing, 1u);
	for (unsigned round = 0; load_seqcst(&q->life.users); round++) {
		clock_sleep_ns(round < 100 ? 5000 : 200000);
	}
	sched_grant_settle(q);
	sched_hook_queue_destroy(q, SCHED_ACC_COUNT(sched_tally_sum(&q->total)));
	sched_marks_drop(q);
	lock_take(&s->lock);
	sched_stats_publish_queue(s, q);
	count_latency(s, q, -1);
	store_seqcst(&q->life.live, 0u);
	q->dev_queue = NULL;
	q->next_free = s->table.free;
	s->table.free = q;
	s->table.n_open--;
	sched_update_active_locked(s);
	lock_release(&s->lock);
}

void sched_set_class(struct sched *s, uint32_t class_id, uint32_t weight)
{
	if (class_id > GBPF_CLASS_BATCH) {
		return;
	}
	lock_take(&s->lock);
	store_relaxed(&s->class_id, class_id);
	store_relaxed(&s->weight, weight);
	sched_queues_each (s, q) {
		if (load_relaxed(&q->life.live) && !q->class_fixed) {
			count_latency(s, q, -1);
			store_relaxed(&q->class_id, class_id);
			count_latency(s, q, 1);
		}
	}
	sched_update_active_locked(s);
	lock_release(&s->lock);
}

void sched_set_uid(struct sched *s, uint32_t uid)
{
	store_relaxed(&s->uid, uid);
}

void sched_set_vgpu(struct sched *s, uint32_t place)
{
	store_relaxed(&s->vgpu, place);
}

void sched_set_group(struct sched *s, uint32_t number)
{
	store_relaxed(&s->group, number);
}

const uint8_t *sched_queue_touched(const struct sched_queue *q)
{
	return &q->s->table.touched[q->index];
}

bool sched_any_touched(const struct sched *s)
{
	uint32_t n = load_acquire(&s->table.n_queues);

	for (uint32_t i = 0; i < n; i++) {
		if (load_relaxed(&s->table.touched[i])) {
			return true;
		}
	}
	return false;
}

static void drained(struct sched_queue *q, uint64_t now)
{
	uint8_t *touched = &q->s->table.touched[q->index];
	uint64_t left, entered;

	if (!load_relaxed(touched)) {
		return;
	}
	(void)xchg_acqrel(touched, (uint8_t)0); /* before `left` is read: a launch that is counted
						   there later sets it again */
	left = sched_tally_sum(&q->left);
	entered = load_seqcst(&q->entered);
	if (entered && left == entered && load_relaxed(&q->idle.sync_seq) != entered) {
		store_relaxed(&q->idle.sync_ns, now);
		store_release(&q->idle.sync_seq, entered);
		sched_request_idle(&q->s->req[load_relaxed(&q->gpu)], now);
		sched_stat_add(q->s, syncs, 1u);
		sched_grant_drained(q, now);
	}
	if (load_relaxed(&q->marks.head) != load_relaxed(&q->marks.tail) && sched_queue_use(q)) {
		(void)sched_retire_reached(q);
		sched_queue_unuse(q);
	}
}

void sched_synced(struct sched *s, struct sched_queue *only)
{
	uint64_t now;

	if (sched_idle(s)) {
		return;
	}
	now = clock_fast_ns();
	if (only) {
		drained(only, now);
		sched_request_synced(s, load_relaxed(&only->gpu), now);
		return;
	}
	sched_queues_each (s, q) {
		if (load_relaxed(&q->life.live)) {
			drained(q, now);
		}
	}
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		sched_request_synced(s, g, now);
	}
}
