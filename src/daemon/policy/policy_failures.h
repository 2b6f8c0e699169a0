/* What went wrong while a version ran, and what it noted: counted by version over gbpfd's own
 * hooks, the processes that are there and those that have ended. */
#ifndef GBPF_DAEMON_POLICY_POLICY_FAILURES_H
#define GBPF_DAEMON_POLICY_POLICY_FAILURES_H

#include <jansson.h>

#include "daemon/policy/version.h"

/* Everything so far. */
void daemon_failures_sum(struct daemon *d, const struct daemon_version *l,
			 struct daemon_tally *ret);
/* [{hook, helper_errors, verdict_errors, stale_epochs, slow}] of hooks in which anything failed. */
json_t *daemon_failures_json(const struct daemon_tally *t);
uint64_t daemon_failures_total(const struct daemon_tally *t, enum proto_failure what);

/* Its page goes with it: what it counted stays. */
void daemon_failures_add_session(struct daemon_session *s);

/* One of gbpfd's own hooks failed. */
void daemon_failures_count(struct daemon_version *l, unsigned hook, enum proto_failure what);

/* From now on, while there are sessions, the history is told of failures: at once, then at most
 * every ten seconds for a version. */
void daemon_failures_schedule(struct daemon *d);
void daemon_failures_close(struct daemon *d);

#endif
