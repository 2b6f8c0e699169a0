/* What went wrong while a version ran, and what it noted: counted by version over gbpfd's own
 * hooks, the processes that are there and those that have ended. */
#ifndef GBPF_DAEMON_POLICY_POLICY_FAILURES_H
#define GBPF_DAEMON_POLICY_POLICY_FAILURES_H

#include <jansson.h>

#include "daemon/policy/version.h"

/* Everything so far. */
void failures_sum(struct daemon *d, const struct live *l, struct live_tally *ret);
/* [{hook, helper_errors, verdict_errors, stale_epochs, slow}] of hooks in which anything failed. */
json_t *failures_json(const struct live_tally *t);
uint64_t failures_total(const struct live_tally *t, enum sched_failure what);

/* Its page goes with it: what it counted stays. */
void failures_keep(struct session *s);

/* One of gbpfd's own hooks failed. */
void failures_count(struct live *l, unsigned hook, enum sched_failure what);

/* From now on, while there are sessions, the history is told of failures: at once, then at most
 * every ten seconds for a version. */
void failures_wake(struct daemon *d);
void failures_close(struct daemon *d);

#endif
