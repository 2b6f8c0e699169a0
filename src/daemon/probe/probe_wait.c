/* Callers that wait for answers of sessions, and the messages of sessions that end their wait. No
 * session can delay an answer beyond its timeout. */
#include "daemon/probe/probes_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "daemon/clean_text.h"

#define LAUNCHES_MAX (UINT64_C(1) << 53) /* that a session's state is believed to have */

static const unsigned timeout_ms[] = {
	[DAEMON_PROBE_WAIT_ATTACH] = DAEMON_PROBE_ATTACH_MS,
	[DAEMON_PROBE_WAIT_SWAP] = DAEMON_PROBE_SWAP_MS,
	[DAEMON_PROBE_WAIT_END] = DAEMON_PROBE_END_MS,
	[DAEMON_PROBE_WAIT_DRAIN] = DAEMON_PROBE_DRAIN_MS,
};

/* ---- sessions without an answer ---- */

static bool concerns(const struct daemon_probe_wait *w, const struct daemon_session *s)
{
	return (w->tenant < 0 || w->tenant == s->tenant) &&
	       (w->uid < 0 || w->uid == (int64_t)s->peer.uid);
}

static bool is_pending(const struct daemon_probe_wait *w, const struct daemon_session *s)
{
	const struct daemon_probe_part *part = daemon_probe_part(w->p, s);

	if (!part || part->gone || s->dying) {
		return false;
	}
	switch (w->kind) {
	case DAEMON_PROBE_WAIT_ATTACH:
		return !part->answered;
	case DAEMON_PROBE_WAIT_SWAP:
		return !part->answered || part->waiting;
	case DAEMON_PROBE_WAIT_END:
		return true;
	case DAEMON_PROBE_WAIT_DRAIN:
		return concerns(w, s) && part->drain_wanted >= w->number &&
		       part->drain_done < w->number;
	}
	return false;
}

static unsigned count_pending(const struct daemon_probe_wait *w)
{
	unsigned n = 0;

	daemon_session_each(w->p->d, s)
	{
		n += is_pending(w, s);
	}
	return n;
}

/* ---- answers ---- */

static void answer(struct daemon *d, const struct daemon_probe_wait *w, json_t *result)
{
	daemon_control_answer(d, w->conn, w->call, result, NULL, 1);
	json_decref(result);
}

/* A gbpfd that is killed after the answer must not attach the tool again. */
static void answer_end(const struct daemon_probe_wait *w)
{
	json_t *result = json_pack("{s:I,s:s,s:i}", "id", (json_int_t)w->p->id, "name", w->p->name,
				   "late", (int)count_pending(w));

	daemon_probe_store_answer(w->p->d, result, w->conn, w->call);
}

static void answer_drain(const struct daemon_probe_wait *w)
{
	unsigned drained = 0, late = 0;

	daemon_session_each(w->p->d, s)
	{
		struct daemon_probe_part *part = daemon_probe_part(w->p, s);

		if (!part || !concerns(w, s) || part->drain_wanted < w->number) {
			continue;
		}
		if (w->holder) {
			part->drain_shown = part->drain_done;
		}
		if (part->drain_done >= w->number && !part->drain_status) {
			drained++;
		} else {
			late++;
		}
	}
	answer(w->p->d, w,
	       json_pack("{s:I,s:I,s:i,s:i}", "version", (json_int_t)w->p->live->version, "probe",
			 (json_int_t)w->p->id, "drained", (int)drained, "late", (int)late));
}

static void free_wait(struct daemon *d, struct daemon_probe_wait *w)
{
	d->probes->n_waits--;
	sd_event_source_disable_unref(w->timer);
	free(w);
}

static struct daemon_probe_wait **link_of(struct daemon *d, const struct daemon_probe_wait *w)
{
	struct daemon_probe_wait **link = &d->probes->waits;

	while (*link != w) {
		link = &(*link)->next;
	}
	return link;
}

/* Does what a wait, which is in no list any more, was for. May remove its tool, and other waits. */
static void finish(const struct daemon_probe_wait *w)
{
	switch (w->kind) {
	case DAEMON_PROBE_WAIT_ATTACH:
		daemon_probe_attached(w->p, w->conn, w->call);
		break;
	case DAEMON_PROBE_WAIT_SWAP:
		if (w->p->replaces) {
			daemon_probe_end(w->p->replaces, 0, 0);
		}
		break;
	case DAEMON_PROBE_WAIT_END:
		answer_end(w);
		daemon_probe_remove(w->p);
		break;
	case DAEMON_PROBE_WAIT_DRAIN:
		answer_drain(w);
		break;
	}
}

