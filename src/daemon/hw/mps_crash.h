/* Tenants of the shared lane that a neighbour's end may have harmed: they are told, and what policy
 * has allowed about starting them again is kept for when they end. */
#ifndef GBPF_DAEMON_HW_MPS_CRASH_H
#define GBPF_DAEMON_HW_MPS_CRASH_H

#include "daemon/session/tenant_session.h"

#define DAEMON_RESTARTS_MAX 100u /* that a policy may allow */

/* What somebody in the shared lane has done to s: for the history, ps, and its standard error.
 * Only the first counts. */
void daemon_mps_crash_mark(struct daemon_session *s, const char *why);
/* The same to all that are in the lane now. */
void daemon_mps_crash_mark_all(struct daemon *d, const char *why);

/* A process of the shared lane has ended; kept for the last 64. why: empty, or what had hurt it. */
void daemon_mps_exit_add(struct daemon *d, int pid, uid_t uid, uint32_t restart, const char *why);
/* Of the process that was started age_ns ago, or later. NULL: it has not ended yet, or long ago. */
const struct daemon_mps_exit *daemon_mps_exit_find(const struct daemon *d, int pid,
						   uint64_t age_ns);

#endif
