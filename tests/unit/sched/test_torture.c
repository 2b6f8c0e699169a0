/* All operations at once, for a second: threads launch on queues of all classes while versions,
 * boards, pages, classes and `off` change. No thread hangs, every call runs once and in the order
 * of its queue, and in the end no work is in flight. */
#include "fake.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sched/sched_int.h"

#include "../eventually.h"

#define THREADS 3
#define QUEUES 2
#define SECONDS 1

/* submit: by prandom, mostly GO, with a grant, sometimes HOLD or DEFER for 50 us */
static const struct ebpf_insn random_verdict[] = {
	{ .code = EBPF_ALU64 | EBPF_MOV | EBPF_X, .dst = 6, .src = 1 },
	I_ST(EBPF_W, 1, SUBMIT(grant), 32),
	{ .code = EBPF_JMP | EBPF_CALL, .imm = 7 }, /* bpf_get_prandom_u32 */
	I_MOV(3, 50000),
	I_STX(EBPF_DW, 6, SUBMIT(hold_ns), 3),
	{ .code = EBPF_ALU64 | EBPF_AND | EBPF_K, .dst = 0, .imm = 31 },
	I_J(EBPF_JLE, 0, 2, 1),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};
static const struct ebpf_insn hold_briefly[] = {
	I_MOV(3, 300000),
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 3),
	I_LDX(EBPF_W, 2, 1, SUBMIT(lc_open)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JEQ, 2, 0, 1),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
};
/* queue_create: class = queue number % 3 */
static const struct ebpf_insn mixed_classes[] = {
	I_LDX(EBPF_W, 2, 1, offsetof(struct gbpf_queue_create_ctx, queue)),
	{ .code = EBPF_ALU64 | EBPF_MOD | EBPF_K, .dst = 2, .imm = 3 },
	I_STX(EBPF_W, 1, offsetof(struct gbpf_queue_create_ctx, class_id), 2),
	I_MOV(0, 0),
	I_EXIT,
};
static const struct ebpf_insn count_retired[] = {
	I_VALUE(2, 1, 0), I_LDX(EBPF_W, 3, 1, RETIRE(count)), I_ATOMIC_ADD(2, 0, 3), I_MOV(0, 0),
	I_EXIT,
};

struct stream {
	struct fake_queue fq;
	struct sched_queue *q;
	uint64_t given, ran, wrong, granted;
};

struct worker {
	struct rig *r;
	struct sched_kernel *k;
	uint32_t *stop;
	unsigned seed;
	struct stream stream[QUEUES];
};

struct call {
	struct sched_call call;
	struct stream *s;
	uint64_t number;
};

static int run(struct sched_call *c)
{
	struct call *t = (struct call *)c;

	t->s->wrong += t->s->ran != t->number;
	t->s->ran++;
	fake_launch(&t->s->fq, 10000);
	fake_finish(&t->s->fq);
	return 0;
}

static void free_call(struct sched_call *c)
{
	free(c);
}

static void one_launch(struct worker *w, struct stream *s)
{
	struct sched_launch l = kernel_launch(w->k);
	enum sched_answer answer;
	struct call *c;

	l.may_hold = rand_r(&w->seed) % 16 != 0;
	l.blocks = 1u << rand_r(&w->seed) % 16;
	l.granted = sched_granted(s->q, &l);
	answer = ticket_begin(s->q, &l);
	if (answer == SCHED_ASK) {
		answer = ticket_begin(s->q, &l);
	}
	if (answer == SCHED_DEFER) {
		c = calloc(1, sizeof(*c));
		c->call.run = run;
		c->call.free = free_call;
		c->call.launch = l;
		c->call.is_launch = true;
		c->s = s;
		c->number = s->given++;
		sched_defer(s->q, &c->call);
		return;
	}
	s->granted += l.granted;
	run(&(struct call){ .s = s, .number = s->given++ }.call);
	ticket_end(rand_r(&w->seed) % 64 != 0);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!load_acquire(w->stop)) {
		struct stream *s = &w->stream[rand_r(&w->seed) % QUEUES];

		one_launch(w, s);
		switch (rand_r(&w->seed) % 64) {
		case 0:
			(void)sched_drain(w->r->s, s->q);
			sched_synced(w->r->s, s->q);
			break;
		case 1:
			(void)sched_drain(w->r->s, NULL);
			sched_synced(w->r->s, NULL);
			break;
		case 2:
			sched_queue_close(s->q);
			s->wrong += s->ran != s->given;
			s->q = sched_queue_open(w->r->s, &s->fq, 0, 0);
			break;
		}
	}
	return NULL;
}

