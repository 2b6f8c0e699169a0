/* Announced requests to the nanosecond: what may be announced, when leases rise and the kernel goes
 * ahead, when an announcement is met or wrong, and what leases follow. */
#include "clocked.h"

#include <errno.h>

static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

static struct {
	unsigned leases, warms;
	uint64_t until_ns;
} gpu;

static void lease(void *dev, uint32_t g, uint64_t until_ns)
{
	gpu.leases++;
	gpu.until_ns = until_ns;
}

static void warm(void *dev, uint32_t g)
{
	gpu.warms++;
}

static void announcing(struct clocked *c)
{
	memset(&gpu, 0, sizeof(gpu));
	clocked_init(c, GBPF_CLASS_LATENCY);
	c->ops.lease = lease;
	c->ops.warm = warm;
	POLICY_USE(&c->r, 1, always_go);
}

static uint64_t follow(struct clocked *c, uint64_t at)
{
	clocked_now = at;
	return sched_announce_step(c->r.s, at);
}

static void the_edges_of_what_may_be_announced(void **state)
{
	uint64_t now;
	struct clocked c;

	announcing(&c);
	now = clocked_now;
	assert_int_equal(sched_announce(c.r.s, 0, now - 1 * MS - 1, 0), -EINVAL);
	assert_int_equal(sched_announce(c.r.s, 0, now - 1 * MS, 0), 0);
	assert_int_equal(c.r.own.gpu[0].next_ns, now); /* counts as now */
	assert_int_equal(sched_announce(c.r.s, 0, now + 10 * SECOND + 1, 0), -EINVAL);
	assert_int_equal(sched_announce(c.r.s, 0, now + 10 * SECOND, now + 10 * SECOND - 1),
			 -EINVAL);
	assert_int_equal(sched_announce(c.r.s, 0, now + 10 * SECOND, now + 10 * SECOND), 0);
	assert_int_equal(c.r.own.gpu[0].deadline_ns, now + 10 * SECOND);
	assert_int_equal(sched_announce(c.r.s, 16, now, 0), -EINVAL);
	assert_int_equal(sched_announce(c.r.s, 15, now + 5, 0), 0);
	assert_int_equal(c.r.own.gpu[15].next_ns, now + 5);
	assert_int_equal(c.r.stats.hints, 3);
	assert_int_equal(c.r.s->req[0].announced, 2);
	c.r.s->req[0].ann.mute_ns = now + 1;
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), -EAGAIN);
	c.r.s->req[0].ann.mute_ns = now;
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), 0);
	sched_set_off(c.r.s, true);
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), -EPERM);
	sched_set_off(c.r.s, false);
	sched_set_class(c.r.s, GBPF_CLASS_BATCH, 1);
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), -EPERM);
	c.r.s->latency_queues = 1;
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), 0);
	sched_after_fork_child(c.r.s);
	assert_int_equal(sched_announce(c.r.s, 0, now, 0), -EPERM);
	clocked_finish(&c);
}

static void an_announcement_wakes_the_agent(void **state)
{
	struct clocked c;

	announcing(&c);
	c.r.s->agent.asleep = SCHED_AGENT_NEAR;
	assert_false(sched_announce_pending(c.r.s));
	assert_int_equal(sched_announce(c.r.s, 15, clocked_now + SECOND, 0), 0);
	assert_true(sched_announce_pending(c.r.s));
	assert_int_equal(c.r.wakes, 1);
	(void)follow(&c, clocked_now);
	assert_false(sched_announce_pending(c.r.s));
	clocked_finish(&c);
}

static void leads_are_10_ms_at_most(void **state)
{
	struct clocked c;

	announcing(&c);
	sched_set_lead(c.r.s, 10 * MS + 1, 10 * MS + 1);
	assert_int_equal(c.r.s->announce.lead_ns, 10 * MS);
	assert_int_equal(c.r.s->announce.warm_ns, 10 * MS);
	sched_set_lead(c.r.s, 10 * MS - 1, 5);
	assert_int_equal(c.r.s->announce.lead_ns, 10 * MS - 1);
	assert_int_equal(c.r.s->announce.warm_ns, 5);
	sched_set_lead(c.r.s, SCHED_LEAD_AUTO, 0);
	assert_true(c.r.s->announce.lead_ns == SCHED_LEAD_AUTO);
	clocked_finish(&c);
}

/* The whole course of one that does not come: sleep until the lead, until the kernel, until it is
 * late, and then it is wrong. */
