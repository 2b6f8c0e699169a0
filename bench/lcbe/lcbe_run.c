/* The rounds of `gbpf bench preempt`: in each round every condition gets a turn, and each round
 * begins with a different condition. All clients of a condition live from its first turn on and
 * sleep between turns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/lcbe/lcbe.h"

#define READY_NS 90000000000ull
#define ANSWER_NS 60000000000ull
#define MIN_WINDOW_NS 50000000ull
#define BATCH_WARM_NS 50000000ull

const char *const lcbe_kind_names[PAGE_KINDS] = { "one", "queued", "synced", "hostbound" };

static unsigned batch_clients(const struct bench_lcbe *b, const struct bench_lcbe_condition *c)
{
	return c->def->batch ? b->set.batch_clients : 0;
}

/* ---- clients ---- */

static uint64_t swap_bytes(const struct bench_lcbe *b)
{
	return b->set.swap ? strtoull(b->set.swap, NULL, 10) : 0;
}

static void client_options(const struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			   bool batch, struct bench_testbed_command *k)
{
	bench_command_option(k, "--iterations", "%d", b->iterations[batch]);
	bench_command_option(k, "--threads", "%u", b->set.threads);
	if (c->machine_code) {
		bench_command_option(k, "--image", "%s", b->image);
	}
	bench_command_option(k, "--grid", "%u", batch ? b->set.grid : b->sms);
	if (b->set.default_stream) {
		bench_command_add(k, "--default-stream");
	} else if (c->def->priority) {
		bench_command_option(k, "--priority", batch ? "low" : "high");
	}
	if (!batch) {
		bench_command_option(k, "--kernels", "%u", b->set.kernels);
		bench_command_option(k, "--think-us", "%u", b->set.think_us);
		if (c->def->hint) {
			bench_command_option(k, "--hint-us", "%u", b->set.hint_us);
		}
		return;
	}
	bench_command_option(k, "--streams", "%u", b->set.streams);
	bench_command_option(k, "--depth", "%u", b->set.depth);
	if (c->moving) {
		bench_command_add(k, "--burst");
		bench_command_option(k, "--moving-mb", "%" PRIu64, swap_bytes(b) >> 20);
	}
	if (c->def->brief) {
		bench_command_option(k, "--slice-us", "1");
	}
}

struct bench_testbed_place bench_lcbe_place(const struct bench_lcbe_condition *c, bool batch)
{
	bool priority = c->def->lane == LANE_MPS && c->def->priority;

	return (struct bench_testbed_place){ .lane = c->def->lane,
					     .daemon = c->daemon,
					     .class_name = batch ? "batch" : "latency",
					     .mps_priority = priority ? batch : -1 };
}

static int start_one(struct bench_lcbe *b, struct bench_lcbe_condition *c,
		     struct bench_testbed_client *to, bool batch, unsigned i)
{
	struct bench_testbed_place place = bench_lcbe_place(c, batch);
	struct bench_testbed_command k;
	char name[48];
	int err;

	if (batch && c->moving) { /* programs see the same size either way */
		place.mem = c->swaps ? swap_bytes(b) : 2 * swap_bytes(b);
		place.swap = c->swaps ? swap_bytes(b) : 0;
	}
	snprintf(name, sizeof(name), "%s-%s%u", c->name, batch ? "be" : "lc", i);
	bench_command_init(&k);
	client_options(b, c, batch, &k);
	err = bench_client_start(&b->testbed, to, name, &place, batch ? "batch" : "latency", &k);
	bench_command_finish(&k);
	return err;
}

static void stop_clients(struct bench_lcbe_condition *c)
{
	bench_client_stop(&c->lc);
	for (unsigned i = 0; i < LCBE_BATCH; i++) {
		bench_client_stop(&c->be[i]);
	}
	c->started = false;
}

/* Verifies that exactly the clients that must be clients of MPS are; otherwise the measurement
 * would be of another condition. */
static int check_lane(struct bench_lcbe *b, struct bench_lcbe_condition *c)
{
	bool shared = c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;

	c->shared = c->lc.page->mps != 0;
	if (c->def->lane == LANE_GBPF_AUTO || shared == c->shared) {
		return 0;
	}
	c->state = LCBE_NOT_AVAILABLE;
	return bench_testbed_fail(&b->testbed,
				  shared ? "CUDA reports that the process is not a client of MPS"
					 : "CUDA reports that the process is a client of MPS: an "
					   "MPS daemon serves all processes here");
}

