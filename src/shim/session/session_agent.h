/* The agent: the thread that the shim adds to a process, after cuInit and only when there is a
 * session. (The guard is another, where gbpfd can switch the process off: shim/session/guard.c.) */
#ifndef GBPF_SHIM_SESSION_SESSION_AGENT_H
#define GBPF_SHIM_SESSION_SESSION_AGENT_H

#include "shim/session/session.h"

/* s stays the agent's from now on. 0 or -errno. */
int shim_agent_start(struct shim_session *s);
/* The process exits: the agent leaves the driver alone from now on. Waits for it a moment. */
void shim_agent_stop(struct shim_session *s);

#endif
