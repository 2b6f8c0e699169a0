/* `gbpf bench pace`: cost of the block level without interruptions. One batch process under gBPF,
 * with kernels of one shape; windows in which gBPF works alternate with windows in which it is off,
 * so that both see the same process and machine. It also measures the processor time of the threads
 * that do not belong to the application. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/statistics.h"
#include "bench/common/testbed.h"
#include "gbpf/gbpf.h"

#define MAX_ROUNDS 64u
#define MAX_SHAPES 24u
#define READY_NS 90000000000ull
#define ANSWER_NS 60000000000ull
#define SETTLE_NS 100000000ull /* pause after switching on or off */

enum { OFF, ON };

struct shape {
	double block_us, kernel_us;
};

struct pace {
	struct bench_testbed testbed;
	unsigned rounds, threads, depth;
	double ms; /* of a window */
	const char *policy, *policy_name, *save, *lane;
	struct bench_testbed_daemon *daemon;
	struct bench_testbed_client idle;
	char device[64];
	unsigned sms, fit;
	json_t *document, *shapes; /* owned; shapes: borrowed */
	bool burst;
	struct shape asked[MAX_SHAPES]; /* by --shape, */
	unsigned n_asked;		/* which replaces the usual ones */
};

struct result {
	unsigned grid;
	double block_us; /* calibrated */
	double rate[2][MAX_ROUNDS], cpu[2][MAX_ROUNDS], own[2][MAX_ROUNDS];
	uint64_t block_launches, launches;
	uint64_t wrong, checked;
};

static const struct shape shapes_nvidia[] = {
	{ 10, 20 },   { 10, 50 },   { 10, 100 },  { 10, 200 },	{ 10, 300 },
	{ 10, 3000 }, { 30, 50 },   { 30, 100 },  { 30, 200 },	{ 30, 300 },
	{ 30, 3000 }, { 100, 100 }, { 100, 200 }, { 100, 300 }, { 100, 3000 },
};
static const struct shape shapes_soft[] = { { 100, 400 }, { 100, 4000 }, { 300, 4000 } };

/* ---- statistics of gbpfd ---- */

static uint64_t member(const json_t *o, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* Reads the number of launches at block level from gbpfd's list. */
static void read_launches(struct pace *b, pid_t pid, struct result *r)
{
	json_t *tenants = bench_testbed_tenants(b->daemon), *t;
	size_t i;

	json_array_foreach(tenants, i, t)
	{
		if ((pid_t)member(t, "pid") == pid) {
			r->launches = member(json_object_get(t, "stats"), "launches");
			r->block_launches = member(json_object_get(t, "stats"), "block_launches");
		}
	}
	json_decref(tenants);
}

/* ---- measuring ---- */

static int calibrate(struct pace *b, double block_us, int *ret_iterations, double *ret_us)
{
	struct bench_testbed_client c;
	int err;

	err = bench_client_calibrate(&b->testbed, &c, b->threads, block_us, READY_NS);
	if (!err) {
		snprintf(b->device, sizeof(b->device), "%.63s", c.page->device);
		b->sms = b->testbed.soft ? 1 : c.page->sms;
		b->fit = b->testbed.soft ? 1 : MAX(c.page->threads_per_sm / b->threads, 1);
		*ret_iterations = (int)c.page->iterations[1];
		*ret_us = c.page->block_us[1];
	}
	bench_client_stop(&c);
	return err;
}

/* Starts an idle latency client, for which a policy keeps other work stoppable. */
static int start_idle(struct pace *b)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "latency", .mps_priority = -1
	};
	struct bench_testbed_command k;
	int err;

	place.lane = strcmp(b->lane, "shared") == 0 ? LANE_GBPF_SHARED : LANE_GBPF;
	bench_command_init(&k);
	bench_command_option(&k, "--threads", "%u", b->threads);
	bench_command_option(&k, "--grid", "1");
	err = bench_client_start(&b->testbed, &b->idle, "pace-idle", &place, "latency", &k);
	bench_command_finish(&k);
	return err ? err : bench_client_await(&b->idle, READY_NS);
}

static int start(struct pace *b, struct bench_testbed_client *c, unsigned grid, int iterations)
{
	struct bench_testbed_place place = { .lane = strcmp(b->lane, "shared") == 0
							     ? LANE_GBPF_SHARED
							     : LANE_GBPF,
					     .daemon = b->daemon,
					     .class_name = "batch",
					     .mps_priority = -1 };
	struct bench_testbed_command k;
	int err;

	bench_command_init(&k);
	bench_command_option(&k, "--threads", "%u", b->threads);
	bench_command_option(&k, "--iterations", "%d", iterations);
	bench_command_option(&k, "--grid", "%u", grid);
	bench_command_option(&k, "--depth", "%u", b->depth);
	if (b->burst) {
		bench_command_add(&k, "--burst");
	}
	err = bench_client_start(&b->testbed, c, "pace", &place, "batch", &k);
	bench_command_finish(&k);
	err = err ? err : bench_client_await(c, READY_NS);
	if (!err) {
		bench_client_send(c, PAGE_WORK);
		err = bench_client_await(c, ANSWER_NS);
	}
	return err;
}

