/* For LD_PRELOAD, with GBPF_CLOCK set so that no other clock is used: each read of the clock takes
 * READ_NS, as if the thread were preempted there. */
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"

#define READ_NS 30000u

static uint64_t read_ns(clockid_t id, struct timespec *t)
{
	(void)syscall(SYS_clock_gettime, id, t);
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t end = read_ns(CLOCK_MONOTONIC, t) + READ_NS;

	while (read_ns(CLOCK_MONOTONIC, t) < end) {
	}
	return (int)syscall(SYS_clock_gettime, id, t);
}
