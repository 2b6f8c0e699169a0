/* How long the boards of one user may show an open request without GPU work. The budget is half a
 * second; it is refilled by 50 ms in each second, and once it is spent only a full budget counts as
 * one again. So a user without GPU work holds others for half a second and a window, and then for
 * 7 % of the time at most. */
#ifndef GBPF_DAEMON_IDLE_IDLE_BUDGET_H
#define GBPF_DAEMON_IDLE_IDLE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define DAEMON_IDLE_MAX_NS UINT64_C(500000000)
#define DAEMON_IDLE_REFILL 20u /* ns of time for one ns of the budget */

struct daemon_idle_budget {
	uint64_t left_ns, at_ns; /* left at that time */
	bool spent;
};

void daemon_idle_budget_init(struct daemon_idle_budget *b, uint64_t now);
/* Takes ns of it. Returns true if that leaves it spent. */
bool daemon_idle_budget_take(struct daemon_idle_budget *b, uint64_t ns, uint64_t now);
/* Returns true once nothing has to be remembered of it. */
bool daemon_idle_budget_is_full(const struct daemon_idle_budget *b);

#endif
