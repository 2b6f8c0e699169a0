/* The runtime environment of gbpfd: its directories, the lock that excludes a second one, and the
 * notification of readiness. */
#ifndef GBPF_DAEMON_RUNTIME_H
#define GBPF_DAEMON_RUNTIME_H

#include "base/runtime_state.h"
#include "daemon/daemon.h"

/* States the phase for clients, once daemon_runtime_open() has stated that gbpfd starts. */
void daemon_runtime_state(const struct daemon *d, enum runtime_phase phase);

/* Creates the directories and takes the lock. 0, or -errno after reporting it as
 * daemon_runtime_fail() does. */
int daemon_runtime_open(struct daemon *d);
/* Removes the sockets. */
void daemon_runtime_close(struct daemon *d);
void daemon_runtime_ready(struct daemon *d);
/* Reports an error on standard error and to ready_fd; returns err. */
int daemon_runtime_fail(struct daemon *d, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
