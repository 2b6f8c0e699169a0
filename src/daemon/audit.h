/* The audit log: who changed what. Only operators (root, gbpfd's user, group gbpf) and gbpfd itself
 * write to it, so that no tenant can fill it; it has files of its own, audit.jsonl and
 * audit.jsonl.1, and a line in gbpfd's log, with fields for journald. */
#ifndef GBPF_DAEMON_AUDIT_H
#define GBPF_DAEMON_AUDIT_H

#include "base/fd.h"
#include "daemon/daemon.h"

/* Records an action of a peer; NULL: of gbpfd itself. hash: of the policy's object, 0: none. */
void daemon_audit(struct daemon *d, const struct peer *who, const char *action, uint64_t hash,
		  const char *fmt, ...) PRINTF_LIKE(5, 6);

#endif
