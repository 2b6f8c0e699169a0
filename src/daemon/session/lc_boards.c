/* Boards of latency tenants: each has one slot, the same in all sessions, and is sent to every
 * other session. At most PROTO_MAX_LC are published; further latency tenants run without and get a
 * slot when one becomes free. */
#include "daemon/session/tenant_session.h"

#include "base/point.h"
#include "daemon/consts.h"

#define MAX_FOREIGN 16u /* boards of one user that is neither root nor the daemon's */

static void send_board(struct daemon_session *to, unsigned slot, enum proto_type type,
		       const struct daemon_session *owner)
{
	union proto_message m = { 0 };

	m.board.slot = slot;
	m.board.tenant = (uint32_t)owner->tenant;
	if (type == PROTO_BOARD_ADD) {
		to->lc.sent |= UINT64_C(1) << slot;
		daemon_session_send(to, &m, type, &owner->board.fd, 1);
	} else {
		to->lc.sent &= ~(UINT64_C(1) << slot);
		daemon_session_send(to, &m, type, NULL, 0);
	}
}

/* Returns true if this user has its share of the slots. The limit does not apply to root and
 * gbpfd's own user. */
static bool has_enough(const struct daemon_session *s)
{
	const struct daemon *d = s->d;
	unsigned n = 0;

	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		n += d->sessions.lc[i] && d->sessions.lc[i]->peer.uid == s->peer.uid;
	}
	return s->peer.uid != 0 && s->peer.uid != d->uid && n >= MAX_FOREIGN;
}

void daemon_lc_publish(struct daemon_session *s)
{
	struct daemon *d = s->d;
	unsigned slot = 0;

	if (has_enough(s)) {
		daemon_session_event(s, "limit",
				     "%s exceeds the %u latency tenants of its user: its requests "
				     "hold no other tenant until one of them exits",
				     s->name, MAX_FOREIGN);
		return;
	}
	while (slot < PROTO_MAX_LC && d->sessions.lc[slot]) {
		slot++;
	}
	if (slot == PROTO_MAX_LC) {
		daemon_session_event(s, "limit",
				     "%s exceeds the %u latency tenants: its requests hold no "
				     "other tenant until one of them exits",
				     s->name, PROTO_MAX_LC);
		return;
	}
	d->sessions.lc[slot] = s;
	s->lc.slot = (int)slot;
	daemon_session_each(d, t)
	{
		if (t != s && t->state == DAEMON_SESSION_READY) {
			send_board(t, slot, PROTO_BOARD_ADD, s);
		}
	}
	daemon_features_call(board_published, s);
}

static void publish_waiting(struct daemon *d)
{
	daemon_session_each(d, t)
	{
		if (t->state == DAEMON_SESSION_READY && !t->dying && t->lc.slot < 0 &&
		    t->class_id == GBPF_CLASS_LATENCY && !has_enough(t)) {
			daemon_lc_publish(t);
			return;
		}
	}
}

void daemon_lc_withdraw(struct daemon_session *s)
{
	struct daemon *d = s->d;
	unsigned slot = (unsigned)s->lc.slot;

	if (s->lc.slot < 0) {
		return;
	}
	d->sessions.lc[slot] = NULL;
	s->lc.slot = -1;
	daemon_features_call(board_withdrawn, s);
	daemon_session_each(d, t)
	{
		if (t->lc.sent & UINT64_C(1) << slot) {
			send_board(t, slot, PROTO_BOARD_REMOVE, s);
		}
	}
	publish_waiting(d);
}

bool daemon_lc_any(const struct daemon *d)
{
	bool any = false;

	for (unsigned slot = 0; slot < PROTO_MAX_LC; slot++) {
		any |= d->sessions.lc[slot] != NULL;
	}
	return any;
}

void daemon_lc_send_boards(struct daemon_session *s)
{
	for (unsigned slot = 0; slot < PROTO_MAX_LC; slot++) {
		if (s->d->sessions.lc[slot] && s->d->sessions.lc[slot] != s) {
			send_board(s, slot, PROTO_BOARD_ADD, s->d->sessions.lc[slot]);
		}
	}
}

static void session_ready(struct daemon_session *s)
{
	if (s->class_id == GBPF_CLASS_LATENCY) {
		daemon_lc_publish(s);
		POINT("daemon.session.board_published");
	}
	daemon_lc_send_boards(s);
}

const struct daemon_feature daemon_lc_feature = {
	.session_ready = session_ready,
	.session_ended = daemon_lc_withdraw,
};
