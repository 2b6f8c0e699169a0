/* Grants (grant_int.h). A granted launch skips most of the launch path. Why that is right:
 *
 * - It is at the gate of its queue while it goes to the driver, like every plain launch, and looks
 *   at `pending` there: so it never passes a deferred call or missing blocks, and a run that begins
 *   waits for it or is seen by it (sched/run_int.h).
 * - Its account is added to those of the next launch that is asked about, before the policy is, or
 *   when a synchronization shows that a request's launches have ended. At most GBPF_GRANT_MAX
 *   launches, each learned to take less than 100 us, are in flight unseen by others on each queue.
 *   They have no markers; those of launches that are asked about cover them.
 * - Only the thread that owns the queue's accounts (sched/tally.h) has grants.
 *
 * On a queue that is not of class latency:
 * - A request of another program cannot be delayed by it for longer than by that work: with the
 *   first board of a latency program, which comes before that program's first launch, grants end.
 * - Durations are measured of launches that are asked about. It counts towards the interval between
 *   measurements, and is not granted when one is due.
 * - The agent is awake: it looks after the launches that are asked about, one in each grant.
 *
 * On a latency queue:
 * - It is part of the request in which the grant was given, which is open: it counts in `entered`
 *   before it looks whether that is so, as any launch of a request does. If the request has closed
 *   in between, the policy is asked about it, and it opens the next request.
 * - A launch behind a pause is asked about, since the pause is measured there.
 * - While the request is open the agent looks after it, so it need not be woken.
 * - Launches are measured as rarely as without grants, and one that is due is asked about.
 * - The policy is asked nothing while other latency programs begin and end requests. It has granted
 *   the launches nevertheless. */
#include "sched/sched_int.h"

#include "base/clock.h"
#include "policy/hook.h"

static inline bool is_owner(const struct sched_queue *q)
{
	return load_relaxed(&q->total.owner) == policy_reader_self && policy_reader_self;
}

/* Of a latency queue: the request in which the grant was given goes on. */
static bool request_goes_on(const struct sched_queue *q)
{
	const struct sched_request *r = &q->s->req[q->gpu];

	return load_relaxed(&q->grant.opened_ns) == load_relaxed(&r->opened_ns) &&
	       load_relaxed(&r->open) == SCHED_REQUEST_OPEN && !load_relaxed(&r->idle_ns) &&
	       !load_relaxed(&q->idle.mark_each);
}

static bool granted_in_request(const struct sched_queue *q, const struct sched_estimate *e)
{
	uint64_t est_ns = load_relaxed(&e->est_ns);

	return est_ns && est_ns < SCHED_GRANT_EST_NS && !sched_estimate_is_new(e) &&
	       request_goes_on(q) && !sched_latency_due(q);
}

bool sched_granted(const struct sched_queue *q, const struct sched_launch *l)
{
	struct sched *s = q->s;
	const struct sched_estimate *e;

	if (!load_relaxed(&q->grant.left) || !l->may_hold || !is_owner(q) ||
	    sched_communicates(l) || load_relaxed(&q->pending)) {
		return false;
	}
	e = sched_estimate_of(s, l);
	if (!e) {
		return false;
	}
	if (load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY) {
		return granted_in_request(q, e);
	}
	return !load_relaxed(&q->grant.opened_ns) && !load_relaxed(&s->boards.n) &&
	       !load_relaxed(&s->latency_queues) &&
	       load_relaxed(&s->agent.asleep) != SCHED_AGENT_ASLEEP && load_relaxed(&e->left) &&
	       load_relaxed(&e->seen) >= SCHED_FIRST_SAMPLES &&
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

/* Counts the launch in its request. Returns false if that has closed. */
static bool join_request(struct sched_ticket *t)
{
	struct sched_queue *q = t->q;

	(void)add_seqcst(&q->entered, 1u);
	/* Pairs with request_close(): it sees the launch, or this load sees the request closed. */
	if (unlikely(load_seqcst(&q->s->req[q->gpu].open) != SCHED_REQUEST_OPEN)) {
		sched_tally_add(&q->left, 1);
		return false;
	}
	t->phase = SCHED_PHASE_GRANTED_IN_REQUEST;
	store_relaxed(&q->grant.last_ns, clock_fast_ns());
	return true;
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
	    unlikely(!in_force(q, load_relaxed(&g->version))) ||
	    (load_relaxed(&g->opened_ns) && !join_request(t))) {
		sched_gate_leave(q);
		return refuse(t);
	}
	store_relaxed(&g->left, left - 1);
	store_relaxed(&g->n, load_relaxed(&g->n) + 1);
	store_relaxed(&g->taken, load_relaxed(&g->taken) + 1);
	store_relaxed(&g->ns, load_relaxed(&g->ns) + l->est_ns);
	store_relaxed(&g->threads, load_relaxed(&g->threads) + l->blocks * l->threads);
	t->phase = t->phase == SCHED_PHASE_PLAIN ? SCHED_PHASE_GRANTED : t->phase;
	t->holds = SCHED_HOLDS_GATE;
	return true;
}

