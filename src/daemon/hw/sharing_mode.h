/* Lanes: how a tenant shares the hardware with others, fixed when its driver starts. */
#ifndef GBPF_DAEMON_HW_SHARING_MODE_H
#define GBPF_DAEMON_HW_SHARING_MODE_H

#include <stddef.h>

#include "daemon/session/tenant_session.h"

#define LANE_ALL 3u /* bits of GBPF_LANE_PROCESS and GBPF_LANE_SHARED */

#define LANE_MAX_SLICE_US 1000000u

/* What a hello asks for, and what is left of what it can take (lanes: bits, 0 any). */
void daemon_lane_negotiate(struct daemon_session *s, uint32_t lane, uint32_t lanes);
/* Folder of the shared lane's pipes; the same for all tenants. */
void daemon_lane_pipe_dir(const struct daemon *d, char *out, size_t cap);

/* Makes sure that the lane in which it was admitted can be had. 0; -EINPROGRESS: it is made,
 * session_admitted is called then. */
int daemon_lane_prepare(struct daemon_session *s);
/* mps.c: the shared lane can be had now, or could not be made. */
void daemon_lane_ready(struct daemon *d, bool made);
/* mps.c: what served the tenants of the shared lane is gone. */
void daemon_lane_broken(struct daemon *d);
/* It shares the hardware context now. */
bool daemon_lane_is_shared(const struct daemon_session *s);
/* How many tenants are in the shared lane, or about to enter it. */
unsigned daemon_lane_tenants(const struct daemon *d);
/* Names of the others in its lane, for the history: "a (pid 1), b (pid 2)"; empty: none. */
void daemon_lane_neighbours(const struct daemon_session *s, char *out, size_t cap);
/* Why a tenant of gbpfd's user cannot have the shared lane; NULL: it can. */
const char *daemon_lane_unavailable_reason(const struct daemon *d);

#endif
