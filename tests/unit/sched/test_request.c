/* Requests: opened by the first launch, closed when drained and the close delay has passed; pages
 * that come and go. */
#include "fake.h"

#include <string.h>
#include <sys/mman.h>

#include "sched/sched_int.h"

/* retire: linger_ns = 0 */
static const struct ebpf_insn no_linger[] = {
	I_MOV(2, 0),
	I_STX(EBPF_DW, 1, RETIRE(linger_ns), 2),
	I_MOV(0, 0),
	I_EXIT,
};
/* retire: linger_ns = 1 s, more than the maximum */
static const struct ebpf_insn long_linger[] = {
	I_MOV(2, 1000000000),
	I_STX(EBPF_DW, 1, RETIRE(linger_ns), 2),
	I_MOV(0, 0),
	I_EXIT,
};

static uint64_t fake_now;

static uint64_t fake_clock(void)
{
	return fake_now;
}

struct one {
	struct rig r;
	struct fake_queue fq;
	struct sched_queue *q;
	struct sched_launch l;
};

static void one_init(struct one *o)
{
	memset(o, 0, sizeof(*o));
	fake_now = 1000000000;
	clock_set_source(fake_clock);
	rig_init(&o->r, GBPF_CLASS_LATENCY, 0, 0);
	o->q = sched_queue_open(o->r.s, &o->fq, 0, 0);
	o->l = kernel_launch(NULL);
}

static void one_finish(struct one *o)
{
	rig_finish(&o->r);
	clock_set_source(NULL);
}

static void opens_at_the_first_launch_and_closes_after_the_close_delay(void **state)
{
	struct one o;

	one_init(&o);
	assert_int_equal(sched_agent_step(o.r.s), UINT64_MAX);
	go(o.q, &o.fq, &o.l);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	assert_int_equal(o.r.own.gpu[0].opened_ns, fake_now);
	assert_int_equal(o.r.wakes, 1);
	fake_now += 50000;
	assert_true(sched_agent_step(o.r.s) <= 50000);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	fake_finish(&o.fq);
	sched_synced(o.r.s, o.q);
	fake_now += 199000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1); /* during the close delay */
	fake_now += 2000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(o.r.own.gpu[0].seq, 1);
	assert_int_equal(o.r.own.gpu[0].last_end_ns, fake_now);
	assert_int_equal(o.r.stats.requests, 1);
	assert_int_equal(o.r.stats.request_ns, 50000); /* without the close delay */
	assert_int_equal(o.r.stats.request_hist[proto_hist_bucket(50000)], 1);
	assert_true(sched_agent_step(o.r.s) > SCHED_OPEN_POLL_NS);
	go(o.q, &o.fq, &o.l);
	assert_int_equal(o.r.wakes, 2); /* even out of its slow poll */
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	fake_now += 2 * SCHED_AWAKE_NS;
	(void)sched_agent_step(o.r.s);
	o.r.s->agent.last_kernels_ns = 0; /* or it would wake again for the statistics */
	assert_int_equal(sched_agent_step(o.r.s), UINT64_MAX);
	one_finish(&o);
}

static void launches_within_the_close_delay_continue_the_request(void **state)
{
	struct one o;

	one_init(&o);
	for (int i = 0; i < 8; i++) {
		go(o.q, &o.fq, &o.l);
		fake_now += 30000;
		fake_finish(&o.fq);
		sched_synced(o.r.s, NULL);
		fake_now += 100000;
		(void)sched_agent_step(o.r.s);
		assert_int_equal(o.r.own.gpu[0].open, 1);
	}
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	assert_int_equal(o.r.stats.requests, 1);
	assert_int_equal(o.r.stats.request_ns, 8 * 30000 + 7 * 100000);
	one_finish(&o);
}

static void ends_without_a_synchronization_too(void **state)
{
	struct one o;

	one_init(&o);
	go(o.q, &o.fq, &o.l);
	fake_now += 10000;
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	one_finish(&o);
}

static void a_launch_inside_the_driver_keeps_it_open(void **state)
{
	struct one o;

	one_init(&o);
	assert_int_equal(ticket_begin(o.q, &o.l), SCHED_GO);
	sched_synced(
		o.r.s,
		NULL); /* another thread's synchronization: this launch is not on the device yet */
	fake_now += 10000000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	ticket_end(false); /* the driver refused it */
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	one_finish(&o);
}

static void a_synchronization_that_saw_a_part_does_not_close(void **state)
{
	struct one o;

	one_init(&o);
	go(o.q, &o.fq, &o.l);
	sched_synced(o.r.s, o.q); /* it returned for launches of another thread */
	fake_now += 10000000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	one_finish(&o);
}

