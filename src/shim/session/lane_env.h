/* The sharing mode in which the driver starts. The driver reads it from environment variables in
 * cuInit. */
#ifndef GBPF_SHIM_SESSION_LANE_ENV_H
#define GBPF_SHIM_SESSION_LANE_ENV_H

#include "proto/wire.h"

/* Sets the variables as gbpfd's welcome demands. Call before the real cuInit. */
void shim_lane_enter(const struct proto_welcome *w);
/* Selects the process mode, as without gbpfd: removes variables inherited from a parent in the
 * shared mode. */
void shim_lane_leave(void);

#endif
