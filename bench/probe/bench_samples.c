/* Cost of programs at known kernels: each is measured directly before a program is attached to it
 * and while it is attached, in its full size and as a single block, whose time is the part of a
 * launch that does not depend on the size. Counts of the programs are compared with the launches,
 * and results with those of the same launches by the driver's library. */
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/probe/bench_sample.h"

#define STATE_NS 120000000000ull /* of a state that is waited for */
#define POLL_NS 1000000u
#define SAMPLES_MAX 16u
#define ROUNDS_SHARE 5u /* rounds of the other launches for each of these */

struct row {
	const char *name, *object;
	enum bench_probe_counted counted;
};

static const struct row rows[] = {
	{ "warp", "warp_counter", BENCH_COUNTED_WARPS },
	{ "block", "block_counter", BENCH_COUNTED_BLOCKS },
	{ "sampled", "block_sampler", BENCH_COUNTED_SAMPLED },
	{ "lane", "lane_counter", BENCH_COUNTED_LANES },
	{ "empty", "empty_enter", BENCH_COUNTED_NOTHING },
	{ "timer", "exit_timer", BENCH_COUNTED_NOTHING },
	{ "memtrace", "memtrace", BENCH_COUNTED_ACCESSES },
	{ "retsnoop", "kernelretsnoop", BENCH_COUNTED_RETURNS },
};

/* A kind in both sizes. */
struct sample {
	struct bench_sample size[BENCH_SAMPLE_SIZES];
	uint64_t accesses[BENCH_SAMPLE_SIZES]; /* by lanes, of a run; 0: not known yet */
};

static struct sample samples[SAMPLES_MAX];
static const char *const sizes[BENCH_SAMPLE_SIZES] = { "full", "block" };

/* ---- set-up ---- */

static int open_sample(struct bench_probe *p, struct sample *s, const struct bench_sample_kind *k)
{
	CUfunction kernel[BENCH_SAMPLE_KERNELS] = { NULL };
	CUmodule module;
	int err = BENCH_PROBE_GPU(p, cuModuleLoadData(&module, k->ptx));

	for (unsigned i = 0; i < BENCH_SAMPLE_KERNELS && k->kernels[i] && !err; i++) {
		err = BENCH_PROBE_GPU(p, cuModuleGetFunction(&kernel[i], module, k->kernels[i]));
	}
	for (unsigned i = 0; i < BENCH_SAMPLE_SIZES && !err; i++) {
		err = bench_sample_open(p, &s->size[i], k, (enum bench_sample_size)i, kernel);
	}
	return err;
}

static int open_samples(struct bench_probe *p, unsigned *n)
{
	static const struct bench_sample_kind *const kinds[] = {
		bench_sample_vectors, bench_sample_sums, bench_sample_sparse, bench_sample_dense
	};
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (const struct bench_sample_kind *k = kinds[i]; k->name && !err; k++) {
			if (*n == SAMPLES_MAX ||
			    (p->samples && !bench_program_lists(p->samples, k->name))) {
				continue;
			}
			bench_testbed_progress(&p->testbed, "probe: set-up of %s", k->name);
			err = open_sample(p, &samples[(*n)++], k);
		}
	}
	return err;
}

static int record_set_up(struct bench_probe *p, unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++) {
		const struct bench_sample *s = &samples[i].size[BENCH_SAMPLE_FULL];

		json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:I}", "name", s->kind->name,
						      "sample", (int)s->kind->is_sample, "n",
						      (json_int_t)s->n, "threads",
						      (json_int_t)s->work.lanes));
	}
	return bench_testbed_record(&p->testbed, "samples", json_pack("{s:o}", "samples", list));
}

/* ---- what the programs have counted ---- */

static int take_count(struct bench_probe *p, const struct row *r, const struct bench_probe_tool *t,
		      uint64_t *ret)
{
	switch (r->counted) {
	case BENCH_COUNTED_NOTHING:
		*ret = 0;
		return 0;
	case BENCH_COUNTED_ACCESSES:
		return bench_probe_accesses(p, t, ret);
	case BENCH_COUNTED_RETURNS:
		return bench_probe_returns(p, t, ret);
	default:
		return bench_probe_sum(p, t, ret);
	}
}

/* Returns how many accesses by lanes are expected of the runs: what the kernel has in its text, or
 * as many as in the runs that were counted first. */
static uint64_t accesses_of(struct sample *s, enum bench_sample_size size, uint64_t counted,
			    uint64_t runs, const struct bench_probe_work *work)
{
	const struct bench_sample_kind *k = s->size[size].kind;

	if (k->accesses) {
		return work->lanes * k->accesses;
	}
	if (!s->accesses[size]) {
		s->accesses[size] = counted / runs;
	}
	return s->accesses[size] * runs;
}

