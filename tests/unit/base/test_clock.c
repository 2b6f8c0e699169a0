/* The clock on a counter and a kernel clock that the test moves: how the rate is learned, how long
 * the counter bridges the gap between two readings, and that time never goes back. The file under
 * test is part of this one, so that its instructions are ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

static uint64_t kernel_ns, cycles_now, drift, lateness;
static unsigned kernel_reads, invariant_bit = 8;
static clockid_t asked_clock;

/* Each reading of the counter takes `drift` cycles; one that follows a reading of the kernel's
 * clock may be late, as after an interruption. */
static inline uint64_t test_counter(void)
{
	cycles_now += drift;
	return cycles_now;
}

static int test_clock_gettime(clockid_t id, struct timespec *t)
{
	asked_clock = id;
	kernel_reads++;
	*t = (struct timespec){ (time_t)(kernel_ns / 1000000000u),
				(long)(kernel_ns % 1000000000u) };
	cycles_now += lateness;
	return 0;
}

static unsigned interruptions;
static struct timespec slept;

static int test_clock_nanosleep(clockid_t id, int flags, const struct timespec *t,
				struct timespec *left)
{
	assert_int_equal(id, CLOCK_MONOTONIC);
	assert_int_equal(flags, 0);
	slept = *t;
	if (interruptions) {
		interruptions--;
		left->tv_sec = t->tv_sec - 1;
		left->tv_nsec = t->tv_nsec - 1;
		return EINTR;
	}
	return 0;
}

#if defined(__x86_64__)
static int test_cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
	assert_int_equal(leaf, 0x80000007u);
	*a = *b = *c = ~0u;
	*d = invariant_bit < 32 ? 1u << invariant_bit : 0;
	return invariant_bit != 99;
}

#undef __rdtsc
#define __rdtsc() test_counter()
#define __get_cpuid test_cpuid
#endif
#define clock_gettime test_clock_gettime
#define clock_nanosleep test_clock_nanosleep
#include "../../../src/base/clock.c"

#define MS UINT64_C(1000000)

static int reset(void **state)
{
	kernel_ns = 1000 * MS;
	cycles_now = 500;
	drift = lateness = 0;
	kernel_reads = 0;
	source = NULL;
#if defined(__x86_64__)
	invariant_bit = 8;
	rate = rate_from_ns = rate_from_cycles = base_ns = base_cycles = last_ns = 0;
	rate_claimed = 0;
#endif
	return 0;
}

static uint64_t other_source(void)
{
	return 4711;
}

static void another_source_replaces_both_clocks(void **state)
{
	clock_set_source(other_source);
	assert_int_equal(clock_now_ns(), 4711);
	assert_int_equal(clock_fast_ns(), 4711);
	assert_int_equal(kernel_reads, 0);
	clock_set_source(NULL);
	assert_int_equal(clock_now_ns(), 1000 * MS);
	assert_int_equal(clock_fast_ns(), 1000 * MS);
}

static void clocks_are_the_kernels(void **state)
{
	kernel_ns = UINT64_C(12345678901234);
	assert_int_equal(clock_now_ns(), kernel_ns);
	assert_int_equal(asked_clock, CLOCK_MONOTONIC);
	assert_int_equal(clock_wall_ns(), kernel_ns);
	assert_int_equal(asked_clock, CLOCK_REALTIME);
	assert_int_equal(clock_cpu_ns(), kernel_ns);
	assert_int_equal(asked_clock, CLOCK_THREAD_CPUTIME_ID);
}

static void a_sleep_goes_on_after_signals(void **state)
{
	interruptions = 2;
	clock_sleep_ns(UINT64_C(5000000007));
	assert_int_equal(interruptions, 0);
	assert_int_equal(slept.tv_sec, 3);
	assert_int_equal(slept.tv_nsec, 5);
	clock_sleep_ns(999999999);
	assert_int_equal(slept.tv_sec, 0);
	assert_int_equal(slept.tv_nsec, 999999999);
}

#if defined(__x86_64__)

/* Moves both clocks on, at so many cycles per ns. */
static void pass(uint64_t ns, uint64_t cycles)
{
	kernel_ns += ns;
	cycles_now += cycles;
}

/* Learns two cycles per ns over exactly 8 ms, and takes a base. */
static void learn(void)
{
	clock_fast_ns();
	pass(8 * MS, 16 * MS);
	clock_fast_ns();
	clock_fast_ns();
	kernel_reads = 0;
}

static void the_real_clock_is_read_until_the_rate_is_known(void **state)
{
	assert_int_equal(clock_fast_ns(), 1000 * MS);
	for (unsigned i = 1; i <= 8; i++) {
		assert_int_equal(rate, 0);
		pass(MS - (i == 8), 2 * MS);
		assert_int_equal(clock_fast_ns(), kernel_ns);
		assert_int_equal(kernel_reads, i + 1);
	}
	assert_int_equal(rate, 0); /* a ns less than 8 ms */
	pass(1, 0);
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(kernel_reads, 10);
	assert_int_equal(rate, UINT64_C(1) << 31); /* half a ns per cycle, 32 binary places */
}

