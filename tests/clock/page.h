/* The page that processes in virtual time share: the time, the processes, and the threads that wait
 * for a time. */
#ifndef GBPF_TESTS_CLOCK_PAGE_H
#define GBPF_TESTS_CLOCK_PAGE_H

#include <stdint.h>

#define CLOCK_PROCESSES_MAX 128u
#define CLOCK_WAITS_MAX 1024u
#define CLOCK_NEVER UINT64_MAX
/* Time that a read of the clock takes. */
#define CLOCK_READ_NS 100u
/* A thread that has read the clock or yielded so often since it last waited spins until a time has
 * come: its reads take no time any more, but wait until the clock advances. */
#define CLOCK_SPIN_READS 64u
/* Waits with a relative timeout end at multiples of this: the timer slack, which is half of that in
 * Linux. Loops that sleep for microseconds would cost a step of virtual-time each. */
#define CLOCK_SLACK_NS 50000u
/* Interrupts a thread's wait when its deadline has come. No program of the tests uses it. */
#define CLOCK_SIGNAL 58

struct clock_wait {
	int32_t tid;	     /* [atomic] 0: free. Set and cleared by its thread */
	int32_t pid;	     /* written before tid */
	uint64_t deadline;   /* [atomic] ns of the virtual clock; CLOCK_NEVER: the thread runs, or
				waits   without a timeout */
	uint32_t reads;	     /* [atomic] of the clock, since the thread last waited */
	uint32_t naps;	     /* [atomic] 1: in a read that waits for an advance */
	uint64_t spins_from; /* [atomic] time of the last read that took time */
};

struct clock_page {
	uint64_t now;	   /* [atomic] ns; advanced by virtual-time, and by each read */
	uint64_t to_wall;  /* ns from this clock to that of CLOCK_REALTIME; constant */
	uint32_t created;  /* [atomic] threads. Counted by their creator, after they exist */
	uint32_t advances; /* [atomic] futex: of the clock, by virtual-time */
	int32_t pids[CLOCK_PROCESSES_MAX]; /* [atomic] 0: free. Cleared by virtual-time */
	struct clock_wait waits[CLOCK_WAITS_MAX];
};

#endif
