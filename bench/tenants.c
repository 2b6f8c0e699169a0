/* `gbpf bench dev tenants`: gpu_ext's set-up of latency and batch processes, under the device's own
 * time slices, with long and short ones set by the processes themselves, and under gBPF; and the
 * latency processes without batch, which shows how they affect each other. All processes of a turn
 * begin together; each turn has new ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/common/testbed.h"

#define TENANTS_ROUNDS 32u
#define TENANTS_MAX 16u
#define TENANTS_CONDITIONS 6u

#define READY_NS 120000000000ull
#define RUN_NS 300000000000ull
#define LEAD_NS 50000000ull

enum { TENANT_LC, TENANT_BE, TENANT_CLASSES };
static const char *const classes[TENANT_CLASSES] = { "latency", "batch" };

struct bench_tenants_def {
	const char *name, *doc;
	enum bench_testbed_lane lane;
	bool slices, alone; /* alone: the latency processes only */
};

struct bench_tenants_condition {
	const struct bench_tenants_def *def;
	bool chosen, available, broken;
	char why[512];
	struct bench_testbed_daemon *daemon;
	unsigned rounds;
};

struct bench_tenants {
	struct bench_testbed testbed;
	unsigned rounds, processes[TENANT_CLASSES], streams, kernels, threads, grid;
	unsigned slice_us[TENANT_CLASSES];
	double kernel_ms, gap_ms;
	const char *conditions;
	char device[64];
	int iterations;
	struct bench_tenants_condition condition[TENANTS_CONDITIONS];
	bool failed;
};

static const struct bench_tenants_def defs[TENANTS_CONDITIONS] = {
	{ "default", "the device's own time slices", LANE_OWN },
	{ "slices", "long time slices for latency processes, short ones for batch", LANE_OWN,
	  .slices = true },
	{ "gbpf", "gBPF, process lane", LANE_GBPF },
	{ "shared", "gBPF, shared lane", LANE_GBPF_SHARED },
	{ "alone", "the latency processes alone, the device's own time slices", LANE_OWN,
	  .alone = true },
	{ "alone-mps", "the latency processes alone, MPS clients", LANE_MPS, .alone = true },
};

/* Returns the number of a class's processes in a condition. */
static unsigned processes_in(const struct bench_tenants *b, const struct bench_tenants_condition *c,
			     unsigned k)
{
	return c->def->alone && k == TENANT_BE ? 0 : b->processes[k];
}

static int calibrate(struct bench_tenants *b)
{
	double unit_us = b->testbed.soft ? 200 : 100;
	struct bench_testbed_client c;
	int err;

	bench_testbed_progress(&b->testbed, "tenants: calibrating");
	err = bench_client_calibrate(&b->testbed, &c, b->threads, unit_us, READY_NS);
	if (!err) {
		snprintf(b->device, sizeof(b->device), "%.63s", c.page->device);
		/* the streams of one process fill the device, a block a multiprocessor */
		b->grid = b->testbed.soft ? 1 : MAX(c.page->sms / b->streams, 1);
		b->iterations = (int)MAX(
			MIN(b->kernel_ms * 1000 / c.page->block_us[0] * c.page->iterations[0], 1e8),
			1);
	}
	bench_client_stop(&c);
	return err;
}

static void choose(struct bench_tenants *b)
{
	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		struct bench_tenants_condition *c = &b->condition[i];

		c->def = &defs[i];
		c->chosen = !b->conditions || bench_program_lists(b->conditions, c->def->name);
		c->available = c->chosen;
		if (c->chosen && c->def->lane == LANE_GBPF_SHARED &&
		    !bench_testbed_run_offers(&b->testbed, "--lane")) {
			bench_testbed_fail(&b->testbed, "this gbpf run does not support --lane");
			c->available = false;
		} else if (c->chosen && c->def->lane == LANE_MPS) {
			c->available = bench_testbed_mps(&b->testbed) == 0;
		} else if (c->chosen && c->def->lane != LANE_OWN) {
			c->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
			c->available = c->daemon != NULL;
		}
		if (c->chosen && !c->available) {
			snprintf(c->why, sizeof(c->why), "%s", b->testbed.error);
		}
	}
}

/* ---- a turn ---- */

struct turn {
	struct bench_testbed_client client[TENANT_CLASSES][TENANTS_MAX];
};