static int window(struct pace *b, struct bench_testbed_client *c, int on, unsigned round,
		  struct result *r)
{
	double first[2], others[2], seconds;
	uint64_t begin, n;

	if (gbpf_off(b->daemon->g, !on, NULL) < 0) {
		return bench_testbed_fail(&b->testbed, "%s",
					  gbpf_last_error(b->daemon->g)->message);
	}
	clock_sleep_ns(SETTLE_NS);
	bench_testbed_cpu((pid_t)c->page->pid, &first[0], &others[0]);
	begin = clock_now_ns();
	n = load_acquire(&c->page->finished);
	clock_sleep_ns((uint64_t)(b->ms * 1e6));
	n = load_acquire(&c->page->finished) - n;
	seconds = (double)(clock_now_ns() - begin) * 1e-9;
	bench_testbed_cpu((pid_t)c->page->pid, &first[1], &others[1]);
	r->rate[on][round] = (double)n / seconds;
	r->cpu[on][round] = (others[1] - others[0]) * 1e-9 / seconds;
	r->own[on][round] = (first[1] - first[0]) * 1e-9 / seconds;
	return bench_testbed_interrupted() ? bench_testbed_fail(&b->testbed, "interrupted") : 0;
}

static int measure(struct pace *b, const struct shape *s, struct result *r)
{
	struct bench_testbed_client c = { 0 };
	int iterations = 0, err;

	memset(r, 0, sizeof(*r));
	err = calibrate(b, s->block_us, &iterations, &r->block_us);
	if (err) {
		return err;
	}
	r->grid = (unsigned)MAX(s->kernel_us / s->block_us + 0.5, 1) * b->sms * b->fit;
	err = start(b, &c, r->grid, iterations);
	for (unsigned i = 0; i < b->rounds && !err; i++) { /* on off, off on, ... */
		err = window(b, &c, i % 2 ? OFF : ON, i, r);
		err = err ? err : window(b, &c, i % 2 ? ON : OFF, i, r);
	}
	if (!err) {
		read_launches(b, (pid_t)c.page->pid, r);
		gbpf_off(b->daemon->g, 0, NULL);
		bench_client_send(&c, PAGE_PAUSE);
		err = bench_client_await(&c, ANSWER_NS);
		r->wrong = c.page->wrong;
		r->checked = c.page->checked;
	}
	if (c.w) {
		bench_client_stop(&c);
	}
	return err	  ? err
	       : r->wrong ? bench_testbed_fail(&b->testbed, "WRONG RESULTS: %llu of %llu values",
					       (unsigned long long)r->wrong,
					       (unsigned long long)r->checked)
			  : 0;
}

/* ---- the report ---- */

static void report(struct pace *b, const struct shape *s, const struct result *r)
{
	struct bench_stats_range kept =
		bench_stats_bootstrap_ratio(r->rate[ON], r->rate[OFF], b->rounds, 0.95);
	double on = bench_stats_mean(r->rate[ON], b->rounds),
	       off = bench_stats_mean(r->rate[OFF], b->rounds);
	double cost = off > 0 ? 100 * (1 - on / off) : 0;
	double cpu = bench_stats_mean(r->cpu[ON], b->rounds),
	       idle = bench_stats_mean(r->cpu[OFF], b->rounds);
	double own = bench_stats_mean(r->own[ON], b->rounds),
	       plain = bench_stats_mean(r->own[OFF], b->rounds);

	json_array_append_new(
		b->shapes,
		json_pack("{s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:[f,f], s:f, s:f, s:f, s:f, s:I, "
			  "s:I, s:I}",
			  "block_us", s->block_us, "calibrated_block_us", r->block_us, "kernel_us",
			  s->kernel_us, "grid", (int)r->grid, "plain_per_s", off, "gbpf_per_s", on,
			  "cost_percent", cost, "cost_interval", 100 * (1 - kept.high),
			  100 * (1 - kept.low), "cpu_others", cpu, "cpu_others_off", idle,
			  "cpu_application", own, "cpu_application_off", plain, "block_launches",
			  (json_int_t)r->block_launches, "launches", (json_int_t)r->launches,
			  "checked", (json_int_t)r->checked));
	if (b->testbed.json) {
		return;
	}
	if (json_array_size(b->shapes) == 1) {
		printf("%8s %9s %8s %10s %10s %7s %14s %8s %8s %9s\n", "BLOCK us", "KERNEL us",
		       "GRID", "OFF /s", "GBPF /s", "COST %", "95 %", "AGENT %", "APP %",
		       "BLOCK LV");
	}
	printf("%8.0f %9.0f %8u %10.1f %10.1f %7.2f %6.2f - %5.2f %8.1f %+8.1f %9llu\n",
	       s->block_us, s->kernel_us, r->grid, off, on, cost, 100 * (1 - kept.high),
	       100 * (1 - kept.low), 100 * (cpu - idle), 100 * (own - plain),
	       (unsigned long long)r->block_launches);
	fflush(stdout);
}

