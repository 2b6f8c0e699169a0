/* probe.coverage: asks sessions which of their kernels can be probed, and answers with what they
 * have written to their statistics. A session looks at its kernels when it is asked; the caller
 * does not wait for long for it, or, if names and launches are enough for it, not at all. */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/probe/probes_int.h"

/* A caller of probe.coverage. */
struct daemon_coverage_wait {
	struct daemon_coverage_wait *next;
	struct daemon *d;
	struct daemon_probe_target target;
	uint64_t number;
	sd_event_source *timer; /* owned */
	uint64_t conn;
	json_int_t call;
};

static bool is_pending(const struct daemon_coverage_wait *w, const struct daemon_session *s)
{
	return daemon_probe_target_fits(&w->target, s) && s->probes.cover_wanted >= w->number &&
	       s->probes.cover_done < w->number;
}

static bool any_pending(const struct daemon_coverage_wait *w)
{
	daemon_session_each(w->d, s)
	{
		if (is_pending(w, s)) {
			return true;
		}
	}
	return false;
}

/* ---- answers ---- */

static json_t *tenant_json(const struct daemon_coverage_wait *w, const struct daemon_session *s)
{
	json_t *j = daemon_coverage_json(s);

	if (j) {
		json_object_set_new(j, "tenant", json_integer(s->tenant));
		json_object_set_new(j, "pid", json_integer(s->peer.pid));
		json_object_set_new(j, "name", json_string(s->name));
		json_object_set_new(j, "answered", json_boolean(!is_pending(w, s)));
	}
	return j;
}

static void answer(const struct daemon_coverage_wait *w)
{
	json_t *tenants = json_array(), *result;

	daemon_session_each(w->d, s)
	{
		if (daemon_probe_target_fits(&w->target, s)) {
			json_array_append_new(tenants, tenant_json(w, s));
		}
	}
	result = json_pack("{s:o}", "tenants", tenants);
	daemon_control_answer(w->d, w->conn, w->call, result, NULL, 1);
	json_decref(result);
}

static void finish(struct daemon_coverage_wait *w)
{
	struct daemon_coverage_wait **link = &w->d->probes->coverage;

	while (*link != w) {
		link = &(*link)->next;
	}
	*link = w->next;
	w->d->probes->n_coverage--;
	answer(w);
	sd_event_source_disable_unref(w->timer);
	free(w);
}

void daemon_coverage_check(struct daemon *d, bool all)
{
	struct daemon_coverage_wait *w = d->probes->coverage, *next;

	for (; w; w = next) {
		next = w->next;
		if (all || !any_pending(w)) {
			finish(w);
		}
	}
}

static int on_timeout(sd_event_source *src, uint64_t usec, void *arg)
{
	(void)src;
	(void)usec;
	finish(arg);
	return 0;
}

/* ---- questions ---- */

/* A session has one question at a time. */
static void ask_next(struct daemon_session *s)
{
	union proto_message m = { 0 };

	if (s->probes.cover_sent < s->probes.cover_wanted &&
	    s->probes.cover_done == s->probes.cover_sent) {
		s->probes.cover_sent = m.probe_order.number = s->probes.cover_wanted;
		daemon_session_send(s, &m, PROTO_COVERAGE, NULL, 0);
	}
}

static void ask_all(const struct daemon_coverage_wait *w)
{
	daemon_session_each(w->d, s)
	{
		if (daemon_probe_target_fits(&w->target, s)) {
			s->probes.cover_wanted = w->number;
			ask_next(s);
		}
	}
}

bool daemon_coverage_take(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_probe_order *m = &r->m.probe_order;

	if (s->probes.cover_done == s->probes.cover_sent || m->number != s->probes.cover_sent) {
		return false;
	}
	s->probes.cover_done = m->number;
	ask_next(s);
	daemon_coverage_check(s->d, false);
	return true;
}

static void begin(struct daemon_call *c, struct daemon_coverage_wait *w)
{
	struct daemon_probes *all = c->d->probes;
	uint64_t until = clock_now_ns() / 1000 + clock_patience(DAEMON_COVERAGE_MS) * 1000u;

	w->d = c->d;
	w->conn = c->conn;
	w->call = c->id;
	w->next = all->coverage;
	all->coverage = w;
	all->n_coverage++;
	if (!json_is_false(json_object_get(c->params, "look"))) {
		w->number = ++all->orders;
		ask_all(w);
	}
	if (!any_pending(w) || sd_event_add_time(c->d->loop, &w->timer, CLOCK_MONOTONIC, until,
						 1000, on_timeout, w) < 0) {
		finish(w);
	}
}

void daemon_method_probe_coverage(struct daemon_call *c)
{
	bool admin = daemon_may_administer(c->d, c->sock);
	struct daemon_coverage_wait *w;

	if (c->d->probes->n_coverage >= DAEMON_COVERAGE_WAITS / (admin ? 1 : 2)) {
		daemon_control_error(c, 7, "busy", "Try again in a moment",
				     "too many callers wait for programs");
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	} else if (daemon_probe_take_target(c, admin, &w->target)) {
		begin(c, w);
	} else {
		free(w);
	}
}
