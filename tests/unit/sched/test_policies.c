/* The shipped policies: the verifier accepts them, and their decisions. Arguments: the objects FIFO
 * FAIR LC_FIRST LC_LAST. */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/shm.h"
#include "bpf/load/policy.h"
#include "sched/sched_int.h"

enum { FIFO, FAIR, LC_FIRST, LC_LAST };
static char **objects;

static uint64_t fake_now;

static uint64_t fake_clock(void)
{
	return fake_now;
}

/* A policy as gbpfd prepares it: built from its object, with its regions. */
struct loaded {
	const struct ebpf_built *built; /* borrowed */
	int fd[EBPF_REGIONS];
	void *base[EBPF_REGIONS];
};

static struct ebpf_built *built(int which)
{
	static struct ebpf_built all[4]; /* verified once for all tests */
	static char elf[1 << 20];
	struct report r;
	struct buf text;
	FILE *f;
	size_t n;

	if (all[which].code_bytes) {
		return &all[which];
	}
	f = fopen(objects[which], "rb");
	assert_non_null(f);
	n = fread(elf, 1, sizeof(elf), f);
	fclose(f);
	report_init(&r);
	buf_init(&text);
	if (ebpf_policy_build(&all[which], elf, n, "policy", 1, 0, &r)) {
		report_text(&r, &text);
		fail_msg("%s: %s", objects[which], buf_text(&text));
	}
	report_finish(&r);
	return &all[which];
}

static void load(struct loaded *p, int which)
{
	memset(p, 0, sizeof(*p));
	p->built = built(which);
	for (int i = 0; i < EBPF_REGIONS; i++) {
		size_t bytes = i == EBPF_REGION_DAEMON ? 0 : p->built->region_bytes[i];

		p->fd[i] = bytes ? shm_create("r", bytes, SHM_NOEXEC) : -1;
		p->base[i] = bytes ? shm_map(p->fd[i], bytes, 1) : NULL;
		if (p->base[i]) {
			ebpf_built_init_region(p->built, i, p->base[i]);
		}
	}
}

static void unload(struct loaded *p)
{
	for (int i = 0; i < EBPF_REGIONS; i++) {
		if (p->fd[i] >= 0) {
			shm_unmap(p->base[i], p->built->region_bytes[i]);
			close(p->fd[i]);
		}
	}
}

static void use(struct rig *r, struct loaded *p, uint64_t version)
{
	assert_int_equal(sched_policy_prepare(r->s, version, UINT32_MAX, p->built->image_fd, p->fd),
			 0);
	r->dir.version[0] = version;
}

static struct sched_decision ask(struct sched_queue *q, uint64_t est_ns)
{
	struct sched_launch l = kernel_launch(NULL);
	struct sched_decision a;

	l.est_ns = est_ns;
	sched_decide(q, &l, clock_now_ns(), 0, 0, &a);
	assert_int_equal(a.fault, SCHED_FAULT_NONE);
	return a;
}

struct one {
	struct rig r;
	struct loaded p;
	struct fake_queue fq;
	struct sched_queue *q;
};

static void one_init(struct one *o, int which, uint32_t class_id)
{
	memset(o, 0, sizeof(*o));
	fake_now = 1000000000;
	clock_set_source(fake_clock);
	load(&o->p, which);
	rig_init(&o->r, class_id, 0, 0);
	use(&o->r, &o->p, 1);
	o->q = sched_queue_open(o->r.s, &o->fq, 0, 0);
}

static void one_finish(struct one *o)
{
	clock_set_source(NULL);
	rig_finish(&o->r);
	unload(&o->p);
}

static void fifo_lets_everything_go(void **state)
{
	struct one o;

	one_init(&o, FIFO, GBPF_CLASS_BATCH);
	o.r.other.gpu[0].open = 1;
	sched_tally_set(&o.r.s->gpu[0].inflight, SCHED_ACC(100, 100000000));
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO);
	sched_tally_set(&o.r.s->gpu[0].inflight, 0);
	one_finish(&o);
}

static void lc_first_holds_others_while_a_request_is_open(void **state)
{
	struct one o;

	one_init(&o, LC_FIRST, GBPF_CLASS_BATCH);
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO);
	o.r.other.gpu[0].open = 1;
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_HOLD);
	o.r.other.gpu[0].open = 0;
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO);
	sched_set_class(o.r.s, GBPF_CLASS_NORMAL, 100);
	o.r.other.gpu[0].open = 1;
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_HOLD);
	sched_set_class(o.r.s, GBPF_CLASS_LATENCY, 100);
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO);
	one_finish(&o);
}

