/* Learned durations, and the account of work in flight. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

#include "sched/sched_int.h"

/* submit: tenant[4] = uid */
static const struct ebpf_insn always_go[] = {
	I_VALUE(2, 1, 0),
	I_LDX(EBPF_W, 3, 1, SUBMIT(uid)),
	I_STX(EBPF_DW, 2, 32, 3),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};
/* retire: tenant[0] += duration_ns; tenant[1] += count; tenant[2] = submit_version; tenant[3] +=
 * flags & MEASURED; tenant[5] = uid */
static const struct ebpf_insn charge[] = {
	I_VALUE(2, 1, 0),
	I_LDX(EBPF_DW, 3, 1, RETIRE(duration_ns)),
	I_ATOMIC_ADD(2, 0, 3),
	I_LDX(EBPF_W, 3, 1, RETIRE(count)),
	I_ATOMIC_ADD(2, 8, 3),
	I_LDX(EBPF_DW, 3, 1, RETIRE(submit_version)),
	I_STX(EBPF_DW, 2, 16, 3),
	I_LDX(EBPF_W, 3, 1, RETIRE(flags)),
	I_ATOMIC_ADD(2, 24, 3),
	I_LDX(EBPF_W, 3, 1, RETIRE(uid)),
	I_STX(EBPF_DW, 2, 40, 3),
	I_MOV(0, 0),
	I_EXIT,
};

struct one {
	struct rig r;
	struct regions m;
	struct fake_queue fq;
	struct sched_queue *q;
	struct sched_kernel *k;
};

static const struct fake_queue *on_device;

/* As if launches came as fast as the device works: no charge is limited by the time that passed. */
static uint64_t device_clock(void)
{
	static uint64_t reads;

	return UINT64_C(1000000000000) + on_device->clock_ns + ++reads;
}

static void one_init(struct one *o)
{
	struct prog p[] = { PROG(submit, always_go), PROG(retire, charge) };

	memset(o, 0, sizeof(*o));
	on_device = &o->fq;
	clock_set_source(device_clock);
	fake_live_markers = 0;
	rig_init(&o->r, GBPF_CLASS_BATCH, 0, 0);
	regions_make(&o->m);
	assert_int_equal(rig_policy_prepare(&o->r, 1, p, 2, &o->m), 0);
	o->r.dir.version[0] = 1;
	o->q = sched_queue_open(o->r.s, &o->fq, 0, 0);
	o->k = sched_kernel_get(o->r.s, "k");
}

static void one_finish(struct one *o)
{
	sched_queue_close(o->q);
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(sched_inflight(o->r.s), 0);
	rig_finish(&o->r);
	regions_free(&o->m);
	clock_set_source(NULL);
}

static void launch(struct one *o, uint64_t ns)
{
	struct sched_launch l = kernel_launch(o->k);

	assert_int_equal(ticket_begin(o->q, &l), SCHED_GO);
	fake_launch(&o->fq, ns);
	ticket_end(true);
}

static uint64_t est(struct one *o)
{
	struct sched_launch l = kernel_launch(o->k);

	return sched_estimate_of(o->r.s, &l)->est_ns;
}