/* Returns whether a client reported that the machine lacks a feature of its condition. */
static bool unavailable(const struct bench_lcbe *b, const struct bench_lcbe_condition *c)
{
	bool yes = c->lc.page && c->lc.page->unavailable;

	for (unsigned i = 0; i < batch_clients(b, c); i++) {
		yes |= c->be[i].page && c->be[i].page->unavailable;
	}
	return yes;
}

static int start_clients(struct bench_lcbe *b, struct bench_lcbe_condition *c)
{
	int err = start_one(b, c, &c->lc, false, 0);

	for (unsigned i = 0; i < batch_clients(b, c) && !err; i++) {
		err = start_one(b, c, &c->be[i], true, i);
	}
	c->started = true;
	err = err ? err : bench_client_await(&c->lc, READY_NS);
	for (unsigned i = 0; i < batch_clients(b, c) && !err; i++) {
		err = bench_client_await(&c->be[i], READY_NS);
		if (!err && c->probe) {
			err = bench_lcbe_attach(b, c, &c->be[i]);
		}
	}
	return err ? err : check_lane(b, c);
}

/* ---- a turn ---- */

static uint64_t batch_count(const struct bench_lcbe *b, const struct bench_lcbe_condition *c)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < batch_clients(b, c); i++) {
		n += load_acquire(&c->be[i].page->finished);
	}
	return n;
}

static int command_batch(struct bench_lcbe *b, struct bench_lcbe_condition *c,
			 enum bench_page_op op)
{
	int err = 0;

	for (unsigned i = 0; i < batch_clients(b, c); i++) {
		bench_client_send(&c->be[i], op);
	}
	for (unsigned i = 0; i < batch_clients(b, c) && !err; i++) {
		err = bench_client_await(&c->be[i], ANSWER_NS);
	}
	return err;
}

/* Returns the limit of a window: twice its part of the remaining time, since short windows leave
 * some. */
uint64_t bench_lcbe_window_ns(const struct bench_lcbe *b)
{
	double used = (double)(clock_now_ns() - b->begun_ns) * 1e-9;
	unsigned left = b->windows > b->windows_done ? b->windows - b->windows_done : 1;
	double may = 2 * (b->set.seconds - used) / left;

	return MAX((uint64_t)(MAX(may, 0) * 1e9), MIN_WINDOW_NS);
}

/* Measures batch without requests, for the duration of a window of requests of one kernel. */
static int batch_window(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned round)
{
	uint64_t may = bench_lcbe_window_ns(b), want, begin, end, n;

	want = (uint64_t)(b->set.requests / b->set.rounds) * 2600000;
	begin = clock_now_ns();
	n = batch_count(b, c);
	end = begin + MAX(MIN(want, may / 2), MIN_WINDOW_NS);
	while (clock_now_ns() < end) {
		if (bench_testbed_interrupted()) {
			return bench_testbed_fail(&b->testbed, "interrupted");
		}
		clock_sleep_ns(MIN(end - MIN(clock_now_ns(), end), 20000000));
	}
	n = batch_count(b, c) - n;
	return bench_lcbe_record_alone(b, c, round,
				       (double)n / ((double)(clock_now_ns() - begin) * 1e-9));
}

/* Adds the time of the threads other than the first: libcuda's and, under gBPF, its agent. */
static void add_cpu(const struct bench_lcbe *b, struct bench_lcbe_condition *c, double sign)
{
	double first, others;

	bench_testbed_cpu((pid_t)c->lc.page->pid, &first, &others);
	c->cpu_ns[0] += sign * others;
	for (unsigned i = 0; i < batch_clients(b, c); i++) {
		bench_testbed_cpu((pid_t)c->be[i].page->pid, &first, &others);
		c->cpu_ns[1] += sign * others;
	}
}

