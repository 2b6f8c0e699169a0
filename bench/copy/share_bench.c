/* `gbpf bench dev copy --shares`: clients that copy without a pause, each in a vGPU with a copy
 * share, and a latency program's short copies next to long ones. Clients are started for each
 * policy.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/copy/copy_bench.h"

#define LATENCY_BYTES ((uint64_t)64 << 10)
#define LATENCY_CALLS 200u
#define LATENCY_PAUSE_US 500u
#define PART_S 1.0     /* of a part, besides its windows */
#define LATENCY_S 0.15 /* of LATENCY_CALLS */
#define PIECE_BYTES ((int)4 << 20)

/* "none": gBPF observes only. */
static const char *const policies[] = { "copy_fair", "vgpu_auto", "none" };
static const char *const ways[] = { "up", "down" };

struct division {
	struct bench_copy *b;
	const char *policy;
	unsigned share[COPY_CLIENTS_MAX], n;
};

struct sample {
	uint64_t at_ns, bytes[COPY_CLIENTS_MAX];
};

/* Begins a stream, without waiting: the client makes its memory ready first. */
static void stream(struct bench_copy_client *c, unsigned way, bool pinned, uint64_t bytes)
{
	c->page->job = COPY_STREAM;
	c->page->way = way;
	c->page->pinned = pinned;
	c->page->bytes = bytes;
	bench_copy_loop(c);
}

static int take(struct bench_copy *b, unsigned n, struct sample *s)
{
	s->at_ns = clock_now_ns();
	return bench_copy_counters(b, n, "copy_bytes", s->bytes);
}

/* What n clients of the division do in a number of windows. */
struct turn {
	struct division *d;
	unsigned n, way, kind, windows;
};

static int record_window(const struct turn *t, const struct sample *now,
			 const struct sample *before)
{
	return bench_testbed_record(
		&t->d->b->testbed, "share",
		json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o}", "policy", t->d->policy, "way",
			  ways[t->way], "kind", bench_copy_kinds[t->kind], "windows",
			  (int)t->windows, "elapsed_ns", (json_int_t)(now->at_ns - before->at_ns),
			  "shares", bench_program_integers(t->d->share, t->n), "bytes",
			  bench_program_differences(now->bytes, before->bytes, t->n)));
}

static int windows(const struct turn *t)
{
	struct bench_copy *b = t->d->b;
	struct sample last, now;
	char what[96];
	int err;

	snprintf(what, sizeof(what), "%s, %s, %s, %u of %u", t->d->policy, ways[t->way],
		 bench_copy_kinds[t->kind], t->n, t->d->n);
	bench_copy_tell(b, t->windows + PART_S, what);
	for (unsigned i = 0; i < t->n; i++) {
		stream(&b->client[i], t->way, t->kind, b->max);
	}
	err = bench_copy_settle(b, 0, t->n);
	err = err ? err : take(b, t->n, &last);
	for (unsigned k = 0; k < t->windows && !err; k++) {
		err = bench_copy_wait(b, t->n, last.at_ns + COPY_WINDOW_NS);
		err = err ? err : take(b, t->n, &now);
		err = err ? err : record_window(t, &now, &last);
		last = now;
	}
	return bench_copy_stop(b, 0, t->n) < 0 ? -1 : err;
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
		err = bench_copy_start_as(d->b, i, "share", &place);
	}
	for (unsigned k = 0; k < 4 && !err; k++) {
		struct turn alone = { d, 1, k / 2, k % 2, 1 }; /* gets everything */
		struct turn all = { d, d->n, k / 2, k % 2, d->b->seconds };

		if (bench_program_lists(d->b->ways, ways[k / 2])) {
			err = windows(&alone);
			err = err ? err : windows(&all);
		}
	}
	bench_copy_end_all(d->b);
	return err;
}

/* Short uploads of a latency program, alone and next to a batch program that copies up. */
static int measure_latency(struct division *d, bool next_to)
{
	struct bench_copy *b = d->b;
	struct bench_copy_page *p = b->client[0].page;
	json_t *ns = json_array();
	char what[96];
	int err = 0;

	snprintf(what, sizeof(what), "%s, uploads of a latency program, %s", d->policy,
		 next_to ? "next to copies" : "alone");
	bench_copy_tell(b, LATENCY_S * b->seconds, what);
	if (next_to) {
		stream(&b->client[1], COPY_UP, true, b->max);
		err = bench_copy_settle(b, 1, 1);
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
	if (next_to && bench_copy_stop(b, 1, 1) < 0) {
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
	int err = bench_copy_start_as(d->b, 0, "latency", &place);

	place.class_name = "batch";
	err = err ? err : bench_copy_start_as(d->b, 1, "batch", &place);
	err = err ? err : measure_latency(d, false);
	err = err ? err : measure_latency(d, true);
	bench_copy_end_all(d->b);
	return err;
}

static int set_up(struct bench_copy *b)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "normal", .mps_priority = -1
	};
	int err = bench_copy_start_as(b, 0, "device", &place);

	err = err ? err
		  : bench_testbed_record(&b->testbed, "set_up",
					 json_pack("{s:s, s:b, s:i, s:I, s:i}", "device",
						   b->client[0].page->device, "soft",
						   b->testbed.soft, "cores",
						   (int)b->client[0].page->cores, "max",
						   (json_int_t)b->max, "seconds", (int)b->seconds));
	bench_copy_end_all(b);
	return err;
}

static bool is_chosen(const struct bench_copy *b, unsigned policy)
{
	return !b->policies || bench_program_lists(b->policies, policies[policy]);
}

/* Counts the parts, and their time without the starts of programs. */
static void plan(struct bench_copy *b)
{
	unsigned chosen = 0, n_ways = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
		chosen += is_chosen(b, i);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		n_ways += bench_program_lists(b->ways, ways[i]);
	}
	b->parts = chosen * (n_ways * COPY_KINDS * 2 + 2);
	b->left_s = chosen * (n_ways * COPY_KINDS * (1 + b->seconds + 2 * PART_S) +
			      2 * LATENCY_S * b->seconds);
}

int bench_copy_shares(struct bench_copy *b)
{
	struct division d = { .b = b };
	bool first = true;
	int err;

	d.n = bench_program_numbers(b->shares, 1, 99, d.share, COPY_CLIENTS_MAX);
	if (d.n < 2) {
		return bench_testbed_fail(&b->testbed, "invalid shares");
	}
	plan(b);
	err = bench_testbed_init(&b->testbed);
	for (unsigned i = 0; i < ARRAY_SIZE(policies) && !err; i++) {
		if (!is_chosen(b, i)) {
			continue;
		}
		d.policy = policies[i];
		b->daemon = bench_testbed_gbpfd_with(&b->testbed, b->policy_dir, d.policy);
		err = b->daemon ? 0 : -1;
		err = err || !first ? err : set_up(b);
		first = false;
		err = err ? err : divide(&d);
		err = err ? err : latency(&d);
	}
	return err;
}
