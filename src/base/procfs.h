/* Processes as /proc shows them. */
#ifndef GBPF_BASE_PROCFS_H
#define GBPF_BASE_PROCFS_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns true if the process exists, has not exited (a zombie has), and runs the command, by its
 * name in /proc/<pid>/comm. Sets *ret_owner, unless that is NULL, to its effective user, or to root
 * if it is not dumpable. False also if /proc is not readable. */
bool procfs_runs(long pid, const char *command, uid_t *ret_owner);

#endif
