/* Cost of programs at launches of vec_add: each is measured directly before the program is attached
 * and while it is attached, in one process and by one handle. The counts of the programs are
 * compared with the launches. */
#include "bench/probe/bench_probe.h"

#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "bench/common/program.h"

#define STATE_NS 120000000000ull /* of a state that is waited for */
#define POLL_NS 1000000u
#define TIMES 32u /* warps whose times are compared */

/* Of vec_add, in which each lane has three accesses. */
#define ACCESSES_OF_LANE 3u

struct row {
	const char *name, *object, *kernel, *map;
	enum bench_probe_counted counted; /* BENCH_COUNTED_NOTHING: the program has no map, or its
					     kernel is not launched */
};

static const struct row rows[] = {
	{ "warp", "warp_counter", "vec_add", "counts", BENCH_COUNTED_WARPS },
	{ "block", "block_counter", "vec_add", "counts", BENCH_COUNTED_BLOCKS },
	{ "sampled", "block_sampler", "vec_add", "counts", BENCH_COUNTED_SAMPLED },
	{ "lane", "lane_counter", "vec_add", "counts", BENCH_COUNTED_LANES },
	{ "empty", "empty_enter", "vec_add", NULL, BENCH_COUNTED_NOTHING },
	{ "timer", "exit_timer", "vec_add", "times", BENCH_COUNTED_WARP_TIMES },
	{ "memtrace", "memtrace", "vec_add", "accesses", BENCH_COUNTED_ACCESSES },
	{ "retsnoop", "kernelretsnoop", "vec_add", "returns", BENCH_COUNTED_RETURNS },
	{ "elsewhere", "warp_counter", "other", "counts", BENCH_COUNTED_NOTHING },
	{ "detached", "warp_counter", "vec_add", "counts", BENCH_COUNTED_WARPS },
};

/* The measurements of a round without a program, and with it. */
struct pair {
	unsigned round;
	struct bench_probe_time without[BENCH_PROBE_WORKLOADS], with[BENCH_PROBE_WORKLOADS];
};

static bool is_chosen(const struct bench_probe *p, const char *row)
{
	return !p->rows || bench_program_lists(p->rows, row);
}

static int measure_all(struct bench_probe *p, enum bench_probe_by by, struct bench_probe_time *t)
{
	int err = 0;

	for (unsigned w = 0; w < BENCH_PROBE_WORKLOADS && !err; w++) {
		err = bench_probe_measure(p, by, (enum bench_probe_workload)w, &t[w]);
	}
	return err;
}

static int record(struct bench_probe *p, const char *row, const struct pair *m)
{
	int err = 0;

	for (unsigned w = 0; w < BENCH_PROBE_WORKLOADS && !err; w++) {
		err = bench_testbed_record(
			&p->testbed, "pair",
			json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "row", row, "workload",
				  bench_probe_workloads[w], "round", (int)m->round, "without_us",
				  m->without[w].us, "with_us", m->with[w].us, "without_call_us",
				  m->without[w].call_us, "with_call_us", m->with[w].call_us));
	}
	return err;
}

/* ---- what the programs have counted ---- */

/* Fills the numbers of warps of the largest grid, the first and the last among them. */
static void choose_warps(const struct bench_probe *p, uint64_t key[TIMES])
{
	uint64_t warps = p->gpu.size[BENCH_PROBE_LARGE].threads / 32;

	for (unsigned i = 0; i < TIMES; i++) {
		key[i] = (warps - 1) * i / (TIMES - 1);
	}
}

/* The tool's count, and the work of all launches, at one moment. */
struct count {
	uint64_t tool, work, times[TIMES];
};

static int take_count(struct bench_probe *p, const struct row *r, const struct bench_probe_tool *t,
		      struct count *c)
{
	uint64_t key[TIMES];

	c->work = bench_probe_work_of(&p->gpu.done, r->counted, ACCESSES_OF_LANE);
	c->tool = 0;
	if (r->counted == BENCH_COUNTED_WARP_TIMES) {
		choose_warps(p, key);
		return bench_probe_times(p, t, key, TIMES, c->times);
	}
	if (r->counted == BENCH_COUNTED_ACCESSES) {
		return bench_probe_accesses(p, t, &c->tool);
	}
	if (r->counted == BENCH_COUNTED_RETURNS) {
		return bench_probe_returns(p, t, &c->tool);
	}
	return r->map ? bench_probe_sum(p, t, &c->tool) : 0;
}

