/* `gbpf bench tenants`: gpu_ext's set-up of latency and batch processes, under the device's own
 * time slices, with long and short ones set by the processes themselves, and under gBPF; and the
 * latency processes without batch, which shows how they affect each other. All processes of a turn
 * begin together; each turn has new ones. */
#include "bench/tenants/bench_tenants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define READY_NS 120000000000ull
#define RUN_NS 300000000000ull
#define LEAD_NS 50000000ull

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
		c->chosen = !b->conditions || bench_testbed_names(b->conditions, c->def->name);
		c->available = c->chosen;
		if (c->chosen && c->def->lane == LANE_GBPF_SHARED &&
		    !bench_testbed_run_offers(&b->testbed, "--lane")) {
			bench_testbed_fail(&b->testbed, "this gbpf run does not support --lane");
			c->available = false;
		} else if (c->chosen && c->def->lane == LANE_MPS) {
			c->available = bench_testbed_mps(&b->testbed) == 0;
		} else if (c->chosen && c->def->lane != LANE_OWN) {
			c->daemon = bench_testbed_gbpfd(&b->testbed, b->policy);
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

static int keep(struct bench_tenants *b, struct bench_tenants_cell *cell,
		const struct bench_page *p, double *round_us[TENANT_WHATS], unsigned *round_n)
{
	unsigned n = MIN(p->samples[0], PAGE_SAMPLES);

	for (unsigned w = 0; w < TENANT_WHATS; w++) {
		double *grown = realloc(cell->us[w], (cell->n + n + 1) * sizeof(double));

		if (!grown) {
			return bench_testbed_fail(&b->testbed, "no memory");
		}
		cell->us[w] = grown;
		for (unsigned i = 0; i < n; i++) {
			grown[cell->n + i] = (double)p->us[w][i];
			round_us[w][*round_n + i] = (double)p->us[w][i];
		}
	}
	cell->n += n;
	*round_n += n;
	return p->wrong ? bench_testbed_fail(&b->testbed, "WRONG RESULTS: %llu of %llu values",
					     (unsigned long long)p->wrong,
					     (unsigned long long)p->checked)
			: 0;
}

static int keep_class(struct bench_tenants *b, struct bench_tenants_condition *c, struct turn *t,
		      unsigned k, unsigned round)
{
	size_t most = (size_t)bench_tenants_processes(b, c, k) * b->streams * b->kernels;
	struct bench_tenants_cell *cell = &c->cell[k];
	double *us[TENANT_WHATS];
	unsigned n = 0;
	int err = 0;

	for (unsigned w = 0; w < TENANT_WHATS; w++) {
		us[w] = calloc(most, sizeof(double));
		err = us[w] ? err : bench_testbed_fail(&b->testbed, "no memory");
	}
	for (unsigned i = 0; i < bench_tenants_processes(b, c, k) && !err; i++) {
		const struct bench_page *p = t->client[k][i].page;

		err = keep(b, cell, p, us, &n);
		cell->rate[round] += p->samples[0] / ((double)(p->end_ns - p->begin_ns) * 1e-9);
	}
	for (unsigned w = 0; w < TENANT_WHATS; w++) {
		if (us[w]) {
			bench_stats_sort(us[w], n);
			cell->round_p99[w][round] = bench_stats_quantile(us[w], n, 0.99);
		}
		free(us[w]);
	}
	return err;
}

static bool unavailable(const struct bench_tenants *b, const struct bench_tenants_condition *c,
			const struct turn *t)
{
	bool yes = false;

	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k); i++) {
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
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k); i++) {
			struct bench_page *p = t->client[k][i].page;

			p->epoch_ns = epoch;
			p->seed = 1 + round * 100 + k * 50 + i;
			bench_client_send(&t->client[k][i], PAGE_REQUESTS);
		}
	}
	for (unsigned k = 0; k < TENANT_CLASSES && !err; k++) {
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k) && !err; i++) {
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
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k) && !err; i++) {
			err = start_one(b, c, &t.client[k][i], k, i);
		}
	}
	for (unsigned k = 0; k < TENANT_CLASSES && !err; k++) {
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k) && !err; i++) {
			err = bench_client_await(&t.client[k][i], READY_NS);
		}
	}
	err = err ? err : check_lane(b, c, &t);
	err = err ? err : go(b, c, &t, round);
	for (unsigned k = 0; k < TENANT_CLASSES && !err; k++) {
		err = keep_class(b, c, &t, k, round);
	}
	c->available &= !(err && unavailable(b, c, &t));
	for (unsigned k = 0; k < TENANT_CLASSES; k++) {
		for (unsigned i = 0; i < bench_tenants_processes(b, c, k); i++) {
			if (t.client[k][i].w) {
				bench_client_stop(&t.client[k][i]);
			}
		}
	}
	c->rounds += !err;
	return err;
}

