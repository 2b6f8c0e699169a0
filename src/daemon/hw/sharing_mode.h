/* Lanes, that is, sharing modes: how a tenant shares the hardware with others (time-sliced context
 * or MPS). Fixed when its driver starts. */
#ifndef GBPF_DAEMON_HW_SHARING_MODE_H
#define GBPF_DAEMON_HW_SHARING_MODE_H

#include <stddef.h>

#include "daemon/session/tenant_session.h"

#define DAEMON_LANE_ALL 3u /* bits of GBPF_LANE_PROCESS and GBPF_LANE_SHARED */

#define DAEMON_LANE_MAX_SLICE_US 1000000u

/* Sets the lane to what a hello asks for, as far as it is available, and the lanes it could take
 * (lanes: bits; 0: any). */
void daemon_lane_negotiate(struct daemon_session *s, uint32_t lane, uint32_t lanes);
/* Returns the folder of the shared lane's pipes, the same for all tenants; empty if its path is too
 * long. */
void daemon_lane_pipe_dir(const struct daemon *d, char *out, size_t cap);

/* Makes the lane ready in which the session was admitted. 0; -EINPROGRESS: the hook lane_ready
 * follows. */
int daemon_lane_prepare(struct daemon_session *s);
/* For mps.c: the shared lane is ready, or could not be started. */
void daemon_lane_ready(struct daemon *d, bool made);
/* For mps.c: the control daemon of the shared lane has exited. */
void daemon_lane_broken(struct daemon *d);
/* Returns true if the tenant is in the shared lane, or about to enter it. */
bool daemon_lane_is_shared(const struct daemon_session *s);
/* Returns the number of those tenants. */
unsigned daemon_lane_tenants(const struct daemon *d);
/* Lists the other tenants of its lane for the history: "a (pid 1), b (pid 2)"; empty: none. */
void daemon_lane_neighbours(const struct daemon_session *s, char *out, size_t cap);
/* Returns why tenants of gbpfd's user cannot have the shared lane, NULL if they can. */
const char *daemon_lane_unavailable_reason(const struct daemon *d);

#endif
