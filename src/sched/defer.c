/* Deferred calls: one FIFO a queue, issued by the agent when the hook says GO, in the order of the
 * queue; `dispatch` ranks the queues. Whoever issues holds the queue's issue_lock from looking at
 * the first call until the driver has it, so the agent and a thread that flushes never swap two
 * calls. While the queue's chain is unfinished only calls that join it are issued. Locks are
 * allowed here: this is not the GO path. The agent must not wait here for anything. */
#include "sched/sched_int.h"

#include <sys/prctl.h>

#include "base/clock.h"

static void wait_for_room(struct sched_queue *q);

void sched_defer(struct sched_queue *q, struct sched_call *c)
{
	struct sched *s = q->s;
	bool first;

	if (unlikely(sched_fifo_count(q) >= FIFO_MAX)) {
		wait_for_room(q);
	}
	c->next = NULL;
	(void)__atomic_fetch_add(&s->n_deferred, 1u, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&q->fifo_lock);
	*q->last = c;
	q->last = &c->next;
	c->number = c->placed ? c->placed(c) : sched_next_number(s);
	first = (add_acqrel(&q->deferred, 1u) & ~CHAINED) == 0;
	store_release(&q->put, q->put + 1);
	pthread_mutex_unlock(&q->fifo_lock);
	sched_stat_add(s, deferred, 1u);
	if (!first) { /* it comes after one for which the agent has been woken */
		return;
	}
	if (sched_run_here(q)) { /* somebody waits for its end now */
		store_relaxed(&q->chain_ns, UINT64_C(0));
	}
	(void)__atomic_fetch_add(&s->defers, 1u, __ATOMIC_SEQ_CST);
	sched_update_active(s);
	wake_agent(s, AGENT_NEAR);
}

uint64_t sched_next_number(struct sched *s)
{
	return __atomic_add_fetch(&s->numbers, 1u, __ATOMIC_SEQ_CST);
}

bool sched_queue_alone(const struct sched_queue *q)
{
	uint32_t mine = load_seqcst(&q->deferred); /* before the others: it may grow meanwhile */

	return load_seqcst(&q->s->n_deferred) <= (mine & ~CHAINED) &&
	       load_seqcst(&q->s->n_runs) <= (mine & CHAINED ? 1u : 0u);
}

bool sched_queue_behind(struct sched_queue *q, uint64_t number)
{
	bool kept;

	if (likely(!load_acquire(&q->deferred))) {
		return false;
	}
	pthread_mutex_lock(&q->fifo_lock);
	kept = (q->issuing && q->issuing < number) || (q->first && q->first->number < number);
	pthread_mutex_unlock(&q->fifo_lock);
	return kept || sched_run_unfinished(q);
}

bool sched_queue_deferred(struct sched_queue *q)
{
	if (likely(!load_acquire(&q->deferred)) || load_relaxed(&q->s->forked)) {
		return false;
	}
	/* Through, though somebody who is at the queue just now may not have ended it: it may be
	 * followed all the same. */
	return sched_fifo_count(q) || (!sched_run_try_end(q) && sched_run_unfinished(q));
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
	q->issuing = q->first->number;
	q->first = q->first->next;
	if (!q->first) {
		q->last = &q->first;
	}
	pthread_mutex_unlock(&q->fifo_lock);
}

/* The driver makes who fills a hardware queue (about 1 000 launches) wait, with the context locked:
 * the agent would look after nothing any more, and neither could the program open what the queue
 * waits for. So calls are put only so far ahead of what the stream has been seen to reach. A chain
 * counts for itself. */

/* Calls that were put behind what has been reached, or behind the marker. */
static uint32_t ahead(const struct sched_queue *q)
{
	uint32_t put = SCHED_ACC_COUNT(sched_tally_sum(&q->total)) + load_relaxed(&q->orders);
	uint32_t way = load_relaxed(&q->way);

	return SCHED_ACC_COUNT(put - (way ? way : SCHED_ACC_COUNT(load_acquire(&q->retired))));
}

