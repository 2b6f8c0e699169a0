/* Queues with launches at block level. From the first such launch until all blocks of the last have
 * started, a queue has SCHED_HAS_RUN: launches at block level follow each other under its
 * issue.lock, and all other calls go to the FIFO. docs/PREEMPTION.md argues why nothing else can
 * get in between.
 *
 * A plain launch is at the queue's gate from before it reads `pending` until the driver has it.
 * sched_run_begin sets SCHED_HAS_RUN first and then looks whether another thread is at the gate.
 * Either the launch sees the bit, or the beginner sees the launch, and then does without a run.
 * Only the beginner executes the expensive barrier (membarrier); entering the gate is a plain
 * store. */
#include "sched/sched_int.h"

#include "base/clock.h"

#define GATE_NS 20000u /* longest wait for plain launches that are being submitted */
/* Periods of looking at a run that no thread waits for. SCHED_RUN_QUIET_NS without latency tenants;
 */
#define RUN_IDLE_NS 300000u    /* with latency tenants that are quiet, */
#define RUN_NEAR_NS 50000u     /* after a recent request of theirs, */
#define RUN_OPEN_NS 15000u     /* while one is open, */
#define RUN_SPIN_NS 2000u      /* while it interrupts the run, with many processors, */
#define RUN_FEW_CPUS_NS 25000u /* and with few; */
#define RUN_HELD_NS 50000u     /* when it has interrupted the run for longer than this: */
#define RUN_SPIN_MAX_NS 2000000u
#define RUN_RECENT_NS 20000000u /* age up to which the duration of a request counts as recent */
#define RUN_SUSPECT_NS                                                                             \
	2000000u /* time after a request during which an interruption may not be visible yet */

/* ---- the gate ---- */

/* Enters the gate of a queue that another thread uses mostly, or no thread yet. */
static NOINLINE void enter_gate_slow(struct sched_queue *q)
{
	struct policy_reader *none = NULL;
	struct policy_reader *self = policy_reader_self;

	if (!self) { /* the first launch of a thread takes a slot, if there is a free one */
		struct policy_reader *pin = policy_read_enter();

		policy_read_leave(pin);
		self = policy_reader_self;
	}
	if (!self) {
		(void)add_seqcst(&q->guests, 1u);
	} else {
		(void)policy_gate_enter(q);
		if (load_relaxed(&q->total.owner) == self ||
		    (!load_relaxed(&q->total.owner) && cas_acqrel(&q->total.owner, &none, self))) {
			return;
		}
	}
	if (!load_relaxed(&q->shared)) {
		store_relaxed(&q->shared, 1u);
	}
	fence_seqcst(); /* Orders `shared` before the read of `pending`. Pairs with the fence in
			   sched_run_begin: it sees `shared`, or this thread sees SCHED_HAS_RUN. */
}

void sched_gate_enter(struct sched_queue *q)
{
	if (unlikely(load_relaxed(&q->total.owner) != policy_reader_self ||
		     !policy_gate_enter(q))) {
		enter_gate_slow(q);
	}
}

void sched_gate_leave(struct sched_queue *q)
{
	if (unlikely(!policy_reader_self)) {
		(void)sub_acqrel(&q->guests, 1u);
		return;
	}
	policy_gate_leave();
}

/* ---- beginning and ending ---- */

static void end(struct sched_queue *q) REQUIRES(q->issue.lock)
{
	struct sched *s = q->s;

	q->run.stopped_since_ns = q->run.held_since_ns = q->run.step_ns = q->run.stepped_ns = 0;
	(void)and_seqcst(&q->pending, ~SCHED_HAS_RUN);
	if (sub_seqcst(&s->n_runs, 1u) == 1) {
		sched_update_active(s);
	}
}

/* Returns whether no other thread is between its look at `pending` and the driver. The caller is
 * not at the gate. */
static bool alone(struct sched_queue *q)
{
	if (!load_relaxed(&q->shared) && load_relaxed(&q->total.owner) == policy_reader_self) {
		return true;
	}
	return policy_gate_synchronize(q, GATE_NS) && !load_seqcst(&q->guests);
}

bool sched_run_begin(struct sched_queue *q)
{
	struct sched *s = q->s;

	if (sched_run_here(q)) {
		return true;
	}
	(void)add_seqcst(&s->n_runs, 1u);
	(void)or_seqcst(&q->pending, SCHED_HAS_RUN);
	fence_seqcst();
	if (!alone(q)) {
		end(q);
		return false;
	}
	store_relaxed(&q->run.look_ns, UINT64_C(0));
	sched_wake_agent(s, SCHED_AGENT_SLOW);
	return true;
}