static void take_out_and_finish(struct daemon *d, struct daemon_probe_wait *w)
{
	struct daemon_probe_wait copy = *w;

	*link_of(d, w) = w->next;
	free_wait(d, w);
	finish(&copy);
}

static int on_timeout(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_probe_wait *w = arg;

	(void)src;
	(void)usec;
	take_out_and_finish(w->p->d, w);
	return 0;
}

void daemon_probes_check(struct daemon *d)
{
	struct daemon_probe_wait *w = d->probes ? d->probes->waits : NULL;

	while (w && !d->ending) {
		if (count_pending(w)) {
			w = w->next;
			continue;
		}
		take_out_and_finish(d, w);
		w = d->probes->waits; /* others may have ended with it */
	}
	if (d->probes && !d->ending) {
		daemon_coverage_check(d, false);
	}
}

bool daemon_probe_wait_is_full(const struct daemon *d, bool admin)
{
	return d->probes->n_waits >= (admin ? DAEMON_PROBE_WAITS : DAEMON_PROBE_WAITS / 2);
}

void daemon_probe_wait(const struct daemon_probe_wait *what)
{
	struct daemon_probe_wait *w = count_pending(what) ? malloc(sizeof(*w)) : NULL;
	struct daemon *d = what->p->d;
	uint64_t now = clock_now_ns() / 1000; /* the loop's time may be old */

	if (!w) {
		finish(what);
		return;
	}
	*w = *what;
	w->timer = NULL;
	w->next = d->probes->waits;
	d->probes->waits = w;
	d->probes->n_waits++;
	if (sd_event_add_time(d->loop, &w->timer, CLOCK_MONOTONIC,
			      now + clock_patience(timeout_ms[w->kind]) * 1000u, 1000, on_timeout,
			      w) < 0) {
		take_out_and_finish(d, w);
	}
}

/* Callers that wait for a tool that is being removed are answered with what there is. */
void daemon_probe_waits_ended(struct daemon_probe *p)
{
	struct daemon *d = p->d;
	struct daemon_probe_wait **link = &d->probes->waits;

	while (*link) {
		struct daemon_probe_wait *w = *link;

		if (w->p != p) {
			link = &w->next;
			continue;
		}
		*link = w->next;
		if (w->kind == DAEMON_PROBE_WAIT_ATTACH) {
			daemon_probe_answer_attach(p, w->conn, w->call);
		} else if (w->kind == DAEMON_PROBE_WAIT_END) {
			answer_end(w);
		} else if (w->kind == DAEMON_PROBE_WAIT_DRAIN) {
			answer_drain(w);
		} else if (p->replaces) {
			daemon_probe_end(p->replaces, 0, 0); /* the swap has taken place */
			link = &d->probes->waits;
		}
		free_wait(d, w);
	}
}

/* ---- drain ---- */

void daemon_probe_drain_next(const struct daemon_probe *p, struct daemon_session *s)
{
	struct daemon_probe_part *part = daemon_probe_part(p, s);
	union proto_message m = { 0 };

	if (part->gone || part->end || part->drain_sent >= part->drain_wanted ||
	    part->drain_done < part->drain_sent) {
		return;
	}
	part->drain_sent = m.probe_order.number = part->drain_wanted;
	m.probe_order.version = p->live->version;
	m.probe_order.read = part->drain_read;
	daemon_session_send(s, &m, PROTO_PROBE_DRAIN, NULL, 0);
	POINT("daemon.probe.drain_sent");
}

void daemon_probe_drain(struct daemon_probe *p, const struct daemon_probe_wait *what)
{
	daemon_session_each(p->d, s)
	{
		struct daemon_probe_part *part = daemon_probe_part(p, s);

		if (part && !part->gone && !part->end && !s->dying && concerns(what, s)) {
			part->drain_wanted = what->number;
			if (what->holder) {
				part->drain_read = part->drain_shown;
			}
			daemon_probe_drain_next(p, s);
		}
	}
}

