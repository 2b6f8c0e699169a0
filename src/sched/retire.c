/* Finds out which launches have ended on the device. The driver reports no ends, so events
 * ("markers") are recorded in the stream now and then, and polled: a marker that is reached proves
 * that all launches before it have ended.
 *
 * Example: launches 1 to 15 of a queue, each estimated at 20 us. Each adds itself to the queue's
 * total and to the work in flight. After the 13th, 260 us are unmarked, more than MARK_SHORT_NS: a
 * marker is placed and stores total = 13. When the device has reached it, launches 1 to 13 are
 * retired: their estimates leave the work in flight, and the hook retire is called once with
 * count = 13. Launches 14 and 15 stay in flight until the next marker. A launch whose duration is
 * to be learned gets a marker before it, too, and the time between the two is the sample.
 *
 * Order: the total is read before the marker is placed, so a launch that another thread adds in
 * between is left to the next marker. take_into_account() names the exception.
 *
 * Launches at block level: the stream passes a stopped clone although blocks are missing, so a
 * marker proves nothing. There the run reports how many launches are through, and markers only
 * measure; a sample counts if the run was not interrupted meanwhile. For an interrupted launch the
 * run reports the time that its blocks took.
 *
 * Behind work, a launch begins when the device reaches the marker before it. If the device has
 * nothing to do, the marker is reached at once and the launch comes later: on an H200 12 us instead
 * of 2.7 are measured for the kernels of a PyTorch program. So if the marker is reached when the
 * driver has taken the launch, the time that this took is subtracted. That is too much by the work
 * that was still before the marker, and too little by the time from the launch's end to the end
 * marker behind it.
 *
 * Locking: a queue's markers lie in a bounded ring, whose lock is only tried. A thread that does
 * not get it leaves the work to the thread that has it, which may be inside the driver. */
#include "sched/sched_int.h"

#include <errno.h>

#include "base/clock.h"

/* A marker costs some microseconds: estimated work between two of them for launches shorter than
 * SCHED_MARK_NS. */
#define MARK_SHORT_NS 250000u

static bool ring_try(struct sched_queue *q)
{
	return !load_relaxed(&q->marks.lock) && !xchg_acqrel(&q->marks.lock, 1u);
}

static void ring_leave(struct sched_queue *q)
{
	store_release(&q->marks.lock, 0u);
}

static void release(struct sched *s, struct sched_marker *m)
{
	if (m->event) {
		s->cfg.device->mark_release(s->cfg.dev, m);
		m->event = NULL;
	}
}

/* Returns how much of the time that launches took together is not charged: that beyond what has
 * passed since the end of what was charged before, while the process had work on the GPU. Kernels
 * that overlap, each measured from its begin to its end, would count twice otherwise. */
static uint64_t charge(struct sched_gpu *gpu, uint64_t ns)
{
	uint64_t to = load_acquire(&gpu->charged_to), charged, now = clock_now_ns();

	do {
		charged = MIN(ns, sched_since_ns(to, now));
	} while (!cas_acqrel(&gpu->charged_to, &to, to + charged));
	return ns - charged;
}

void sched_charge_skip(struct sched_gpu *gpu, uint64_t until)
{
	uint64_t to = load_relaxed(&gpu->charged_to);

	while (until > to) {
		if (cas_acqrel(&gpu->charged_to, &to, until)) {
			(void)add_relaxed(&gpu->skipped_ns, until - to);
			return;
		}
	}
}

/* Before the driver's call, which ends with a write to the device: locked additions after it would
 * wait for that write (~100 ns on an H200). So a marker that another thread places meanwhile may
 * count a launch that it does not cover, which is then retired one launch early. If that retires
 * all that is in flight, the rest of that launch's time is not charged. If the driver refuses that
 * launch, less than nothing is in flight, which counts as nothing, until the next marker or look.
 */
static void take_into_account(struct sched_queue *q, const struct sched_launch *l)
{
	struct sched_gpu *gpu = &q->s->gpu[q->gpu];
	uint64_t acc = SCHED_ACC(1, l->est_ns);

	if (!SCHED_ACC_COUNT(sched_gpu_inflight(gpu))) {
		/* The GPU was without work of the process: the time before is not charged. */
		sched_charge_skip(gpu, l->begin_ns + l->held_ns);
	}
	sched_tally_add(&gpu->inflight, acc);
	sched_tally_add(&q->total, acc);
	sched_tally_add(&q->threads, l->blocks * l->threads);
}

