/* map.watch: reports changes of a map as they happen, until the caller disconnects or the version
 * ends. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_H

#include "daemon/feature.h"
#include "daemon/maps/policy_maps.h"

extern const struct daemon_feature daemon_maps_feature;

void daemon_method_map_watch(struct daemon_call *c);

#endif
