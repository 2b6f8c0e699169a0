/* Requests of latency queues. The launch that begins one opens it on this process's board, and on
 * the GPU by leases. It is closed when the queues are idle and the close delay has passed: by the
 * agent or, if the policy wants no close delay, by the thread whose synchronization returned.
 * Opening costs a compare-and-swap; while a request is open, a launch costs a load. A request that
 * does not end times out: others are no longer held for it. docs/SCHEDULING.md argues the order of
 * the steps in request_close. */
#include "sched/sched_int.h"

#include <errno.h>
#include <limits.h>

#include "base/clock.h"
#include "base/fd.h"

#define SPIN_NS 100000u /* the agent spins until the end of a shorter close delay */

#define GAP_AGAIN 8u /* pauses between two searches for the best close delay */
/* Cost of a request that was closed too early: two context switches and more, or a few blocks. */
#define REOPEN_NS 600000u
#define REOPEN_SHARED_NS 100000u
#define SHORT_POLL_NS                                                                              \
	10000u /* period while a request with a close delay below SCHED_OPEN_POLL_NS is open */
#define SPIN_ROUNDS 4000u
#define BY_SYNC                                                                                    \
	4u /* requests in a row, ended by a synchronization, after which the device is seldom      \
	      asked */
#define ASK_SELDOM_NS 200000u

struct proto_board_gpu *sched_own_board(struct sched *s, uint32_t gpu)
{
	uint32_t index = load_relaxed(&s->policy.gpu[gpu].index);

	return index < PROTO_MAX_GPUS ? &load_acquire(&s->own)->gpu[index] : NULL;
}

bool sched_request_open(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct proto_board_gpu *b = sched_own_board(s, gpu);
	struct sched_request *r = &s->req[gpu];
	uint32_t expected = SCHED_REQUEST_CLOSED;

	/* Store before `open`, or the agent reads a stale time. Concurrent openers write equivalent
	 * values. */
	store_relaxed(&r->opened_ns, now);
	if (!cas_seqcst(&r->open, &expected, (uint32_t)SCHED_REQUEST_OPEN)) {
		return false;
	}
	sched_lease_raise(s, gpu, now); /* first, since work on the GPU takes longest to make way */
	if (unlikely(load_relaxed(&r->next_ns))) {
		sched_announce_met(s, gpu, now);
	}
	if (b) {
		store_relaxed(&b->opened_ns, now);
		store_seqcst(&b->open, 1u);
	}
	return true;
}

bool sched_request_unseen(const struct sched *s, uint32_t gpu)
{
	const struct sched_request *r = &s->req[gpu];

	return load_seqcst(&r->open) == SCHED_REQUEST_OPEN &&
	       load_relaxed(&r->opened_ns) != load_relaxed(&r->looked_ns);
}

bool sched_requests_unseen(const struct sched *s)
{
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		if (sched_request_unseen(s, g)) {
			return true;
		}
	}
	return false;
}

/* On the launch path, once after each pause. */
void sched_request_gap(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	uint64_t idle = xchg_acqrel(&r->idle_ns, (uint64_t)0);

	if (!idle) {
		return;
	}
	sched_gaps_add(&r->gaps, sched_since_ns(idle, now));
	if (load_relaxed(&r->gaps.total) % GAP_AGAIN == 0 || !load_relaxed(&r->gap_ns)) {
		store_relaxed(&r->gap_ns,
			      sched_gaps_best(&r->gaps, load_relaxed(&s->lane) == GBPF_LANE_PROCESS
								? REOPEN_NS
								: REOPEN_SHARED_NS));
	}
}

/* Only the first store counts: the agent may be earlier than the synchronization that is about to
 * return. The next launch clears it. */
void sched_request_idle(struct sched_request *r, uint64_t since)
{
	uint64_t expected = 0;

	if (!load_relaxed(&r->idle_ns)) {
		(void)cas_acqrel(&r->idle_ns, &expected, since);
	}
}

/* Decides for a queue of which the device cannot say whether it is idle (a stream that only its own
 * thread can name, or that captures): a synchronization of the application must have covered
 * everything, or the markers, which the queue gets after each launch from now on. Without either
 * the queue counts as idle after a while: too early costs latency, too late would hold others for
 * nothing. */