static int start_one(struct bench_tenants *b, struct bench_tenants_condition *c,
		     struct bench_testbed_client *to, unsigned k, unsigned i)
{
	struct bench_testbed_place place = { .lane = c->def->lane,
					     .daemon = c->daemon,
					     .class_name = k == TENANT_LC ? "latency" : "batch",
					     .mps_priority = -1 };
	struct bench_testbed_command cmd;
	char name[48];
	int err;

	snprintf(name, sizeof(name), "%s-%s%u", c->def->name, k == TENANT_LC ? "lc" : "be", i);
	bench_command_init(&cmd);
	bench_command_option(&cmd, "--streams", "%u", b->streams);
	bench_command_option(&cmd, "--kernels", "%u", b->kernels);
	bench_command_option(&cmd, "--threads", "%u", b->threads);
	bench_command_option(&cmd, "--grid", "%u", b->grid);
	bench_command_option(&cmd, "--iterations", "%d", b->iterations);
	if (k == TENANT_LC && b->gap_ms > 0) {
		bench_command_option(&cmd, "--rate", "%g", 1000 / b->gap_ms);
	}
	if (c->def->slices) {
		bench_command_option(&cmd, "--slice-us", "%u", b->slice_us[k]);
	}
	err = bench_client_start(&b->testbed, to, name, &place, "tenant", &cmd);
	bench_command_finish(&cmd);
	return err;
}

static int check_results(struct bench_tenants *b, struct bench_tenants_condition *c,
			 const struct turn *t)
{
	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k); i++) {
			const struct bench_page *p = t->client[k][i].page;

			if (p->wrong) {
				return bench_testbed_fail(&b->testbed,
							  "WRONG RESULTS: %llu of %llu values",
							  (unsigned long long)p->wrong,
							  (unsigned long long)p->checked);
			}
		}
	}
	return 0;
}

/* Writes the record of each process of a turn. */
static int record_turn(struct bench_tenants *b, struct bench_tenants_condition *c,
		       const struct turn *t, unsigned round)
{
	int err = 0;

	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k); i++) {
			const struct bench_page *p = t->client[k][i].page;
			unsigned n = MIN(p->samples[0], PAGE_SAMPLES);

			err |= bench_testbed_record(
				&b->testbed, "process",
				json_pack("{s:s, s:i, s:s, s:f, s:o, s:o, s:o}", "condition",
					  c->def->name, "round", (int)round, "class", classes[k],
					  "seconds", (double)(p->end_ns - p->begin_ns) * 1e-9,
					  "call", bench_program_floats(p->us[0], n), "start",
					  bench_program_floats(p->us[1], n), "completion",
					  bench_program_floats(p->us[2], n)));
		}
	}
	return err;
}

static bool unavailable(const struct bench_tenants *b, const struct bench_tenants_condition *c,
			const struct turn *t)
{
	bool yes = false;

	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k); i++) {
			yes |= t->client[k][i].page && t->client[k][i].page->unavailable;
		}
	}
	return yes;
}

static int check_lane(struct bench_tenants *b, struct bench_tenants_condition *c,
		      const struct turn *t)
{
	bool shared = c->def->lane == LANE_GBPF_SHARED || c->def->lane == LANE_MPS;

	if (shared == (t->client[TENANT_LC][0].page->mps != 0)) {
		return 0;
	}
	c->available = false;
	return bench_testbed_fail(&b->testbed,
				  shared ? "CUDA reports that the process is not a client of MPS"
					 : "CUDA reports that the process is a client of MPS");
}

static int go(struct bench_tenants *b, const struct bench_tenants_condition *c, struct turn *t,
	      unsigned round)
{
	uint64_t epoch = clock_now_ns() + LEAD_NS + 1000000 * b->processes[TENANT_BE];
	int err = 0;

	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k); i++) {
			struct bench_page *p = t->client[k][i].page;

			p->epoch_ns = epoch;
			p->seed = 1 + round * 100 + k * 50 + i;
			bench_client_send(&t->client[k][i], PAGE_REQUESTS);
		}
	}
	for (unsigned k = 0; k < TENANT_CLASSES && !err; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k) && !err; i++) {
			err = bench_client_await(&t->client[k][i], RUN_NS);
		}
	}
	return err;
}

