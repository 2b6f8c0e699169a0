/* The rules of group.h. */
#include "sched/group.h"

#include <limits.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sched/sched_int.h"

#define CATCH_UP_NS 10000000u
#define LAG_MAX 64u
/* A stop lasts longer than until its rank looks again, by as much as a thread may come too late. */
#define STOP_NS (SCHED_WAIT_CAP_NS + 1000000u)

bool sched_may_communicate(const struct sched *s)
{
	return load_relaxed(&s->communicates);
}

void sched_will_communicate(struct sched *s)
{
	if (!load_relaxed(&s->communicates)) {
		store_seqcst(&s->communicates, 1u); /* before the look whether the agent sleeps */
		sched_update_active(s);
		sched_wake_agent(s, SCHED_AGENT_NEAR);
	}
}

/* Counts a collective, whose time is written before: a reader of a count that includes it finds it,
 * unless two threads of a rank launch at once and the later one's number is read meanwhile. Returns
 * its number. */
static uint64_t count_up(struct proto_board *own, uint32_t gpu, uint64_t now)
{
	uint64_t *times = own->launched_ns[gpu];
	uint64_t guess = load_relaxed(&own->gpu[gpu].collectives) + 1, number;

	store_relaxed(&times[guess % PROTO_COLLECTIVES], now);
	number = add_seqcst(&own->gpu[gpu].collectives, UINT64_C(1)) + 1;
	if (number != guess) {
		store_relaxed(&times[number % PROTO_COLLECTIVES], now);
	}
	return number;
}

/* What the other ranks say. */
struct view {
	bool behind;	      /* one of them has launched a collective that this rank has not */
	uint64_t until_ns;    /* of a stop that one wants; 0: none */
	const uint32_t *word; /* to wait on for its end, */
	uint32_t seq;	      /* and its value before the stop was seen */
};

/* Returns bits of the GPUs on which a board counts, as its owner says, without those of but. */
static uint32_t ranks_of(const struct proto_board *b, uint32_t but)
{
	return load_acquire(&b->ranks) & ((1u << PROTO_MAX_GPUS) - 1) & ~but;
}

/* Looks at a board. but: bits of GPUs that are left out. */
static void look(const struct proto_board *b, uint32_t but, uint64_t count, uint64_t now,
		 struct view *v)
{
	for (uint32_t ranks = ranks_of(b, but); ranks; ranks &= ranks - 1) {
		const struct proto_board_gpu *g = &b->gpu[__builtin_ctz(ranks)];
		uint32_t seq = load_acquire(&g->seq); /* before the stop, as in sched_boards_scan */
		uint64_t stop = load_acquire(&g->stop_until_ns);
		uint64_t hold = load_acquire(&g->hold_until_ns);
		uint64_t until = MAX(stop, hold);
		uint64_t ahead = load_relaxed(&g->collectives) - count;

		v->behind |= ahead - 1 < LAG_MAX;
		if (until > now && !v->until_ns) {
			v->until_ns = until;
			v->word = &g->seq;
			v->seq = seq;
		}
	}
}

/* Adds what a rank's board says about a collective. Returns when that rank launched it; 0: not
 * known. self: it is the caller's own. */
static uint64_t look_at(const struct proto_board *b, uint32_t gpu, bool self, uint64_t number,
			uint64_t now, struct sched_ranks *r)
{
	uint64_t count = load_acquire(&b->gpu[gpu].collectives), at;

	r->ranks++;
	if (!self && count - number >= LAG_MAX) {
		return 0; /* has not launched it, or counts others */
	}
	r->ready++;
	at = min_once(load_relaxed(&b->launched_ns[gpu][number % PROTO_COLLECTIVES]), now);
	fence_seqcst();
	/* The next time at this place is written before its number is counted. */
	if (load_relaxed(&b->gpu[gpu].collectives) - number >= PROTO_COLLECTIVES - 1) {
		return 0;
	}
	r->first_ns = at && r->first_ns ? MIN(r->first_ns, at) : MAX(r->first_ns, at);
	r->last_ns = MAX(r->last_ns, at);
	return at;
}

struct sched_ranks sched_group_look(const struct sched_queue *q, uint64_t number, uint64_t now)
{
	const struct proto_board *own = load_acquire(&q->s->own);
	uint32_t self = sched_gpu_number(q);
	struct sched_ranks r = { 0 };