void sched_grant_done(struct sched_ticket *t, bool ok)
{
	struct sched_grant *g = &t->q->grant;
	struct sched_launch *l = t->l;

	if (t->phase == SCHED_PHASE_GRANTED_IN_REQUEST) {
		sched_tally_add(&t->q->left, 1);
		sched_queue_touch(t->q);
	} else if (likely(ok)) {
		(void)sched_estimate_due(sched_estimate_of(t->q->s, l)); /* counts; none is due */
	}
	if (likely(ok)) {
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

/* Makes time for ns of launches that were not accounted. Until now the GPU may have seemed to be
 * without work: time that was skipped since the grant is theirs, and nothing before it. */
static void make_time(struct sched_queue *q, uint64_t ns, uint64_t now)
{
	struct sched_gpu *gpu = &q->s->gpu[q->gpu];
	uint64_t skipped = load_relaxed(&gpu->skipped_ns) - q->grant.skipped_ns;
	bool idle = !SCHED_ACC_COUNT(sched_gpu_inflight(gpu));

	if (skipped) {
		(void)sub_acqrel(&gpu->charged_to, MIN(skipped, ns));
	}
	if (idle && now > ns) {
		sched_charge_skip(gpu, now - ns);
	}
}

/* Moves the granted launches to the accounts. They leave the grant first, so that a signal handler
 * that launches meanwhile does not account them again. */
static void account(struct sched_queue *q, uint32_t n, uint64_t ns, uint64_t now)
{
	struct sched_grant *g = &q->grant;
	struct sched_gpu *gpu = &q->s->gpu[q->gpu];
	uint64_t acc = SCHED_ACC(n, ns), threads = load_relaxed(&g->threads);

	store_relaxed(&g->n, 0u);
	store_relaxed(&g->ns, (uint64_t)0);
	store_relaxed(&g->threads, (uint64_t)0);
	make_time(q, ns, now);
	sched_tally_add(&gpu->inflight, acc);
	sched_tally_add(&q->total, acc);
	sched_tally_add(&q->threads, threads);
	store_relaxed(&q->unmarked_ns, load_relaxed(&q->unmarked_ns) + ns);
	g->report_n += n;
	g->report_ns += ns;
}

void sched_grant_account(struct sched_queue *q, struct sched_launch *l)
{
	struct sched_grant *g = &q->grant;

	if (!is_owner(q)) {
		return;
	}
	if (load_relaxed(&g->n)) {
		account(q, load_relaxed(&g->n), load_relaxed(&g->ns), l->begin_ns);
	}
	l->n_granted = g->report_n;
	l->granted_ns = g->report_ns;
	l->granted_last_ns = g->report_n && load_relaxed(&g->opened_ns) ? g->last_ns : 0;
	g->report_n = 0;
	g->report_ns = 0;
}

void sched_grant_drained(struct sched_queue *q, uint64_t now)
{
	uint32_t n = load_relaxed(&q->grant.n);

	sched_grant_end(q);
	if (n && is_owner(q) && sched_queue_use(q)) { /* the close accounts them, too */
		account(q, n, load_relaxed(&q->grant.ns), now);
		sched_queue_unuse(q);
		/* The agent may have closed the request before: it retires them. */
		sched_wake_agent(q->s, SCHED_AGENT_ASLEEP);
	}
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
	bool latency = load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY;

	if (!a->grant || !in_force(q, a->version)) {
		sched_grant_end(q);
	} else if (is_owner(q)) {
		store_relaxed(&g->left, a->grant);
		store_relaxed(&g->version, a->version);
		store_relaxed(&g->opened_ns,
			      latency ? load_relaxed(&q->s->req[q->gpu].opened_ns) : 0);
		g->skipped_ns = load_relaxed(&q->s->gpu[q->gpu].skipped_ns);
	}
}

void sched_grant_settle(struct sched_queue *q)
{
	store_relaxed(&q->grant.left, 0u);
	if (load_relaxed(&q->grant.n)) {
		account(q, load_relaxed(&q->grant.n), load_relaxed(&q->grant.ns), clock_now_ns());
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
	store_relaxed(&q->grant.opened_ns, (uint64_t)0);
	q->grant.skipped_ns = q->grant.last_ns = q->grant.report_ns = 0;
	q->grant.report_n = 0;
	q->published.taken = 0;
}
