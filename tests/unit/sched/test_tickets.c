/* The answers of sched_ticket_begin, and what a ticket holds and gives back with each. */
#include "run_device.h"

static const struct ebpf_insn at_block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};
static const struct ebpf_insn always_hold[] = { I_MOV(0, GBPF_HOLD), I_EXIT };

/* Nothing is taken: neither gate nor lock, nor a place in the accounts. */
static void expect_no_trace(struct clocked *c)
{
	assert_null(policy_reader_self->gate);
	assert_true(lock_try(&c->q->issue.lock));
	lock_release(&c->q->issue.lock);
	assert_int_equal(c->q->entered, sched_tally_sum(&c->q->left));
	assert_int_equal(sched_tally_sum(&c->q->total), 0);
	assert_int_equal(sched_inflight(c->r.s), 0);
	assert_int_equal(c->q->run.draining, 0);
}

static void expect_nothing_held(struct clocked *c)
{
	assert_int_equal(ticket.holds, SCHED_HOLDS_NOTHING);
	assert_int_equal(ticket.phase, SCHED_PHASE_PLAIN);
	expect_no_trace(c);
}

static void while_nothing_is_to_decide_nothing_is_done(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	c.l.version = c.l.held_ns = 9;
	c.l.level = 9;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(c.l.version | c.l.held_ns | c.l.level, 0);
	assert_int_equal(c.l.begin_ns, 0);
	ticket_end(true);
	expect_nothing_held(&c);
	assert_int_equal(c.k->count, 0);
	c.l.behind = true; /* but never before what it is ordered behind */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	assert_int_equal(c.l.begin_ns, clocked_now);
	expect_nothing_held(&c);
	clocked_finish(&c);
}

static void a_launch_that_goes_is_at_the_gate_until_its_end(void **state)
{
	struct clocked c;

	run_device_init(&c);
	clocked_know(&c, 1600);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(ticket.holds, SCHED_HOLDS_GATE);
	assert_ptr_equal(policy_reader_self->gate, c.q);
	assert_int_equal(c.l.version, 1);
	assert_int_equal(c.l.est_ns, 1600);
	assert_int_equal(c.l.begin_ns, clocked_now);
	assert_int_equal(sched_tally_sum(&c.q->total), SCHED_ACC(1, 1600));
	assert_int_equal(sched_inflight(c.r.s), SCHED_ACC(1, 1600));
	ticket_end(false);
	expect_no_trace(&c);
	run_device_finish(&c);
}

static void the_duration_of_a_block_is_derived(void **state)
{
	static const struct {
		uint64_t est_ns, blocks;
		uint32_t resident;
		uint64_t block_ns;
	} cases[] = {
		{ 1000, 100, 10, 100 }, { 1000, 100, 100, 1000 }, { 1000, 100, 101, 1000 },
		{ 1000, 7, 2, 285 },	{ 1000, 0, 5, 0 },	  { 0, 100, 5, 0 },
		{ 1000, 100, 0, 0 },
	};

	enum { GOES, BEHIND_ANOTHER_QUEUE, BEHIND_ITS_OWN, WAYS };

	for (unsigned i = 0; i < WAYS * ARRAY_SIZE(cases); i++) {
		unsigned way = i % WAYS, at = i / WAYS;
		struct clocked c;

		run_device_init(&c);
		c.l.blocks = cases[at].blocks;
		c.l.resident = cases[at].resident;
		c.l.block_ok = true;
		c.l.behind = way == BEHIND_ANOTHER_QUEUE;
		c.q->pending = way == BEHIND_ITS_OWN;
		clocked_know(&c, cases[at].est_ns);
		c.k->block_ns = 77;
		assert_int_equal(ticket_begin(c.q, &c.l), way == GOES ? SCHED_GO : SCHED_DEFER);
		assert_int_equal(c.l.block_ns, cases[at].block_ns);
		assert_int_equal(c.k->block_ns, cases[at].block_ns ? cases[at].block_ns : 77);
		if (way == GOES) {
			ticket_end(false);
		}
		c.q->pending = 0;
		run_device_finish(&c);
	}
}