	for (uint32_t ranks = ranks_of(own, 0); ranks; ranks &= ranks - 1) {
		uint32_t gpu = (uint32_t)__builtin_ctz(ranks);
		uint64_t at = look_at(own, gpu, gpu == self, number, now, &r);

		r.own_ns = gpu == self ? at : r.own_ns;
	}
	for (uint32_t i = 0, n = load_acquire(&q->s->peers.n); i < n; i++) {
		const struct proto_board *b = load_acquire(&q->s->peers.slot[i].board);
		uint32_t ranks = b && !proto_board_dead(b) ? ranks_of(b, 1u << self) : 0;

		for (; ranks; ranks &= ranks - 1) {
			(void)look_at(b, (uint32_t)__builtin_ctz(ranks), false, number, now, &r);
		}
	}
	return r;
}

/* Returns this rank's part of its board, or NULL if launches of the queue are of no rank. */
static struct proto_board_gpu *rank_of(const struct sched_queue *q, struct proto_board **ret_own)
{
	struct proto_board *own = load_acquire(&q->s->own);
	uint32_t gpu = sched_gpu_number(q);

	*ret_own = own;
	return gpu < PROTO_MAX_GPUS && load_relaxed(&own->ranks) & 1u << gpu &&
			       load_relaxed(&q->class_id) != GBPF_CLASS_LATENCY
		       ? &own->gpu[gpu]
		       : NULL;
}

static struct view look_around(const struct sched_queue *q, const struct proto_board *own,
			       uint64_t now)
{
	struct sched *s = q->s;
	uint32_t gpu = sched_gpu_number(q);
	uint64_t count = load_relaxed(&own->gpu[gpu].collectives);
	struct view v = { 0 };

	look(own, 1u << gpu, count, now, &v); /* not those that share this GPU, and take turns */
	for (uint32_t i = 0, n = load_acquire(&s->peers.n); i < n; i++) {
		const struct proto_board *b = load_acquire(&s->peers.slot[i].board);

		if (b && !proto_board_dead(b)) {
			look(b, 1u << gpu, count, now, &v);
		}
	}
	return v;
}

/* A stop is in force, of another rank or this one. Returns whether this one goes on all the same.
 */
static bool is_excused(const struct sched_queue *q, bool behind, uint64_t now)
{
	struct sched_stop *stop = &q->s->stop[q->gpu];
	uint64_t since = load_relaxed(&stop->behind_ns);

	if (!behind) {
		store_relaxed(&stop->behind_ns, (uint64_t)0);
		return false;
	}
	if (!since) {
		since = now;
		store_relaxed(&stop->behind_ns, now);
	}
	return sched_since_ns(since, now) < CATCH_UP_NS;
}

static void end_early(struct proto_board_gpu *g, uint64_t *until_ns)
{
	store_release(until_ns, (uint64_t)0);
	/* After the stop's end: a reader of the word before that finds it changed (look). */
	(void)add_acqrel(&g->seq, 1u);
	(void)futex_wake_shared(&g->seq, INT_MAX);
}

/* A stop by collective_phase holds this rank, too, unless another version is in force now, or gbpfd
 * is absent. */
static void look_at_own(const struct sched_queue *q, struct proto_board_gpu *g, uint64_t version,
			uint64_t now, struct view *v)
{
	uint32_t seq = load_acquire(&g->seq);
	uint64_t until = load_acquire(&g->hold_until_ns);

	if (likely(until <= now)) {
		return;
	}
	if (load_relaxed(&q->s->stop[q->gpu].version) != version ||
	    load_acquire(&q->s->policy.dir) == &q->s->absent.dir) {
		end_early(g, &g->hold_until_ns);
	} else if (!v->until_ns) {
		v->until_ns = until;
		v->word = &g->seq;
		v->seq = seq;
	}
}

bool sched_group_waits(struct sched_queue *q, uint64_t now, struct sched_decision *a)
{
	struct proto_board *own;
	struct proto_board_gpu *g = rank_of(q, &own);
	struct view v;

	if (!g) {
		return false;
	}
	v = look_around(q, own, now);
	look_at_own(q, g, a->version, now, &v);
	if (!v.until_ns) {
		if (load_relaxed(&g->stop_until_ns) <= now) { /* nor does this rank want one */
			store_relaxed(&q->s->stop[q->gpu].behind_ns, (uint64_t)0);
		}
		return false;
	}
	if (is_excused(q, v.behind, now)) {
		return false;
	}
	a->verdict = GBPF_HOLD;
	a->hold_ns = v.until_ns - now;
	a->word = v.word;
	a->seq = v.seq;
	a->group = true;
	return true;
}

