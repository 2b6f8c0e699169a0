/* Deferral: in a process with latency queues no other launch blocks its thread; calls are deferred
 * in their order instead. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#include "sched/sched_int.h"

/* The policy: queues above number 0 are batch, and are held while another tenant has a request
 * open. */
static const struct ebpf_insn classes[] = {
	I_LDX(EBPF_W, 2, 1, offsetof(struct gbpf_queue_create_ctx, queue)),
	I_J(EBPF_JEQ, 2, 0, 2),
	I_MOV(3, GBPF_CLASS_BATCH),
	I_STX(EBPF_W, 1, offsetof(struct gbpf_queue_create_ctx, class_id), 3),
	I_MOV(0, 0),
	I_EXIT,
};
/* rank: the queue's number */
static const struct ebpf_insn later_first[] = {
	I_LDX(EBPF_W, 0, 1, offsetof(struct gbpf_dispatch_ctx, queue)),
	I_EXIT,
};

#define MOST 4096
static struct {
	uint32_t n;
	uint32_t order[MOST];
	uint32_t freed;
} log_;

struct test_call {
	struct sched_call call;
	struct fake_queue *fq;
	uint32_t tag;
	int error;
};

static int run(struct sched_call *c)
{
	struct test_call *t = (struct test_call *)c;

	fake_launch(t->fq, 1000);
	log_.order[add_acqrel(&log_.n, 1u) % MOST] = t->tag;
	return t->error;
}

static void free_call(struct sched_call *c)
{
	(void)add_acqrel(&log_.freed, 1u);
	free(c);
}

static void defer(struct sched_queue *q, struct fake_queue *fq, const struct sched_launch *l,
		  uint32_t tag, int error)
{
	struct test_call *t = calloc(1, sizeof(*t));

	t->call.run = run;
	t->call.free = free_call;
	t->call.is_launch = l != NULL;
	if (l) {
		t->call.launch = *l;
	}
	t->fq = fq;
	t->tag = tag;
	t->error = error;
	sched_defer(q, &t->call);
}

struct mixed {
	struct rig r;
	struct fake_queue fq[3];
	struct sched_queue *q[3];
};

static void mixed_init(struct mixed *m, uint64_t limit_ns)
{
	struct prog p[] = { PROG(queue_create, classes), PROG(submit, hold_while_open),
			    PROG(dispatch, later_first) };

	memset(m, 0, sizeof(*m));
	memset(&log_, 0, sizeof(log_));
	rig_init(&m->r, GBPF_CLASS_LATENCY, limit_ns, 0);
	assert_int_equal(rig_policy_prepare(&m->r, 1, p, 3, NULL), 0);
	m->r.dir.version[0] = 1;
	for (int i = 0; i < 3; i++) {
		m->fq[i].eager = 1;
		m->q[i] = sched_queue_open(m->r.s, &m->fq[i], 0, 0);
	}
}

static void batch_beside_latency_is_deferred_not_blocked(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	assert_int_equal(go(m.q[1], &m.fq[1], &l), SCHED_GO);
	assert_int_equal(m.r.own.gpu[0].open, 0); /* a batch queue opens no request */
	other_opens(&m.r);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER); /* returns at once */
	assert_int_equal(m.r.stats.holds, 0);
	rig_finish(&m.r);
}

static void order_is_kept_and_the_agent_issues(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	for (uint32_t i = 0; i < 100; i++) {
		if (i % 3 == 1) {
			defer(m.q[1], &m.fq[1], NULL, i, 0); /* ordered behind launches only */
		} else {
			assert_int_equal(i ? ticket_begin(m.q[1], &l) : SCHED_DEFER, SCHED_DEFER);
			defer(m.q[1], &m.fq[1], &l, i, 0);
		}
	}
	assert_true(sched_queue_deferred(m.q[1]));
	assert_false(sched_queue_deferred(m.q[2]));
	assert_int_equal(m.r.stats.deferred, 100);
	(void)sched_agent_step(m.r.s);
	assert_int_equal(log_.n, 0);
	other_closes(&m.r);
	/* Later calls are deferred behind it, although the policy would say GO now. */
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 100, 0);
	while (sched_queue_deferred(m.q[1])) {
		(void)sched_agent_step(m.r.s);
	}
	assert_int_equal(log_.n, 101);
	assert_int_equal(log_.freed, 101);
	for (uint32_t i = 0; i < 101; i++) {
		assert_int_equal(log_.order[i], i);
	}
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_GO);
	ticket_end(true);
	rig_finish(&m.r);
}

