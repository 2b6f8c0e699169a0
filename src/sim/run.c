/* One run of a scenario. A dry run first parses everything without effects, so that nothing runs if
 * the scenario has an error. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

static int do_time(struct sim *s, bool absolute)
{
	const char *at;
	struct sim_value v;
	int err;

	sim_blanks(s);
	at = s->at;
	err = sim_expression(s, NULL, &v);
	if (err || s->dry) {
		return err;
	}
	if (absolute && v.v < sim_now()) {
		return sim_wrong(s, at, "The clock begins at 1s; wait T moves it on by T",
				 "time does not go back: it is %" PRIu64 " ns now", sim_now());
	}
	sim_set_now(absolute ? v.v : sim_now() + v.v);
	return 0;
}

static int add_variable(struct sim *s, const char *name, uint64_t value)
{
	struct sim_variable *v = NULL;

	for (unsigned i = 0; i < s->n_vars; i++) {
		if (strcmp(s->vars[i].name, name) == 0) {
			v = &s->vars[i];
		}
	}
	if (!v) {
		if (s->n_vars == ARRAY_SIZE(s->vars)) {
			return sim_wrong(s, s->at, NULL, "too many variables");
		}
		v = &s->vars[s->n_vars++];
		snprintf(v->name, sizeof(v->name), "%s", name);
	}
	v->value = value;
	return 0;
}

static int do_let(struct sim *s)
{
	char name[SIM_NAME_BYTES];
	struct sim_value v;
	int err = sim_take_name(s, name, "variable");

	if (!err && !sim_take(s, "=")) {
		err = sim_wrong(s, s->at, NULL, "it is written: let NAME = VALUE");
	}
	err = err ? err : sim_expression(s, NULL, &v);
	return err ? err : add_variable(s, name, v.v);
}

static int do_seed(struct sim *s)
{
	struct sim_value v;
	int err = sim_expression(s, NULL, &v);

	if (err) {
		return err;
	}
	s->random_state = (v.v * UINT64_C(0x9e3779b97f4a7c15)) | 1;
	/* Seed bpf_get_prandom_u32 as well, so that each run draws the same numbers. */
	for (unsigned i = 0; i < s->testbed.n_tenants && !s->dry; i++) {
		s->testbed.tenant[i].in.policy->env.random_state =
			s->random_state ^ ((uint64_t)i + 1) << 32;
	}
	for (unsigned i = 0; i < s->testbed.n_gpus && !s->dry; i++) {
		s->testbed.gpu[i].daemon.policy->env.random_state = s->random_state ^ (uint64_t)i
											      << 48;
	}
	return 0;
}

static int run_block(struct sim *s, uint32_t from, uint32_t to);

static int do_repeat(struct sim *s)
{
	uint32_t first = s->line, last = s->lines[first].partner;
	char name[SIM_NAME_BYTES] = "";
	struct sim_value n;
	int err = sim_expression(s, NULL, &n);

	if (!err && sim_take_word(s, "as")) {
		err = sim_take_name(s, name, "variable");
	}
	if (!err && !sim_take(s, "{")) {
		err = sim_wrong(s, s->at, NULL, "it is written: repeat N [as NAME] {");
	}
	err = err ? err : sim_end(s);
	for (uint64_t i = 0; !err && i < (s->dry ? 1 : n.v); i++) {
		if (++s->steps > SIM_MAX_STEPS) { /* loops without statements count, too */
			sim_text_open(s, first);
			return sim_wrong(s, s->at, NULL, "more than %u steps", SIM_MAX_STEPS);
		}
		err = name[0] ? add_variable(s, name, i) : 0;
		err = err ? err : run_block(s, first + 1, last);
	}
	s->line = last;
	return err;
}

static int do_if(struct sim *s)
{
	uint32_t first = s->line, last = s->lines[first].partner;
	bool holds = false;
	int err = sim_condition(s, &holds);

	if (!err && !sim_take(s, "{")) {
		err = sim_wrong(s, s->at, NULL, "it is written: if CONDITION {");
	}
	err = err ? err : sim_end(s);
	if (!err && (holds || s->dry)) {
		err = run_block(s, first + 1, last);
	}
	s->line = last;
	return err;
}

static int unknown_statement(struct sim *s)
{
	static const char *const words[] = { "tenant", "expect", "repeat", "if",   "stat", "wait",
					     "gpu",    "at",	 "let",	   "seed", "set",  "rejoin",
					     "vgpu",   "region", "launch", "link", "free" };
	struct nearest n;
	char word[64], hint[160];

	snprintf(word, sizeof(word), "%.*s", (int)MIN(sim_word(s), sizeof(word) - 1), s->at);
	nearest_init(&n, word);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		nearest_offer(&n, words[i]);
	}
	for (const struct sim_hook *h = sim_hooks; h->name; h++) {
		nearest_offer(&n, h->name);
	}
	if (nearest_best(&n)) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest_best(&n));
	} else {
		snprintf(hint, sizeof(hint),
			 "A line begins with tenant, vgpu, gpu, link, region, free, launch, "
			 "rejoin, stat, "
			 "expect, repeat, if, wait, at, let, seed, set, or the name of a hook");
	}
	return sim_wrong(s, s->at, hint, "there is no statement '%s'", word);
}

