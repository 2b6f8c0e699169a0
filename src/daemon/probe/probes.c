/* The tools: their places, targets and ends. */
#include "daemon/probe/probes_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "base/private_dir.h"
#include "daemon/audit.h"

#define probes_each(d, p)                                                                          \
	for (unsigned i_ = 0; i_ < DAEMON_PROBE_SLOTS; i_++)                                       \
		for (struct daemon_probe *p = (d)->probes->at[i_]; p; p = NULL)

/* ---- finding ---- */

struct daemon_probe *daemon_probe_find(const struct daemon *d, json_int_t id)
{
	probes_each(d, p)
	{
		if ((json_int_t)p->id == id) {
			return p;
		}
	}
	return NULL;
}

struct daemon_probe *daemon_probe_of(const struct daemon_version *l)
{
	return daemon_probe_find(l->d, daemon_probe_id(l));
}

bool daemon_probe_visible(const struct daemon_call *c, const struct daemon_probe *p)
{
	if (p->owner.uid == c->peer.uid || daemon_may_administer(c->d, c->sock)) {
		return true;
	}
	daemon_session_each(c->d, s)
	{
		if (s->peer.uid == c->peer.uid && daemon_probe_part(p, s)) {
			return true;
		}
	}
	return false;
}

bool daemon_probe_may_change(const struct daemon_call *c, const struct daemon_probe *p)
{
	return p->owner.uid == c->peer.uid || daemon_may_administer(c->d, c->sock);
}

bool daemon_probe_version_may_watch(const struct daemon_call *c, const struct daemon_version *l)
{
	const struct daemon_probe *p = daemon_probe_of(l);

	/* The target of a tool by an operator may be programs of others. */
	return p && (daemon_may_administer(c->d, c->sock) ||
		     (p->owner.uid == c->peer.uid && !p->by_admin));
}

struct daemon_version *daemon_probe_numbered(const struct daemon_call *c, json_int_t id)
{
	struct daemon_probe *p = daemon_probe_find(c->d, id);

	return p && daemon_probe_visible(c, p) ? p->live : NULL;
}

struct daemon_version *daemon_probe_version(const struct daemon_call *c, uint64_t version)
{
	return version > DAEMON_PROBE_VERSION
		       ? daemon_probe_numbered(c, (json_int_t)(version - DAEMON_PROBE_VERSION))
		       : NULL;
}

struct daemon_version *daemon_probe_next(const struct daemon_call *c,
					 const struct daemon_version *after)
{
	unsigned i = after ? daemon_probe_of(after)->slot + 1 : 0;

	for (; i < DAEMON_PROBE_SLOTS; i++) {
		const struct daemon_probe *p = c->d->probes->at[i];

		if (p && !p->ending && !p->replaced && daemon_probe_visible(c, p)) {
			return p->live;
		}
	}
	return NULL;
}

/* ---- sessions ---- */

bool daemon_probe_target_fits(const struct daemon_probe_target *t, const struct daemon_session *s)
{
	return s->state == DAEMON_SESSION_READY && !s->dying && !t->awaited &&
	       (t->uid < 0 || t->uid == (int64_t)s->peer.uid) &&
	       (!t->name[0] || strcmp(t->name, s->name) == 0) &&
	       (t->tenant < 0 || (t->tenant == s->tenant && t->connected_ns == s->connected_ns));
}

bool daemon_probe_targets(const struct daemon_probe *p, const struct daemon_session *s)
{
	return daemon_probe_target_fits(&p->target, s);
}

bool daemon_probe_send(struct daemon_probe *p, struct daemon_session *s)
{
	struct daemon_probe_part *part = calloc(1, sizeof(*part));
	union proto_message m = { 0 };
	int fds[3], n;

	n = part ? daemon_version_descriptors(p->live, (uint32_t)s->tenant, fds, &m.probe.regions)
		 : -ENOMEM;
	if (n < 0) {
		free(part);
		daemon_session_event(s, "limit", "%s runs without tool %u: no memory for it (%s)",
				     s->name, p->id, strerror(-n));
		return false;
	}
	s->probes.part[p->slot] = part;
	part->cost_ppm = PROTO_PROBE_COST_UNKNOWN;
	m.probe.version = p->live->version;
	m.probe.budget_ppm = p->budget_ppm;
	m.probe.control = p->control;
	m.probe.partial = p->partial;
	m.probe.verify = p->verify;
	m.probe.held = p->held;
	m.probe.replaces =
		p->replaces && daemon_probe_part(p->replaces, s) ? p->replaces->live->version : 0;
	snprintf(m.probe.kernel, sizeof(m.probe.kernel), "%s", p->kernel);
	daemon_session_send(s, &m, PROTO_PROBE, fds, (unsigned)n);
	daemon_page_close_fd(&p->live->region[s->tenant]);
	POINT("daemon.probe.sent");
	return true;
}

