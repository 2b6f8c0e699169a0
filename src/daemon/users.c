/* A small table: a linear search through the ids of the users seen last. */
#include "daemon/users.h"

#include <stddef.h>

#define UNUSED_NS 60000000000u

struct daemon_user *daemon_user_of(struct daemon_users *u, uid_t uid, uint64_t now_ns)
{
	struct daemon_user *oldest = &u->user[0];

	for (struct daemon_user *i = u->user; i < u->user + DAEMON_USERS; i++) {
		if (i->last_ns && i->uid == uid) {
			i->last_ns = now_ns;
			return i;
		}
		oldest = i->last_ns < oldest->last_ns ? i : oldest;
	}
	if (oldest->last_ns && now_ns - oldest->last_ns < UNUSED_NS) {
		return &u->rest;
	}
	*oldest = (struct daemon_user){ .uid = uid, .last_ns = now_ns };
	return oldest;
}
