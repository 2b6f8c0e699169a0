/* Failures of a version's hooks, and its notes: counted by version over gbpfd's own hooks, the
 * running processes and those that have exited. */
#ifndef GBPF_DAEMON_POLICY_POLICY_FAILURES_H
#define GBPF_DAEMON_POLICY_POLICY_FAILURES_H

#include <jansson.h>

#include "daemon/policy/version.h"

/* Sums up all counters of a version, of which l is an instance. */
void daemon_failures_sum(struct daemon *d, const struct daemon_version *l,
			 struct daemon_tally *ret);
/* Returns [{hook, helper_errors, verdict_errors, stale_epochs, slow}] of the hooks with failures.
 */
json_t *daemon_failures_json(const struct daemon_tally *t);
uint64_t daemon_failures_total(const struct daemon_tally *t, enum proto_failure what);

/* Adds the counters of a session's page to its version before the page is unmapped. */
void daemon_failures_add_session(struct daemon_session *s);

/* Counts a failure of one of gbpfd's own hooks. */
void daemon_failures_count(struct daemon_version *l, unsigned hook, enum proto_failure what);

/* Makes failures be reported as events while there are sessions: the first at once, then at most
 * every ten seconds for each version. */
void daemon_failures_schedule(struct daemon *d);
void daemon_failures_close(struct daemon *d);

#endif
