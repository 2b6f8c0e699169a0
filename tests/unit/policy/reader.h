/* Threads that stay inside a section or at a gate, and the pauses of those that wait for them. */
#ifndef GBPF_TESTS_POLICY_READER_H
#define GBPF_TESTS_POLICY_READER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "policy/read.h"

#include "../eventually.h"

#define MS UINT64_C(1000000)
/* Pauses grow: 64 rounds spin, 192 sleep for 10 us, the others for 200 us. A thread is looked at
 * after the 257th, and after each 16 more. */
#define ONE_LOOK (192 * UINT64_C(10000) + 200000)
#define HALF_SECOND (ONE_LOOK + 160 * 16 * UINT64_C(200000))

/* Replaces libc's: what the calling code asks for is counted, and slept only if `sleeps`. */
static uint64_t asked_ns;
static bool sleeps = true;

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	asked_ns += (uint64_t)t->tv_sec * 1000 * MS + (uint64_t)t->tv_nsec;
	return sleeps ? (int)syscall(SYS_clock_nanosleep, id, flags, t, left) : 0;
}

/* Returns the time for which policy_synchronize sleeps, which gives up. */
static inline uint64_t given_up_after(void)
{
	sleeps = false;
	asked_ns = 0;
	assert_false(policy_synchronize());
	sleeps = true;
	return asked_ns;
}

/* A thread that is inside a section, or at a gate, until it is let go. */
struct inside {
	const void *gate; /* NULL: a section */
	bool shared;	  /* without a slot */
	uint32_t in, leave;
	struct policy_reader *slot;
	uint32_t tid;
	pthread_t thread;
};

static inline void *stay(void *arg)
{
	struct inside *t = arg;
	struct policy_reader *r = policy_read_enter();

	t->slot = r;
	t->tid = (uint32_t)syscall(SYS_gettid);
	if (t->gate) {
		policy_read_leave(r);
		assert_true(policy_gate_enter(t->gate));
	}
	store_seqcst(&t->in, 1u);
	while (!load_seqcst(&t->leave)) {
		cpu_relax(); /* not asleep: where a sleeping thread is could be found out */
	}
	if (t->gate) {
		policy_gate_leave();
	} else {
		policy_read_leave(r);
	}
	return NULL;
}

static inline void enter(struct inside *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, stay, t), 0);
	eventually(load_seqcst(&t->in));
}

static inline void leave(struct inside *t)
{
	store_seqcst(&t->leave, 1u);
	pthread_join(t->thread, NULL);
}

#endif
