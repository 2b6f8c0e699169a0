/* Watches gbpfd's process for a shim that gbpfd may have switched off. */
#ifndef GBPF_SHIM_GUARD_H
#define GBPF_SHIM_GUARD_H

/* Whoever serves that session socket: when he dies release is called, once, on a thread of the
 * guard's own. Said again of the same one it does nothing. The agent. */
void guard_watch(int sock, void (*release)(void));
/* Child of a fork: there is no such thread. */
void guard_abandon(void);

#endif
