/* The conditions of `gbpf bench preempt`: which there are, which of them the machine offers, and
 * their records. */
#include <stdio.h>
#include <string.h>

#include "bench/lcbe/lcbe.h"

#define FITS 4u /* variant whose memory fits; in the next one it moves */

const struct bench_lcbe_def lcbe_defs[LCBE_DEFS] = {
	{ "alone", "requests alone, context of their own", LANE_OWN, .batch = false },
	{ "default", "contexts of their own, the device's time slices", LANE_OWN, .batch = true },
	{ "short", "the same, batch with slices of 1 us", LANE_OWN, .batch = true, .brief = true },
	{ "alone-mps", "requests alone, MPS client", LANE_MPS, .batch = false },
	{ "mps", "MPS clients", LANE_MPS, .batch = true },
	{ "mps-priority", "MPS clients, priorities", LANE_MPS, .batch = true, .priority = true },
	{ "gbpf", "gBPF, process lane", LANE_GBPF, .batch = true, .priority = true },
	{ "gbpf-hint", "gBPF, process lane, requests announced", LANE_GBPF, .batch = true,
	  .priority = true, .hint = true },
	{ "gbpf-shared", "gBPF, shared lane", LANE_GBPF_SHARED, .batch = true, .priority = true },
	{ "gbpf-auto", "gBPF, lanes as the policy says; new processes in each round",
	  LANE_GBPF_AUTO, .batch = true, .priority = true },
};

static int prepare(struct bench_lcbe *b, struct bench_lcbe_condition *c)
{
	struct bench_testbed *w = &b->testbed;

	if (b->set.lc_cmd && (c->def->brief || c->def->hint)) {
		return bench_testbed_fail(w, "not available with --lc-cmd");
	}
	if (c->def->lane == LANE_MPS) {
		return bench_testbed_mps(w);
	}
	if (c->def->lane != LANE_OWN) {
		if (c->def->lane == LANE_GBPF_SHARED && !bench_testbed_run_offers(w, "--lane")) {
			return bench_testbed_fail(w, "this gbpf run does not support --lane");
		}
		c->daemon = bench_testbed_gbpfd(w, w->policy);
		return c->daemon ? 0 : -1;
	}
	return 0;
}

static bool under_gbpf(const struct bench_lcbe_def *d)
{
	return d->lane != LANE_OWN && d->lane != LANE_MPS;
}

/* Requests alone need no second condition: their kernels are the same code either way. */
static bool chosen(const struct bench_lcbe *b, const struct bench_lcbe_condition *c)
{
	return (!b->set.conditions || bench_program_lists(b->set.conditions, c->def->name)) &&
	       (!c->machine_code || (b->set.machine_code && c->def->batch)) &&
	       (!c->probe || (b->set.probe && under_gbpf(c->def))) &&
	       (!c->moving || (b->set.swap && under_gbpf(c->def)));
}

void bench_lcbe_choose(struct bench_lcbe *b)
{
	int no_code = b->set.machine_code ? bench_client_compile(&b->testbed, b->image) : 0;
	char why[sizeof(b->testbed.error)];

	snprintf(why, sizeof(why), "%s", b->testbed.error);
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		struct bench_lcbe_condition *c = &b->condition[i];

		c->def = &lcbe_defs[i / LCBE_VARIANTS];
		c->moving = i % LCBE_VARIANTS >= FITS;
		c->swaps = i % LCBE_VARIANTS > FITS;
		c->machine_code = !c->moving && i % LCBE_VARIANTS & 1;
		c->probe = !c->moving && i % LCBE_VARIANTS & 2;
		snprintf(c->name, sizeof(c->name), "%s%s%s%s", c->def->name,
			 c->machine_code ? "-code" : "", c->probe ? "-probe" : "",
			 c->swaps    ? "-swaps"
			 : c->moving ? "-fits"
				     : "");
		c->state = chosen(b, c) ? LCBE_IN : LCBE_OUT;
		if (c->state == LCBE_IN && ((c->machine_code && no_code) || prepare(b, c) < 0)) {
			c->state = LCBE_NOT_AVAILABLE;
			snprintf(c->why, sizeof(c->why), "%s",
				 c->machine_code && no_code ? why : b->testbed.error);
		}
	}
}

bool bench_lcbe_shared(const struct bench_lcbe_condition *c)
{
	return c->def->lane == LANE_GBPF_AUTO
		       ? c->shared
		       : c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;
}

int bench_lcbe_record_condition(struct bench_lcbe *b, const struct bench_lcbe_condition *c)
{
	static const char *const states[] = { "out", "run", "not available", "failed" };
	const struct bench_lcbe_def *d = c->def;

	return bench_testbed_record(
		&b->testbed, "condition",
		json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:s, s:i, s:I, s:I, s:o, s:b, s:b, s:b, "
			  "s:b, s:f, "
			  "s:f, "
			  "s:f, "
			  "s:O*}",
			  "condition", c->name, "is", d->doc, "machine_code", c->machine_code,
			  "probe", c->probe, "moving", c->moving, "swaps", c->swaps, "state",
			  states[c->state], "rounds", (int)c->rounds, "checked",
			  (json_int_t)c->checked, "wrong", (json_int_t)c->wrong, "why",
			  bench_program_text(c->why), "shared", bench_lcbe_shared(c),
			  "policy_lanes", d->lane == LANE_GBPF_AUTO, "plain",
			  !d->priority && !d->brief, "batch", d->batch, "cpu_seconds",
			  c->cpu_seconds, "latency_cpu_ns", c->cpu_ns[0], "batch_cpu_ns",
			  c->cpu_ns[1], "tenants", c->tenants));
}