static void the_course_of_an_announced_request(void **state)
{
	uint64_t at;
	struct clocked c;

	announcing(&c);
	at = clocked_now + 10 * MS;
	assert_int_equal(sched_announce(c.r.s, 0, at, 0), 0);
	assert_int_equal(follow(&c, at - 10 * MS), 10 * MS - 300 * US);
	assert_int_equal(follow(&c, at - 300 * US - 1), 1);
	assert_int_equal(gpu.leases, 0);
	assert_int_equal(follow(&c, at - 300 * US), 100 * US);
	assert_int_equal(gpu.leases, 1);
	assert_int_equal(gpu.until_ns, at - 300 * US + 20 * MS);
	assert_int_equal(c.r.s->req[0].ann.since_ns, at - 300 * US);
	assert_int_equal(follow(&c, at - 200 * US - 1), 1);
	assert_int_equal(gpu.warms, 0);
	assert_int_equal(follow(&c, at - 200 * US), 5 * MS); /* renewing comes first */
	assert_int_equal(gpu.warms, 1);
	assert_int_equal(follow(&c, at + 1 * MS), 4 * MS + 1);
	assert_int_equal(gpu.warms, 1);
	assert_int_equal(follow(&c, at + 5 * MS), 1); /* not late yet */
	assert_int_equal(c.r.stats.wrong_hints, 0);
	assert_int_equal(follow(&c, at + 5 * MS + 1), UINT64_MAX);
	assert_int_equal(c.r.stats.wrong_hints, 1);
	assert_int_equal(gpu.until_ns, 0);
	assert_int_equal(c.r.own.gpu[0].next_ns, 0);
	assert_int_equal(c.r.s->req[0].next_ns, 0);
	assert_int_equal(c.r.s->req[0].ahead, 0);
	assert_int_equal(c.r.s->req[0].ann.since_ns, 0);
	assert_int_equal(c.r.s->req[0].ann.wrong, 1);
	clocked_finish(&c);
}

/* A later time than the lead after the leases went up counts, too: they are up for lead and
 * lateness at most. */
static void leases_are_not_up_longer_than_lead_and_lateness(void **state)
{
	uint64_t at, up;
	struct clocked c;

	announcing(&c);
	at = clocked_now + 300 * US;
	assert_int_equal(sched_announce(c.r.s, 0, at, 0), 0);
	up = clocked_now;
	(void)follow(&c, up);
	assert_int_equal(sched_announce(c.r.s, 0, up + 5 * MS, 0), 0); /* put off, just in time */
	(void)follow(&c, up + 4 * MS + 800 * US);
	assert_int_equal(c.r.stats.wrong_hints, 0);
	(void)follow(&c, up + 5300 * US);
	assert_int_equal(c.r.stats.wrong_hints, 0);
	(void)follow(&c, up + 5300 * US + 1);
	assert_int_equal(c.r.stats.wrong_hints, 1);
	clocked_finish(&c);
}

static void when_an_opening_is_the_announced_one(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t at;
		struct clocked c;

		announcing(&c);
		at = clocked_now + 1 * MS;
		assert_int_equal(sched_announce(c.r.s, 0, at, at + 9), 0);
		c.r.s->req[0].ann.wrong = 2;
		clocked_now = at - 300 * US - i; /* within the lead, or not */
		(void)go(c.q, &c.fq, &c.l);
		assert_int_equal(c.r.s->req[0].next_ns, i ? at : 0);
		assert_int_equal(c.r.s->req[0].deadline_ns, i ? 0 : at + 9);
		assert_int_equal(c.r.s->req[0].ann.wrong, i ? 2 : 0);
		assert_int_equal(c.r.own.gpu[0].next_ns, i ? at : 0);
		(void)follow(&c, at - 1);
		assert_int_equal(c.r.s->req[0].next_ns, i ? at : 0);
		(void)follow(&c, at); /* it is still open then: this is the one */
		assert_int_equal(c.r.s->req[0].next_ns, 0);
		assert_int_equal(c.r.s->req[0].deadline_ns, at + 9);
		assert_int_equal(c.r.stats.wrong_hints, 0);
		clocked_finish(&c);
	}
}

static void no_kernel_goes_ahead_where_it_does_not_help(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		uint64_t at;
		struct clocked c;

		announcing(&c);
		at = clocked_now + 200 * US;
		if (i == 1) {
			sched_set_lane(c.r.s, GBPF_LANE_SHARED);
		} else if (i == 2) {
			sched_set_lead(c.r.s, SCHED_LEAD_AUTO, 0);
		} else if (i == 3) {
			c.r.dir.version[0] = 0; /* no policy: no other process makes way */
		} else if (i == 4) {
			c.r.s->req[0].open = SCHED_REQUEST_OPEN; /* it is on the hardware */
		} else if (i == 5) {
			c.ops.warm = NULL;
		}
		assert_int_equal(sched_announce(c.r.s, 0, at, 0), 0);
		(void)follow(&c, at - 100 * US);
		assert_int_equal(gpu.warms, i == 0);
		(void)follow(&c, at - 50 * US);
		assert_int_equal(gpu.warms, i == 0); /* once */
		c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
		clocked_finish(&c);
	}
	{
		uint64_t at;
		struct clocked c;

		announcing(&c);
		at = clocked_now;
		assert_int_equal(sched_announce(c.r.s, 0, at, 0), 0);
		(void)follow(&c, at); /* too late for it */
		assert_int_equal(gpu.warms, 0);
		clocked_finish(&c);
	}
}

