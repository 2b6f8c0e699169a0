/* Yielding the processor before sleeping. It is cheaper than to sleep and be woken, unless many
 * threads compete for the processor: then the yielding thread runs again after all of them (50 ms
 * and more were measured with twelve busy threads), while a woken thread runs at once. So a slow
 * yield disables yielding for a second. */
#ifndef GBPF_SOFT_YIELD_H
#define GBPF_SOFT_YIELD_H

#include <sched.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define SOFT_YIELD_SLOW_NS 500000u
#define SOFT_YIELD_PAUSE_NS 1000000000u

/* Yields. Returns false if the caller should sleep instead. *not_before: [atomic] state of the
 * caller, initially 0. */
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
