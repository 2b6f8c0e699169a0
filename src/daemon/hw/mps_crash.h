/* Tenants that the crash of another client of the shared lane may have broken. They are notified,
 * and the number of restarts that the policy allows is stored for the time after their exit. */
#ifndef GBPF_DAEMON_HW_MPS_CRASH_H
#define GBPF_DAEMON_HW_MPS_CRASH_H

#include "daemon/session/tenant_session.h"

#define DAEMON_RESTARTS_MAX 100u /* the most that a policy may allow */

/* Marks s as possibly broken, for the history, `gbpf ps` and its standard error. Only the first
 * reason is stored. */
void daemon_mps_crash_mark(struct daemon_session *s, const char *why);
/* Marks all tenants that are in the lane now. */
void daemon_mps_crash_mark_all(struct daemon *d, const char *why);

/* Records the exit of a process of the shared lane; the last DAEMON_MPS_EXITS are stored. why: what
 * had broken it, or empty. */
void daemon_mps_exit_add(struct daemon *d, int pid, uid_t uid, uint32_t restart, const char *why);
/* Returns the exit of a process that was started at most age_ns ago, NULL if it has not exited or
 * is no longer stored. */
const struct daemon_mps_exit *daemon_mps_exit_find(const struct daemon *d, int pid,
						   uint64_t age_ns);

#endif