static int request_window(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned kind,
			  unsigned round)
{
	struct bench_page *p = c->lc.page;
	uint64_t n, begin;
	double seconds;
	int err;

	p->kind = kind;
	p->n = MAX(b->set.requests / b->set.rounds, 1);
	p->limit_ns = bench_lcbe_window_ns(b);
	p->seed = round * PAGE_KINDS + kind + 1; /* the same in every condition */
	add_cpu(b, c, -1);
	n = batch_count(b, c);
	begin = clock_now_ns();
	bench_client_send(&c->lc, PAGE_REQUESTS);
	err = bench_client_await(&c->lc, p->limit_ns + ANSWER_NS);
	n = batch_count(b, c) - n;
	seconds = (double)(clock_now_ns() - begin) * 1e-9;
	add_cpu(b, c, 1);
	c->cpu_seconds += seconds;
	if (!err && !p->samples[0]) {
		err = bench_testbed_fail(&b->testbed,
					 "no request completed within %.1f s; raise --seconds",
					 (double)p->limit_ns * 1e-9);
	}
	return err ? err
		   : bench_lcbe_record_window(
			     b, c, lcbe_kind_names[kind], round, seconds, (double)n, 0,
			     bench_program_floats(p->us[0], MIN(p->samples[0], PAGE_SAMPLES)));
}

static int check_results(struct bench_lcbe *b, struct bench_lcbe_condition *c)
{
	c->wrong = c->lc.page->wrong;
	c->checked = c->lc.page->checked;
	for (unsigned i = 0; i < batch_clients(b, c); i++) {
		c->wrong += c->be[i].page->wrong;
		c->checked += c->be[i].page->checked;
	}
	return c->wrong ? bench_testbed_fail(&b->testbed, "WRONG RESULTS: %llu of %llu values",
					     (unsigned long long)c->wrong,
					     (unsigned long long)c->checked)
			: 0;
}

/* Asks gbpfd for the statistics of the condition's clients, for the document. */
static void ask_gbpfd(struct bench_lcbe_condition *c)
{
	json_t *tenants = c->daemon ? bench_testbed_tenants(c->daemon) : NULL, *t;
	size_t i;

	if (!tenants) {
		return;
	}
	json_decref(c->tenants);
	c->tenants = tenants;
	json_array_foreach(c->tenants, i, t)
	{
		json_object_del(t, "command"); /* long and not useful */
	}
}

static int turn(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned round)
{
	int err = 0;

	bench_testbed_progress(&b->testbed, "lcbe: round %u of %u: %s", round + 1, b->set.rounds,
			       c->name);
	if (b->set.lc_cmd) {
		return bench_lcbe_command_turn(b, c, round);
	}
	if (!c->started) {
		err = start_clients(b, c);
	}
	if (!err && batch_clients(b, c)) {
		err = command_batch(b, c, PAGE_WORK);
		if (!err && c->probe) {
			err = bench_lcbe_await_tool(b, c, batch_clients(b, c));
		}
		clock_sleep_ns(BATCH_WARM_NS);
		err = err ? err : batch_window(b, c, round);
		b->windows_done++;
	}
	for (unsigned k = 0; k < PAGE_KINDS && !err; k++) {
		if (bench_program_lists(b->set.kinds, lcbe_kind_names[k])) {
			err = request_window(b, c, k, round);
			b->windows_done++;
		}
	}
	if (!err && batch_clients(b, c)) {
		err = command_batch(b, c, PAGE_PAUSE);
	}
	err = err ? err : check_results(b, c);
	ask_gbpfd(c);
	if (err && unavailable(b, c)) {
		c->state = LCBE_NOT_AVAILABLE;
	}
	c->rounds += !err;
	if (err || b->set.restart || c->def->lane == LANE_GBPF_AUTO) {
		stop_clients(c);
	}
	return err;
}

static void count_windows(struct bench_lcbe *b)
{
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		const struct bench_lcbe_condition *c = &b->condition[i];

		if (c->state == LCBE_IN) {
			b->windows += c->def->batch;
			for (unsigned k = 0; k < PAGE_KINDS; k++) {
				b->windows += bench_program_lists(b->set.kinds, lcbe_kind_names[k]);
			}
		}
	}
	b->windows *= b->set.rounds;
}

/* ---- before all ---- */

