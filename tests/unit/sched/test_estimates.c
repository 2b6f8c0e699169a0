/* What is learned of one sample, exactly; which launches share an estimate; and which kernels the
 * statistics page shows. */
#include "clocked.h"

#include <stdio.h>

static void grids_share_an_estimate_by_powers_of_four(void **state)
{
	static const struct {
		uint64_t blocks;
		unsigned class;
	} cases[] = {
		{ 0, 0 },	   { 1, 0 },	 { 3, 0 },     { 4, 1 },
		{ 15, 1 },	   { 16, 2 },	 { 63, 2 },    { 64, 3 },
		{ 255, 3 },	   { 256, 4 },	 { 4095, 5 },  { 4096, 6 },
		{ 16383, 6 },	   { 16384, 7 }, { 65536, 7 }, { UINT64_C(1) << 40, 7 },
		{ UINT64_MAX, 7 },
	};
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		c.l.blocks = cases[i].blocks;
		assert_ptr_equal(sched_estimate_of(c.r.s, &c.l), &c.k->est[cases[i].class]);
	}
	clocked_finish(&c);
}

static void copies_and_memsets_share_an_estimate_by_size(void **state)
{
	static const struct {
		uint64_t bytes;
		unsigned class;
	} cases[] = {
		{ 0, 0 },
		{ 1, 0 },
		{ 2, 1 },
		{ 3, 1 },
		{ 4, 2 },
		{ (UINT64_C(1) << 39) - 1, 38 },
		{ UINT64_C(1) << 39, 39 },
		{ UINT64_C(1) << 40, 39 },
		{ UINT64_MAX, 39 },
	};
	struct sched_launch l = { .kind = GBPF_KIND_GRAPH };
	struct clocked c;

	clocked_init(&c, GBPF_CLASS_BATCH);
	assert_null(sched_estimate_of(c.r.s, &l));
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		l.bytes = cases[i].bytes;
		l.kind = GBPF_KIND_COPY;
		assert_ptr_equal(sched_estimate_of(c.r.s, &l), &c.r.s->copy_est[0][cases[i].class]);
		l.kind = GBPF_KIND_MEMSET;
		assert_ptr_equal(sched_estimate_of(c.r.s, &l), &c.r.s->copy_est[1][cases[i].class]);
	}
	clocked_finish(&c);
}