static void lc_first_bounds_work_in_flight(void **state)
{
	struct one o;

	one_init(&o, LC_FIRST, GBPF_CLASS_BATCH);
	assert_int_equal(ask(o.q, 50000000).verdict, GBPF_GO); /* a single launch may always run */
	sched_tally_set(&o.r.s->gpu[0].inflight, SCHED_ACC(1, 500000));
	assert_int_equal(ask(o.q, 500000).verdict, GBPF_GO);
	sched_tally_set(&o.r.s->gpu[0].inflight, SCHED_ACC(2, 1000000));
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO); /* no latency program */
	o.r.other.gpu[0].last_end_ns = fake_now - 1;
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_HOLD);
	assert_int_equal(ask(o.q, 0).verdict, GBPF_HOLD);
	sched_tally_set(&o.r.s->gpu[0].inflight, 0);
	one_finish(&o);
}

static void lc_last_exchanges_the_verdicts(void **state)
{
	struct one o;

	one_init(&o, LC_LAST, GBPF_CLASS_BATCH);
	o.r.other.gpu[0].open = 1;
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_GO);
	sched_set_class(o.r.s, GBPF_CLASS_LATENCY, 100);
	assert_int_equal(ask(o.q, 1000000).verdict, GBPF_DEFER);
	one_finish(&o);
}

/* gbpfd with two tenants of fair: their regions, and its own view of the programs. */
struct fair {
	struct loaded p;
	struct one *t[2];
	struct ebpf_policy daemon;
	struct ebpf_tenant_ops ops;
};

static void *region(void *ctx, uint32_t tenant)
{
	struct fair *f = ctx;

	return tenant < 2 ? f->t[tenant]->p.base[EBPF_REGION_TENANT] : NULL;
}

static void tick(struct fair *f)
{
	struct gbpf_tick_ctx c = {
		.now_ns = fake_now, .period_ns = 1000000, .tenants = 2, .active = 2
	};

	ebpf_policy_run(&f->daemon, POLICY_HOOK_tick, &c);
}

static void fair_init(struct fair *f, struct one *a, struct one *b)
{
	memset(f, 0, sizeof(*f));
	fake_now = 1000000000;
	clock_set_source(fake_clock);
	load(&f->p, FAIR);
	f->t[0] = a;
	f->t[1] = b;
	for (int i = 0; i < 2; i++) {
		struct one *o = f->t[i];
		size_t bytes = f->p.built->region_bytes[EBPF_REGION_TENANT];

		memset(o, 0, sizeof(*o));
		load(&o->p, FAIR);
		rig_init(&o->r, i ? GBPF_CLASS_LATENCY : GBPF_CLASS_BATCH, 0, 0);
		assert_true(bytes > 0);
		o->p.fd[0] = dup(f->p.fd[0]); /* all tenants share the global region */
		use(&o->r, &o->p, 1);
		o->q = sched_queue_open(o->r.s, &o->fq, 0, 0);
	}
	f->ops = (struct ebpf_tenant_ops){ .region = region, .ctx = f };
	assert_int_equal(ebpf_policy_open(&f->daemon, f->p.built->image_fd,
					  (int[EBPF_REGIONS]){ f->p.fd[0], -1, -1, -1 },
					  EBPF_OPEN_DAEMON),
			 0);
	f->daemon.env.tenants = &f->ops;
	tick(f);
}

static void fair_finish(struct fair *f)
{
	ebpf_policy_close(&f->daemon);
	one_finish(f->t[0]);
	one_finish(f->t[1]);
	unload(&f->p);
}

static void charge(struct one *o, uint64_t ns)
{
	struct sched_retired r = { .duration_ns = ns, .count = 1, .version = 1 };

	sched_hook_retire(o->q, &r, fake_now);
}

