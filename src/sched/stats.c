/* The statistics page: rare events are counted where they happen; the agent sums up what the queues
 * count for every launch. */
#include "sched/sched_int.h"

#define KERNELS_NS 200000000u /* between two publications of the kernels */

unsigned proto_hist_bucket(uint64_t ns)
{
	unsigned log, bucket;

	if (ns < PROTO_HIST_SUB) {
		return (unsigned)ns;
	}
	log = 63u - (unsigned)__builtin_clzll(ns);
	bucket = (log - 2) * PROTO_HIST_SUB + (unsigned)((ns >> (log - 3)) & (PROTO_HIST_SUB - 1));
	return MIN(bucket, PROTO_HIST_BUCKETS - 1);
}

uint64_t proto_hist_floor(unsigned bucket)
{
	unsigned log = bucket / PROTO_HIST_SUB + 2;

	if (bucket < PROTO_HIST_SUB) {
		return bucket;
	}
	return ((uint64_t)PROTO_HIST_SUB + bucket % PROTO_HIST_SUB) << (log - 3);
}

void sched_stat_max(uint64_t *word, uint64_t v)
{
	uint64_t seen = load_relaxed(word);

	while (v > seen && !cas_acqrel(word, &seen, v)) {
	}
}

void sched_stats_count_kind(struct sched_queue *q, uint32_t kind, uint64_t bytes)
{
	struct policy_reader *pin = policy_read_enter();
	struct proto_stats *st = load_acquire(&q->s->stats);
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
	policy_read_leave(pin);
}

void sched_stats_publish_queue(struct sched_queue *q)
{
	uint64_t total = sched_tally_sum(&q->total), n = SCHED_ACC_COUNT(total - q->published);
	uint64_t threads = sched_tally_sum(&q->threads);

	if (threads != q->published_threads) {
		sched_stat_add(q->s, threads, threads - q->published_threads);
		q->published_threads = threads;
	}
	q->published = total;
	if (n) {
		sched_stat_add(q->s, launches, n);
		sched_stat_add(q->s, submit_calls, n);
	}
}

/* Versions come and go on this thread only. The version is taken away while the notes change, so
 * that a reader does not take them for those of another. */
static void policy_publish_notes(struct sched *s, struct proto_stats *st)
{
	uint64_t version = load_relaxed(&st->version_in_use);
	const struct policy_version *p = NULL;

	_Static_assert(PROTO_NOTES == EBPF_NOTES, "every note has its word");
	for (uint32_t i = 0; version && i < MAX_PREPARED; i++) {
		p = load_relaxed(&s->prepared[i].version) == version ? &s->prepared[i] : p;
	}
	if (load_relaxed(&st->notes_version) != (p ? version : 0)) {
		store_relaxed(&st->notes_version, UINT64_C(0));
		fence_release();
	}
	for (uint32_t i = 0; p && i < PROTO_NOTES; i++) {
		store_relaxed(&st->notes[i], load_relaxed(&p->policy.env.notes[i]));
	}
	for (uint32_t i = 0; p && i < POLICY_HOOKS * PROTO_FAILURES; i++) {
		store_relaxed(&st->failures[0][0] + i, load_relaxed(&p->failures[0][0] + i));
	}
	if (p) {
		store_release(&st->notes_version, version);
	}
}

uint64_t sched_stats_publish(struct sched *s, uint64_t now)
{
	uint64_t inflight = sched_tally_sum(&s->inflight);
	struct policy_reader *pin;
	struct proto_stats *st;

	pthread_mutex_lock(&s->lock);
	sched_queues_each(s, q)
	{
		if (load_relaxed(&q->live) && sched_tally_sum(&q->total) != q->published) {
			sched_stats_publish_queue(q);
		}
	}
	pthread_mutex_unlock(&s->lock);
	sched_stat_add(s, submit_calls, xchg_acqrel(&s->submit_calls, 0u));
	pin = policy_read_enter();
	st = load_acquire(&s->stats);
	store_relaxed(&st->inflight, (uint64_t)SCHED_ACC_COUNT(inflight));
	store_relaxed(&st->inflight_ns, SCHED_ACC_NS(inflight));
	policy_publish_notes(s, st);
	policy_read_leave(pin);
	if (now - s->last_kernels_ns <= KERNELS_NS) {
		return s->last_kernels_ns + KERNELS_NS + 1 - now;
	}
	s->last_kernels_ns = now;
	sched_kernels_publish(s, load_acquire(&s->stats)); /* only this thread replaces the page */
	return UINT64_MAX;
}