/* { estimate, interval, samples so far }, the sample, and what they become */
static void one_sample_changes_estimate_and_interval(void **state)
{
	static const struct {
		uint64_t est;
		uint32_t interval, seen;
		uint64_t sample, then_est;
		uint32_t then_interval, then_seen;
	} cases[] = {
		/* the first one counts as it is, from 1 ns to 60 s */
		{ 0, 9, 9, 0, 1, 1, 1 },
		{ 0, 0, 0, 777, 777, 1, 1 },
		{ 0, 0, 0, 60 * SECOND + 1, 60 * SECOND, 1, 1 },
		/* within a quarter and 500 ns the interval doubles, beyond it halves; the estimate
		 * rises by a sixteenth */
		{ 1000, 1, 1, 1750, 1046, 2, 2 },
		{ 1000, 4, 1, 1751, 1046, 2, 2 },
		/* one of the first four replaces a longer estimate, a later one takes half of the
		 * difference away */
		{ 1000, 4, 1, 250, 250, 8, 2 },
		{ 1000, 4, 1, 249, 249, 2, 2 },
		{ 100000, 4, 3, 50000, 50000, 2, 4 },
		{ 100000, 8, 4, 50000, 75000, 4, 5 },
		/* at most 256 launches between two samples */
		{ 100000, 100, 4, 100000, 100000, 200, 5 },
		{ 100000, 128, 4, 100000, 100000, 256, 5 },
		{ 100000, 200, 4, 100000, 100000, 256, 5 },
		{ 100000, 256, 4, 100000, 100000, 256, 5 },
		/* short kernels are measured rarely once four samples exist */
		{ 49999, 2, 3, 49999, 49999, 4, 4 },
		{ 49999, 2, 4, 49999, 49999, 128, 5 },
		{ 50000, 1, 4, 50000, 50000, 4, 5 },
		{ 499999, 1, 4, 499999, 499999, 4, 5 },
		{ 500000, 1, 4, 500000, 500000, 2, 5 },
		{ 500000, 3, 4, 5, 250003, 1, 5 },
		/* a sample counts as eight times the estimate at most */
		{ 160000, 4, 4, 7 * 160000, 220000, 4, 5 },
		{ 160000, 4, 4, 8 * 160000, 230000, 4, 5 },
		{ 160000, 4, 4, 100 * 160000, 230000, 4, 5 },
		{ 600000, 2, 999999, 600000, 600000, 4, 1000000 },
		{ 600000, 2, 1000000, 600000, 600000, 4, 1000000 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sched_estimate e = { .est_ns = cases[i].est,
					    .interval = cases[i].interval,
					    .seen = cases[i].seen };

		sched_estimate_learn(&e, cases[i].sample);
		assert_int_equal(e.est_ns, cases[i].then_est);
		assert_int_equal(e.interval, cases[i].then_interval);
		assert_int_equal(e.seen, cases[i].then_seen);
	}
}

static void one_launch_of_an_interval_is_measured(void **state)
{
	static const uint32_t intervals[] = { 0, 1, 2, 5, 256 };

	for (unsigned i = 0; i < ARRAY_SIZE(intervals); i++) {
		struct sched_estimate e = { .interval = intervals[i] };
		uint32_t every = intervals[i] ? intervals[i] : 1;

		for (uint32_t n = 0; n < 3 * every; n++) {
			assert_int_equal(sched_estimate_due(&e), n % every == 0);
		}
	}
}

static void a_kernel_is_known_by_its_name(void **state)
{
	struct sched_kernel *a, *b, *c;
	char name[200];
	struct clocked o;

	clocked_init(&o, GBPF_CLASS_BATCH);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	a = sched_kernel_get(o.r.s, name);
	name[198] = 'y'; /* differs beyond what the statistics show */
	b = sched_kernel_get(o.r.s, name);
	c = sched_kernel_get(o.r.s, "short");
	assert_true(a && b && c && a != b);
	assert_ptr_equal(sched_kernel_get(o.r.s, name), b);
	assert_true(a->hash != b->hash && a->hash != c->hash && a->hash && b->hash);
	assert_int_equal(strlen(a->name), PROTO_KERNEL_NAME - 1);
	assert_string_equal(a->name, b->name);
	assert_string_equal(c->name, "short");
	sched_after_fork_child(o.r.s);
	assert_null(sched_kernel_get(o.r.s, "short"));
	clocked_finish(&o);
}

static void there_are_65536_kernels_at_most(void **state)
{
	struct sched_kernel *first;
	char name[16];
	struct clocked o;

	clocked_init(&o, GBPF_CLASS_BATCH); /* has made one */
	first = sched_kernel_get(o.r.s, "k");
	for (unsigned i = 1; i < 65536; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_non_null(sched_kernel_get(o.r.s, name));
	}
	assert_null(sched_kernel_get(o.r.s, "one more"));
	assert_ptr_equal(sched_kernel_get(o.r.s, "k"), first);
	clocked_finish(&o);
}

/* Publishes the kernels and returns the number that the page shows under that name. */
static unsigned shown(struct clocked *o, const char *name)
{
	unsigned n = 0;

	sched_kernels_publish(o->r.s, &o->r.stats);
	for (unsigned i = 0; i < PROTO_KERNELS; i++) {
		n += strcmp(o->r.stats.kernel[i].name, name) == 0;
	}
	return n;
}

static void kernel(struct clocked *o, const char *name, uint64_t count)
{
	store_relaxed(&sched_kernel_get(o->r.s, name)->count, count);
}

static void the_most_launched_kernels_are_shown(void **state)
{
	char name[16];
	struct clocked o;

	clocked_init(&o, GBPF_CLASS_BATCH);
	kernel(&o, "k", 64);
	for (unsigned i = 1; i < PROTO_KERNELS; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		kernel(&o, name, 100 + 10 * (PROTO_KERNELS - i));
		assert_int_equal(shown(&o, name), 1);
	}
	assert_int_equal(o.r.stats.kernel[0].count, 64); /* in the order of their first launch */
	assert_int_equal(o.r.stats.kernel[1].count, 100 + 10 * 63);
	kernel(&o, "more", 64);
	assert_int_equal(shown(&o, "more"), 0); /* not more often than the rarest */
	assert_int_equal(shown(&o, "k"), 1);
	kernel(&o, "more", 65);
	assert_int_equal(shown(&o, "more"), 1);
	assert_int_equal(shown(&o, "k"), 0);
	for (unsigned i = 1; i < PROTO_KERNELS; i++) {
		assert_true(o.r.stats.kernel[i - 1].count < o.r.stats.kernel[i].count);
		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(shown(&o, name), 1);
	}
	kernel(&o, "k", 65);
	assert_int_equal(shown(&o, "k"), 0);
	kernel(&o, "k", 1000); /* back, instead of the rarest now */
	assert_int_equal(shown(&o, "k"), 1);
	assert_int_equal(shown(&o, "more"), 0);
	assert_int_equal(o.r.stats.kernel[PROTO_KERNELS - 1].count, 1000);
	clocked_finish(&o);
}

static void the_estimate_of_the_most_measured_grid_is_shown(void **state)
{
	struct clocked o;

	clocked_init(&o, GBPF_CLASS_BATCH);
	o.k->est[0] = (struct sched_estimate){ .est_ns = 10, .seen = 2 };
	assert_int_equal(shown(&o, "k"), 1);
	assert_int_equal(o.r.stats.kernel[0].est_ns, 10);
	o.k->est[3] = (struct sched_estimate){ .est_ns = 30, .seen = 5 };
	o.k->est[7] = (struct sched_estimate){ .est_ns = 70, .seen = 5 };
	(void)shown(&o, "k");
	assert_int_equal(o.r.stats.kernel[0].est_ns, 30);
	o.k->est[7].seen = 6;
	store_relaxed(&o.k->block_ns, UINT64_C(444));
	sched_kernel_set_block(o.k, 3);
	(void)shown(&o, "k");
	assert_int_equal(o.r.stats.kernel[0].est_ns, 70);
	assert_int_equal(o.r.stats.kernel_block_ns[0], 444);
	assert_int_equal(o.r.stats.kernel_block[0], 3);
	assert_int_equal(o.r.stats.kernel[0].hash, o.k->hash);
	clocked_finish(&o);
}

static const struct ebpf_insn goes[] = { I_MOV(0, GBPF_GO), I_EXIT };

/* Launches that can be stopped between blocks are counted apart, and persistent ones among them. */
static void stoppable_and_persistent_launches_are_counted(void **state)
{
	static const struct {
		uint64_t blocks;
		bool ok;
	} launches[] = { { 100, false }, { 100, true }, { 100, true },
			 { 33, true },	 { 20, true },	{ 20, false } };
	const struct proto_stats *st;
	struct clocked o;

	clocked_init(&o, GBPF_CLASS_BATCH);
	POLICY_USE(&o.r, 1, goes);
	o.l.resident = 33;
	o.l.stop = GBPF_STOP_MACHINE_CODE;
	for (unsigned i = 0; i < ARRAY_SIZE(launches); i++) {
		o.l.blocks = launches[i].blocks;
		o.l.block_ok = launches[i].ok;
		(void)go(o.q, &o.fq, &o.l);
	}
	o.l.block_ok = true;
	(void)ticket_begin(o.q, &o.l);
	ticket_end(false); /* the driver refused it */
	for (unsigned e = 0; e < SCHED_EST_CLASSES; e++) {
		o.k->est[e] = (struct sched_estimate){ .est_ns = 1000, .seen = 1 };
	}
	(void)shown(&o, "k");
	st = &o.r.stats;
	assert_int_equal(st->kernel[0].count, 6);
	assert_int_equal(st->kernel_stop[0], GBPF_STOP_MACHINE_CODE);
	assert_int_equal(st->kernel_stoppable[0], 4);
	assert_int_equal(st->kernel_persistent[0], 2);
	assert_int_equal(st->reach.launches, 6);
	assert_int_equal(st->reach.stoppable, 4);
	assert_int_equal(st->reach.persistent, 2);
	assert_int_equal(st->reach.launches_ns, 6000);
	assert_int_equal(st->reach.stoppable_ns, 4000);
	assert_int_equal(st->reach.persistent_ns, 2000);
	clocked_finish(&o);
}

/* Turns of other processes lengthen samples: these are left out until all have been as long. */
static void samples_with_turns_of_others_are_left_out(void **state)
{
	struct sched_estimate e = { .est_ns = 10000000, .interval = 1, .seen = 9 };

	for (unsigned i = 0; i < 200; i++) {
		sched_estimate_learn_shared(&e, i % 50 ? 38000000 : 10000000, SCHED_OTHERS_TURN_NS);
		assert_int_equal(e.est_ns, 10000000);
	}
	for (unsigned i = 0; i < 12; i++) { /* 51 in a row now */
		sched_estimate_learn_shared(&e, 38000000, SCHED_OTHERS_TURN_NS);
	}
	assert_int_equal(e.est_ns, 10000000);
	sched_estimate_learn_shared(
		&e, 11499999,
		SCHED_OTHERS_TURN_NS); /* shorter than by a slice: an ordinary sample */
	assert_int_equal(e.est_ns, 10000000 + 1499999 / 16);
	for (unsigned i = 0; i < 63; i++) {
		sched_estimate_learn_shared(&e, i == 20 ? 30000000 : 38000000,
					    SCHED_OTHERS_TURN_NS);
	}
	assert_true(e.est_ns < 11000000);
	sched_estimate_learn_shared(
		&e, 38000000, SCHED_OTHERS_TURN_NS); /* the 64th: the kernel has become longer */
	assert_int_equal(e.est_ns, 30000000);
	sched_estimate_learn_shared(&e, 10000000, SCHED_OTHERS_TURN_NS);
	assert_int_equal(e.est_ns, 20000000); /* half of the difference, as always */
}

/* Shared lane: kernels of other processes run before or between a kernel's blocks, so that only a
 * few of its samples, if any, are of the kernel alone. */
static void kernels_of_others_do_not_lengthen_an_estimate(void **state)
{
	static const uint64_t others[] = { 10000000, 600000, 10600000, 0, 350000, 900000, 5000000 };
	static const uint64_t firsts[] = { 0, 600000, 61000000 };

	for (unsigned first = 0; first < ARRAY_SIZE(firsts); first++) {
		struct sched_estimate e = { .est_ns = firsts[first], .interval = 1 };

		for (unsigned i = 0; i < 700; i++) {
			sched_estimate_learn_shared(&e, 600000 + others[i % 7],
						    SCHED_OTHERS_KERNEL_NS);
			if (i >= 100) {
				assert_in_range(e.est_ns, 600000, 610000);
			}
		}
	}
}

/* A kernel that has become longer is known as such by the shortest of 64 samples. */
static void an_estimate_next_to_others_rises_to_the_shortest_sample(void **state)
{
	struct sched_estimate e = { .est_ns = 600000, .interval = 4, .seen = 9 };

	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(e.est_ns, 600000);
		sched_estimate_learn_shared(&e, i == 7 ? 900000 : 1500000, SCHED_OTHERS_KERNEL_NS);
	}
	assert_int_equal(e.est_ns, 900000);
}