static bool is_idle_unknown(struct sched_queue *q, uint64_t entered, uint64_t total, uint64_t now)
{
	store_relaxed(&q->idle.mark_each, 1u);
	(void)sched_retire_reached(q);
	if (q->idle.unknown_since_ns == 0 || q->idle.unknown_seq != entered) {
		q->idle.unknown_since_ns = now;
		q->idle.unknown_seq = entered;
	}
	/* Granted launches that are not accounted yet have no marker; `left` was read before. */
	return load_acquire(&q->idle.sync_seq) == entered ||
	       (load_acquire(&q->marks.retired) == total && !load_relaxed(&q->grant.n)) ||
	       now - q->idle.unknown_since_ns > SCHED_UNKNOWN_NS;
}

/* SOON: a synchronization says that the queue is idle, but its close delay has not passed. The
 * device is not asked before that: usually another launch comes meanwhile, and asking takes a
 * driver lock that this launch needs. */
enum queue_state { QUEUE_BUSY, QUEUE_SOON, QUEUE_DRAINED };

static uint64_t soon_until(const struct sched_queue *q)
{
	return load_relaxed(&q->idle.sync_ns) + load_relaxed(&q->idle.close_delay_ns);
}

/* Returns whether the queue is drained: the driver has every launch that began, and the device is
 * idle. ask: ask the device even if no synchronization has returned. */
static enum queue_state queue_look(struct sched_queue *q, uint64_t now, bool ask)
{
	struct sched *s = q->s;
	uint64_t left = sched_tally_sum(&q->left), entered = load_seqcst(&q->entered);
	uint64_t total = sched_tally_sum(&q->total), collective = load_acquire(&q->collective);
	bool synced = load_acquire(&q->idle.sync_seq) == entered;
	int idle;

	if (left != entered) {
		return QUEUE_BUSY;
	}
	if (load_relaxed(&q->idle.seen_seq) == entered) {
		return QUEUE_DRAINED;
	}
	if (synced && load_relaxed(&q->idle.seen_seq) && now < soon_until(q)) {
		return QUEUE_SOON;
	}
	if (!ask && !synced) {
		return QUEUE_BUSY;
	}
	idle = s->cfg.device->queue_idle(s->cfg.dev, q->dev_queue);
	if (idle == -EAGAIN ? !is_idle_unknown(q, entered, total, now) : idle == 0) {
		/* a synchronization that returned before has covered only a part */
		if (idle == 0) {
			store_relaxed(&q->idle.sync_seq, (uint64_t)0);
		}
		return QUEUE_BUSY;
	}
	store_relaxed(&q->idle.seen_seq, entered);
	q->idle.seen_ns =
		load_acquire(&q->idle.sync_seq) == entered ? load_relaxed(&q->idle.sync_ns) : now;
	(void)sched_retire_idle(q, total, collective);
	return QUEUE_DRAINED;
}

struct look {
	bool all;	    /* all latency queues of the GPU are drained */
	bool busy;	    /* one is not, and will not be soon */
	uint64_t soon_ns;   /* end of the close delays of the queues that will be soon */
	uint64_t last_ns;   /* when the last drained queue became idle */
	uint64_t linger_ns; /* close delay of the request */
	uint64_t progress;  /* changes when any queue makes progress */
	bool synced;	    /* a synchronization saw the end of each queue that took part */
};

/* Queues that are idle since before this request need only be drained: their close delay is
 * ignored, since it may be an older policy's. */
static void look_at_queues(struct sched *s, uint32_t gpu, uint64_t now, bool ask, struct look *k)
{
	uint64_t opened = load_relaxed(&s->req[gpu].opened_ns);

	*k = (struct look){ .all = true, .synced = true };
	sched_queues_each (s, q) {
		uint64_t entered = load_relaxed(&q->entered);
		enum queue_state state;

		if (load_relaxed(&q->gpu) != gpu || !entered || !sched_queue_use(q)) {
			continue;
		}
		state = queue_look(q, now, ask);
		if (state == QUEUE_DRAINED) {
			k->last_ns = MAX(k->last_ns, q->idle.seen_ns);
		} else {
			k->all = false;
			k->busy |= state == QUEUE_BUSY;
			k->soon_ns = MAX(k->soon_ns, soon_until(q));
		}
		if (state != QUEUE_DRAINED || q->idle.seen_ns >= opened) {
			k->linger_ns = MAX(k->linger_ns, load_relaxed(&q->idle.close_delay_ns));
			k->synced &= load_acquire(&q->idle.sync_seq) == entered;
		}
		k->progress += entered + sched_tally_sum(&q->left) +
			       load_relaxed(&q->idle.seen_seq) + load_relaxed(&q->marks.retired);
		sched_queue_unuse(q);
	}
}

