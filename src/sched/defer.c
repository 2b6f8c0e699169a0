/* Deferred calls: a FIFO for each queue. The agent submits them in the order of the queue as the
 * policy allows; `dispatch` ranks the queues. The submitting thread holds issue.lock from its look
 * at the first call until the driver has it, so the agent and a thread that drains the queue never
 * swap two calls. While the queue has an unfinished run, only calls that join it are submitted.
 * This is not the launch path: locks are allowed. The agent must not block here. */
#include "sched/sched_int.h"

#include <sys/prctl.h>

#include "base/clock.h"

#define AHEAD_HALF 192u	   /* calls beyond a marker that was not reached: at most twice as many */
#define AHEAD_STALLED 384u /* and as many more while a caller waits without progress */
#define STALLED_NS 200000000u /* for this long: longer than leases stop blocks */

static void wait_for_room(struct sched_queue *q);

void sched_defer(struct sched_queue *q, struct sched_call *c)
{
	struct sched *s = q->s;
	bool first;

	if (unlikely(sched_fifo_count(q) >= SCHED_FIFO_MAX)) {
		wait_for_room(q);
	}
	c->next = NULL;
	(void)add_seqcst(&s->n_deferred, 1u);
	lock_take(&q->fifo.lock);
	*q->fifo.last = c;
	q->fifo.last = &c->next;
	c->number = c->placed ? c->placed(c) : sched_next_number(s);
	first = (add_acqrel(&q->pending, 1u) & ~SCHED_HAS_RUN) == 0;
	store_release(&q->fifo.n_deferred, q->fifo.n_deferred + 1);
	lock_release(&q->fifo.lock);
	sched_stat_add(s, deferred, 1u);
	if (!first) { /* otherwise the agent has been woken for the call before it */
		return;
	}
	if (sched_run_here(q)) { /* a thread may wait for the end of the run now */
		store_relaxed(&q->run.look_ns, UINT64_C(0));
	}
	(void)add_seqcst(&s->defer_seq, 1u);
	sched_update_active(s);
	sched_wake_agent(s, SCHED_AGENT_NEAR);
}

uint64_t sched_next_number(struct sched *s)
{
	return add_seqcst(&s->last_number, 1u) + 1;
}

bool sched_queue_alone(const struct sched_queue *q)
{
	uint32_t mine = load_seqcst(&q->pending); /* read before the counters of the process, which
						     may grow meanwhile */

	return load_seqcst(&q->s->n_deferred) <= (mine & ~SCHED_HAS_RUN) &&
	       load_seqcst(&q->s->n_runs) <= (mine & SCHED_HAS_RUN ? 1u : 0u);
}

bool sched_queue_behind(struct sched_queue *q, uint64_t number)
{
	bool kept;

	if (likely(!load_acquire(&q->pending))) {
		return false;
	}
	lock_take(&q->fifo.lock);
	kept = (q->fifo.submitting && q->fifo.submitting < number) ||
	       (q->fifo.first && q->fifo.first->number < number);
	lock_release(&q->fifo.lock);
	return kept || sched_run_unfinished(q);
}

bool sched_queue_deferred(struct sched_queue *q)
{
	if (likely(!load_acquire(&q->pending)) || load_relaxed(&q->s->forked)) {
		return false;
	}
	/* A run that is through may be followed even if another thread that holds issue.lock has
	 * not ended it yet. */
	return sched_fifo_count(q) || (!sched_run_try_end(q) && sched_run_unfinished(q));
}

static struct sched_call *first_call(struct sched_queue *q)
{
	struct sched_call *c;

	lock_take(&q->fifo.lock);
	c = q->fifo.first;
	lock_release(&q->fifo.lock);
	return c;
}

static void unlink_first(struct sched_queue *q)
{
	lock_take(&q->fifo.lock);
	q->fifo.submitting = q->fifo.first->number;
	q->fifo.first = q->fifo.first->next;
	if (!q->fifo.first) {
		q->fifo.last = &q->fifo.first;
	}
	lock_release(&q->fifo.lock);
}

/* When a hardware queue is full (about 1 000 launches) the driver blocks the submitter with the
 * context lock held: the agent would stall, and the program could not unblock what the queue waits
 * for. So calls are submitted only a bounded number ahead of what the stream has been seen to
 * reach. A run limits itself. */

