/* The statistics page: rare events are counted where they happen; the agent sums up what the queues
 * count for every launch. */
#include "sched/sched_int.h"

#include <stdio.h>

#define KERNELS_NS 200000000u /* period of publishing the kernels */
#define NS_PER_SECOND 1000000000u

void sched_stat_max(uint64_t *word, uint64_t v)
{
	uint64_t seen = load_relaxed(word);

	while (v > seen && !cas_acqrel(word, &seen, v)) {
	}
}

void sched_stats_count_kind(struct sched_queue *q, uint32_t kind, uint64_t bytes)
{
	if (kind == GBPF_KIND_COPY || kind == GBPF_KIND_MEMSET || kind == GBPF_KIND_GRAPH) {
		sched_tally_add(&q->kinds.n[kind - GBPF_KIND_COPY], 1);
		sched_tally_add(&q->kinds.bytes, kind == GBPF_KIND_GRAPH ? 0 : bytes);
	}
}

void sched_copied(struct sched *s, bool up, uint64_t bytes)
{
	if (up) {
		sched_stat_add(s, copy_up_bytes, bytes);
	} else {
		sched_stat_add(s, copy_down_bytes, bytes);
	}
}

void sched_copied_in_pieces(struct sched *s, uint64_t bytes)
{
	sched_stat_add(s, copy_pipelined_bytes, bytes);
}

void sched_copied_directly(struct sched *s, uint64_t bytes)
{
	sched_stat_add(s, copies_direct, 1u);
	sched_stat_add(s, copy_direct_bytes, bytes);
}

void sched_moved(struct sched *s, bool out, uint64_t bytes)
{
	if (out) {
		sched_stat_add(s, mem_out_bytes, bytes);
	} else {
		sched_stat_add(s, mem_back_bytes, bytes);
	}
}

void sched_used_in_place(struct sched *s)
{
	sched_stat_add(s, mem_in_place, 1u);
}

/* Returns by how much the sum has grown. */
static uint64_t publish_sum(struct sched_queue *q, const struct sched_tally *t, uint64_t *published,
			    size_t field)
{
	uint64_t sum = sched_tally_sum(t), more = sum - *published;
	struct policy_reader *pin;

	if (!more) {
		return 0;
	}
	*published = sum;
	pin = policy_read_enter();
	(void)add_relaxed((uint64_t *)(void *)((char *)load_acquire(&q->s->policy.stats) + field),
			  more);
	policy_read_leave(pin);
	return more;
}

static void publish_kinds(struct sched_queue *q)
{
	static const size_t fields[] = { offsetof(struct proto_stats, copies),
					 offsetof(struct proto_stats, memsets),
					 offsetof(struct proto_stats, graphs) };

	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
		uint64_t more = publish_sum(q, &q->kinds.n[i], &q->published.kinds[i], fields[i]);

		if (i == 0 && more) {
			sched_stat_add(q->s, gpu[q->gpu].copies, more);
		}
	}
	(void)publish_sum(q, &q->kinds.bytes, &q->published.bytes,
			  offsetof(struct proto_stats, bytes));
}

/* SCHED_ACC of all launches, those by grant included. These are on their way to the accounts at any
 * time: their count, or their time, may be seen in neither. */
static uint64_t total_of(const struct sched_queue *q)
{
	uint64_t total = sched_tally_sum(&q->total);

	return total + SCHED_ACC(load_relaxed(&q->grant.n), load_relaxed(&q->grant.ns));
}

static void publish_threads(struct sched_queue *q)
{
	uint64_t threads = sched_tally_sum(&q->threads);

	threads += load_relaxed(&q->grant.threads);
	if ((int64_t)(threads - q->published.threads) > 0) {
		sched_stat_add(q->s, threads, threads - q->published.threads);
		q->published.threads = threads;
	}
}

