/* The audit log: who changed what. Operators (root, gbpfd's user, group gbpf) and gbpfd itself
 * write to it; what other users do to their own tenants is recorded at a bounded rate, so that no
 * tenant can fill it. It has files of its own, audit.jsonl and audit.jsonl.1, and a line in gbpfd's
 * log, with fields for journald. */
#ifndef GBPF_DAEMON_AUDIT_H
#define GBPF_DAEMON_AUDIT_H

#include "base/fd.h"
#include "daemon/daemon.h"

/* Records an action of a peer; NULL: of gbpfd itself. hash: of the policy's object, 0: none. */
void daemon_audit(struct daemon *d, const struct peer *who, const char *action, uint64_t hash,
		  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Records an action of a user that is no operator: one in a minute for each user, with the number
 * of those since the last, and DAEMON_AUDIT_USERS_PER_HOUR for all. */
#define DAEMON_AUDIT_USERS_PER_HOUR 100u
void daemon_audit_user(struct daemon *d, const struct peer *who, const char *action,
		       const char *fmt, ...) PRINTF_LIKE(4, 5);

#endif
