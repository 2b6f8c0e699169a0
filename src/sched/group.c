/* The rules of group.h. */
#include "sched/group.h"

#include <limits.h>

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

static NOINLINE void count(struct sched_queue *q, int n)
{
	uint32_t gpu = sched_gpu_number(q);
	struct policy_reader *pin = policy_read_enter();
	struct proto_board *own = load_acquire(&q->s->own);

	if (gpu < PROTO_MAX_GPUS) {
		(void)__atomic_fetch_or(&own->ranks, 1u << gpu, __ATOMIC_SEQ_CST);
		(void)__atomic_fetch_add(&own->gpu[gpu].collectives, (uint64_t)(int64_t)n,
					 __ATOMIC_SEQ_CST);
		/* Before the rank's next look for a stop: either it sees the stop of another one,
		 * or that one sees this count (stop_group). */
		fence_seqcst();
	}
	policy_read_leave(pin);
	sched_will_communicate(q->s);
}

void sched_group_count(struct sched_queue *q, const struct sched_launch *l, int n)
{
	if (unlikely(sched_communicates(l))) {
		count(q, n);
	}
}

/* What the other ranks say. */
struct view {
	bool behind;	      /* one of them has launched a collective that this rank has not */
	uint64_t until_ns;    /* of a stop that one wants; 0: none */
	const uint32_t *word; /* to wait on for its end, */
	uint32_t seq;	      /* and its value before the stop was seen */
};

/* Looks at a board. but: bits of GPUs that are left out. */
static void look(const struct proto_board *b, uint32_t but, uint64_t count, uint64_t now,
		 struct view *v)
{
	uint32_t ranks = load_acquire(&b->ranks) & ((1u << PROTO_MAX_GPUS) - 1) & ~but;

	for (; ranks; ranks &= ranks - 1) {
		const struct proto_board_gpu *g = &b->gpu[__builtin_ctz(ranks)];
		uint32_t seq = load_acquire(&g->seq); /* before the stop, as in sched_boards_scan */
		uint64_t until = load_acquire(&g->stop_until_ns);
		uint64_t ahead = load_relaxed(&g->collectives) - count;

		v->behind |= ahead - 1 < LAG_MAX;
		if (until > now && !v->until_ns) {
			v->until_ns = until;
			v->word = &g->seq;
			v->seq = seq;
		}
	}
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

bool sched_group_waits(struct sched_queue *q, uint64_t now, struct sched_decision *a)
{
	struct proto_board *own;
	struct proto_board_gpu *g = rank_of(q, &own);
	struct view v;

	if (!g) {
		return false;
	}
	v = look_around(q, own, now);
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
		store_release(&g->stop_until_ns, (uint64_t)0);
		/* After the stop's end: who has read the word before finds it changed (look). */
		(void)add_acqrel(&g->seq, 1u);
		(void)futex_wake_shared(&g->seq, INT_MAX);
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

/* Returns why the policy holds the launch (PROTO_WHY_*). */
static uint32_t why_held(const struct sched_queue *q, const struct sched_decision *a)
{
	return sched_hold_why(a, sched_tally_sum(&q->s->gpu[q->gpu].inflight));
}

static bool is_led(const struct sched_queue *q)
{
	const struct proto_directory *dir = load_acquire(&q->s->policy.dir);

	return load_relaxed(&dir->led) & 1u << sched_gpu_number(q);
}

void sched_group_apply(struct sched_queue *q, uint64_t now, struct sched_decision *a)
{
	struct proto_board *own;
	struct proto_board_gpu *g = rank_of(q, &own);
	uint32_t why;

	if (!g) {
		return;
	}
	a->grant = 0; /* each launch is asked about */
	why = a->verdict == GBPF_GO ? PROTO_WHY_NONE : why_held(q, a);
	if (why == PROTO_WHY_LATENCY) {
		return;
	}
	if (why == PROTO_WHY_INFLIGHT) {
		struct view v = look_around(q, own, now);

		if (v.until_ns && is_excused(q, v.behind, now)) {
			a->verdict = GBPF_GO;
		}
	} else if (!why || is_led(q)) {
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

	if (likely(!load_relaxed(&q->s->communicates)) || why_held(q, a) != PROTO_WHY_SHARE) {
		return false;
	}
	pin = policy_read_enter();
	g = rank_of(q, &own);
	goes = g && !is_led(q) && stop_group(q, own, g, now);
	policy_read_leave(pin);
	return goes;
}
