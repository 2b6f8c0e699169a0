/* Failures and notes of policy versions: sums over processes, and events. Tenants write their
 * pages: each word is read once and used only as a number to report. */
#include "daemon/policy/policy_failures.h"

#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/policy/policies_int.h"
#include "daemon/timer.h"

#define LOOK_USEC 1000000u
#define TELL_NS 10000000000u

static const char *const hook_names[PROTO_HOOKS] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) [id] = #name,
#include "gbpf/hooks.def"
};

/* Adds the counters of a page if they belong to this version. Sums wrap around, as a program's own
 * do. */
static void add_page(const struct proto_stats *st, uint64_t version, struct daemon_tally *sum)
{
	struct daemon_tally t;

	if (load_acquire(&st->notes_version) != version) {
		return;
	}
	for (unsigned i = 0; i < PROTO_NOTES; i++) {
		t.notes[i] = load_relaxed(&st->notes[i]);
	}
	for (unsigned i = 0; i < PROTO_HOOKS; i++) {
		for (unsigned k = 0; k < PROTO_FAILURES; k++) {
			t.failures[i][k] = load_relaxed(&st->failures[i][k]);
		}
	}
	fence_acquire();
	if (load_relaxed(&st->notes_version) != version) {
		return; /* the process has switched to another version meanwhile */
	}
	for (unsigned i = 0; i < PROTO_NOTES; i++) {
		sum->notes[i] += t.notes[i];
	}
	for (unsigned i = 0; i < PROTO_HOOKS; i++) {
		for (unsigned k = 0; k < PROTO_FAILURES; k++) {
			sum->failures[i][k] += t.failures[i][k];
		}
	}
}

void daemon_failures_sum(struct daemon *d, const struct daemon_version *l, struct daemon_tally *ret)
{
	*ret = l->of->tally;
	for (const struct daemon_version *v = d->policies->live_versions; v; v = v->next) {
		for (unsigned i = 0; i < PROTO_NOTES && v->of == l->of; i++) {
			ret->notes[i] += load_relaxed(&v->run.env.notes[i]);
		}
	}
	daemon_session_each(d, s)
	{
		if (s->stats.map && s->state == DAEMON_SESSION_READY && !s->policy.tallied) {
			add_page(s->stats.map, l->version, ret);
		}
	}
}

uint64_t daemon_failures_total(const struct daemon_tally *t, enum proto_failure what)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PROTO_HOOKS; i++) {
		sum += t->failures[i][what];
	}
	return sum;
}

static json_int_t shown(uint64_t v)
{
	return (json_int_t)MIN(v, (uint64_t)INT64_MAX);
}

json_t *daemon_failures_json(const struct daemon_tally *t)
{
	json_t *hooks = json_array();

	for (unsigned i = 0; i < PROTO_HOOKS; i++) {
		const uint64_t *f = t->failures[i];

		if (hook_names[i] && (f[0] | f[1] | f[2] | f[3])) {
			json_array_append_new(
				hooks, json_pack("{s:s,s:I,s:I,s:I,s:I}", "hook", hook_names[i],
						 "helper_errors", shown(f[PROTO_FAILED_HELPER]),
						 "verdict_errors", shown(f[PROTO_FAILED_VERDICT]),
						 "stale_epochs", shown(f[PROTO_FAILED_EPOCH]),
						 "slow", shown(f[PROTO_FAILED_SLOW])));
		}
	}
	return hooks;
}

void daemon_failures_add_session(struct daemon_session *s)
{
	uint64_t version =
		s->stats.map && s->state == DAEMON_SESSION_READY && !s->policy.tallied
			? load_relaxed(&((struct proto_stats *)s->stats.map)->notes_version)
			: 0;
	struct daemon_version *l = s->d->policies ? daemon_version_find(s->d, version) : NULL;

	s->policy.tallied = true;
	if (l) {
		add_page(s->stats.map, version, &l->of->tally);
	}
}

void daemon_failures_count(struct daemon_version *l, unsigned hook, enum proto_failure what)
{
	l->of->tally.failures[hook][what]++;
	daemon_failures_schedule(l->d);
}

/* ---- events ---- */

static void tell_hook(struct daemon *d, const struct daemon_version *l, unsigned hook,
		      const uint64_t now[], const uint64_t before[])
{
	static const char *const what[PROTO_FAILURES] = {
		[PROTO_FAILED_HELPER] = "calls in which a helper failed",
		[PROTO_FAILED_VERDICT] = "verdicts out of range",
		[PROTO_FAILED_EPOCH] = "calls that outlived three publications",
		[PROTO_FAILED_SLOW] = "consecutive calls of more than 1 ms of processor time",
	};
	char text[300] = "";
	size_t len = 0;

	for (unsigned i = 0; i < PROTO_FAILURES; i++) {
		uint64_t n = now[i] - MIN(before[i], now[i]); /* less: a page was left out */

		if (n && len < sizeof(text)) {
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"%s%llu %s (%llu in all)", len ? ", " : "",
						(unsigned long long)n, what[i],
						(unsigned long long)now[i]);
		}
	}
	if (len) {
		daemon_history_add(&d->history, "policy-error", -1,
				   "policy '%s' version %llu, %s: %s", l->run.name,
				   (unsigned long long)l->version, hook_names[hook], text);
	}
}

static void look(struct daemon *d, struct daemon_version *l)
{
	uint64_t now = clock_now_ns();
	struct daemon_tally t;

	if (l->of->told_ns && now - l->of->told_ns < TELL_NS) {
		return;
	}
	daemon_failures_sum(d, l, &t);
	if (memcmp(t.failures, l->of->told.failures, sizeof(t.failures)) == 0) {
		return;
	}
	for (unsigned i = 0; i < PROTO_HOOKS; i++) {
		if (hook_names[i]) {
			tell_hook(d, l, i, t.failures[i], l->of->told.failures[i]);
		}
	}
	l->of->told = t;
	l->of->told_ns = now;
}

static int on_look(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
	     l = daemon_policy_next_active(d, l)) {
		look(d, l);
	}
	if (d->sessions.first) {
		daemon_timer_arm(src, usec + LOOK_USEC);
	}
	return 0;
}

void daemon_failures_schedule(struct daemon *d)
{
	uint64_t now;

	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	if (!daemon_timer_is_armed(d->policies->failure_timer)) {
		(void)daemon_timer_at(d->loop, &d->policies->failure_timer, now + LOOK_USEC / 2,
				      LOOK_USEC / 4, on_look, d);
	}
}

void daemon_failures_close(struct daemon *d)
{
	d->policies->failure_timer = sd_event_source_disable_unref(d->policies->failure_timer);
}
