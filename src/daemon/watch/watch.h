/* Watches: `gbpf policy swap NEW --watch 60s --rollback-if 'p99>6ms'`. A watch belongs to the
 * version that it was started with; it looks ten times a second at what the statistics pages have
 * counted since the swap, and goes back to the version before when its condition holds. */
#ifndef GBPF_DAEMON_WATCH_WATCH_H
#define GBPF_DAEMON_WATCH_WATCH_H

#include <jansson.h>

#include "daemon/session/tenant_session.h"
#include "daemon/watch/watch_expr.h"

#define WATCH_MAX_NS (UINT64_C(24) * 3600 * 1000000000) /* a day */
#define WATCH_MIN_NS UINT64_C(100000000)
#define WATCH_KEPT 16u /* ended ones that can still be asked for */

struct daemon_watch_request {
	uint64_t ns;
	bool keep_maps; /* also on the way back */
	struct daemon_watch_expr expr;
	char text[WATCH_TEXT];
};

/* From what a caller asks for; caller frees. -EINVAL, -ENOMEM with r. */
int daemon_watch_request_new(struct daemon_watch_request **ret, uint64_t ns, const char *text,
			     struct report *r);

/* The version has just become active on these GPUs, where old[] was before. o is copied. */
void daemon_watch_begin(struct daemon *d, const struct daemon_watch_request *o, uint64_t version,
			uint32_t gpu_mask, const uint64_t old[PROTO_MAX_GPUS]);
/* Version words have changed: watches of what is no longer active end. */
void daemon_watch_check(struct daemon *d);
/* Before the pages of a session go: what it has counted stays counted. */
void daemon_watch_session_ended(struct daemon_session *s);
void daemon_watches_close(struct daemon *d);

/* How it stands, or ended; 0: the newest. NULL: there is none. */
json_t *daemon_watch_json(struct daemon *d, uint64_t version);

#endif
