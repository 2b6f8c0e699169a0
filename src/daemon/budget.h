/* Processor time that users other than root and gbpfd's own may use in gbpfd's loop, over both
 * sockets. A handler is enclosed by daemon_budget_begin() and daemon_budget_end(). A user over its
 * budget is paused: its connections and sessions are not polled until the budget is refilled.
 * Connections that arrive faster than the budget for accepting allows wait in the listeners'
 * queues; operators have a socket of their own (admin.sock), in whose queue no other user can
 * stand. */
#ifndef GBPF_DAEMON_BUDGET_H
#define GBPF_DAEMON_BUDGET_H

#include "daemon/daemon.h"

/* Returns the processor time of the loop, for daemon_budget_end(). */
uint64_t daemon_budget_begin(void);
/* Charges the processor time since begin to a user. */
void daemon_budget_end(struct daemon *d, uid_t uid, uint64_t begin);
/* The same for accepting a connection of that user. */
void daemon_budget_accepted(struct daemon *d, uid_t uid, uint64_t begin);
/* Returns true if sources of this user must not be polled now. */
bool daemon_budget_is_paused(struct daemon *d, uid_t uid);
void daemon_budget_close(struct daemon *d);

#endif
