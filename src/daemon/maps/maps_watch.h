/* map.watch: reports changes of a map as they happen, until the caller disconnects or the version
 * ends. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_H

#include "daemon/feature.h"
#include "daemon/maps/policy_maps.h"

extern const struct daemon_feature daemon_maps_feature;

void daemon_method_map_watch(struct daemon_call *c);

/* The memory of one tenant, or of a whole version, is about to be unmapped: report the records left
 * in it. */
void daemon_maps_watch_tenant_ended(struct daemon *d, const struct daemon_version *l,
				    uint32_t tenant);
void daemon_maps_watch_version_ended(struct daemon *d, const struct daemon_version *l,
				     const char *why);
void daemon_maps_watch_close(struct daemon *d);

#endif