static bool something_entered(struct sched *s, uint32_t gpu)
{
	sched_queues_each (s, q) {
		if (load_relaxed(&q->gpu) == gpu && load_relaxed(&q->life.live) &&
		    load_seqcst(&q->entered) != load_relaxed(&q->idle.seen_seq)) {
			return true;
		}
	}
	return false;
}

static void account(struct sched *s, struct sched_request *r, uint64_t duration_ns)
{
	uint64_t shortest = UINT64_MAX;

	r->close.lasted_ns[r->close.n_lasted++ % SCHED_DURATIONS] = duration_ns;
	for (uint32_t i = 0; i < SCHED_DURATIONS; i++) {
		shortest = MIN(shortest, r->close.lasted_ns[i]);
	}
	r->close.shortest_ns = shortest;
	sched_stat_add(s, requests, 1u);
	sched_stat_add(s, request_ns, duration_ns);
	sched_stat_add(s, request_hist[proto_hist_bucket(duration_ns)], 1u);
}

/* Shows no open request on the board, and wakes the processes that wait for that. */
static void close_board(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct proto_board_gpu *b = sched_own_board(s, gpu);
	struct sched_request *r = &s->req[gpu];

	if (!b) {
		return;
	}
	store_relaxed(&b->last_end_ns, now);
	store_relaxed(&b->deadline_ns,
		      load_relaxed(&r->next_ns) ? load_relaxed(&r->next_deadline_ns) : 0);
	store_seqcst(&b->open, 0u);
	(void)add_acqrel(&b->seq, 1u);
	fence_seqcst();
	if (load_seqcst(&r->open) == SCHED_REQUEST_OPEN) {
		store_seqcst(&b->open, 1u);
	}
	futex_wake_shared(&b->seq, INT_MAX);
}

/* Closes the private word first; then looks at the queues again, since a launch counts itself in
 * `entered` before it reads that word; then lowers the leases; then closes the board. After each
 * step the private word is read again. So whatever a launch does meanwhile, leases are raised and
 * the board is open if a request is. The leases come before the board: its waiters would otherwise
 * launch while they are up and leave the GPU again. */
static void request_close(struct sched *s, uint32_t gpu, uint64_t drained_ns, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	uint64_t opened = load_relaxed(&r->opened_ns);
	uint32_t was = load_relaxed(&r->open);
	struct policy_reader *pin;

	store_seqcst(&r->open, (uint32_t)SCHED_REQUEST_CLOSED);
	fence_seqcst();
	if (something_entered(s, gpu)) {
		uint32_t expected = SCHED_REQUEST_CLOSED;

		/* succeeds unless the launch has already opened the next request */
		if (cas_acqrel(&r->open, &expected, was)) {
			return;
		}
	}
	pin = policy_read_enter();
	sched_lease_update(s, gpu, now);
	close_board(s, gpu, now);
	policy_read_leave(pin);
	store_relaxed(&r->deadline_ns, (uint64_t)0);
	r->close.asked_ns = 0;
	account(s, r, drained_ns > opened ? drained_ns - opened : 0);
}

/* Times the request out. It remains one until it is drained, so that no other is opened on top of
 * it, but launches of other tenants are no longer held for it. */
static void time_out(struct sched *s, uint32_t gpu, bool stalled, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	struct policy_reader *pin = policy_read_enter();

	store_seqcst(&r->open, (uint32_t)SCHED_REQUEST_TIMED_OUT);
	sched_lease_update(s, gpu, now);
	close_board(s, gpu, now);
	policy_read_leave(pin);
	sched_stat_add(s, requests_cut, 1u);
	sched_note(
		s, "request-cut",
		stalled ? "request stalled for 1 s; no longer holding others for it"
			: "request open for 10 s without a pause; not holding others for it until "
			  "it has drained once");
}

