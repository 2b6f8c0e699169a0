/* Messages that a session's socket did not accept at once. Bounded: the session of a process that
 * does not read is ended. */
#ifndef GBPF_DAEMON_SESSION_OUTBOX_H
#define GBPF_DAEMON_SESSION_OUTBOX_H

#include "proto/wire.h"

#define DAEMON_OUTBOX_MESSAGES 256u
#define DAEMON_OUTBOX_FDS 4u

struct daemon_outbox_entry;

struct daemon_outbox {
	struct daemon_outbox_entry *first, *last; /* owned */
	unsigned n;
};

/* Sends a message or queues it. Descriptors are borrowed (those of queued messages are duplicated).
 * PROTO_IPC_OPENED is not queued: its descriptors are another process's, which could make their
 * closing block, or fill gbpfd with them. One that waits for its answer has room for it. 0: sent;
 * 1: queued; -ENOBUFS: the queue is full, or must not be used; -errno: the socket is broken. */
int daemon_outbox_send(struct daemon_outbox *o, int sock, union proto_message *m,
		       enum proto_type type, const int *fds, unsigned nfds);
/* Sends queued messages. 0: the queue is empty; 1: some are left; -errno. */
int daemon_outbox_flush(struct daemon_outbox *o, int sock);
void daemon_outbox_finish(struct daemon_outbox *o);

#endif
