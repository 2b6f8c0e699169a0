/* Grants (grant_int.h). A granted launch skips most of the launch path. Why that is right:
 *
 * - It is at the gate of its queue while it goes to the driver, like every plain launch, and looks
 *   at `pending` there: so it never passes a deferred call or missing blocks, and a run that begins
 *   waits for it or is seen by it (sched/run_int.h).
 * - Its account is added to those of the next launch that is asked about, before the policy is: at
 *   most GBPF_GRANT_MAX launches, each learned to take less than 100 us, are in flight unseen by
 *   others on each queue. It has no marker; the markers of launches that are asked about cover it.
 * - A request of another program cannot be delayed by it for longer than by that work: with the
 *   first board of a latency program, which comes before that program's first launch, grants end.
 * - Durations are measured of launches that are asked about. It counts towards the interval between
 *   measurements, and is not granted when one is due.
 * - The agent is awake: it looks after the launches that are asked about, one in each grant.
 * - Only the thread that owns the queue's accounts (sched/tally.h) has grants. */
#include "sched/sched_int.h"

#include "policy/hook.h"

static inline bool is_owner(const struct sched_queue *q)
{
	return load_relaxed(&q->total.owner) == policy_reader_self && policy_reader_self;
}

bool sched_granted(const struct sched_queue *q, const struct sched_launch *l)
{
	struct sched *s = q->s;
	const struct sched_estimate *e;

	if (!load_relaxed(&q->grant.left) || !l->may_hold || !is_owner(q) ||
	    sched_communicates(l) || load_relaxed(&q->pending) || load_relaxed(&s->boards.n) ||
	    load_relaxed(&s->latency_queues) ||
	    load_relaxed(&s->agent.asleep) == SCHED_AGENT_ASLEEP) {
		return false;
	}
	e = sched_estimate_of(s, l);
	return e && load_relaxed(&e->left) && load_relaxed(&e->seen) >= SCHED_GRANT_SAMPLES &&
	       load_relaxed(&e->est_ns) < SCHED_GRANT_EST_NS;
}

/* The version is in force. Compared with the directory itself: a newer one need not be prepared
 * here yet. */
static bool in_force(const struct sched_queue *q, uint64_t version)
{
	const struct policy *p = &q->s->policy;
	uint32_t index = load_relaxed(&p->gpu[q->gpu].index);
	struct policy_reader *pin = policy_read_enter();
	bool same = index < PROTO_MAX_GPUS && !policy_is_off(p) &&
		    load_acquire(&load_acquire(&p->dir)->version[index]) == version;

	policy_read_leave(pin);
	return same;
}

static bool refuse(struct sched_ticket *t)
{
	t->l->granted = false;
	sched_grant_end(t->q);
	return false;
}

bool sched_grant_take(struct sched_ticket *t)
{
	struct sched_queue *q = t->q;
	struct sched_grant *g = &q->grant;
	struct sched_launch *l = t->l;
	uint32_t left;

	if (l->behind || !sched_granted(q, l)) {
		return refuse(t);
	}
	sched_gate_enter(q);
	left = load_relaxed(&g->left); /* a signal handler's launch may have taken the last one */
	if (unlikely(!left) || unlikely(load_acquire(&q->pending)) ||
	    unlikely(!in_force(q, load_relaxed(&g->version)))) {
		sched_gate_leave(q);
		return refuse(t);
	}
	store_relaxed(&g->left, left - 1);
	store_relaxed(&g->n, load_relaxed(&g->n) + 1);
	store_relaxed(&g->taken, load_relaxed(&g->taken) + 1);
	store_relaxed(&g->ns, load_relaxed(&g->ns) + l->est_ns);
	store_relaxed(&g->threads, load_relaxed(&g->threads) + l->blocks * l->threads);
	t->phase = SCHED_PHASE_GRANTED;
	t->holds = SCHED_HOLDS_GATE;
	return true;
}

