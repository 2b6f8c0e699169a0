/* Budgets of tools and the timing of launches, on a model of a program: launches of one shape that
 * take a time, a form that adds to it, and timing that costs 10 us a launch. The files under test
 * are those that choose, time and learn; the driver and its events are the model's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_rate.h"
#include "shim/probe/probe_timer.h"

#define GAP_NS 2000u  /* delay of a stream by an event */
#define HOST_NS 6000u /* calls that time a launch; with two events 10 us */
#define COST_NS (HOST_NS + 2 * GAP_NS)

struct cuabi_slots shim_real;
struct cuabi_table shim_driver;
uint64_t shim_probe_generation = 1;
struct strmap shim_probe_kernels;

static struct shim_probe_kernel kernel;
static struct shim_probe_form form;
static struct shim_probe_timer timer;
static bool has_timer; /* the model's one timer is free */

void shim_probe_thread_wake(void)
{
}

void shim_probe_timer_lock(void)
{
}

bool shim_probe_timer_trylock(void)
{
	return true;
}

void shim_probe_timer_unlock(void)
{
}

struct shim_probe_timer *shim_probe_timer_take(CUcontext ctx)
{
	return has_timer ? &timer : NULL;
}

void shim_probe_timer_begin(struct shim_probe_timer *t, CUstream stream, uint64_t start_ns)
{
}

void shim_probe_timer_gap(CUcontext ctx, CUstream stream)
{
	shim_probe_rate_note_gap(GAP_NS);
}

/* ---- the model ---- */

struct model {
	uint32_t launch_ns, extra_ppm, budget_ppm;
};

struct figures {
	double plain_ns, extra_ns, timing_ns; /* of launches without, of the form, of the timing */
	uint32_t timed;
};

static void begin(const struct model *m)
{
	memset(&kernel, 0, sizeof(kernel));
	memset(&form, 0, sizeof(form));
	form.budget_ppm = m->budget_ppm;
	kernel.form = &form;
	kernel.seen = shim_probe_generation;
	has_timer = true;
	shim_probe_rate_forget();
	shim_probe_mix_init(&kernel.mix);
	srand(7);
}

/* What the events around a launch show: some launches are disturbed. */
static uint32_t between_events(uint32_t ns)
{
	uint32_t noise = ns / 50 ? (uint32_t)rand() % (ns / 50 + 1) : 0;

	return ns + GAP_NS + noise + (rand() % 20 == 0 ? 30000 : 0);
}

static void launch(const struct model *m, struct figures *f)
{
	static const uint32_t dims[SHIM_PROBE_DIMS] = { 64, 1, 1, 256, 1, 1, 0 };
	uint32_t extra = (uint32_t)((uint64_t)m->launch_ns * m->extra_ppm / 1000000), ns;
	struct shim_probe_shape *s;
	bool probed = shim_probe_mix_choose(&kernel, &form, dims, &s);
	struct shim_probe_timer *t = shim_probe_mix_begin(&kernel, &form, probed, dims, s, NULL);

	ns = m->launch_ns + (probed ? extra : 0);
	f->plain_ns += m->launch_ns;
	f->extra_ns += probed ? extra : 0;
	if (t) {
		f->timed++;
		f->timing_ns += COST_NS;
		/* a first call now and then, or a thread that was preempted */
		shim_probe_rate_note_host(HOST_NS + (rand() % 10 == 0 ? 1000000 : 0));
		shim_probe_mix_note(t, between_events(ns));
	}
}

static struct figures launches(const struct model *m, uint32_t n)
{
	struct figures f = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		launch(m, &f);
	}
	return f;
}

static const uint32_t durations[] = { 2000, 4000, 20000, 100000, 1000000, 10000000 };
static const uint32_t budgets[] = { 10000, 30000, 100000 };

/* ---- tests ---- */

static void timing_costs_a_tenth_of_the_budget_at_most(void **state)
{
	for (unsigned d = 0; d < ARRAY_SIZE(durations); d++) {
		for (unsigned b = 0; b < ARRAY_SIZE(budgets); b++) {
			struct model m = { durations[d], 300000, budgets[b] };
			struct figures f;
			double part;

			begin(&m);
			(void)launches(&m, 100000); /* the first launches are timed at once */
			f = launches(&m, 1000000);
			part = f.timing_ns / f.plain_ns * 1e6;
			print_message("%8u ns, budget %6u ppm: timing %6.0f ppm, %u timed\n",
				      m.launch_ns, m.budget_ppm, part, f.timed);
			assert_true(part <= m.budget_ppm / 10 * 1.05);
			assert_true(f.timed >= 2);
		}
	}
}

