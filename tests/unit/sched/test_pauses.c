/* The close delay that is learned from the pauses between launches. */
#include "open_rig.h"

/* A pause of that length between two launches. */
static void pause_of(struct clocked *c, uint64_t ns)
{
	(void)go(c->q, &c->fq, &c->l);
	fake_finish(&c->fq);
	sched_synced(c->r.s, c->q);
	clocked_now += ns;
}

static uint64_t learned(uint32_t lane, uint64_t pause_ns)
{
	uint64_t gap;
	struct clocked c;

	init(&c);
	sched_set_lane(c.r.s, lane);
	for (unsigned i = 0; i < 4; i++) {
		pause_of(&c, pause_ns);
		assert_int_equal(c.r.s->req[0].gap_ns, 0); /* four are needed */
	}
	pause_of(&c, pause_ns);
	gap = c.r.s->req[0].gap_ns;
	clocked_finish(&c);
	return gap;
}

/* Waiting must cost less than a request that is closed too early: 600 us where contexts are
 * switched, 100 us where they share the GPU. */
static void the_close_delay_is_learned_from_pauses(void **state)
{
	assert_int_equal(learned(GBPF_LANE_PROCESS, 400 * US), 453 * US);
	assert_int_equal(learned(GBPF_LANE_PROCESS, 600 * US), 0);
	assert_int_equal(learned(GBPF_LANE_SHARED, 70 * US), 80 * US);
	assert_int_equal(learned(GBPF_LANE_SHARED, 110 * US), 0);
}

static void the_close_delay_is_sought_again_every_eighth_pause(void **state)
{
	struct clocked c;

	init(&c);
	sched_set_lane(c.r.s, GBPF_LANE_PROCESS);
	for (unsigned i = 0; i < 5; i++) {
		pause_of(&c, i < 4 ? 10 * US : 300 * US);
	}
	assert_int_equal(c.r.s->req[0].gap_ns, 10 * US);
	for (unsigned i = 0; i < 3; i++) {
		pause_of(&c, 300 * US);
		assert_int_equal(c.r.s->req[0].gap_ns, 10 * US);
	}
	pause_of(&c, 300 * US); /* the eighth is over */
	assert_int_equal(c.r.s->req[0].gap_ns, 320 * US);
	clocked_finish(&c);
}

static void a_pause_begins_at_its_first_report(void **state)
{
	struct clocked c;

	init(&c);
	sched_request_idle(&c.r.s->req[0], 500);
	sched_request_idle(&c.r.s->req[0], 600);
	assert_int_equal(c.r.s->req[0].idle_ns, 500);
	sched_request_gap(c.r.s, 0, 500 + 10 * US);
	assert_int_equal(c.r.s->req[0].idle_ns, 0);
	assert_int_equal(c.r.s->req[0].gaps.total, 1);
	sched_request_gap(c.r.s, 0, 500 + 20 * US); /* no pause */
	assert_int_equal(c.r.s->req[0].gaps.total, 1);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_close_delay_is_learned_from_pauses),
		cmocka_unit_test(the_close_delay_is_sought_again_every_eighth_pause),
		cmocka_unit_test(a_pause_begins_at_its_first_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
