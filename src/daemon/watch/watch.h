/* Watches: `gbpf policy swap NEW --watch 60s --rollback-if 'p99>6ms'`. A watch belongs to the
 * version that it was started with. Ten times a second it evaluates its condition over what the
 * statistics pages have counted since the swap, and rolls back to the previous version when it
 * holds. state.json has the running watches, so that the next gbpfd continues them. */
#ifndef GBPF_DAEMON_WATCH_WATCH_H
#define GBPF_DAEMON_WATCH_WATCH_H

#include <jansson.h>

#include "daemon/policy/policy_store.h"
#include "daemon/session/tenant_session.h"
#include "daemon/watch/watch_expr.h"

#define DAEMON_WATCH_KEPT 16u /* ended watches that can still be reported */

struct daemon_watch_request {
	struct daemon_stored_watch is; /* first: versions_changed() gets it back */
	struct daemon_watch_expr expr;
};

/* Parses a request for a watch, with this time and condition; caller frees. -EINVAL, -ENOMEM with
 * r. */
int daemon_watch_request_new(struct daemon_watch_request **ret, uint64_t ns, const char *text,
			     struct report *r);

/* watch_resume.c */
/* Continues the watches of state.json, after the policies of state.json were activated. Reports
 * each that cannot be continued. */
void daemon_watches_resume(struct daemon *d);

extern const struct daemon_feature daemon_watches_feature;
void daemon_watches_close(struct daemon *d);

/* Ends the running watch of a version (0: the newest one) and keeps the version. Returns the state
 * of the watch, or NULL if none runs. state.json is the caller's to write. */
json_t *daemon_watch_cancel(struct daemon *d, uint64_t version, const struct peer *who);

/* Returns the state or result of a version's watch (0: the newest one that runs, or else the
 * newest), NULL if there is none. */
json_t *daemon_watch_json(struct daemon *d, uint64_t version);

#endif
