/* What the kernel says of a tenant's process: its nice value, its control group's weight, and what
 * it runs. */
#ifndef GBPF_DAEMON_SESSION_PEER_H
#define GBPF_DAEMON_SESSION_PEER_H

#include <stdint.h>
#include <sys/types.h>

struct daemon_peer_share {
	int32_t nice;	     /* -20 to 19; 0 where it cannot be read */
	uint32_t cpu_weight; /* 1 to 10000; 100 where it cannot be read */
	uint64_t command;    /* FNV-1a of the name of its program, a 0 byte and, unless that is an
				option, the name of its first argument; 0 where it cannot be read */
};

/* pidfd (-1: none) proves that pid was that process's all the while: otherwise, and where /proc or
 * the control groups cannot be read, the defaults. */
struct daemon_peer_share daemon_peer_share_of(pid_t pid, int pidfd);

/* A number of /proc/<pid>/stat by its field (proc(5)), behind the second. 0 or -1. */
int daemon_peer_stat_field(pid_t pid, int field, long long *ret);

#endif
