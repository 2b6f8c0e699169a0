/* The life cycle of watches: begin at the flip, evaluation every 100 ms, and end: the time is over
 * (the version stays), the condition held (rollback), or another version has replaced the watched
 * one. Tenants write the pages that are evaluated: words are read once, and only differences count.
 */
#include "daemon/watch/watch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/audit.h"
#include "daemon/policy/policies.h"
#include "daemon/timer.h"
#include "daemon/watch/watch_int.h"

#define LOOK_USEC 100000u

int daemon_watch_request_new(struct daemon_watch_request **ret, uint64_t ns, const char *text,
			     struct report *r)
{
	struct daemon_watch_request *o;
	int err;

	if (ns < DAEMON_WATCH_MIN_NS || ns > DAEMON_WATCH_MAX_NS) {
		report_hint(r, "Write for example --watch 60s");
		return report_set(r, -EINVAL, "usage", "a watch takes from 100 ms to a day");
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	err = daemon_watch_parse(&o->expr, text, r);
	if (err) {
		free(o);
		return err;
	}
	o->is.ns = ns;
	snprintf(o->is.condition, sizeof(o->is.condition), "%s", text);
	*ret = o;
	return 0;
}

static void let_go(struct daemon_watch *w)
{
	w->timer = sd_event_source_disable_unref(w->timer);
	daemon_window_finish(&w->window);
}

void daemon_watch_end(struct daemon_watch *w, enum daemon_watch_state state, const char *reason)
{
	w->state = state;
	w->ended_ns = clock_now_ns();
	snprintf(w->reason, sizeof(w->reason), "%s", reason);
	let_go(w);
	/* One that rolls back stays stored until the flip: gbpfd may be killed before it. */
	if (state != DAEMON_WATCH_ROLLS_BACK) {
		daemon_store_watch_remove(daemon_policies_store(w->d), w->is.version);
	}
}

static uint64_t passed_ns(const struct daemon_watch *w)
{
	uint64_t at = w->state == DAEMON_WATCH_LOOKS ? clock_now_ns() : w->ended_ns,
		 left = w->end_ns > at ? w->end_ns - at : 0;

	return w->is.ns - MIN(left, w->is.ns);
}

/* ---- rolling back ---- */

/* A rollback that a watch of this version has ordered did not take effect. */
static void rollback_failed(struct daemon *d, uint64_t version, const char *why)
{
	for (struct daemon_watch *w = d->watches; w; w = w->next) {
		char reason[DAEMON_WATCH_REASON];

		if (w->is.version != version || w->state != DAEMON_WATCH_ROLLS_BACK) {
			continue;
		}
		snprintf(reason, sizeof(reason), "could not be rolled back: %s (%.200s)", why,
			 w->reason);
		daemon_history_add(&d->history, "watch", -1, "'%s' version %llu %s", w->is.name,
				   (unsigned long long)version, reason);
		log_error("policy '%s' version %llu %s", w->is.name, (unsigned long long)version,
			  reason);
		daemon_watch_end(w, DAEMON_WATCH_ENDED, reason);
		daemon_durable_save(d, "the end of a watch", NULL, 0, 0);
	}
}

/* Called when a rollback that was ordered for the version `id` has ended. */
static void on_rollback(struct daemon *d, uint64_t conn, json_int_t id, json_t *result,
			const struct report *r, int exit_code)
{
	(void)conn;
	(void)exit_code;
	if (!result) {
		rollback_failed(d, (uint64_t)id, buf_text(&r->message));
	}
}

/* Queues a rollback: one operation for all GPUs that had the same version before; only on GPUs
 * where the watched version is still active. */
static void go_back(struct daemon_watch *w)
{
	struct daemon *d = w->d;
	uint32_t left = w->is.gpu_mask & daemon_policy_gpus_of(d, w->is.version);

	w->back_mask = left;
	w->before = left ? w->is.old[__builtin_ctz(left)] : w->before;
	while (left) {
		uint64_t version = w->is.old[__builtin_ctz(left)];
		struct daemon_policy_request o = { .op = version ? DAEMON_POLICY_ACTIVATE
								 : DAEMON_POLICY_UNLOAD,
						   .object_fd = -1,
						   .version = version,
						   .by_watch = true,
						   .watched = w->is.version,
						   .keep_maps = w->is.keep_maps,
						   .uid = d->uid,
						   .reply = on_rollback,
						   .id = (json_int_t)w->is.version };

		for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
			o.gpu_mask |= (left & 1u << i) && w->is.old[i] == version ? 1u << i : 0;
		}
		left &= ~o.gpu_mask;
		if (daemon_policy_submit(d, &o) < 0) {
			rollback_failed(d, w->is.version, "out of memory");
		}
	}
}