/* issue_lock is held. */
static bool reached(struct sched_queue *q)
{
	const struct sched_device_ops *dev = q->s->cfg.device;
	uint32_t n = ahead(q), unseen = AHEAD_HALF;
	void *d = q->s->cfg.dev;

	if (q->way_mark.event) {
		if (dev->mark_done(d, &q->way_mark) == 0) {
			return false;
		}
		dev->mark_release(d, &q->way_mark);
		q->way_mark.event = NULL;
		unseen = n > 2 * AHEAD_HALF ? AHEAD_HALF : 0; /* most came while nobody counted */
	}
	if (dev->mark(d, q->dev_queue, &q->way_mark) < 0) {
		q->way_mark.event = NULL;
		if (dev->queue_idle(d, q->dev_queue) == 0) {
			return false;
		}
		unseen = 0;
	}
	store_relaxed(&q->way, (SCHED_ACC_COUNT(sched_tally_sum(&q->total)) + q->orders - unseen) |
				       1u << 31);
	q->far = unseen ? n - unseen : 0; /* so many more than `ahead` says from now on */
	return !unseen;
}

/* far: somebody waits until the calls are put, and perhaps it is he who opens later what the stream
 * waits for. The driver takes more before it makes him wait. issue_lock is held. */
static bool has_room_ahead(struct sched_queue *q, bool far)
{
	return ahead(q) < AHEAD_HALF || reached(q) || (far && q->far < AHEAD_FAR);
}

bool sched_queue_crowded(struct sched_queue *q)
{
	bool crowded;

	if (ahead(q) < AHEAD_HALF || pthread_mutex_trylock(&q->issue_lock) != 0) {
		return false;
	}
	crowded = !sched_run_here(q) && !has_room_ahead(q, false);
	pthread_mutex_unlock(&q->issue_lock);
	return crowded;
}

/* Issues the first call; issue_lock is held. */
static void issue(struct sched_queue *q, struct sched_call *c, const struct sched_decision *a)
{
	struct sched *s = q->s;
	int err, none = 0;

	unlink_first(q);
	q->far = ahead(q) < AHEAD_HALF ? 0 : q->far + 1;
	store_relaxed(&q->orders, q->orders + !c->is_launch);
	if (c->is_launch) {
		sched_launch_start(q, &c->launch, a);
	}
	err = c->run(c);
	pthread_mutex_lock(&q->fifo_lock);
	q->issuing = 0;
	pthread_mutex_unlock(&q->fifo_lock);
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
	q->plain_next = false;
	(void)sub_acqrel(&q->deferred, 1u);
	store_release(&q->issued, q->issued + 1);
	if (__atomic_sub_fetch(&s->n_deferred, 1u, __ATOMIC_SEQ_CST) == 0) {
		sched_update_active(s);
	}
}

/* The launch may go: at which level, if the chain allows any. issue_lock is held. */
static bool choose_level(struct sched_queue *q, struct sched_call *c,
			 const struct sched_decision *a)
{
	struct sched_launch *l = &c->launch;

	if (c->joins_run && sched_run_allowed(q, l, a) && sched_run_begin(q)) {
		sched_run_add(q, l, a);
		return true;
	}
	q->plain_next = sched_run_here(q);
	return !q->plain_next;
}

/* May the first call go now? issue_lock is held. Fills q->retry_ns when not. */
static bool may_issue(struct sched_queue *q, struct sched_call *c, uint64_t now, bool far,
		      struct sched_decision *a)
{
	struct sched *s = q->s;
	struct sched_launch *l = &c->launch;
	uint32_t why;