static bool device_busy(const struct sched_queue *q)
{
	return q->s->cfg.device->run_busy(q->s->cfg.dev, q->dev_queue) != 0;
}

void sched_run_look(struct sched_queue *q, struct sched_run_progress *ret)
{
	int err = q->s->cfg.device->run_look(q->s->cfg.dev, q->dev_queue, ret), none = 0;

	if (unlikely(err)) {
		(void)cas_acqrel(&q->error, &none, err);
	}
}

/* Accounts new interruptions. */
static void account(struct sched_queue *q, const struct sched_run_progress *c)
	REQUIRES(q->issue.lock)
{
	uint32_t more = c->interruptions - q->run.interruptions;

	if (more) {
		q->run.interruptions = c->interruptions;
		sched_stat_add(q->s, interruptions, more);
	}
}

static void finish(struct sched_queue *q) REQUIRES(q->issue.lock)
{
	struct sched_run_progress c;

	sched_run_look(q, &c);
	account(q, &c);
	end(q);
}

bool sched_run_unfinished(const struct sched_queue *q)
{
	return sched_run_here(q) && device_busy(q);
}

bool sched_run_end_if_done(struct sched_queue *q)
{
	if (sched_run_here(q) && !device_busy(q)) {
		finish(q);
	}
	return !sched_run_here(q);
}

bool sched_run_try_end(struct sched_queue *q)
{
	bool over = !sched_run_here(q); /* deferred calls may have been submitted meanwhile, and the
					   run may have ended */

	if (!over && !device_busy(q) && lock_try(&q->issue.lock)) {
		over = sched_run_end_if_done(q);
		lock_release(&q->issue.lock);
	}
	return over;
}

bool sched_run_allowed(const struct sched_queue *q, const struct sched_launch *l,
		       const struct sched_decision *a)
{
	const struct sched *s = q->s;

	return a->level == GBPF_LEVEL_BLOCK && l->block_ok && l->may_hold &&
	       (a->gate != GBPF_GATE_OFF || sched_run_here(q)) &&
	       load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY &&
	       !load_acquire(&q->run.draining) && s->cfg.device->run_busy &&
	       clock_now_ns() >= load_relaxed(&s->active_ns);
}

bool sched_run_has_room(struct sched_queue *q)
{
	struct sched_run_progress c;

	sched_run_look(q, &c);
	return !c.full;
}

bool sched_run_join(struct sched_queue *q) ACQUIRES_IF(true, q->issue.lock)
{
	if (!sched_run_here(q) || sched_fifo_count(q) || load_acquire(&q->run.draining) ||
	    !device_busy(q)) {
		return false;
	}
	lock_take(&q->issue.lock);
	if (!sched_fifo_count(q) && sched_run_here(q) && sched_run_has_room(q)) {
		return true;
	}
	lock_release(&q->issue.lock);
	return false;
}

void sched_run_joined(struct sched_queue *q) RELEASES(q->issue.lock)
{
	lock_release(&q->issue.lock);
}

void sched_run_add(struct sched_queue *q, struct sched_launch *l, const struct sched_decision *a)
{
	l->level = GBPF_LEVEL_BLOCK;
	l->piece_blocks = a->pieces;
	l->gate_mode = a->gate;
	sched_stat_add(q->s, block_launches, 1u);
}

/* ---- looking after it ---- */

struct outlook {
	bool off;     /* no policy: finish the run as fast as possible */
	bool may_run; /* no request of others is open or just ahead */
	bool seen;    /* there was a request since the last look */
	uint64_t period_ns;
	uint64_t due_ns; /* the open request hardly ends before; 0: not known */
};

/* Returns the shortest duration of the recent requests. Inside a read-side section. */
static uint64_t shortest_request(struct sched *s, uint32_t index, uint64_t now)
{
	uint64_t shortest = UINT64_MAX;

	for (uint32_t i = 0; i < load_acquire(&s->boards.n); i++) {
		const struct proto_board *b = load_acquire(&s->boards.slot[i].board);
		uint64_t end = b ? load_relaxed(&b->gpu[index].last_end_ns) : 0;

		if (end && sched_since_ns(end, now) < RUN_RECENT_NS) {
			shortest = MIN(shortest,
				       sched_since_ns(load_relaxed(&b->gpu[index].opened_ns), end));
		}
	}
	return shortest;
}

