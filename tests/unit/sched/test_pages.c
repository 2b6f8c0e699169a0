/* The state of a process: what it needs to be created, its shared pages, its settings, when
 * launches may skip the scheduler, and how many notes gbpfd gets. */
#include "clocked.h"

#include <errno.h>

static void a_device_must_have_its_mandatory_members(void **state)
{
	struct sched_device_ops none = { 0 }, ops = { 0 };
	struct sched_config cfg = { .tenant = 1, .device = NULL };
	struct sched *s = NULL;

	assert_int_equal(sched_create(&s, &cfg), -EINVAL);
	cfg.device = &ops;
	for (unsigned i = 0; i < 5; i++) {
		ops = fake_ops;
		if (i == 0) {
			ops.mark = none.mark;
		} else if (i == 1) {
			ops.mark_done = none.mark_done;
		} else if (i == 2) {
			ops.mark_span_ns = none.mark_span_ns;
		} else if (i == 3) {
			ops.mark_release = none.mark_release;
		} else {
			ops.queue_idle = none.queue_idle;
		}
		assert_int_equal(sched_create(&s, &cfg), -EINVAL);
		assert_null(s);
	}
	ops = fake_ops;
	cfg.class_id = GBPF_CLASS_BATCH + 1;
	assert_int_equal(sched_create(&s, &cfg), -EINVAL);
	cfg.class_id = GBPF_CLASS_BATCH;
	assert_int_equal(sched_create(&s, &cfg), 0);
	sched_destroy(s);
	sched_destroy(NULL);
}

static void settings_begin_with_their_defaults(void **state)
{
	struct sched_config cfg = { .tenant = 1, .uid = 55, .device = &fake_ops };
	struct sched *s = NULL;

	assert_int_equal(sched_create(&s, &cfg), 0);
	assert_int_equal(s->weight, 100);
	assert_int_equal(s->uid, 55);
	assert_int_equal(s->class_id, 0);
	assert_int_equal(s->agent.asleep, SCHED_AGENT_ASLEEP);
	assert_int_equal(s->wait_cap_ns, 2000000);
	assert_int_equal(s->grace_ns, 50000000);
	assert_true(s->announce.lead_ns == SCHED_LEAD_AUTO);
	assert_int_equal(s->announce.warm_ns, 200000);
	assert_int_equal(s->policy.gpu[3].index, 3);
	sched_set_lane(s, GBPF_LANE_SHARED);
	assert_int_equal(s->absent.stats.lane, GBPF_LANE_SHARED);
	assert_int_equal(sched_lead_ns(s), 60000);
	sched_set_lane(s, GBPF_LANE_PROCESS);
	assert_int_equal(sched_lead_ns(s), 300000);
	sched_destroy(s);
	cfg.weight = 7;
	assert_int_equal(sched_create(&s, &cfg), 0);
	assert_int_equal(s->weight, 7);
	sched_destroy(s);
}

static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

/* Launches skip everything unless there is a policy, a latency class or queue, or deferred work. */
static void idle_until_something_has_to_be_decided(void **state)
{
	struct prog p = PROG(submit, always_go);
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	assert_true(sched_idle(c.r.s));
	assert_int_equal(c.r.s->active_ns, 0);
	assert_int_equal(rig_policy_prepare(&c.r, 1, &p, 1, NULL), 0);
	assert_false(sched_idle(c.r.s));
	/* launches may have passed unseen: no run begins for a while */
	assert_int_equal(c.r.s->active_ns, clocked_now + 50 * MS);
	clocked_now += 10 * MS;
	sched_update_active(c.r.s);
	assert_int_equal(c.r.s->active_ns, clocked_now + 40 * MS); /* it was active already */
	c.r.wakes = 0;
	c.r.s->agent.asleep = SCHED_AGENT_NEAR;
	sched_set_off(c.r.s, true);
	assert_int_equal(c.r.wakes, 1); /* deferred calls go now */
	assert_true(sched_idle(c.r.s));
	store_seqcst(&c.r.s->n_runs, 1u); /* has to end first */
	sched_update_active(c.r.s);
	assert_false(sched_idle(c.r.s));
	store_seqcst(&c.r.s->n_runs, 0u);
	store_seqcst(&c.r.s->n_deferred, 1u);
	sched_update_active(c.r.s);
	assert_false(sched_idle(c.r.s));
	store_seqcst(&c.r.s->n_deferred, 0u);
	sched_update_active(c.r.s);
	assert_true(sched_idle(c.r.s));
	sched_set_off(c.r.s, false);
	assert_false(sched_idle(c.r.s));
	sched_policy_drop(c.r.s, 1, UINT32_MAX);
	assert_true(sched_idle(c.r.s));
	c.r.s->latency_queues = 1;
	sched_update_active(c.r.s);
	assert_false(sched_idle(c.r.s));
	c.r.s->latency_queues = 0;
	sched_update_active(c.r.s);
	sched_set_class(c.r.s, GBPF_CLASS_LATENCY, 1);
	assert_false(sched_idle(c.r.s));
	sched_after_fork_child(c.r.s);
	sched_update_active(c.r.s);
	assert_true(sched_idle(c.r.s));
	clocked_finish(&c);
}