static void budget_holds_with_the_timing(void **state)
{
	for (unsigned d = 0; d < ARRAY_SIZE(durations); d++) {
		for (unsigned b = 0; b < ARRAY_SIZE(budgets); b++) {
			struct model m = { durations[d], 300000, budgets[b] };
			struct figures f;
			double all;

			begin(&m);
			(void)launches(&m, 200000);
			f = launches(&m, 1000000);
			all = (f.extra_ns + f.timing_ns) / f.plain_ns * 1e6;
			print_message("%8u ns, budget %6u ppm: %6.0f ppm in all\n", m.launch_ns,
				      m.budget_ppm, all);
			assert_true(all <= m.budget_ppm * 1.1); /* what the noise of times allows */
			assert_true(all >= m.budget_ppm * 0.4); /* and the tool runs */
		}
	}
}

/* A kernel whose cost changes is measured again in as many launches as the interval says. */
static void estimate_follows(void **state)
{
	struct model m = { 100000, 300000, 30000 };
	struct figures f;

	begin(&m);
	f = launches(&m, 100);
	assert_in_range(f.timed, 16, 24); /* starts at once */
	(void)launches(&m, 10000);
	m.extra_ppm = 1200000;
	(void)launches(&m, 64 * 64);
	f = launches(&m, 10000);
	assert_true(f.extra_ns / f.plain_ns <= 0.033);
	assert_true(f.extra_ns / f.plain_ns >= 0.015);
}

static void interval_is_a_power_of_two_in_its_bounds(void **state)
{
	shim_probe_rate_forget();
	assert_int_equal(shim_probe_rate_every(1, 1), SHIM_PROBE_EVERY_MIN); /* nothing is known */
	shim_probe_rate_note_host(UINT32_MAX);
	shim_probe_rate_note_gap(UINT32_MAX);
	assert_int_equal(shim_probe_rate_cost(), UINT32_MAX);
	assert_int_equal(shim_probe_rate_every(0, 1), SHIM_PROBE_EVERY_MAX);
	assert_int_equal(shim_probe_rate_every(1, UINT32_MAX), SHIM_PROBE_EVERY_MAX);
	assert_true(shim_probe_rate_ppm(0, 0) > 1000000);
	shim_probe_rate_forget();
	shim_probe_rate_note_host(10000);
	assert_int_equal(shim_probe_rate_every(10000000, 30000), SHIM_PROBE_EVERY_MIN);
	assert_int_equal(shim_probe_rate_every(UINT32_MAX, UINT32_MAX), SHIM_PROBE_EVERY_MIN);
	/* 2 x 10 us in at least 1667 launches of 4 us is 0.3 % at most */
	assert_int_equal(shim_probe_rate_every(4000, 30000), 2048);
	assert_int_equal(shim_probe_rate_every(4000, 0), 8192); /* as for a budget of 1 % */
}

static void median_of_a_ring(void **state)
{
	uint32_t ns[SHIM_PROBE_RATE_SAMPLES] = { 5, 1, 9 };

	assert_int_equal(shim_probe_median(ns, 0), 0);
	assert_int_equal(shim_probe_median(ns, 1), 5);
	assert_int_equal(shim_probe_median(ns, 3), 5);
	for (unsigned i = 0; i < SHIM_PROBE_RATE_SAMPLES; i++) {
		ns[i] = SHIM_PROBE_RATE_SAMPLES - i;
	}
	assert_int_equal(shim_probe_median(ns, 1000), SHIM_PROBE_RATE_SAMPLES / 2 + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timing_costs_a_tenth_of_the_budget_at_most),
		cmocka_unit_test(budget_holds_with_the_timing),
		cmocka_unit_test(estimate_follows),
		cmocka_unit_test(interval_is_a_power_of_two_in_its_bounds),
		cmocka_unit_test(median_of_a_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
