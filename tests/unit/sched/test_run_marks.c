/* Launches of a resumable run: they retire as the run reports, and are measured unless blocks are
 * missing. */
#include "charge_rig.h"

static uint64_t took_ns, took_of;
static unsigned took_asked;

static uint64_t run_took(void *dev, void *dev_queue, uint64_t launch)
{
	took_of = launch;
	took_asked++;
	return took_ns;
}

static const struct ebpf_insn at_block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

static void init_run(struct clocked *c)
{
	struct prog p[] = { PROG(submit, at_block_level), PROG(retire, charge) };

	init(c);
	assert_int_equal(rig_policy_prepare(&c->r, 3, p, 2, &maps), 0);
	c->r.dir.version[0] = 3;
	c->ops.run_took = run_took;
	took_ns = took_of = took_asked = 0;
	c->l.block_ok = true;
	c->l.resident = 1;
	clocked_know(c, 0);
}

static uint64_t launch_in_run(struct clocked *c)
{
	uint64_t before = c->fq.seq;

	assert_int_equal(ticket_begin(c->q, &c->l), SCHED_GO_BLOCK);
	run_device.busy = 1;
	run_device.progress.launched++;
	fake_launch(&c->fq, 3000);
	ticket_end(true);
	return c->fq.seq - before - 1;
}

static void end_run(struct clocked *c)
{
	run_device.busy = 0;
	run_device.progress.done = run_device.progress.launched;
	finish(c);
}

static void launches_of_a_run_retire_as_the_run_says(void **state)
{
	struct clocked c;

	init_run(&c);
	assert_int_equal(launch_in_run(&c), 0); /* a marker would prove nothing */
	assert_int_equal(launch_in_run(&c), 0);
	fake_finish(&c.fq);
	assert_false(sched_retire_all(c.r.s));
	run_device.progress.done = 1;
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(maps.tenant[COUNT], 1);
	assert_int_equal(maps.tenant[LEVEL], GBPF_LEVEL_BLOCK);
	assert_int_equal(maps.tenant[INTERRUPTED], 0);
	assert_int_equal(took_asked, 1); /* its duration is not known yet */
	assert_int_equal(took_of, 1);
	run_device.progress.done = 2;
	run_device.progress.interruptions = 3;
	took_ns = 4000;
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(maps.tenant[COUNT], 2);
	assert_int_equal(maps.tenant[INTERRUPTED], 3);
	assert_int_equal(maps.tenant[NS], 4000);
	assert_int_equal(took_of, 2);
	assert_int_equal(sched_estimate_of(c.r.s, &c.l)->est_ns, 4000);
	end_run(&c);
}

static void a_launch_of_a_run_is_measured_unless_blocks_are_missing(void **state)
{
	struct clocked c;

	init_run(&c);
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	assert_int_equal(launch_in_run(&c), 2);
	run_device.progress.done = 1;
	assert_false(sched_retire_all(c.r.s)); /* its marker is not reached */
	fake_finish(&c.fq);
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(took_asked, 0);
	assert_int_equal(maps.tenant[NS], 3000);
	assert_int_equal(sched_estimate_of(c.r.s, &c.l)->est_ns, 3000);

	clocked_know(&c, 300 * US); /* a marker behind each */
	run_device.progress.feeding = true;
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	assert_int_equal(launch_in_run(&c), 0);
	run_device.progress.feeding = false;
	run_device.progress.stopped = true;
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	assert_int_equal(launch_in_run(&c), 0);
	run_device.progress.stopped = false;
	run_device.progress.done = 3;
	took_ns = 2500;
	sched_estimate_of(c.r.s, &c.l)->left = 1; /* asked for the second of the two */
	(void)sched_retire_all(c.r.s);
	assert_int_equal(took_asked, 1);
	assert_int_equal(took_of, 3);
	end_run(&c);
}

static void an_interruption_spoils_a_measurement(void **state)
{
	struct clocked c;

	init_run(&c);
	clocked_know(&c, 8000);
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	assert_int_equal(launch_in_run(&c), 2);
	fake_finish(&c.fq);
	run_device.progress.done = 1;
	run_device.progress.interruptions = 1;
	took_ns = 7000;
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(took_asked, 1);
	assert_int_equal(maps.tenant[NS], 7000);
	assert_int_equal(maps.tenant[INTERRUPTED], 1);
	end_run(&c);
}

static void a_marker_behind_a_run_is_tied_to_its_newest_launch(void **state)
{
	struct clocked c;

	init_run(&c);
	clocked_know(&c, 1600);
	assert_int_equal(launch_in_run(&c), 0);
	assert_int_equal(c.q->unmarked_ns, 1600);
	sched_mark_end(c.q);
	assert_int_equal(c.q->unmarked_ns, 0);
	assert_int_equal(fake_live_markers, 0);
	assert_false(sched_retire_all(c.r.s));
	run_device.progress.done = 1;
	assert_true(sched_retire_all(c.r.s));
	assert_int_equal(maps.tenant[COUNT], 1);
	(void)launch_in_run(&c); /* the queue says nothing while it has a run */
	fake_finish(&c.fq);
	clocked_now += 5 * MS;
	(void)sched_inflight_step(c.r.s, clocked_now);
	assert_int_equal(maps.tenant[COUNT], 1);
	end_run(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launches_of_a_run_retire_as_the_run_says),
		cmocka_unit_test(a_launch_of_a_run_is_measured_unless_blocks_are_missing),
		cmocka_unit_test(an_interruption_spoils_a_measurement),
		cmocka_unit_test(a_marker_behind_a_run_is_tied_to_its_newest_launch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