/* One client calibrates the spin loops of the blocks; all clients use its result. */
static int calibrate(struct bench_lcbe *b)
{
	struct bench_testbed_place place = { .lane = LANE_OWN, .mps_priority = -1 };
	struct bench_testbed_client c;
	struct bench_testbed_command k;
	int err;

	bench_testbed_progress(&b->testbed, "lcbe: calibrating");
	bench_command_init(&k);
	bench_command_option(&k, "--threads", "%u", b->set.threads);
	bench_command_option(&k, "--lc-us", "%g", b->set.lc_us);
	bench_command_option(&k, "--block-us", "%g", b->set.block_us);
	if (b->testbed.soft) { /* one at a time: the soft GPU uses the host's processors */
		bench_command_option(&k, "--at-once", "1");
	}
	err = bench_client_start(&b->testbed, &c, "calibrate", &place, "calibrate", &k);
	bench_command_finish(&k);
	err = err ? err : bench_client_await(&c, READY_NS);
	if (!err) {
		unsigned fit =
			b->testbed.soft ? 1 : MAX(c.page->threads_per_sm / b->set.threads, 1);

		memcpy(b->device, c.page->device, sizeof(b->device));
		b->device[sizeof(b->device) - 1] = 0;
		b->sms = b->testbed.soft ? MIN(c.page->sms, 2) : c.page->sms;
		for (unsigned i = 0; i < 2; i++) {
			b->iterations[i] = (int)c.page->iterations[i];
			b->block_us[i] = c.page->block_us[i];
		}
		if (!b->set.grid) { /* a kernel of 3 ms */
			double waves = 3000 / MAX(b->block_us[1], 1);

			b->set.grid = (unsigned)MAX(waves, 1) * fit * b->sms;
		}
	}
	bench_client_stop(&c);
	return err;
}

/* ---- records ---- */

int bench_lcbe_record_alone(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			    unsigned round, double per_s)
{
	return bench_testbed_record(&b->testbed, "alone",
				    json_pack("{s:s, s:i, s:f}", "condition", c->name, "round",
					      (int)round, "per_s", per_s));
}

int bench_lcbe_record_window(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			     const char *kind, unsigned round, double seconds, double batch,
			     uint64_t lc_busy_ns, json_t *us)
{
	return bench_testbed_record(
		&b->testbed, "window",
		json_pack("{s:s, s:s, s:i, s:b, s:f, s:f, s:o*, s:o}", "condition", c->name, "kind",
			  kind, "round", (int)round, "shared", bench_lcbe_shared(c), "seconds",
			  seconds, "batch_kernels", batch, "lc_busy_ns",
			  lc_busy_ns ? json_integer((json_int_t)lc_busy_ns) : NULL, "us", us));
}

static int record_set_up(struct bench_lcbe *b)
{
	const struct bench_lcbe_settings *s = &b->set;

	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b}",
			  "device", b->device, "policy", b->testbed.policy_name, "multiprocessors",
			  (int)b->sms, "rounds", (int)s->rounds, "batch_clients",
			  (int)s->batch_clients, "streams", (int)s->streams, "depth", (int)s->depth,
			  "threads", (int)s->threads, "grid", (int)s->grid, "kernels",
			  (int)s->kernels, "think_us", (int)s->think_us, "block_us", b->block_us[1],
			  "lc_block_us", b->block_us[0], "default_stream", (int)s->default_stream));
}

int bench_lcbe_run(struct bench_lcbe *b)
{
	if (b->set.lc_cmd) { /* the commands' requests are of one kind */
		snprintf(b->device, sizeof(b->device), "%s", b->testbed.soft ? "soft GPU" : "GPU");
		b->set.kinds = lcbe_kind_names[KIND_ONE];
	}
	if (bench_testbed_init(&b->testbed) < 0 || (!b->set.lc_cmd && calibrate(b) < 0)) {
		return -1;
	}
	if (bench_lcbe_read_tool(b) < 0 || record_set_up(b) < 0) {
		return -1;
	}
	bench_lcbe_choose(b);
	count_windows(b);
	b->begun_ns = clock_now_ns();
	for (unsigned r = 0; r < b->set.rounds; r++) {
		for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
			struct bench_lcbe_condition *c = &b->condition[(r + i) % LCBE_CONDITIONS];

			if (c->state == LCBE_IN && turn(b, c, r) < 0) {
				c->state = c->state == LCBE_IN ? LCBE_BROKEN : c->state;
				b->failed |= c->state == LCBE_BROKEN;
				snprintf(c->why, sizeof(c->why), "%s", b->testbed.error);
			}
			if (bench_testbed_interrupted()) {
				return bench_testbed_fail(&b->testbed, "interrupted");
			}
		}
	}
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		if (bench_lcbe_record_condition(b, &b->condition[i]) < 0) {
			return -1;
		}
	}
	return 0;
}

void bench_lcbe_finish(struct bench_lcbe *b)
{
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		struct bench_lcbe_condition *c = &b->condition[i];

		stop_clients(c);
		json_decref(c->tenants);
	}
	buf_finish(&b->tool);
}
