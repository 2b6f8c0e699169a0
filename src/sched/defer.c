/* Deferred calls: one FIFO a queue, issued by the agent when the hook says GO, in the order of the
 * queue; `dispatch` ranks the queues. Whoever issues holds the queue's issue_lock from looking at
 * the first call until the driver has it, so the agent and a thread that flushes never swap two
 * calls. Locks are allowed here: this is not the GO path. */
#include "sched/sched_int.h"

#include "base/clock.h"

void sched_defer(struct sched_queue *q, struct sched_call *c)
{
	struct sched *s = q->s;

	c->next = NULL;
	(void)__atomic_fetch_add(&s->deferred, 1u, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&q->fifo_lock);
	*q->last = c;
	q->last = &c->next;
	(void)add_acqrel(&q->deferred, 1u);
	pthread_mutex_unlock(&q->fifo_lock);
	update_active(s);
	stat_add(s, deferred, 1u);
	wake_agent(s, AGENT_SLOW);
}

bool sched_queue_deferred(const struct sched_queue *q)
{
	return load_acquire(&q->deferred) != 0 && !load_relaxed(&q->s->forked);
}

static struct sched_call *first_call(struct sched_queue *q)
{
	struct sched_call *c;

	pthread_mutex_lock(&q->fifo_lock);
	c = q->first;
	pthread_mutex_unlock(&q->fifo_lock);
	return c;
}

static void unlink_first(struct sched_queue *q)
{
	pthread_mutex_lock(&q->fifo_lock);
	q->first = q->first->next;
	if (!q->first) {
		q->last = &q->first;
	}
	pthread_mutex_unlock(&q->fifo_lock);
}

