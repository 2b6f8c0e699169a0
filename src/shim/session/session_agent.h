/* The agent: the thread that the shim adds to a process, after cuInit and only if there is a
 * session. The guard (shim/session/guard.h) is a separate thread. */
#ifndef GBPF_SHIM_SESSION_SESSION_AGENT_H
#define GBPF_SHIM_SESSION_SESSION_AGENT_H

#include "shim/session/session.h"

/* What the agent also does at each of its rounds; NULL: nothing. Set before it is started. */
extern void (*shim_agent_task)(void);

bool shim_agent_is_current(void);
/* Starts the agent, which owns s from then on. Returns 0 or -errno. */
int shim_agent_start(struct shim_session *s);
/* At process exit: makes the agent stop calling the driver. Waits for it, for at most 100 ms. */
void shim_agent_stop(struct shim_session *s);

#endif
