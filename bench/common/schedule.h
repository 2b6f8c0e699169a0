/* When the requests of a load come: DISB's kinds of load and its rule that of requests which could
 * not begin in time only the newest is kept. */
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
	uint64_t slot_ns;	  /* the next one; UINT64_MAX: there is none */
	uint64_t index, taken_ns; /* taken_ns: the slot of the request given out last */
	uint64_t dropped;
	uint32_t trace_ms[SCHEDULE_MAX], n_trace;
};

/* rate: requests a second (periodic, Poisson); trace: 0..SCHEDULE_TRACES-1. */
void bench_schedule_init(struct bench_schedule *s, enum bench_schedule_kind kind, double rate,
			 unsigned trace, uint64_t epoch_ns, uint64_t offset_ns, uint64_t seed);
/* When the next request begins, for somebody who is ready now: now, when its time has passed, with
 * those before it counted as dropped. UINT64_MAX: no more. */
uint64_t bench_schedule_next(struct bench_schedule *s, uint64_t now_ns);

/* The same of a load that ends at end_ns (> 0). UINT64_MAX: no more begin before that; those that
 * were due before it then count as dropped, and none that would have come later does. Once. */
uint64_t bench_schedule_next_before(struct bench_schedule *s, uint64_t now_ns, uint64_t end_ns);

/* "periodic" ...; -1: none. */
int bench_schedule_kind_of(const char *name);

#endif
