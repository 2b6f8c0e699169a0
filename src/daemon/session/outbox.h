/* Messages that a session's socket did not take at once. Bounded: a process that does not read is
 * given up. */
#ifndef GBPF_DAEMON_SESSION_OUTBOX_H
#define GBPF_DAEMON_SESSION_OUTBOX_H

#include "proto/wire.h"

#define OUTBOX_MESSAGES 256u
#define OUTBOX_FDS 3u

struct outbox_entry;

struct outbox {
	struct outbox_entry *first, *last; /* owned */
	unsigned n;
};

/* Sends or keeps. Descriptors are borrowed (kept ones are duplicated). 0: sent; 1: kept; -ENOBUFS:
 * too many are kept; -errno: the socket is broken. */
int outbox_send(struct outbox *o, int sock, union wire_message *m, enum wire_type type,
		const int *fds, unsigned nfds);
/* Sends what it can. 0: empty; 1: some are left; -errno. */
int outbox_flush(struct outbox *o, int sock);
void outbox_finish(struct outbox *o);

#endif