/* Records how much the tool counted between two moments; of times, how many are newer. */
static int compare(struct bench_probe *p, const struct row *r, const struct count *before,
		   const struct count *after)
{
	uint64_t counted = after->tool - before->tool, expected = after->work - before->work;

	if (!r->map) {
		return 0;
	}
	for (unsigned i = 0; i < TIMES && r->counted == BENCH_COUNTED_WARP_TIMES; i++) {
		counted += after->times[i] > before->times[i];
		expected++;
	}
	return bench_testbed_record(&p->testbed, "count",
				    json_pack("{s:s, s:I, s:I}", "row", r->name, "expected",
					      (json_int_t)expected, "counted",
					      (json_int_t)counted));
}

/* ---- rounds ---- */

/* Launches the kernel until it runs the tool: it is known from its next launch on. */
static int await_running(struct bench_probe *p, const struct row *r,
			 const struct bench_probe_tool *t)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	bool running = false;
	int err = 0;

	while (!err && !running) {
		err = strcmp(r->kernel, "other") == 0 ? bench_probe_launch_other(p)
						      : bench_probe_launch_blocks(p, 1);
		err = err ? err : bench_probe_is_running(p, t, &running);
		if (!err && !running) {
			if (clock_now_ns() > deadline || bench_testbed_interrupted()) {
				err = bench_testbed_fail(&p->testbed,
							 bench_testbed_interrupted()
								 ? "interrupted"
								 : "a kernel does not get its "
								   "program");
			}
			clock_sleep_ns(POLL_NS);
		}
	}
	return err;
}

static int measure_attached(struct bench_probe *p, const struct row *r,
			    const struct bench_probe_tool *t, struct bench_probe_time *with)
{
	struct count before, after;

	return take_count(p, r, t, &before) || measure_all(p, BENCH_PROBE_SHIM, with) ||
			       take_count(p, r, t, &after) || compare(p, r, &before, &after)
		       ? -1
		       : 0;
}

/* Of the row "detached" the measurement without is one by the driver's library, because each other
 * one is behind an earlier attachment; "before" is the same before the first. */
static int round_of(struct bench_probe *p, const struct row *r, unsigned round)
{
	bool detached = strcmp(r->name, "detached") == 0;
	struct bench_probe_tool t = { .map = r->map };
	struct pair m = { .round = round };
	struct bench_probe_time unused[BENCH_PROBE_WORKLOADS];
	struct buf object;
	bool tracer = r->counted == BENCH_COUNTED_ACCESSES || r->counted == BENCH_COUNTED_RETURNS;
	int err = tracer ? bench_probe_tracer(p, r->object, &object)
			 : bench_probe_object(p, r->object, &object);

	err = err || (!detached && measure_all(p, BENCH_PROBE_SHIM, m.without));
	err = err || bench_probe_attach(p, &object, r->kernel, 0, &t) || await_running(p, r, &t) ||
	      measure_attached(p, r, &t, detached ? unused : m.with) ||
	      bench_probe_detach(p, &t, NULL);
	if (!err && detached) {
		err = measure_all(p, BENCH_PROBE_DRIVER, m.without) ||
		      measure_all(p, BENCH_PROBE_SHIM, m.with);
	}
	buf_finish(&object);
	return err || record(p, r->name, &m) ? -1 : 0;
}

static int measure_before(struct bench_probe *p)
{
	int err = 0;

	for (unsigned i = 0; i < p->rounds && !err; i++) {
		struct pair m = { .round = i };

		err = measure_all(p, BENCH_PROBE_DRIVER, m.without) ||
		      measure_all(p, BENCH_PROBE_SHIM, m.with) || record(p, "before", &m);
	}
	return err;
}

int bench_probe_cost(struct bench_probe *p)
{
	unsigned n = ARRAY_SIZE(rows);
	int err = is_chosen(p, "detached") ? measure_before(p) : 0;

	for (unsigned round = 0; round < p->rounds && !err; round++) {
		bench_testbed_progress(&p->testbed, "probe: round %u of %u", round + 1, p->rounds);
		for (unsigned i = 0; i < n && !err; i++) {
			const struct row *r = &rows[(i + round) % n];

			err = is_chosen(p, r->name) ? round_of(p, r, round) : 0;
		}
	}
	return err;
}