void sched_stats_publish_queue(struct sched *s, struct sched_queue *q)
{
	uint64_t taken = load_relaxed(&q->grant.taken), total = total_of(q);
	uint32_t n = SCHED_ACC_COUNT(total - q->published.total);
	int64_t granted = (int64_t)(taken - q->published.taken);

	publish_threads(q);
	publish_kinds(q); /* counted behind the driver's call: the launch may be shown already */
	if ((int32_t)(n << 8) <= 0) { /* 24 bits with a sign */
		return;
	}
	q->published.total = total;
	granted = MIN(MAX(granted, (int64_t)0), (int64_t)n);
	q->published.taken += (uint64_t)granted;
	sched_stat_add(s, launches, (uint64_t)n);
	sched_stat_add(s, gpu[q->gpu].launches, (uint64_t)n);
	sched_stat_add(s, submit_calls, n - (uint64_t)granted);
}

/* Passes on the lines that programs have printed. Returns ns until the next call, UINT64_MAX if no
 * line waits. Only the agent thread replaces versions, so it needs no read-side section. */
static uint64_t pass_prints(struct sched *s, uint64_t now)
{
	char line[EBPF_PRINT_TEXT], text[EBPF_PRINT_TEXT + 80];
	uint64_t version, dropped;
	bool waits;

	while (policy_take_print(&s->policy, now, line, &version, &dropped, &waits)) {
		int n = snprintf(text, sizeof(text), "version %llu: %s",
				 (unsigned long long)version, line);

		if (dropped && n > 0) {
			snprintf(text + n, sizeof(text) - (size_t)n, " (%llu lines left out)",
				 (unsigned long long)dropped);
		}
		if (s->cfg.note) {
			s->cfg.note(s->cfg.arg, "print", text);
		}
	}
	return waits ? NS_PER_SECOND - now % NS_PER_SECOND : UINT64_MAX;
}

static uint64_t publish_kernels(struct sched *s, uint64_t now)
{
	if (now - s->agent.last_kernels_ns <= KERNELS_NS) {
		return s->agent.last_kernels_ns + KERNELS_NS + 1 - now;
	}
	s->agent.last_kernels_ns = now;
	sched_kernels_publish(
		s, load_acquire(&s->policy.stats)); /* only this thread replaces the page */
	return UINT64_MAX;
}

/* Pages that were set stay mapped, so an older one may be written. */
void sched_publish_kernels(struct sched *s)
{
	sched_kernels_publish(s, load_acquire(&s->policy.stats));
}

uint64_t sched_inflight(const struct sched *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		sum += sched_gpu_inflight(&s->gpu[i]);
	}
	return sum;
}

uint64_t sched_stats_publish(struct sched *s, uint64_t now)
{
	uint64_t inflight = sched_inflight(s), prints, kernels;
	struct policy_reader *pin;
	struct proto_stats *st;

	lock_take(&s->lock);
	sched_queues_each (s, q) {
		if (load_relaxed(&q->life.live)) {
			sched_stats_publish_queue(s, q);
		}
	}
	lock_release(&s->lock);
	sched_stat_add(s, submit_calls, xchg_acqrel(&s->submit_calls, 0u));
	pin = policy_read_enter();
	st = load_acquire(&s->policy.stats);
	store_relaxed(&st->inflight, (uint64_t)SCHED_ACC_COUNT(inflight));
	store_relaxed(&st->inflight_ns, SCHED_ACC_NS(inflight));
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		inflight = sched_gpu_inflight(&s->gpu[i]);
		store_relaxed(&st->gpu[i].inflight, (uint64_t)SCHED_ACC_COUNT(inflight));
		store_relaxed(&st->gpu[i].inflight_ns, SCHED_ACC_NS(inflight));
	}
	policy_publish_notes(&s->policy, st);
	policy_read_leave(pin);
	prints = pass_prints(s, now);
	kernels = publish_kernels(s, now);
	return MIN(prints, kernels);
}
