/* The time for which an effect on others counts that a process cannot justify. */
#include "base/time_budget.h"

#include "base/compiler.h"

void time_budget_init(struct time_budget *b, uint64_t now)
{
	*b = (struct time_budget){ .left_ns = TIME_BUDGET_MAX_NS, .at_ns = now };
}

bool time_budget_is_full(const struct time_budget *b)
{
	return b->left_ns == TIME_BUDGET_MAX_NS;
}

bool time_budget_take(struct time_budget *b, uint64_t ns, uint64_t now)
{
	uint64_t gone = now > b->at_ns ? now - b->at_ns : 0;

	b->at_ns = now;
	b->left_ns = MIN(b->left_ns + gone / TIME_BUDGET_REFILL, TIME_BUDGET_MAX_NS);
	b->left_ns -= MIN(ns, b->left_ns);
	if (b->left_ns == 0) {
		b->spent = true;
	} else if (time_budget_is_full(b)) {
		b->spent = false;
	}
	return b->spent;
}
