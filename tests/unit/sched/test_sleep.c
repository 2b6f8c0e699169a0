/* The agent's step: how deep it sleeps, what wakes it, what arrives while it falls asleep, and what
 * it does on the way: time slices, statistics, lines that programs print. */
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
		sched_tally_add(&s->gpu[0].inflight, SCHED_ACC(1, 0));
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
	sched_tally_add(&c.r.s->gpu[0].inflight, SCHED_ACC(3, 4800));
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
	c.r.s->cfg.note = NULL; /* without a receiver they are lost */
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
