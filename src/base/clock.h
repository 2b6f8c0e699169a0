/* The one clock. All decisions based on time read it here, so that a simulator can replace it. */
#ifndef GBPF_BASE_CLOCK_H
#define GBPF_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in ns, or the source set below. Never fails; takes no lock (vDSO). */
uint64_t clock_now_ns(void);

/* The same clock for hot paths: within a microsecond of clock_now_ns(), at about a third of its
 * cost if the processor has an invariant time stamp counter; otherwise identical. Never goes
 * backwards within a thread. */
uint64_t clock_fast_ns(void);

/* Returns wall-clock time in ns since 1970, for time stamps shown to users. */
uint64_t clock_wall_ns(void);

/* Returns the processor time of this thread in ns, which does not depend on the load of the
 * machine. */
uint64_t clock_cpu_ns(void);

/* Replaces the monotonic source; NULL restores it. For the simulator and tests, before threads
 * start. */
void clock_set_source(uint64_t (*now_ns)(void));

/* Returns a timeout of the product, in any unit, times GBPF_PATIENCE (1 to 1000; default 1), which
 * is read once. For timeouts that only a process that hangs or died should meet: on a machine with
 * much more work than processors healthy ones meet them too. Not for periods, and not for times
 * that a user or a policy has stated. */
uint64_t clock_patience(uint64_t timeout);

/* Returns that many nanoseconds as libc and the kernel take them. */
static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / UINT64_C(1000000000)),
				  .tv_nsec = (long)(ns % UINT64_C(1000000000)) };
}

/* Sleeps for ns nanoseconds, restarting after signals. */
void clock_sleep_ns(uint64_t ns);

#endif