static void the_counter_bridges_four_million_cycles(void **state)
{
	uint64_t begin;

	learn();
	begin = kernel_ns;
	assert_int_equal(clock_fast_ns(), begin);
	assert_int_equal(kernel_reads, 0);
	pass(7, 2000); /* the kernel's clock is not asked */
	assert_int_equal(clock_fast_ns(), begin + 1000);
	cycles_now += 1001;
	assert_int_equal(clock_fast_ns(), begin + 1500);
	cycles_now += (1u << 22) - 3001 - 1;
	assert_int_equal(clock_fast_ns(), begin + (1u << 21) - 1);
	assert_int_equal(kernel_reads, 0);
	kernel_ns = begin + 3 * MS;
	cycles_now++;
	assert_int_equal(clock_fast_ns(), begin + 3 * MS);
	assert_int_equal(kernel_reads, 1);
	cycles_now += 20;
	assert_int_equal(clock_fast_ns(), begin + 3 * MS + 10); /* from the new base */
	assert_int_equal(kernel_reads, 1);
}

static void time_does_not_go_back(void **state)
{
	uint64_t begin;

	learn();
	begin = kernel_ns;
	cycles_now += 4 * MS;
	assert_int_equal(clock_fast_ns(), begin + 2 * MS);
	cycles_now += MS;
	kernel_ns = begin + MS; /* the counter is ahead */
	assert_int_equal(clock_fast_ns(), begin + 2 * MS);
	assert_int_equal(kernel_reads, 1);
	cycles_now += MS;
	assert_int_equal(clock_fast_ns(), begin + 2 * MS);
	cycles_now += 2 * MS;
	assert_int_equal(clock_fast_ns(), begin + 5 * MS / 2);
	assert_int_equal(kernel_reads, 1);
}

/* A pair of readings between which the thread lost the processor is no base: the next call reads
 * the clock again. */
static void an_interrupted_pair_is_no_base(void **state)
{
	learn();
	cycles_now += 1 << 22;
	lateness = 2048;
	pass(5, 0);
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(kernel_reads, 1);
	lateness = 2047;
	pass(5, 0);
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(kernel_reads, 2);
	/* the reading belongs to the middle of the pair */
	assert_int_equal(base_cycles, cycles_now - 2047 + 1023);
	cycles_now += 976;
	assert_int_equal(clock_fast_ns(), kernel_ns + (1024 + 976) / 2);
	assert_int_equal(kernel_reads, 2);
}

static void an_interrupted_pair_does_not_begin_the_rate(void **state)
{
	lateness = 2048;
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(rate_from_ns, 0);
	lateness = 100;
	clock_fast_ns();
	assert_int_equal(rate_from_ns, kernel_ns);
	assert_int_equal(rate_from_cycles, cycles_now - 50); /* the middle of the pair */
}

/* The counters of two processors may differ: a span that is not positive gives no rate. */
static void a_counter_that_went_back_gives_no_rate(void **state)
{
	cycles_now = 1000 * MS;
	clock_fast_ns();
	kernel_ns += 10 * MS;
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(rate, 0);
	cycles_now -= 100 * MS;
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(rate, 0);
	pass(10 * MS, 120 * MS);
	assert_int_equal(clock_fast_ns(), kernel_ns);
	assert_int_equal(rate, UINT64_C(1) << 32); /* 20 ms in 20 million cycles */
}

static void a_counter_of_no_constant_rate_is_not_used(void **state)
{
	static const unsigned bits[] = { 7, 9, 32, 99 };

	for (unsigned i = 0; i < ARRAY_SIZE(bits); i++) {
		reset(state);
		invariant_bit = bits[i];
		for (unsigned n = 1; n < 20; n++) {
			pass(MS, 2 * MS);
			assert_int_equal(clock_fast_ns(), kernel_ns);
			assert_int_equal(kernel_reads, n);
		}
		assert_int_equal(rate, 1);
	}
}

static void *second(void *arg)
{
	*(uint64_t *)arg = clock_fast_ns();
	return NULL;
}

/* The first reading is one thread's; another one finds it or leaves it alone. */
static void one_thread_takes_the_first_reading(void **state)
{
	uint64_t got;
	pthread_t t;

	clock_fast_ns();
	assert_int_equal(rate_claimed, 1);
	rate_from_ns = 0; /* claimed and not written yet */
	pass(MS, MS);
	assert_int_equal(pthread_create(&t, NULL, second, &got), 0);
	pthread_join(t, NULL);
	assert_int_equal(got, kernel_ns);
	assert_int_equal(rate_from_ns, 0);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(another_source_replaces_both_clocks, reset),
		cmocka_unit_test_setup(clocks_are_the_kernels, reset),
		cmocka_unit_test_setup(a_sleep_goes_on_after_signals, reset),
#if defined(__x86_64__)
		cmocka_unit_test_setup(the_real_clock_is_read_until_the_rate_is_known, reset),
		cmocka_unit_test_setup(the_counter_bridges_four_million_cycles, reset),
		cmocka_unit_test_setup(time_does_not_go_back, reset),
		cmocka_unit_test_setup(an_interrupted_pair_is_no_base, reset),
		cmocka_unit_test_setup(an_interrupted_pair_does_not_begin_the_rate, reset),
		cmocka_unit_test_setup(a_counter_that_went_back_gives_no_rate, reset),
		cmocka_unit_test_setup(a_counter_of_no_constant_rate_is_not_used, reset),
		cmocka_unit_test_setup(one_thread_takes_the_first_reading, reset),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