static int run(struct pace *b)
{
	const struct shape *shapes = b->testbed.soft ? shapes_soft : shapes_nvidia;
	unsigned n = b->testbed.soft ? ARRAY_SIZE(shapes_soft) : ARRAY_SIZE(shapes_nvidia);
	static struct result r;

	if (b->n_asked) {
		shapes = b->asked;
		n = b->n_asked;
	}
	if (bench_testbed_init(&b->testbed) < 0) {
		return -1;
	}
	if (strcmp(b->lane, "shared") == 0 && !bench_testbed_run_offers(&b->testbed, "--lane")) {
		return bench_testbed_fail(&b->testbed, "this gbpf run does not support --lane");
	}
	b->daemon = bench_testbed_gbpfd(&b->testbed, b->policy);
	if (!b->daemon || start_idle(b) < 0) {
		return -1;
	}
	for (unsigned i = 0; i < n; i++) {
		bench_testbed_progress(&b->testbed, "pace: blocks of %g us, kernels of %g us",
				       shapes[i].block_us, shapes[i].kernel_us);
		if (measure(b, &shapes[i], &r) < 0) {
			return -1;
		}
		report(b, &shapes[i], &r);
	}
	return 0;
}

/* ---- arguments ---- */

/* Parses BLOCK:KERNEL in microseconds, several separated by commas. */
static bool parse_shapes(struct pace *b, const char *text)
{
	char *end = NULL;

	for (b->n_asked = 0; *text && b->n_asked < MAX_SHAPES; text = end + (*end == ',')) {
		struct shape *s = &b->asked[b->n_asked++];

		s->block_us = strtod(text, &end);
		if (*end != ':') {
			return false;
		}
		s->kernel_us = strtod(end + 1, &end);
		if ((*end && *end != ',') || !(s->block_us >= 1 && s->block_us <= 1e6) ||
		    !(s->kernel_us >= s->block_us && s->kernel_us <= 1e7)) {
			return false;
		}
	}
	return b->n_asked && !*text;
}

static bool parse_one(struct pace *b, const char *name, const char *text, int *i)
{
	const struct bench_testbed_value table[] = {
		{ "--policy", &b->policy, NULL },  { "--policy-name", &b->policy_name, NULL },
		{ "--save", &b->save, NULL },	   { "--lane", &b->lane, NULL },
		{ "--repeats", NULL, &b->rounds }, { "--depth", NULL, &b->depth },
	};

	if (bench_testbed_option(&b->testbed, name, text, i)) {
		return true;
	}
	if (strcmp(name, "--burst") == 0) {
		b->burst = true;
		return true;
	}
	++*i;
	if (bench_testbed_value(table, ARRAY_SIZE(table), name, text)) {
		return true;
	}
	if (strcmp(name, "--ms") == 0) {
		b->ms = strtod(text, NULL);
	} else if (strcmp(name, "--shape") == 0) {
		return parse_shapes(b, text);
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	static struct pace b = { .rounds = 6, .ms = 300, .depth = 16, .lane = "process" };
	int err;

	b.testbed.bench = "pace";
	for (int i = 1; i < argc; i++) {
		if (!parse_one(&b, argv[i], i + 1 < argc ? argv[i + 1] : "", &i)) {
			b.rounds = 0;
		}
	}
	if (b.rounds < 1 || b.rounds > MAX_ROUNDS || b.ms < 1 || b.depth < 1 || b.depth > 64 ||
	    !b.policy || !b.testbed.libcuda || !b.testbed.gbpf) {
		return bench_testbed_usage(&b.testbed);
	}
	b.threads = b.testbed.soft ? 64 : 256;
	b.testbed.progress |= isatty(2) != 0;
	b.shapes = json_array();
	err = run(&b);
	b.document = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:i, s:b, s:o}", "schema",
			       "gbpf.bench.pace/1", "device", b.device, "policy", b.policy_name,
			       "lane", b.lane, "rounds", (int)b.rounds, "window_ms", b.ms, "depth",
			       (int)b.depth, "burst", (int)b.burst, "shapes", b.shapes);
	if (!err && !b.testbed.json) {
		printf("%s, policy %s, %s lane, %u windows of %g ms each. COST: of gBPF at work "
		       "against off, in the same process; 95 %%: bootstrap over windows.\n"
		       "AGENT: of a core, threads of gBPF; APP: more of a core in the "
		       "application's thread; BLOCK LV: launches at block level\n",
		       b.device, b.policy_name, b.lane, b.rounds, b.ms);
	}
	err = err ? err : bench_testbed_document(&b.testbed, b.document, b.save);
	if (err) {
		bench_testbed_complain(&b.testbed);
	}
	json_decref(b.document);
	bench_client_stop(&b.idle);
	bench_testbed_finish(&b.testbed);
	return err || fflush(stdout) ? 1 : 0;
}
