/* Holding the caller of a launch: waits for the condition that the policy waits for, asks it again,
 * and enforces the limit after which the launch goes regardless. Every wait is short and is on a
 * word that was read before the policy was asked (docs/SCHEDULING.md: no lost wake, no deadlock).
 * Must not hold a lock or be inside a read-side section while waiting. */
#include "sched/sched_int.h"

#include <sys/prctl.h>

#include "base/clock.h"
#include "base/fd.h"

#define POLL_NS 30000u /* period of polling own work */

#define STARVING_LIMITS 10u /* number of hold limits for which a forced launch is remembered */

/* Returns what a launch costs of the minimum share. One of unknown duration costs as much as
 * accrues during one limit. */
static uint64_t share_cost(uint64_t est_ns, uint64_t limit, uint32_t ppm)
{
	return est_ns ? est_ns : (uint64_t)((double)limit * ppm / 1e6);
}

uint64_t sched_share_left(struct sched *s, const struct sched_launch *l, uint64_t begin_ns,
			  uint64_t now)
{
	uint64_t limit = load_relaxed(&s->limit_ns), held = sched_since_ns(begin_ns, now);
	uint32_t ppm = load_relaxed(&s->share_ppm);
	uint64_t left, cost, from;

	lock_take(&s->share.lock);
	if (now >= s->share.until_ns || !ppm) {
		left = held >= limit ? 0 : limit - held;
	} else {
		/* After a forced launch the share accrues while launches are held, and pays for the
		 * next ones. */
		from = MAX(s->share.last_ns, begin_ns);
		if (now > from) {
			s->share.credit_ns += (uint64_t)((double)(now - from) * ppm / 1e6);
			s->share.last_ns = now;
		}
		cost = share_cost(l->est_ns, limit, ppm);
		s->share.credit_ns = MIN(s->share.credit_ns, MAX(cost, share_cost(0, limit, ppm)));
		left = s->share.credit_ns >= cost
			       ? 0
			       : (uint64_t)((double)(cost - s->share.credit_ns) * 1e6 / ppm) + 1;
		left = held >= SCHED_MAX_HOLD_NS ? 0 : MIN(left, SCHED_MAX_HOLD_NS - held);
	}
	lock_release(&s->share.lock);
	return left;
}

uint32_t sched_share_take(struct sched *s, const struct sched_launch *l, uint64_t now)
{
	uint64_t limit = load_relaxed(&s->limit_ns), cost;
	uint32_t ppm = load_relaxed(&s->share_ppm), why = PROTO_WHY_LIMIT;

	cost = share_cost(l->est_ns, limit, ppm);
	lock_take(&s->share.lock);
	if (now >= s->share.until_ns) {
		s->share.credit_ns = 0;
	} else if (ppm) {
		why = PROTO_WHY_MIN_SHARE;
	}
	s->share.credit_ns -= MIN(cost, s->share.credit_ns);
	s->share.last_ns = now;
	s->share.until_ns =
		now + STARVING_LIMITS * limit +
		(ppm ? MIN((uint64_t)((double)cost * 2e6 / ppm), 2 * SCHED_MAX_HOLD_NS) : 0);
	lock_release(&s->share.lock);
	sched_stat_add(s, limit_hits, 1u);
	sched_note(s, "hold-limit",
		   "hold limit reached: a launch goes although the policy holds it");
	return why;
}

void sched_share_reset(struct sched *s)
{
	lock_take(&s->share.lock);
	s->share.until_ns = 0;
	lock_release(&s->share.lock);
}

uint32_t sched_hold_reason(uint32_t why)
{
	return why == GBPF_WHY_NONE ? PROTO_WHY_POLICY
				    : PROTO_WHY_REASON | MIN(why, (uint32_t)PROTO_WHY_REASONS);
}

uint32_t sched_hold_why(const struct sched_decision *a)
{
	return a->group ? PROTO_WHY_GROUP : sched_hold_reason(a->why);
}

void sched_hold_account(struct sched_queue *q, const struct sched_launch *l, uint32_t why,
			uint64_t held_ns)
{
	struct policy_reader *pin = policy_read_enter();
	struct proto_stats *st = load_acquire(&q->s->policy.stats);

	(void)add_relaxed(&st->holds, 1u);
	(void)add_relaxed(&st->held_ns, held_ns);
	sched_stat_max(&st->max_held_ns, held_ns);
	store_relaxed(&st->why, why);
	store_relaxed(&st->why_kernel, l->kernel ? l->kernel->hash : 0);
	policy_read_leave(pin);
}

