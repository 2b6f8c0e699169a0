/* map.watch: what changes in a map, as it happens, until the caller leaves or the version ends. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_H

#include "daemon/maps/policy_maps.h"

void method_map_watch(struct call *c);

/* The memory of one tenant, or of a whole version, is about to go: what is left in it is said. */
void maps_watch_tenant_gone(struct daemon *d, const struct live *l, uint32_t tenant);
void maps_watch_version_gone(struct daemon *d, const struct live *l, const char *why);
void maps_watch_conn_gone(struct daemon *d, uint64_t conn);
void maps_watch_close(struct daemon *d);

#endif