static void durations_are_learned_and_sampling_thins_out(void **state)
{
	uint64_t launches = 2000, marks;
	struct one o;

	one_init(&o);
	launch(&o, 200000);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	assert_int_equal(est(&o), 200000);
	for (uint64_t i = 0; i < launches; i++) {
		launch(&o, 200000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	assert_int_equal(est(&o), 200000);
	marks = o.fq.seq - launches - 1;
	/* One marker for each launch of 200 us; for measured ones, at most one in a hundred, two.
	 */
	assert_true(marks >= launches && marks < launches + launches / 100 + 20);
	for (int i = 0; i < 3000; i++) {
		launch(&o, 400000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	assert_true(est(&o) > 350000 && est(&o) <= 400000);
	for (int i = 0; i < 10; i++) {
		o.k->est[3].left = 0;
		launch(&o, 200000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	assert_true(est(&o) < 210000); /* it falls fast */
	one_finish(&o);
}

/* The driver loads a kernel's code at its first launch, between the two markers. */
static void the_first_measurement_is_replaced(void **state)
{
	struct one o;

	one_init(&o);
	for (unsigned i = 0; i < 3; i++) {
		launch(&o, i ? 40000 : 5000000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	assert_int_equal(est(&o), 40000);
	one_finish(&o);
}

static void short_kernels_get_few_markers(void **state)
{
	struct one o;
	uint64_t before;

	one_init(&o);
	for (int i = 0; i < 100; i++) {
		launch(&o, 2000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	before = o.fq.seq;
	for (int i = 0; i < 1000; i++) {
		launch(&o, 2000);
		fake_finish(&o.fq);
	}
	assert_true(o.fq.seq - before - 1000 <
		    120); /* 2 ms of work, a marker every 250 us, and samples */
	one_finish(&o);
}

/* Every marker takes a place in the hardware queue, and a stalled stream frees none. */
static void a_stalled_stream_gets_few_markers(void **state)
{
	struct one o;
	uint64_t before;

	one_init(&o);
	for (int i = 0; i < 4; i++) {
		launch(&o, 1000000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
	}
	before = o.fq.seq;
	for (int i = 0; i < 700; i++) {
		launch(&o, 1000000);
	}
	assert_true(o.fq.seq - before > 700 && o.fq.seq - before <= 700 + 2 * SCHED_RING);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	one_finish(&o);
}

static void samples_beside_a_request_are_thrown_away(void **state)
{
	struct one o;

	one_init(&o);
	launch(&o, 100000);
	other_opens(&o.r); /* during the launch: the measured time is not the kernel's own */
	other_closes(&o.r);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	assert_int_equal(est(&o), 0);
	launch(&o, 100000);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	assert_int_equal(est(&o), 100000);
	one_finish(&o);
}

static void a_board_that_lies_does_not_keep_others_from_learning(void **state)
{
	static const uint64_t lies[] = { UINT64_MAX, INT64_MAX };

	for (unsigned i = 0; i < 2; i++) {
		struct one o;

		one_init(&o);
		o.r.other.gpu[0].last_end_ns = lies[i];
		o.r.other.gpu[0].opened_ns = lies[1 - i];
		for (unsigned n = 0; n < 2; n++) {
			launch(&o, 100000);
			fake_finish(&o.fq);
			sched_synced(o.r.s, NULL);
		}
		assert_int_equal(est(&o), 100000);
		one_finish(&o);
	}
}

/* ---- launches at block level ---- */

static struct sched_run_progress chain;
static uint64_t chain_asked;

static int chain_busy(void *dev, void *dev_queue)
{
	return chain.done != chain.launched;
}

static uint64_t chain_step(void *dev, void *dev_queue, bool may_run, bool force)
{
	return chain_busy(dev, dev_queue) ? 1000 : UINT64_MAX;
}

static int chain_look_at(void *dev, void *dev_queue, struct sched_run_progress *ret)
{
	*ret = chain;
	return 0;
}

static uint64_t chain_took(void *dev, void *dev_queue, uint64_t launch)
{
	chain_asked = launch;
	return launch <= chain.done ? 3000000 + launch * 1000 : 0;
}

static void launch_in_chain(struct one *o, uint64_t ns)
{
	struct sched_launch l = kernel_launch(o->k);

	l.block_ok = true;
	l.resident = 1;
	assert_int_equal(ticket_begin(o->q, &l), SCHED_GO_BLOCK);
	assert_int_equal(l.level, GBPF_LEVEL_BLOCK);
	chain.launched++;
	fake_launch(&o->fq, ns);
	ticket_end(true);
}

static const struct ebpf_insn block[] = { I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
					  I_MOV(0, GBPF_GO), I_EXIT };

static void begin_chains(struct one *o, struct sched_device_ops *ops)
{
	struct prog p[] = { PROG(submit, block), PROG(retire, charge) };

	one_init(o);
	*ops = fake_ops;
	ops->run_busy = chain_busy;
	ops->run_step = chain_step;
	ops->run_look = chain_look_at;
	ops->run_took = chain_took;
	chain = (struct sched_run_progress){ .launched = 0 };
	chain_asked = 0;
	o->r.s->cfg.device = ops;
	o->r.s->grace_ns = 0;
	store_relaxed(&o->r.s->active_ns, UINT64_C(0));
	assert_int_equal(rig_policy_prepare(&o->r, 2, p, 2, &o->m), 0);
	o->r.dir.version[0] = 2;
}

static void end_chains(struct one *o)
{
	while (sched_queue_deferred(o->q)) {
		(void)sched_agent_step(o->r.s);
	}
	o->r.s->cfg.device = &fake_ops;
	one_finish(o);
}

static void finish_in_chain(struct one *o, uint64_t ns)
{
	launch_in_chain(o, ns);
	fake_finish(&o->fq);
	chain.done = chain.launched;
	sched_synced(o->r.s, NULL);
}

/* The first launch is measured by markers and includes the loading of its code. The others join a
 * run that holds blocks back, where no marker can measure. */
static void launches_of_a_fed_run_are_learned(void **state)
{
	struct sched_device_ops ops;
	struct one o;

	begin_chains(&o, &ops);
	finish_in_chain(&o, 90000000);
	assert_int_equal(est(&o), 90000000);
	chain.feeding = true;
	finish_in_chain(&o, 3000000);
	assert_in_range(est(&o), 3000000, 3100000);
	for (unsigned i = 0; i < 300; i++) {
		finish_in_chain(&o, 3000000);
	}
	assert_in_range(est(&o), 3000000, 3310000);
	assert_true(chain_asked > 20); /* asked again now and then */
	end_chains(&o);
}

/* Every launch is interrupted, so no marker measures it: the duration that the run reports is
 * learned and charged. */
static void interrupted_launches_are_learned_and_charged(void **state)
{
	struct sched_device_ops ops;
	struct one o;

	begin_chains(&o, &ops);
	for (unsigned i = 1; i <= 10; i++) {
		launch_in_chain(&o, 9000000); /* from marker to marker, including the request */
		chain.interruptions++;
		fake_finish(&o.fq);
		chain.done = chain.launched;
		sched_synced(o.r.s, NULL);
		assert_int_equal(chain_asked, i);
		assert_in_range(est(&o), 3000000, 3011000);
		assert_in_range(o.m.tenant[0], i * UINT64_C(2990000), i * UINT64_C(3011000));
	}
	assert_int_equal(o.m.tenant[1], 10);
	assert_in_range(load_relaxed(&o.r.stats.busy_ns), 29900000, 30110000);
	assert_true(load_relaxed(&o.k->block_ns));
	chain_asked = 0; /* a launch that was not interrupted is measured by markers */
	for (unsigned i = 0; i < 8; i++) {
		finish_in_chain(&o, 2000000);
	}
	assert_int_equal(chain_asked, 0);
	assert_in_range(est(&o), 2000000, 2900000);
	end_chains(&o);
}

static void inflight_rises_and_falls_and_retire_covers_all(void **state)
{
	struct one o;

	one_init(&o);
	launch(&o, 100000);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	assert_int_equal(o.m.tenant[0], 100000);
	assert_int_equal(o.m.tenant[1], 1);
	assert_int_equal(o.m.tenant[2], 1);
	assert_int_equal(o.m.tenant[3], GBPF_F_MEASURED);
	for (int i = 0; i < 200; i++) { /* more launches than the ring has entries */
		launch(&o, 100000);
	}
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(o.r.s)), 200);
	assert_int_equal(SCHED_ACC_NS(sched_inflight(o.r.s)), 200 * 100000);
	fake_finish(&o.fq);
	do {
		(void)sched_agent_step(o.r.s);
	} while (sched_inflight(o.r.s));
	assert_int_equal(o.m.tenant[1], 201);
	assert_in_range(o.m.tenant[0], 201 * 99000, 201 * 101000);
	assert_int_equal(o.r.stats.launches, 201);
	assert_in_range(o.r.stats.busy_ns, 201 * 99000, 201 * 101000);
	one_finish(&o);
}

static void the_user_id_that_gbpfd_states_reaches_submit_and_retire(void **state)
{
	struct one o;

	one_init(&o);
	for (uint32_t uid = 1000; uid < 1002; uid++) { /* it may differ after a restart of gbpfd */
		sched_set_uid(o.r.s, uid);
		launch(&o, 1000);
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
		assert_int_equal(o.m.tenant[4], uid);
		assert_int_equal(o.m.tenant[5], uid);
	}
	one_finish(&o);
}

static void the_tail_without_a_marker_retires_when_the_queue_is_idle(void **state)
{
	struct one o;

	one_init(&o);
	launch(&o, 1000);
	fake_finish(&o.fq);
	sched_synced(o.r.s, NULL);
	for (int i = 0; i < 40; i++) {
		launch(&o, 1000);
	}
	assert_true(sched_agent_step(o.r.s) <= SCHED_PENDING_POLL_NS);
	assert_true(sched_inflight(o.r.s) != 0);
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	assert_int_equal(sched_inflight(o.r.s), 0);
	assert_int_equal(o.m.tenant[1], 41);
	one_finish(&o);
}

/* Before the first launch at block level its queue is prepared while the ticket holds nothing. */
static void an_unprepared_queue_is_prepared_first(void **state)
{
	struct sched_device_ops ops;
	struct sched_launch l;
	struct one o;

	begin_chains(&o, &ops);
	l = kernel_launch(o.k);
	l.block_ok = l.unprepared = true;
	l.resident = 1;
	assert_int_equal(ticket_begin(o.q, &l), SCHED_PREPARE);
	assert_true(lock_try(&o.q->issue.lock));
	lock_release(&o.q->issue.lock);
	assert_false(sched_queue_deferred(o.q));
	assert_int_equal(sched_inflight(o.r.s), 0);
	assert_int_equal(fake_live_markers, 0);
	launch_in_chain(&o, 1000);
	fake_finish(&o.fq);
	chain.done = chain.launched;
	end_chains(&o);
}

static void refused_launches_and_captures_leave_no_trace(void **state)
{
	struct sched_launch l;
	struct one o;

	one_init(&o);
	l = kernel_launch(o.k);
	assert_int_equal(ticket_begin(o.q, &l), SCHED_GO);
	assert_true(ticket.sample.event != NULL);
	ticket_end(false);
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(sched_inflight(o.r.s), 0);
	o.fq.refuse_marks = 1;
	launch(&o, 1000);
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(o.r.s)), 1);
	one_finish(&o);
}

static void kernels_are_shown_by_launches(void **state)
{
	char name[32];
	struct one o;

	one_init(&o);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "kernel_%d", i);
		o.k = sched_kernel_get(o.r.s, name);
		assert_ptr_equal(o.k, sched_kernel_get(o.r.s, name));
		for (int k = 0; k < i; k++) {
			launch(&o, 1000);
		}
	}
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	for (unsigned i = 0; i < PROTO_KERNELS; i++) {
		assert_true(o.r.stats.kernel[i].count >= 100 - PROTO_KERNELS);
		assert_memory_equal(o.r.stats.kernel[i].name, "kernel_", 7);
	}
	one_finish(&o);
}

static void queues_are_bounded_and_reused(void **state)
{
	static struct sched_queue *q[PROTO_MAX_QUEUES];
	struct one o;

	one_init(&o);
	for (unsigned i = 1; i < PROTO_MAX_QUEUES; i++) {
		q[i] = sched_queue_open(o.r.s, &o.fq, 0, 0);
		assert_non_null(q[i]);
	}
	assert_null(sched_queue_open(o.r.s, &o.fq, 0, 0));
	assert_null(sched_queue_open(o.r.s, &o.fq, PROTO_MAX_GPUS, 0));
	for (unsigned i = 1; i < PROTO_MAX_QUEUES; i++) {
		sched_queue_close(q[i]);
	}
	q[0] = sched_queue_open(o.r.s, &o.fq, 0, 0);
	assert_non_null(q[0]);
	sched_queue_close(q[0]);
	one_finish(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations_are_learned_and_sampling_thins_out),
		cmocka_unit_test(the_first_measurement_is_replaced),
		cmocka_unit_test(short_kernels_get_few_markers),
		cmocka_unit_test(a_stalled_stream_gets_few_markers),
		cmocka_unit_test(samples_beside_a_request_are_thrown_away),
		cmocka_unit_test(a_board_that_lies_does_not_keep_others_from_learning),
		cmocka_unit_test(launches_of_a_fed_run_are_learned),
		cmocka_unit_test(an_unprepared_queue_is_prepared_first),
		cmocka_unit_test(interrupted_launches_are_learned_and_charged),
		cmocka_unit_test(inflight_rises_and_falls_and_retire_covers_all),
		cmocka_unit_test(the_user_id_that_gbpfd_states_reaches_submit_and_retire),
		cmocka_unit_test(the_tail_without_a_marker_retires_when_the_queue_is_idle),
		cmocka_unit_test(refused_launches_and_captures_leave_no_trace),
		cmocka_unit_test(kernels_are_shown_by_launches),
		cmocka_unit_test(queues_are_bounded_and_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
