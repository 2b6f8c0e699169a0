/* The one clock. Everything that decides by time reads it here, so that a simulator can replace it.
 */
#ifndef GBPF_BASE_CLOCK_H
#define GBPF_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC, or of the source set below. Never fails, no lock (vDSO). */
uint64_t clock_now_ns(void);

/* The same clock for hot paths: within a microsecond of clock_now_ns, at about a third of its cost
 * where the processor has an invariant time stamp counter; the same as clock_now_ns elsewhere.
 * Never goes back within a thread. */
uint64_t clock_fast_ns(void);

/* Wall-clock nanoseconds since 1970, for stamps that people read. */
uint64_t clock_wall_ns(void);

/* Processor time of this thread, nanoseconds: what work costs, whoever else runs. */
uint64_t clock_cpu_ns(void);

/* Replaces the monotonic source; NULL restores it. For the simulator and for tests, before threads
 * start. */
void clock_set_source(uint64_t (*now_ns)(void));

/* Sleeps for that long, restarting after signals. */
void clock_sleep_ns(uint64_t ns);

#endif