/* A thread that opened the request and was preempted before it reached the board may open the board
 * now. */
static void keep_timed_out(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct policy_reader *pin = policy_read_enter();
	struct proto_board_gpu *b = sched_own_board(s, gpu);

	if (b && load_relaxed(&b->open)) {
		close_board(s, gpu, now);
	}
	sched_lease_update(s, gpu, now);
	policy_read_leave(pin);
}

/* Longest time that counts between two looks: without a processor this thread has not seen a stall,
 * and perhaps no other thread ran either. */
#define WATCH_MAX_NS (SCHED_STALL_NS / 10)

static bool is_stalled(struct sched_request *r, const struct look *k, uint64_t now,
		       bool *ret_stalled)
{
	uint64_t opened = load_relaxed(&r->opened_ns),
		 unseen = sched_since_ns(r->close.watched_ns, now);

	if (r->close.progress != k->progress || r->close.progress_ns < opened) {
		r->close.progress = k->progress;
		r->close.progress_ns = MAX(now, opened);
	} else if (unseen > WATCH_MAX_NS) {
		r->close.progress_ns += unseen - WATCH_MAX_NS;
	}
	r->close.watched_ns = now;
	*ret_stalled = sched_since_ns(r->close.progress_ns, now) > SCHED_STALL_NS;
	return *ret_stalled || sched_since_ns(opened, now) > SCHED_REQUEST_MAX_NS;
}

static uint64_t entered_all(struct sched *s, uint32_t gpu)
{
	uint64_t sum = 0;

	sched_queues_each (s, q) {
		if (load_relaxed(&q->gpu) == gpu && load_relaxed(&q->life.live)) {
			sum += load_seqcst(&q->entered);
		}
	}
	return sum;
}

/* A short close delay is over before a sleeping thread would be back: spins until then, or until a
 * launch begins. Returns the time. */
static uint64_t spin_until(struct sched *s, uint32_t gpu, uint64_t until)
{
	uint64_t now = clock_now_ns(), entered = entered_all(s, gpu);

	for (uint32_t i = 0; i < SPIN_ROUNDS && now < until && entered_all(s, gpu) == entered;
	     i++) {
		cpu_relax();
		now = clock_now_ns();
	}
	return now;
}

/* The end reported by a synchronization need only be seen before its close delay is over. */
static uint64_t poll_ns(const struct sched_request *r)
{
	uint64_t most = r->close.by_sync == BY_SYNC ? ASK_SELDOM_NS : SCHED_OPEN_POLL_NS;
	uint64_t linger = r->close.by_sync == BY_SYNC ? r->close.delay_ns / 2 : r->close.delay_ns;

	return MAX(MIN(linger, most), (uint64_t)SHORT_POLL_NS);
}

/* No recent request ended earlier than that; and the longer this one has lasted, the less a few
 * microseconds of delay matter. */
static uint64_t again_ns(const struct sched_request *r, uint64_t now)
{
	uint64_t lasted = sched_since_ns(load_relaxed(&r->opened_ns), now);
	uint64_t early = r->close.shortest_ns / 4 * 3;
	uint64_t again = MAX(poll_ns(r), MIN(lasted / 64, (uint64_t)SCHED_TIMED_OUT_POLL_NS));

	return MAX(again, MIN(sched_since_ns(lasted, early), (uint64_t)SCHED_RENEW_NS));
}

/* Asking the device whether a queue is idle takes a driver lock that launches need. So it is asked
 * at every look only if looks are rare, and seldom in a process whose requests end with
 * synchronizations, which are seen without asking. */
static bool should_ask(const struct sched_request *r, uint64_t now)
{
	uint64_t last = r->close.asked_ns;

	if (r->close.by_sync == BY_SYNC) {
		return sched_since_ns(MAX(last, load_relaxed(&r->opened_ns)), now) >= ASK_SELDOM_NS;
	}
	return r->close.delay_ns >= SCHED_OPEN_POLL_NS ||
	       sched_since_ns(last, now) >= SCHED_OPEN_POLL_NS;
}

/* Closes the request if it has ended, or times it out. Caller has r->close.turn. Returns ns until
 * the next look. */
