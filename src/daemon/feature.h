/* Features of gbpfd: what the folder's own files call without knowing which features there are. */
#ifndef GBPF_DAEMON_FEATURE_H
#define GBPF_DAEMON_FEATURE_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;

/* Members may be NULL. All run in the loop's thread. */
struct daemon_feature {
	/* The budgets of users have changed (budget.h): poll the sources of those that are not
	 * paused, and accept unless that is paused. */
	void (*poll)(struct daemon *d, bool accepts_paused);
	/* A connection of the control socket is closed; its number is never used again. */
	void (*connection_closed)(struct daemon *d, uint64_t conn);
};

/* main/features.c; NULL ends it. They are called in this order. */
extern const struct daemon_feature *const daemon_features[];

#endif
