/* `gbpf bench copy --shares`: clients that copy without a pause, each in a vGPU with a copy share,
 * and a latency program's short copies next to long ones. Every policy has the same clients anew.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/copy/copy_bench.h"

#define NS_PER_SECOND 1000000000ull
#define SETTLE_NS NS_PER_SECOND
#define LATENCY_BYTES ((uint64_t)64 << 10)
#define LATENCY_CALLS 200u
#define LATENCY_PAUSE_US 500u
#define PIECE_BYTES ((int)4 << 20)

/* "none": gBPF observes only. */
static const char *const policies[] = { "copy_fair", "vgpu_auto", "none" };
static const char *const ways[] = { "up", "down" };
static const char *const kinds[] = { "pageable", "pinned" };

struct division {
	struct bench_copy *b;
	const char *policy;
	unsigned share[COPY_CLIENTS_MAX], n;
};

struct sample {
	uint64_t at_ns, bytes[COPY_CLIENTS_MAX];
};

/* Returns 0, or -1 if gbpfd does not list all clients. */
static int take(struct bench_copy *b, unsigned n, struct sample *s)
{
	json_t *list = bench_testbed_tenants(b->daemon), *j;
	unsigned found = 0;
	size_t k;

	s->at_ns = clock_now_ns();
	json_array_foreach(list, k, j)
	{
		for (unsigned i = 0; i < n; i++) {
			if (json_integer_value(json_object_get(j, "pid")) ==
			    (json_int_t)b->client[i].page->pid) {
				s->bytes[i] = (uint64_t)json_integer_value(
					json_object_get(json_object_get(j, "stats"), "copy_bytes"));
				found++;
			}
		}
	}
	json_decref(list);
	return found == n
		       ? 0
		       : bench_testbed_fail(&b->testbed, "gbpfd lists %u of %u clients", found, n);
}

static int wait_ns(struct bench_copy *b, unsigned n, uint64_t until_ns)
{
	for (uint64_t now = clock_now_ns(); now < until_ns; now = clock_now_ns()) {
		for (unsigned i = 0; i < n; i++) {
			if (bench_copy_check(b, &b->client[i], UINT64_MAX) < 0) {
				return -1;
			}
		}
		clock_sleep_ns(MIN(until_ns - now, (uint64_t)20000000));
	}
	return 0;
}

static int start(struct bench_copy *b, unsigned i, const char *name,
		 const struct bench_testbed_place *place)
{
	snprintf(b->client[i].name, sizeof(b->client[i].name), "%.15s%u", name, i);
	return bench_copy_start(b, &b->client[i], place) < 0 ||
			       bench_copy_await_ready(b, &b->client[i]) < 0
		       ? -1
		       : 0;
}

static void end_all(struct bench_copy *b)
{
	for (unsigned i = 0; i < COPY_CLIENTS_MAX; i++) {
		bench_copy_end(b, &b->client[i]);
	}
}

/* Begins a stream, without waiting: the client fills its memory first. */
static void stream(struct bench_copy_client *c, unsigned way, bool pinned, uint64_t bytes)
{
	store_release(&c->page->streaming, 0u);
	c->page->job = COPY_STREAM;
	c->page->way = way;
	c->page->pinned = pinned;
	c->page->bytes = bytes;
	store_release(&c->page->stop, 0u);
	bench_copy_order(c);
}

/* Waits until the clients copy, and a while longer. */
static int settle(struct bench_copy *b, unsigned first, unsigned n)
{
	uint64_t deadline = clock_now_ns() + 60 * NS_PER_SECOND;

	for (unsigned i = first; i < first + n; i++) {
		while (!load_acquire(&b->client[i].page->streaming)) {
			if (bench_copy_check(b, &b->client[i], deadline) < 0) {
				return -1;
			}
			clock_sleep_ns(1000000);
		}
	}
	return wait_ns(b, first + n, clock_now_ns() + SETTLE_NS);
}

/* Stops the clients' streams. Each compares what it has copied. */
static int stop(struct bench_copy *b, unsigned first, unsigned n)
{
	int err = 0;

	for (unsigned i = first; i < first + n; i++) {
		store_release(&b->client[i].page->stop, 1u);
	}
	for (unsigned i = first; i < first + n && !err; i++) {
		err = bench_copy_await_done(b, &b->client[i]);
	}
	return err;
}

/* The first `n` clients of the division copy; writes a record for each window. */
static int windows(struct division *d, unsigned n, unsigned way, unsigned kind)
{
	struct bench_copy *b = d->b;
	struct sample s[2];
	int err;

	bench_testbed_progress(&b->testbed, "%s: %s, %s, %u of %u", d->policy, ways[way],
			       kinds[kind], n, d->n);
	for (unsigned i = 0; i < n; i++) {
		stream(&b->client[i], way, kind, b->max);
	}
	err = settle(b, 0, n);
	err = err ? err : take(b, n, &s[0]);
	for (unsigned k = 0; k < b->seconds && !err; k++) {
		json_t *bytes = json_array(), *shares = json_array();

		err = wait_ns(b, n, s[k % 2].at_ns + NS_PER_SECOND);
		err = err ? err : take(b, n, &s[(k + 1) % 2]);
		for (unsigned i = 0; i < n && !err; i++) {
			json_array_append_new(bytes,
					      json_integer((json_int_t)(s[(k + 1) % 2].bytes[i] -
									s[k % 2].bytes[i])));
			json_array_append_new(shares, json_integer((json_int_t)d->share[i]));
		}
		err = err ? err
			  : bench_testbed_record(
				    &b->testbed, "share",
				    json_pack("{s:s, s:s, s:s, s:I, s:O, s:O}", "policy", d->policy,
					      "way", ways[way], "kind", kinds[kind], "elapsed_ns",
					      (json_int_t)(s[(k + 1) % 2].at_ns - s[k % 2].at_ns),
					      "shares", shares, "bytes", bytes));
		json_decref(bytes);
		json_decref(shares);
	}
	return stop(b, 0, n) < 0 ? -1 : err;
}