static void dispatch_ranks_queues(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 1, 0);
	assert_int_equal(ticket_begin(m.q[2], &l), SCHED_DEFER);
	defer(m.q[2], &m.fq[2], &l, 2, 0);
	other_closes(&m.r);
	(void)sched_agent_step(m.r.s); /* the first pass may come before the retry time */
	while (log_.n < 2) {
		(void)sched_agent_step(m.r.s);
	}
	assert_int_equal(log_.order[0], 2);
	assert_int_equal(log_.order[1], 1);
	rig_finish(&m.r);
}

static void flush_is_bounded_by_the_limit_and_gives_the_first_error(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	uint64_t begin;
	struct mixed m;

	mixed_init(&m, 20000000);
	other_opens(&m.r); /* it never closes */
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 0, 0);
	defer(m.q[1], &m.fq[1], &l, 1, 701);
	defer(m.q[1], &m.fq[1], &l, 2, 702);
	begin = clock_now_ns();
	assert_int_equal(sched_drain(m.r.s, NULL), 701);
	assert_true(clock_now_ns() - begin >= 19000000);
	assert_int_equal(log_.n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(log_.order[i], i);
	}
	assert_int_equal(sched_drain(m.r.s, NULL), 0);
	assert_true(m.r.stats.limit_hits > 0);
	rig_finish(&m.r);
}

static void off_and_close_issue_everything(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 0, 0);
	sched_set_off(m.r.s, true);
	assert_false(sched_idle(m.r.s)); /* the order must be restored first */
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 1, 0);
	while (sched_queue_deferred(m.q[1])) {
		(void)sched_agent_step(m.r.s);
	}
	assert_true(sched_idle(m.r.s));
	assert_int_equal(log_.order[0], 0);
	assert_int_equal(log_.order[1], 1);
	sched_set_off(m.r.s, false);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 2, 0);
	sched_set_limits(m.r.s, 1000000, 20000);
	sched_queue_close(m.q[1]);
	assert_int_equal(log_.n, 3);
	rig_finish(&m.r);
}

/* More calls than the stream completes would fill a hardware queue and block the agent in the
 * driver. A drain waits outside of the driver, and continues when the stream does. */
static void a_stalled_stream_gets_a_bounded_number_of_calls(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	m.fq[1].eager = 0;
	other_opens(&m.r);
	for (uint32_t i = 0; i < 2000; i++) {
		assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
		defer(m.q[1], &m.fq[1], i % 2 ? &l : NULL, i, 0);
	}
	other_closes(&m.r);
	for (uint32_t i = 0; i < 4000; i++) {
		(void)sched_agent_step(m.r.s);
	}
	assert_true(log_.n > 0 && log_.n <= 512);
	m.fq[1].refuse_marks = 1; /* as during a capture: then the stream is asked */
	for (uint32_t last = 0; sched_queue_deferred(m.q[1]); last = log_.n) {
		fake_finish(&m.fq[1]);
		for (uint32_t i = 0; i < 100; i++) {
			(void)sched_agent_step(m.r.s);
		}
		assert_true(log_.n - last <= 512 || !last);
	}
	assert_int_equal(log_.n, 2000);
	for (uint32_t i = 0; i < 2000; i++) {
		assert_int_equal(log_.order[i], i);
	}
	rig_finish(&m.r);
}

