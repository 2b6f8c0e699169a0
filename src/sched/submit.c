/* The launch path: begins the ticket of a launch (sched.h says what it owns). A plain GO takes no
 * lock, makes no system call and allocates nothing. SCHED_DEFER and SCHED_PREPARE leave through
 * retreat(), which gives back all that the ticket holds. Must not call the driver other than for
 * markers. */
#include "sched/sched_int.h"

#include "base/clock.h"

/* Gives back all that the ticket holds; the accounts have not been touched yet. A launch that is
 * deferred is counted when the agent submits it, and never as part of a request. */
static enum sched_answer retreat(struct sched_ticket *t, enum sched_answer answer)
{
	if (t->holds == SCHED_HOLDS_GATE) {
		sched_gate_leave(t->q);
	} else if (t->holds == SCHED_HOLDS_LOCK) {
		sched_ticket_take_lock(t, t->q);
		lock_release(&t->q->issue.lock);
	}
	t->holds = SCHED_HOLDS_NOTHING;
	t->l->granted_ns = t->l->granted_last_ns = t->l->n_granted =
		0; /* the policy knows of them */
	sched_grant_end(t->q);
	if (t->phase == SCHED_PHASE_LATENCY) {
		sched_tally_add(&t->q->left, 1);
		t->phase = SCHED_PHASE_PLAIN;
	}
	return answer;
}

static void enter_gate(struct sched_ticket *t)
{
	sched_gate_enter(t->q);
	t->holds = SCHED_HOLDS_GATE;
}

static void leave_gate(struct sched_ticket *t)
{
	sched_gate_leave(t->q);
	t->holds = SCHED_HOLDS_NOTHING;
}

/* In a process with latency queues a launch of another class is deferred instead of held: its
 * thread may hold a lock that a latency thread needs. And a launch that would wait for a resumable
 * run is deferred behind it. */
static bool must_defer(const struct sched_queue *q)
{
	return (load_relaxed(&q->s->latency_queues) &&
		load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY) ||
	       load_relaxed(&q->pending);
}

/* The launch must not be deferred: drains what is queued ahead of it, then takes the issue lock.
 * `draining` keeps other launches from joining the run meanwhile. */
static void drain_and_lock(struct sched_ticket *t)
{
	struct sched_queue *q = t->q;

	leave_gate(t);
	(void)add_seqcst(&q->run.draining, 1u);
	for (;;) {
		sched_queue_drain(q);
		lock_take(&q->issue.lock);
		if (sched_run_end_if_done(q)) {
			break;
		}
		lock_release(&q->issue.lock);
	}
	(void)sub_acqrel(&q->run.draining, 1u);
	sched_ticket_keep_lock(t, q);
}

/* The queue has deferred calls or an unfinished run; the ticket is at the gate. Returns true if the
 * launch must be deferred behind them. *ret_run_only: it may go at block level only. */
static NOINLINE bool behind(struct sched_ticket *t, bool *ret_run_only)
{
	struct sched_queue *q = t->q;

	if (!sched_fifo_count(q) && sched_run_try_end(q)) {
		return load_acquire(&q->pending) && behind(t, ret_run_only);
	}
	if (!t->l->may_hold) {
		drain_and_lock(t);
		return false;
	}
	if (!sched_fifo_count(q) && t->l->block_ok) {
		*ret_run_only = true;
		return false;
	}
	return true;
}

/* Carries out the policy's HOLD or DEFER: blocks the caller, outside the gate, until the launch may
 * go. Returns true at the gate again, false if the launch must be deferred instead. */
static bool held(struct sched_ticket *t, struct sched_decision *a, bool *ret_run_only)
{
	struct sched_queue *q = t->q;

	leave_gate(t);
	if (must_defer(q)) {
		return false;
	}
	sched_hold_caller(q, t->l, a);
	t->l->version = a->version;
	enter_gate(t);
	return !load_acquire(&q->pending) || !behind(t, ret_run_only);
}

/* Puts the launch into the queue's run, under the issue lock. If no run can begin now, the launch
 * goes as it is, under the lock all the same. */
static enum sched_answer into_run(struct sched_ticket *t, const struct sched_decision *a)
{
	struct sched_queue *q = t->q;

