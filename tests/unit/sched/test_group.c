/* Groups: a rank that is behind goes on, the others wait while the policy of one holds it, and none
 * of it lasts longer than its limit. */
#include "clocked.h"

/* The policy's verdict is the launch's `bytes`; a hold is for as long as `threads` says, in ns. */
static const struct ebpf_insn as_told[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(threads)),
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 2),
	I_LDX(EBPF_DW, 0, 1, SUBMIT(bytes)),
	I_EXIT,
};

struct group {
	struct clocked c;
	struct sched_launch collective;
	struct proto_board peer; /* of a rank on GPU 1 */
};

static void group_init(struct group *g, uint32_t class_id)
{
	memset(&g->peer, 0, sizeof(g->peer));
	clocked_init(&g->c, class_id);
	g->collective = kernel_launch(
		sched_kernel_get(g->c.r.s, "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
	g->c.l.threads = MS;
	POLICY_USE(&g->c.r, 1, as_told);
	g->peer.ranks = 2;
	assert_int_equal(sched_board_add(g->c.r.s, SCHED_BOARD_PEER, 5, 7, &g->peer), 0);
}

static void group_finish(struct group *g)
{
	assert_true(sched_board_remove(g->c.r.s, SCHED_BOARD_PEER, 5));
	clocked_finish(&g->c);
}

/* Launches n collectives in both ranks. */
static void collectives(struct group *g, unsigned n)
{
	while (n--) {
		assert_int_equal(go(g->c.q, &g->c.fq, &g->collective), SCHED_GO);
		g->peer.gpu[1].collectives++;
		fake_finish(&g->c.fq);
		clocked_step(&g->c, MS);
	}
}

/* Returns the verdict about a launch about which the policy answers `wanted`. */
static struct sched_decision ask(struct group *g, uint32_t wanted)
{
	struct sched_decision a;

	g->c.l.bytes = wanted;
	sched_decide(g->c.q, &g->c.l, clocked_now, 0, 0, &a);
	return a;
}

static void collectives_are_counted_from_the_first_launch(void **state)
{
	struct clocked c;
	struct sched_launch l;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_true(sched_idle(c.r.s));
	assert_int_equal(go(c.q, &c.fq, &c.l), SCHED_GO);
	assert_false(sched_may_communicate(c.r.s));
	assert_int_equal(c.r.own.ranks, 0);
	sched_will_communicate(c.r.s);
	sched_will_communicate(c.r.s);
	assert_false(sched_idle(c.r.s)); /* so that the shim asks about each launch */
	assert_int_equal(c.r.wakes, 1);	 /* the agent reports it */
	l = kernel_launch(sched_kernel_get(c.r.s, "ncclKernel_AllGather"));
	assert_int_equal(go(c.q, &c.fq, &l), SCHED_GO);
	assert_true(sched_may_communicate(c.r.s));
	assert_int_equal(c.r.own.ranks, 1);
	assert_int_equal(c.r.own.gpu[0].collectives, 1);
	POLICY_USE(&c.r, 1, as_told);
	assert_int_equal(go(c.q, &c.fq, &l), SCHED_GO);
	assert_int_equal(go(c.q, &c.fq, &c.l), SCHED_GO);
	assert_int_equal(c.r.own.gpu[0].collectives, 2);
	assert_int_equal(ticket_begin(c.q, &l), SCHED_GO);
	assert_int_equal(c.r.own.gpu[0].collectives, 3); /* before the driver has it */
	ticket_end(false);
	assert_int_equal(c.r.own.gpu[0].collectives, 2);
	clocked_finish(&c);
}

static void a_hold_by_the_policy_stops_the_group(void **state)
{
	struct group g;
	uint32_t seq;

	group_init(&g, GBPF_CLASS_BATCH);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD); /* no rank yet */
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	collectives(&g, 1);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, clocked_now + 3 * MS);
	clocked_now += 2 * MS;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, clocked_now + 3 * MS);
	seq = g.c.r.own.gpu[0].seq;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	assert_int_equal(g.c.r.own.gpu[0].seq, seq + 1);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(g.c.r.own.gpu[0].seq, seq + 1);
	group_finish(&g);
}