/* The policy lets a launch of the queue go: ends the stop if that was about its launches. */
static void end_stop(struct sched_queue *q, struct proto_board_gpu *g)
{
	struct sched_stop *stop = &q->s->stop[q->gpu];

	if (load_relaxed(&stop->queue) != q->index + 1) {
		return;
	}
	store_relaxed(&stop->queue, 0u);
	if (load_relaxed(&g->stop_until_ns)) {
		end_early(g, &g->stop_until_ns);
	}
}

/* Stops the group, then looks at the others: see count(). Returns whether this rank goes on. */
static bool stop_group(struct sched_queue *q, const struct proto_board *own,
		       struct proto_board_gpu *g, uint64_t now)
{
	store_relaxed(&q->s->stop[q->gpu].queue, q->index + 1);
	store_seqcst(&g->stop_until_ns, now + STOP_NS);
	fence_seqcst();
	return is_excused(q, look_around(q, own, now).behind, now);
}

/* What ends a hold, as far as its group is concerned. */
enum hold_end { END_REQUEST, END_OWN_WORK, END_TURN, END_GROUP };

/* Returns what is likely to end the hold, by the verdict and the state in which it was given; the
 * reason that the policy gives only serves users. */
static enum hold_end end_of_hold(const struct sched_queue *q, const struct sched_decision *a)
{
	if (a->group) {
		return END_GROUP;
	}
	if (a->verdict == GBPF_HOLD && a->lc_open) {
		return END_REQUEST;
	}
	return a->verdict == GBPF_HOLD && sched_gpu_inflight(&q->s->gpu[q->gpu]) ? END_OWN_WORK
										 : END_TURN;
}

static bool is_led(const struct sched_queue *q)
{
	const struct proto_directory *dir = load_acquire(&q->s->policy.dir);

	return load_relaxed(&dir->led) & 1u << sched_gpu_number(q);
}

/* Forgets what another version has said. */
static void take_version(struct sched_stop *stop, struct proto_board_gpu *g, uint64_t version)
{
	if (load_relaxed(&stop->version) != version) {
		store_relaxed(&stop->boost, (uint64_t)0);
		store_relaxed(&stop->hold_again_ns, (uint64_t)0);
		if (load_relaxed(&g->hold_until_ns)) {
			end_early(g, &g->hold_until_ns);
		}
		store_relaxed(&stop->version, version);
	}
}

static void hold(struct sched_queue *q, struct proto_board_gpu *g, uint64_t ns, uint64_t now)
{
	struct sched_stop *stop = &q->s->stop[q->gpu];
	uint64_t share = load_relaxed(&q->s->share_ppm);

	ns = MIN(ns, load_relaxed(&q->s->limit_ns));
	if (is_led(q) || now < load_relaxed(&stop->hold_again_ns) ||
	    load_acquire(&q->s->policy.dir) == &q->s->absent.dir) {
		return;
	}
	store_relaxed(&stop->hold_again_ns, now + ns + ns * share / 1000000);
	store_seqcst(&g->hold_until_ns, now + ns);
	fence_seqcst(); /* as in stop_group: before the next look at the counts */
}

/* Asks collective_phase, and stores what follows from its verdict for the rank's next launches. */
static struct sched_phase_verdict apply_phase(struct sched_queue *q, uint64_t number,
					      uint64_t kernel, uint64_t now)
{
	struct sched_phase_verdict a = sched_hook_phase(q, number, kernel, now);
	struct sched_stop *stop = &q->s->stop[q->gpu];
	struct proto_board *own;
	struct proto_board_gpu *g = rank_of(q, &own);

	if (!g || a.verdict == GBPF_COLLECTIVE_GO) {
		return a;
	}
	take_version(stop, g, a.version);
	if (a.verdict == GBPF_COLLECTIVE_HOLD) {
		hold(q, g, a.hold_ns, now);
	} else if (kernel) {
		store_relaxed(&stop->boost_until_ns, now + load_relaxed(&q->s->limit_ns));
		store_relaxed(&stop->boost_queue, q->index + 1);
		store_relaxed(&stop->boost, number);
	}
	return a;
}

static void report_phase(struct sched_queue *q, const struct sched_phase_verdict *a)
{
	if (unlikely(a->failed || a->out_of_range)) {
		sched_fault_report(q->s, a->version, POLICY_HOOK_collective_phase, a->failed,
				   a->failed ? "a helper failed in collective_phase"
					     : "verdict of collective_phase out of range");
	}
}

