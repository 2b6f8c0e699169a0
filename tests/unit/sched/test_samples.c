/* When a launch is measured, and what is charged for it. */
#include "charge_rig.h"

#include <stdio.h>

static bool measured(struct clocked *c)
{
	bool yes;

	sched_estimate_of(c->r.s, &c->l)->left = 0;
	(void)ticket_begin(c->q, &c->l);
	yes = ticket.sample.event != NULL;
	fake_launch(&c->fq, 1000);
	ticket_end(true);
	return yes;
}

static void latency_queues_are_measured_rarely(void **state)
{
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	c.q->class_id = GBPF_CLASS_LATENCY;
	clocked_know(&c, 1000);
	for (unsigned i = 0; i <= 4096; i++) {
		assert_int_equal(measured(&c), i < 1024 ? i % 64 == 0 : i % 1024 == 0);
	}
	finish(&c);
}

/* Each kernel is measured at its first four launches, also where they are not among those few, so
 * that the GPU time of a program with many kernels counts. The shortest of them does. */
static void each_kernel_of_a_latency_queue_is_measured(void **state)
{
	struct clocked c;
	char name[16];

	init(&c);
	c.fq.eager = 1;
	c.q->class_id = GBPF_CLASS_LATENCY;
	c.q->sample_at = 1000;
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		c.l.kernel = sched_kernel_get(c.r.s, name);
		for (unsigned j = 0; j < 4; j++) {
			assert_true(measured(&c));
		}
		assert_false(measured(&c));
		assert_int_equal(sched_estimate_of(c.r.s, &c.l)->est_ns, 1000);
	}
	finish(&c);
}

/* A device without work reaches the start marker at once, and waits for the launch. */
static void time_until_the_launch_does_not_count(void **state)
{
	static const struct {
		uint32_t idle, copy;
		uint64_t late_ns, span_ns, learned_ns;
	} cases[] = {
		{ 1, 0, 9 * US, 12 * US, 3 * US },    { 1, 0, 9 * US, 1009 * US, 1000 * US },
		{ 1, 0, 9 * US, 9 * US + 5, 1 * US }, { 1, 0, 9 * US, 700, 700 },
		{ 1, 0, 25 * US, 28 * US, 3 * US },   { 1, 0, 25 * US + 1, 53 * US, 53 * US },
		{ 0, 0, 9 * US, 12 * US, 12 * US }, /* other work was before the marker */
		{ 1, 1, 9 * US, 12 * US, 12 * US },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		c.fq.eager = cases[i].idle;
		if (cases[i].copy) {
			c.l.kind = GBPF_KIND_COPY;
			c.l.kernel = NULL;
		}
		assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
		assert_non_null(ticket.sample.event);
		clocked_now += cases[i].late_ns;
		fake_launch(&c.fq, cases[i].span_ns);
		ticket_end(true);
		clocked_now += SECOND;
		fake_finish(&c.fq);
		sched_synced(c.r.s, c.q);
		assert_int_equal(sched_estimate_of(c.r.s, &c.l)->est_ns, cases[i].learned_ns);
		assert_int_equal(maps.tenant[NS], cases[i].learned_ns);
		finish(&c);
	}
}

static void what_is_measured(void **state)
{
	struct clocked c;

	init(&c);
	c.fq.eager = 1;
	assert_true(measured(&c));
	c.l.may_hold = false;
	assert_false(measured(&c));
	c.l.may_hold = true;
	other_opens(&c.r);
	assert_false(measured(&c)); /* during a request it would look longer */
	other_closes(&c.r);
	assert_true(measured(&c));
	c.r.dir.version[0] = 0;
	assert_false(measured(&c));
	c.r.dir.version[0] = 2;
	c.fq.refuse_marks = 1;
	assert_false(measured(&c));
	c.fq.refuse_marks = 0;
	assert_true(measured(&c));
	finish(&c);
}

/* A sample corrects what was accounted; the time of a known kernel counts as its estimate if it is
 * more than four times as long. */