static void class_and_weight_follow_gbpfd(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	assert_true(sched_block_wanted(c.r.s));
	sched_set_class(c.r.s, GBPF_CLASS_LATENCY, 33);
	assert_false(sched_block_wanted(c.r.s));
	assert_int_equal(c.r.s->weight, 33);
	assert_int_equal(c.q->class_id, GBPF_CLASS_LATENCY);
	assert_int_equal(c.r.s->latency_queues, 1);
	sched_set_class(c.r.s, GBPF_CLASS_BATCH + 1, 44); /* unknown: ignored */
	assert_int_equal(c.r.s->weight, 33);
	assert_int_equal(c.r.s->class_id, GBPF_CLASS_LATENCY);
	sched_set_class(c.r.s, GBPF_CLASS_BATCH, 44);
	assert_int_equal(c.r.s->latency_queues, 0);
	assert_int_equal(c.q->class_id, GBPF_CLASS_BATCH);
	c.q->class_fixed = true; /* the policy chose it */
	sched_set_class(c.r.s, GBPF_CLASS_LATENCY, 44);
	assert_int_equal(c.q->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c.r.s->latency_queues, 0);
	sched_queue_close(c.q);
	sched_set_class(c.r.s, GBPF_CLASS_NORMAL, 44);
	assert_int_equal(c.r.s->latency_queues, 0);
	clocked_finish(&c);
}

static void pages_that_go_leave_the_last_policy_and_take_the_boards(void **state)
{
	static const uint32_t index[PROTO_MAX_GPUS] = { 5, 99, 2 };
	struct proto_stats again = { .launches = 1 };
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	c.r.dir.version[0] = 11;
	c.r.dir.version[15] = 12;
	c.r.stats.launches = 77;
	assert_true(sched_set_pages(c.r.s, NULL, NULL, NULL, index));
	assert_int_equal(c.r.s->absent.dir.version[0], 11);
	assert_int_equal(c.r.s->absent.dir.version[15], 12);
	assert_ptr_equal(c.r.s->policy.dir, &c.r.s->absent.dir);
	assert_ptr_equal(c.r.s->own, &c.r.s->absent.board);
	assert_int_equal(c.r.s->absent.stats.launches, 77);
	assert_int_equal(c.r.s->boards.n, 0);
	assert_null(c.r.s->boards.slot[3].board);
	assert_int_equal(c.r.s->policy.life, 1);
	assert_int_equal(c.r.s->policy.gpu[0].index, 5);
	assert_int_equal(c.r.s->policy.gpu[1].index, PROTO_MAX_GPUS); /* unknown to gbpfd */
	assert_int_equal(c.r.s->policy.gpu[2].index, 2);
	c.r.dir.version[0] = 13; /* of the page that was removed */
	assert_true(sched_set_pages(c.r.s, NULL, NULL, NULL, NULL));
	assert_int_equal(c.r.s->policy.life, 1); /* it was lost once */
	assert_int_equal(c.r.s->absent.dir.version[0], 11);
	assert_int_equal(c.r.s->policy.gpu[0].index, 5);
	c.r.s->absent.stats.launches = 80;
	assert_true(sched_set_pages(c.r.s, &c.r.dir, &c.r.own, &again, NULL));
	assert_int_equal(again.launches, 80); /* with what was counted meanwhile */
	again.launches = 81;
	assert_true(sched_set_pages(c.r.s, &c.r.dir, &c.r.own, &again, NULL)); /* the same page */
	assert_int_equal(again.launches, 81);
	assert_int_equal(c.r.s->policy.life, 1);
	sched_after_fork_child(c.r.s);
	assert_false(sched_set_pages(c.r.s, NULL, NULL, NULL, NULL));
	assert_ptr_equal(c.r.s->policy.dir, &c.r.dir);
	clocked_finish(&c);
}