/* Returns when the newest open request was opened. Inside a read-side section. */
static uint64_t opened_last(struct sched *s, uint32_t index, uint64_t now)
{
	uint64_t opened = 0;

	for (uint32_t i = 0; i < load_acquire(&s->boards.n); i++) {
		const struct proto_board *b = load_acquire(&s->boards.slot[i].board);

		if (b && proto_board_open(b, index, now)) {
			opened = MAX(opened, load_relaxed(&b->gpu[index].opened_ns));
		}
	}
	return opened;
}

/* Learns the shortest duration of requests: falls at once, rises slowly. */
static void learn_request(struct sched_queue *q, uint64_t shortest)
{
	uint64_t old = q->run.request_ns;

	if (shortest != UINT64_MAX) {
		q->run.request_ns = shortest > old ? old + (shortest - old) / 8 : shortest;
	}
}

/* A request that interrupts the run should be noticed before it ends: within half of the last
 * durations. The longer there was none, the less one late look matters. */
static uint64_t while_quiet(uint64_t shortest, uint64_t idle)
{
	uint64_t ns = idle < RUN_RECENT_NS ? shortest / 2 : MAX(idle / 64, RUN_IDLE_NS);

	return MIN(MAX(ns, RUN_NEAR_NS), idle < RUN_RECENT_NS ? RUN_IDLE_NS : SCHED_RUN_QUIET_NS);
}

static void look_out(struct sched_queue *q, uint64_t now, struct outlook *o)
{
	struct sched *s = q->s;
	uint32_t index = load_relaxed(&s->policy.gpu[q->gpu].index), open = 0;
	uint64_t idle = UINT64_MAX, next = UINT64_MAX, shortest = UINT64_MAX, opened = 0;
	struct sched_decision a = { .word = NULL };
	struct policy_reader *pin;
	bool others;

	o->off = !sched_policy_in_force(q);
	pin = policy_read_enter();
	others = index < PROTO_MAX_GPUS && load_acquire(&s->boards.n);
	if (others) {
		open = sched_boards_scan(s, index, now, &a, &idle, &next);
		if (open) {
			opened = opened_last(s, index, now);
		} else {
			shortest = shortest_request(s, index, now);
		}
	}
	policy_read_leave(pin);
	learn_request(q, shortest);
	o->due_ns = open ? opened + MIN(q->run.request_ns, RUN_RECENT_NS) / 4 * 3 : 0;
	o->period_ns = open || next <= sched_lead_ns(s) ? RUN_OPEN_NS
		       : !others			? SCHED_RUN_QUIET_NS
							: while_quiet(shortest, idle);
	o->period_ns *= s->few_cpus && o->period_ns < RUN_IDLE_NS ? 2 : 1;
	o->may_run = o->off || (!open && next > sched_lead_ns(s));
	o->seen = open || idle <= now - MIN(q->run.scanned_ns, now);
	q->run.scanned_ns = now;
}

/* Returns true if the run has been held by requests of others for longer than the hold limit, or
 * than the minimum share allows afterwards: one piece of unknown duration goes regardless. */
static bool starved(struct sched_queue *q, uint64_t now)
{
	struct sched_launch l = { .begin_ns = q->run.held_since_ns };

	if (sched_share_left(q->s, &l, q->run.held_since_ns, now)) {
		return false;
	}
	(void)sched_share_take(q->s, &l, now);
	q->run.held_since_ns = now;
	sched_stat_add(q->s, forced, 1u);
	return true;
}

static void resumed(struct sched_queue *q, uint64_t now)
{
	struct sched_launch l = { .begin_ns = q->run.stopped_since_ns };

	if (q->run.stopped_since_ns) {
		q->run.suspect_until_ns = 0;
	}
	if (q->run.held_since_ns) {
		sched_hold_account(q, &l, PROTO_WHY_LEASE,
				   sched_since_ns(q->run.stopped_since_ns, now));
		sched_share_reset(q->s);
	}
	q->run.stopped_since_ns = q->run.held_since_ns = 0;
}

/* Returns when the device needs the next step; rarely if no thread waits for the run. */
static uint64_t step_at(const struct sched_queue *q, const struct sched_run_progress *c,
			bool waited)
{
	return waited || c->feeding || sched_fifo_count(q)
		       ? q->run.step_ns
		       : MAX(q->run.step_ns, q->run.stepped_ns + SCHED_RUN_QUIET_NS);
}

/* Returns whether a request may have interrupted the run unseen. The launch that was running may
 * have started whole, the next one did not: with two more launches through, there was no
 * interruption. */
