/* The launch path: begins the ticket of a launch (sched.h says what it owns). A plain GO takes no
 * lock, makes no system call and allocates nothing. SCHED_DEFER and SCHED_PREPARE leave through
 * retreat(), which gives back all that the ticket holds. Must not call the driver other than for
 * markers. */
#include "sched/sched_int.h"

#include "base/clock.h"

/* Gives back all that the ticket holds; the accounts have not been touched yet. A launch that is
 * deferred is counted when the agent submits it, and never as part of a request. */
static bool must_defer(const struct sched_queue *q)
{
	return (load_relaxed(&q->s->latency_queues) &&
		load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY) ||
	       load_relaxed(&q->deferred);
}

/* The launch must not be deferred: drains what is queued ahead of it, then takes the issue lock.
 * `draining` keeps other launches from joining the run meanwhile. */
static void drain_and_lock(struct sched_queue *q, struct sched_launch *l)
{
	sched_gate_leave(q);
	(void)__atomic_fetch_add(&q->draining, 1u, __ATOMIC_SEQ_CST);
	for (;;) {
		sched_queue_drain(q);
		pthread_mutex_lock(&q->issue_lock);
		if (sched_run_end_if_done(q)) {
			break;
		}
		pthread_mutex_unlock(&q->issue_lock);
	}
	(void)sub_acqrel(&q->draining, 1u);
	l->owns = true;
}

/* The queue has deferred calls or an unfinished run; the ticket is at the gate. Returns true if the
 * launch must be deferred behind them. *ret_run_only: it may go at block level only. */
static NOINLINE bool behind(struct sched_queue *q, struct sched_launch *l, bool *ret_chain)
{
	if (!sched_fifo_count(q) && sched_run_try_end(q)) {
		return load_acquire(&q->deferred) && behind(q, l, ret_chain);
	}
	if (!l->may_hold) {
		drain_and_lock(q, l);
		return false;
	}
	if (!sched_fifo_count(q) && l->block_ok) {
		*ret_chain = true;
		return false;
	}
	sched_gate_leave(q);
	return true;
}

/* Carries out the policy's HOLD or DEFER: blocks the caller, outside the gate, until the launch may
 * go. Returns true at the gate again, false if the launch must be deferred instead. */
static bool held(struct sched_queue *q, struct sched_launch *l, struct sched_decision *a,
		 bool *ret_chain)
{
	sched_gate_leave(q);
	if (must_defer(q)) {
		return false;
	}
	sched_hold_caller(q, l, a);
	l->version = a->version;
	gate_enter(q);
	return !load_acquire(&q->deferred) || !behind(q, l, ret_chain);
}

/* Puts the launch into the queue's run, under the issue lock. If no run can begin now, the launch
 * goes as it is, under the lock all the same. */
static enum sched_answer into_run(struct sched_queue *q, struct sched_launch *l,
				  const struct sched_decision *a)
{
	sched_gate_leave(q);
	pthread_mutex_lock(&q->issue_lock);
	if (sched_fifo_count(q) || (sched_run_here(q) && !sched_run_has_room(q))) {
		pthread_mutex_unlock(&q->issue_lock);
		return SCHED_DEFER;
	}
	if (sched_run_begin(q)) {
		sched_run_add(q, l, a);
	} /* else plain, and alone all the same */
	l->owns = true;
	sched_launch_start(q, l, a);
	return SCHED_GO;
}

/* Derives the duration of one block of a launch that can go at block level. */
static NOINLINE void know_block(struct sched_launch *l)
{
	uint64_t at_once = MIN((uint64_t)l->resident, l->blocks);

	l->block_ns =
		l->blocks ? (uint64_t)((double)l->est_ns * (double)at_once / (double)l->blocks) : 0;
	if (l->kernel && l->block_ns) {
		store_relaxed(&l->kernel->block_ns, l->block_ns);
	}
}

