/* The agent's step: how deep it sleeps, what wakes it, what arrives while it falls asleep, and what
 * it does on the way: time slices, lines that programs print, announcements to the nanosecond. */
#include "clocked.h"

#include <errno.h>
#include <stdio.h>

/* ---- how deep it sleeps ---- */

static void a_wake_reaches_the_depths_that_it_is_meant_for(void **state)
{
	for (uint32_t asleep = SCHED_AGENT_AWAKE; asleep <= SCHED_AGENT_ASLEEP; asleep++) {
		for (uint32_t depth = SCHED_AGENT_NEAR; depth <= SCHED_AGENT_ASLEEP; depth++) {
			struct clocked c;

			clocked_init(&c, GBPF_CLASS_BATCH);
			c.r.s->agent.asleep = asleep;
			sched_wake_agent(c.r.s, depth);
			assert_int_equal(c.r.wakes, asleep >= depth);
			sched_wake_agent(c.r.s, depth); /* once */
			assert_int_equal(c.r.wakes, asleep >= depth);
			c.r.s->cfg.wake_agent = NULL;
			c.r.s->agent.asleep = SCHED_AGENT_ASLEEP;
			sched_wake_agent(c.r.s, depth);
			assert_int_equal(c.r.s->agent.asleep, SCHED_AGENT_AWAKE);
			clocked_finish(&c);
		}
	}
}

static void the_shorter_the_sleep_the_lighter(void **state)
{
	static const struct {
		uint64_t age, sleep;
		uint32_t depth;
	} cases[] = {
		{ 0, 40 * US, SCHED_AGENT_AWAKE },
		{ 2560 * US + 64, 40 * US + 1, SCHED_AGENT_NEAR },
		{ 64 * MS, 1 * MS, SCHED_AGENT_NEAR },
	};
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	assert_int_equal(clocked_step(&c, 0), UINT64_MAX);
	assert_int_equal(c.r.s->agent.asleep, SCHED_AGENT_ASLEEP);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t now = 3000 * SECOND;

		clocked_now = now;
		c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
		c.r.s->req[0].close = (struct sched_request_close){ .turn = 0 };
		(void)go(c.q, &c.fq, &c.l);
		clocked_now = now + cases[i].age;
		assert_int_equal(clocked_step(&c, 0), cases[i].sleep);
		assert_int_equal(c.r.s->agent.asleep, cases[i].depth);
	}
	clocked_finish(&c);
	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_tally_add(&c.q->total, SCHED_ACC(1, 0)); /* work on the device */
	assert_int_equal(clocked_step(&c, 5 * MS), 5 * MS);
	assert_int_equal(c.r.s->agent.asleep, SCHED_AGENT_SLOW);
	sched_after_fork_child(c.r.s);
	assert_int_equal(clocked_step(&c, 5 * MS), UINT64_MAX);
	clocked_finish(&c);
}

/* ---- what arrives meanwhile ---- */

static struct sched *meanwhile;
static enum { NOTHING, OPENED, ANNOUNCED, DEFERRED, RUN_BEGAN, LAUNCHED } arrives;

static void arrive(void)
{
	struct sched *s = meanwhile;

	if (arrives == OPENED) {
		s->req[7].open = SCHED_REQUEST_OPEN;
		s->req[7].opened_ns = clocked_now;
	} else if (arrives == ANNOUNCED) {
		s->req[15].announced++;
	} else if (arrives == DEFERRED) {
		s->defer_seq++;
	} else if (arrives == RUN_BEGAN) {
		s->n_runs = 1;
	} else if (arrives == LAUNCHED) {
		sched_tally_add(&s->inflight, SCHED_ACC(1, 0));
	}
}

static int arrive_on_idle_query(void *dev, void *dev_queue)
{
	arrive();
	return 0; /* busy: the agent comes again in 5 ms */
}

static void arrive_on_note(void *arg, const char *what, const char *text)
{
	arrive();
}

static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

