/* Boards that show an open request although their tenant does no work on the GPU. A board is
 * written by its tenant, so an open request on it proves nothing; but other tenants are held for
 * it. gbpfd samples the boards of ordinary users' latency tenants and asks the driver which
 * processes have worked meanwhile. Open time without work is taken from a budget of the user, and
 * when that is spent the tenant becomes class normal until it works. */
#ifndef GBPF_DAEMON_IDLE_IDLE_BOARDS_H
#define GBPF_DAEMON_IDLE_IDLE_BOARDS_H

#include "daemon/daemon.h"
#include "daemon/feature.h"

/* 0 or -errno. */
int daemon_idle_open(struct daemon *d);
void daemon_idle_close(struct daemon *d);
extern const struct daemon_feature daemon_idle_feature;
/* The session ends: what its board has shown since the last judgement is charged to its user. */
void daemon_idle_leave(struct daemon_session *s);

#endif
