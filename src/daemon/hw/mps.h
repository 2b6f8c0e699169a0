/* The MPS control daemon of the shared lane on NVIDIA GPUs: one for all GPUs of gbpfd's user,
 * started with the first tenant that needs it. */
#ifndef GBPF_DAEMON_HW_MPS_H
#define GBPF_DAEMON_HW_MPS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/daemon.h"

/* Finds the program, and adopts the control daemon that an earlier gbpfd left for its tenants.
 * Starts nothing. 0 or -ENOMEM. */
int daemon_mps_open(struct daemon *d);
/* Stops it, within seconds. If tenants are left in the shared lane it stays, since they outlive
 * gbpfd, and the next gbpfd adopts it. */
void daemon_mps_close(struct daemon *d, bool tenants_left);

/* Returns why the shared lane is unavailable now (static, or owned by d), NULL if it is available.
 */
const char *daemon_mps_unavailable_reason(const struct daemon *d);
/* Starts it for a tenant. 0: it runs; -EINPROGRESS: daemon_lane_ready() is called when it runs or
 * has failed; -ENOENT: see daemon_mps_unavailable_reason(). */
int daemon_mps_start(struct daemon *d);
int daemon_mps_pid(const struct daemon *d); /* 0: not running */

#endif