static void take_back(struct sched_queue *q, const struct sched_launch *l)
{
	uint64_t acc = SCHED_ACC(1, l->est_ns);

	sched_tally_sub(&q->total, acc);
	sched_tally_sub(&q->s->gpu[q->gpu].inflight, acc);
}

/* All blocks of the run are on the device, so that a marker behind it is reached when it ends. */
static bool run_measures(struct sched_queue *q)
{
	struct sched_run_progress c;

	sched_run_look(q, &c);
	return !c.feeding && !c.stopped;
}

void sched_launch_start(struct sched_ticket *t, const struct sched_decision *a)
{
	struct sched_queue *q = t->q;
	struct sched_launch *l = t->l;
	struct sched *s = q->s;
	struct sched_estimate *e;

	t->collective = sched_group_count(q, l);
	take_into_account(q, l);
	t->sample.event = NULL;
	e = sched_estimate_of(s, l);
	if (t->phase == SCHED_PHASE_LATENCY) {
		uint64_t left = sched_tally_sum(&q->left);
		bool due = sched_latency_due(q);

		if (!due && (!e || !sched_estimate_is_new(e))) {
			return;
		}
		if (due) {
			store_relaxed(&q->sample_at, left + (left < 1024 ? 64 : 1024));
		}
	}
	/* The ring has no place for the end marker; and every marker takes a place in the hardware
	 * queue, whose filling blocks the submitter (defer.c). */
	if (load_relaxed(&q->marks.head) - load_relaxed(&q->marks.tail) >= SCHED_RING) {
		return;
	}
	if (!e || sched_counts_bytes(s, l) || !l->may_hold || a->lc_open || !a->version ||
	    (l->level == GBPF_LEVEL_BLOCK && !run_measures(q)) || !sched_estimate_due(e)) {
		return;
	}
	if (s->cfg.device->mark(s->cfg.dev, q->dev_queue, true, &t->sample) < 0) {
		t->sample.event = NULL;
		return;
	}
	t->sample_ns = clock_now_ns();
}

/* Returns the estimated work between two markers. It grows with the number of markers, so that the
 * ring covers a deep queue. */
static uint64_t mark_distance(const struct sched_queue *q, uint64_t est_ns)
{
	uint64_t least = est_ns < SCHED_MARK_NS ? MARK_SHORT_NS : SCHED_MARK_NS;

	return least << ((load_relaxed(&q->marks.head) - load_relaxed(&q->marks.tail)) / 8);
}

/* Ties the mark to the newest launch of the queue's run. Returns false if no end event is needed.
 */
static bool mark_run(struct sched_queue *q, struct sched_mark *m)
{
	struct sched_run_progress c;

	sched_run_look(q, &c);
	m->run_seq = c.launched;
	m->interruptions = c.interruptions;
	m->fed = c.feeding || c.stopped;
	if (m->start.event && m->fed) {
		release(q->s, &m->start);
	}
	return m->start.event != NULL;
}

/* Returns by how much a launch that the driver has just taken was later than its start marker
 * although nothing was before it, ns; 0 for copies, which the driver may have done meanwhile. */
static uint64_t late_ns(const struct sched_ticket *t)
{
	const struct sched_config *cfg = &t->q->s->cfg;
	uint64_t late = sched_since_ns(t->sample_ns, clock_now_ns());

	return t->l->kernel && late && late <= SCHED_LATE_MAX_NS &&
			       cfg->device->mark_done(cfg->dev, &t->sample) == 1
		       ? late
		       : 0;
}

static void put_mark(struct sched_ticket *t)
{
	struct sched_queue *q = t->q;
	struct sched_launch *l = t->l;
	struct sched *s = q->s;
	struct sched_mark m = { .start = t->sample,
				.late_ns = t->sample.event ? late_ns(t) : 0,
				.begin_ns = l->begin_ns,
				.est_ns = l->est_ns,
				.held_ns = l->held_ns,
				.version = l->version,
				.hash = l->kernel ? l->kernel->hash : 0,
				.est = sched_estimate_of(s, l) };

	t->sample.event = NULL;
	if (!ring_try(q)) {
		release(s, &m.start);
		return;
	}
	m.collective = load_acquire(&q->collective);
	m.total = sched_tally_sum(&q->total);
	if (q->marks.head - q->marks.tail == SCHED_RING ||
	    ((l->level != GBPF_LEVEL_BLOCK || mark_run(q, &m)) &&
	     s->cfg.device->mark(s->cfg.dev, q->dev_queue, m.start.event, &m.end) < 0)) {
		release(s, &m.start);
	} else {
		q->marks.entry[q->marks.head % SCHED_RING] = m;
		store_release(&q->marks.head, q->marks.head + 1);
		store_relaxed(&q->unmarked_ns, (uint64_t)0);
	}
	ring_leave(q);
}