static void a_launch_of_another_queue_does_not_end_the_stop(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *other;
	struct sched_decision a;
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	other = sched_queue_open(g.c.r.s, &fq, 0, 0);
	collectives(&g, 1);
	(void)ask(&g, GBPF_HOLD);
	g.c.l.bytes = GBPF_GO;
	sched_decide(other, &g.c.l, clocked_now, 0, 0, &a);
	assert_int_equal(a.verdict, GBPF_GO);
	assert_true(g.c.r.own.gpu[0].stop_until_ns > clocked_now);
	group_finish(&g);
}

static void own_work_in_flight_is_no_reason_to_stop_the_group(void **state)
{
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 1);
	g.c.l.bytes = GBPF_GO;
	assert_int_equal(go(g.c.q, &g.c.fq, &g.c.l), SCHED_GO);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	g.peer.gpu[1].collectives++;
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD); /* nothing is stopped */
	g.peer.gpu[1].stop_until_ns = clocked_now + MS;
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_GO); /* the others wait for it */
	fake_finish(&g.c.fq);
	clocked_step(&g.c, 0);
	group_finish(&g);
}

static void a_rank_waits_while_another_one_is_held(void **state)
{
	struct sched_decision a;
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 2);
	g.peer.gpu[1].seq = 41;
	g.peer.gpu[1].stop_until_ns = clocked_now + 3 * MS;
	a = ask(&g, GBPF_HOLD);
	assert_int_equal(a.verdict, GBPF_HOLD);
	assert_int_equal(a.hold_ns, 3 * MS);
	assert_ptr_equal(a.word, &g.peer.gpu[1].seq);
	assert_int_equal(a.seq, 41);
	assert_int_equal(sched_hold_why(&a), PROTO_WHY_GROUP);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0); /* its policy was not asked */
	assert_false(sched_group_goes(g.c.q, clocked_now, &a));
	clocked_now += 3 * MS; /* the other one is stopped: its time is over */
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	g.peer.gpu[1].stop_until_ns = clocked_now + 3 * MS;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	g.peer.owner = PROTO_OWNER_DIED;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	g.peer.owner = 0;
	g.c.l.may_hold = false; /* during a capture */
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD); /* which goes */
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	group_finish(&g);
}

static void a_rank_that_is_behind_goes_on(void **state)
{
	struct sched_decision a;
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 2);
	g.peer.gpu[1].stop_until_ns = clocked_now + SECOND;
	g.peer.gpu[1].collectives++;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	assert_true(g.c.r.own.gpu[0].stop_until_ns > clocked_now); /* and the others wait for it */
	assert_int_equal(go(g.c.q, &g.c.fq, &g.collective), SCHED_GO);
	g.peer.gpu[1].stop_until_ns = 0;
	a = ask(&g, GBPF_DEFER);
	assert_int_equal(a.verdict, GBPF_DEFER);
	assert_false(sched_group_goes(g.c.q, clocked_now, &a));
	g.peer.gpu[1].collectives++; /* overtaken before the stop was seen */
	assert_true(sched_group_goes(g.c.q, clocked_now, &a));
	group_finish(&g);
}

/* It would delay the request. */
static void an_open_request_stops_the_rank_alone(void **state)
{
	struct sched_decision a;
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 1);
	g.peer.gpu[1].collectives++;
	other_opens(&g.c.r);
	a = ask(&g, GBPF_HOLD);
	assert_int_equal(a.verdict, GBPF_HOLD);
	assert_false(sched_group_goes(g.c.q, clocked_now, &a));
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	g.c.r.dir.led = 1;
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD);
	g.c.r.dir.led = 0;
	g.peer.gpu[1].stop_until_ns = clocked_now + MS;
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD);
	other_closes(&g.c.r);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_GO); /* behind, as always */
	group_finish(&g);
}

