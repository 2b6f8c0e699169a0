/* Lines of bpf_printk: of gbpfd's own hooks, and of programs in tenants' processes. They are shown
 * among the events, but have a small ring of their own in memory, so that they displace no event
 * from the history. When gbpfd exits they go to its log. Only administrators see all; other callers
 * see those of their own processes. */
#ifndef GBPF_DAEMON_POLICY_POLICY_PRINTS_H
#define GBPF_DAEMON_POLICY_POLICY_PRINTS_H

#include "daemon/policy/version.h"

/* Takes the lines from tenants' processes, if the limit for all tenants allows it. */
extern const struct daemon_feature daemon_prints_feature;

/* Takes the lines that a hook of this version has printed in gbpfd. */
void daemon_prints_take(struct daemon_version *l, unsigned hook);

/* Takes the lines that still wait when the version ends, regardless of the limit per second. */
void daemon_prints_flush(struct daemon_version *l);

/* Iterates over the lines that a caller may see, from *cursor, which begins with 0. Returns the
 * next one that is not newer than wall_ns, with the number of the last event before it, as an
 * event; NULL: there is none. */
json_t *daemon_prints_next(struct daemon *d, uint64_t *cursor, uint64_t since, uint64_t wall_ns,
			   bool all, uid_t uid);
void daemon_prints_close(struct daemon *d);

#endif
