/* The queue in front of a session's socket. Other tenants must not be able to fill it: a queued
 * message that adds a board or flag page and the one that removes it cancel each other. */
#include "daemon/session/outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/fd.h"

struct daemon_outbox_entry {
	struct daemon_outbox_entry *next;
	union proto_message m;
	enum proto_type type;
	int fds[DAEMON_OUTBOX_FDS]; /* owned */
	unsigned nfds;
};

static void entry_free(struct daemon_outbox_entry *e)
{
	for (unsigned i = 0; i < e->nfds; i++) {
		fd_close(e->fds[i]);
	}
	free(e);
}

static void take_out(struct daemon_outbox *o, struct daemon_outbox_entry *e,
		     struct daemon_outbox_entry *before)
{
	*(before ? &before->next : &o->first) = e->next;
	if (o->last == e) {
		o->last = before;
	}
	o->n--;
	entry_free(e);
}

static bool is_coming(const struct daemon_outbox_entry *e, const union proto_message *going,
		      enum proto_type type)
{
	if (type == PROTO_BOARD_REMOVE || type == PROTO_PEER_REMOVE) {
		return e->type == (type == PROTO_PEER_REMOVE ? PROTO_PEER_ADD : PROTO_BOARD_ADD) &&
		       e->m.board.slot == going->board.slot;
	}
	return type == PROTO_FLAG_REMOVE && e->type == PROTO_FLAG_ADD &&
	       e->m.flag.number == going->flag.number;
}

/* Returns true if m removes a board or flag page whose addition is still queued, after removing
 * that message. */
static bool cancels(struct daemon_outbox *o, const union proto_message *m, enum proto_type type)
{
	struct daemon_outbox_entry *before = NULL;

	for (struct daemon_outbox_entry *e = o->first; e; e = e->next) {
		if (is_coming(e, m, type)) {
			take_out(o, e, before);
			return true;
		}
		before = e;
	}
	return false;
}

static int keep(struct daemon_outbox *o, const union proto_message *m, enum proto_type type,
		const int *fds, unsigned nfds)
{
	struct daemon_outbox_entry *e;

	if (cancels(o, m, type)) {
		return 0;
	}
	if (o->n >= DAEMON_OUTBOX_MESSAGES || nfds > DAEMON_OUTBOX_FDS ||
	    type == PROTO_IPC_OPENED) {
		return -ENOBUFS;
	}
	e = calloc(1, sizeof(*e));
	if (!e) {
		return -ENOMEM;
	}
	e->m = *m;
	e->type = type;
	for (; e->nfds < nfds; e->nfds++) {
		int fd = fcntl(fds[e->nfds], F_DUPFD_CLOEXEC, 0);

		if (fd < 0) {
			int err = -errno;

			entry_free(e);
			return err;
		}
		e->fds[e->nfds] = fd;
	}
	if (o->last) {
		o->last->next = e;
	} else {
		o->first = e;
	}
	o->last = e;
	o->n++;
	return 1;
}

int daemon_outbox_send(struct daemon_outbox *o, int sock, union proto_message *m,
		       enum proto_type type, const int *fds, unsigned nfds)
{
	int err;

	if (o->first) {
		return keep(o, m, type, fds, nfds);
	}
	err = proto_send(sock, m, type, fds, nfds);
	return err == -EAGAIN ? keep(o, m, type, fds, nfds) : err;
}

int daemon_outbox_flush(struct daemon_outbox *o, int sock)
{
	while (o->first) {
		struct daemon_outbox_entry *e = o->first;
		int err = proto_send(sock, &e->m, e->type, e->fds, e->nfds);

		if (err) {
			return err == -EAGAIN ? 1 : err;
		}
		o->first = e->next;
		if (!o->first) {
			o->last = NULL;
		}
		o->n--;
		entry_free(e);
	}
	return 0;
}

void daemon_outbox_finish(struct daemon_outbox *o)
{
	while (o->first) {
		struct daemon_outbox_entry *e = o->first;

		o->first = e->next;
		entry_free(e);
	}
	o->last = NULL;
	o->n = 0;
}