/* Writes the terms that made the condition true. */
static void reasons(const struct daemon_watch *w, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (unsigned i = 0; i < w->expr.n_terms && n < cap; i++) {
		const struct daemon_watch_term *t = &w->expr.term[i];
		char value[48];

		if (daemon_watch_term_holds(t, w->value[i])) {
			daemon_watch_value_text(t, w->value[i], value, sizeof(value));
			n += (size_t)snprintf(out + n, cap - n, "%s%s: it was %s", n ? "; " : "",
					      t->text, value);
		}
	}
}

static void roll_back(struct daemon_watch *w)
{
	double after = (double)passed_ns(w) / 1e9;
	char why[DAEMON_WATCH_REASON - 48], reason[DAEMON_WATCH_REASON];

	reasons(w, why, sizeof(why));
	snprintf(reason, sizeof(reason), "%s, %.1f s after the swap", why, after);
	daemon_watch_end(w, DAEMON_WATCH_ROLLS_BACK, reason);
	go_back(w);
}

/* The version that was active before the watch is active again. */
static void rolled_back(struct daemon_watch *w)
{
	char text[DAEMON_WATCH_REASON + 128];

	w->state = DAEMON_WATCH_ROLLED_BACK;
	w->rollback_ns = MAX(clock_now_ns() - w->ended_ns, 1u);
	snprintf(text, sizeof(text),
		 "'%s' version %llu is rolled back to %llu: %s; that took %llu us", w->is.name,
		 (unsigned long long)w->is.version, (unsigned long long)w->before, w->reason,
		 (unsigned long long)(w->rollback_ns / 1000));
	daemon_history_add(&w->d->history, "watch", -1, "%s", text);
	log_warn("policy %s", text);
	w->d->counters.watch_rollbacks++;
}

/* Writes the terms whose values were never known, so that the condition could not hold. "": none.
 */
static void unknowns(const struct daemon_watch *w, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (unsigned i = 0; i < w->expr.n_terms && n < cap; i++) {
		if (isnan(w->value[i])) {
			n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "; not known: ",
					      w->expr.term[i].metric_text);
		}
	}
}

/* Another operation has replaced the version. */
static void replaced(struct daemon_watch *w)
{
	char reason[80];
	uint64_t now_active =
		daemon_policy_active_version(w->d, (unsigned)__builtin_ctz(w->is.gpu_mask));

	snprintf(reason, sizeof(reason),
		 now_active ? "version %llu has replaced it" : "it was unloaded",
		 (unsigned long long)now_active);
	daemon_history_add(&w->d->history, "watch", -1, "the watch of '%s' version %llu ends: %s",
			   w->is.name, (unsigned long long)w->is.version, reason);
	daemon_watch_end(w, DAEMON_WATCH_ENDED, reason);
}

/* Returns true if the version before is active on one of the GPUs on which the watch goes back. On
 * the others a later swap may have replaced it by now. */
static bool is_back(const struct daemon_watch *w)
{
	for (uint32_t left = w->back_mask; left; left &= left - 1) {
		unsigned gpu = (unsigned)__builtin_ctz(left);

		if (daemon_policy_active_version(w->d, gpu) == w->is.old[gpu]) {
			return true;
		}
	}
	return false;
}

