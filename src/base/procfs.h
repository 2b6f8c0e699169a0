/* Processes as /proc shows them. */
#ifndef GBPF_BASE_PROCFS_H
#define GBPF_BASE_PROCFS_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns true if the process exists, has not exited (a zombie has), and runs the command, by its
 * name in /proc/<pid>/comm. Sets *ret_owner, unless that is NULL, to its effective user, or to root
 * if it is not dumpable. False also if /proc is not readable. */
bool procfs_runs(long pid, const char *command, uid_t *ret_owner);

#define PROCFS_NICE 19
#define PROCFS_START 22	    /* in clock ticks since the machine started */
#define PROCFS_EXIT_CODE 52 /* a wait status, wait(2) */

/* Reads a numeric field of /proc/<pid>/stat, counted as in proc(5), from 4. Sets *ret_state, unless
 * that is NULL, to field 3. 0, or -1 if the process does not exist or has fewer fields. */
int procfs_stat_field(long pid, int field, long long *ret, char *ret_state);

#endif