void sched_grant_done(struct sched_ticket *t, bool ok)
{
	struct sched_grant *g = &t->q->grant;
	struct sched_launch *l = t->l;

	if (likely(ok)) {
		(void)sched_estimate_due(sched_estimate_of(t->q->s, l)); /* counts; none is due */
		if (l->kernel) {
			sched_kernel_count_granted(l->kernel);
		}
		if (l->kind != GBPF_KIND_KERNEL) {
			sched_stats_count_kind(t->q, l->kind, l->bytes);
		}
		return;
	}
	store_relaxed(&g->taken, load_relaxed(&g->taken) - 1);
	if (load_relaxed(&g->n)) { /* else a launch of a signal handler has accounted it */
		store_relaxed(&g->n, load_relaxed(&g->n) - 1);
		store_relaxed(&g->ns, load_relaxed(&g->ns) - l->est_ns);
		store_relaxed(&g->threads, load_relaxed(&g->threads) - l->blocks * l->threads);
	}
}

/* Moves the granted launches to the accounts. They leave the grant first, so that a signal handler
 * that launches meanwhile does not account them again. Work that began on another queue meanwhile,
 * as if the GPU had been without work, is no reason not to charge them. */
static void account(struct sched_queue *q, uint32_t n, uint64_t ns)
{
	struct sched_grant *g = &q->grant;
	struct sched_gpu *gpu = &q->s->gpu[q->gpu];
	uint64_t to = load_relaxed(&gpu->charged_to);
	uint64_t acc = SCHED_ACC(n, ns), threads = load_relaxed(&g->threads);

	store_relaxed(&g->n, 0u);
	store_relaxed(&g->ns, (uint64_t)0);
	store_relaxed(&g->threads, (uint64_t)0);
	while (to > g->charged_to && !cas_acqrel(&gpu->charged_to, &to, g->charged_to)) {
	}
	sched_tally_add(&gpu->inflight, acc);
	sched_tally_add(&q->total, acc);
	sched_tally_add(&q->threads, threads);
	store_relaxed(&q->unmarked_ns, load_relaxed(&q->unmarked_ns) + ns);
}

void sched_grant_account(struct sched_queue *q, struct sched_launch *l)
{
	struct sched_grant *g = &q->grant;

	if (likely(!load_relaxed(&g->n)) || !is_owner(q)) {
		return;
	}
	l->n_granted = load_relaxed(&g->n);
	l->granted_ns = load_relaxed(&g->ns);
	account(q, l->n_granted, l->granted_ns);
}

void sched_grant_end(struct sched_queue *q)
{
	if (unlikely(load_relaxed(&q->grant.left)) && is_owner(q)) {
		store_relaxed(&q->grant.left, 0u);
	}
}

void sched_grant_give(struct sched_queue *q, const struct sched_decision *a)
{
	struct sched_grant *g = &q->grant;

	if (!a->grant || load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY ||
	    !in_force(q, a->version)) {
		sched_grant_end(q);
	} else if (is_owner(q)) {
		store_relaxed(&g->left, a->grant);
		store_relaxed(&g->version, a->version);
		g->charged_to = load_relaxed(&q->s->gpu[q->gpu].charged_to);
	}
}

void sched_grant_settle(struct sched_queue *q)
{
	store_relaxed(&q->grant.left, 0u);
	if (load_relaxed(&q->grant.n)) {
		account(q, load_relaxed(&q->grant.n), load_relaxed(&q->grant.ns));
	}
}

void sched_grant_reset(struct sched_queue *q)
{
	store_relaxed(&q->grant.left, 0u);
	store_relaxed(&q->grant.n, 0u);
	store_relaxed(&q->grant.ns, (uint64_t)0);
	store_relaxed(&q->grant.threads, (uint64_t)0);
	store_relaxed(&q->grant.version, (uint64_t)0);
	store_relaxed(&q->grant.taken, (uint64_t)0);
	q->grant.charged_to = 0;
	q->published.taken = 0;
}