/* A process with a tool of its own has come back: the tool belongs to this session from now on. */
static void take_awaited(struct daemon_probe *p, const struct daemon_session *s)
{
	struct daemon_probe_target *t = &p->target;
	struct daemon_process process;

	if (!t->awaited || !s->hello.reattached || s->peer.pid != t->process.pid) {
		return;
	}
	process = daemon_process_of(s->peer.pid);
	if (process.pid && process.start == t->process.start) {
		t->awaited = false;
		t->tenant = s->tenant;
		t->connected_ns = s->connected_ns;
		daemon_probe_unwatch(&p->target_watch);
	}
}

/* Sends the tools whose target the session belongs to, and that these are all: its program waits
 * for that, and tools of an earlier gbpfd end. */
static void session_ready(struct daemon_session *s)
{
	union proto_message all = { 0 };

	probes_each(s->d, p)
	{
		take_awaited(p, s);
		if (!p->ending && !p->replaced && !daemon_probe_part(p, s) &&
		    daemon_probe_targets(p, s)) {
			daemon_probe_send(p, s);
		}
	}
	daemon_session_send(s, &all, PROTO_PROBE_END, NULL, 0);
	POINT("daemon.session.tools_named");
}

static void free_part(struct daemon_probe *p, struct daemon_session *s)
{
	free(s->probes.part[p->slot]);
	s->probes.part[p->slot] = NULL;
}

static void session_ended(struct daemon_session *s)
{
	struct daemon *d = s->d;

	probes_each(d, p)
	{
		daemon_version_remove_tenant(p->live, (uint32_t)s->tenant);
		free_part(p, s);
		if (p->target.tenant == s->tenant && p->target.connected_ns == s->connected_ns) {
			daemon_probe_end(p, 0, 0); /* it can have no other session */
		}
	}
}

bool daemon_probes_have_region(const struct daemon *d, uint32_t tenant)
{
	probes_each(d, p)
	{
		if (p->live->region[tenant].map) {
			return true;
		}
	}
	return false;
}

/* ---- begin and end ---- */

int daemon_probe_check_place(const struct daemon *d, uid_t uid, bool admin, bool swap,
			     struct report *r)
{
	unsigned all = d->probes->building, users = 0, own = 0, quota;

	probes_each(d, p)
	{
		if (!p->ending && !p->replaced) {
			all++;
			users += !p->by_admin;
			own += !p->by_admin && p->owner.uid == uid;
		}
	}
	all -= swap && all;
	if (all >= DAEMON_PROBES) {
		report_hint(r, "`gbpf probe detach ID` ends one");
		return report_set(r, -EUSERS, "limit", "%u tools are attached already", all);
	}
	quota = daemon_user_quota(DAEMON_PROBES_OF_USERS, users - own, DAEMON_PROBES_OF_USER);
	if (!admin && !swap && own >= quota) {
		report_hint(r, "`gbpf probe detach ID` ends one");
		return report_set(r, -EUSERS, "limit",
				  "user %d has %u tools attached, of %u that others leave to it",
				  (int)uid, own, quota);
	}
	return 0;
}

int daemon_probe_insert(struct daemon_probe *p)
{
	struct daemon_probes *all = p->d->probes;

	for (unsigned i = 0; i < DAEMON_PROBE_SLOTS; i++) {
		if (!all->at[i]) {
			all->at[i] = p;
			p->slot = i;
			p->attached_ns = clock_now_ns();
			return 0;
		}
	}
	return -ENOSPC;
}

static void send_end(struct daemon_probe *p)
{
	struct daemon *d = p->d;

	p->ending = true;
	p->hold = 0;
	daemon_probe_unwatch(&p->holder_watch);
	daemon_probe_unwatch(&p->target_watch);
	daemon_probe_store_remove(p);
	p->timer = sd_event_source_disable_unref(p->timer);
	if (p->conn) { /* some sessions were not sent it yet */
		daemon_probe_answer_attach(p, p->conn, p->call);
		p->conn = 0;
	}
	daemon_session_each(d, s)
	{
		struct daemon_probe_part *part = daemon_probe_part(p, s);
		union proto_message m = { 0 };

		if (part && !part->gone) {
			part->end = m.probe_order.number = ++d->probes->orders;
			m.probe_order.version = p->live->version;
			daemon_session_send(s, &m, PROTO_PROBE_END, NULL, 0);
			POINT("daemon.probe.end_sent");
		}
	}
}