/* The agent looks for work once more after it has said how deep it sleeps. */
static void work_that_arrives_during_the_step_keeps_it_awake(void **state)
{
	static const struct {
		int what;
		bool from_slow, from_deepest; /* keeps it from that depth */
	} cases[] = {
		{ NOTHING, false, false }, { OPENED, true, true },    { ANNOUNCED, true, true },
		{ DEFERRED, true, true },  { RUN_BEGAN, true, true }, { LAUNCHED, false, true },
	};

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		bool deep = i % 2, kept;
		struct clocked c;
		uint64_t ns;

		clocked_init(&c, GBPF_CLASS_BATCH);
		meanwhile = c.r.s;
		arrives = cases[i / 2].what;
		kept = deep ? cases[i / 2].from_deepest : cases[i / 2].from_slow;
		if (deep) { /* no work: it would sleep until it is woken */
			POLICY_USE(&c.r, 1, always_go);
			c.r.s->cfg.note = arrive_on_note;
			(void)ebpf_print(&c.r.s->policy.prepared[0].policy.env.prints, "x", 2, NULL,
					 0);
		} else {
			c.ops.queue_idle = arrive_on_idle_query;
			sched_tally_add(&c.q->total, SCHED_ACC(1, 0));
		}
		ns = clocked_step(&c, 5 * MS);
		assert_int_equal(ns, kept ? 40 * US : deep ? UINT64_MAX : 5 * MS);
		assert_int_equal(c.r.s->agent.asleep, kept   ? SCHED_AGENT_AWAKE
						      : deep ? SCHED_AGENT_ASLEEP
							     : SCHED_AGENT_SLOW);
		c.r.s->n_runs = 0;
		clocked_finish(&c);
	}
}

/* A run and plain launches do not matter to an agent that is back soon. */
static void a_light_sleep_is_left_for_little(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	meanwhile = c.r.s;
	c.ops.queue_idle = arrive_on_idle_query;
	(void)go(c.q, &c.fq, &c.l);
	clocked_now += 64 * MS;
	arrives = RUN_BEGAN;
	assert_int_equal(clocked_step(&c, 0), 1 * MS);
	c.r.s->n_runs = 0;
	arrives = LAUNCHED;
	assert_int_equal(clocked_step(&c, 0), 1 * MS);
	arrives = DEFERRED;
	assert_int_equal(clocked_step(&c, 0), 40 * US);
	clocked_finish(&c);
}

/* ---- statistics ---- */

static void statistics_are_published_once_a_millisecond(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	(void)clocked_step(&c, 0);
	(void)go(c.q, &c.fq, &c.l);
	(void)clocked_step(&c, 1 * MS - 1);
	assert_int_equal(c.r.stats.launches, 0);
	(void)clocked_step(&c, 1);
	assert_int_equal(c.r.stats.launches, 1);
	assert_int_equal(c.r.s->agent.last_stats_ns, clocked_now);
	(void)go(c.q, &c.fq, &c.l);
	(void)clocked_step(&c, 40 * US);
	assert_int_equal(c.r.stats.launches, 1);
	(void)clocked_step(&c, 1 * MS);
	assert_int_equal(c.r.stats.launches, 2);
	clocked_finish(&c);
	/* and before each longer sleep */
	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_update_active(c.r.s);
	(void)clocked_step(&c, 0);
	c.r.stats.inflight = 99;
	(void)clocked_step(&c, 1);
	assert_int_equal(c.r.stats.inflight, 0);
	clocked_finish(&c);
}

static void kernels_are_published_every_200_ms(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now), UINT64_MAX);
	assert_string_equal(c.r.stats.kernel[0].name, "k");
	c.k->count = 5;
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now + 50 * MS), 150 * MS + 1);
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now + 200 * MS), 1);
	assert_int_equal(c.r.stats.kernel[0].count, 0);
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now + 200 * MS + 1), UINT64_MAX);
	assert_int_equal(c.r.stats.kernel[0].count, 5);
	clocked_finish(&c);
}

static void work_in_flight_is_shown(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	sched_tally_add(&c.r.s->inflight, SCHED_ACC(3, 4800));
	c.r.s->submit_calls = 6;
	(void)sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.inflight, 3);
	assert_int_equal(c.r.stats.inflight_ns, 4800);
	assert_int_equal(c.r.stats.submit_calls, 6);
	(void)sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.submit_calls, 6);
	clocked_finish(&c);
}

/* ---- lines that programs print ---- */

static struct {
	unsigned n;
	char what[16], text[300];
} note;

static void take_note(void *arg, const char *what, const char *text)
{
	note.n++;
	snprintf(note.what, sizeof(note.what), "%s", what);
	snprintf(note.text, sizeof(note.text), "%s", text);
}