void daemon_probe_refresh(struct daemon_version *l, int tenant)
{
	struct daemon_probe *p = daemon_probe_of(l);
	struct daemon_probe_wait what = { .p = p, .tenant = tenant, .uid = -1 };

	if (p) {
		what.number = ++l->d->probes->orders;
		daemon_probe_drain(p, &what);
	}
}

/* ---- messages of sessions ---- */

/* Finds the tool of a message among those that the session was sent. NULL with *ret_good: there is
 * none any more; without: there never was. */
static struct daemon_probe *sent_tool(const struct daemon_session *s, uint64_t version,
				      bool *ret_good)
{
	const struct daemon_probes *all = s->d->probes;
	struct daemon_probe *p = NULL;

	*ret_good = version > DAEMON_PROBE_VERSION &&
		    version - DAEMON_PROBE_VERSION <= (uint64_t)all->next_id;
	if (*ret_good) {
		p = daemon_probe_find(s->d, (json_int_t)(version - DAEMON_PROBE_VERSION));
	}
	if (p && !daemon_probe_part(p, s)) {
		*ret_good = false;
		return NULL;
	}
	return p;
}

static void tell_refusal(struct daemon_session *s, const struct daemon_probe *p,
			 struct daemon_probe_part *part)
{
	if (!part->told && (part->refused || part->status)) {
		part->told = true;
		daemon_session_event(s, "probe", "%s does not run tool %u%s: %s", s->name, p->id,
				     part->status ? "" : " in all kernels",
				     part->why[0]   ? part->why
				     : part->status ? strerror(-part->status)
						    : "it gives no reason");
	}
}

bool daemon_probes_take_state(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_probe_state *m = &r->m.probe_state;
	bool good;
	struct daemon_probe *p = sent_tool(s, m->version, &good);
	struct daemon_probe_part *part;

	if (!p || m->status > 0 || m->status <= -4096) {
		return good && m->status <= 0 && m->status > -4096;
	}
	part = daemon_probe_part(p, s);
	if (part->gone) {
		return true;
	}
	part->answered = true;
	part->status = m->status;
	part->gone = m->status < 0;
	part->kernels = m->kernels;
	part->waiting = m->waiting;
	part->refused = m->refused;
	part->falls_back = m->falls_back;
	part->cost_ppm = m->cost_ppm;
	part->launches = MIN(m->launches, LAUNCHES_MAX);
	part->probed = MIN(m->probed, part->launches);
	part->resident_before = m->resident_before;
	part->resident_after = MIN(m->resident_after, m->resident_before);
	part->unseen = m->unseen;
	part->stubs = MIN(m->stubs, m->kernels);
	part->brackets = MIN(m->brackets, m->kernels - part->stubs);
	part->parts = MIN(m->parts, m->kernels);
	part->equal = m->equal;
	part->differing = m->differing;
	part->not_compared = m->not_compared;
	daemon_text_copy(part->compared, sizeof(part->compared), m->compared,
			 strnlen(m->compared, sizeof(m->compared)));
	daemon_text_copy(part->why, sizeof(part->why), m->why, strnlen(m->why, sizeof(m->why)));
	daemon_probe_gaps_take(s, p, m);
	tell_refusal(s, p, part);
	POINT("daemon.probe.state");
	daemon_probes_check(s->d);
	return true;
}

bool daemon_probes_take_ended(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_probe_order *m = &r->m.probe_order;
	bool good;
	struct daemon_probe *p = sent_tool(s, m->version, &good);
	struct daemon_probe_part *part = p ? daemon_probe_part(p, s) : NULL;

	if (!part) {
		return good;
	}
	if (!part->end || part->end != m->number) {
		return false;
	}
	part->gone = true;
	POINT("daemon.probe.ended");
	daemon_probes_check(s->d);
	return true;
}

bool daemon_probes_take_drained(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_probe_order *m = &r->m.probe_order;
	bool good;
	struct daemon_probe *p = sent_tool(s, m->version, &good);
	struct daemon_probe_part *part = p ? daemon_probe_part(p, s) : NULL;

	if (!part) {
		return good;
	}
	if (part->drain_done == part->drain_sent || part->drain_sent != m->number) {
		return false;
	}
	part->drain_done = m->number;
	part->drain_status = m->status;
	daemon_probe_drain_next(p, s);
	daemon_probes_check(s->d);
	return true;
}
