/* The time for which boards that are open without work may count; see idle_boards.c. */
#include "daemon/idle/idle_budget.h"

#include "base/compiler.h"

void daemon_idle_budget_init(struct daemon_idle_budget *b, uint64_t now)
{
	*b = (struct daemon_idle_budget){ .left_ns = DAEMON_IDLE_MAX_NS, .at_ns = now };
}

bool daemon_idle_budget_is_full(const struct daemon_idle_budget *b)
{
	return b->left_ns == DAEMON_IDLE_MAX_NS;
}

bool daemon_idle_budget_take(struct daemon_idle_budget *b, uint64_t ns, uint64_t now)
{
	uint64_t gone = now > b->at_ns ? now - b->at_ns : 0;

	b->at_ns = now;
	b->left_ns = MIN(b->left_ns + gone / DAEMON_IDLE_REFILL, DAEMON_IDLE_MAX_NS);
	b->left_ns -= MIN(ns, b->left_ns);
	if (b->left_ns == 0) {
		b->spent = true;
	} else if (daemon_idle_budget_is_full(b)) {
		b->spent = false;
	}
	return b->spent;
}
