/* Watches across restarts: state.json has the running ones, with their end on the wall clock, and
 * the gbpfd that activates the watched version again continues them for the time that is left. Its
 * counters begin with that gbpfd. The loss of a watch is an event and a line of the log. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/policy/policies.h"
#include "daemon/watch/watch_int.h"

#define UNOBSERVED "not observed until its end, because gbpfd was not running"

/* Reports a watch that cannot be continued. */
static void lost(struct daemon *d, const struct daemon_stored_watch *s, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

static void lost(struct daemon *d, const struct daemon_stored_watch *s, const char *fmt, ...)
{
	char why[DAEMON_WATCH_REASON];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	daemon_history_add(&d->history, "watch", -1,
			   "the watch of '%s' version %llu cannot continue: %s", s->name,
			   (unsigned long long)s->version, why);
	log_warn("the watch of '%s' version %llu cannot continue: %s", s->name,
		 (unsigned long long)s->version, why);
}

/* Returns the first version that a rollback would need and that is not stored, or 0. */
static uint64_t missing(struct daemon *d, const struct daemon_stored_watch *s)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if ((s->gpu_mask & 1u << i) && s->old[i] &&
		    daemon_policy_active_version(d, i) == s->version &&
		    !daemon_store_find(daemon_policies_store(d), s->old[i])) {
			return s->old[i];
		}
	}
	return 0;
}

/* Returns the time that is left. A clock that was set back does not prolong the watch. */
static uint64_t left_ns(const struct daemon_stored_watch *s)
{
	uint64_t now = clock_wall_ns();

	return s->end_wall_ns > now ? MIN(s->end_wall_ns - now, s->ns) : 0;
}

static bool resume(struct daemon *d, const struct daemon_watch_request *o)
{
	const struct daemon_stored_watch *s = &o->is;
	struct daemon_watch *w = daemon_watch_add(d, o);
	uint64_t left = left_ns(s);

	if (!w) {
		return false;
	}
	w->resumed = true;
	if (!left) {
		w->end_ns = clock_now_ns();
		daemon_history_add(&d->history, "watch", -1, "'%s' version %llu stays: %s was %s",
				   s->name, (unsigned long long)s->version, s->condition,
				   UNOBSERVED);
		daemon_watch_end(w, DAEMON_WATCH_STAYS, UNOBSERVED);
		return false;
	}
	daemon_history_add(&d->history, "watch", -1,
			   "the watch of '%s' version %llu continues for %.0f s: %s, counted from "
			   "now on",
			   s->name, (unsigned long long)s->version, (double)left / 1e9,
			   s->condition);
	daemon_watch_run(w, left);
	return w->state == DAEMON_WATCH_LOOKS;
}

/* Returns true if the watch runs; else state.json must lose it. */
static bool resume_or_report(struct daemon *d, const struct daemon_stored_watch *s)
{
	struct daemon_watch_request *o = NULL;
	struct report r;
	uint64_t absent;
	bool runs = false;

	report_init(&r);
	if (!daemon_policy_gpus_of(d, s->version)) {
		lost(d, s, "the version is not active");
	} else if ((absent = missing(d, s)) != 0) {
		lost(d, s, "version %llu before it is not stored; the version stays",
		     (unsigned long long)absent);
	} else if (daemon_watch_request_new(&o, s->ns, s->condition, &r) < 0) {
		lost(d, s, "its condition cannot be read: %s; the version stays",
		     buf_text(&r.message));
	} else {
		o->is = *s;
		runs = resume(d, o);
	}
	report_finish(&r);
	free(o);
	return runs;
}

static void report_bad_state(struct daemon *d)
{
	const struct daemon_store *st = daemon_policies_store(d);

	if (st->bad_state) {
		daemon_history_add(&d->history, "store", -1,
				   "state.json cannot be read: which version was active, and "
				   "whether it was watched, is not known");
		log_warn("%s/state.json cannot be read", st->dir);
	}
	if (st->bad_watches) {
		daemon_history_add(&d->history, "watch", -1,
				   "%u watch%s in state.json cannot be read, and cannot continue",
				   st->bad_watches, st->bad_watches == 1 ? "" : "es");
		log_warn("%u watch%s in %s/state.json cannot be read", st->bad_watches,
			 st->bad_watches == 1 ? "" : "es", st->dir);
	}
}

void daemon_watches_resume(struct daemon *d)
{
	struct daemon_store *st = daemon_policies_store(d);
	bool changed = st->bad_watches > 0;

	report_bad_state(d);
	for (unsigned i = st->n_watches;
	     i-- > 0;) { /* the end of one moves the last to its place */
		struct daemon_stored_watch s = st->watch[i];
		const struct daemon_stored_version *v = daemon_store_find(st, s.version);

		if (v) { /* a swap that was interrupted has stored the watch without the name */
			snprintf(s.name, sizeof(s.name), "%s", v->name);
		}
		if (!resume_or_report(d, &s)) {
			daemon_store_watch_remove(st, s.version);
			changed = true;
		}
	}
	if (changed) {
		daemon_durable_save(d, "the end of a watch", NULL, 0, 0);
	}
}
