/* `gbpf bench dev pace`: cost of the block level without interruptions. One batch process under
 * gBPF, with kernels of one shape; windows in which gBPF works alternate with windows in which it
 * is off, so that both see the same process and machine. It also measures the processor time of the
 * threads that do not belong to the application. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
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
	const char *lane, *gate;
	struct bench_testbed_daemon *daemon;
	struct bench_testbed_client idle;
	char device[64];
	unsigned sms, fit;
	bool burst, machine_code;
	char image[TESTBED_IMAGE];	/* with machine_code: the file of it */
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
	if (b->machine_code) {
		bench_command_option(&k, "--image", "%s", b->image);
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

/* ---- records ---- */

static json_t *of_windows(const struct pace *b, const struct result *r, int on)
{
	return json_pack("{s:o, s:o, s:o}", "per_s", bench_program_doubles(r->rate[on], b->rounds),
			 "cpu_others", bench_program_doubles(r->cpu[on], b->rounds),
			 "cpu_application", bench_program_doubles(r->own[on], b->rounds));
}

static int record(struct pace *b, const struct shape *s, const struct result *r)
{
	return bench_testbed_record(
		&b->testbed, "shape",
		json_pack("{s:f, s:f, s:f, s:i, s:o, s:o, s:I, s:I, s:I}", "block_us", s->block_us,
			  "calibrated_block_us", r->block_us, "kernel_us", s->kernel_us, "grid",
			  (int)r->grid, "on", of_windows(b, r, ON), "off", of_windows(b, r, OFF),
			  "block_launches", (json_int_t)r->block_launches, "launches",
			  (json_int_t)r->launches, "checked", (json_int_t)r->checked));
}

static int record_set_up(struct pace *b)
{
	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:s, s:s, s:s, s:i, s:f, s:i, s:b, s:b, s:s}", "device", b->device,
			  "policy", b->testbed.policy_name, "lane", b->lane, "rounds",
			  (int)b->rounds, "window_ms", b->ms, "depth", (int)b->depth, "burst",
			  b->burst, "machine_code", b->machine_code, "gate", b->gate));
}

static const char *const gates[] = { "default", "off", "together", "flag_first" }; /* GBPF_GATE_* */

/* Tells the bench's own policy the gate mode. */
static int set_gate(struct pace *b)
{
	const struct gbpf_map m = { .size = sizeof(m), .name = "gate" };
	char *json = NULL, value[8];
	int mode = 0, err;

	while (strcmp(gates[mode], b->gate) != 0) {
		mode++;
	}
	if (!mode) {
		return 0;
	}
	snprintf(value, sizeof(value), "%d", mode);
	err = gbpf_map_set(b->daemon->g, &m, "0", value, &json);
	free(json);
	return err < 0 ? bench_testbed_fail(&b->testbed, "%s",
					    gbpf_last_error(b->daemon->g)->message)
		       : 0;
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
	b->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
	if (!b->daemon || set_gate(b) < 0 || start_idle(b) < 0 ||
	    (b->machine_code && bench_client_compile(&b->testbed, b->image) < 0)) {
		return -1;
	}
	for (unsigned i = 0; i < n; i++) {
		bench_testbed_progress(&b->testbed, "pace: blocks of %g us, kernels of %g us",
				       shapes[i].block_us, shapes[i].kernel_us);
		if (measure(b, &shapes[i], &r) < 0 || record(b, &shapes[i], &r) < 0) {
			return -1;
		}
	}
	return record_set_up(b);
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

static bool is_gate(const char *name)
{
	bool is = false;

	for (size_t i = 0; i < ARRAY_SIZE(gates); i++) {
		is |= strcmp(gates[i], name) == 0;
	}
	return is;
}

static bool in_range(const struct pace *b)
{
	return is_gate(b->gate) && b->rounds >= 1 && b->rounds <= MAX_ROUNDS && b->ms >= 1 &&
	       b->depth >= 1 && b->depth <= 64 && b->testbed.policy && b->testbed.libcuda &&
	       b->testbed.gbpf;
}

int main(int argc, char **argv)
{
	static struct pace b = {
		.rounds = 6, .ms = 300, .depth = 16, .lane = "process", .gate = "default"
	};
	const char *shapes = NULL;
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed), { "--lane", .text = &b.lane },
		{ "--shape", .text = &shapes },	   { "--repeats", .number = &b.rounds },
		{ "--depth", .number = &b.depth }, { "--ms", .real = &b.ms },
		{ "--burst", .flag = &b.burst },   { "--machine-code", .flag = &b.machine_code },
		{ "--gate", .text = &b.gate },	   { NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !in_range(&b) ||
	    (shapes && !parse_shapes(&b, shapes))) {
		return bench_program_usage();
	}
	b.threads = b.testbed.soft ? 64 : 256;
	err = run(&b);
	bench_client_stop(&b.idle);
	return bench_testbed_exit(&b.testbed, err, false);
}
