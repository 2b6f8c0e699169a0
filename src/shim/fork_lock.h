/* Locks in the child of a fork. */
#ifndef GBPF_SHIM_FORK_LOCK_H
#define GBPF_SHIM_FORK_LOCK_H

#include "base/lock.h"

/* Makes a lock free, which another thread of the parent may have held. The child has one thread, so
 * it may use what the lock guards: clang takes the lock to be held from here on. */
static inline void shim_lock_after_fork(struct lock *l, enum lock_rank rank)
	LOCK_ATTRIBUTE(assert_capability(l))
{
	lock_init(l, rank);
}

#endif