/* A rank whose counts never agree is held as if it were alone. */
static void being_behind_excuses_for_a_while(void **state)
{
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 1);
	g.peer.gpu[1].collectives++;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
		clocked_now += MS;
	}
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	clocked_now += MS;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	g.peer.gpu[1].stop_until_ns = clocked_now + MS;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD); /* nor for the stop of another one */
	g.peer.gpu[1].stop_until_ns = 0;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);	/* no stop is left: */
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO); /* the next one */
	g.peer.gpu[1].collectives = g.c.r.own.gpu[0].collectives + 64;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	g.peer.gpu[1].collectives++;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	g.peer.gpu[1].collectives = 0;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	group_finish(&g);
}

static void launches_of_latency_queues_do_not_wait(void **state)
{
	struct group g;

	group_init(&g, GBPF_CLASS_LATENCY);
	collectives(&g, 1);
	g.peer.gpu[1].stop_until_ns = clocked_now + 3 * MS;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	group_finish(&g);
}

/* A process with two GPUs is two ranks. */
static void ranks_of_one_process_see_each_other(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *second;
	struct sched_decision a;
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	second = sched_queue_open(g.c.r.s, &fq, 1, 0);
	collectives(&g, 1);
	g.peer.ranks = 0;
	g.c.r.dir.version[1] = 1;
	assert_int_equal(go(second, &fq, &g.collective), SCHED_GO);
	assert_int_equal(g.c.r.own.ranks, 3);
	fake_finish(&fq);
	assert_int_equal(go(g.c.q, &g.c.fq, &g.collective), SCHED_GO);
	fake_finish(&g.c.fq);
	clocked_step(&g.c, 0);
	g.c.l.bytes = GBPF_DEFER;
	sched_decide(second, &g.c.l, clocked_now, 0, 0, &a);
	assert_int_equal(a.verdict, GBPF_GO); /* it is behind */
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	assert_int_equal(go(second, &fq, &g.collective), SCHED_GO);
	fake_finish(&fq);
	clocked_step(&g.c, 0);
	g.c.l.bytes = GBPF_DEFER;
	sched_decide(second, &g.c.l, clocked_now, 0, 0, &a);
	assert_int_equal(a.verdict, GBPF_DEFER);
	group_finish(&g);
}

/* ---- collective_phase ---- */

#define PHASE(field) offsetof(struct gbpf_collective_phase_ctx, field)

/* What the program of collective_phase has seen, and what it answers, in the tenant's map. */
struct seen {
	uint64_t number, waited_ns, phase, ranks, ready, kernel, calls;
	uint64_t hold_ns, verdict;
};

static const struct ebpf_insn phase_as_told[] = {
	I_VALUE(6, 1, 0),
	I_LDX(EBPF_DW, 2, 1, PHASE(number)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, number), 2),
	I_LDX(EBPF_DW, 2, 1, PHASE(waited_ns)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, waited_ns), 2),
	I_LDX(EBPF_W, 2, 1, PHASE(phase)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, phase), 2),
	I_LDX(EBPF_W, 2, 1, PHASE(ranks)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, ranks), 2),
	I_LDX(EBPF_W, 2, 1, PHASE(ready)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, ready), 2),
	I_LDX(EBPF_DW, 2, 1, PHASE(kernel)),
	I_STX(EBPF_DW, 6, offsetof(struct seen, kernel), 2),
	I_MOV(2, 1),
	I_ATOMIC_ADD(6, offsetof(struct seen, calls), 2),
	I_LDX(EBPF_DW, 2, 6, offsetof(struct seen, hold_ns)),
	I_STX(EBPF_DW, 1, PHASE(hold_ns), 2),
	I_LDX(EBPF_DW, 0, 6, offsetof(struct seen, verdict)),
	I_EXIT,
};

static struct seen *phase_init(struct group *g, struct regions *maps, uint32_t class_id)
{
	const struct prog progs[] = { PROG(submit, as_told),
				      PROG(collective_phase, phase_as_told) };

