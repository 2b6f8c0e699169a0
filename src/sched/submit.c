/* The launch path. GO costs: one clock read, one version check, the boards, the hook, and one
 * atomic add for a latency queue; no lock, no system call, no allocation. */
#include "sched/sched_int.h"

#include "base/clock.h"

/* In a process with latency queues nobody else may be blocked: the caller may hold a lock that they
 * need. */
static bool must_defer(const struct sched_queue *q)
{
	return load_relaxed(&q->s->latency_queues) &&
	       load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY;
}

static NOINLINE enum sched_answer not_go(struct sched_queue *q, struct sched_launch *l,
					 struct ask *a)
{
	if (a->bad) {
		ask_complain(q, a);
	}
	if (!l->may_hold && a->verdict != GBPF_GO) {
		struct pin_slot *pin = pin_enter();

		store_relaxed(&load_acquire(&q->s->stats)->why, (uint32_t)SCHED_WHY_COLLECTIVE);
		pin_leave(pin);
		a->verdict = GBPF_GO;
	}
	if (a->verdict == GBPF_GO) {
		return SCHED_GO;
	}
	if (must_defer(q)) {
		return SCHED_DEFER;
	}
	hold_caller(q, l, a);
	l->version = a->version;
	return SCHED_GO;
}

/* Calls of this queue wait already: behind them, or, where nothing may be kept, after them. */
static NOINLINE bool behind_deferred(struct sched_queue *q, struct sched_launch *l)
{
	if (l->may_hold) {
		return true;
	}
	(void)sched_flush(q->s, q);
	return false;
}

enum sched_answer sched_submit(struct sched_queue *q, struct sched_launch *l)
{
	struct sched *s = q->s;
	enum sched_answer answer = SCHED_GO;
	struct estimate *e;
	struct pin_slot *pin;
	bool wake = false;
	struct ask a;

	l->version = 0;
	l->held_ns = 0;
	l->sample.event = NULL;
	l->phase = PHASE_PASS;
	if (unlikely(sched_idle(s))) {
		return SCHED_GO;
	}
	e = estimate_of(s, l);
	l->est_ns = e ? load_relaxed(&e->est_ns) : 0;
	l->begin_ns = clock_fast_ns();
	l->phase = PHASE_PLAIN;
	if (unlikely(load_acquire(&q->deferred)) && behind_deferred(q, l)) {
		return SCHED_DEFER;
	}
	pin = pin_enter();
	if (load_relaxed(&q->class_id) == GBPF_CLASS_LATENCY) {
		l->phase = PHASE_LATENCY;
		(void)__atomic_fetch_add(&q->entered, 1u, __ATOMIC_SEQ_CST);
		if (unlikely(load_relaxed(&s->req[q->gpu].synced_ns))) {
			request_gap(&s->req[q->gpu], l->begin_ns);
		}
		if (!load_seqcst(&s->req[q->gpu].open)) {
			wake = request_open(s, q->gpu, l->begin_ns);
		}
	}
	ask_submit_pinned(q, l, l->begin_ns, 0, 0, &a);
	pin_leave(pin);
	l->version = a.version;
	if (unlikely(wake)) {
		wake_agent(s, AGENT_SLOW);
	}
	if (unlikely(a.verdict != GBPF_GO || a.bad)) {
		answer = not_go(q, l, &a);
	}
	if (answer == SCHED_GO) {
		launch_start(q, l, &a);
	}
	return answer;
}