static uint64_t look(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	bool ask = should_ask(r, now);
	bool cut = load_relaxed(&r->open) == SCHED_REQUEST_TIMED_OUT, stalled;
	struct look k;

	r->close.asked_ns = ask ? now : r->close.asked_ns;
	look_at_queues(s, gpu, now, ask, &k);
	if (!cut && !k.all && !k.busy && now < k.soon_ns) {
		if (k.soon_ns - now >= SPIN_NS) {
			return k.soon_ns - now;
		}
		now = spin_until(s, gpu, k.soon_ns);
		look_at_queues(s, gpu, now, ask, &k);
	}
	r->close.delay_ns = k.linger_ns;
	store_relaxed(&r->close.at_once, k.linger_ns == 0 ? 1u : 0u);
	if (!k.all) {
		if (cut) {
			keep_timed_out(s, gpu, now);
			return SCHED_TIMED_OUT_POLL_NS;
		}
		if (is_stalled(r, &k, now, &stalled)) {
			time_out(s, gpu, stalled, now);
			return SCHED_TIMED_OUT_POLL_NS;
		}
		return again_ns(r, now);
	}
	if (k.last_ns >= load_relaxed(&r->opened_ns)) {
		sched_request_idle(r, k.last_ns);
	}
	if (!cut && now < k.last_ns + k.linger_ns && k.linger_ns < SPIN_NS) {
		now = spin_until(s, gpu, k.last_ns + k.linger_ns);
	}
	if (!cut && now < k.last_ns + k.linger_ns) {
		return MIN(k.last_ns + k.linger_ns - now, poll_ns(r));
	}
	r->close.by_sync = k.synced ? MIN(r->close.by_sync + 1, BY_SYNC) : 0;
	request_close(s, gpu, k.last_ns, now);
	return load_relaxed(&r->open) ? poll_ns(r) : UINT64_MAX;
}

/* Tries to take the turn of looking at a request. Returns its number, or 0 if another thread has
 * it. */
static uint32_t take_turn(struct sched_request *r)
{
	uint32_t seq = load_relaxed(&r->close.turn);

	return !(seq & 1) && cas_acqrel(&r->close.turn, &seq, seq + 1) ? seq + 1 : 0;
}

/* Does nothing if the agent has stolen the turn. */
static void give_turn(struct sched_request *r, uint32_t mine)
{
	(void)cas_acqrel(&r->close.turn, &mine, mine + 1);
}

/* Agent: takes the turn from a thread that was preempted, or left by longjmp, while it had it. */
static uint32_t steal_turn(struct sched_request *r, uint64_t now)
{
	uint32_t seq = load_acquire(&r->close.turn);

	if (r->close.stuck_turn != seq) {
		r->close.stuck_turn = seq;
		r->close.stuck_since_ns = now;
	}
	if (!(seq & 1) || now - r->close.stuck_since_ns < SCHED_STEAL_NS) {
		return 0;
	}
	return cas_acqrel(&r->close.turn, &seq, seq + 2) ? seq + 2 : 0;
}

void sched_request_synced(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	uint32_t mine;

	if (load_acquire(&r->open) == SCHED_REQUEST_CLOSED || !load_relaxed(&r->close.at_once)) {
		return;
	}
	mine = take_turn(r);
	if (!mine) {
		return;
	}
	if (load_acquire(&r->open) != SCHED_REQUEST_CLOSED) {
		(void)look(s, gpu, now);
	}
	give_turn(r, mine);
}

uint64_t sched_requests_step(struct sched *s, uint64_t now)
{
	uint64_t sleep = UINT64_MAX;

	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		struct sched_request *r = &s->req[g];
		uint64_t again;
		uint32_t mine;

		if (load_acquire(&r->open) == SCHED_REQUEST_CLOSED) {
			continue;
		}
		store_relaxed(&r->looked_ns, load_relaxed(&r->opened_ns));
		store_relaxed(&load_acquire(&s->own)->beat_ns, now);
		mine = take_turn(r);
		mine = mine ? mine : steal_turn(r, now);
		if (!mine) {
			sleep = MIN(sleep, (uint64_t)SCHED_OPEN_POLL_NS);
			continue;
		}
		if (load_acquire(&r->open) != SCHED_REQUEST_CLOSED) {
			again = look(s, g, now);
			sleep = MIN(sleep, again);
		}
		give_turn(r, mine);
	}
	return sleep;
}
