/* Letting others have the processor while there is nothing to do yet: cheaper than to sleep and be
 * woken, unless it is wanted by many. Then who yields has it back after all of them (50 ms and more
 * were seen beside twelve busy threads), while who sleeps is woken at once. So when it took long,
 * nobody does it for a while. */
#ifndef GBPF_SOFT_YIELD_H
#define GBPF_SOFT_YIELD_H

#include <sched.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define SOFT_YIELD_SLOW_NS 500000u
#define SOFT_YIELD_PAUSE_NS 1000000000u

/* *not_before: the caller's, 0 at first, [atomic]. False: sleep instead. */
static inline bool soft_yield(uint64_t *not_before)
{
	uint64_t begin = clock_fast_ns(), end;

	if (begin < load_relaxed(not_before)) {
		return false;
	}
	sched_yield();
	end = clock_fast_ns();
	if (unlikely(end - begin > SOFT_YIELD_SLOW_NS)) {
		store_relaxed(not_before, end + SOFT_YIELD_PAUSE_NS);
	}
	return true;
}

#endif