static void a_sample_corrects_the_charge(void **state)
{
	static const struct {
		uint64_t est_ns, took_ns, charged_ns;
	} cases[] = {
		{ 0, 777, 777 },
		{ 1000, 1000, 1000 },
		{ 1000, 500, 500 },
		{ 1000, 4000, 4000 },
		{ 1000, 4001, 1000 },
		{ 1000, 900000, 1000 },
		{ 0, 61 * SECOND, 60 * SECOND },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sched_estimate *e;
		struct clocked c;

		init(&c);
		clocked_know(&c, cases[i].est_ns);
		e = sched_estimate_of(c.r.s, &c.l);
		e->left = 0;
		assert_int_equal(launch(&c, cases[i].took_ns), 2);
		assert_int_equal(maps.tenant[CALLS], 0);
		fake_finish(&c.fq);
		sched_synced(c.r.s, c.q);
		assert_int_equal(maps.tenant[CALLS], 1);
		assert_int_equal(maps.tenant[NS], cases[i].charged_ns);
		assert_int_equal(maps.tenant[COUNT], 1);
		assert_int_equal(maps.tenant[FLAGS], GBPF_F_MEASURED);
		assert_int_equal(maps.tenant[VERSION], 2);
		assert_int_equal(maps.tenant[KERNEL], c.k->hash);
		assert_int_equal(maps.tenant[LEVEL], GBPF_LEVEL_HOLD);
		assert_int_equal(c.r.stats.busy_ns, cases[i].charged_ns);
		assert_int_equal(e->seen, cases[i].est_ns ? 10 : 1);
		finish(&c);
	}
}

static int64_t no_span(void *dev, const struct sched_marker *from, const struct sched_marker *to)
{
	return -5;
}

static void a_sample_that_cannot_be_read_changes_nothing(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 1600);
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	c.ops.mark_span_ns = no_span;
	(void)launch(&c, 5);
	fake_finish(&c.fq);
	sched_synced(c.r.s, c.q);
	assert_int_equal(maps.tenant[NS], 1600);
	assert_int_equal(maps.tenant[FLAGS], 0);
	assert_int_equal(sched_estimate_of(c.r.s, &c.l)->seen, 9);
	finish(&c);
}

static void several_launches_are_charged_by_their_estimates(void **state)
{
	struct clocked c;

	init(&c);
	clocked_know(&c, 16000);
	for (unsigned i = 0; i < 15; i++) {
		(void)launch(&c, 5);
	}
	sched_estimate_of(c.r.s, &c.l)->left = 0;
	c.l.est_ns = 0;
	assert_int_equal(launch(&c, 20000), 2);
	fake_finish(&c.fq);
	sched_synced(c.r.s, c.q);
	assert_int_equal(maps.tenant[COUNT], 16);
	assert_int_equal(maps.tenant[CALLS], 1);
	assert_int_equal(maps.tenant[NS], 15 * 16000 + 20000);
	assert_int_equal(maps.tenant[FLAGS], 0); /* not all of it was measured */
	finish(&c);
}

/* While other processes have work on the GPU, a time that is longer by a time slice counts as the
 * estimate; in the shared lane any time that is longer. */