static int turn(struct bench_tenants *b, struct bench_tenants_condition *c, unsigned round)
{
	static struct turn t;
	int err = 0;

	memset(&t, 0, sizeof(t));
	bench_testbed_progress(&b->testbed, "tenants: round %u of %u: %s", round + 1, b->rounds,
			       c->def->name);
	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k) && !err; i++) {
			err = start_one(b, c, &t.client[k][i], k, i);
		}
	}
	for (unsigned k = 0; k < TENANT_CLASSES && !err; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k) && !err; i++) {
			err = bench_client_await(&t.client[k][i], READY_NS);
		}
	}
	err = err ? err : check_lane(b, c, &t);
	err = err ? err : go(b, c, &t, round);
	err = err ? err : check_results(b, c, &t);
	err = err ? err : record_turn(b, c, &t, round);
	c->available &= !(err && unavailable(b, c, &t));
	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < processes_in(b, c, k); i++) {
			if (t.client[k][i].w) {
				bench_client_stop(&t.client[k][i]);
			}
		}
	}
	c->rounds += !err;
	return err;
}

static bool in_range(const struct bench_tenants *b)
{
	return b->rounds >= 1 && b->rounds <= TENANTS_ROUNDS && b->streams >= 1 &&
	       b->streams <= 16 && b->kernels >= 1 && b->streams * b->kernels <= PAGE_SAMPLES &&
	       b->processes[0] >= 1 && b->processes[0] <= TENANTS_MAX && b->processes[1] >= 1 &&
	       b->processes[1] <= TENANTS_MAX && b->testbed.policy && b->testbed.libcuda &&
	       b->testbed.gbpf && b->testbed.client;
}

static int record_set_up(struct bench_tenants *b)
{
	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "device", b->device,
			  "policy", b->testbed.policy_name, "rounds", (int)b->rounds,
			  "latency_processes", (int)b->processes[TENANT_LC], "batch_processes",
			  (int)b->processes[TENANT_BE], "streams", (int)b->streams, "kernels",
			  (int)b->kernels, "kernel_ms", b->kernel_ms, "gap_ms", b->gap_ms));
}

static int record_condition(struct bench_tenants *b, const struct bench_tenants_condition *c)
{
	return bench_testbed_record(&b->testbed, "condition",
				    json_pack("{s:s, s:s, s:b, s:b, s:i, s:o}", "condition",
					      c->def->name, "is", c->def->doc, "chosen", c->chosen,
					      "broken", c->broken, "rounds", (int)c->rounds, "why",
					      bench_program_text(c->why)));
}

static int run(struct bench_tenants *b)
{
	if (bench_testbed_init(&b->testbed) < 0 || calibrate(b) < 0) {
		return -1;
	}
	choose(b);
	if (record_set_up(b) < 0) {
		return -1;
	}
	for (unsigned r = 0; r < b->rounds; r++) {
		for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
			struct bench_tenants_condition *c =
				&b->condition[(i + r) % TENANTS_CONDITIONS];

			if (!c->available || c->broken || turn(b, c, r) == 0) {
				continue;
			}
			if (bench_testbed_interrupted()) {
				return bench_testbed_fail(&b->testbed, "interrupted");
			}
			snprintf(c->why, sizeof(c->why), "%s", b->testbed.error);
			c->broken = c->available;
			b->failed |= c->broken;
		}
	}
	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		if (record_condition(b, &b->condition[i]) < 0) {
			return -1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct bench_tenants b = {
		.rounds = 5, .processes = { 2, 4 }, .streams = 4, .kernels = 50
	};
	double kernel_us = 2000, gap_us = 2000;
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--conditions", .text = &b.conditions },
		{ "--repeats", .number = &b.rounds },
		{ "--latency-clients", .number = &b.processes[TENANT_LC] },
		{ "--batch-clients", .number = &b.processes[TENANT_BE] },
		{ "--streams", .number = &b.streams },
		{ "--kernels", .number = &b.kernels },
		{ "--kernel-us", .real = &kernel_us },
		{ "--gap-us", .real = &gap_us },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !in_range(&b) || kernel_us <= 0) {
		return bench_program_usage();
	}
	b.kernel_ms = kernel_us / 1000;
	b.gap_ms = gap_us / 1000;
	b.threads = b.testbed.soft ? 64 : 256;
	b.slice_us[TENANT_LC] =
		b.testbed.soft ? 20000 : 1000000; /* the soft GPU's limit for all slices together */
	b.slice_us[TENANT_BE] = 200;
	err = run(&b);
	return bench_testbed_exit(&b.testbed, err, b.failed);
}
