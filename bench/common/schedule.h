/* Arrival times of a load's requests: DISB's kinds of load, and its rule that of the requests that
 * could not begin in time only the newest is kept. */
#ifndef GBPF_BENCH_COMMON_SCHEDULE_H
#define GBPF_BENCH_COMMON_SCHEDULE_H

#include <stdint.h>

enum bench_schedule_kind { SCHEDULE_CLOSED, SCHEDULE_PERIODIC, SCHEDULE_POISSON, SCHEDULE_TRACE };
#define SCHEDULE_TRACES 5u
#define SCHEDULE_MAX 1024u /* requests of a trace */

struct bench_schedule {
	enum bench_schedule_kind kind;
	uint64_t epoch_ns, interval_ns, seed;
	double rate;
	uint64_t slot_ns;	  /* the next slot; UINT64_MAX: none */
	uint64_t index, taken_ns; /* taken_ns: the slot of the latest returned request */
	uint64_t dropped;
	uint32_t trace_ms[SCHEDULE_MAX], n_trace;
};

/* rate: requests a second (periodic, Poisson); trace: 0..SCHEDULE_TRACES-1. */
void bench_schedule_init(struct bench_schedule *s, enum bench_schedule_kind kind, double rate,
			 unsigned trace, uint64_t epoch_ns, uint64_t offset_ns, uint64_t seed);
/* Returns when the next request begins for a client that is ready now: now, if its time has passed,
 * counting the requests before it as dropped. UINT64_MAX: no more. */
uint64_t bench_schedule_next(struct bench_schedule *s, uint64_t now_ns);

/* Same for a load that ends at end_ns (> 0). UINT64_MAX: no more requests begin before end_ns;
 * those that were due before it then count as dropped, later ones do not. To be called once after
 * that. */
uint64_t bench_schedule_next_before(struct bench_schedule *s, uint64_t now_ns, uint64_t end_ns);

/* Returns the kind of a name ("periodic" ...), or -1. */
int bench_schedule_kind_of(const char *name);

#endif
