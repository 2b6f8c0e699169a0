/* One run: the scenario is first gone through without effect, so that nothing runs of one that
 * cannot be understood; then it happens. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define MAX_NUMBER_OF_TENANTS 1024u

static int take_name(struct sim *s, char out[SIM_NAME_BYTES], const char *what)
{
	size_t len;

	sim_blanks(s);
	len = sim_word(s);
	if (!len || len >= SIM_NAME_BYTES) {
		return sim_wrong(s, s->at, NULL, "here the name of a %s is needed", what);
	}
	memcpy(out, s->at, len);
	out[len] = 0;
	s->at += len;
	return 0;
}

/* name=value pairs to the end of the line. */
struct pair {
	char name[SIM_NAME_BYTES];
	const char *at, *value_at;
	struct sim_value value;
};

static int next_pair(struct sim *s, struct pair *p)
{
	int err;

	sim_blanks(s);
	p->at = s->at;
	err = take_name(s, p->name, "field");
	if (err) {
		return err;
	}
	if (!sim_take(s, "=")) {
		return sim_wrong(s, s->at, NULL, "here '=' is needed: %s=VALUE", p->name);
	}
	sim_blanks(s);
	p->value_at = s->at;
	return sim_expression(s, p->name, &p->value);
}

static uint32_t free_number(const struct sim_world *w)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < w->n_tenants; i++) {
		if (w->tenant[i].number == n) {
			n++;
			i = (unsigned)-1; /* look again for the next one */
		}
	}
	return n;
}

static int set_tenant(struct sim *s, struct sim_tenant *t, const struct pair *p)
{
	const struct {
		const char *name;
		uint32_t *field;
		uint64_t min, max;
	} fields[] = { { "class", &t->class_id, 0, 2 },
		       { "weight", &t->weight, 1, 10000 },
		       { "number", &t->number, 0, MAX_NUMBER_OF_TENANTS - 1 },
		       { "uid", &t->uid, 0, UINT32_MAX },
		       { "pid", &t->pid, 0, UINT32_MAX } };
	struct nearest n;
	char hint[80];

	nearest_init(&n, p->name);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		nearest_offer(&n, fields[i].name);
		if (strcmp(fields[i].name, p->name) != 0) {
			continue;
		}
		if (p->value.v < fields[i].min || p->value.v > fields[i].max) {
			return sim_wrong(s, p->value_at, NULL, "not from %" PRIu64 " to %" PRIu64,
					 fields[i].min, fields[i].max);
		}
		*fields[i].field = (uint32_t)p->value.v;
		return 0;
	}
	snprintf(hint, sizeof(hint), "Did you mean '%s'?",
		 nearest_best(&n) ? nearest_best(&n) : "class");
	return sim_wrong(s, p->at, hint, "a tenant has no '%s'", p->name);
}

static int do_tenant(struct sim *s)
{
	struct sim_world *w = &s->world;
	struct sim_tenant *t = &w->tenant[w->n_tenants];
	const char *at;
	struct pair p;
	int err;

	sim_blanks(s);
	at = s->at;
	if (w->n_tenants == SIM_MAX_TENANTS) {
		return sim_wrong(s, at, NULL, "more than %u tenants", SIM_MAX_TENANTS);
	}
	*t = (struct sim_tenant){ .class_id = 1, .weight = 100, .in.fd = -1 };
	t->number = free_number(w);
	t->pid = 1000 + t->number;
	err = take_name(s, t->name, "tenant");
	if (!err && sim_world_tenant(w, t->name, strlen(t->name))) {
		err = sim_wrong(s, at, NULL, "there is a tenant '%s' already", t->name);
	}
	while (!err && (sim_blanks(s), *s->at)) {
		err = next_pair(s, &p);
		err = err ? err : set_tenant(s, t, &p);
	}
	for (unsigned i = 0; !err && i < w->n_tenants; i++) {
		if (w->tenant[i].number == t->number) {
			err = sim_wrong(s, at, NULL, "tenant '%s' has the number %u already",
					w->tenant[i].name, t->number);
		}
	}
	if (err) {
		return err;
	}
	if (s->dry) {
		w->n_tenants++;
		return 0;
	}
	err = sim_world_add(w, t);
	return err ? report_set(s->r, err, "memory", "tenant '%s' cannot be made: %s", t->name,
				strerror(-err))
		   : 0;
}

