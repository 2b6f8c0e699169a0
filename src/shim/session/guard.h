/* The guard: a thread that only sleeps. It signals this process's death to other processes, and it
 * detects gbpfd's. */
#ifndef GBPF_SHIM_SESSION_GUARD_H
#define GBPF_SHIM_SESSION_GUARD_H

#include <stdint.h>

/* From this call on the kernel sets PROTO_OWNER_DIED in *word (in a page that stays mapped) as soon
 * as this process begins to exit or executes another program. Later calls have no effect. */
void shim_guard_hold(uint32_t *word);
/* Watches the process that serves that session socket: when it dies, release is called once on the
 * guard thread. Repeated for the same process it has no effect. Called by the agent thread. */
void shim_guard_watch(int sock, void (*release)(void));
/* In a child after fork, which has no guard thread. */
void shim_guard_abandon(void);

#endif