/* A thread that waits until they are submitted may be the one that unblocks the stream later. */
static void a_waiting_thread_submits_more_to_a_stalled_stream(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	uint32_t i = 0, last;
	struct mixed m;

	mixed_init(&m, 60000000000u);
	m.fq[1].eager = 0;
	other_opens(&m.r);
	for (; i < 550; i++) {
		assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
		defer(m.q[1], &m.fq[1], i % 2 ? &l : NULL, i, 0);
	}
	other_closes(&m.r);
	assert_int_equal(sched_drain(m.r.s, m.q[1]), 0);
	assert_int_equal(log_.n, 550);
	for (; i < 2000; i++) {
		defer(m.q[1], &m.fq[1], i % 2 ? &l : NULL, i, 0);
	}
	for (uint32_t k = 0; k < 4000; k++) {
		(void)sched_agent_step(m.r.s);
	}
	assert_true(log_.n <= 850); /* but not more than the driver takes */
	for (last = log_.n; sched_queue_deferred(m.q[1]); last = log_.n) {
		fake_finish(&m.fq[1]);
		for (uint32_t k = 0; k < 100; k++) {
			(void)sched_agent_step(m.r.s);
		}
		assert_true(log_.n - last <= 512);
	}
	assert_int_equal(log_.n, 2000);
	rig_finish(&m.r);
}

/* Nor does it get launches that would go at once while a run is unfinished: the stream may wait for
 * missing blocks of that run. */
static void launches_do_not_fill_a_stalled_stream_during_a_run(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;
	uint32_t n = 0;

	mixed_init(&m, 60000000000u);
	m.fq[1].eager = 0;
	while (n < 2000) {
		assert_int_equal(go(m.q[1], &m.fq[1], &l), SCHED_GO);
		n++;
	}
	store_relaxed(&m.r.s->n_runs, 1u);
	assert_int_equal(ticket_begin(m.q[1], &l),
			 SCHED_DEFER); /* the hardware queue is full already */
	defer(m.q[1], &m.fq[1], &l, 0, 0);
	fake_finish(&m.fq[1]);
	while (sched_queue_deferred(m.q[1])) {
		(void)sched_agent_step(m.r.s);
	}
	for (n = 0; n < 2000 && ticket_begin(m.q[1], &l) == SCHED_GO; n++) {
		fake_launch(&m.fq[1], 1000);
		ticket_end(true);
	}
	assert_true(n >= 100 && n <= 512);
	defer(m.q[1], &m.fq[1], &l, 1, 0);
	fake_finish(&m.fq[1]);
	while (sched_queue_deferred(m.q[1])) {
		(void)sched_agent_step(m.r.s);
	}
	store_relaxed(&m.r.s->n_runs, 0u);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_GO);
	ticket_end(true);
	rig_finish(&m.r);
}

static void a_forked_child_has_nothing_deferred(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 0, 0);
	sched_after_fork_child(m.r.s);
	assert_false(sched_queue_deferred(m.q[1]));
	assert_int_equal(sched_drain(m.r.s, NULL), 0);
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_GO);
	assert_null(sched_queue_open(m.r.s, &m.fq[0], 0, 0));
	sched_queue_close(m.q[1]);
	assert_int_equal(log_.n, 0); /* only the parent submits it */
	rig_finish(&m.r);
	assert_int_equal(log_.freed, 1);
}

/* Threads defer and drain concurrently while the agent submits: the calls of each queue run once,
 * in their order. */
struct producer {
	struct mixed *m;
	struct sched_queue *q;
	struct fake_queue *fq;
	uint32_t n, expect, wrong;
};
struct counted_call {
	struct sched_call call;
	struct producer *p;
	uint32_t number;
};

static int run_counted(struct sched_call *c)
{
	struct counted_call *t = (struct counted_call *)c;

	t->p->wrong += t->number != t->p->expect;
	t->p->expect++;
	return 0;
}

static void free_counted(struct sched_call *c)
{
	free(c);
}

static void *produce(void *arg)
{
	struct producer *p = arg;

	for (uint32_t i = 0; i < 2000; i++) {
		struct sched_launch l = kernel_launch(NULL);

		if (ticket_begin(p->q, &l) == SCHED_DEFER) {
			struct counted_call *c = calloc(1, sizeof(*c));

			c->call.run = run_counted;
			c->call.free = free_counted;
			c->call.launch = l;
			c->call.is_launch = true;
			c->p = p;
			c->number = p->n++;
			sched_defer(p->q, &c->call);
		} else {
			struct counted_call c = { .p = p, .number = p->n++ };

			run_counted(&c.call);
			ticket_end(true);
		}
		if (i % 64 == 63) {
			(void)sched_drain(p->m->r.s, p->q);
		}
	}
	(void)sched_drain(p->m->r.s, p->q);
	return NULL;
}