static void work_of_others_is_not_charged(void **state)
{
	static const struct {
		uint32_t lane;
		uint64_t shared_for_ns, took_ns, charged_ns;
	} cases[] = {
		{ GBPF_LANE_PROCESS, 0, 2400000, 2400000 },
		{ GBPF_LANE_PROCESS, SECOND, 2400000, 800000 },
		{ GBPF_LANE_PROCESS, SECOND, 2200000, 2200000 }, /* by less than a slice */
		{ GBPF_LANE_PROCESS, SECOND, 1000000, 1000000 },
		{ GBPF_LANE_SHARED, 0, 1000000, 1000000 },
		{ GBPF_LANE_SHARED, SECOND, 2400000, 800000 },
		{ GBPF_LANE_SHARED, SECOND, 1000000, 800000 },
		{ GBPF_LANE_SHARED, SECOND, 700000, 700000 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		clocked_know(&c, 800000);
		sched_set_lane(c.r.s, cases[i].lane);
		c.r.dir.shared_until_ns[0] =
			cases[i].shared_for_ns ? clock_now_ns() + cases[i].shared_for_ns : 0;
		sched_estimate_of(c.r.s, &c.l)->left = 0;
		(void)launch(&c, cases[i].took_ns);
		fake_finish(&c.fq);
		sched_synced(c.r.s, c.q);
		assert_int_equal(maps.tenant[NS], cases[i].charged_ns);
		finish(&c);
	}
}

/* Launches of a kernel that was not known when they were submitted: each is charged with the
 * shortest so far, if others have work. */
static void unknown_launches_next_to_others_are_charged_by_the_shortest(void **state)
{
	static const struct {
		uint32_t lane;
		uint64_t shared_for_ns, charged_ns;
	} cases[] = {
		{ GBPF_LANE_SHARED, SECOND, 9000000 + 700000 + 700000 },
		{ GBPF_LANE_SHARED, 0, 9000000 + 700000 + 1000000 },
		{ GBPF_LANE_PROCESS, SECOND, 9000000 + 700000 + 1000000 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		sched_set_lane(c.r.s, cases[i].lane);
		c.r.dir.shared_until_ns[0] =
			cases[i].shared_for_ns ? clock_now_ns() + cases[i].shared_for_ns : 0;
		(void)launch(&c, 9000000);
		(void)launch(&c, 700000);
		(void)launch(&c, 1000000);
		fake_finish(&c.fq);
		sched_synced(c.r.s, c.q);
		assert_int_equal(maps.tenant[COUNT], 3);
		assert_int_equal(maps.tenant[NS], cases[i].charged_ns);
		finish(&c);
	}
}

/* Two queues with kernels of 100 us each, of which each is retired by itself. */
static void launch_on_both(struct clocked *c, struct sched_queue *other, uint64_t passes_ns)
{
	struct sched_launch l = c->l;

	assert_int_equal(ticket_begin(c->q, &c->l), SCHED_GO);
	fake_launch(&c->fq, 100 * US);
	ticket_end(true);
	assert_int_equal(ticket_begin(other, &l), SCHED_GO);
	fake_launch(other->dev_queue, 100 * US);
	ticket_end(true);
	clocked_now += passes_ns;
	fake_finish(&c->fq);
	sched_synced(c->r.s, c->q);
	fake_finish(other->dev_queue);
	sched_synced(c->r.s, other);
}

/* Neither the measured nor the estimated times of kernels count twice where these overlap. Those
 * that follow each other count in full, also if they are found to have ended at one moment. */
static void kernels_that_overlap_are_charged_once(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *other;
	struct clocked c;

	for (unsigned known = 0; known < 2; known++) {
		init(&c);
		other = sched_queue_open(c.r.s, &fq, 0, 0);
		if (known) {
			clocked_know(&c, 100 * US);
		}
		launch_on_both(&c, other, 130 * US);
		assert_int_equal(c.r.stats.busy_ns, 130 * US);
		assert_int_equal(c.r.stats.gpu[0].busy_ns, 130 * US);
		clocked_now += SECOND; /* without work: that is no credit */
		launch_on_both(&c, other, 150 * US);
		assert_int_equal(c.r.stats.busy_ns, 280 * US);
		clocked_now += SECOND;
		launch_on_both(&c, other, 200 * US);
		assert_int_equal(c.r.stats.busy_ns, 480 * US);
		assert_int_equal(maps.tenant[NS], 600 * US);
		assert_int_equal(maps.tenant[OVERLAP], 120 * US);
		assert_int_equal(maps.tenant[COUNT], 6);
		sched_queue_close(other);
		finish(&c);
	}
}

static uint64_t passing(void)
{
	return clocked_now += 10 * US;
}

/* HOLD, then GO */
static const struct ebpf_insn hold_once[] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(asked)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JNE, 2, 0, 1),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
};

static void the_time_of_a_hold_is_not_charged(void **state)
{
	struct prog p[] = { PROG(submit, hold_once), PROG(retire, charge) };
	uint64_t went;
	struct clocked c;

	init(&c);
	assert_int_equal(rig_policy_prepare(&c.r, 3, p, 2, &maps), 0);
	c.r.dir.version[0] = 3;
	clocked_know(&c, 60 * SECOND);
	clock_set_source(passing);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_true(c.l.held_ns);
	went = c.l.begin_ns + c.l.held_ns;
	fake_launch(&c.fq, 5);
	ticket_end(true);
	fake_finish(&c.fq);
	sched_synced(c.r.s, c.q);
	assert_int_equal(maps.tenant[COUNT], 1);
	assert_in_range(c.r.stats.busy_ns, 1, clocked_now - went);
	assert_int_equal(maps.tenant[NS], 60 * SECOND);
	assert_int_equal(maps.tenant[OVERLAP], 60 * SECOND - c.r.stats.busy_ns);
	finish(&c);
}