/* Wakes the agent for a request that this launch may have opened, or for work on the device. */
static NOINLINE void wake_for(const struct sched_ticket *t)
{
	struct sched_queue *q = t->q;
	bool opened = t->phase == SCHED_PHASE_LATENCY && sched_request_unseen(q->s, q->gpu);

	sched_wake_agent(q->s, opened ? SCHED_AGENT_NEAR : SCHED_AGENT_ASLEEP);
}

void sched_launch_done(struct sched_ticket *t, bool ok)
{
	struct sched_queue *q = t->q;
	struct sched_launch *l = t->l;
	struct sched *s = q->s;
	uint32_t asleep;
	uint64_t since;

	if (unlikely(!ok)) {
		take_back(q, l);
		if (unlikely(t->collective)) {
			sched_group_refused(q);
		}
	} else {
		if (unlikely(t->collective)) {
			sched_stat_max(&q->collective, t->collective); /* the driver has it */
			fence_seqcst(); /* before `asleep`: see work_came in agent.c */
		}
		if (l->kernel) {
			sched_kernel_count(l->kernel, l);
		}
		if (l->kind != GBPF_KIND_KERNEL) {
			sched_stats_count_kind(q, l->kind, l->bytes);
		}
	}
	if (t->phase == SCHED_PHASE_LATENCY) {
		sched_tally_add(&q->left, 1);
	}
	sched_queue_touch(q);
	asleep = load_relaxed(&s->agent.asleep);
	if (unlikely(asleep == SCHED_AGENT_ASLEEP ||
		     (asleep != SCHED_AGENT_AWAKE && t->phase == SCHED_PHASE_LATENCY))) {
		wake_for(t);
	}
	if (!ok) {
		release(s, &t->sample);
		return;
	}
	if (t->sample.event) {
		put_mark(t);
		(void)sched_retire_reached(q);
		return;
	}
	if (t->phase == SCHED_PHASE_LATENCY) {
		if (unlikely(load_relaxed(&q->idle.mark_each))) {
			put_mark(t);
			(void)sched_retire_reached(q);
		}
		return;
	}
	if (!l->version || !l->may_hold) {
		return;
	}
	since = load_relaxed(&q->unmarked_ns) + l->est_ns;
	store_relaxed(&q->unmarked_ns, since);
	if (since >= mark_distance(q, l->est_ns) ||
	    (!l->est_ns && sched_estimate_of(s, l) && !sched_counts_bytes(s, l))) {
		put_mark(t);
		(void)sched_retire_reached(q);
	}
}

/* The end of every ticket whose launch the driver has seen. */
static inline void ticket_end(struct sched_ticket *t, bool ok)
{
	struct sched_queue *q = t->q;

	if (t->phase >= SCHED_PHASE_GRANTED) {
		sched_gate_leave(t->q);
		sched_grant_done(t, ok);
	} else if (likely(t->holds == SCHED_HOLDS_GATE)) {
		sched_gate_leave(t->q);
		sched_launch_done(t, ok);
	} else if (t->holds == SCHED_HOLDS_LOCK) {
		sched_launch_done(t, ok);
		sched_ticket_take_lock(t, q);
		(void)sched_run_end_if_done(q); /* it was refused, or is through already */
		lock_release(&q->issue.lock);
	}
}

void sched_ticket_commit(struct sched_ticket *t)
{
	ticket_end(t, true);
}

void sched_ticket_abort(struct sched_ticket *t)
{
	ticket_end(t, false);
}

static bool reached(struct sched_queue *q, const struct sched_mark *m,
		    const struct sched_run_progress *c)
{
	if (m->run_seq && (int64_t)(c->done - m->run_seq) < 0) {
		return false;
	}
	return !m->end.event || q->s->cfg.device->mark_done(q->s->cfg.dev, &m->end) != 0;
}