	group_init(g, class_id);
	regions_make(maps);
	/* Each has a marker behind it. */
	*sched_estimate_of(g->c.r.s, &g->collective) = (struct sched_estimate){
		.est_ns = MS, .interval = 256, .left = 1u << 30, .seen = 9
	};
	assert_int_equal(rig_policy_prepare(&g->c.r, 2, progs, 2, maps), 0);
	store_release(&g->c.r.dir.version[0], UINT64_C(2));
	return (struct seen *)(void *)maps->tenant;
}

static void phase_finish(struct group *g, struct regions *maps)
{
	group_finish(g);
	regions_free(maps);
}

/* The peer launches its next collective. */
static void peer_launches(struct group *g)
{
	uint64_t number = ++g->peer.gpu[1].collectives;

	g->peer.launched_ns[1][number % PROTO_COLLECTIVES] = clocked_now;
}

static void launch_collective(struct group *g)
{
	assert_int_equal(go(g->c.q, &g->c.fq, &g->collective), SCHED_GO);
}

static void end_collectives(struct group *g)
{
	fake_finish(&g->c.fq);
	clocked_step(&g->c, 0);
}

static void a_policy_learns_of_the_phases(void **state)
{
	struct regions maps;
	struct seen *seen;
	struct group g;

	seen = phase_init(&g, &maps, GBPF_CLASS_BATCH);
	launch_collective(&g);
	assert_int_equal(seen->calls, 1);
	assert_int_equal(seen->number, 1);
	assert_int_equal(seen->phase, GBPF_PHASE_BEGIN);
	assert_int_equal(seen->kernel, g.collective.kernel->hash);
	assert_int_equal(seen->ranks, 2);
	assert_int_equal(seen->ready, 1);
	assert_int_equal(seen->waited_ns, 0);
	/* The peer comes 3 ms later. */
	clocked_now += 3 * MS;
	peer_launches(&g);
	clocked_now += MS;
	end_collectives(&g);
	assert_int_equal(seen->calls, 2);
	assert_int_equal(seen->number, 1);
	assert_int_equal(seen->phase, GBPF_PHASE_END);
	assert_int_equal(seen->kernel, 0);
	assert_int_equal(seen->ready, 2);
	assert_int_equal(seen->waited_ns, 3 * MS);
	/* It comes first. */
	peer_launches(&g);
	clocked_now += 2 * MS;
	launch_collective(&g);
	assert_int_equal(seen->number, 2);
	assert_int_equal(seen->ready, 2);
	assert_int_equal(seen->waited_ns, 2 * MS);
	end_collectives(&g);
	assert_int_equal(seen->phase, GBPF_PHASE_END);
	assert_int_equal(seen->waited_ns, 0);
	/* Several end together. */
	launch_collective(&g);
	launch_collective(&g);
	assert_int_equal(seen->calls, 6);
	end_collectives(&g);
	assert_int_equal(seen->calls, 7);
	assert_int_equal(seen->number, 4);
	/* One that the driver refuses has no end, and its number is the next one's. */
	assert_int_equal(ticket_begin(g.c.q, &g.collective), SCHED_GO);
	assert_int_equal(seen->number, 5);
	ticket_end(false);
	end_collectives(&g);
	assert_int_equal(seen->phase, GBPF_PHASE_BEGIN);
	launch_collective(&g);
	assert_int_equal(seen->number, 5);
	/* Nor has one an end that the driver does not have yet. */
	assert_int_equal(ticket_begin(g.c.q, &g.collective), SCHED_GO);
	clocked_now += 2 * MS;
	end_collectives(&g);
	assert_int_equal(seen->number, 5);
	assert_int_equal(seen->phase, GBPF_PHASE_END);
	fake_launch(&g.c.fq, 0);
	ticket_end(true);
	end_collectives(&g);
	assert_int_equal(seen->number, 6);
	assert_int_equal(seen->phase, GBPF_PHASE_END);
	seen->calls = 7;
	/* Other launches have no phases, and what has ended is not reported again. */
	assert_int_equal(go(g.c.q, &g.c.fq, &g.c.l), SCHED_GO);
	end_collectives(&g);
	assert_int_equal(seen->calls, 7);
	phase_finish(&g, &maps);
}

