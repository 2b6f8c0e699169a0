/* The only file that reads a clock. */
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/atomic.h"
#include "base/compiler.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#define PATIENCE_MAX 1000u

static uint64_t (*source)(void);

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return source ? source() : read_clock(CLOCK_MONOTONIC);
}

#if defined(__x86_64__)

/* The time stamp counter bridges short gaps only: each thread reads the real clock again after
 * BRIDGE_CYCLES (some milliseconds), so that the error of the measured rate, and the kernel's
 * adjustments of its clock, stay far below a microsecond. */
#define BRIDGE_CYCLES (1u << 22)
/* A pair of readings is off by at most half of the cycles between its two counters: 0.4 us at 2.5
 * GHz. Over the window the two pairs of the rate make an error of 0.2 us at the end of a bridge. */
#define PAIR_CYCLES_MAX 2048u
#define RATE_SHIFT 32
#define RATE_WINDOW_NS 8000000u

enum { RATE_UNKNOWN = 0, RATE_NONE = 1 }; /* other values: ns << RATE_SHIFT for each cycle */

static uint64_t rate, rate_from_ns, rate_from_cycles;
static uint32_t rate_claimed; /* set by the thread that takes the first reading */
static TLS_FAST uint64_t base_ns, base_cycles, last_ns;

/* CPUID 8000_0007h EDX bit 8: the counter runs at a constant rate in all power states. If
 * GBPF_CLOCK is set, a test controls the clock, which the counter does not follow. */
static int counter_is_invariant(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8)) && !getenv("GBPF_CLOCK");
}

/* Measures the rate over the first milliseconds of calls, during which the real clock is used. */
static void learn_rate(uint64_t now, uint64_t cycles)
{
	uint64_t from = load_acquire(&rate_from_ns), span;

	if (!from) {
		if (!counter_is_invariant()) {
			store_release(&rate, (uint64_t)RATE_NONE);
			return;
		}
		if (!xchg_acqrel(&rate_claimed, 1u)) {
			store_relaxed(&rate_from_cycles, cycles);
			store_release(&rate_from_ns, now);
		}
		return;
	}
	span = cycles - load_relaxed(&rate_from_cycles);
	if (now - from < RATE_WINDOW_NS || (int64_t)span <= 0) {
		return;
	}
	store_release(&rate, (uint64_t)(((u128)(now - from) << RATE_SHIFT) / span));
}

static NOINLINE uint64_t take_base(void)
{
	uint64_t before = __rdtsc(), now = read_clock(CLOCK_MONOTONIC), after = __rdtsc();

	last_ns = MAX(now, last_ns);
	base_cycles = 0; /* out of range, so that the next call reads the real clock too */
	if (after - before >= PAIR_CYCLES_MAX) {
		return last_ns; /* descheduled between the two readings, which therefore do not
				   correspond */
	}
	if (load_acquire(&rate) == RATE_UNKNOWN) {
		learn_rate(now, before + (after - before) / 2);
	}
	base_ns = now;
	base_cycles = before + (after - before) / 2;
	return last_ns;
}

uint64_t clock_fast_ns(void)
{
	uint64_t r = load_relaxed(&rate), cycles, now;

	if (source || r <= RATE_NONE) {
		return source		? source()
		       : r == RATE_NONE ? read_clock(CLOCK_MONOTONIC)
					: take_base();
	}
	cycles = __rdtsc() - base_cycles;
	if (unlikely(cycles >= BRIDGE_CYCLES)) {
		return take_base();
	}
	now = base_ns + (cycles * r >> RATE_SHIFT);
	if (unlikely(now < last_ns)) {
		return last_ns;
	}
	last_ns = now;
	return now;
}

#else

uint64_t clock_fast_ns(void)
{
	return clock_now_ns();
}

#endif

uint64_t clock_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

void clock_set_source(uint64_t (*now_ns)(void))
{
	source = now_ns;
}

uint64_t clock_patience(uint64_t timeout)
{
	static uint32_t factor; /* [atomic] 0: not read yet */
	uint32_t f = load_relaxed(&factor);

	if (!f) {
		const char *text = getenv("GBPF_PATIENCE");
		unsigned long n = text ? strtoul(text, NULL, 10) : 1;

		f = n >= 1 && n <= PATIENCE_MAX ? (uint32_t)n : 1;
		store_relaxed(&factor, f);
	}
	return timeout > UINT64_MAX / f ? UINT64_MAX : timeout * f;
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec t = clock_timespec(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) {
	}
}