/* Asks the run for the duration of a launch without a valid measurement; that is coarser. Behind a
 * run that holds blocks back no launch has one, so it is asked there now and then. */
static void ask_run(struct sched_queue *q, struct sched_mark *m, const struct sched_run_progress *c)
{
	const struct sched_device_ops *dev = q->s->cfg.device;
	bool stopped = c->interruptions != m->interruptions;

	if (stopped) { /* the time between its markers includes the interruption */
		release(q->s, &m->start);
		release(q->s, &m->end);
	}
	if (m->est && !m->start.event && dev->run_took &&
	    (stopped || !load_relaxed(&m->est->est_ns) || (m->fed && sched_estimate_due(m->est)))) {
		m->took_ns = dev->run_took(q->s->cfg.dev, q->dev_queue, m->run_seq);
	}
}

/* Moves what the ring shows as finished to r. Returns it as SCHED_ACC, which the caller takes out
 * of the work in flight. Caller holds the ring's lock. */
static uint64_t take_reached(struct sched_queue *q, struct sched_retired *r,
			     struct sched_mark *samples, unsigned *n_samples)
{
	struct sched *s = q->s;
	uint64_t upto = q->marks.retired, done;
	struct sched_run_progress c = { .done = 0 };
	bool looked = false;

	while (q->marks.tail != q->marks.head) {
		struct sched_mark *m = &q->marks.entry[q->marks.tail % SCHED_RING];

		if (m->run_seq && !looked) {
			sched_run_look(q, &c);
			looked = true;
		}
		if (!reached(q, m, &c)) {
			break;
		}
		upto = m->total;
		r->collective = MAX(r->collective, m->collective);
		q->marks.last_hash = m->hash;
		q->marks.last_version = m->version;
		q->marks.last_held_ns = m->held_ns;
		q->marks.last_level = m->run_seq ? GBPF_LEVEL_BLOCK : GBPF_LEVEL_HOLD;
		if (m->run_seq) {
			r->interrupted += c.interruptions - q->marks.last_interruptions;
			q->marks.last_interruptions = c.interruptions;
			ask_run(q, m, &c);
		}
		if (m->start.event || m->took_ns) {
			samples[(*n_samples)++] = *m;
		} else {
			release(s, &m->end);
		}
		store_release(&q->marks.tail, q->marks.tail + 1);
	}
	done = upto - q->marks.retired;
	store_release(&q->marks.retired, upto);
	if (!SCHED_ACC_BELOW_0(done)) { /* else a refused launch is taken back */
		r->count += SCHED_ACC_COUNT(done);
		r->duration_ns += SCHED_ACC_NS(done);
	}
	return done;
}

/* Returns the least by which other processes lengthen what is measured now; 0: gbpfd says that none
 * has work on the queue's GPU. */
static uint64_t others_ns(struct sched_queue *q, uint64_t now)
{
	const struct policy *p = &q->s->policy;
	uint32_t index = load_relaxed(&p->gpu[q->gpu].index);
	struct policy_reader *pin = policy_read_enter();
	const struct proto_directory *dir = load_acquire(&p->dir);
	bool yes = index < PROTO_MAX_GPUS && load_relaxed(&dir->shared_until_ns[index]) > now;

	policy_read_leave(pin);
	if (!yes) {
		return 0;
	}
	return load_relaxed(&q->s->lane) == GBPF_LANE_SHARED ? SCHED_OTHERS_KERNEL_NS
							     : SCHED_OTHERS_TURN_NS;
}

/* Returns the use of the device that a measured time x stands for. A known kernel that took many
 * times its estimate, or longer as others make it, waited for other work. A kernel that was not
 * known at its submission may be known since. */
static uint64_t use_of(const struct sched_mark *m, uint64_t x, uint64_t others)
{
	bool above = m->est && sched_estimate_is_above(m->est, x, others);

	if (m->est_ns) {
		return above || x > 4 * m->est_ns ? m->est_ns : x;
	}
	return above ? load_relaxed(&m->est->est_ns) : x;
}

/* Returns the time between the markers, less that in which nothing ran. */
static int64_t span_ns(struct sched *s, const struct sched_mark *m)
{
	int64_t span = s->cfg.device->mark_span_ns(s->cfg.dev, &m->start, &m->end);
	int64_t least = MIN(span, (int64_t)SCHED_LATE_LEAST_NS);

	return MAX(span - (int64_t)m->late_ns, least);
}

