/* The lane in which the driver starts is chosen by environment variables, which it reads in cuInit.
 */
#ifndef GBPF_SHIM_SESSION_LANE_ENV_H
#define GBPF_SHIM_SESSION_LANE_ENV_H

#include "proto/wire.h"

/* Before the real cuInit. */
void shim_lane_enter(const struct proto_welcome *w);
/* The process lane, as without gbpfd: what a parent in the shared lane left is taken away. */
void shim_lane_leave(void);

#endif