/* Returns the number of calls submitted beyond what has been reached, or beyond the marker. */
static uint32_t ahead(const struct sched_queue *q)
{
	uint32_t put = SCHED_ACC_COUNT(sched_tally_sum(&q->total)) +
		       load_relaxed(&q->issue.n_orders) + load_relaxed(&q->issue.n_extra);
	uint32_t at = load_relaxed(&q->issue.marker_seq);

	return SCHED_ACC_COUNT(put - (at ? at : SCHED_ACC_COUNT(load_acquire(&q->marks.retired))));
}

void sched_queue_add_extra(struct sched_queue *q, uint32_t n)
{
	(void)add_relaxed(&q->issue.n_extra, n);
}

/* Looks whether the stream has come so far that `ahead` may start again, and places the next
 * marker. */
static bool reached(struct sched_queue *q) REQUIRES(q->issue.lock)
{
	const struct sched_device_ops *dev = q->s->cfg.device;
	uint32_t n = ahead(q), unseen = AHEAD_HALF;
	void *d = q->s->cfg.dev;

	if (q->issue.marker.event) {
		if (dev->mark_done(d, &q->issue.marker) == 0) {
			return false;
		}
		dev->mark_release(d, &q->issue.marker);
		q->issue.marker.event = NULL;
		unseen = n > 2 * AHEAD_HALF
				 ? AHEAD_HALF
				 : 0; /* most of them were submitted while no marker was placed */
	}
	if (dev->mark(d, q->dev_queue, false, &q->issue.marker) < 0) {
		q->issue.marker.event = NULL;
		if (dev->queue_idle(d, q->dev_queue) == 0) {
			return false;
		}
		unseen = 0;
	}
	store_relaxed(&q->issue.marker_seq,
		      (SCHED_ACC_COUNT(sched_tally_sum(&q->total)) + q->issue.n_orders +
		       load_relaxed(&q->issue.n_extra) - unseen) |
			      1u << 31);
	q->issue.beyond_marker =
		unseen ? n - unseen : 0; /* by as many calls `ahead` is too small from now on */
	return !unseen;
}

/* Returns whether the driver may take another call. stalled: a caller blocks until these are
 * submitted and may be the one that unblocks the stream, so some more are allowed; the driver still
 * takes them without blocking. */
static bool has_room_ahead(struct sched_queue *q, bool stalled) REQUIRES(q->issue.lock)
{
	return ahead(q) < AHEAD_HALF || reached(q) ||
	       (stalled && q->issue.beyond_marker < AHEAD_STALLED);
}

bool sched_queue_crowded(struct sched_queue *q)
{
	bool crowded;

	if (ahead(q) < AHEAD_HALF || !lock_try(&q->issue.lock)) {
		return false;
	}
	crowded = !sched_run_here(q) && !has_room_ahead(q, false);
	lock_release(&q->issue.lock);
	return crowded;
}

/* Submits the first call. */
static void issue(struct sched_queue *q, struct sched_call *c, const struct sched_decision *a)
	REQUIRES(q->issue.lock)
{
	struct sched_ticket t = { .q = q, .l = &c->launch, .phase = SCHED_PHASE_PLAIN };
	struct sched *s = q->s;
	uint32_t extra = load_relaxed(&q->issue.n_extra);
	int err, none = 0;

	unlink_first(q);
	q->issue.beyond_marker = ahead(q) < AHEAD_HALF ? 0 : q->issue.beyond_marker + 1;
	store_relaxed(&q->issue.n_orders, q->issue.n_orders + !c->is_launch);
	if (c->is_launch) {
		sched_launch_start(&t, a);
	}
	err = c->run(c);
	if (q->issue.beyond_marker) {
		q->issue.beyond_marker += load_relaxed(&q->issue.n_extra) - extra;
	}
	lock_take(&q->fifo.lock);
	q->fifo.submitting = 0;
	lock_release(&q->fifo.lock);
	if (err) {
		cas_acqrel(&q->error, &none, err);
	}
	if (c->is_launch) {
		sched_launch_done(&t, err == 0);
	}
	c->free(c);
	q->issue.n_asked = 0;
	q->issue.held_since_ns = 0;
	q->issue.retry_ns = 0;
	q->issue.next_is_plain = false;
	(void)sub_acqrel(&q->pending, 1u);
	store_release(&q->fifo.n_submitted, q->fifo.n_submitted + 1);
	if (sub_seqcst(&s->n_deferred, 1u) == 1) {
		sched_update_active(s);
	}
}

/* Chooses the level of a launch that may go. Returns false if it must wait for the end of the run.
 */