/* Ends the watches of versions that are no longer active. */
static void check(struct daemon *d)
{
	for (struct daemon_watch *w = d->watches; w; w = w->next) {
		if (daemon_policy_gpus_of(d, w->is.version)) {
			continue;
		}
		if (w->state == DAEMON_WATCH_ROLLS_BACK && is_back(w)) {
			rolled_back(w);
		} else if (w->state <= DAEMON_WATCH_ROLLS_BACK) {
			replaced(w);
		}
		daemon_store_watch_remove(daemon_policies_store(d), w->is.version);
	}
}

/* ---- evaluation ---- */

static int on_look(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_watch *w = arg;
	uint64_t now = clock_now_ns();

	if (!daemon_policy_gpus_of(w->d, w->is.version)) {
		check(w->d);
		return 0;
	}
	daemon_window_evaluate(&w->window, &w->expr, w->is.version, now, w->value);
	if (daemon_watch_holds(&w->expr, w->value)) {
		roll_back(w);
		return 0;
	}
	if (now >= w->end_ns) {
		char open[DAEMON_WATCH_REASON];

		unknowns(w, open, sizeof(open));
		daemon_history_add(&w->d->history, "watch", -1,
				   "'%s' version %llu stays: %s did not happen in %.0f s%s",
				   w->is.name, (unsigned long long)w->is.version, w->is.condition,
				   (double)w->is.ns / 1e9, open);
		daemon_watch_end(w, DAEMON_WATCH_STAYS, "");
		daemon_durable_save(w->d, "the end of a watch", NULL, 0, 0);
		return 0;
	}
	daemon_timer_arm(src, usec + LOOK_USEC);
	return 0;
}

/* Returns a new watch, or, beyond DAEMON_WATCH_KEPT, the one that ended first. */
static struct daemon_watch *place(struct daemon *d)
{
	struct daemon_watch **link = &d->watches, *w;
	unsigned n = 0;

	for (w = d->watches; w; w = w->next) {
		n++;
	}
	while (n >= DAEMON_WATCH_KEPT && *link) {
		w = *link;
		if (w->state <= DAEMON_WATCH_ROLLS_BACK) {
			link = &w->next;
			continue;
		}
		*link = w->next;
		free(w);
		n--;
	}
	w = n < DAEMON_WATCH_KEPT + PROTO_MAX_GPUS ? calloc(1, sizeof(*w)) : NULL;
	if (w) {
		while (*link) {
			link = &(*link)->next;
		}
		*link = w; /* the newest last */
	}
	return w;
}

struct daemon_watch *daemon_watch_add(struct daemon *d, const struct daemon_watch_request *o)
{
	struct daemon_watch *w = place(d);

	if (!w) {
		daemon_history_add(&d->history, "watch", -1,
				   "version %llu is not watched: no memory",
				   (unsigned long long)o->is.version);
		return NULL;
	}
	w->d = d;
	w->is = o->is;
	w->expr = o->expr;
	w->before = w->is.old[__builtin_ctz(w->is.gpu_mask)];
	for (unsigned i = 0; i < DAEMON_WATCH_TERMS; i++) {
		w->value[i] = NAN;
	}
	return w;
}

void daemon_watch_run(struct daemon_watch *w, uint64_t left_ns)
{
	uint64_t now;

	w->begin_ns = clock_now_ns();
	w->end_ns = w->begin_ns + left_ns;
	daemon_window_begin(&w->window, w->d, w->is.gpu_mask, w->begin_ns);
	sd_event_now(w->d->loop, CLOCK_MONOTONIC, &now);
	if (sd_event_add_time(w->d->loop, &w->timer, CLOCK_MONOTONIC, now + LOOK_USEC, 1000,
			      on_look, w) < 0) {
		daemon_watch_end(w, DAEMON_WATCH_ENDED, "gbpfd has no memory for it");
	}
}

static void versions_changed(struct daemon *d, const struct daemon_stored_watch *ordered)
{
	struct daemon_watch *w;

	check(d); /* those of the former version end first */
	w = ordered ? daemon_watch_add(d, (const struct daemon_watch_request *)ordered) : NULL;
	if (w) {
		daemon_watch_run(w, ordered->ns);
	} else if (ordered) {
		daemon_store_watch_remove(daemon_policies_store(d), ordered->version);
	}
}