	*a = (struct sched_decision){ .verdict = GBPF_GO };
	if (c->ready && !c->ready(c)) {
		return false;
	}
	if (!c->is_launch && c->joins_run && sched_run_here(q)) {
		return !load_acquire(&q->draining) && sched_run_has_room(q);
	}
	if (sched_run_here(q) && (!c->is_launch || !c->joins_run || !l->block_ok || q->plain_next ||
				  load_acquire(&q->draining) || !sched_run_has_room(q))) {
		return false;
	}
	if (!sched_run_here(q) && !has_room_ahead(q, far)) {
		return false;
	}
	if (!c->is_launch || load_relaxed(&s->off)) {
		return !sched_run_here(q);
	}
	if (now < q->retry_ns) {
		return false;
	}
	sched_decide(q, l, now, sched_since_ns(l->begin_ns, now), q->asked++, a);
	why = sched_hold_why(a, sched_tally_sum(&s->inflight));
	if (a->verdict != GBPF_GO) {
		if (sched_share_left(s, l, l->begin_ns, now)) {
			q->retry_ns = now + (a->verdict == GBPF_DEFER
						     ? MIN(a->hold_ns, (uint64_t)WAIT_CAP_NS)
						     : OPEN_POLL_NS);
			return false;
		}
		sched_share_take(s, l, now);
		why = PROTO_WHY_LIMIT;
	}
	if (a->verdict == GBPF_GO && q->asked > 1) {
		sched_share_reset(s);
	}
	if (!choose_level(q, c, a)) {
		return false;
	}
	l->version = a->version;
	l->held_ns = sched_since_ns(l->begin_ns, now);
	sched_hold_account(q, l, why, l->held_ns);
	return true;
}