static int unknown_field(struct sim *s, const struct sim_hook *h, const struct pair *p)
{
	struct nearest n;
	char hint[80];

	nearest_init(&n, p->name);
	for (const struct sim_field *f = sim_fields; f->name; f++) {
		if (f->hook == h->id) {
			nearest_offer(&n, f->name);
		}
	}
	if (nearest_best(&n)) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest_best(&n));
	} else {
		snprintf(hint, sizeof(hint), "The fields are listed in: man 7 gbpf-policy");
	}
	return sim_wrong(s, p->at, hint, "the context of %s has no field '%s'", h->name, p->name);
}

/* Who the event is about; hooks of gbpfd other than admit are about nobody. */
static int event_tenant(struct sim *s, const struct sim_hook *h, struct sim_tenant **ret)
{
	bool about_one = sim_field_named(h->id, "tenant", strlen("tenant"));
	size_t len;

	*ret = NULL;
	if (!about_one) {
		return 0;
	}
	sim_blanks(s);
	len = sim_word(s);
	if (len && s->at[len] != '=') {
		*ret = sim_world_tenant(&s->world, s->at, len);
		if (!*ret) {
			return sim_wrong(s, s->at, "Tenants are declared with: tenant NAME",
					 "there is no tenant '%.*s'", (int)len, s->at);
		}
		s->at += len;
		return 0;
	}
	if (s->world.n_tenants != 1) {
		return sim_wrong(s, s->at, "It is written: HOOK TENANT field=value ...",
				 s->world.n_tenants ? "it does not say which tenant"
						    : "there is no tenant yet");
	}
	*ret = &s->world.tenant[0];
	return 0;
}

static void trace_fields(struct sim *s, const void *ctx, const void *before)
{
	for (const struct sim_field *f = sim_fields; f->name; f++) {
		uint64_t v = sim_field_get(f, ctx);

		if (f->hook == s->last.hook->id && v != sim_field_get(f, before)) {
			fprintf(s->o->trace, " %s=", f->name);
			sim_print_number(s->o->trace, f->name,
					 (struct sim_value){ v, f->is_signed });
		}
	}
}

/* "1.000000 s  train  submit lc_open=1 → HOLD hold_ns=5ms": what differs from what goes without
 * saying, and what the program changed. */
static void trace(struct sim *s, const struct sim_tenant *t, const void *defaults,
		  const void *before)
{
	const struct sim_decision *d = &s->last;
	const char *name = sim_verdict_name(d->hook->id, d->verdict);

	fprintf(s->o->trace, "%3u  %.6f s  %-8s %s", s->line + 1, (double)sim_now() / 1e9,
		t ? t->name : "gbpfd", d->hook->name);
	trace_fields(s, before, defaults);
	if (!d->filled) {
		fputs(" → (built in)", s->o->trace);
	} else if (name) {
		fprintf(s->o->trace, " → %s", name);
	} else {
		fprintf(s->o->trace, " → %" PRId64, d->verdict);
	}
	trace_fields(s, d->ctx, before);
	fputc('\n', s->o->trace);
}

static int event_fields(struct sim *s, const struct sim_hook *h)
{
	while (sim_blanks(s), *s->at) {
		const struct sim_field *f;
		struct pair p;
		int err = next_pair(s, &p);

		if (err) {
			return err;
		}
		f = sim_field_named(h->id, p.name, strlen(p.name));
		if (!f) {
			return unknown_field(s, h, &p);
		}
		if (!sim_field_set(f, s->last.ctx, p.value.v)) {
			return sim_wrong(s, p.value_at, NULL, "the value does not fit '%s'",
					 p.name);
		}
	}
	return 0;
}

