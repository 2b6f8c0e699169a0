/* How often launches are timed. The cost of timing one is learned in the process: it depends on the
 * processor, the driver and the GPU, and for launches of some microseconds it is more than the
 * launch. No call of the driver is made here. */
#include "shim/probe/probe_rate.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define GAPS 8u		   /* pairs of events with nothing between them */
#define LONG_NS (1u << 24) /* longer launches are timed as often as those of this time */
#define PPM UINT64_C(1000000)

struct samples {
	uint32_t ns[SHIM_PROBE_RATE_SAMPLES], n;
};

static struct samples host, gaps; /* timers' lock */
static uint32_t gaps_begun;	  /* [atomic] */

uint32_t shim_probe_median(const uint32_t *ns, uint32_t n)
{
	uint32_t sorted[SHIM_PROBE_RATE_SAMPLES] = { 0 };

	n = MIN(n, SHIM_PROBE_RATE_SAMPLES);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;

		for (; at > 0 && sorted[at - 1] > ns[i]; at--) {
			sorted[at] = sorted[at - 1];
		}
		sorted[at] = ns[i];
	}
	return n ? sorted[n / 2] : 0;
}

static void note(struct samples *s, uint32_t ns)
{
	s->ns[s->n++ % SHIM_PROBE_RATE_SAMPLES] = ns;
}

void shim_probe_rate_note_host(uint32_t ns)
{
	note(&host, ns);
}

void shim_probe_rate_note_gap(uint32_t ns)
{
	note(&gaps, ns);
}

bool shim_probe_rate_wants_gap(void)
{
	return load_relaxed(&gaps_begun) < GAPS && add_relaxed(&gaps_begun, 1u) < GAPS;
}

static uint32_t gap(void)
{
	return shim_probe_median(gaps.ns, gaps.n);
}

uint32_t shim_probe_rate_cost(void)
{
	uint64_t ns = shim_probe_median(host.ns, host.n) + UINT64_C(2) * gap();

	return (uint32_t)MIN(ns, (uint64_t)UINT32_MAX);
}

/* The time between the events contains one delay by an event. The delay is known for an idle or a
 * full stream only, so at most half of the time is taken to be that. */
uint32_t shim_probe_rate_launch(uint32_t timed_ns)
{
	return timed_ns - MIN(gap(), timed_ns / 2);
}

/* Of one launch of each kind, in ns x 10^6. */
static uint64_t cost_of_both(void)
{
	return UINT64_C(2) * shim_probe_rate_cost() * PPM;
}

static uint64_t time_of(uint32_t launch_ns, uint32_t every)
{
	return (uint64_t)every * MAX(MIN(launch_ns, LONG_NS), 1u);
}

uint32_t shim_probe_rate_every(uint32_t launch_ns, uint32_t budget_ppm)
{
	uint64_t budget = budget_ppm ? budget_ppm : SHIM_PROBE_TIMING_BUDGET;
	uint64_t part = MAX(MIN(budget, PPM) / SHIM_PROBE_TIMING_PART, UINT64_C(1));
	uint32_t every = SHIM_PROBE_EVERY_MIN;

	while (every < SHIM_PROBE_EVERY_MAX && cost_of_both() > time_of(launch_ns, every) * part) {
		every *= 2;
	}
	return every;
}

uint32_t shim_probe_rate_ppm(uint32_t launch_ns, uint32_t every)
{
	return (uint32_t)MIN(cost_of_both() / time_of(launch_ns, MAX(every, 1u)),
			     (uint64_t)UINT32_MAX);
}

void shim_probe_rate_forget(void)
{
	memset(&host, 0, sizeof(host));
	memset(&gaps, 0, sizeof(gaps));
	gaps_begun = 0;
}