static int statement(struct sim *s)
{
	const struct sim_hook *h;
	int err;

	if (sim_take_word(s, "repeat")) {
		return do_repeat(s);
	}
	if (sim_take_word(s, "if")) {
		return do_if(s);
	}
	h = sim_hook_named(s->at, sim_word(s));
	if (h) {
		s->at += sim_word(s);
		err = sim_event(s, h);
	} else if (sim_take_word(s, "expect")) {
		err = sim_expect(s);
	} else if (sim_take_word(s, "tenant")) {
		err = sim_tenant_statement(s);
	} else if (sim_take_word(s, "vgpu")) {
		err = sim_vgpu_statement(s);
	} else if (sim_take_word(s, "gpu")) {
		err = sim_gpu_statement(s);
	} else if (sim_take_word(s, "link")) {
		err = sim_link_statement(s);
	} else if (sim_take_word(s, "region")) {
		err = sim_region_statement(s);
	} else if (sim_take_word(s, "free")) {
		err = sim_free_statement(s);
	} else if (sim_take_word(s, "launch")) {
		err = sim_launch_statement(s);
	} else if (sim_take_word(s, "rejoin")) {
		err = sim_rejoin(s);
	} else if (sim_take_word(s, "stat")) {
		err = sim_stat_statement(s);
	} else if (sim_take_word(s, "wait")) {
		err = do_time(s, false);
	} else if (sim_take_word(s, "at")) {
		err = do_time(s, true);
	} else if (sim_take_word(s, "let")) {
		err = do_let(s);
	} else if (sim_take_word(s, "seed")) {
		err = do_seed(s);
	} else if (sim_take_word(s, "set")) {
		err = sim_set(s);
	} else {
		return unknown_statement(s);
	}
	return err ? err : sim_end(s);
}

/* Runs the lines from..to-1. Loops move s->line. */
static int run_block(struct sim *s, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i = s->line + 1) {
		int err;

		sim_text_open(s, i);
		if (!*s->at) {
			continue;
		}
		if (++s->steps > SIM_MAX_STEPS) {
			return sim_wrong(s, s->at, NULL, "more than %u steps", SIM_MAX_STEPS);
		}
		err = statement(s);
		if (err) {
			return err;
		}
	}
	return 0;
}

static int run_all(struct sim *s, bool dry)
{
	s->dry = dry;
	s->testbed.n_tenants = s->testbed.n_vgpus = s->testbed.n_regions = 0;
	s->testbed.n_gpus = 1;
	s->testbed.gpu_mem = 0;
	s->testbed.link = (struct sim_link){ SIM_OUT_RATE, SIM_BACK_RATE, SIM_IN_PLACE_RATE };
	s->n_vars = 0;
	s->last.hook = NULL;
	s->steps = 0;
	s->random_state = UINT64_C(0x9e3779b97f4a7c15) | 1;
	return run_block(s, 0, s->n_lines);
}

int sim_run(const struct sim_options *o, struct sim_result *result, struct report *r)
{
	struct sim *s = calloc(1, sizeof(*s));
	int err;

	memset(result, 0, sizeof(*result));
	if (!s) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	s->o = o;
	s->last_record = &s->records;
	s->result = result;
	s->r = r;
	err = sim_testbed_init(&s->testbed, o, r);
	err = err ? err : sim_text_init(s);
	err = err ? err : run_all(s, true);
	if (!err) {
		err = run_all(s, false);
	} else {
		s->testbed.n_tenants = s->testbed.n_vgpus =
			0; /* tenants of the dry run own nothing */
	}
	result->span_ns = err ? 0 : sim_now() - SIM_START_NS;
	sim_testbed_finish(&s->testbed);
	sim_ring_finish(s);
	for (size_t i = 0; i < ARRAY_SIZE(s->values); i++) {
		free(s->values[i]);
	}
	free(s->lines);
	free(s->copy);
	free(s);
	return err;
}

void sim_result_finish(struct sim_result *result)
{
	for (unsigned i = 0; i < result->n_failures; i++) {
		free(result->failure[i].text);
		free(result->failure[i].expected);
		free(result->failure[i].got);
		free(result->failure[i].after);
	}
	result->n_failures = 0;
	for (unsigned i = 0; i < result->n_prints; i++) {
		free(result->prints[i].text);
	}
	free(result->prints);
	result->prints = NULL;
	result->n_prints = 0;
}
