/* A budget of time for an effect on others that a process cannot justify: an open request without
 * work on the GPU, a lease without an open request. The budget is half a second; it is refilled by
 * 50 ms in each second, and once it is spent only a full budget counts as one again. So the effect
 * lasts for half a second at first, and then for about 5 % of the time. Zero-initialised memory is
 * no budget; not locked. */
#ifndef GBPF_BASE_TIME_BUDGET_H
#define GBPF_BASE_TIME_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define TIME_BUDGET_MAX_NS UINT64_C(500000000)
#define TIME_BUDGET_REFILL 20u /* ns of time for one ns of the budget */

struct time_budget {
	uint64_t left_ns, at_ns; /* left at that time */
	bool spent;
};

void time_budget_init(struct time_budget *b, uint64_t now);
/* Takes ns of it. Returns true if that leaves it spent. */
bool time_budget_take(struct time_budget *b, uint64_t ns, uint64_t now);
/* Returns true once nothing has to be remembered of it. */
bool time_budget_is_full(const struct time_budget *b);

#endif
