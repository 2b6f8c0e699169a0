/* What gbpfd keeps for each user that it serves: budgets that one user cannot use up for others. */
#ifndef GBPF_DAEMON_USERS_H
#define GBPF_DAEMON_USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/rate.h"

#define DAEMON_USERS 256u

struct daemon_user {
	uid_t uid;
	uint64_t last_ns; /* last use; 0: free */
	struct rate_limit events;
};

/* The users seen last; further ones share `rest`, so that a user with many user ids (a user
 * namespace) has no more than one user beyond the first DAEMON_USERS of a second. */
struct daemon_users {
	struct daemon_user user[DAEMON_USERS], rest;
};

/* Returns the user's record, which replaces one that has not been used for a minute. Never NULL;
 * valid until the next call. */
struct daemon_user *daemon_user_of(struct daemon_users *u, uid_t uid, uint64_t now_ns);

#endif