static void fair_defers_the_tenant_that_is_ahead(void **state)
{
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	for (int i = 0; i < 30; i++) { /* b always waits for the GPU, a gets it */
		assert_int_equal(ask(b.q, 1000000).verdict, GBPF_GO);
		if (ask(a.q, 1000000).verdict == GBPF_GO) {
			charge(&a, 1000000);
		}
		fake_now += 1000000;
		tick(&f);
	}
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_DEFER);
	charge(&b, 8000000); /* b has caught up */
	for (int i = 0; i < 2; i++) {
		(void)ask(b.q, 1000000);
		fake_now += 1000000;
		tick(&f);
	}
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_GO);
	charge(&b, 20000000); /* b, latency-critical, may run further ahead */
	assert_int_equal(ask(b.q, 1000000).verdict, GBPF_GO);
	fair_finish(&f);
}

/* A tenant with little work must not slow others down to its own pace. */
static void fair_leaves_no_time_unused(void **state)
{
	unsigned went = 0;
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	for (int i = 0; i < 1000; i++) {
		if (i % 10 == 0) { /* b: 0.1 ms in each 10 ms */
			assert_int_equal(ask(b.q, 100000).verdict, GBPF_GO);
			charge(&b, 100000);
		}
		if (ask(a.q, 900000).verdict == GBPF_GO) {
			went++;
			fake_now += 1000000;
			tick(&f);
			charge(&a, 900000);
		} else {
			fake_now += 1000000;
			tick(&f);
		}
	}
	assert_true(went > 980);
	fair_finish(&f);
}

static void fair_saves_nothing_up_for_the_idle(void **state)
{
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	for (int i = 0; i < 1000; i++) { /* alone, a is never deferred */
		assert_int_equal(ask(a.q, 1000000).verdict, GBPF_GO);
		charge(&a, 1000000);
		fake_now += 1000000;
		tick(&f);
	}
	assert_int_equal(ask(b.q, 1000000).verdict, GBPF_GO);
	tick(&f);
	/* b begins where a is: a is not deferred for the second in which b was idle. */
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_GO);
	fair_finish(&f);
}

static void fair_shares_by_weight(void **state)
{
	uint64_t used[2] = { 0 };
	bool out[2] = { false };
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	sched_set_class(a.r.s, GBPF_CLASS_NORMAL, 300);
	sched_set_class(b.r.s, GBPF_CLASS_NORMAL, 100);
	for (int i = 0; i < 8000; i++) { /* both want more than their share */
		int k = i & 1;

		if (out[k]) {
			charge(f.t[k], 500000);
			used[k] += 500000;
			out[k] = false;
		}
		out[k] = ask(f.t[k]->q, 500000).verdict == GBPF_GO;
		fake_now += out[k] ? 500000 : 100000;
		tick(&f);
	}
	assert_in_range(used[0] * 100 / used[1], 280, 320);
	fair_finish(&f);
}

static void fair_lets_go_without_gbpfd(void **state)
{
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	for (int i = 0; i < 20; i++) {
		(void)ask(b.q, 1);
		(void)ask(a.q, 1);
		fake_now += 1000000;
		tick(&f);
	}
	charge(&a, 1000000000);
	tick(&f);
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_DEFER);
	fake_now += 60000000;
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_GO);
	fair_finish(&f);
}

static void fair_bounds_work_in_flight(void **state)
{
	struct one a, b;
	struct fair f;

	fair_init(&f, &a, &b);
	sched_tally_set(&a.r.s->gpu[0].inflight, SCHED_ACC(8, 8000000));
	assert_int_equal(ask(a.q, 1000000).verdict, GBPF_HOLD);
	sched_tally_set(&a.r.s->gpu[0].inflight, SCHED_ACC(1, 50000000));
	assert_int_equal(ask(a.q, 50000000).verdict, GBPF_HOLD);
	sched_tally_set(&a.r.s->gpu[0].inflight, 0);
	assert_int_equal(ask(a.q, 50000000).verdict, GBPF_GO);
	fair_finish(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fifo_lets_everything_go),
		cmocka_unit_test(lc_first_holds_others_while_a_request_is_open),
		cmocka_unit_test(lc_first_bounds_work_in_flight),
		cmocka_unit_test(lc_last_exchanges_the_verdicts),
		cmocka_unit_test(fair_defers_the_tenant_that_is_ahead),
		cmocka_unit_test(fair_leaves_no_time_unused),
		cmocka_unit_test(fair_saves_nothing_up_for_the_idle),
		cmocka_unit_test(fair_shares_by_weight),
		cmocka_unit_test(fair_lets_go_without_gbpfd),
		cmocka_unit_test(fair_bounds_work_in_flight),
	};

	objects = argv + 1;
	return argc == 5 ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