/* Measures, learns, and corrects the duration that was accounted. */
static void use_sample(struct sched_queue *q, struct sched_mark *m, struct sched_retired *r,
		       uint64_t others)
{
	struct sched *s = q->s;
	int64_t span = m->took_ns ? (int64_t)m->took_ns : span_ns(s, m);

	if (span >= 0) {
		uint64_t x = MIN((uint64_t)span, (uint64_t)SCHED_MAX_EST_NS);
		uint64_t used = use_of(m, x, others);

		r->duration_ns = r->duration_ns + used -
				 MIN(m->est_ns & ~(uint64_t)15, r->duration_ns + used);
		r->flags |= r->count == 1 ? GBPF_F_MEASURED : 0;
		bool own_counts = load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY;

		if (m->est &&
		    (m->took_ns || sched_boards_quiet_since(s, q->gpu, m->begin_ns, own_counts))) {
			sched_estimate_learn_shared(m->est, x, others);
		}
	}
	release(s, &m->start);
	release(s, &m->end);
}

/* Takes the launches, done as SCHED_ACC, out of the work in flight. They are charged before: the
 * next launch may be the first on a GPU without work. */
static void tell(struct sched_queue *q, struct sched_retired *r, struct sched_mark *samples,
		 unsigned n_samples, uint64_t done, uint64_t now)
{
	struct sched_gpu *gpu = &q->s->gpu[q->gpu];
	uint64_t others = n_samples ? others_ns(q, now) : 0;

	for (unsigned i = 0; i < n_samples; i++) {
		use_sample(q, &samples[i], r, others);
	}
	if (r->count) {
		r->overlap_ns = charge(gpu, r->duration_ns);
	}
	sched_tally_sub(&gpu->inflight, done);
	if (r->count) {
		store_relaxed(&q->idle.close_delay_ns, sched_hook_retire(q, r, now));
	}
}

static bool retire(struct sched_queue *q, bool idle, uint64_t total, uint64_t collective)
{
	struct sched_mark samples[SCHED_RING];
	struct sched_retired r = { 0 };
	uint64_t done, rest;
	unsigned n = 0;

	if (!ring_try(q)) {
		return false;
	}
	done = take_reached(q, &r, samples, &n);
	if (idle && q->marks.tail == q->marks.head && total != q->marks.retired) {
		rest = total - q->marks.retired;
		if ((int64_t)rest > 0) {
			r.count += SCHED_ACC_COUNT(rest);
			r.duration_ns += SCHED_ACC_NS(rest);
		} else if (total != sched_tally_sum(&q->total)) {
			rest = 0; /* another thread has retired more since the caller's look */
		}
		store_release(&q->marks.retired, q->marks.retired + rest);
		done += rest;
	}
	if (idle && q->marks.tail == q->marks.head) {
		r.collective = MAX(r.collective, collective);
	}
	if (r.collective <= load_relaxed(&q->marks.ended_collective)) {
		r.collective = 0;
	} else {
		store_relaxed(&q->marks.ended_collective, r.collective);
	}
	r.hash = q->marks.last_hash;
	r.version = q->marks.last_version;
	r.held_ns = q->marks.last_held_ns;
	r.level = q->marks.last_level;
	ring_leave(q);
	if (done || n) {
		tell(q, &r, samples, n, done, clock_now_ns());
	}
	if (unlikely(r.collective)) {
		sched_group_ended(q, r.collective, clock_now_ns());
	}
	return done != 0;
}

bool sched_retire_reached(struct sched_queue *q)
{
	if (load_relaxed(&q->marks.head) == load_relaxed(&q->marks.tail)) {
		return false;
	}
	return retire(q, false, 0, 0);
}

bool sched_retire_idle(struct sched_queue *q, uint64_t total, uint64_t collective)
{
	return retire(q, true, total, collective);
}

bool sched_retire_all(struct sched *s)
{
	bool some = false;

	sched_queues_each (s, q) {
		if (load_relaxed(&q->marks.head) != load_relaxed(&q->marks.tail) &&
		    sched_queue_use(q)) {
			some |= sched_retire_reached(q);
			sched_queue_unuse(q);
		}
	}
	return some;
}

