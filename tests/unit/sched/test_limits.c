/* The figures that the documentation promises, as literals: the hold limit, the minimum share and
 * the life of a lease. The other tests use the constants of the code, which a wrong constant would
 * satisfy, too. */
#include "lease_rig.h"

#define LIMIT_NS UINT64_C(100000000)
#define LEASE_NS UINT64_C(20000000)
#define RENEW_NS UINT64_C(5000000)
#define SECOND_NS UINT64_C(1000000000)

static struct sched_launch of_ns(uint64_t ns)
{
	struct sched_launch l = kernel_launch(NULL);

	l.est_ns = ns;
	return l;
}

static void first_hold_ends_at_the_limit_and_not_before(void **state)
{
	static const uint64_t limits[] = { 0, 20000000, LIMIT_NS };
	struct sched_launch l = of_ns(1000);
	struct rig r;

	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t limit = limits[i] ? limits[i] : LIMIT_NS; /* 0: the default */

		rig_init(&r, GBPF_CLASS_BATCH, limits[i], 0);
		assert_int_equal(sched_share_left(r.s, &l, SECOND_NS, SECOND_NS), limit);
		assert_int_equal(sched_share_left(r.s, &l, SECOND_NS, SECOND_NS + limit - 1), 1);
		assert_int_equal(sched_share_left(r.s, &l, SECOND_NS, SECOND_NS + limit), 0);
		rig_finish(&r);
	}
}

/* Returns the device time per million ns that a process gets which is held without a pause. */
static uint64_t starved_ppm(uint32_t share_ppm, uint64_t limit_ns, uint64_t est_ns,
			    uint64_t cost_ns)
{
	uint64_t begin, now = SECOND_NS, used = 0;
	struct sched_launch l = of_ns(est_ns);
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, limit_ns, share_ppm);
	sched_share_take(r.s, &l, now); /* the first launch, forced after the limit */
	for (begin = now; now < begin + 100 * SECOND_NS; used += cost_ns) {
		uint64_t came = now, left;

		while ((left = sched_share_left(r.s, &l, came, now)) != 0) {
			now += left;
		}
		sched_share_take(r.s, &l, now);
	}
	rig_finish(&r);
	return (uint64_t)((double)used * 1e6 / (double)(now - begin));
}

static void held_process_gets_its_minimum_share(void **state)
{
	/* by default 2 %, whatever a launch takes */
	assert_in_range(starved_ppm(0, 0, 1000000, 1000000), 19600, 20000);
	assert_in_range(starved_ppm(0, 0, 30000000, 30000000), 19600, 20000);
	assert_in_range(starved_ppm(100000, 20000000, 1000000, 1000000), 98000, 100000);
	/* a launch of unknown duration: one per limit */
	assert_in_range(starved_ppm(0, 0, 0, 2000000), 19600, 20000);
}

/* Without a further launch for ten limits the hold limit applies again. */
static void starvation_is_forgotten_after_ten_limits(void **state)
{
	struct sched_launch l = of_ns(0);
	uint64_t now = SECOND_NS;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 0, 0);
	sched_share_take(r.s, &l, now);
	now += 10 * LIMIT_NS;
	assert_true(sched_share_left(r.s, &l, now, now) <= LIMIT_NS + 1);
	assert_true(r.s->share.until_ns > now); /* the launch's own cost counts, too */
	now = r.s->share.until_ns;
	assert_true(now <= SECOND_NS + 13 * LIMIT_NS);
	assert_int_equal(sched_share_left(r.s, &l, now, now), LIMIT_NS);
	rig_finish(&r);
}

static void lease_lives_20_ms_and_is_renewed_after_5(void **state)
{
	uint64_t raised;
	struct one o;

	one_init(&o, true);
	go(o.q, &o.fq, &o.l);
	raised = fake_now;
	assert_int_equal(gpu.until_ns, raised + LEASE_NS);
	fake_now = raised + RENEW_NS;
	(void)step(&o);
	assert_int_equal(gpu.until_ns, raised + LEASE_NS); /* three quarters are left */
	fake_now = raised + RENEW_NS + 1;
	(void)step(&o);
	assert_int_equal(gpu.until_ns, fake_now + LEASE_NS);
	for (int i = 0; i < 200; i++) {
		live_until(&o, fake_now + 500000);
		assert_in_range(gpu.until_ns, fake_now + LEASE_NS - 2 * RENEW_NS,
				fake_now + LEASE_NS);
	}
	one_finish(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_hold_ends_at_the_limit_and_not_before),
		cmocka_unit_test(held_process_gets_its_minimum_share),
		cmocka_unit_test(starvation_is_forgotten_after_ten_limits),
		cmocka_unit_test(lease_lives_20_ms_and_is_renewed_after_5),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
