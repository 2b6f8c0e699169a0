/* Writes to the history how a tenant's process ended, when that is known. */
#ifndef GBPF_DAEMON_EXITS_EXIT_RECORD_H
#define GBPF_DAEMON_EXITS_EXIT_RECORD_H

#include "daemon/daemon.h"
#include "daemon/feature.h"

extern const struct daemon_feature daemon_exits_feature;
/* Returns whether a process has exited whose record is not written yet. */
bool daemon_exit_record_is_pending(const struct daemon *d, int pid);
/* Writes those that are pending, as far as the exit status is known. */
void daemon_exit_records_close(struct daemon *d);

#endif