static bool choose_level(struct sched_queue *q, struct sched_call *c,
			 const struct sched_decision *a) REQUIRES(q->issue.lock)
{
	struct sched_launch *l = &c->launch;

	if (c->joins_run && sched_run_allowed(q, l, a) && sched_run_begin(q)) {
		sched_run_add(q, l, a);
		return true;
	}
	q->issue.next_is_plain = sched_run_here(q);
	return !q->issue.next_is_plain;
}

/* Returns whether the first call may go now; if not, and the policy holds it, fills
 * q->issue.retry_ns. */
static bool may_issue(struct sched_queue *q, struct sched_call *c, uint64_t now, bool stalled,
		      struct sched_decision *a) REQUIRES(q->issue.lock)
{
	struct sched *s = q->s;
	struct sched_launch *l = &c->launch;
	uint64_t held_ns;
	uint32_t why;
	bool forced = false;

	*a = (struct sched_decision){ .verdict = GBPF_GO };
	if (c->ready && !c->ready(c)) {
		return false;
	}
	if (!c->is_launch && c->joins_run && sched_run_here(q)) {
		return !load_acquire(&q->run.draining) && sched_run_has_room(q);
	}
	if (sched_run_here(q) &&
	    (!c->is_launch || !c->joins_run || !l->block_ok || q->issue.next_is_plain ||
	     load_acquire(&q->run.draining) || !sched_run_has_room(q))) {
		return false;
	}
	if (!sched_run_here(q) && !has_room_ahead(q, stalled)) {
		return false;
	}
	if (!c->is_launch || load_relaxed(&s->policy.off)) {
		return !sched_run_here(q);
	}
	if (now < q->issue.retry_ns) {
		return false;
	}
	if (!q->issue.held_since_ns) { /* behind others before: they waited, not the policy */
		q->issue.held_since_ns = now;
	}
	held_ns = sched_since_ns(q->issue.held_since_ns, now);
	sched_decide(q, l, now, held_ns, q->issue.n_asked, a);
	q->issue.n_asked += !a->group;
	a->verdict = l->may_hold ? a->verdict : GBPF_GO; /* it came during a capture: never held */
	why = q->issue.why;
	if (a->verdict != GBPF_GO) {
		q->issue.why = sched_hold_why(a);
		if (sched_share_left(s, l, q->issue.held_since_ns, now)) {
			q->issue.retry_ns =
				now + (a->verdict == GBPF_DEFER
					       ? MIN(a->hold_ns, (uint64_t)SCHED_WAIT_CAP_NS)
					       : SCHED_OPEN_POLL_NS);
			return false;
		}
		why = sched_share_take(s, l, now);
		forced = true;
	}
	if (a->verdict == GBPF_GO && q->issue.n_asked > 1) {
		sched_share_reset(s);
	}
	if (!choose_level(q, c, a)) {
		q->issue.held_since_ns = 0; /* from here the run holds it */
		return false;
	}
	l->version = a->version;
	l->held_ns = sched_since_ns(l->begin_ns, now);
	if (q->issue.retry_ns || forced) {
		sched_hold_account(q, l, why, held_ns);
	}
	return true;
}