/* The request of this process counts as a disturbance, except for the launches that make it. */
static void own_requests_disturb_batch_samples_only(void **state)
{
	for (unsigned latency = 0; latency < 2; latency++) {
		struct clocked c;

		init(&c);
		c.q->class_id = latency ? GBPF_CLASS_LATENCY : GBPF_CLASS_NORMAL;
		c.r.s->req[0].open = SCHED_REQUEST_OPEN;
		(void)launch(&c, 5000);
		fake_finish(&c.fq);
		(void)sched_retire_all(c.r.s);
		assert_int_equal(sched_estimate_of(c.r.s, &c.l)->est_ns, latency ? 5000 : 0);
		c.r.s->req[0].open = SCHED_REQUEST_CLOSED;
		finish(&c);
	}
}

static void refused_launches_are_not_counted(void **state)
{
	struct clocked c;

	init(&c);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(c.r.s)), 1);
	ticket_end(false);
	assert_int_equal(c.k->count, 0);
	assert_int_equal(*sched_queue_touched(c.q), 1);
	assert_int_equal(sched_tally_sum(&c.q->total), 0);
	(void)launch(&c, 5);
	assert_int_equal(c.k->count, 1);
	assert_int_equal(SCHED_ACC_COUNT(sched_tally_sum(&c.q->total)), 1);
	finish(&c);
}

static void kinds_and_bytes_are_counted(void **state)
{
	static const struct {
		uint32_t kind;
		uint64_t copies, memsets, graphs, bytes;
	} cases[] = {
		{ GBPF_KIND_COPY, 1, 0, 0, 700 },
		{ GBPF_KIND_MEMSET, 0, 1, 0, 700 },
		{ GBPF_KIND_GRAPH, 0, 0, 1, 0 },
		{ GBPF_KIND_KERNEL, 0, 0, 0, 0 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct clocked c;

		init(&c);
		c.l.kind = cases[i].kind;
		c.l.kernel = NULL;
		c.l.bytes = 700;
		(void)launch(&c, 5);
		sched_stats_publish(c.r.s, clocked_now);
		assert_int_equal(c.r.stats.copies, cases[i].copies);
		assert_int_equal(c.r.stats.memsets, cases[i].memsets);
		assert_int_equal(c.r.stats.graphs, cases[i].graphs);
		assert_int_equal(c.r.stats.bytes, cases[i].bytes);
		assert_int_equal(c.r.stats.launches, 1);
		assert_int_equal(c.r.stats.threads, 25600);
		assert_int_equal(c.r.stats.inflight, 1);
		(void)launch(&c, 5);
		sched_stats_publish(c.r.s, clocked_now);
		sched_stats_publish(c.r.s, clocked_now);
		assert_int_equal(c.r.stats.launches, 2);
		assert_int_equal(c.r.stats.copies, 2 * cases[i].copies);
		assert_int_equal(c.r.stats.bytes, 2 * cases[i].bytes);
		assert_int_equal(c.r.stats.threads, 51200);
		assert_int_equal(c.r.stats.submit_calls, 2);
		finish(&c);
	}
}

/* A copy that takes long is accounted before the driver's call and counted by kind behind it. */
static void a_kind_counted_after_its_launch_was_published_is_published(void **state)
{
	struct clocked c;

	(void)state;
	init(&c);
	c.l.kind = GBPF_KIND_COPY;
	c.l.kernel = NULL;
	c.l.bytes = 700;
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.launches, 1);
	ticket_end(true);
	sched_stats_publish(c.r.s, clocked_now);
	assert_int_equal(c.r.stats.copies, 1);
	assert_int_equal(c.r.stats.bytes, 700);
	assert_int_equal(c.r.stats.launches, 1);
	finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_of_others_is_not_charged),
		cmocka_unit_test(unknown_launches_next_to_others_are_charged_by_the_shortest),
		cmocka_unit_test(latency_queues_are_measured_rarely),
		cmocka_unit_test(each_kernel_of_a_latency_queue_is_measured),
		cmocka_unit_test(time_until_the_launch_does_not_count),
		cmocka_unit_test(what_is_measured),
		cmocka_unit_test(a_sample_corrects_the_charge),
		cmocka_unit_test(a_sample_that_cannot_be_read_changes_nothing),
		cmocka_unit_test(several_launches_are_charged_by_their_estimates),
		cmocka_unit_test(kernels_that_overlap_are_charged_once),
		cmocka_unit_test(the_time_of_a_hold_is_not_charged),
		cmocka_unit_test(own_requests_disturb_batch_samples_only),
		cmocka_unit_test(refused_launches_are_not_counted),
		cmocka_unit_test(kinds_and_bytes_are_counted),
		cmocka_unit_test(a_kind_counted_after_its_launch_was_published_is_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
