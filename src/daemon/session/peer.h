/* Properties of a tenant's process as the kernel reports them: nice value, CPU weight of its
 * control group, and the program it runs. */
#ifndef GBPF_DAEMON_SESSION_PEER_H
#define GBPF_DAEMON_SESSION_PEER_H

#include <stdint.h>
#include <sys/types.h>

struct daemon_peer_share {
	int32_t nice;	     /* -20 to 19; 0 if unreadable */
	uint32_t cpu_weight; /* 1 to 10000; 100 if unreadable */
	uint64_t command; /* FNV-1a of the program's name, a 0 byte and, unless it is an option, the
			     name of its first argument; 0 if unreadable */
};

/* Returns the properties of pid, or the defaults if they are unreadable or if pidfd (-1: none)
 * shows that the process has died, so that pid may be another's. */
struct daemon_peer_share daemon_peer_share_of(pid_t pid, int pidfd);

#endif
