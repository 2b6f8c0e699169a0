/* A thread that only sleeps: it says to others that this process dies, and it sees gbpfd die. */
#ifndef GBPF_SHIM_SESSION_GUARD_H
#define GBPF_SHIM_SESSION_GUARD_H

#include <stdint.h>

/* From now on the kernel sets SCHED_OWNER_DIED in that word (of a page that stays mapped) as soon
 * as this process begins to end, or runs another program. Once. */
void shim_guard_hold(uint32_t *word);
/* Whoever serves that session socket: when he dies release is called, once, on the guard's thread.
 * Said again of the same one it does nothing. The agent. */
void shim_guard_watch(int sock, void (*release)(void));
/* Child of a fork: there is no such thread. */
void shim_guard_abandon(void);

#endif