static void printed_lines_reach_gbpfd_with_their_version(void **state)
{
	struct ebpf_prints *prints;
	struct clocked c;

	memset(&note, 0, sizeof(note));
	clocked_init(&c, GBPF_CLASS_BATCH);
	c.r.s->cfg.note = take_note;
	POLICY_USE(&c.r, 6, always_go);
	prints = &c.r.s->policy.prepared[0].policy.env.prints;
	clocked_now = 1000 * SECOND + 300 * MS;
	(void)sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(note.n, 0);
	(void)ebpf_print(prints, "hello", 6, NULL, 0);
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now) > 0, 1);
	assert_int_equal(note.n, 1);
	assert_string_equal(note.what, "print");
	assert_string_equal(note.text, "version 6: hello");
	for (unsigned i = 0; i < EBPF_PRINT_LINES + 3; i++) { /* three find the ring full */
		(void)ebpf_print(prints, "again", 6, NULL, 0);
	}
	/* 16 a second: one waits for the next */
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now),
			 200 * MS + 1 - 0 > 700 * MS ? 0 : 200 * MS + 1);
	assert_int_equal(note.n, 16);
	c.r.s->agent.last_kernels_ns = 0;
	assert_int_equal(sched_stats_publish(c.r.s, clocked_now), 700 * MS);
	assert_int_equal(note.n, 16);
	(void)sched_stats_publish(c.r.s, clocked_now + 700 * MS);
	assert_int_equal(note.n, 17);
	for (unsigned i = 0; i < EBPF_PRINT_LINES + 3; i++) {
		(void)ebpf_print(prints, "more", 5, NULL, 0);
	}
	note.n = 0;
	c.r.s->cfg.note = NULL; /* nobody listens: they are gone all the same */
	(void)sched_stats_publish(c.r.s, clocked_now + 1700 * MS);
	c.r.s->cfg.note = take_note;
	for (unsigned i = 0; i < EBPF_PRINT_LINES + 2; i++) {
		(void)ebpf_print(prints, "last", 5, NULL, 0);
	}
	for (unsigned i = 1; i < EBPF_PRINT_LINES; i++) {
		char text[EBPF_PRINT_TEXT];

		(void)ebpf_prints_take(prints, text);
	}
	(void)sched_stats_publish(c.r.s, clocked_now + 2700 * MS);
	assert_int_equal(note.n, 1);
	assert_string_equal(note.text, "version 6: last (2 lines left out)");
	clocked_finish(&c);
}

/* ---- time slices ---- */

static struct {
	unsigned n;
	uint32_t gpu, us;
	int answer;
} slice;

static int set_slice(void *dev, uint32_t gpu, uint32_t slice_us)
{
	slice.n++;
	slice.gpu = gpu;
	slice.us = slice_us;
	return slice.answer;
}

static void a_wanted_slice_is_set_once(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	c.ops.slice = set_slice;
	memset(&slice, 0, sizeof(slice));
	c.r.s->slice_wanted[15] = 1 + 300;
	(void)clocked_step(&c, 0);
	(void)clocked_step(&c, 0);
	assert_int_equal(slice.n, 1);
	assert_int_equal(slice.gpu, 15);
	assert_int_equal(slice.us, 300);
	assert_int_equal(c.r.notes, 0);
	slice.answer = -EPERM;
	c.r.s->slice_wanted[0] = 1; /* the device's default */
	(void)clocked_step(&c, 0);
	assert_int_equal(slice.n, 2);
	assert_int_equal(slice.us, 0);
	assert_int_equal(c.r.notes, 1);
	c.ops.slice = NULL;
	c.r.s->slice_wanted[0] = 1;
	clocked_now += 2 * SECOND;
	(void)clocked_step(&c, 0);
	assert_int_equal(c.r.s->slice_wanted[0], 0);
	assert_int_equal(c.r.notes, 1);
	clocked_finish(&c);
}

/* ---- announcements ---- */

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
			c.r.dir.version[0] = 0; /* no policy: nobody makes way */
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
		cmocka_unit_test(a_wake_reaches_the_depths_that_it_is_meant_for),
		cmocka_unit_test(the_shorter_the_sleep_the_lighter),
		cmocka_unit_test(work_that_arrives_during_the_step_keeps_it_awake),
		cmocka_unit_test(a_light_sleep_is_left_for_little),
		cmocka_unit_test(statistics_are_published_once_a_millisecond),
		cmocka_unit_test(kernels_are_published_every_200_ms),
		cmocka_unit_test(work_in_flight_is_shown),
		cmocka_unit_test(printed_lines_reach_gbpfd_with_their_version),
		cmocka_unit_test(a_wanted_slice_is_set_once),
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