static void a_period_announces_the_next_opening(void **state)
{
	uint64_t opened;
	struct clocked c;

	announcing(&c);
	sched_set_rhythm(c.r.s, SCHED_RHYTHM_PERIOD, 20 * MS);
	opened = clocked_now;
	(void)go(c.q, &c.fq, &c.l);
	c.r.s->req[0].ann.mute_ns = opened + 1;
	(void)follow(&c, opened);
	assert_int_equal(c.r.stats.hints, 0); /* announcements are ignored */
	c.r.s->req[0].ann.mute_ns = opened;
	c.r.s->req[0].ann.opened_ns = 0;
	(void)follow(&c, opened);
	assert_int_equal(c.r.stats.hints, 1);
	assert_int_equal(c.r.own.gpu[0].next_ns, opened + 20 * MS);
	assert_int_equal(c.r.s->req[0].late_ns, 5 * MS);
	(void)follow(&c, opened + 1); /* each opening counts once */
	assert_int_equal(c.r.stats.hints, 1);
	c.r.s->req[0].ann.opened_ns = 0;
	(void)follow(&c, opened + 2); /* and one announcement is enough */
	assert_int_equal(c.r.stats.hints, 1);
	c.r.s->req[0].next_ns = 0;
	c.r.s->req[0].ann.opened_ns = 0;
	(void)follow(&c, opened + 20 * MS); /* over already */
	assert_int_equal(c.r.stats.hints, 1);
	sched_set_rhythm(c.r.s, SCHED_RHYTHM_OFF, 20 * MS);
	c.r.s->req[0].ann.opened_ns = 0;
	(void)follow(&c, opened + 3);
	assert_int_equal(c.r.stats.hints, 1);
	c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
	clocked_finish(&c);
}

/* ---- leases ---- */

static void leases_follow_the_request_and_the_policy(void **state)
{
	struct clocked c;

	announcing(&c);
	assert_true(sched_lease_allowed(c.r.s, 0));
	c.r.dir.version[0] = 0;
	assert_false(sched_lease_allowed(c.r.s, 0));
	c.r.dir.version[0] = 1;
	c.r.dir.off = 1;
	assert_false(sched_lease_allowed(c.r.s, 0));
	c.r.dir.off = 0;
	c.r.s->policy.off = 1;
	assert_false(sched_lease_allowed(c.r.s, 0));
	c.r.s->policy.off = 0;
	c.r.s->policy.gpu[0].index = PROTO_MAX_GPUS;
	assert_false(sched_lease_allowed(c.r.s, 0));
	c.r.s->policy.gpu[0].index = 0;

	sched_lease_step(c.r.s, 0, clocked_now);
	sched_lease_update(c.r.s, 0, clocked_now);
	assert_int_equal(gpu.leases, 0);
	c.r.s->req[0].open = SCHED_REQUEST_OPEN; /* a policy came while it was open */
	sched_lease_step(c.r.s, 0, clocked_now);
	assert_int_equal(gpu.until_ns, clocked_now + 20 * MS);
	sched_lease_step(c.r.s, 0, clocked_now + 5 * MS);
	assert_int_equal(gpu.leases, 1);
	sched_lease_step(c.r.s, 0, clocked_now + 5 * MS + 1);
	assert_int_equal(gpu.leases, 2);
	c.r.s->req[0].open = SCHED_REQUEST_TIMED_OUT;
	sched_lease_step(c.r.s, 0, clocked_now + 6 * MS);
	assert_int_equal(gpu.until_ns, 0);
	assert_int_equal(c.r.s->req[0].lease_ns, 0);
	sched_lease_step(c.r.s, 0, clocked_now + 7 * MS);
	assert_int_equal(gpu.leases, 3);
	c.r.s->req[0].open = SCHED_REQUEST_OPEN;
	c.r.dir.version[0] = 0;
	sched_lease_raise(c.r.s, 0, clocked_now);
	assert_int_equal(gpu.leases, 3);
	c.r.dir.version[0] = 1;
	sched_lease_raise(c.r.s, 0, clocked_now);
	assert_int_equal(gpu.leases, 4);
	sched_set_off(c.r.s, true); /* falls at once */
	assert_int_equal(gpu.leases, 5);
	assert_int_equal(gpu.until_ns, 0);
	c.ops.lease = NULL;
	sched_lease_raise(c.r.s, 0, clocked_now);
	sched_lease_update(c.r.s, 0, clocked_now);
	sched_lease_step(c.r.s, 0, clocked_now);
	c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_edges_of_what_may_be_announced),
		cmocka_unit_test(an_announcement_wakes_the_agent),
		cmocka_unit_test(leads_are_10_ms_at_most),
		cmocka_unit_test(the_course_of_an_announced_request),
		cmocka_unit_test(leases_are_not_up_longer_than_lead_and_lateness),
		cmocka_unit_test(when_an_opening_is_the_announced_one),
		cmocka_unit_test(no_kernel_goes_ahead_where_it_does_not_help),
		cmocka_unit_test(a_period_announces_the_next_opening),
		cmocka_unit_test(leases_follow_the_request_and_the_policy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
