/* Locks with an order. Each lock has a rank, its place in base/locks.def: a thread that holds locks
 * may take those of higher ranks, those of the same rank in ascending order of their addresses, and
 * try any. A thread that waits for a condition takes its lock again, so it may hold no later one.
 * Debug builds check this at each lock and wait, and abort with both names. Clang's thread-safety
 * analysis reads the attributes. */
#ifndef GBPF_BASE_LOCK_H
#define GBPF_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif
#define CAPABILITY(name) LOCK_ATTRIBUTE(capability(name))
#define GUARDED_BY(l) LOCK_ATTRIBUTE(guarded_by(l))
#define REQUIRES(...) LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define ACQUIRES(...) LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define ACQUIRES_IF(...) LOCK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define RELEASES(...) LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))
/* The function's body is not analysed. A comment there gives the reason. */
#define UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)

enum lock_rank {
#define LOCK(name, file, guards) LOCK_##name,
#include "base/locks.def"
#undef LOCK
	LOCK_RANKS
};

struct CAPABILITY("lock") lock {
	pthread_mutex_t mutex;
#if defined(LOCK_ORDER)
	enum lock_rank rank;
#endif
};

#if !defined(LOCK_ORDER)
#define LOCK_INITIALIZER(name)                                                                     \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER                                                          \
	}
static inline void lock_note_taken(const struct lock *l, bool waits)
{
}
static inline void lock_note_released(const struct lock *l)
{
}
static inline void lock_note_new(const struct lock *l)
{
}
#else
#define LOCK_INITIALIZER(name)                                                                     \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER, LOCK_##name                                             \
	}
/* waits: the thread waits until it is free. */
void lock_note_taken(const struct lock *l, bool waits);
void lock_note_released(const struct lock *l);
/* The thread holds it no longer, if it did. */
void lock_note_new(const struct lock *l);
#endif

/* Also in the child of a fork, of a lock that a thread of the parent may have held. */
static inline void lock_init(struct lock *l, enum lock_rank rank)
{
	lock_note_new(l);
	pthread_mutex_init(&l->mutex, NULL);
#if defined(LOCK_ORDER)
	l->rank = rank;
#endif
}

static inline void lock_finish(struct lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

/* Not analysed, as are the next ones: pthread's functions have no attributes. */
static inline void lock_take(struct lock *l) ACQUIRES(l) UNCHECKED
{
	lock_note_taken(l, true);
	pthread_mutex_lock(&l->mutex);
}

/* Returns whether the thread holds it now. */
static inline bool lock_try(struct lock *l) ACQUIRES_IF(true, l) UNCHECKED
{
	if (pthread_mutex_trylock(&l->mutex) != 0) {
		return false;
	}
	lock_note_taken(l, false);
	return true;
}

/* Takes it by a time of a clock, or returns false. */
static inline bool lock_take_by(struct lock *l, clockid_t clock, const struct timespec *at)
	ACQUIRES_IF(true, l) UNCHECKED
{
	lock_note_taken(l, true);
	if (pthread_mutex_clocklock(&l->mutex, clock, at) != 0) {
		lock_note_released(l);
		return false;
	}
	return true;
}

static inline void lock_release(struct lock *l) RELEASES(l) UNCHECKED
{
	lock_note_released(l);
	pthread_mutex_unlock(&l->mutex);
}

/* Waits for the condition without the lock, and takes it again. Returns 0. */
static inline int lock_wait(struct lock *l, pthread_cond_t *c) REQUIRES(l)
{
	lock_note_released(l);
	lock_note_taken(l, true);
	return pthread_cond_wait(c, &l->mutex);
}

/* The same until a time of the condition's clock. Returns 0 or ETIMEDOUT. */
static inline int lock_wait_until(struct lock *l, pthread_cond_t *c, const struct timespec *at)
	REQUIRES(l)
{
	lock_note_released(l);
	lock_note_taken(l, true);
	return pthread_cond_timedwait(c, &l->mutex, at);
}

/* The same of another clock. */
static inline int lock_wait_clock(struct lock *l, pthread_cond_t *c, clockid_t clock,
				  const struct timespec *at) REQUIRES(l)
{
	lock_note_released(l);
	lock_note_taken(l, true);
	return pthread_cond_clockwait(c, &l->mutex, clock, at);
}

#endif