/* ---- behind what the queue has ---- */

static void launches_are_deferred_behind_deferred_calls(void **state)
{
	struct clocked c;

	run_device_init(&c);
	c.q->pending = 1;
	c.l.block_ok = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	expect_nothing_held(&c);
	c.q->class_id = GBPF_CLASS_LATENCY; /* and open no request then */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	expect_nothing_held(&c);
	assert_int_equal(c.r.own.gpu[0].open, 0);
	c.q->pending = 0;
	run_device_finish(&c);
}

static void launches_behind_a_run_go_with_it_or_after_it(void **state)
{
	struct clocked c;

	run_device_init(&c);
	run_device_begin(&c);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER); /* it cannot be stopped */
	expect_nothing_held(&c);
	c.l.block_ok = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER); /* the policy says no level */
	expect_nothing_held(&c);
	POLICY_USE(&c.r, 2, at_block_level);
	run_device.progress.full = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	expect_nothing_held(&c);
	run_device.progress.full = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	assert_int_equal(ticket.holds, SCHED_HOLDS_LOCK);
	assert_null(policy_reader_self->gate);
	assert_false(lock_try(&c.q->issue.lock));
	assert_int_equal(c.l.level, GBPF_LEVEL_BLOCK);
	assert_int_equal(c.r.stats.block_launches, 1);
	ticket_end(false);
	expect_no_trace(&c);
	assert_int_equal(c.q->pending, SCHED_HAS_RUN);
	run_device.busy = 0; /* the run is through: it is ended on the way */
	c.l.block_ok = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(c.q->pending, 0);
	ticket_end(false);
	run_device_finish(&c);
}

static void a_first_launch_at_block_level_begins_a_run(void **state)
{
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, at_block_level);
	(void)go(c.q, &c.fq, &c.l);
	fake_finish(&c.fq);
	clocked_now += 5 * MS;
	(void)sched_agent_step(c.r.s);
	c.l.block_ok = true;
	c.l.unprepared = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_PREPARE);
	assert_int_equal(ticket.holds, SCHED_HOLDS_NOTHING);
	assert_int_equal(c.q->pending, 0);
	c.l.unprepared = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	assert_int_equal(c.q->pending, SCHED_HAS_RUN);
	ticket_end(false); /* refused: the run without a launch is over */
	assert_int_equal(c.q->pending, 0);
	assert_int_equal(c.r.s->n_runs, 0);
	c.q->guests = 1; /* another thread is at the gate: no run, but under the lock */
	c.q->shared = 1;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(ticket.holds, SCHED_HOLDS_LOCK);
	assert_int_equal(c.l.level, 0);
	ticket_end(false);
	c.q->guests = 0;
	run_device_finish(&c);
}

/* With its gate off a launch is plain, unless it must be ordered behind the missing blocks of
 * launches before it: then it joins their run, and asks for no lease. */
static void a_launch_with_the_gate_off_joins_a_run_but_begins_none(void **state)
{
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, at_block_level);
	store_relaxed(&sched_estimate_of(c.r.s, &c.l)->est_ns, UINT64_C(100000));
	c.l.block_ok = true;
	c.l.stop = GBPF_STOP_MACHINE_CODE;
	c.l.resident = 2; /* of 100 blocks: 2 us each */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(c.l.level, 0);
	assert_int_equal(c.l.gate_mode, 0);
	assert_int_equal(c.q->pending, 0);
	ticket_end(false);
	c.l.resident = 50; /* 50 us each */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	assert_int_equal(c.l.gate_mode, GBPF_GATE_FLAG_FIRST);
	run_device.busy = 1;
	ticket_end(true);
	c.l.resident = 2;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	assert_int_equal(c.l.level, GBPF_LEVEL_BLOCK);
	assert_int_equal(c.l.gate_mode, GBPF_GATE_OFF);
	ticket_end(true);
	run_device.busy = 0;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(c.l.gate_mode, 0);
	assert_int_equal(c.q->pending, 0);
	ticket_end(false);
	run_device_finish(&c);
}