/* What admit leaves is what the tenant is from then on. */
static void take_admitted(struct sim *s, struct sim_tenant *t)
{
	const struct sim_field *f;
	const int hook = s->last.hook->id;

	f = sim_field_named(hook, "class_id", 8);
	t->class_id = (uint32_t)sim_field_get(f, s->last.ctx);
	f = sim_field_named(hook, "weight", 6);
	t->weight = (uint32_t)sim_field_get(f, s->last.ctx);
}

static int do_event(struct sim *s, const struct sim_hook *h)
{
	uint64_t defaults[SIM_CTX_BYTES / 8], before[SIM_CTX_BYTES / 8];
	struct sim_tenant *t;
	int err = event_tenant(s, h, &t);

	if (err) {
		return err;
	}
	s->last.hook = h;
	s->last.line = s->line;
	s->last.filled = sim_world_fills(&s->world, h->id);
	sim_world_defaults(&s->world, h, t, s->last.ctx);
	memcpy(defaults, s->last.ctx, sizeof(defaults));
	err = event_fields(s, h);
	if (err || s->dry) {
		return err;
	}
	s->result->events++;
	memcpy(before, s->last.ctx, sizeof(before));
	s->last.verdict = sim_world_run(&s->world, h, t, s->last.ctx);
	if (strcmp(h->name, "admit") == 0 && s->last.filled && s->last.verdict == 0) {
		take_admitted(s, t);
	}
	if (s->o->trace) {
		trace(s, t, defaults, before);
	}
	s->ran = h->daemon ? &s->world.daemon : &t->in;
	return sim_ring_collect(s);
}

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
	int err = take_name(s, name, "variable");

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
	/* What programs draw by bpf_get_prandom_u32 is the same in each run, too. */
	for (unsigned i = 0; i < s->world.n_tenants && !s->dry; i++) {
		s->world.tenant[i].in.policy->env.random_state = s->random_state ^ ((uint64_t)i + 1)
											   << 32;
	}
	s->world.daemon.policy->env.random_state = s->random_state;
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
		err = take_name(s, name, "variable");
	}
	if (!err && !sim_take(s, "{")) {
		err = sim_wrong(s, s->at, NULL, "it is written: repeat N [as NAME] {");
	}
	err = err ? err : sim_end(s);
	for (uint64_t i = 0; !err && i < (s->dry ? 1 : n.v); i++) {
		err = name[0] ? add_variable(s, name, i) : 0;
		err = err ? err : run_block(s, first + 1, last);
	}
	s->line = last;
	return err;
}

static int unknown_statement(struct sim *s)
{
	static const char *const words[] = { "tenant", "expect", "repeat", "wait",
					     "at",     "let",	 "seed",   "set" };
	struct nearest n;
	char word[64], hint[120];

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
			 "A line begins with tenant, expect, repeat, wait, at, let, seed, set, or "
			 "the name of a hook");
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
	h = sim_hook_named(s->at, sim_word(s));
	if (h) {
		s->at += sim_word(s);
		err = do_event(s, h);
	} else if (sim_take_word(s, "expect")) {
		err = sim_expect(s);
	} else if (sim_take_word(s, "tenant")) {
		err = do_tenant(s);
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

/* Lines from..to-1. s->line is moved on by loops. */
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
	s->world.n_tenants = 0;
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
	err = sim_world_init(&s->world, o, r);
	err = err ? err : sim_text_init(s);
	err = err ? err : run_all(s, true);
	if (!err) {
		err = run_all(s, false);
	} else {
		s->world.n_tenants = 0; /* those of the dry run have nothing to be freed */
	}
	result->span_ns = err ? 0 : sim_now() - SIM_START_NS;
	sim_world_finish(&s->world);
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
}
