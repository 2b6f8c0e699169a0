/* The MPS control daemon of the shared lane on NVIDIA GPUs: one for all GPUs of gbpfd's user,
 * started with the first tenant that needs it. */
#ifndef GBPF_DAEMON_HW_MPS_H
#define GBPF_DAEMON_HW_MPS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/daemon.h"

/* Finds the program, and the control daemon that a gbpfd before this one left for its tenants.
 * Starts nothing. 0 or -ENOMEM. */
int daemon_mps_open(struct daemon *d);
/* Stops it, unless tenants are left in the shared lane: they outlive gbpfd, and the next one finds
 * it. At most some seconds. */
void daemon_mps_close(struct daemon *d, bool tenants_left);

/* Why the shared lane cannot be had now, static or owned by d; NULL: it can. */
const char *daemon_mps_unavailable_reason(const struct daemon *d);
/* A tenant is about to enter. 0: it runs; -EINPROGRESS: lane_ready is called when it does, or does
 * not; -ENOENT: see mps_why. */
int daemon_mps_start(struct daemon *d);
int daemon_mps_pid(const struct daemon *d); /* 0: it does not run */

#endif