static int run(struct bench_tenants *b)
{
	if (bench_testbed_init(&b->testbed) < 0 || calibrate(b) < 0) {
		return -1;
	}
	choose(b);
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
	return bench_tenants_report(b);
}

/* ---- arguments ---- */

static bool parse_one(struct bench_tenants *b, const char *name, const char *text, int *i)
{
	const struct bench_testbed_value table[] = {
		{ "--policy", &b->policy, NULL },
		{ "--policy-name", &b->policy_name, NULL },
		{ "--save", &b->save, NULL },
		{ "--conditions", &b->conditions, NULL },
		{ "--repeats", NULL, &b->rounds },
		{ "--latency-clients", NULL, &b->processes[TENANT_LC] },
		{ "--batch-clients", NULL, &b->processes[TENANT_BE] },
		{ "--streams", NULL, &b->streams },
		{ "--kernels", NULL, &b->kernels },
	};

	if (bench_testbed_option(&b->testbed, name, text, i)) {
		return true;
	}
	++*i;
	if (bench_testbed_value(table, ARRAY_SIZE(table), name, text)) {
		return true;
	}
	if (strcmp(name, "--kernel-us") == 0) {
		b->kernel_ms = strtod(text, NULL) / 1000;
	} else if (strcmp(name, "--gap-us") == 0) {
		b->gap_ms = strtod(text, NULL) / 1000;
	} else {
		return false;
	}
	return true;
}

static bool parse(struct bench_tenants *b, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!parse_one(b, argv[i], i + 1 < argc ? argv[i + 1] : "", &i)) {
			return false;
		}
	}
	return b->rounds >= 1 && b->rounds <= TENANTS_ROUNDS && b->streams >= 1 &&
	       b->streams <= 16 && b->kernels >= 1 && b->streams * b->kernels <= PAGE_SAMPLES &&
	       b->processes[0] >= 1 && b->processes[0] <= TENANTS_MAX && b->processes[1] >= 1 &&
	       b->processes[1] <= TENANTS_MAX && b->kernel_ms > 0 && b->policy &&
	       b->testbed.libcuda && b->testbed.gbpf && b->testbed.client;
}

static void finish(struct bench_tenants *b)
{
	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		for (unsigned k = 0; k < TENANT_CLASSES; k++) {
			for (unsigned w = 0; w < TENANT_WHATS; w++) {
				free(b->condition[i].cell[k].us[w]);
			}
		}
	}
	bench_testbed_finish(&b->testbed);
}

int main(int argc, char **argv)
{
	static struct bench_tenants b = { .rounds = 5,
					  .processes = { 2, 4 },
					  .streams = 4,
					  .kernels = 50,
					  .kernel_ms = 2,
					  .gap_ms = 2,
					  .policy_name = "" };
	int err;

	b.testbed.bench = "tenants";
	if (!parse(&b, argc, argv)) {
		return bench_testbed_usage(&b.testbed);
	}
	b.threads = b.testbed.soft ? 64 : 256;
	b.slice_us[TENANT_LC] =
		b.testbed.soft ? 20000 : 1000000; /* the soft GPU's limit for all slices together */
	b.slice_us[TENANT_BE] = 200;
	b.testbed.progress |= isatty(2) != 0;
	err = run(&b);
	if (err) {
		bench_testbed_complain(&b.testbed);
	}
	finish(&b);
	return err || b.failed || fflush(stdout) ? 1 : 0;
}