/* Samples that are left out do not keep a short kernel measured at each launch. */
static void a_short_kernel_next_to_others_is_measured_rarely(void **state)
{
	struct sched_estimate e = { .interval = 0 };
	unsigned measured = 0;

	for (unsigned i = 0; i < 2000; i++) {
		if (sched_estimate_due(&e)) {
			sched_estimate_learn_shared(&e, measured++ ? 90000 : 10000,
						    SCHED_OTHERS_KERNEL_NS);
		}
	}
	assert_in_range(measured, 4, 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_of_others_do_not_lengthen_an_estimate),
		cmocka_unit_test(an_estimate_next_to_others_rises_to_the_shortest_sample),
		cmocka_unit_test(a_short_kernel_next_to_others_is_measured_rarely),
		cmocka_unit_test(samples_with_turns_of_others_are_left_out),
		cmocka_unit_test(grids_share_an_estimate_by_powers_of_four),
		cmocka_unit_test(copies_and_memsets_share_an_estimate_by_size),
		cmocka_unit_test(one_sample_changes_estimate_and_interval),
		cmocka_unit_test(one_launch_of_an_interval_is_measured),
		cmocka_unit_test(a_kernel_is_known_by_its_name),
		cmocka_unit_test(there_are_65536_kernels_at_most),
		cmocka_unit_test(the_most_launched_kernels_are_shown),
		cmocka_unit_test(the_estimate_of_the_most_measured_grid_is_shown),
		cmocka_unit_test(stoppable_and_persistent_launches_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