/* Issues the first call; issue_lock is held. */
static void issue(struct sched_queue *q, struct sched_call *c, const struct ask *a)
{
	struct sched *s = q->s;
	int err, none = 0;

	unlink_first(q);
	if (c->is_launch) {
		launch_start(q, &c->launch, a);
	}
	err = c->run(c);
	if (err) {
		__atomic_compare_exchange_n(&q->error, &none, err, 0, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
	}
	if (c->is_launch) {
		sched_submitted(q, &c->launch, err == 0);
	}
	c->free(c);
	q->asked = 0;
	q->retry_ns = 0;
	(void)sub_acqrel(&q->deferred, 1u);
	if (__atomic_sub_fetch(&s->deferred, 1u, __ATOMIC_SEQ_CST) == 0) {
		update_active(s);
	}
}

/* May the first call go now? issue_lock is held. Fills q->retry_ns when not. */
static bool may_issue(struct sched_queue *q, struct sched_call *c, uint64_t now, struct ask *a)
{
	struct sched *s = q->s;
	struct sched_launch *l = &c->launch;
	uint32_t why;

	*a = (struct ask){ .verdict = GBPF_GO };
	if (!c->is_launch || load_relaxed(&s->off)) {
		return true;
	}
	if (now < q->retry_ns) {
		return false;
	}
	ask_submit(q, l, now, since_ns(l->begin_ns, now), q->asked++, a);
	why = hold_why(a, tally_sum(&s->inflight));
	if (a->verdict != GBPF_GO) {
		if (share_left(s, l, l->begin_ns, now)) {
			q->retry_ns = now + (a->verdict == GBPF_DEFER
						     ? MIN(a->hold_ns, (uint64_t)WAIT_CAP_NS)
						     : OPEN_POLL_NS);
			return false;
		}
		share_take(s, l, now);
		why = SCHED_WHY_LIMIT;
	}
	if (a->verdict == GBPF_GO && q->asked > 1) {
		share_given(s);
	}
	l->version = a->version;
	l->held_ns = since_ns(l->begin_ns, now);
	hold_account(q, l, why, l->held_ns);
	return true;
}

/* Issues what may go; issue_lock is held. At most so many, so that other queues get their turn. */
static unsigned issue_some(struct sched_queue *q, unsigned most, bool force)
{
	unsigned n = 0;
	struct sched_call *c;
	struct ask a;

	while (n < most && (c = first_call(q))) {
		if (force) {
			a = (struct ask){ .verdict = GBPF_GO };
		} else if (!may_issue(q, c, clock_now_ns(), &a)) {
			break;
		}
		issue(q, c, &a);
		n++;
	}
	return n;
}

static uint64_t rank(struct sched_queue *q, uint64_t now)
{
	struct sched_launch head = { 0 };
	struct sched_call *c;

	pthread_mutex_lock(&q->fifo_lock); /* the call stays while the list is locked; an issuer may
					      be writing others */
	c = q->first;
	if (c) {
		head.begin_ns = c->launch.begin_ns;
		head.est_ns = c->launch.est_ns;
	}
	pthread_mutex_unlock(&q->fifo_lock);
	return hook_dispatch(q, &head, now);
}

#define PASS_QUEUES 64u /* queues that one pass ranks; the rest come in the next */

/* Queues with calls, highest rank first; each entry is used until queue_unuse. */
static unsigned collect(struct sched *s, uint64_t now, struct sched_queue *list[PASS_QUEUES])
{
	uint64_t ranks[PASS_QUEUES];
	unsigned n = 0;

	queues_each(s, q)
	{
		uint64_t r;
		unsigned i;

		if (n == PASS_QUEUES || !load_acquire(&q->deferred) || !queue_use(q)) {
			continue;
		}
		r = rank(q, now);
		for (i = n++; i > 0 && ranks[i - 1] < r; i--) {
			ranks[i] = ranks[i - 1];
			list[i] = list[i - 1];
		}
		ranks[i] = r;
		list[i] = q;
	}
	return n;
}

uint64_t deferred_step(struct sched *s, uint64_t now)
{
	struct sched_queue *list[PASS_QUEUES];
	unsigned n;

	if (!load_seqcst(&s->deferred)) {
		return UINT64_MAX;
	}
	(void)retire_all(s);
	n = collect(s, now, list);
	for (unsigned i = 0; i < n; i++) {
		if (pthread_mutex_trylock(&list[i]->issue_lock) == 0) {
			(void)issue_some(list[i], 16, false);
			pthread_mutex_unlock(&list[i]->issue_lock);
		}
		queue_unuse(list[i]);
	}
	return load_seqcst(&s->deferred) ? OPEN_POLL_NS : UINT64_MAX;
}

/* One queue until its calls at this time are gone. */
static void flush_queue(struct sched_queue *q, uint64_t begin)
{
	struct sched *s = q->s;

	while (load_acquire(&q->deferred)) {
		uint64_t limit = load_relaxed(&s->limit_ns);
		bool force = clock_now_ns() - begin >= limit;
		unsigned n;

		pthread_mutex_lock(&q->issue_lock);
		n = issue_some(q, 1024, force);
		pthread_mutex_unlock(&q->issue_lock);
		if (force && n) {
			stat_add(s, limit_hits, 1u);
			note(s, "hold-limit",
			     "deferred calls went after the hold limit: something waited for them");
		} else if (!n && load_acquire(&q->deferred)) {
			clock_sleep_ns(OPEN_POLL_NS);
			(void)retire_all(s);
		}
	}
}

int sched_flush(struct sched *s, struct sched_queue *only)
{
	uint64_t begin;
	int err = 0;

	if (load_relaxed(&s->forked)) {
		return 0;
	}
	if (!load_acquire(&s->deferred) && (!only || !load_relaxed(&only->error))) {
		return 0;
	}
	begin = clock_now_ns();
	queues_each(s, q)
	{
		int e;

		if ((only && q != only) || !queue_use(q)) {
			continue;
		}
		flush_queue(q, begin);
		e = xchg_acqrel(&q->error, 0);
		err = err ? err : e;
		queue_unuse(q);
	}
	return err;
}

void queue_fifo_drop(struct sched_queue *q)
{
	struct sched_call *c;

	while ((c = q->first)) {
		q->first = c->next;
		c->free(c);
	}
	q->last = &q->first;
}