/* The session's calls, on the agent's thread. */
static void change_something(struct rig *r, struct regions *m, uint64_t *version, unsigned *seed)
{
	struct prog p[] = { PROG(submit, random_verdict), PROG(queue_create, mixed_classes),
			    PROG(retire, count_retired) };

	switch (rand_r(seed) % 7) {
	case 0:
		if (rand_r(seed) & 1) {
			p[0] = (struct prog)PROG(submit, hold_briefly);
		}
		assert_int_equal(rig_policy_prepare(r, *version + 1, p, 3, m), 0);
		store_release(&r->dir.version[0], ++*version);
		sched_policy_drop(r->s, *version - 1, UINT32_MAX);
		break;
	case 1:
		other_opens(r);
		break;
	case 2:
		other_closes(r);
		break;
	case 3:
		sched_board_remove(r->s, SCHED_BOARD_LATENCY, 3);
		if (rand_r(seed) % 4 == 0) { /* without one, launches go by grant */
			(void)sched_board_add(r->s, SCHED_BOARD_LATENCY, 3, 2, &r->other);
		}
		break;
	case 4:
		sched_set_class(r->s, (uint32_t)rand_r(seed) % 3, 100);
		break;
	case 5:
		sched_set_off(r->s, rand_r(seed) % 4 == 0);
		break;
	case 6:
		sched_set_pages(r->s, rand_r(seed) % 4 ? &r->dir : NULL, &r->own, &r->stats, NULL);
		(void)sched_board_add(r->s, SCHED_BOARD_LATENCY, 3, 2, &r->other);
		break;
	}
}

static void everything_at_once(void **state)
{
	static struct worker w[THREADS];
	uint64_t until, version = 0, given = 0, granted = 0;
	pthread_t th[THREADS];
	struct regions m;
	unsigned seed = 7;
	uint32_t stop = 0;
	struct rig r;

	fake_live_markers = 0;
	rig_init(&r, GBPF_CLASS_BATCH, 5000000, 500000);
	regions_make(&m);
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){
			.r = &r, .k = sched_kernel_get(r.s, "k"), .stop = &stop, .seed = i + 1
		};
		for (unsigned e = 0; e < SCHED_EST_CLASSES; e++) {
			w[i].k->est[e] = (struct sched_estimate){
				.est_ns = 5000, .interval = 256, .left = 256, .seen = 9
			};
		}
		for (int k = 0; k < QUEUES; k++) {
			w[i].stream[k].q = sched_queue_open(r.s, &w[i].stream[k].fq, 0, 0);
		}
		pthread_create(&th[i], NULL, work, &w[i]);
	}
	until = clock_now_ns() + SECONDS * 1000000000ull;
	while (clock_now_ns() < until) {
		(void)sched_agent_step(r.s);
		if (rand_r(&seed) % 8 == 0) {
			change_something(&r, &m, &version, &seed);
		}
		sched_yield();
	}
	store_release(&stop, 1u);
	rig_start_agent(&r);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(th[i], NULL);
	}
	(void)sched_drain(r.s, NULL);
	for (int i = 0; i < THREADS; i++) {
		for (int k = 0; k < QUEUES; k++) {
			sched_queue_close(w[i].stream[k].q);
			assert_int_equal(w[i].stream[k].wrong, 0);
			assert_int_equal(w[i].stream[k].ran, w[i].stream[k].given);
			given += w[i].stream[k].given;
			granted += w[i].stream[k].granted;
		}
	}
	rig_stop_agent(&r);
	eventually((sched_agent_step(r.s), r.own.gpu[0].open == 0));
	assert_int_equal(sched_inflight(r.s), 0);
	assert_in_range(r.stats.launches, 0, given);
	print_message("%lu of %lu launches by grant\n", granted, given);
	assert_int_equal(r.s->n_deferred, 0);
	assert_int_equal(fake_live_markers, 0);
	rig_finish(&r);
	regions_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
