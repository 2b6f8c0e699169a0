/* bench-probe: `gbpf bench probe`; see bench_probe.h. */
#include "bench/probe/bench_probe.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/common/program.h"
#include "gbpf/gbpf.h"

#define SESSION_NS 60000000000ull
#define POLL_NS 1000000u

/* On the soft GPU the figures mean nothing: it is only to run. */
static const struct {
	unsigned rounds, attaches, cycles;
} defaults[2] = { { 25, 20, 1000 }, { 2, 4, 5 } };

static const struct part {
	const char *name;
	int (*run)(struct bench_probe *p);
} parts[] = {
	{ "cost", bench_probe_cost },	  { "samples", bench_probe_samples },
	{ "budget", bench_probe_budget }, { "attach", bench_probe_delay },
	{ "cycles", bench_probe_cycles },
};

static bool is_listed(const struct bench_probe *p)
{
	json_t *own = bench_testbed_own_tenant(p->daemon);

	json_decref(own);
	return own != NULL;
}

/* Launches until gbpfd lists this process. */
static int await_session(struct bench_probe *p)
{
	uint64_t deadline = clock_now_ns() + SESSION_NS;

	while (!is_listed(p)) {
		if (bench_probe_launch_blocks(p, 1)) {
			return -1;
		}
		if (bench_testbed_interrupted() || clock_now_ns() > deadline) {
			return bench_testbed_fail(&p->testbed,
						  bench_testbed_interrupted()
							  ? "interrupted"
							  : "gbpfd does not list this process");
		}
		clock_sleep_ns(POLL_NS);
	}
	return 0;
}

static int record_set_up(struct bench_probe *p)
{
	json_t *sizes = json_object();

	for (unsigned w = 0; w < BENCH_PROBE_WORKLOADS; w++) {
		json_object_set_new(sizes, bench_probe_workloads[w],
				    json_pack("{s:I, s:i}", "threads",
					      (json_int_t)p->gpu.size[w].threads, "launches",
					      (int)p->gpu.size[w].launches));
	}
	return bench_testbed_record(&p->testbed, "set_up",
				    json_pack("{s:s, s:b, s:i, s:i, s:i, s:o}", "device",
					      p->gpu.device, "soft", (int)p->testbed.soft, "rounds",
					      (int)p->rounds, "attaches", (int)p->attaches,
					      "cycles", (int)p->cycles, "workloads", sizes));
}

static int run(struct bench_probe *p)
{
	unsigned soft = p->testbed.soft;
	int err;

	p->rounds = p->rounds ? p->rounds : defaults[soft].rounds;
	p->attaches = p->attaches ? p->attaches : defaults[soft].attaches;
	p->cycles = p->cycles ? p->cycles : defaults[soft].cycles;
	err = bench_testbed_init(&p->testbed);
	/* without a policy, so that none has a part in the times */
	p->daemon = err ? NULL : bench_testbed_gbpfd(&p->testbed, NULL);
	err = !p->daemon || bench_testbed_enter(&p->testbed, p->daemon, "normal") ||
	      bench_probe_gpu_open(p) || await_session(p) || record_set_up(p);
	for (size_t i = 0; i < ARRAY_SIZE(parts) && !err; i++) {
		if (!p->parts || bench_program_lists(p->parts, parts[i].name)) {
			err = parts[i].run(p);
		}
	}
	return err ? -1 : 0;
}

int main(int argc, char **argv)
{
	static struct bench_probe p;
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&p.testbed),
		{ "--shim", .text = &p.shim },
		{ "--objects", .text = &p.objects },
		{ "--tracers", .text = &p.tracers },
		{ "--parts", .text = &p.parts },
		{ "--rows", .text = &p.rows },
		{ "--samples", .text = &p.samples },
		{ "--rounds", .number = &p.rounds },
		{ "--attaches", .number = &p.attaches },
		{ "--cycles", .number = &p.cycles },
		{ NULL },
	};

	if (!bench_program_options(table, &argc, argv) || !p.shim || !p.objects || !p.tracers ||
	    !p.testbed.libcuda || !p.testbed.gbpfd || p.rounds > BENCH_PROBE_ROUNDS_MAX ||
	    p.attaches > BENCH_PROBE_ATTACHES_MAX || p.cycles > BENCH_PROBE_CYCLES_MAX) {
		return bench_program_usage();
	}
	return bench_testbed_exit(&p.testbed, run(&p), false);
}