static void agent_and_flushes_keep_the_order(void **state)
{
	struct producer p[2];
	pthread_t th[2];
	struct mixed m;

	mixed_init(&m, 2000000);
	rig_start_agent(&m.r);
	for (int i = 0; i < 2; i++) {
		p[i] = (struct producer){ .m = &m, .q = m.q[i + 1], .fq = &m.fq[i + 1] };
		pthread_create(&th[i], NULL, produce, &p[i]);
	}
	for (int i = 0; i < 500; i++) {
		other_opens(&m.r);
		other_closes(&m.r);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(th[i], NULL);
		assert_int_equal(p[i].wrong, 0);
		assert_int_equal(p[i].expect, 2000);
	}
	rig_finish(&m.r);
}

/* Calls of all queues share one numbering, which shows what a queue has to submit before a call of
 * another. */
static void calls_are_numbered_across_queues(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	uint64_t before, between;
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	before = sched_next_number(m.r.s);
	assert_false(sched_queue_behind(m.q[1], before));
	l.behind = true;
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 1, 0);
	assert_true(sched_queue_alone(m.q[1]));
	assert_false(sched_queue_alone(m.q[2]));
	between = sched_next_number(m.r.s);
	defer(m.q[1], &m.fq[1], &l, 2, 0);
	defer(m.q[2], &m.fq[2], &l, 3, 0);
	assert_false(sched_queue_behind(m.q[1], before));
	assert_true(sched_queue_behind(m.q[1], between));
	assert_false(sched_queue_behind(m.q[2], between));
	assert_true(sched_queue_behind(m.q[2], sched_next_number(m.r.s)));
	assert_false(sched_queue_alone(m.q[1]));
	other_closes(&m.r);
	(void)sched_drain(m.r.s, NULL);
	assert_int_equal(log_.n, 3);
	assert_false(sched_queue_behind(m.q[1], sched_next_number(m.r.s)));
	assert_true(sched_queue_alone(m.q[1]));
	rig_finish(&m.r);
}

/* A launch during a capture may be deferred behind other calls, but the policy does not hold it. */
static void a_deferred_launch_that_must_not_be_held_is_submitted(void **state)
{
	struct sched_launch l = kernel_launch(NULL);
	struct mixed m;

	mixed_init(&m, 60000000000u);
	other_opens(&m.r);
	l.may_hold = false;
	l.behind = true;
	assert_int_equal(ticket_begin(m.q[1], &l), SCHED_DEFER);
	defer(m.q[1], &m.fq[1], &l, 7, 0);
	(void)sched_agent_step(m.r.s);
	assert_int_equal(log_.n, 1);
	assert_int_equal(m.r.stats.limit_hits, 0);
	assert_true(m.r.stats.max_held_ns < 10000000000u);
	rig_finish(&m.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batch_beside_latency_is_deferred_not_blocked),
		cmocka_unit_test(order_is_kept_and_the_agent_issues),
		cmocka_unit_test(dispatch_ranks_queues),
		cmocka_unit_test(calls_are_numbered_across_queues),
		cmocka_unit_test(flush_is_bounded_by_the_limit_and_gives_the_first_error),
		cmocka_unit_test(off_and_close_issue_everything),
		cmocka_unit_test(a_stalled_stream_gets_a_bounded_number_of_calls),
		cmocka_unit_test(a_waiting_thread_submits_more_to_a_stalled_stream),
		cmocka_unit_test(launches_do_not_fill_a_stalled_stream_during_a_run),
		cmocka_unit_test(a_forked_child_has_nothing_deferred),
		cmocka_unit_test(a_deferred_launch_that_must_not_be_held_is_submitted),
		cmocka_unit_test(agent_and_flushes_keep_the_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
