/* Part `latency`: cuMemAlloc and cuMemFree among many live allocations, with a limit and under gBPF
 * without one, by gBPF and by the driver in turn. */
#include <jansson.h>

#include "bench/common/program.h"
#include "bench/quota/quota.h"

enum { LIMITED, PLAIN };
static const char *const names[QUOTA_CONDITIONS] = { "limited", "plain" };
static const unsigned levels[] = { 10, 1000, 100000 };

static int command(struct bench_quota *b, const pid_t *pid, unsigned k, uint64_t live,
		   unsigned pairs)
{
	struct bench_quota_slot *s = &b->page->slot[QUOTA_LATENCY + k];

	s->live = live;
	s->pairs = pairs;
	return bench_quota_command(b, pid[k], QUOTA_LATENCY + k);
}

/* Lets all of them hold as many allocations as the one with the least room can. */
static int fill(struct bench_quota *b, const pid_t *pid, uint64_t *live)
{
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned k = 0; k < QUOTA_CONDITIONS; k++) {
			if (command(b, pid, k, *live, 0) < 0) {
				return -1;
			}
			*live = MIN(*live, b->page->slot[QUOTA_LATENCY + k].live);
		}
	}
	return 0;
}

static int record(struct bench_quota *b, unsigned k, uint64_t live, unsigned round)
{
	const struct bench_quota_slot *s = &b->page->slot[QUOTA_LATENCY + k];
	json_t *ns[QUOTA_BYS];

	for (unsigned by = 0; by < QUOTA_BYS; by++) {
		ns[by] = json_array();
		for (unsigned i = 0; i < b->pairs; i++) {
			json_array_append_new(ns[by], json_integer((json_int_t)s->ns[by][i]));
		}
	}
	return bench_testbed_record(&b->testbed, "latency",
				    json_pack("{s:s, s:I, s:i, s:o, s:o}", "condition", names[k],
					      "live", (json_int_t)live, "round", (int)round, "ns",
					      ns[QUOTA_BY_PROGRAM], "driver_ns",
					      ns[QUOTA_BY_DRIVER]));
}

static int measure(struct bench_quota *b, const pid_t *pid)
{
	for (unsigned i = 0; i < ARRAY_SIZE(levels); i++) {
		uint64_t live = levels[i];

		bench_testbed_progress(&b->testbed, "quota: latency with %u allocations",
				       levels[i]);
		if (fill(b, pid, &live) < 0) {
			return -1;
		}
		for (unsigned n = 0; n < b->rounds * QUOTA_CONDITIONS; n++) {
			unsigned round = n / QUOTA_CONDITIONS, k = (n + round) % QUOTA_CONDITIONS;

			if (command(b, pid, k, live, b->pairs) < 0 ||
			    record(b, k, live, round) < 0) {
				return -1;
			}
		}
	}
	return 0;
}

int bench_quota_latency(struct bench_quota *b)
{
	pid_t pid[QUOTA_CONDITIONS] = { 0 };
	int err = 0;

	if (b->parts && !bench_program_lists(b->parts, "latency")) {
		return 0;
	}
	for (unsigned k = 0; k < QUOTA_CONDITIONS && !err; k++) {
		struct bench_testbed_place place = { .lane = LANE_GBPF,
						     .daemon = b->daemon,
						     .class_name = "normal",
						     .mps_priority = -1,
						     .mem = k == LIMITED ? b->page->limit : 0 };

		err = bench_quota_start_client(b, &place, "latency", names[k], QUOTA_LATENCY + k,
					       &pid[k]);
		err = err ? err : bench_quota_await_ready(b, pid[k], QUOTA_LATENCY + k, false);
	}
	err = err ? err : measure(b, pid);
	for (unsigned k = 0; k < QUOTA_CONDITIONS; k++) {
		bench_testbed_end(&b->testbed, pid[k], 0);
	}
	return err;
}
