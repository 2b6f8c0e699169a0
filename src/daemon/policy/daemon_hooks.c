/* The hook tick, which runs on the loop: the verifier bounds its programs (a million instructions
 * at worst, about a millisecond), and overruns are counted. While no tenant is active there is no
 * tick; as processes do not notify gbpfd when they become active again, it checks their pages every
 * 10 ms. Where no policy needs ticks it still checks every 50 ms which GPUs several processes use,
 * since measured durations depend on it under every policy. */
#include "daemon/policy/daemon_hooks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/policy/preempt.h"
#include "daemon/timer.h"
#include "daemon/policy/vgpu_maps.h"

#define TICK_NS 1000000u
#define BETWEEN_USEC 100u /* shortest time until preempt runs in between, which bounds its cost */
#define IDLE_USEC 10000u
#define SHARING_USEC 50000u  /* between checks for shared GPUs without ticks: below SHARED_NS */
#define SHARED_NS 100000000u /* how long a GPU counts as shared after two processes had work */
#define ACTIVE_NS 100000000u /* how long ticks continue after the last activity */

struct daemon_ticker {
	struct daemon *d;
	sd_event_source *source, *between;
	uint64_t last_active_ns[PROTO_MAX_GPUS], due_usec;
	uint64_t between_usec; /* when preempt runs in between, */
	uint32_t between_gpus; /* on these GPUs, as bits; 0: it does not */
	bool on, checks;       /* checks: armed although no policy needs ticks */
};

/* Returns the GPUs, as bits, on which the process has work, has called since the last tick, or has
 * an open request. */
static uint32_t gpus_in_use(struct daemon_session *s, uint64_t now)
{
	const struct proto_stats *st = s->stats.map;
	uint32_t bits = 0;

	if (s->state != DAEMON_SESSION_READY || s->dying) {
		return 0;
	}
	for (uint32_t i = 0; i < s->gpus; i++) {
		const struct proto_stats_gpu *g = &st->gpu[i];
		uint64_t launches = load_relaxed(&g->launches) + load_relaxed(&g->copies);

		if (launches != s->ticked_launches[i] || load_relaxed(&g->inflight) ||
		    proto_board_open(s->board.map, s->gpu_index[i], now)) {
			s->ticked_launches[i] = launches;
			bits |= 1u << s->gpu_index[i];
		}
	}
	return bits;
}

/* Publishes which GPUs several processes have work on. */
static void tell_shared(struct daemon *d, const unsigned active[PROTO_MAX_GPUS], uint64_t now)
{
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (active[i] > 1) {
			store_relaxed(&daemon_directory(d)->shared_until_ns[i], now + SHARED_NS);
		}
	}
}

/* Returns the GPUs, as bits, that were in use in the last ACTIVE_NS. */
static uint32_t active_gpus(struct daemon *d, uint64_t now)
{
	struct daemon_ticker *t = d->ticker;
	unsigned active[PROTO_MAX_GPUS] = { 0 };
	uint32_t bits = 0;

	daemon_session_each(d, s)
	{
		uint32_t gpus = gpus_in_use(s, now);

		for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
			active[i] += gpus >> i & 1;
		}
	}
	tell_shared(d, active, now);
	daemon_groups_lead(d);
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		t->last_active_ns[i] = active[i] ? now : t->last_active_ns[i];
		bits |= now - t->last_active_ns[i] < ACTIVE_NS ? 1u << i : 0;
	}
	return bits;
}

static void tick(struct daemon *d, struct daemon_version *l, uint64_t now)
{
	struct daemon_ctx_tick ctx = { .now_ns = now,
				       .period_ns =
					       l->last_tick_ns ? now - l->last_tick_ns : TICK_NS,
				       .epoch = l->epoch,
				       .gpu = l->gpu };
	uint64_t took;

	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		if (d->sessions.tenant[i] && daemon_version_is_for(l, d->sessions.tenant[i])) {
			ctx.tenants = i + 1;
			ctx.active++;
		}
	}
	daemon_vgpu_maps_refresh(l);
	daemon_hook_run(l, HOOK_tick, &ctx);
	l->last_tick_ns = now;
	l->epoch++;
	took = clock_now_ns() - now;
	d->counters.ticks++;
	d->counters.tick_overruns += took > TICK_NS;
	d->counters.tick_max_ns = MAX(d->counters.tick_max_ns, took);
}

/* Ticks are also needed for latency tenants alone, to detect their exit
 * (daemon_sessions_reap_dying). */
static bool wanted(struct daemon *d)
{
	bool any = daemon_lc_any(d);

	for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
	     l = daemon_policy_next_active(d, l)) {
		any |= daemon_version_has_hook(l, HOOK_tick) ||
		       daemon_version_has_hook(l, HOOK_preempt);
	}
	if (!any || !daemon_policy_next_active(d, NULL) || daemon_policy_is_off(d)) {
		return false;
	}
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying) {
			return true;
		}
	}
	return false;
}