static void
a_queue_that_only_its_thread_can_ask_ends_by_markers_or_by_a_synchronization(void **state)
{
	struct one o;

	one_init(&o);
	o.fq.mute = 1;
	go(o.q, &o.fq, &o.l);
	(void)sched_agent_step(o.r.s);
	sched_synced(o.r.s, o.q);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);

	go(o.q, &o.fq, &o.l); /* this launch has a marker */
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);

	o.fq.refuse_marks = 1; /* without any report it ends after a while */
	go(o.q, &o.fq, &o.l);
	(void)sched_agent_step(o.r.s);
	fake_now += SCHED_UNKNOWN_NS;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	fake_now += 1;
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	one_finish(&o);
}

static void the_policy_chooses_the_close_delay_up_to_a_maximum(void **state)
{
	struct prog p = PROG(retire, no_linger), lp = PROG(retire, long_linger);
	struct one o;

	one_init(&o);
	assert_int_equal(rig_policy_prepare(&o.r, 1, &p, 1, NULL), 0);
	o.r.dir.version[0] = 1;
	go(o.q, &o.fq, &o.l);
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);

	assert_int_equal(rig_policy_prepare(&o.r, 2, &lp, 1, NULL), 0);
	o.r.dir.version[0] = 2;
	go(o.q, &o.fq, &o.l);
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	fake_now += SCHED_MAX_CLOSE_DELAY_NS - 1;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 1);
	fake_now += 1;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.gpu[0].open, 0);
	one_finish(&o);
}

/* Two threads submit, synchronize and submit again while the agent closes as early as it can: while
 * a launch is between submit and the end of its work, the board is open. */
struct racer {
	struct one *o;
	uint32_t rounds;
	uint64_t closed_inside;
};

static void *race(void *arg)
{
	struct racer *t = arg;

	for (uint32_t i = 0; i < t->rounds; i++) {
		struct sched_launch l = kernel_launch(NULL);

		(void)ticket_begin(t->o->q, &l);
		for (int k = 0; k < 3; k++) {
			/* Closed between two stores of a close that meets an opening is allowed,
			 * closed for longer is not. */
			for (int tries = 0; !load_seqcst(&t->o->r.own.gpu[0].open); tries++) {
				if (tries > 50000000) {
					t->closed_inside++;
					break;
				}
			}
		}
		ticket_end(true);
		if (i % 8 == 0) { /* lets the agent find the queue drained, and meets it doing so */
			uint64_t until = clock_now_ns() + 20000;

			while (load_seqcst(&t->o->r.own.gpu[0].open) && clock_now_ns() < until) {
			}
		}
	}
	return NULL;
}

static void never_closed_for_good_while_a_launch_is_inside(void **state)
{
	struct prog p = PROG(retire, no_linger);
	struct one o;
	struct racer t[2];
	pthread_t th[2];

	one_init(&o);
	clock_set_source(NULL);
	o.fq.eager = 1;
	assert_int_equal(rig_policy_prepare(&o.r, 1, &p, 1, NULL), 0);
	o.r.dir.version[0] = 1;
	for (int i = 0; i < 2; i++) {
		t[i] = (struct racer){ .o = &o, .rounds = 10000 };
		pthread_create(&th[i], NULL, race, &t[i]);
	}
	for (uint64_t want = 2 * 10000; sched_tally_sum(&o.q->left) < want;) {
		(void)sched_agent_step(o.r.s);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(th[i], NULL);
		assert_int_equal(t[i].closed_inside, 0);
	}
	while (load_acquire(&o.r.own.gpu[0].open)) {
		(void)sched_agent_step(o.r.s);
	}
	assert_true(o.r.stats.requests > 1);
	one_finish(&o);
}

static void without_gbpfd_the_last_policy_stays_and_boards_count_as_closed(void **state)
{
	struct proto_directory *dir =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;

	rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	sched_set_pages(r.s, dir, &r.own, &r.stats, NULL);
	POLICY_USE(&r, 7, hold_while_open);
	dir->version[0] = 7;
	l = kernel_launch(NULL);
	go(q, &fq, &l);
	assert_int_equal(l.version, 7);
	other_opens(&r);
	sched_set_pages(r.s, NULL, NULL, NULL, NULL);
	munmap(dir, 4096);
	go(q, &fq, &l);
	assert_int_equal(l.version, 7);
	assert_int_equal(l.held_ns, 0);
	rig_finish(&r);
}

static uint32_t verdict_now(struct rig *r, struct sched_queue *q)
{
	struct sched_launch l = kernel_launch(NULL);
	struct sched_verdict v;

	sched_ask(q, &l, clock_now_ns(), &v);
	return v.verdict;
}

