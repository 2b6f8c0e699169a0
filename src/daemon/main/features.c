/* The features of gbpfd. */
#include "daemon/feature.h"

#include <stddef.h>

#include "daemon/control_socket.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/probe/probes.h"
#include "daemon/session/tenant_session.h"

const struct daemon_feature *const daemon_features[] = {
	&daemon_control_feature,
	&daemon_sessions_feature,
	&daemon_maps_feature,
	&daemon_probes_feature,
	NULL,
};