static void an_open_request_is_on_a_new_board_with_its_time(void **state)
{
	uint32_t index[PROTO_MAX_GPUS] = { 1, PROTO_MAX_GPUS };
	struct proto_board board = { 0 };
	uint64_t opened;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	(void)go(c.q, &c.fq, &c.l);
	opened = clocked_now;
	clocked_now += 5 * US;
	c.r.s->req[1].open = SCHED_REQUEST_OPEN;
	(void)sched_set_pages(c.r.s, &c.r.dir, &board, &c.r.stats, index);
	assert_int_equal(board.gpu[1].open, 1);
	assert_int_equal(board.gpu[1].opened_ns, opened);
	assert_int_equal(board.gpu[0].open, 0);
	for (unsigned g = 2; g < PROTO_MAX_GPUS; g++) {
		assert_int_equal(board.gpu[g].open, 0);
	}
	c.r.s->req[1].open = SCHED_REQUEST_CLOSED;
	clocked_finish(&c);
}

static void caps_of_streams_are_counted_by_outcome(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	sched_report_cap(c.r.s, 40, PROTO_CAP_DONE);
	sched_report_cap(c.r.s, 40, PROTO_CAP_DRIVER);
	sched_report_cap(c.r.s, 60, PROTO_CAP_DRIVER);
	assert_int_equal(c.r.stats.sm_percent, 60);
	assert_int_equal(c.r.stats.caps[PROTO_CAP_DONE], 1);
	assert_int_equal(c.r.stats.caps[PROTO_CAP_DRIVER], 2);
	clocked_finish(&c);
}

static void notes_are_limited_to_one_a_second(void **state)
{
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	sched_note(c.r.s, "a", "b");
	sched_note(c.r.s, "a", "b");
	assert_int_equal(c.r.notes, 1);
	clocked_now += SECOND - 1;
	sched_note(c.r.s, "a", "b");
	assert_int_equal(c.r.notes, 1);
	clocked_now += 1;
	sched_note(c.r.s, "a", "b");
	assert_int_equal(c.r.notes, 2);
	c.r.s->cfg.note = NULL;
	clocked_now += SECOND;
	sched_note(c.r.s, "a", "b");
	clocked_finish(&c);
}

/* ---- the table of queues ---- */

static void a_reused_entry_remembers_nothing(void **state)
{
	struct fake_queue other = { .eager = 1 };
	struct sched_queue *q;
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	assert_int_equal(c.r.s->table.n_open, 1);
	q = c.q;
	c.fq.eager = 1;
	(void)go(q, &c.fq, &c.l);
	q->idle.sync_seq = q->idle.sync_ns = q->idle.seen_seq = q->idle.seen_ns = 9;
	q->idle.unknown_since_ns = q->idle.unknown_seq = q->idle.quiet_since_ns = 9;
	q->idle.quiet_total = q->unmarked_ns = q->issue.retry_ns = 9;
	q->idle.mark_each = q->shared = q->issue.n_asked = 9;
	q->issue.held_since_ns = 9;
	q->idle.close_delay_ns = 9;
	q->marks.last_version = q->marks.last_held_ns = q->marks.last_hash = 9;
	q->marks.last_level = q->marks.last_interruptions = q->run.interruptions = 9;
	q->issue.next_is_plain = q->class_fixed = true;
	q->error = 9;
	sched_queue_close(q);
	assert_int_equal(c.r.stats.launches, 1); /* published with the close */
	assert_int_equal(c.r.stats.threads, 25600);
	assert_int_equal(c.r.s->table.n_open, 0);
	assert_int_equal(c.r.s->latency_queues, 0);
	assert_false(sched_queue_use(q));
	assert_int_equal(q->life.users, 0);
	c.q = sched_queue_open(c.r.s, &other, 2, -7);
	assert_ptr_equal(c.q, q);
	assert_int_equal(c.r.s->table.n_queues, 1);
	assert_int_equal(c.r.s->table.n_open, 1);
	assert_int_equal(c.r.s->latency_queues, 1);
	assert_ptr_equal(q->dev_queue, &other);
	assert_int_equal(q->gpu, 2);
	assert_int_equal(q->priority, -7);
	assert_int_equal(q->class_id, GBPF_CLASS_LATENCY);
	assert_int_equal(q->sm_percent, 100);
	assert_int_equal(sched_tally_sum(&q->total) | sched_tally_sum(&q->threads) | q->entered |
				 sched_tally_sum(&q->left) | q->sample_at | q->unmarked_ns |
				 q->marks.head | q->marks.tail | q->marks.retired,
			 0);
	assert_int_equal(q->idle.sync_seq | q->idle.seen_seq | q->idle.seen_ns |
				 q->idle.unknown_since_ns | q->idle.unknown_seq |
				 q->idle.quiet_since_ns | q->idle.quiet_total | q->idle.mark_each,
			 0);
	assert_int_equal(q->idle.close_delay_ns, 200000);
	assert_int_equal(q->marks.last_version | q->marks.last_held_ns | q->marks.last_hash |
				 q->marks.last_level | q->marks.last_interruptions |
				 q->run.interruptions,
			 0);
	assert_int_equal(q->shared | q->issue.n_asked | q->issue.retry_ns | q->issue.held_since_ns |
				 q->published.total | q->published.threads,
			 0);
	assert_false(q->issue.next_is_plain || q->class_fixed);
	assert_int_equal(q->error, 0);
	assert_int_equal(q->life.closing, 0);
	assert_true(sched_queue_use(q));
	assert_int_equal(q->life.users, 1);
	sched_queue_unuse(q);
	assert_int_equal(q->life.users, 0);
	clocked_finish(&c);
}

