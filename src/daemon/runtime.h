/* The places of a running gbpfd: directories, the lock that makes it the only one, and who is told
 * that it is ready. */
#ifndef GBPF_DAEMON_RUNTIME_H
#define GBPF_DAEMON_RUNTIME_H

#include "daemon/daemon.h"

/* Makes the directories and takes the lock. 0, or -errno after saying why (also to who waits on
 * ready_fd). */
int daemon_runtime_open(struct daemon *d);
/* Removes the sockets. */
void daemon_runtime_close(struct daemon *d);
void daemon_runtime_ready(struct daemon *d);
/* Says it on standard error and to who waits; returns err. */
int daemon_runtime_fail(struct daemon *d, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