/* Returns whether two processes or more can have work on a GPU while a policy measures it. */
static bool may_share(struct daemon *d)
{
	uint32_t once = 0, twice = 0;

	if (!daemon_policy_next_active(d, NULL) || daemon_policy_is_off(d)) {
		return false;
	}
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying) {
			twice |= once & s->gpu_mask;
			once |= s->gpu_mask;
		}
	}
	return twice != 0;
}

static void tick_at(struct daemon_ticker *t, uint64_t usec)
{
	t->due_usec = usec;
	daemon_timer_arm(t->source, usec);
}

/* No policy needs ticks. */
static void check_sharing(struct daemon *d, uint64_t now)
{
	struct daemon_ticker *t = d->ticker;

	t->on = false;
	t->checks = may_share(d);
	if (t->checks) {
		(void)active_gpus(d, now);
		tick_at(t, now / 1000 + SHARING_USEC);
	}
}

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;
	struct daemon_ticker *t = d->ticker;
	uint64_t now = clock_now_ns(), now_usec, next;
	bool controlled;
	uint32_t gpus;

	(void)src;
	(void)usec;
	if (!wanted(d)) {
		daemon_hw_release_levels(d);
		check_sharing(d, now);
		if (daemon_hw_tick(d, now)) { /* a tenant is still to be switched on again */
			t->checks = true;
			tick_at(t, now / 1000 + IDLE_USEC);
		}
		return 0;
	}
	t->on = true;
	t->checks = false;
	daemon_sessions_reap_dying(d);
	controlled = daemon_hw_tick(d, now);
	gpus = active_gpus(d, now);
	if (gpus || controlled) {
		for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
		     l = daemon_policy_next_active(d, l)) {
			if (daemon_version_has_hook(l, HOOK_tick) && !l->copying &&
			    (controlled || gpus & 1u << l->gpu)) {
				tick(d, l, now);
			}
		}
		daemon_preempt_tick(d, now);
		next = t->due_usec + TICK_NS / 1000;
	} else {
		next = t->due_usec + IDLE_USEC;
	}
	now_usec = clock_now_ns() / 1000;
	/* Missed ticks are skipped; the policy sees period_ns. */
	tick_at(t, next > now_usec ? next : now_usec + TICK_NS / 1000);
	return 0;
}

static int on_between(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;
	struct daemon_ticker *t = d->ticker;
	uint32_t gpus = t->between_gpus;

	(void)src;
	(void)usec;
	t->between_gpus = 0;
	if (t->on && wanted(d)) {
		daemon_preempt_between(d, gpus, clock_now_ns());
	}
	return 0;
}

void daemon_ticker_preempt_in(struct daemon *d, uint32_t gpu, uint64_t now, uint32_t us)
{
	struct daemon_ticker *t = d->ticker;
	uint64_t now_usec = clock_now_ns() / 1000, due = now / 1000 + us;

	/* Counted from now, too, or hooks that take long would leave the loop no time. */
	due = MAX(due, now_usec + BETWEEN_USEC);
	if (!t || !t->on ||
	    due >= (t->due_usec > now_usec ? t->due_usec : t->due_usec + TICK_NS / 1000)) {
		return;
	}
	if (!t->between_gpus || due < t->between_usec) {
		t->between_usec = due;
		daemon_timer_arm(t->between, due);
	}
	t->between_gpus |= 1u << gpu;
}

void daemon_ticker_wake(struct daemon *d)
{
	struct daemon_ticker *t = d->ticker;
	uint64_t now = clock_now_ns();

	if (t && !t->on && wanted(d)) {
		t->on = true;
		t->checks = false;
		for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
			t->last_active_ns[i] = now;
		}
		tick_at(t, now / 1000 + TICK_NS / 1000);
	} else if (t && !t->on && !t->checks) {
		check_sharing(d, now);
	}
}

static void wake_for(struct daemon_session *s)
{
	daemon_ticker_wake(s->d);
}

const struct daemon_feature daemon_ticker_feature = {
	.session_ready = wake_for,
	.board_published = wake_for,
};

/* A timer that is not armed yet. */
static int add_timer(struct daemon *d, sd_event_source **ret, sd_event_time_handler_t on_time)
{
	int err = sd_event_add_time(d->loop, ret, CLOCK_MONOTONIC, UINT64_MAX, 1, on_time, d);

	return err < 0 ? err : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

int daemon_ticker_open(struct daemon *d)
{
	int err;

	d->ticker = calloc(1, sizeof(*d->ticker));
	if (!d->ticker) {
		return -ENOMEM;
	}
	d->ticker->d = d;
	err = add_timer(d, &d->ticker->source, on_tick);
	if (err >= 0) {
		err = add_timer(d, &d->ticker->between, on_between);
	}
	return err < 0 ? err : 0;
}

void daemon_ticker_close(struct daemon *d)
{
	if (d->ticker) {
		sd_event_source_disable_unref(d->ticker->source);
		sd_event_source_disable_unref(d->ticker->between);
		free(d->ticker);
		d->ticker = NULL;
	}
}