/* Adds the session's counters to its watches. */
static void session_ended(struct daemon_session *s)
{
	for (struct daemon_watch *w = s->d->watches; w; w = w->next) {
		if (w->state == DAEMON_WATCH_LOOKS) {
			daemon_window_session_ended(&w->window, s);
		}
	}
}

const struct daemon_feature daemon_watches_feature = {
	.session_ended = session_ended,
	.versions_changed = versions_changed,
};

void daemon_watches_close(struct daemon *d)
{
	while (d->watches) {
		struct daemon_watch *w = d->watches;

		d->watches = w->next;
		let_go(w);
		free(w);
	}
}

/* ---- report ---- */

static json_t *values_json(const struct daemon_watch *w)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < w->expr.n_terms; i++) {
		const struct daemon_watch_term *t = &w->expr.term[i];
		char text[48];

		daemon_watch_value_text(t, w->value[i], text, sizeof(text));
		json_array_append_new(
			all, json_pack("{s:s,s:s,s:s,s:o,s:b}", "metric", t->metric_text,
				       "condition", t->text, "text", text, "value",
				       isfinite(w->value[i]) ? json_real(w->value[i]) : json_null(),
				       "holds", (int)daemon_watch_term_holds(t, w->value[i])));
	}
	return all;
}

static const struct daemon_watch *newest(const struct daemon *d, uint64_t version, bool running)
{
	const struct daemon_watch *w = NULL;

	for (const struct daemon_watch *i = d->watches; i; i = i->next) {
		if ((!version || i->is.version == version) &&
		    (!running || i->state == DAEMON_WATCH_LOOKS)) {
			w = i;
		}
	}
	return w;
}

json_t *daemon_watch_json(struct daemon *d, uint64_t version)
{
	static const char *const states[] = { [DAEMON_WATCH_LOOKS] = "watching",
					      [DAEMON_WATCH_ROLLS_BACK] = "rolling-back",
					      [DAEMON_WATCH_STAYS] = "kept",
					      [DAEMON_WATCH_ROLLED_BACK] = "rolled-back",
					      [DAEMON_WATCH_ENDED] = "ended" };
	const struct daemon_watch *w = newest(d, version, true);

	w = w ? w : newest(d, version, false);
	if (!w) {
		return NULL;
	}
	return json_pack("{s:I,s:s,s:s,s:s,s:I,s:s,s:I,s:I,s:I,s:b,s:o}", "version",
			 (json_int_t)w->is.version, "name", w->is.name, "state", states[w->state],
			 "condition", w->is.condition, "before", (json_int_t)w->before, "reason",
			 w->reason, "passed_ns", (json_int_t)passed_ns(w), "watch_ns",
			 (json_int_t)w->is.ns, "rollback_ns", (json_int_t)w->rollback_ns, "resumed",
			 (int)w->resumed, "values", values_json(w));
}

json_t *daemon_watch_cancel(struct daemon *d, uint64_t version, const struct peer *who)
{
	const struct daemon_watch *found = newest(d, version, true);
	struct daemon_watch *w = d->watches;
	const struct daemon_stored_version *v;
	char reason[64];

	while (w && w != found) {
		w = w->next;
	}
	if (!w) {
		return NULL;
	}
	v = daemon_store_find(daemon_policies_store(d), w->is.version);
	snprintf(reason, sizeof(reason), "cancelled by user %d", (int)who->uid);
	daemon_history_add(&d->history, "watch", -1,
			   "the watch of '%s' version %llu is %s; the version stays", w->is.name,
			   (unsigned long long)w->is.version, reason);
	daemon_audit(d, who, "policy.watch_cancel", v ? v->hash : 0,
		     "'%s' version %llu stays: %s is no longer watched for", w->is.name,
		     (unsigned long long)w->is.version, w->is.condition);
	daemon_watch_end(w, DAEMON_WATCH_ENDED, reason);
	return daemon_watch_json(d, w->is.version);
}