/* A rank that is far ahead, one whose times have been overwritten, one on this GPU, a dead one. */
static void ranks_count_that_have_launched_it(void **state)
{
	struct regions maps;
	struct seen *seen;
	struct group g;

	seen = phase_init(&g, &maps, GBPF_CLASS_BATCH);
	for (unsigned i = 0; i < 17; i++) {
		peer_launches(&g);
	}
	clocked_now += MS;
	launch_collective(&g);
	assert_int_equal(seen->ready, 2);
	assert_int_equal(seen->waited_ns, 0); /* the place of number 1 is that of 17, */
	launch_collective(&g);
	assert_int_equal(seen->waited_ns, 0); /* and that of 2 may be 18's by now */
	launch_collective(&g);
	assert_int_equal(seen->number, 3);
	assert_int_equal(seen->waited_ns, MS);
	g.peer.launched_ns[1][4] = clocked_now + SECOND; /* false */
	launch_collective(&g);
	assert_int_equal(seen->waited_ns, 0);
	g.peer.gpu[1].collectives = 5 + 64;
	launch_collective(&g);
	assert_int_equal(seen->ranks, 2);
	assert_int_equal(seen->ready, 1);
	g.peer.ranks = 1;
	launch_collective(&g);
	assert_int_equal(seen->ranks, 1);
	g.peer.ranks = 2;
	g.peer.owner = PROTO_OWNER_DIED;
	launch_collective(&g);
	assert_int_equal(seen->ranks, 1);
	end_collectives(&g);
	phase_finish(&g, &maps);
}

static void a_boost_lasts_until_the_end(void **state)
{
	struct regions maps;
	struct seen *seen;
	struct group g;

	seen = phase_init(&g, &maps, GBPF_CLASS_BATCH);
	seen->verdict = GBPF_COLLECTIVE_BOOST;
	launch_collective(&g);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	g.peer.gpu[1].stop_until_ns = clocked_now + MS;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD); /* the group's stop counts */
	g.peer.gpu[1].stop_until_ns = 0;
	end_collectives(&g);
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	/* Not beyond the hold limit, where it does not end; */
	launch_collective(&g);
	clocked_now += g.c.r.s->limit_ns - 1;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	clocked_now += 1;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	end_collectives(&g);
	/* nor where the driver refuses it. */
	assert_int_equal(ticket_begin(g.c.q, &g.collective), SCHED_GO);
	ticket_end(false);
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	phase_finish(&g, &maps);
}