static void closed_entries_are_reused_the_last_first(void **state)
{
	struct sched_queue *q[3];
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_NORMAL);
	for (unsigned i = 0; i < 3; i++) {
		q[i] = sched_queue_open(c.r.s, &c.fq, 0, 0);
		assert_int_equal(q[i]->index, i + 1);
	}
	assert_null(sched_queue_open(c.r.s, &c.fq, PROTO_MAX_GPUS, 0));
	assert_ptr_equal(sched_queue_touched(q[1]), &c.r.s->table.touched[2]);
	sched_queue_close(q[0]);
	sched_queue_close(q[2]);
	assert_null(q[2]->dev_queue);
	assert_ptr_equal(sched_queue_open(c.r.s, &c.fq, PROTO_MAX_GPUS - 1, 0), q[2]);
	assert_ptr_equal(sched_queue_open(c.r.s, &c.fq, 0, 0), q[0]);
	assert_int_equal(sched_queue_open(c.r.s, &c.fq, 0, 0)->index, 4);
	assert_int_equal(c.r.s->table.n_open, 5);
	clocked_finish(&c);
}

/* ---- synchronizations ---- */

static void a_synchronization_counts_once_and_for_drained_queues_only(void **state)
{
	struct sched_queue *b;
	struct fake_queue fb = { .eager = 1 };
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_LATENCY);
	b = sched_queue_open(c.r.s, &fb, 0, 0);
	assert_int_equal(*sched_queue_touched(c.q), 0);
	sched_synced(c.r.s, NULL); /* nothing was launched */
	assert_int_equal(c.r.stats.syncs, 0);
	(void)go(c.q, &c.fq, &c.l);
	assert_int_equal(*sched_queue_touched(c.q), 1);
	assert_int_equal(*sched_queue_touched(b), 0);
	sched_synced(c.r.s, b); /* the other queue */
	assert_int_equal(c.r.stats.syncs, 0);
	clocked_now += 3 * US;
	sched_synced(c.r.s, c.q);
	assert_int_equal(c.r.stats.syncs, 1);
	assert_int_equal(c.q->idle.sync_seq, 1);
	assert_int_equal(c.q->idle.sync_ns, clocked_now);
	assert_int_equal(c.r.s->req[0].idle_ns, clocked_now);
	assert_int_equal(*sched_queue_touched(c.q), 0);
	clocked_now += 3 * US;
	sched_synced(c.r.s, c.q); /* again without a launch */
	assert_int_equal(c.r.stats.syncs, 1);
	assert_int_equal(c.q->idle.sync_ns, clocked_now - 3 * US);
	assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	store_relaxed(&c.r.s->table.touched[c.q->index], (uint8_t)1);
	sched_synced(c.r.s, NULL); /* a launch is inside the driver */
	assert_int_equal(c.r.stats.syncs, 1);
	ticket_end(true);
	sched_synced(c.r.s, NULL);
	assert_int_equal(c.r.stats.syncs, 2);
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_must_have_its_mandatory_members),
		cmocka_unit_test(settings_begin_with_their_defaults),
		cmocka_unit_test(idle_until_something_has_to_be_decided),
		cmocka_unit_test(class_and_weight_follow_gbpfd),
		cmocka_unit_test(pages_that_go_leave_the_last_policy_and_take_the_boards),
		cmocka_unit_test(an_open_request_is_on_a_new_board_with_its_time),
		cmocka_unit_test(caps_of_streams_are_counted_by_outcome),
		cmocka_unit_test(notes_are_limited_to_one_a_second),
		cmocka_unit_test(a_reused_entry_remembers_nothing),
		cmocka_unit_test(closed_entries_are_reused_the_last_first),
		cmocka_unit_test(a_synchronization_counts_once_and_for_drained_queues_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
