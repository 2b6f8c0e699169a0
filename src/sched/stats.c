/* The statistics page: counters of rare things are written where they happen, those of every launch
 * are summed up by the agent from what the queues count anyway. */
#include "sched/sched_int.h"

#define KERNELS_NS 200000000u /* between two publications of the kernels */

unsigned sched_hist_bucket(uint64_t ns)
{
	unsigned log, bucket;

	if (ns < SCHED_HIST_SUB) {
		return (unsigned)ns;
	}
	log = 63u - (unsigned)__builtin_clzll(ns);
	bucket = (log - 2) * SCHED_HIST_SUB + (unsigned)((ns >> (log - 3)) & (SCHED_HIST_SUB - 1));
	return MIN(bucket, SCHED_HIST_BUCKETS - 1);
}

uint64_t sched_hist_floor(unsigned bucket)
{
	unsigned log = bucket / SCHED_HIST_SUB + 2;

	if (bucket < SCHED_HIST_SUB) {
		return bucket;
	}
	return ((uint64_t)SCHED_HIST_SUB + bucket % SCHED_HIST_SUB) << (log - 3);
}

void stat_max(uint64_t *word, uint64_t v)
{
	uint64_t seen = load_relaxed(word);

	while (v > seen && !cas_acqrel(word, &seen, v)) {
	}
}

void stats_count_kind(struct sched_queue *q, uint32_t kind, uint64_t bytes)
{
	struct pin_slot *pin = pin_enter();
	struct sched_stats *st = load_acquire(&q->s->stats);
	uint64_t *word = kind == GBPF_KIND_COPY	    ? &st->copies
			 : kind == GBPF_KIND_MEMSET ? &st->memsets
			 : kind == GBPF_KIND_GRAPH  ? &st->graphs
						    : NULL;

	if (word) {
		(void)add_relaxed(word, 1u);
	}
	if (kind == GBPF_KIND_COPY || kind == GBPF_KIND_MEMSET) {
		(void)add_relaxed(&st->bytes, bytes);
	}
	pin_leave(pin);
}

void stats_publish_queue(struct sched_queue *q)
{
	uint64_t total = tally_sum(&q->total), n = ACC_COUNT(total - q->published);
	uint64_t threads = tally_sum(&q->threads);

	if (threads != q->published_threads) {
		stat_add(q->s, threads, threads - q->published_threads);
		q->published_threads = threads;
	}
	q->published = total;
	if (n) {
		stat_add(q->s, launches, n);
		stat_add(q->s, submit_calls, n);
	}
}

/* Versions come and go on this thread only. The version is taken away while the notes change, so
 * that a reader does not take them for those of another. */
static void publish_notes(struct sched *s, struct sched_stats *st)
{
	uint64_t version = load_relaxed(&st->version_in_use);
	const struct prepared *p = NULL;

	_Static_assert(SCHED_NOTES == EBPF_NOTES, "every note has its word");
	for (uint32_t i = 0; version && i < MAX_PREPARED; i++) {
		p = load_relaxed(&s->prepared[i].version) == version ? &s->prepared[i] : p;
	}
	if (load_relaxed(&st->notes_version) != (p ? version : 0)) {
		store_relaxed(&st->notes_version, UINT64_C(0));
		fence_release();
	}
	for (uint32_t i = 0; p && i < SCHED_NOTES; i++) {
		store_relaxed(&st->notes[i], load_relaxed(&p->policy.env.notes[i]));
	}
	for (uint32_t i = 0; p && i < SCHED_HOOKS * SCHED_FAILURES; i++) {
		store_relaxed(&st->failures[0][0] + i, load_relaxed(&p->failures[0][0] + i));
	}
	if (p) {
		store_release(&st->notes_version, version);
	}
}

uint64_t stats_publish(struct sched *s, uint64_t now)
{
	uint64_t inflight = tally_sum(&s->inflight);
	struct pin_slot *pin;
	struct sched_stats *st;

	pthread_mutex_lock(&s->lock);
	queues_each(s, q)
	{
		if (load_relaxed(&q->live) && tally_sum(&q->total) != q->published) {
			stats_publish_queue(q);
		}
	}
	pthread_mutex_unlock(&s->lock);
	stat_add(s, submit_calls, xchg_acqrel(&s->submit_calls, 0u));
	pin = pin_enter();
	st = load_acquire(&s->stats);
	store_relaxed(&st->inflight, (uint64_t)ACC_COUNT(inflight));
	store_relaxed(&st->inflight_ns, ACC_NS(inflight));
	publish_notes(s, st);
	pin_leave(pin);
	if (now - s->last_kernels_ns <= KERNELS_NS) {
		return s->last_kernels_ns + KERNELS_NS + 1 - now;
	}
	s->last_kernels_ns = now;
	kernels_publish(s, load_acquire(&s->stats)); /* only this thread replaces the page */
	return UINT64_MAX;
}