/* Submits what may go, max_calls at most, so that other queues get their turn. */
static unsigned issue_some(struct sched_queue *q, unsigned max_calls, bool force, bool stalled)
	REQUIRES(q->issue.lock)
{
	unsigned n = 0;
	struct sched_call *c;
	struct sched_decision a;

	while (n < max_calls && (c = first_call(q))) {
		if (force) {
			if (sched_run_here(q) || (c->ready && !c->ready(c)) ||
			    !has_room_ahead(q, stalled)) {
				break;
			}
			a = (struct sched_decision){ .verdict = GBPF_GO };
		} else if (!may_issue(q, c, clock_now_ns(), stalled, &a)) {
			break;
		} else {
			q->issue.n_let += c->is_launch && a.verdict == GBPF_GO;
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

	if (!sched_fifo_count(q)) {
		return UINT32_MAX; /* a run only: its blocks are on the device before any deferred
				      call */
	}

	lock_take(&q->fifo.lock); /* the call stays while the list is locked; another
					      thread may submit calls meanwhile */
	c = q->fifo.first;
	if (c) {
		head.begin_ns = c->launch.begin_ns;
		head.est_ns = c->launch.est_ns;
	}
	lock_release(&q->fifo.lock);
	return sched_hook_dispatch(q, &head, now);
}

#define DRAIN_STALL_NS UINT64_C(1000000000)
#define DRAIN_STALL_NEXT_NS UINT64_C(200000000)
#define DRAIN_STALL_AGAIN_NS UINT64_C(20000000)
#define PASS_QUEUES 64u /* queues that one pass ranks; the others come in the next */

/* Collects queues with deferred calls or a run, highest rank first. Each is in use until
 * sched_queue_unuse. */
static unsigned collect(struct sched *s, uint64_t now, struct sched_queue *list[PASS_QUEUES])
{
	uint64_t ranks[PASS_QUEUES];
	uint32_t first = s->agent.first_queue;
	unsigned n = 0;

	for (uint32_t k = 0, m = load_acquire(&s->table.n_queues); k < m && n < PASS_QUEUES; k++) {
		uint32_t at = (first + k) % m;
		struct sched_queue *q = load_acquire(&s->table.queues[at]);
		uint64_t r;
		unsigned i;

		if (!q || !load_acquire(&q->pending) || !sched_queue_use(q)) {
			continue;
		}
		s->agent.first_queue = at + 1;
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

/* One look at a queue. Returns ns until the next. */
static uint64_t attend(struct sched_queue *q, uint64_t now) REQUIRES(q->issue.lock)
{
	uint64_t ns = sched_run_care(q, now, false);

	(void)issue_some(q, 16, false, false);
	if (!sched_fifo_count(q)) {
		return sched_run_here(q) ? MIN(ns, (uint64_t)SCHED_RUN_QUIET_NS) : UINT64_MAX;
	}
	/* the first call waits for the run only */
	return sched_run_here(q) ? MIN(ns, (uint64_t)SCHED_RUN_QUIET_NS) : SCHED_OPEN_POLL_NS;
}

uint64_t sched_deferred_step(struct sched *s, uint64_t now)
{
	struct sched_queue *list[PASS_QUEUES];
	uint64_t sleep = UINT64_MAX;
	unsigned n;

	if (!load_seqcst(&s->n_deferred) && !load_seqcst(&s->n_runs)) {
		return UINT64_MAX;
	}
	(void)sched_retire_all(s);
	n = collect(s, now, list);
	for (unsigned i = 0; i < n; i++) {
		uint64_t ns = SCHED_OPEN_POLL_NS;

		if (lock_try(&list[i]->issue.lock)) {
			ns = attend(list[i], clock_now_ns());
			lock_release(&list[i]->issue.lock);
		}
		sleep = MIN(sleep, ns);
		sched_queue_unuse(list[i]);
	}
	return n == PASS_QUEUES ? MIN(sleep, (uint64_t)SCHED_OPEN_POLL_NS) : sleep;
}

/* A thread that waits for a queue and helps submit its calls. */
struct helper {
	uint64_t held_ns;     /* how long calls have waited for the policy since one went by it, */
	uint64_t all_held_ns; /* and in all, */
	bool held;	      /* and whether one does since the last round */
	uint64_t last_ns, n_let;
	uint64_t issued, moved_ns; /* calls submitted so far, and when that last changed */
	int slack;		   /* timer slack to restore; 0: not changed */
};

static struct helper helper_begin(void)
{
	uint64_t now = clock_now_ns();

	return (struct helper){ .last_ns = now, .moved_ns = now };
}

static void helper_end(const struct helper *h)
{
	if (h->slack > 0) {
		(void)prctl(PR_SET_TIMERSLACK, h->slack);
	}
}

/* One round: submits what may go, or sleeps. */
static void help(struct sched_queue *q, struct helper *h)
{
	struct sched *s = q->s;
	uint64_t now = clock_now_ns(), ns;
	uint64_t limit = load_relaxed(&s->limit_ns), held = h->held ? now - h->last_ns : 0;
	bool force;
	unsigned n;

	h->held_ns += held;
	h->all_held_ns += held;
	h->last_ns = now;
	lock_take(&q->issue.lock);
	if (q->issue.n_let != h->n_let) { /* here or in another thread */
		h->n_let = q->issue.n_let;
		h->held_ns = 0;
	}
	force = h->held_ns >= limit || h->all_held_ns >= MAX(limit, SCHED_MAX_HOLD_NS);
	ns = sched_run_care(q, now, true);
	if (q->fifo.n_submitted != h->issued) {
		h->issued = q->fifo.n_submitted;
		h->moved_ns = now;
	}
	n = issue_some(q, 64, force, now - h->moved_ns >= STALLED_NS);
	h->held = q->issue.retry_ns && !sched_run_here(q);
	lock_release(&q->issue.lock);
	if (force && n) {
		sched_stat_add(s, limit_hits, 1u);
		sched_note(s, "hold-limit",
			   "hold limit reached: deferred calls go because a thread waits for them");
	}
	if (n || !load_acquire(&q->pending)) {
		return;
	}
	if (!h->slack) {
		h->slack = sched_sharpen_timers();
	}
	clock_sleep_ns(MIN(ns, SCHED_OPEN_POLL_NS));
	(void)sched_retire_all(s);
}

static void wait_for_room(struct sched_queue *q)
{
	struct helper h = helper_begin();

	while (sched_fifo_count(q) >= SCHED_FIFO_MAX) {
		help(q, &h);
	}
	helper_end(&h);
}

/* Returns whether the first `calls` calls and `launches` launches of the run are through. Does not
 * wait for what other threads submit meanwhile. */
static bool drained_up_to(struct sched_queue *q, uint64_t calls, uint64_t launches)
{
	struct sched_run_progress c;

	if (!load_acquire(&q->pending)) {
		return true;
	}
	if (load_acquire(&q->fifo.n_submitted) < calls) {
		return false;
	}
	if (!sched_run_here(q)) {
		return true;
	}
	sched_run_look(q, &c);
	return c.done >= launches;
}

void sched_queue_drain(struct sched_queue *q)
{
	uint64_t calls = load_acquire(&q->fifo.n_deferred);
	struct helper h = helper_begin();
	struct sched_run_progress c = { .launched = 0 };

	/* Some of the calls join the run, so its launches are counted after they are submitted. */
	while (load_acquire(&q->fifo.n_submitted) < calls) {
		help(q, &h);
	}
	if (sched_run_here(q)) {
		sched_run_look(q, &c);
	}
	while (!drained_up_to(q, calls, c.launched)) {
		help(q, &h);
	}
	helper_end(&h);
}

/* Like sched_queue_drain, but gives up when nothing has moved for stall_ns (again_ns if a wait was
 * already given up at the same place). Returns false then. */
static bool drain_while_moving(struct sched_queue *q, uint64_t stall_ns, uint64_t again_ns)
{
	uint64_t calls = load_acquire(&q->fifo.n_deferred), launches = UINT64_MAX, seen = 0,
		 at = clock_now_ns();
	struct helper h = helper_begin();
	bool moves = true;

	while (load_acquire(&q->pending) && moves) {
		uint64_t issued = load_acquire(&q->fifo.n_submitted), moved = issued;
		struct sched_run_progress c = { .launched = 0 };

		if (sched_run_here(q)) {
			sched_run_look(q, &c);
			moved += c.launched + c.done + c.interruptions;
		}
		if (issued >= calls && launches == UINT64_MAX) {
			launches = c.launched;
		}
		if (launches != UINT64_MAX && drained_up_to(q, calls, launches)) {
			break;
		}
		if (moved != seen) {
			seen = moved;
			at = clock_now_ns();
		}
		help(q, &h);
		moves = clock_now_ns() - at <
			(load_relaxed(&q->stall_token) == moved + 1 ? again_ns : stall_ns);
		if (!moves) {
			store_relaxed(&q->stall_token, moved + 1);
		}
	}
	helper_end(&h);
	return moves;
}

void sched_drain_others(struct sched *s, const struct sched_queue *but)
{
	uint64_t stall_ns = DRAIN_STALL_NS;

	if (load_relaxed(&s->forked)) {
		return;
	}
	sched_queues_each (s, q) {
		if (q != but && load_acquire(&q->pending) && sched_queue_use(q)) {
			/* When one queue stalls the others often do as well, and each had that time
			 * to move. */
			if (!drain_while_moving(q, stall_ns,
						but ? DRAIN_STALL_NEXT_NS : DRAIN_STALL_AGAIN_NS)) {
				stall_ns = DRAIN_STALL_NEXT_NS;
			}
			sched_queue_unuse(q);
		}
	}
}

int sched_drain(struct sched *s, struct sched_queue *only)
{
	int err = 0;

	if (load_relaxed(&s->forked)) {
		return 0;
	}
	if (!load_acquire(&s->n_deferred) && !load_acquire(&s->n_runs) &&
	    (!only || !load_relaxed(&only->error))) {
		return 0;
	}
	sched_queues_each (s, q) {
		int e;

		if ((only && q != only) || !sched_queue_use(q)) {
			continue;
		}
		sched_queue_drain(q);
		e = xchg_acqrel(&q->error, 0);
		err = err ? err : e;
		sched_queue_unuse(q);
	}
	return err;
}

void sched_fifo_drop(struct sched_queue *q)
{
	struct sched_call *c;

	while ((c = q->fifo.first)) {
		q->fifo.first = c->next;
		c->free(c);
	}
	q->fifo.last = &q->fifo.first;
}