static const struct ebpf_insn splits[] = {
	I_ST(EBPF_W, 1, SUBMIT(split_blocks), 12),
	I_MOV(0, GBPF_SPLIT),
	I_EXIT,
};
static const struct ebpf_insn names_pieces_only[] = {
	I_ST(EBPF_W, 1, SUBMIT(split_blocks), 12),
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

/* SPLIT is GO at block level in pieces; it needs a launch that can be stopped. */
static void pieces_are_those_of_a_split(void **state)
{
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, splits);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	ticket_end(false);
	assert_int_equal(c.r.stats.verdict_errors, 1);
	assert_int_equal(c.l.piece_blocks, 0);
	c.l.block_ok = true;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	ticket_end(false);
	assert_int_equal(c.l.piece_blocks, 12);
	assert_int_equal(c.r.stats.verdict_errors, 1);
	POLICY_USE(&c.r, 3, names_pieces_only);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO_BLOCK);
	ticket_end(false);
	assert_int_equal(c.l.piece_blocks, 0); /* the device's choice */
	run_device_finish(&c);
}

static int drained_runs;

static int run_call(struct sched_call *c)
{
	drained_runs++;
	return 0;
}

static void free_call(struct sched_call *c)
{
}

/* A launch that must not be held waits until what is before it is with the driver. */
static void a_launch_that_must_not_wait_drains_the_queue(void **state)
{
	struct sched_call call = { .run = run_call, .free = free_call };
	struct clocked c;

	run_device_init(&c);
	c.fq.eager = 1;
	drained_runs = 0;
	sched_defer(c.q, &call);
	c.l.may_hold = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(drained_runs, 1);
	assert_int_equal(ticket.holds, SCHED_HOLDS_LOCK);
	assert_int_equal(c.q->run.draining, 0);
	assert_int_equal(c.q->pending, 0);
	ticket_end(false);
	expect_no_trace(&c);
	run_device_finish(&c);
}

/* ---- held ---- */

static void a_hold_beside_latency_queues_is_a_deferral(void **state)
{
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, always_hold);
	c.r.s->latency_queues = 1; /* a thread that blocks may hold a lock that they need */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	expect_nothing_held(&c);
	assert_int_equal(c.r.stats.holds, 0);
	c.r.s->latency_queues = 0;
	run_device_finish(&c);
}

static void a_launch_that_must_not_be_held_goes_and_says_so(void **state)
{
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, always_hold);
	c.l.may_hold = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	ticket_end(false);
	assert_int_equal(c.r.stats.why, PROTO_WHY_COLLECTIVE);
	assert_int_equal(c.r.stats.holds, 0);
	POLICY_USE(&c.r, 3, run_device_go);
	c.r.stats.why = PROTO_WHY_NONE;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO); /* the policy agrees */
	ticket_end(false);
	assert_int_equal(c.r.stats.why, PROTO_WHY_NONE);
	run_device_finish(&c);
}

static void launches_to_a_full_stream_are_deferred_during_a_run(void **state)
{
	struct clocked c;

	run_device_init(&c);
	c.fq.refuse_marks = 1;
	for (unsigned i = 0; i < 192; i++) {
		(void)go(c.q, &c.fq, &c.l);
	}
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	ticket_end(false);
	c.r.s->n_runs = 1; /* of another queue: this one may wait for it */
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_DEFER);
	assert_int_equal(ticket.holds, SCHED_HOLDS_NOTHING);
	c.l.may_hold = false;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	ticket_end(false);
	c.l.may_hold = true;
	c.q->class_id = GBPF_CLASS_LATENCY;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	ticket_end(false);
	c.r.s->n_runs = 0;
	run_device_finish(&c);
}

