/* What gbpfd keeps for each user that it serves: budgets that one user cannot use up for others. */
#ifndef GBPF_DAEMON_USERS_H
#define GBPF_DAEMON_USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/rate.h"

#define DAEMON_USERS 256u

/* Processor time that is left; negative: used in advance. */
struct daemon_bucket {
	int64_t left_ns;
	uint64_t refilled_ns; /* 0: never, and full */
};

struct daemon_user {
	uid_t uid;
	uint64_t last_ns; /* last use; 0: free */
	struct rate_limit events;
	struct rate_limit builds; /* of tools */
	struct {
		uint64_t told_ns; /* last entry of the user in the audit log; 0: none */
		uint32_t more;	  /* actions since then */
	} audit;
	struct daemon_bucket cpu;
	bool paused;
};

/* The users seen last; further ones share `rest`, so that a user with many user ids (a user
 * namespace) has no more than one user beyond the first DAEMON_USERS of a minute. */
struct daemon_users {
	struct daemon_user user[DAEMON_USERS], rest;
	struct daemon_bucket all;     /* of all users together */
	struct rate_limit audit;      /* entries of all users in the audit log, by hour */
	struct daemon_bucket accepts; /* for accepting connections of all users */
	bool accepts_paused;
	sd_event_source *timer; /* owned; budget.c */
};

/* Returns the user's record, which replaces one that has not been used for a minute. Never NULL;
 * valid until the next call. */
struct daemon_user *daemon_user_of(struct daemon_users *u, uid_t uid, uint64_t now_ns);

/* Charges processor time to a user; accepted: for accepting a connection. Returns true if the user,
 * or accepting, is paused now and was not before. */
bool daemon_users_charge(struct daemon_users *u, uid_t uid, uint64_t used_ns, bool accepted,
			 uint64_t now_ns);
/* Ends the pauses of budgets that are refilled. Returns the time until another may end, 0: none. */
uint64_t daemon_users_resume(struct daemon_users *u, uint64_t now_ns);
void daemon_users_resume_all(struct daemon_users *u);

/* Returns how many of `all` places a user may have: at most `most`, and half of those that
 * `others`, the places of other users, leave, so that some are left to further users; 1 if that is
 * less. 0 if none is left. */
unsigned daemon_user_quota(unsigned all, unsigned others, unsigned most);

#endif
