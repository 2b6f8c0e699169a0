/* The features of gbpfd. */
#include "daemon/feature.h"

#include <stddef.h>

#include "daemon/control_socket.h"
#include "daemon/hw/hw_control.h"
#include "daemon/hw/preempt.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_prints.h"
#include "daemon/probe/probes.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu.h"

const struct daemon_feature *const daemon_features[] = {
	&daemon_control_feature,  &daemon_sessions_feature,
	&daemon_notes_feature,	  &daemon_hello_feature,
	&daemon_maps_feature,	  &daemon_flags_feature,
	&daemon_groups_feature,	  &daemon_hw_feature,
	&daemon_preempt_feature,  &daemon_vgpus_feature,
	&daemon_policies_feature, &daemon_prints_feature,
	&daemon_probes_feature,	  NULL,
};