static int record_count(struct bench_probe *p, const struct row *r, struct sample *s,
			enum bench_sample_size size, uint64_t counted,
			const struct bench_probe_work *work)
{
	const struct bench_sample *of = &s->size[size];
	uint64_t expected = bench_probe_work_of(work, r->counted, 0);

	if (r->counted == BENCH_COUNTED_ACCESSES) {
		expected = accesses_of(s, size, counted, work->launches / of->work.launches, work);
	}
	/* Which lanes find a vertex first, and store, is not the same in all runs. */
	if (r->counted == BENCH_COUNTED_NOTHING ||
	    (r->counted == BENCH_COUNTED_ACCESSES && of->kind->is_racy)) {
		return 0;
	}
	return bench_testbed_record(&p->testbed, "sample_count",
				    json_pack("{s:s, s:s, s:s, s:I, s:I}", "row", r->name,
					      "workload", of->kind->name, "size", sizes[size],
					      "expected", (json_int_t)expected, "counted",
					      (json_int_t)counted));
}

/* ---- rounds ---- */

/* Runs the sample until its kernels run the tool. */
static int await_running(struct bench_probe *p, struct sample *s, const struct bench_probe_tool *t)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	struct bench_probe_work unused = { 0 };
	bool running = false;
	int err = 0;

	while (!err && !running) {
		err = bench_sample_run(p, &s->size[BENCH_SAMPLE_BLOCK], &unused) ||
		      bench_probe_is_running(p, t, &running);
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

static int measure_attached(struct bench_probe *p, const struct row *r, struct sample *s,
			    const struct bench_probe_tool *t, struct bench_probe_time *with)
{
	uint64_t count[BENCH_SAMPLE_SIZES + 1] = { 0 };
	int err = take_count(p, r, t, &count[0]);

	for (unsigned i = 0; i < BENCH_SAMPLE_SIZES && !err; i++) {
		struct bench_probe_work work = { 0 };

		err = bench_sample_measure(p, &s->size[i], BENCH_PROBE_SHIM, &work, &with[i]) ||
		      take_count(p, r, t, &count[i + 1]) ||
		      record_count(p, r, s, (enum bench_sample_size)i, count[i + 1] - count[i],
				   &work);
	}
	return err;
}

static int measure_without(struct bench_probe *p, struct sample *s, struct bench_probe_time *t)
{
	struct bench_probe_work unused = { 0 };
	int err = 0;

	for (unsigned i = 0; i < BENCH_SAMPLE_SIZES && !err; i++) {
		err = bench_sample_measure(p, &s->size[i], BENCH_PROBE_SHIM, &unused, &t[i]);
	}
	return err;
}

static int record_pair(struct bench_probe *p, const struct row *r, const struct sample *s,
		       const struct bench_probe_time *without, const struct bench_probe_time *with)
{
	int err = 0;

	for (unsigned i = 0; i < BENCH_SAMPLE_SIZES && !err; i++) {
		err = bench_testbed_record(
			&p->testbed, "sample",
			json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "row", r->name, "workload",
				  s->size[i].kind->name, "size", sizes[i], "without_us",
				  without[i].us, "with_us", with[i].us, "without_call_us",
				  without[i].call_us, "with_call_us", with[i].call_us));
	}
	return err;
}

static int pair_of(struct bench_probe *p, const struct row *r, const struct buf *object,
		   struct sample *s)
{
	const struct bench_sample *full = &s->size[BENCH_SAMPLE_FULL];
	struct bench_probe_time without[BENCH_SAMPLE_SIZES], with[BENCH_SAMPLE_SIZES];
	struct bench_probe_tool t = { .map = "counts", .kernels = full->n_launches };

	return measure_without(p, s, without) ||
	       bench_probe_attach(p, object, full->kind->pattern, 0, &t) ||
	       await_running(p, s, &t) || measure_attached(p, r, s, &t, with) ||
	       bench_probe_detach(p, &t, NULL) || record_pair(p, r, s, without, with);
}

static int round_of(struct bench_probe *p, const struct row *r, unsigned n)
{
	struct buf object;
	int err = r->counted >= BENCH_COUNTED_ACCESSES ? bench_probe_tracer(p, r->object, &object)
						       : bench_probe_object(p, r->object, &object);

	for (unsigned i = 0; i < n && !err; i++) {
		err = pair_of(p, r, &object, &samples[i]);
	}
	buf_finish(&object);
	return err;
}

int bench_probe_samples(struct bench_probe *p)
{
	unsigned rounds = (p->rounds + ROUNDS_SHARE - 1) / ROUNDS_SHARE, n = 0;
	int err = open_samples(p, &n) || record_set_up(p, n);

	for (unsigned round = 0; round < rounds && !err; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(rows) && !err; i++) {
			const struct row *r = &rows[(i + round) % ARRAY_SIZE(rows)];

			bench_testbed_progress(&p->testbed, "probe: samples, round %u of %u, %s",
					       round + 1, rounds, r->name);
			if (!p->rows || bench_program_lists(p->rows, r->name)) {
				err = round_of(p, r, n);
			}
		}
	}
	return err ? -1 : 0;
}