static NOINLINE uint64_t count(struct sched_queue *q, const struct sched_launch *l)
{
	uint32_t gpu = sched_gpu_number(q);
	struct sched_phase_verdict a = { .verdict = GBPF_COLLECTIVE_GO };
	uint64_t number = 0, now;
	struct policy_reader *pin;
	struct proto_board *own;

	if (load_relaxed(&q->s->forked)) {
		return 0; /* the board is the parent's */
	}
	pin = policy_read_enter();
	own = load_acquire(&q->s->own);
	if (gpu < PROTO_MAX_GPUS) {
		now = clock_now_ns();
		(void)or_seqcst(&own->ranks, 1u << gpu);
		number = count_up(own, gpu, now);
		/* Before the rank's next look for a stop: either it sees the stop of another one,
		 * or that one sees this count (stop_group). */
		fence_seqcst();
		a = apply_phase(q, number, l->kernel->hash, now);
	}
	policy_read_leave(pin);
	report_phase(q, &a);
	sched_will_communicate(q->s);
	return number;
}

uint64_t sched_group_count(struct sched_queue *q, const struct sched_launch *l)
{
	return unlikely(sched_communicates(l)) ? count(q, l) : 0;
}

void sched_group_refused(struct sched_queue *q)
{
	uint32_t gpu = sched_gpu_number(q);
	struct policy_reader *pin;
	struct proto_board *own;

	if (gpu >= PROTO_MAX_GPUS || load_relaxed(&q->s->forked)) {
		return;
	}
	pin = policy_read_enter();
	own = load_acquire(&q->s->own);
	(void)sub_seqcst(&own->gpu[gpu].collectives, UINT64_C(1));
	store_relaxed(&q->s->stop[q->gpu].boost, (uint64_t)0);
	policy_read_leave(pin);
}

void sched_group_ended(struct sched_queue *q, uint64_t number, uint64_t now)
{
	struct sched_stop *stop = &q->s->stop[q->gpu];
	uint64_t boost = load_relaxed(&stop->boost);
	struct policy_reader *pin = policy_read_enter();
	struct sched_phase_verdict a;

	if (boost && boost <= number && load_relaxed(&stop->boost_queue) == q->index + 1) {
		(void)cas_acqrel(&stop->boost, &boost, (uint64_t)0); /* a newer one stays */
	}
	a = apply_phase(q, number, 0, now);
	policy_read_leave(pin);
	report_phase(q, &a);
}

void sched_group_forget(struct sched_queue *q)
{
	struct sched_stop *stop = &q->s->stop[q->gpu];

	if (load_relaxed(&stop->boost_queue) == q->index + 1) {
		store_relaxed(&stop->boost, (uint64_t)0);
	}
	store_relaxed(&q->collective, (uint64_t)0);
}

bool sched_group_boosted(struct sched_queue *q, uint64_t now, uint64_t version)
{
	const struct sched_stop *stop = &q->s->stop[q->gpu];
	struct proto_board *own;
	struct proto_board_gpu *g;

	if (likely(!load_relaxed(&stop->boost)) || load_relaxed(&stop->boost_until_ns) <= now ||
	    load_relaxed(&stop->version) != version) {
		return false;
	}
	g = rank_of(q, &own);
	if (g) {
		end_stop(q, g);
	}
	return g != NULL;
}

void sched_group_apply(struct sched_queue *q, uint64_t now, struct sched_decision *a)
{
	struct proto_board *own;
	struct proto_board_gpu *g = rank_of(q, &own);
	enum hold_end end;

	if (!g) {
		return;
	}
	a->grant = 0; /* each launch is asked about */
	end = end_of_hold(q, a);
	if (a->verdict != GBPF_GO && end == END_REQUEST) {
		return;
	}
	if (a->verdict != GBPF_GO && end == END_OWN_WORK) {
		struct view v = look_around(q, own, now);

		if (v.until_ns && is_excused(q, v.behind, now)) {
			a->verdict = GBPF_GO;
		}
	} else if (a->verdict == GBPF_GO || is_led(q)) {
		a->verdict = GBPF_GO;
		end_stop(q, g);
	} else if (stop_group(q, own, g, now)) {
		a->verdict = GBPF_GO;
	}
}

bool sched_group_goes(struct sched_queue *q, uint64_t now, const struct sched_decision *a)
{
	struct policy_reader *pin;
	struct proto_board_gpu *g;
	struct proto_board *own;
	bool goes;

	if (likely(!load_relaxed(&q->s->communicates)) || end_of_hold(q, a) != END_TURN) {
		return false;
	}
	pin = policy_read_enter();
	g = rank_of(q, &own);
	goes = g && !is_led(q) && stop_group(q, own, g, now);
	policy_read_leave(pin);
	return goes;
}