/* Issues what may go; issue_lock is held. At most so many, so that other queues get their turn. */
static unsigned issue_some(struct sched_queue *q, unsigned most, bool force, bool far)
{
	unsigned n = 0;
	struct sched_call *c;
	struct sched_decision a;

	while (n < most && (c = first_call(q))) {
		if (force) {
			if (sched_run_here(q) || (c->ready && !c->ready(c)) ||
			    !has_room_ahead(q, far)) {
				break;
			}
			a = (struct sched_decision){ .verdict = GBPF_GO };
		} else if (!may_issue(q, c, clock_now_ns(), far, &a)) {
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

	if (!sched_fifo_count(q)) {
		return UINT32_MAX; /* a chain only: what is on the device comes before what is not
				    */
	}

	pthread_mutex_lock(&q->fifo_lock); /* the call stays while the list is locked; an issuer may
					      be writing others */
	c = q->first;
	if (c) {
		head.begin_ns = c->launch.begin_ns;
		head.est_ns = c->launch.est_ns;
	}
	pthread_mutex_unlock(&q->fifo_lock);
	return sched_hook_dispatch(q, &head, now);
}

#define STILL_NS UINT64_C(1000000000)
#define STILL_NEXT_NS UINT64_C(200000000)
#define STILL_AGAIN_NS UINT64_C(20000000)
#define PASS_QUEUES 64u /* queues that one pass ranks; the rest come in the next */

/* Queues with calls, highest rank first; each entry is used until queue_unuse. */
static unsigned collect(struct sched *s, uint64_t now, struct sched_queue *list[PASS_QUEUES])
{
	uint64_t ranks[PASS_QUEUES];
	uint32_t first = s->first_queue;
	unsigned n = 0;

	for (uint32_t k = 0, m = load_acquire(&s->n_queues); k < m && n < PASS_QUEUES; k++) {
		uint32_t at = (first + k) % m;
		struct sched_queue *q = load_acquire(&s->queues[at]);
		uint64_t r;
		unsigned i;

		if (!q || !load_acquire(&q->deferred) || !sched_queue_use(q)) {
			continue;
		}
		s->first_queue = at + 1;
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

/* In how many nanoseconds the queue wants the next look; issue_lock is held. */
static uint64_t attend(struct sched_queue *q, uint64_t now)
{
	uint64_t ns = sched_run_care(q, now, false);

	(void)issue_some(q, 16, false, false);
	if (!sched_fifo_count(q)) {
		return sched_run_here(q) ? MIN(ns, (uint64_t)CHAIN_QUIET_NS) : UINT64_MAX;
	}
	/* What waits for the chain waits for nothing else. */
	return sched_run_here(q) ? MIN(ns, (uint64_t)CHAIN_QUIET_NS) : OPEN_POLL_NS;
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
		uint64_t ns = OPEN_POLL_NS;

		if (pthread_mutex_trylock(&list[i]->issue_lock) == 0) {
			ns = attend(list[i], clock_now_ns());
			pthread_mutex_unlock(&list[i]->issue_lock);
		}
		sleep = MIN(sleep, ns);
		sched_queue_unuse(list[i]);
	}
	return n == PASS_QUEUES ? MIN(sleep, (uint64_t)OPEN_POLL_NS) : sleep;
}

/* Somebody who waits, and helps. */
struct helper {
	uint64_t held_ns; /* how long calls waited for nothing but the policy, */
	bool held;	  /* as the first does since the last round */
	uint64_t last_ns;
	uint64_t issued, moved_ns; /* the queue's calls, and when the last of them went */
	int slack;		   /* of its timers before; 0: not changed */
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

/* One round. */
static void help(struct sched_queue *q, struct helper *h)
{
	struct sched *s = q->s;
	uint64_t now = clock_now_ns(), ns;
	bool force;
	unsigned n;

	h->held_ns += h->held ? now - h->last_ns : 0;
	h->last_ns = now;
	force = h->held_ns >= load_relaxed(&s->limit_ns);
	pthread_mutex_lock(&q->issue_lock);
	ns = sched_run_care(q, now, true);
	if (q->issued != h->issued) {
		h->issued = q->issued;
		h->moved_ns = now;
	}
	n = issue_some(q, 64, force, now - h->moved_ns >= FAR_NS);
	h->held = q->retry_ns && !sched_run_here(q);
	pthread_mutex_unlock(&q->issue_lock);
	if (force && n) {
		sched_stat_add(s, limit_hits, 1u);
		note(s, "hold-limit",
		     "deferred calls went after the hold limit: something waited for them");
	}
	if (n || !load_acquire(&q->deferred)) {
		return;
	}
	if (!h->slack) {
		h->slack = sched_sharpen_timers();
	}
	clock_sleep_ns(MIN(ns, OPEN_POLL_NS));
	(void)sched_retire_all(s);
}

static void wait_for_room(struct sched_queue *q)
{
	struct helper h = helper_begin();

	while (sched_fifo_count(q) >= FIFO_MAX) {
		help(q, &h);
	}
	helper_end(&h);
}

/* What other threads put on the queue meanwhile is not waited for. */
static bool drained_up_to(struct sched_queue *q, uint64_t calls, uint64_t launches)
{
	struct sched_run_progress c;

	if (!load_acquire(&q->deferred)) {
		return true;
	}
	if (load_acquire(&q->issued) < calls) {
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
	uint64_t calls = load_acquire(&q->put);
	struct helper h = helper_begin();
	struct sched_run_progress c = { .launched = 0 };

	/* Of the calls some join the chain: its launches are counted when they are there. */
	while (load_acquire(&q->issued) < calls) {
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

/* As queue_settle, but not when nothing has moved for so long (again_ns: nor since somebody waited
 * in vain before). False: it stands still. */
static bool drain_while_moving(struct sched_queue *q, uint64_t still_ns, uint64_t again_ns)
{
	uint64_t calls = load_acquire(&q->put), launches = UINT64_MAX, seen = 0,
		 at = clock_now_ns();
	struct helper h = helper_begin();
	bool moves = true;

	while (load_acquire(&q->deferred) && moves) {
		uint64_t issued = load_acquire(&q->issued), moved = issued;
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
			(load_relaxed(&q->still) == moved + 1 ? again_ns : still_ns);
		if (!moves) {
			store_relaxed(&q->still, moved + 1);
		}
	}
	helper_end(&h);
	return moves;
}

void sched_drain_others(struct sched *s, const struct sched_queue *but)
{
	uint64_t still_ns = STILL_NS;

	if (load_relaxed(&s->forked)) {
		return;
	}
	sched_queues_each(s, q)
	{
		if (q != but && load_acquire(&q->deferred) && sched_queue_use(q)) {
			/* Where one stands still others do, too, and each had that time to move. */
			if (!drain_while_moving(q, still_ns,
						but ? STILL_NEXT_NS : STILL_AGAIN_NS)) {
				still_ns = STILL_NEXT_NS;
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
	sched_queues_each(s, q)
	{
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

	while ((c = q->first)) {
		q->first = c->next;
		c->free(c);
	}
	q->last = &q->first;
}