uint64_t sched_version_word(struct sched_queue *q, bool *ret_off)
{
	struct sched *s = q->s;
	uint32_t index = load_relaxed(&s->policy.gpu[q->gpu].index);
	struct policy_reader *pin = policy_read_enter();
	const struct proto_directory *dir = load_acquire(&s->policy.dir);
	uint64_t version = index < PROTO_MAX_GPUS ? load_relaxed(&dir->version[index]) : 0;

	*ret_off =
		load_relaxed(&s->policy.off) || load_relaxed(&dir->off) || load_relaxed(&s->forked);
	policy_read_leave(pin);
	return version;
}

/* Waits at most ns for an event that may change a HOLD. */
static void wait_change(struct sched_queue *q, const struct sched_decision *a, uint64_t ns)
{
	if (a->word) {
		(void)futex_wait_shared(a->word, a->seq, ns);
	} else if (SCHED_ACC_COUNT(sched_gpu_inflight(&q->s->gpu[q->gpu]))) {
		clock_sleep_ns(MIN(ns, (uint64_t)POLL_NS));
	} else {
		clock_sleep_ns(ns);
	}
}

/* Waits until the policy should be asked again, at most until the limit. Returns false if the
 * launch goes instead. */
static bool wait_to_ask(struct sched_queue *q, const struct sched_decision *a, uint64_t now,
			uint64_t left)
{
	struct sched *s = q->s;
	uint64_t until = now + MIN(MIN(a->hold_ns, left), (uint64_t)3600000000000u);
	uint64_t inflight = sched_tally_sum(&s->gpu[q->gpu].inflight);
	bool off = false;
	uint64_t version = sched_version_word(q, &off);

	while (now < until && !off) {
		uint64_t ns = MIN(until - now, s->wait_cap_ns);

		if (a->verdict == GBPF_DEFER) {
			clock_sleep_ns(ns);
		} else {
			wait_change(q, a, ns);
		}
		if (sched_version_word(q, &off) != version) {
			return true;
		}
		if (a->verdict == GBPF_HOLD) {
			(void)sched_retire_all(s);
			if (a->word || sched_tally_sum(&s->gpu[q->gpu].inflight) != inflight) {
				return true;
			}
		}
		now = clock_now_ns();
		if (sched_group_goes(q, now, a)) {
			return false;
		}
	}
	return true;
}

int sched_sharpen_timers(void)
{
	int slack = prctl(PR_GET_TIMERSLACK);

	(void)prctl(PR_SET_TIMERSLACK, 1000);
	return slack;
}

void sched_hold_caller(struct sched_queue *q, struct sched_launch *l, struct sched_decision *a)
{
	struct sched *s = q->s;
	uint64_t now = l->begin_ns, left;
	uint32_t why = PROTO_WHY_NONE, asked = !a->group; /* the policy, not the group */
	bool waited = false;
	int slack = -1;

	/* own work for which the launch would be held may have finished meanwhile */
	if (sched_retire_all(s)) {
		sched_decide(q, l, now, 0, asked, a);
		asked += !a->group;
	}
	if (a->verdict == GBPF_HOLD) {
		sched_mark_end(q); /* makes the end of this process's own work visible */
	}
	while (a->verdict != GBPF_GO) {
		why = sched_hold_why(a);
		left = sched_share_left(s, l, l->begin_ns, now);
		if (!left) {
			why = sched_share_take(s, l, now);
			break;
		}
		if (!waited) {
			waited = true;
			slack = sched_sharpen_timers();
		}
		if (!wait_to_ask(q, a, now, left)) {
			now = clock_now_ns();
			break;
		}
		now = clock_now_ns();
		sched_decide(q, l, now, sched_since_ns(l->begin_ns, now), asked, a);
		asked += !a->group;
	}
	if (slack > 0) {
		(void)prctl(PR_SET_TIMERSLACK, slack);
	}
	if (waited) {
		if (a->verdict == GBPF_GO) {
			sched_share_reset(s);
		}
		l->held_ns = sched_since_ns(l->begin_ns, now);
		sched_hold_account(q, l, why, l->held_ns);
	}
}