/* ---- latency queues ---- */

static void a_latency_launch_counts_until_the_driver_has_it(void **state)
{
	struct clocked c;

	run_device_init(&c);
	c.q->class_id = GBPF_CLASS_LATENCY;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(ticket.phase, SCHED_PHASE_LATENCY);
	assert_int_equal(c.q->entered, 1);
	assert_int_equal(sched_tally_sum(&c.q->left), 0);
	assert_int_equal(c.r.own.gpu[0].open, 1);
	assert_int_equal(c.r.own.gpu[0].opened_ns, clocked_now);
	ticket_end(true);
	assert_int_equal(sched_tally_sum(&c.q->left), 1);
	clocked_now += 5 * US;
	(void)go(c.q, &c.fq, &c.l); /* the same request */
	assert_int_equal(c.r.own.gpu[0].opened_ns, clocked_now - 5 * US);
	POLICY_USE(&c.r, 2, at_block_level);
	c.l.block_ok = true;
	c.r.s->agent.asleep = SCHED_AGENT_NEAR;
	c.r.wakes = 0;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO); /* never at block level */
	assert_int_equal(c.r.wakes, 0);
	ticket_end(true);
	c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(c.r.wakes, 1); /* at once: it may take long until its end */
	ticket_end(true);
	run_device_finish(&c);
}

static const struct ebpf_insn out_of_range[] = { I_MOV(0, 99), I_EXIT };

static void an_invalid_verdict_is_reported_once_for_each_launch(void **state)
{
	struct sched_verdict v;
	struct clocked c;

	run_device_init(&c);
	POLICY_USE(&c.r, 2, out_of_range);
	assert_int_equal(go(c.q, &c.fq, &c.l), SCHED_GO);
	assert_int_equal(c.r.stats.verdict_errors, 1);
	assert_int_equal(c.r.stats.helper_errors, 0);
	assert_int_equal(c.r.notes, 1);
	sched_ask(c.q, &c.l, clocked_now, &v);
	assert_true(v.failed);
	assert_int_equal(v.verdict, GBPF_GO);
	assert_int_equal(v.version, 2);
	assert_int_equal(c.r.stats.verdict_errors, 2);
	POLICY_USE(&c.r, 3, always_hold);
	sched_ask(c.q, &c.l, clocked_now, &v);
	assert_false(v.failed);
	assert_int_equal(v.verdict, GBPF_HOLD);
	assert_int_equal(v.hold_ns, 1000000); /* the default */
	assert_int_equal(v.version, 3);
	sched_set_off(c.r.s, true);
	sched_ask(c.q, &c.l, clocked_now, &v);
	assert_int_equal(v.version, 0);
	assert_int_equal(v.verdict, GBPF_GO);
	run_device_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(while_nothing_is_to_decide_nothing_is_done),
		cmocka_unit_test(a_launch_that_goes_is_at_the_gate_until_its_end),
		cmocka_unit_test(the_duration_of_a_block_is_derived),
		cmocka_unit_test(launches_are_deferred_behind_deferred_calls),
		cmocka_unit_test(launches_behind_a_run_go_with_it_or_after_it),
		cmocka_unit_test(a_first_launch_at_block_level_begins_a_run),
		cmocka_unit_test(a_launch_with_the_gate_off_joins_a_run_but_begins_none),
		cmocka_unit_test(pieces_are_those_of_a_split),
		cmocka_unit_test(a_launch_that_must_not_wait_drains_the_queue),
		cmocka_unit_test(a_hold_beside_latency_queues_is_a_deferral),
		cmocka_unit_test(a_launch_that_must_not_be_held_goes_and_says_so),
		cmocka_unit_test(launches_to_a_full_stream_are_deferred_during_a_run),
		cmocka_unit_test(a_latency_launch_counts_until_the_driver_has_it),
		cmocka_unit_test(an_invalid_verdict_is_reported_once_for_each_launch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
