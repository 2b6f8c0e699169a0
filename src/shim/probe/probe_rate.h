/* How often launches are timed: what timing one costs the program, and the interval that keeps this
 * a small share of the budget. Computation only; every call is made under the timers' lock unless
 * it says otherwise. */
#ifndef GBPF_SHIM_PROBE_PROBE_RATE_H
#define GBPF_SHIM_PROBE_PROBE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define SHIM_PROBE_EVERY_MIN 64u	/* launches of a shape of which one of each kind is timed */
#define SHIM_PROBE_EVERY_MAX (1u << 18) /* the same, for the shortest launches */
#define SHIM_PROBE_TIMING_PART 10u	/* timing may cost this part of the budget */
#define SHIM_PROBE_TIMING_BUDGET 10000u /* ppm; of this budget, for tools without one */
#define SHIM_PROBE_RATE_SAMPLES 16u

/* Returns the median of the samples in a ring of SHIM_PROBE_RATE_SAMPLES; n: how many were ever
 * stored. 0: none. */
uint32_t shim_probe_median(const uint32_t *ns, uint32_t n);

/* Takes the time of the calls that timed a launch. */
void shim_probe_rate_note_host(uint32_t ns);
/* Takes the time between two events with nothing between them. */
void shim_probe_rate_note_gap(uint32_t ns);
/* Returns whether two such events are wanted, and counts them. Needs no lock. */
bool shim_probe_rate_wants_gap(void);

/* Returns what timing a launch costs the program, ns: the calls, and the delay of the stream by two
 * events. The host and the stream may work at the same time, so this is an upper bound. */
uint32_t shim_probe_rate_cost(void);
/* Returns what a launch takes, ns, given the time between the events around it. */
uint32_t shim_probe_rate_launch(uint32_t timed_ns);
/* Returns of how many launches one of each kind is to be timed: a power of two. budget_ppm 0: none.
 */
uint32_t shim_probe_rate_every(uint32_t launch_ns, uint32_t budget_ppm);
/* Returns what the timing of one launch of each kind in `every` adds to launches, ppm. */
uint32_t shim_probe_rate_ppm(uint32_t launch_ns, uint32_t every);
/* Forgets all: in the child after fork. */
void shim_probe_rate_forget(void);

#endif
