/* Budgets: launches of vec_add without a tool, and with one that has a budget, which then runs in a
 * share of them. The share's cost is to stay below the budget, with all that gBPF adds to find it
 * out; and the tool counts exactly the launches that gBPF says have run it. */
#include <jansson.h>

#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/probe/bench_probe.h"

#define BUDGET_PPM 30000u
#define BUDGET_SOFT_PPM 1000000u /* a program takes longer than the kernel */
#define CHAINS 3u		 /* whose mean is a measurement */
#define SETTLING 3u		 /* chains after the cost is known */
#define ROUNDS_SHARE 5u		 /* rounds of the cost for each of these */
#define STATE_NS 120000000000ull

struct row {
	const char *name, *object;
	bool tracer;
	unsigned each; /* threads for which it counts 1 */
	unsigned counts;
};

static const struct row rows[] = {
	{ "warp", "warp_counter", false, 32, 1 },
	{ "memtrace", "memtrace", true, 1, 3 },
};
static const enum bench_probe_workload workloads[] = { BENCH_PROBE_CHAINED, BENCH_PROBE_LARGE };

/* What the tool has counted, and what gBPF says of it, at one moment. */
struct moment {
	struct bench_probe_state state;
	uint64_t counted;
};

/* The sum is read first: the program then says which launches have run the tool. */
static int take_moment(struct bench_probe *p, const struct row *r, const struct bench_probe_tool *t,
		       struct moment *m)
{
	int err = r->tracer ? bench_probe_accesses(p, t, &m->counted)
			    : bench_probe_sum(p, t, &m->counted);

	return err || bench_probe_get_state(p, t, &m->state) ? -1 : 0;
}

static int measure(struct bench_probe *p, enum bench_probe_workload w, unsigned chains,
		   double *ret_us)
{
	int err = 0;

	*ret_us = 0;
	for (unsigned i = 0; i < chains && !err; i++) {
		struct bench_probe_time t = { 0 };

		err = bench_probe_measure(p, BENCH_PROBE_SHIM, w, &t);
		*ret_us += t.us / chains;
	}
	return err;
}

/* Launches until the cost is known, and some more: until then the share is not the budget's. */
static int settle(struct bench_probe *p, enum bench_probe_workload w,
		  const struct bench_probe_tool *t)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	struct bench_probe_state s = { .cost_known = false };
	double unused;
	int err = 0;

	while (!err && !s.cost_known) {
		err = measure(p, w, 1, &unused) || bench_probe_get_state(p, t, &s);
		if (!err && !s.cost_known && clock_now_ns() > deadline) {
			err = bench_testbed_fail(&p->testbed, "the cost of tool %u is not known",
						 t->id);
		}
	}
	return err ? err : measure(p, w, SETTLING, &unused);
}

static int record(struct bench_probe *p, const struct row *r, enum bench_probe_workload w,
		  const struct bench_probe_tool *t, double without_us, double with_us,
		  const struct moment *m)
{
	uint64_t launches = m[1].state.launches - m[0].state.launches;
	uint64_t probed = m[1].state.probed - m[0].state.probed;
	uint64_t each = (uint64_t)p->gpu.size[w].threads / r->each * r->counts;

	return bench_testbed_record(
		&p->testbed, "budget",
		json_pack("{s:s, s:s, s:i, s:f, s:f, s:i, s:I, s:I, s:I, s:I}", "row", r->name,
			  "workload", bench_probe_workloads[w], "budget_ppm", (int)t->budget_ppm,
			  "without_us", without_us, "with_us", with_us, "cost_ppm",
			  (int)m[1].state.cost_ppm, "launches", (json_int_t)launches, "probed",
			  (json_int_t)probed, "expected", (json_int_t)(probed * each), "counted",
			  (json_int_t)(m[1].counted - m[0].counted)));
}

static uint32_t budget_of(const struct bench_probe *p)
{
	return p->testbed.soft ? BUDGET_SOFT_PPM : BUDGET_PPM;
}

static int mix(struct bench_probe *p, const struct row *r, const struct buf *object,
	       enum bench_probe_workload w)
{
	struct bench_probe_tool t = { .map = "counts", .budget_ppm = budget_of(p) };
	double without_us, with_us = 0;
	struct moment m[2];
	int err = measure(p, w, CHAINS, &without_us) ||
		  bench_probe_attach(p, object, "vec_add", 0, &t) || settle(p, w, &t) ||
		  take_moment(p, r, &t, &m[0]) || measure(p, w, CHAINS, &with_us) ||
		  take_moment(p, r, &t, &m[1]) || bench_probe_detach(p, &t, NULL);

	return err ? err : record(p, r, w, &t, without_us, with_us, m);
}

static int round_of(struct bench_probe *p, const struct row *r)
{
	struct buf object;
	int err = r->tracer ? bench_probe_tracer(p, r->object, &object)
			    : bench_probe_object(p, r->object, &object);

	for (unsigned i = 0; i < ARRAY_SIZE(workloads) && !err; i++) {
		err = mix(p, r, &object, workloads[i]);
	}
	buf_finish(&object);
	return err;
}

int bench_probe_budget(struct bench_probe *p)
{
	unsigned rounds = (p->rounds + ROUNDS_SHARE - 1) / ROUNDS_SHARE;
	int err = 0;

	for (unsigned round = 0; round < rounds && !err; round++) {
		bench_testbed_progress(&p->testbed, "probe: budgets, round %u of %u", round + 1,
				       rounds);
		for (unsigned i = 0; i < ARRAY_SIZE(rows) && !err; i++) {
			if (!p->rows || bench_program_lists(p->rows, rows[i].name)) {
				err = round_of(p, &rows[i]);
			}
		}
	}
	return err ? -1 : 0;
}