/* Everything but GO at once: level, hold, complaint. */
static enum sched_answer uncounted(struct sched_queue *q, struct sched_launch *l)
{
	if (l->phase == PHASE_LATENCY) {
		(void)__atomic_fetch_add(&q->left, 1u, __ATOMIC_SEQ_CST);
		l->phase = PHASE_PLAIN;
	}
	return SCHED_DEFER;
}

/* Everything but GO at once: level, hold, complaint. */
static NOINLINE enum sched_answer decide(struct sched_queue *q, struct sched_launch *l,
					 struct sched_decision *a, bool chain)
{
	if (a->fault) {
		sched_decision_report(q, a);
	}
	if (!l->may_hold && a->verdict != GBPF_GO) {
		struct policy_reader *pin = policy_read_enter();

		store_relaxed(&load_acquire(&q->s->stats)->why, (uint32_t)PROTO_WHY_COLLECTIVE);
		policy_read_leave(pin);
		a->verdict = GBPF_GO;
	}
	if (a->verdict != GBPF_GO && !held(q, l, a, &chain)) {
		return uncounted(q, l);
	}
	if (!chain && l->may_hold && l->phase != PHASE_LATENCY && sched_queue_crowded(q)) {
		sched_gate_leave(q);
		return SCHED_DEFER;
	}
	if (sched_run_allowed(q, l, a)) {
		return into_run(q, l, a);
	}
	if (chain) {
		sched_gate_leave(q);
		return uncounted(q, l);
	}
	sched_launch_start(q, l, a);
	return SCHED_GO;
}

void sched_defer_unasked(struct sched_queue *q, struct sched_launch *l)
{
	struct sched_estimate *e = sched_estimate_of(q->s, l);

	l->est_ns = e ? load_relaxed(&e->est_ns) : 0;
	l->begin_ns = clock_fast_ns();
	l->phase = PHASE_PLAIN;
	if (l->block_ok) {
		know_block(l);
	}
}

enum sched_answer sched_submit(struct sched_queue *q, struct sched_launch *l)
{
	struct sched *s = q->s;
	bool wake = false, chain = false;
	struct sched_estimate *e;
	struct policy_reader *pin;
	struct sched_decision a;

	l->version = 0;
	l->held_ns = 0;
	l->sample.event = NULL;
	l->phase = PHASE_PASS;
	l->level = 0;
	l->owns = false;
	if (unlikely(sched_idle(s))) {
		return SCHED_GO;
	}
	e = sched_estimate_of(s, l);
	l->est_ns = e ? load_relaxed(&e->est_ns) : 0;
	l->begin_ns = clock_fast_ns();
	l->phase = PHASE_PLAIN;
	gate_enter(q);
	if (unlikely(load_acquire(&q->deferred)) && behind(q, l, &chain)) {
		return SCHED_DEFER;
	}
	if (unlikely(l->block_ok)) {
		know_block(l);
	}
	pin = policy_read_enter();
	if (load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY) {
		l->phase = PHASE_LATENCY;
		(void)__atomic_fetch_add(&q->entered, 1u, __ATOMIC_SEQ_CST);
		if (unlikely(load_relaxed(&s->req[q->gpu].idle_ns))) {
			sched_request_gap(s, q->gpu, l->begin_ns);
		}
		if (!load_seqcst(&s->req[q->gpu].open)) {
			wake = sched_request_open(s, q->gpu, l->begin_ns);
		}
	}
	sched_decide_inside(q, l, l->begin_ns, 0, 0, &a);
	policy_read_leave(pin);
	l->version = a.version;
	if (unlikely(a.verdict != GBPF_GO || a.fault || l->block_ok || load_relaxed(&s->n_runs))) {
		if (wake) { /* else sched_submitted does, when the device has the launch */
			wake_agent(s, AGENT_NEAR);
		}
		return decide(q, l, &a, chain);
	}
	sched_launch_start(q, l, &a);
	return SCHED_GO;
}
