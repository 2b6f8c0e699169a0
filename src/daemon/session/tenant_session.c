/* A session's socket: reading, sending, timeouts. The features act on the messages (feature.h).
 * Must not block: a message that cannot be sent is queued, and the session of a process that never
 * reads is dropped. */
#include "daemon/budget.h"
#include "daemon/session/tenant_session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/timer.h"

#define HELLO_USEC 30000000u
#define STALL_USEC 10000000u
#define DRIVER_USEC 300000000u /* from an early hello to the device list */
#define READS_PER_WAKE 32
#define NOTES_PER_SECOND 20u
#define FOREIGN_EVENTS_PER_SECOND 20u /* each user but root and the daemon's */

bool daemon_session_event_allowed(struct daemon *d, uid_t uid)
{
	uint64_t now = clock_now_ns();

	if (uid == 0 || uid == d->uid ||
	    rate_allow(&daemon_user_of(&d->users, uid, now)->events, FOREIGN_EVENTS_PER_SECOND,
		       now)) {
		return true;
	}
	d->counters.events_left_out++;
	return false;
}

void daemon_session_event(struct daemon_session *s, const char *kind, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (daemon_session_event_allowed(s->d, s->peer.uid)) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		daemon_history_add_of(&s->d->history, s->peer.uid, kind, s->tenant, s->peer.pid,
				      "%s", text);
	}
}

void daemon_session_note(struct daemon_session *s, const char *what, const char *fmt, ...)
{
	union proto_message m = { 0 };
	va_list ap;

	if (s->state != DAEMON_SESSION_READY) {
		return; /* it is not reading messages of this kind yet */
	}
	snprintf(m.note.what, sizeof(m.note.what), "%s", what);
	va_start(ap, fmt);
	vsnprintf(m.note.text, sizeof(m.note.text), fmt, ap);
	va_end(ap);
	daemon_session_send(s, &m, PROTO_NOTE, NULL, 0);
}

void daemon_session_end(struct daemon_session *s, enum daemon_session_end end)
{
	if (!s->dying) {
		s->dying = true;
		s->end = end;
		sd_event_source_set_enabled(s->d->sessions.reaper, SD_EVENT_ONESHOT);
	}
}

void daemon_session_drop(struct daemon_session *s, const char *fmt, ...)
{
	char why[256];
	va_list ap;

	if (s->dying) {
		return;
	}
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	daemon_session_event(s, "dropped", "session of pid %d dropped: %s", (int)s->peer.pid, why);
	s->d->counters.dropped_sessions++;
	daemon_session_end(s, DAEMON_END_DROPPED);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_session *s = arg;

	(void)src;
	(void)usec;
	if (s->state == DAEMON_SESSION_QUEUED) {
		daemon_session_refuse(s, -ETIMEDOUT,
				      "the policy kept this process waiting for 30 s");
	} else if (s->conn.out.n) {
		daemon_session_drop(s, "it did not read its messages for 10 s");
	} else if (s->state != DAEMON_SESSION_READY) {
		daemon_session_drop(s, "it did not finish its hello in time");
	}
	return 0;
}

static void arm_timer(struct daemon_session *s, uint64_t usec)
{
	uint64_t now;

	sd_event_now(s->d->loop, CLOCK_MONOTONIC, &now);
	(void)daemon_timer_at(s->d->loop, &s->conn.timer, now + clock_patience(usec), 100000,
			      on_timer, s);
}

void daemon_session_send(struct daemon_session *s, union proto_message *m, enum proto_type type,
			 const int *fds, unsigned nfds)
{
	int r;

	if (s->dying) {
		return;
	}
	r = daemon_outbox_send(&s->conn.out, s->conn.sock, m, type, fds, nfds);
	if (r == 1 && s->conn.out.n == 1) {
		sd_event_source_set_io_events(s->conn.io, EPOLLIN | EPOLLOUT);
		arm_timer(s, STALL_USEC);
	} else if (r == -ENOBUFS) {
		daemon_session_drop(s, "it does not read what it is sent (%u messages)",
				    s->conn.out.n + 1);
	} else if (r == -EPIPE || r == -ECONNRESET) {
		daemon_session_end(s, DAEMON_END_CLOSED);
	} else if (r < 0) {
		daemon_session_drop(s, "cannot send to it: %s", strerror(-r));
	}
}

void daemon_session_refuse(struct daemon_session *s, int err, const char *fmt, ...)
{
	union proto_message m = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.refused.text, sizeof(m.refused.text), fmt, ap);
	va_end(ap);
	m.refused.error = -err;
	m.head.version = s->conn.version;
	daemon_session_event(s, "refused", "pid %d refused: %s", (int)s->peer.pid, m.refused.text);
	s->d->counters.refused_sessions++;
	daemon_session_send(s, &m, PROTO_REFUSED, NULL, 0);
	daemon_session_end(s, DAEMON_END_REFUSED);
}

void daemon_session_send_settings(struct daemon_session *s)
{
	union proto_message m = { 0 };

	m.set.class_id = s->sent.class_id = s->class_id;
	m.set.weight = s->sent.weight = s->weight;
	m.set.weight_asked = s->sent.weight_asked = s->weight_asked;
	m.set.min_share_ppm = DAEMON_MIN_SHARE_PPM;
	m.set.tell_requests = s->preempt.reports;
	m.set.hold_limit_ns = DAEMON_HOLD_LIMIT_NS;
	daemon_session_send(s, &m, PROTO_SET, NULL, 0);
}