void daemon_probe_end(struct daemon_probe *p, uint64_t conn, json_int_t call)
{
	const struct daemon_probe_wait what = {
		.p = p, .kind = DAEMON_PROBE_WAIT_END, .conn = conn, .call = call
	};

	if (p->d->ending) {
		return; /* programs keep the tools of a gbpfd that exits until there is another */
	}
	if (p->ending && !conn) {
		return; /* another wait ends it */
	}
	if (!p->ending) {
		send_end(p);
	}
	daemon_probe_wait(&what);
}

void daemon_probe_free(struct daemon_probe *p)
{
	if (p) {
		sd_event_source_disable_unref(p->timer);
		daemon_probe_unwatch(&p->holder_watch);
		daemon_probe_unwatch(&p->target_watch);
		buf_finish(&p->object);
		daemon_version_destroy(p->live);
		free(p);
	}
}

void daemon_probe_remove(struct daemon_probe *p)
{
	struct daemon *d = p->d;

	daemon_probe_waits_ended(p);
	daemon_probe_store_remove(p);
	if (p->replaces) {
		p->replaces->replaced = NULL;
	}
	if (p->replaced) {
		p->replaced->replaces = NULL;
	}
	daemon_features_call(version_ends, p->live, "the tool was detached");
	daemon_session_each(d, s)
	{
		free_part(p, s);
	}
	d->probes->at[p->slot] = NULL;
	daemon_version_destroy_later(p->live);
	p->live = NULL;
	daemon_probe_free(p);
}

/* Detaches the tools that the connection holds. */
static void connection_closed(struct daemon *d, uint64_t conn)
{
	if (!d->probes) {
		return;
	}
	probes_each(d, p)
	{
		if (p->hold == conn && !d->ending) {
			daemon_probe_record(p, &p->owner, p->by_admin, "detach",
					    "its connection was closed");
			daemon_probe_end(p, 0, 0);
		}
	}
	daemon_probes_check(d);
}

const struct daemon_feature daemon_probes_feature = {
	.connection_closed = connection_closed,
	.messages = {
		{ PROTO_PROBE_STATE, 1u << DAEMON_SESSION_READY, daemon_probes_take_state },
		{ PROTO_PROBE_ENDED, 1u << DAEMON_SESSION_READY, daemon_probes_take_ended },
		{ PROTO_PROBE_DRAINED, 1u << DAEMON_SESSION_READY, daemon_probes_take_drained },
		{ PROTO_COVERED, 1u << DAEMON_SESSION_READY, daemon_coverage_take },
	},
	.session_ready = session_ready,
	.session_ended = session_ended,
	.sessions_reaped = daemon_probes_check,
};

void daemon_probe_record(const struct daemon_probe *p, const struct peer *who, bool by_admin,
			 const char *action, const char *fmt, ...)
{
	struct daemon *d = p->d;
	char what[24], text[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(what, sizeof(what), "probe.%s", action);
	if (by_admin) {
		daemon_audit(d, who, what, p->hash, "tool %u '%s': %s", p->id, p->name, text);
	} else {
		daemon_audit_user(d, who, what, "tool %u '%s': %s", p->id, p->name, text);
	}
	if (daemon_session_event_allowed(d, p->owner.uid)) {
		daemon_history_add_of(&d->history, p->owner.uid, "probe", -1, 0,
				      "%s of tool %u '%s': %s", action, p->id, p->name, text);
	}
}

/* ---- gbpfd's start and exit ---- */

int daemon_probes_open(struct daemon *d)
{
	d->probes = calloc(1, sizeof(*d->probes));
	if (!d->probes) {
		return -ENOMEM;
	}
	snprintf(d->probes->dir, sizeof(d->probes->dir), "%s/tools", d->opt.state);
	return private_dir_make(d->probes->dir, 0700, false, NULL);
}

void daemon_probes_close(struct daemon *d)
{
	if (!d->probes) {
		return;
	}
	probes_each(d, p)
	{
		daemon_probe_waits_ended(p);
	}
	daemon_coverage_check(d, true);
	for (unsigned i = 0; i < DAEMON_PROBE_SLOTS; i++) {
		daemon_probe_free(d->probes->at[i]);
	}
	free(d->probes);
	d->probes = NULL;
}