static void a_hold_at_a_phase_stops_the_group(void **state)
{
	struct regions maps;
	struct seen *seen;
	struct group g;

	seen = phase_init(&g, &maps, GBPF_CLASS_BATCH);
	seen->verdict = GBPF_COLLECTIVE_HOLD;
	seen->hold_ns = 5 * MS;
	peer_launches(&g);
	launch_collective(&g);
	assert_int_equal(g.c.r.own.gpu[0].hold_until_ns, clocked_now + 5 * MS);
	assert_int_equal(sched_hold_why(&(struct sched_decision){ .group = true }),
			 PROTO_WHY_GROUP);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	peer_launches(&g); /* it has not seen the stop: this one follows */
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	seen->verdict = GBPF_COLLECTIVE_GO;
	launch_collective(&g);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	clocked_now += 5 * MS - 1;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	clocked_now += 1;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	clocked_now += MS;
	/* At the end of one, too, and at most for the hold limit. */
	seen->verdict = GBPF_COLLECTIVE_HOLD;
	seen->hold_ns = 3600 * SECOND;
	end_collectives(&g);
	assert_int_equal(seen->phase, GBPF_PHASE_END);
	assert_int_equal(g.c.r.own.gpu[0].hold_until_ns, clocked_now + g.c.r.s->limit_ns);
	clocked_now += 2 * g.c.r.s->limit_ns;
	/* Nor longer than its version is in force. */
	launch_collective(&g);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD);
	POLICY_USE(&g.c.r, 3, as_told);
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	assert_int_equal(g.c.r.own.gpu[0].hold_until_ns, 0);
	store_release(&g.c.r.dir.version[0], UINT64_C(2));
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_GO);
	/* It leaves the minimum share. */
	clocked_now += 2 * g.c.r.s->limit_ns;
	store_relaxed(&g.c.r.s->share_ppm, 500000u);
	seen->hold_ns = 4 * MS;
	launch_collective(&g);
	assert_int_equal(g.c.r.own.gpu[0].hold_until_ns, clocked_now + 4 * MS);
	clocked_now += 6 * MS - 1;
	launch_collective(&g);
	assert_true(g.c.r.own.gpu[0].hold_until_ns <= clocked_now);
	clocked_now += 1;
	launch_collective(&g);
	assert_int_equal(g.c.r.own.gpu[0].hold_until_ns, clocked_now + 4 * MS);
	clocked_now += 6 * MS;
	/* A led GPU's policy stops nothing, nor do launches of latency queues. */
	g.c.r.dir.led = 1;
	launch_collective(&g);
	assert_true(g.c.r.own.gpu[0].hold_until_ns <= clocked_now);
	g.c.r.dir.led = 0;
	store_relaxed(&g.c.q->class_id, GBPF_CLASS_LATENCY);
	launch_collective(&g);
	assert_true(g.c.r.own.gpu[0].hold_until_ns <= clocked_now);
	store_relaxed(&g.c.q->class_id, GBPF_CLASS_BATCH);
	/* A verdict out of range is GO. */
	seen->verdict = 3;
	launch_collective(&g);
	assert_true(g.c.r.own.gpu[0].hold_until_ns <= clocked_now);
	assert_int_equal(g.c.r.stats.verdict_errors, 1);
	end_collectives(&g);
	phase_finish(&g, &maps);
}

static void the_policy_of_a_gpu_that_is_led_stops_nothing(void **state)
{
	struct group g;

	group_init(&g, GBPF_CLASS_BATCH);
	collectives(&g, 1);
	g.c.r.dir.led = 1;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_GO);
	assert_int_equal(g.c.r.own.gpu[0].stop_until_ns, 0);
	g.peer.gpu[1].stop_until_ns = clocked_now + 3 * MS;
	assert_int_equal(ask(&g, GBPF_GO).verdict, GBPF_HOLD); /* the leader's does */
	g.peer.gpu[1].stop_until_ns = 0;
	g.c.l.bytes = GBPF_GO;
	assert_int_equal(go(g.c.q, &g.c.fq, &g.c.l), SCHED_GO);
	assert_int_equal(ask(&g, GBPF_HOLD).verdict, GBPF_HOLD); /* its own work in flight */
	g.c.r.dir.led = 2;
	assert_int_equal(ask(&g, GBPF_DEFER).verdict, GBPF_DEFER);
	fake_finish(&g.c.fq);
	group_finish(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives_are_counted_from_the_first_launch),
		cmocka_unit_test(a_hold_by_the_policy_stops_the_group),
		cmocka_unit_test(a_launch_of_another_queue_does_not_end_the_stop),
		cmocka_unit_test(own_work_in_flight_is_no_reason_to_stop_the_group),
		cmocka_unit_test(a_rank_waits_while_another_one_is_held),
		cmocka_unit_test(a_rank_that_is_behind_goes_on),
		cmocka_unit_test(an_open_request_stops_the_rank_alone),
		cmocka_unit_test(being_behind_excuses_for_a_while),
		cmocka_unit_test(launches_of_latency_queues_do_not_wait),
		cmocka_unit_test(ranks_of_one_process_see_each_other),
		cmocka_unit_test(the_policy_of_a_gpu_that_is_led_stops_nothing),
		cmocka_unit_test(a_policy_learns_of_the_phases),
		cmocka_unit_test(ranks_count_that_have_launched_it),
		cmocka_unit_test(a_boost_lasts_until_the_end),
		cmocka_unit_test(a_hold_at_a_phase_stops_the_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