void sched_mark_end(struct sched_queue *q)
{
	struct sched_mark m = { .version = 0 };

	if (!load_relaxed(&q->unmarked_ns) || !ring_try(q)) {
		return;
	}
	m.collective = load_acquire(&q->collective);
	m.total = sched_tally_sum(&q->total);
	m.hash = q->marks.last_hash;
	m.version = q->marks.last_version;
	if (q->marks.head - q->marks.tail < SCHED_RING &&
	    (sched_run_here(q)
		     ? !mark_run(q, &m)
		     : q->s->cfg.device->mark(q->s->cfg.dev, q->dev_queue, false, &m.end) == 0)) {
		q->marks.entry[q->marks.head % SCHED_RING] = m;
		store_release(&q->marks.head, q->marks.head + 1);
		store_relaxed(&q->unmarked_ns, (uint64_t)0);
	}
	ring_leave(q);
}

void sched_marks_drop(struct sched_queue *q)
{
	for (; q->marks.tail != q->marks.head; store_relaxed(&q->marks.tail, q->marks.tail + 1)) {
		release(q->s, &q->marks.entry[q->marks.tail % SCHED_RING].start);
		release(q->s, &q->marks.entry[q->marks.tail % SCHED_RING].end);
	}
	sched_group_forget(q);
	release(q->s, &q->issue.marker);
	q->issue.marker_seq = q->issue.n_orders = 0;
	store_relaxed(&q->issue.n_extra, 0u);
	sched_tally_sub(&q->s->gpu[q->gpu].inflight, sched_tally_sum(&q->total) - q->marks.retired);
	store_relaxed(&q->marks.retired, sched_tally_sum(&q->total));
}

/* Returns whether the queue is idle, or mute and unchanged for a while. */
static bool finished(struct sched_queue *q, uint64_t now)
{
	uint64_t total = sched_tally_sum(&q->total);
	int idle;

	if (sched_run_here(
		    q)) { /* also before the first launch of the run, which is accounted already */
		return false;
	}
	idle = q->s->cfg.device->queue_idle(q->s->cfg.dev, q->dev_queue);
	if (idle != -EAGAIN) {
		q->idle.quiet_since_ns = 0;
		return idle != 0;
	}
	if (!q->idle.quiet_since_ns || q->idle.quiet_total != total) {
		q->idle.quiet_since_ns = now;
		q->idle.quiet_total = total;
	}
	return now - q->idle.quiet_since_ns > SCHED_UNKNOWN_NS;
}

/* collective_phase was not called yet for the end of the newest one that the driver has. */
static bool has_unseen_end(const struct sched_queue *q)
{
	return unlikely(load_relaxed(&q->collective) > load_relaxed(&q->marks.ended_collective));
}

/* A launch is in flight, or the end of a collective is unseen: its launch may have been retired
 * before the driver had it. */
static bool is_unsettled(const struct sched_queue *q)
{
	return load_acquire(&q->marks.retired) != sched_tally_sum(&q->total) || has_unseen_end(q);
}

bool sched_collectives_unseen(const struct sched *s)
{
	sched_queues_each (s, q) {
		if (has_unseen_end(q)) {
			return true;
		}
	}
	return false;
}

uint64_t sched_inflight_step(struct sched *s, uint64_t now)
{
	bool look = now - s->agent.last_idle_ns >= SCHED_STEADY_NS;
	uint64_t sleep = UINT64_MAX;

	s->agent.last_idle_ns = look ? now : s->agent.last_idle_ns;

	sched_queues_each (s, q) {
		uint64_t total, collective;

		if (!is_unsettled(q) || !sched_queue_use(q)) {
			continue;
		}
		total = sched_tally_sum(&q->total); /* of this use: it may have been reopened */
		collective = load_acquire(&q->collective);
		(void)sched_retire_reached(q);
		if (look && is_unsettled(q) &&
		    load_relaxed(&q->marks.head) == load_relaxed(&q->marks.tail) &&
		    finished(q, now)) {
			(void)sched_retire_idle(q, total, collective);
		}
		if (is_unsettled(q)) {
			sleep = SCHED_PENDING_POLL_NS;
		}
		sched_queue_unuse(q);
		s->agent.last_work_ns = now;
	}
	if (sleep == UINT64_MAX && now - s->agent.last_work_ns < SCHED_AWAKE_NS) {
		sleep = SCHED_PENDING_POLL_NS;
	}
	return sleep;
}
