/* The check of the order of locks, in debug builds. */
#include "base/lock.h"

#if defined(LOCK_ORDER)

#include <stdio.h>
#include <stdlib.h>

#define MAX_HELD 32u

static const char *const names[] = {
#define LOCK(name, file, guards) #name " (" file ")",
#include "base/locks.def"
#undef LOCK
};

/* The locks that the thread holds, in the order in which it has taken them. A lock that was freed
 * while a thread held it (which left by longjmp) is not read. */
static __thread struct {
	struct {
		const struct lock *lock;
		enum lock_rank rank;
	} of[MAX_HELD];
	unsigned n;
} held;

static void violates(const struct lock *l, const char *what, enum lock_rank other)
{
	fprintf(stderr, "gbpf: lock order: %s is %s %s\n", names[l->rank], what, names[other]);
	abort();
}

void lock_note_taken(const struct lock *l, bool waits)
{
	for (unsigned i = 0; i < held.n && waits; i++) {
		if (held.of[i].rank > l->rank ||
		    (held.of[i].rank == l->rank && held.of[i].lock >= l)) {
			violates(l, "taken under", held.of[i].rank);
		}
	}
	if (held.n == MAX_HELD) {
		violates(l, "one lock too many under", held.of[0].rank);
	}
	held.of[held.n].lock = l;
	held.of[held.n++].rank = l->rank;
}

static bool forget(const struct lock *l)
{
	unsigned i = held.n;

	while (i > 0 && held.of[i - 1].lock != l) {
		i--;
	}
	if (!i) {
		return false;
	}
	for (held.n--; i <= held.n; i++) {
		held.of[i - 1] = held.of[i];
	}
	return true;
}

void lock_note_released(const struct lock *l)
{
	if (!forget(l)) {
		violates(l, "released by a thread that does not hold", l->rank);
	}
}

void lock_note_new(const struct lock *l)
{
	(void)forget(l);
}

#endif