static int divide(struct division *d)
{
	struct bench_testbed_place place = { .lane = LANE_GBPF,
					     .daemon = d->b->daemon,
					     .class_name = "normal",
					     .mps_priority = -1 };
	int err = 0;

	for (unsigned i = 0; i < d->n && !err; i++) {
		place.copy = d->share[i];
		err = start(d->b, i, "share", &place);
	}
	for (unsigned k = 0; k < 4 && !err; k++) {
		if (bench_program_lists(d->b->ways, ways[k / 2])) {
			err = windows(d, 1, k / 2, k % 2); /* alone: gets everything */
			err = err ? err : windows(d, d->n, k / 2, k % 2);
		}
	}
	end_all(d->b);
	return err;
}

/* Short uploads of a latency program, alone and next to a batch program that copies up. */
static int measure_latency(struct division *d, bool next_to)
{
	struct bench_copy *b = d->b;
	struct bench_copy_page *p = b->client[0].page;
	json_t *ns = json_array();
	int err;

	bench_testbed_progress(&b->testbed, "%s: latency %s", d->policy,
			       next_to ? "next to copies" : "alone");
	if (next_to) {
		stream(&b->client[1], COPY_UP, true, b->max);
		err = settle(b, 1, 1);
	} else {
		err = 0;
	}
	for (unsigned k = 0; k < b->seconds && !err; k++) {
		p->job = COPY_LATENCY;
		p->bytes = LATENCY_BYTES;
		p->calls = LATENCY_CALLS;
		p->way = COPY_UP;
		p->pause_us = LATENCY_PAUSE_US;
		bench_copy_order(&b->client[0]);
		err = bench_copy_await_done(b, &b->client[0]);
		for (unsigned i = 0; i < LATENCY_CALLS && !err; i++) {
			json_array_append_new(ns, json_integer((json_int_t)p->ns[COPY_BY_SHIM][i]));
		}
	}
	if (next_to && stop(b, 1, 1) < 0) {
		err = -1;
	}
	if (err) {
		json_decref(ns);
		return -1;
	}
	return bench_testbed_record(&b->testbed, "latency",
				    json_pack("{s:s, s:b, s:i, s:i, s:o}", "policy", d->policy,
					      "next_to_copies", (int)next_to, "bytes",
					      (int)LATENCY_BYTES, "piece_bytes", PIECE_BYTES, "ns",
					      ns));
}

static int latency(struct division *d)
{
	struct bench_testbed_place place = { .lane = d->b->testbed.soft ? LANE_GBPF
									: LANE_GBPF_SHARED,
					     .daemon = d->b->daemon,
					     .class_name = "latency",
					     .mps_priority = -1 };
	int err = start(d->b, 0, "latency", &place);

	place.class_name = "batch";
	err = err ? err : start(d->b, 1, "batch", &place);
	err = err ? err : measure_latency(d, false);
	err = err ? err : measure_latency(d, true);
	end_all(d->b);
	return err;
}

/* "30,70". Returns false if that is malformed. */
static bool parse(struct division *d, const char *text)
{
	const char *at = text;
	unsigned sum = 0;

	while (*at) {
		char *end;
		unsigned long v = strtoul(at, &end, 10);

		if (end == at || v < 1 || v > 99 || d->n == COPY_CLIENTS_MAX ||
		    (*end && *end != ',')) {
			return false;
		}
		d->share[d->n++] = (unsigned)v;
		sum += (unsigned)v;
		at = *end ? end + 1 : end;
	}
	return d->n >= 2 && sum <= 100;
}

static int set_up(struct bench_copy *b)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "normal", .mps_priority = -1
	};
	int err = start(b, 0, "device", &place);

	err = err ? err
		  : bench_testbed_record(&b->testbed, "set_up",
					 json_pack("{s:s, s:b, s:i, s:I, s:i}", "device",
						   b->client[0].page->device, "soft",
						   b->testbed.soft, "cores",
						   (int)b->client[0].page->cores, "max",
						   (json_int_t)b->max, "seconds", (int)b->seconds));
	end_all(b);
	return err;
}

int bench_copy_shares(struct bench_copy *b)
{
	struct division d = { .b = b };
	int err;

	if (!parse(&d, b->shares)) {
		return bench_testbed_fail(&b->testbed, "invalid shares");
	}
	err = bench_testbed_init(&b->testbed);
	for (unsigned i = 0; i < ARRAY_SIZE(policies) && !err; i++) {
		char path[4200];

		d.policy = policies[i];
		snprintf(path, sizeof(path), "%.4000s/%s.bpf.o", b->policy_dir,
			 strcmp(d.policy, "none") == 0 ? "fifo" : d.policy);
		b->daemon = bench_testbed_gbpfd(&b->testbed, path);
		err = b->daemon ? 0 : -1;
		if (!err && i == 0) {
			err = set_up(b);
		}
		err = err ? err : divide(&d);
		err = err ? err : latency(&d);
	}
	return err;
}
