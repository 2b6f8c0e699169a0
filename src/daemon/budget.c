/* Applies the budgets of users.c to the sources of the loop. */
#include "daemon/budget.h"

#include "base/clock.h"
#include "daemon/feature.h"
#include "daemon/timer.h"

#define DISPATCH_NS 5000u /* of the kernel and sd-event for a call of a handler, not measured */

static bool is_free(const struct daemon *d, uid_t uid)
{
	return uid == 0 || uid == d->uid;
}

uint64_t daemon_budget_begin(void)
{
	return clock_cpu_ns();
}

bool daemon_budget_is_paused(struct daemon *d, uid_t uid)
{
	return !is_free(d, uid) && daemon_user_of(&d->users, uid, clock_now_ns())->paused;
}

/* Makes all sources polled or not, as the budgets say. */
static void apply(struct daemon *d)
{
	daemon_features_call(poll, d, d->users.accepts_paused);
}

static int on_refilled(sd_event_source *src, uint64_t usec, void *arg);

static void arm(struct daemon *d, uint64_t wait_ns)
{
	uint64_t at = (clock_now_ns() + wait_ns) / 1000 + 1;

	if (daemon_timer_at(d->loop, &d->users.timer, at, 1000, on_refilled, d) < 0) {
		daemon_users_resume_all(&d->users); /* out of memory */
		apply(d);
	}
}

static int on_refilled(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;
	uint64_t wait = daemon_users_resume(&d->users, clock_now_ns());

	(void)src;
	(void)usec;
	apply(d);
	if (wait) {
		arm(d, wait);
	}
	return 0;
}

static void charge(struct daemon *d, uid_t uid, uint64_t begin, bool accepted)
{
	uint64_t now = clock_now_ns(), used = clock_cpu_ns() - begin + DISPATCH_NS;

	if (!is_free(d, uid) && daemon_users_charge(&d->users, uid, used, accepted, now)) {
		d->counters.user_pauses++;
		apply(d);
		arm(d, daemon_users_resume(&d->users, now));
	}
}

void daemon_budget_end(struct daemon *d, uid_t uid, uint64_t begin)
{
	charge(d, uid, begin, false);
}

void daemon_budget_accepted(struct daemon *d, uid_t uid, uint64_t begin)
{
	charge(d, uid, begin, true);
}

void daemon_budget_close(struct daemon *d)
{
	d->users.timer = sd_event_source_disable_unref(d->users.timer);
}