static void boards_of_the_dead_and_of_the_stopped_do_not_count(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct rig r;

	fake_now = 1000000000;
	clock_set_source(fake_clock);
	rig_init(&r, GBPF_CLASS_BATCH, 60000000000u, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	POLICY_USE(&r, 7, hold_while_open);
	r.dir.version[0] = 7;
	other_opens(&r);
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	r.other.owner = 4711;
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	r.other.owner = PROTO_OWNER_DIED;
	assert_int_equal(verdict_now(&r, q), GBPF_GO);
	assert_true(sched_boards_quiet_since(r.s, 0, fake_now, false));
	r.other.owner = 4711;

	r.other.beat_ns = 1; /* of a request before; this one was opened just now */
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	fake_now += PROTO_BEAT_NS;
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	fake_now += 1;
	assert_int_equal(verdict_now(&r, q), GBPF_GO);
	r.other.beat_ns = fake_now; /* it is alive */
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	r.other.beat_ns = 0; /* it does not report */
	fake_now += 100 * (uint64_t)PROTO_BEAT_NS;
	assert_int_equal(verdict_now(&r, q), GBPF_HOLD);
	rig_finish(&r);
	clock_set_source(NULL);
}

static void the_agent_says_that_it_is_there_while_a_request_is_open(void **state)
{
	struct one o;

	one_init(&o);
	(void)sched_agent_step(o.r.s);
	assert_int_equal(o.r.own.beat_ns, 0);
	go(o.q, &o.fq, &o.l);
	for (uint64_t slept = 0; slept < 100 * (uint64_t)PROTO_BEAT_NS;) {
		uint64_t ns = sched_agent_step(o.r.s);

		assert_int_equal(o.r.own.beat_ns, fake_now);
		assert_true(ns < PROTO_BEAT_NS / 10);
		fake_now += ns;
		slept += ns;
	}
	one_finish(&o);
}

static void an_open_request_moves_to_a_new_board(void **state)
{
	struct proto_board board = { 0 };
	struct one o;

	one_init(&o);
	go(o.q, &o.fq, &o.l);
	sched_set_pages(o.r.s, &o.r.dir, &board, &o.r.stats, NULL);
	assert_int_equal(board.gpu[0].open, 1);
	fake_finish(&o.fq);
	(void)sched_agent_step(o.r.s);
	fake_now += 200000;
	(void)sched_agent_step(o.r.s);
	assert_int_equal(board.gpu[0].open, 0);
	one_finish(&o);
}

static void a_forked_child_passes_everything(void **state)
{
	struct one o;

	one_init(&o);
	go(o.q, &o.fq, &o.l);
	sched_after_fork_child(o.r.s);
	assert_true(sched_idle(o.r.s));
	fake_finish(&o.fq);
	fake_now += 100000000;
	assert_int_equal(sched_agent_step(o.r.s), UINT64_MAX);
	assert_int_equal(o.r.own.gpu[0].open,
			 1); /* the request is the parent's, and only the parent may close it */
	assert_int_equal(go(o.q, &o.fq, &o.l), SCHED_GO);
	one_finish(&o);
}

static void class_changes_move_queues_and_idleness(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_launch l;
	struct sched_queue *q;
	struct rig r;

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	assert_true(sched_idle(r.s));
	sched_set_class(r.s, GBPF_CLASS_LATENCY, 300);
	assert_false(sched_idle(r.s));
	l = kernel_launch(NULL);
	go(q, &fq, &l);
	assert_int_equal(r.own.gpu[0].open, 1);
	sched_set_class(r.s, GBPF_CLASS_BATCH, 100);
	fake_finish(&fq);
	do {
		(void)sched_agent_step(r.s);
	} while (load_acquire(&r.own.gpu[0].open));
	assert_true(sched_idle(r.s));
	rig_finish(&r);
}

static void buckets_hold_their_floors(void **state)
{
	unsigned last = 0;

	for (uint64_t ns = 0; ns < 1ull << 45; ns = ns < 64 ? ns + 1 : ns + ns / 13) {
		unsigned b = proto_hist_bucket(ns);

		assert_true(b >= last && b < PROTO_HIST_BUCKETS);
		assert_true(proto_hist_floor(b) <= ns);
		assert_true(proto_hist_floor(b + 1) > ns);
		last = b;
	}
	assert_int_equal(proto_hist_bucket(UINT64_MAX), PROTO_HIST_BUCKETS - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_at_the_first_launch_and_closes_after_the_close_delay),
		cmocka_unit_test(launches_within_the_close_delay_continue_the_request),
		cmocka_unit_test(ends_without_a_synchronization_too),
		cmocka_unit_test(a_launch_inside_the_driver_keeps_it_open),
		cmocka_unit_test(a_synchronization_that_saw_a_part_does_not_close),
		cmocka_unit_test(
			a_queue_that_only_its_thread_can_ask_ends_by_markers_or_by_a_synchronization),
		cmocka_unit_test(the_policy_chooses_the_close_delay_up_to_a_maximum),
		cmocka_unit_test(never_closed_for_good_while_a_launch_is_inside),
		cmocka_unit_test(without_gbpfd_the_last_policy_stays_and_boards_count_as_closed),
		cmocka_unit_test(boards_of_the_dead_and_of_the_stopped_do_not_count),
		cmocka_unit_test(the_agent_says_that_it_is_there_while_a_request_is_open),
		cmocka_unit_test(an_open_request_moves_to_a_new_board),
		cmocka_unit_test(a_forked_child_passes_everything),
		cmocka_unit_test(class_changes_move_queues_and_idleness),
		cmocka_unit_test(buckets_hold_their_floors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