void daemon_session_set_class(struct daemon_session *s, uint32_t class_id, uint32_t weight)
{
	s->class_id = class_id;
	s->rejoin.asked = false; /* admit of the version being activated has seen the old values */
	if (weight) {
		s->weight = s->weight_asked = weight;
	}
	if (s->state != DAEMON_SESSION_READY) {
		return; /* WELCOME, or hello.c after it, sends the new values */
	}
	daemon_session_send_settings(s);
	if (class_id == GBPF_CLASS_LATENCY && s->lc.slot < 0) {
		daemon_lc_publish(s);
	} else if (class_id != GBPF_CLASS_LATENCY && s->lc.slot >= 0) {
		daemon_lc_withdraw(s);
	}
}

bool daemon_session_may_change_class(struct daemon_session *s)
{
	return rate_allow(&s->sent.changes, DAEMON_SESSION_CHANGES_PER_SECOND, clock_now_ns());
}

/* Writes a tenant's own message to the history: cleaned, and at a limited rate, so that it cannot
 * displace all other events. */
static bool take_note(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_note *n = &r->m.note;
	uint64_t now = clock_now_ns();
	char what[sizeof(n->what)];

	daemon_features_each(f)
	{
		if ((*f)->note && (*f)->note(s, n)) {
			return true;
		}
	}
	if (rate_allow(&s->conn.notes, NOTES_PER_SECOND, now) &&
	    daemon_session_event_allowed(s->d, s->peer.uid)) {
		snprintf(what, sizeof(what), "%s", n->what[0] ? n->what : "note");
		daemon_history_repeat(&s->d->history, now, s->peer.uid, what, s->tenant,
				      s->peer.pid, "%s", n->text);
	}
	return true;
}

const struct daemon_feature daemon_notes_feature = {
	/* once it is a tenant */
	.messages = { { PROTO_NOTE, ~(1u << DAEMON_SESSION_NEW), take_note } },
};

static const char *const state_names[] = {
	[DAEMON_SESSION_NEW] = "new",	  [DAEMON_SESSION_QUEUED] = "queued",
	[DAEMON_SESSION_LANE] = "lane",	  [DAEMON_SESSION_WELCOMED] = "welcomed",
	[DAEMON_SESSION_READY] = "ready",
};

/* Returns the one entry of that type, or NULL: tenants do not send it. */
static const struct daemon_message *message_of(uint32_t type)
{
	daemon_features_each(f)
	{
		for (unsigned i = 0; i < DAEMON_FEATURE_MESSAGES; i++) {
			if (type && (*f)->messages[i].type == type) {
				return &(*f)->messages[i];
			}
		}
	}
	return NULL;
}

static void take_message(struct daemon_session *s, struct daemon_received *r)
{
	const struct daemon_message *m = message_of(r->m.head.type);

	if (m && m->states & 1u << s->state && m->take(s, r)) {
		return;
	}
	while (r->nfds) {
		fd_close_foreign(r->fds[--r->nfds]);
	}
	if (!s->dying) { /* else the handler has given the reason */
		s->d->counters.garbage++;
		daemon_session_drop(s, "unexpected message type %u in state %s", r->m.head.type,
				    state_names[s->state]);
	}
}

static void read_messages(struct daemon_session *s)
{
	for (int i = 0; i < READS_PER_WAKE && !s->dying; i++) {
		struct daemon_received got;
		int r;

		memset(got.fds, 0xff, sizeof(got.fds)); /* -1 */
		r = proto_recv(s->conn.sock, &got.m, got.fds, &got.nfds);
		if (r == -EAGAIN) {
			return;
		}
		if (r == 1) {
			take_message(s, &got);
		} else if (r == 0) {
			daemon_session_end(s, DAEMON_END_CLOSED);
		} else if (r == -EPROTONOSUPPORT) {
			s->conn.version = got.m.head.version;
			daemon_session_refuse(
				s, -EPROTONOSUPPORT,
				"gbpfd speaks session protocol %u and this program's gBPF speaks "
				"%u: start the program with the gBPF that gbpfd belongs to, or %s",
				PROTO_VERSION, got.m.head.version,
				s->peer.uid == 0 || s->peer.uid == s->d->uid
					? "restart gbpfd (gbpf shutdown)"
					: "ask the administrator to restart gbpfd, or set "
					  "GBPF_RUNTIME_DIR to a directory of your own");
		} else {
			s->d->counters.garbage++;
			daemon_session_drop(s, "it sent an invalid message");
		}
	}
}

static void handle_io(struct daemon_session *s, uint32_t revents)
{
	if (s->dying) {
		return;
	}
	if (revents & EPOLLOUT) {
		int r = daemon_outbox_flush(&s->conn.out, s->conn.sock);

		if (r < 0) {
			daemon_session_end(s, DAEMON_END_CLOSED);
		} else if (r == 0) {
			sd_event_source_set_io_events(s->conn.io, EPOLLIN);
			arm_timer(s, s->state == DAEMON_SESSION_READY	       ? STALL_USEC
				     : s->hello.early && !s->hello.has_devices ? DRIVER_USEC
									       : HELLO_USEC);
		} else {
			arm_timer(s, STALL_USEC);
		}
	}
	if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		read_messages(s);
	}
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_session *s = arg;
	uint64_t begin = daemon_budget_begin();

	(void)src;
	(void)fd;
	handle_io(s, revents);
	daemon_budget_end(s->d, s->peer.uid, begin);
	return 0;
}

void daemon_session_extend_timeout(struct daemon_session *s)
{
	arm_timer(s, DRIVER_USEC);
}

int daemon_session_watch_socket(struct daemon_session *s)
{
	int err = sd_event_add_io(s->d->loop, &s->conn.io, s->conn.sock, EPOLLIN, on_io, s);

	if (err >= 0) {
		arm_timer(s, HELLO_USEC);
	}
	return err;
}