static bool suspect(struct sched_queue *q, const struct sched_run_progress *c,
		    const struct outlook *o, uint64_t now)
{
	if (o->seen) {
		q->run.suspect_until_ns = now + RUN_SUSPECT_NS;
		q->run.suspect_done = c->done;
	}
	return now < q->run.suspect_until_ns && c->done < q->run.suspect_done + 2;
}

/* Returns whether the run proceeds without help, and no request can have interrupted it. */
static bool proceeds_alone(struct sched_queue *q, const struct sched_run_progress *c,
			   const struct outlook *o, uint64_t step_at, uint64_t now, bool force)
{
	if (c->stopped) {
		return c->waiting && !o->may_run && !force;
	}
	return !suspect(q, c, o, now) && !o->off && now < step_at;
}

/* Charges the time for which leases have stopped the run although no request was open: attempts to
 * resume it that achieved nothing, and interruptions without a request since the look before. */
static void charge_doubt(struct sched_queue *q, const struct sched_run_progress *c,
			 const struct outlook *o, uint64_t now)
{
	struct sched_run_doubt *x = &q->run.doubt;
	bool more = c->interruptions != x->interruptions;
	bool futile = c->futile != x->futile;

	if (c->stopped && !c->waiting) {
		return; /* how far its blocks came is being read */
	}
	if (o->off || !o->may_run) {
		x->calm_ns = now;
	} else if (futile || (more && !o->seen && now >= q->run.suspect_until_ns)) {
		sched_lease_doubt_charge(q->s, MAX(x->calm_ns, now - SCHED_LEASE_NS), now);
		x->calm_ns = now;
	} else if (!c->stopped && !x->in_vain) {
		x->calm_ns = now;
	}
	x->in_vain = more ? futile : x->in_vain;
	x->interruptions = c->interruptions;
	x->futile = c->futile;
}

/* Returns ns until the next look at an interrupted run. Its blocks should return as soon as the
 * request ends, without spinning for long or before that is possible. */
static uint64_t while_stopped(const struct sched_queue *q, const struct outlook *o, uint64_t now,
			      uint64_t ns)
{
	if (o->may_run) {
		return ns;
	}
	if (now - q->run.stopped_since_ns >= RUN_SPIN_MAX_NS) {
		return RUN_HELD_NS;
	}
	ns = q->s->few_cpus ? RUN_FEW_CPUS_NS : RUN_SPIN_NS;
	return MAX(ns, MIN(sched_since_ns(now, o->due_ns), (uint64_t)RUN_HELD_NS));
}

uint64_t sched_run_care(struct sched_queue *q, uint64_t now, bool waited)
{
	const struct sched_device_ops *dev = q->s->cfg.device;
	uint64_t at = load_relaxed(&q->run.look_ns), ns;
	struct sched_run_progress c;
	struct outlook o;
	bool force;

	if (!sched_run_here(q)) {
		return UINT64_MAX;
	}
	if (!device_busy(q)) {
		finish(q);
		return UINT64_MAX;
	}
	if (now < at && !waited) {
		return at - now;
	}
	look_out(q, now, &o);
	sched_run_look(q, &c);
	force = o.off || (o.may_run && sched_lease_doubted(q->s, now));
	if (c.stopped) {
		q->run.stopped_since_ns = q->run.stopped_since_ns ? q->run.stopped_since_ns : now;
	}
	if (c.stopped && !o.may_run) {
		q->run.held_since_ns = q->run.held_since_ns ? q->run.held_since_ns : now;
		force = c.waiting && starved(q, now);
	}
	at = step_at(q, &c, waited);
	if (proceeds_alone(q, &c, &o, at, now, force)) {
		ns = c.stopped ? while_stopped(q, &o, now, 0) : MIN(at - now, o.period_ns);
		store_relaxed(&q->run.look_ns, now + ns);
		return ns;
	}
	ns = dev->run_step(q->s->cfg.dev, q->dev_queue, o.may_run, force);
	sched_run_look(q, &c);
	charge_doubt(q, &c, &o, now);
	account(q, &c);
	if (ns == UINT64_MAX) {
		end(q);
		return ns;
	}
	if (c.stopped) {
		q->run.stopped_since_ns = q->run.stopped_since_ns ? q->run.stopped_since_ns : now;
		ns = while_stopped(q, &o, now, ns);
	} else {
		if (o.may_run) {
			resumed(q, now);
		}
		q->run.step_ns = now + ns;
		q->run.stepped_ns = now;
		ns = MIN(step_at(q, &c, waited) - now, o.period_ns);
	}
	store_relaxed(&q->run.look_ns, now + ns);
	return ns;
}
