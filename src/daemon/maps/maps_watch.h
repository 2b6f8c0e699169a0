/* map.watch: what changes in a map, as it happens, until the caller leaves or the version ends. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_H

#include "daemon/maps/policy_maps.h"

void daemon_method_map_watch(struct daemon_call *c);

/* The memory of one tenant, or of a whole version, is about to go: what is left in it is said. */
void daemon_maps_watch_tenant_ended(struct daemon *d, const struct daemon_version *l,
				    uint32_t tenant);
void daemon_maps_watch_version_ended(struct daemon *d, const struct daemon_version *l,
				     const char *why);
void daemon_maps_watch_conn_closed(struct daemon *d, uint64_t conn);
void daemon_maps_watch_close(struct daemon *d);

#endif