	leave_gate(t);
	lock_take(&q->issue.lock);
	if (sched_fifo_count(q) || (sched_run_here(q) && !sched_run_has_room(q))) {
		sched_ticket_keep_lock(t, q);
		return retreat(t, SCHED_DEFER);
	}
	if (sched_run_begin(q)) {
		sched_run_add(q, t->l, a);
	}
	sched_ticket_keep_lock(t, q);
	sched_launch_start(t, a);
	return t->l->level == GBPF_LEVEL_BLOCK ? SCHED_GO_BLOCK : SCHED_GO;
}

/* Derives the duration of one block of a launch of which it is known how many blocks run at once.
 */
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
static NOINLINE enum sched_answer decide(struct sched_ticket *t, struct sched_decision *a,
					 bool run_only)
{
	struct sched_queue *q = t->q;
	struct sched_launch *l = t->l;

	sched_grant_end(q);
	if (a->fault) {
		sched_decision_report(q, a);
	}
	if (!l->may_hold && a->verdict != GBPF_GO) {
		struct policy_reader *pin = policy_read_enter();

		store_relaxed(&load_acquire(&q->s->policy.stats)->why,
			      (uint32_t)PROTO_WHY_COLLECTIVE);
		policy_read_leave(pin);
		a->verdict = GBPF_GO;
	}
	if (a->verdict != GBPF_GO && !held(t, a, &run_only)) {
		return retreat(t, SCHED_DEFER);
	}
	if (!run_only && l->may_hold && t->phase != SCHED_PHASE_LATENCY && sched_queue_crowded(q)) {
		return retreat(t, SCHED_DEFER);
	}
	if (sched_run_allowed(q, l, a)) {
		return l->unprepared ? retreat(t, SCHED_PREPARE) : into_run(t, a);
	}
	if (run_only) {
		return retreat(t, SCHED_DEFER);
	}
	sched_launch_start(t, a);
	sched_grant_give(q, a); /* behind the account of this launch, see make_time() */
	return SCHED_GO;
}

enum sched_answer sched_ticket_begin(struct sched_ticket *t, struct sched_queue *q,
				     struct sched_launch *l)
{
	struct sched *s = q->s;
	bool wake = false, run_only = false;
	struct sched_estimate *e;
	struct policy_reader *pin;
	struct sched_decision a;

	t->q = q;
	t->l = l;
	t->sample.event = NULL;
	t->phase = SCHED_PHASE_PLAIN;
	t->holds = SCHED_HOLDS_NOTHING;
	t->collective = 0;
	l->version = 0;
	l->held_ns = 0;
	l->level = l->gate_mode = 0;
	l->granted_ns = l->granted_last_ns = l->n_granted = 0;
	if (unlikely(sched_idle(s)) && !l->behind) {
		(void)sched_group_count(q, l);
		return SCHED_GO;
	}
	e = sched_estimate_of(s, l);
	l->est_ns = e && !sched_counts_bytes(s, l) ? load_relaxed(&e->est_ns) : 0;
	if (l->granted) {
		return sched_grant_take(t) ? SCHED_GO : SCHED_ASK;
	}
	l->begin_ns = clock_fast_ns();
	/* Also for a launch that is deferred: the policy is asked with this when its turn comes. */
	if (unlikely(l->resident)) {
		know_block(l);
	}
	if (unlikely(l->behind)) { /* deferred calls of another queue */
		return retreat(t, SCHED_DEFER);
	}
	enter_gate(t);
	if (unlikely(load_acquire(&q->pending)) && behind(t, &run_only)) {
		return retreat(t, SCHED_DEFER);
	}
	sched_grant_account(q, l);
	pin = policy_read_enter();
	if (load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY) {
		t->phase = SCHED_PHASE_LATENCY;
		(void)add_seqcst(&q->entered, 1u);
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
		if (wake) { /* else the ticket's end does, when the device has the launch */
			sched_wake_agent(s, SCHED_AGENT_NEAR);
		}
		return decide(t, &a, run_only);
	}
	sched_launch_start(t, &a);
	sched_grant_give(q, &a);
	return SCHED_GO;
}
