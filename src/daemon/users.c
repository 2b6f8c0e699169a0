/* A small table, a linear search through the ids of the users seen last, and token buckets. */
#include "daemon/users.h"

#include <stddef.h>

#include "base/compiler.h"

#define UNUSED_NS 60000000000u
#define RESUME_NS 2000000 /* a pause ends with this much left, so that it is worth its end */

struct limit {
	uint64_t ppm;	 /* of a processor */
	int64_t most_ns; /* that may be saved */
};

static const struct limit one_user = { 50000, 100000000 }, all_users = { 250000, 250000000 },
			  accepting = { 100000, 20000000 };

static void refill(struct daemon_bucket *b, const struct limit *l, uint64_t now)
{
	uint64_t passed = now - b->refilled_ns;

	if (!b->refilled_ns || passed > 10000000000u) {
		b->left_ns = l->most_ns;
	} else {
		b->left_ns = MIN(b->left_ns + (int64_t)(passed * l->ppm / 1000000u), l->most_ns);
	}
	b->refilled_ns = now;
}

/* Returns the time until the bucket has RESUME_NS. */
static uint64_t wait_for(const struct daemon_bucket *b, const struct limit *l)
{
	int64_t missing = RESUME_NS - b->left_ns;

	return missing > 0 ? (uint64_t)missing * 1000000u / l->ppm : 0;
}

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

bool daemon_users_charge(struct daemon_users *u, uid_t uid, uint64_t used_ns, bool accepted,
			 uint64_t now_ns)
{
	struct daemon_user *user = daemon_user_of(u, uid, now_ns);
	bool pauses = false;

	refill(&user->cpu, &one_user, now_ns);
	refill(&u->all, &all_users, now_ns);
	refill(&u->accepts, &accepting, now_ns);
	user->cpu.left_ns -= (int64_t)used_ns;
	u->all.left_ns -= (int64_t)used_ns;
	u->accepts.left_ns -= accepted ? (int64_t)used_ns : 0;
	if (!user->paused && (user->cpu.left_ns < 0 || u->all.left_ns < 0)) {
		user->paused = pauses = true;
	}
	if (!u->accepts_paused && u->accepts.left_ns < 0) {
		u->accepts_paused = pauses = true;
	}
	return pauses;
}

/* Ends the user's pause if it may. Returns the time that it lasts otherwise. */
static uint64_t resume(struct daemon_users *u, struct daemon_user *user, uint64_t now_ns)
{
	uint64_t wait;

	if (!user->paused) {
		return 0;
	}
	refill(&user->cpu, &one_user, now_ns);
	wait = MAX(wait_for(&user->cpu, &one_user), wait_for(&u->all, &all_users));
	user->paused = wait > 0;
	return wait;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a && b ? MIN(a, b) : a + b;
}

uint64_t daemon_users_resume(struct daemon_users *u, uint64_t now_ns)
{
	uint64_t wait = 0;

	refill(&u->all, &all_users, now_ns);
	refill(&u->accepts, &accepting, now_ns);
	for (struct daemon_user *i = u->user; i < u->user + DAEMON_USERS; i++) {
		wait = sooner(wait, resume(u, i, now_ns));
	}
	wait = sooner(wait, resume(u, &u->rest, now_ns));
	if (u->accepts_paused) {
		uint64_t accepts = wait_for(&u->accepts, &accepting);

		u->accepts_paused = accepts > 0;
		wait = sooner(wait, accepts);
	}
	return wait;
}

void daemon_users_resume_all(struct daemon_users *u)
{
	for (struct daemon_user *i = u->user; i < u->user + DAEMON_USERS; i++) {
		i->paused = false;
	}
	u->rest.paused = u->accepts_paused = false;
}

unsigned daemon_user_quota(unsigned all, unsigned others, unsigned most)
{
	unsigned left = all > others ? all - others : 0;

	return left ? MIN(MAX(left / 2, 1u), most) : 0;
}
