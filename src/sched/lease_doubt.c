/* Leases that no board explains. A process that has mapped a flag page can write to it for as long
 * as it lives: also while it has no request open, and after gbpfd has withdrawn its board. A run
 * that such leases stop is charged to a budget of this process; when that is spent, runs ignore
 * leases until it is full again. Requests then stop the work of this process between pieces, as
 * their boards say, and no longer between blocks. */
#include "sched/sched_int.h"

#include "base/clock.h"

void sched_lease_doubt_init(struct sched *s)
{
	lock_init(&s->doubt.lock, LOCK_DOUBT);
	time_budget_init(&s->doubt.budget, clock_now_ns());
}

void sched_lease_doubt_finish(struct sched *s)
{
	lock_finish(&s->doubt.lock);
}

/* Several runs that stand still at once count once. */
static bool take(struct sched_lease_doubt *x, uint64_t from, uint64_t now)
{
	bool spent;

	lock_take(&x->lock);
	from = MAX(from, x->charged_ns);
	spent = time_budget_take(&x->budget, sched_since_ns(from, now), now);
	x->charged_ns = now;
	lock_release(&x->lock);
	return spent;
}

void sched_lease_doubt_charge(struct sched *s, uint64_t from, uint64_t now)
{
	if (take(&s->doubt, from, now) && !load_relaxed(&s->doubt.on)) {
		store_relaxed(&s->doubt.on, 1u);
		sched_note(s, "lease-limit",
			   "leases without an open request stopped kernels for 0.5 s: leases are "
			   "ignored for 10 s");
	}
}

bool sched_lease_doubted(struct sched *s, uint64_t now)
{
	if (likely(!load_relaxed(&s->doubt.on))) {
		return false;
	}
	if (!take(&s->doubt, now, now)) {
		store_relaxed(&s->doubt.on, 0u);
	}
	return load_relaxed(&s->doubt.on);
}
