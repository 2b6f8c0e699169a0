/* The features of gbpfd. */
#include "daemon/feature.h"

#include <stddef.h>

#include "daemon/control_socket.h"
#include "daemon/exits/exit_record.h"
#include "daemon/hello/hello.h"
#include "daemon/hw/hw_control.h"
#include "daemon/idle/idle_boards.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_prints.h"
#include "daemon/policy/preempt.h"
#include "daemon/policy/vgpu_maps.h"
#include "daemon/probe/probes.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu.h"
#include "daemon/watch/watch.h"

/* The order is that of these hooks:
 * session_ready sends to a new session the boards, the policies, the tools with the end of their
 * list, for which its program waits, and what is to be said about its vGPU.
 * session_ended takes back the flag pages while the board has its slot, then the board and the
 * group's slot, what is in force on the hardware, the line of the vGPU, and at last the memory in
 * policies and tools. Exit records need the vGPU's peak and take the pidfd.
 * connection_closed and sessions_reaped: those of policies and maps precede those of tools. */
const struct daemon_feature *const daemon_features[] = {
	&daemon_control_feature,     &daemon_sessions_feature,
	&daemon_notes_feature,	     &daemon_hello_feature,
	&daemon_maps_feature,	     &daemon_watches_feature,
	&daemon_flags_feature,	     &daemon_idle_feature,
	&daemon_lc_feature,	     &daemon_groups_feature,
	&daemon_hw_feature,	     &daemon_preempt_feature,
	&daemon_vgpus_feature,	     &daemon_policies_feature,
	&daemon_prints_feature,	     &daemon_probes_feature,
	&daemon_vgpu_shares_feature, &daemon_ticker_feature,
	&daemon_exits_feature,	     &daemon_reclaim_feature,
	&daemon_ipc_feature,	     NULL,
};
