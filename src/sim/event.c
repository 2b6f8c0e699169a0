/* Tenants, and events: a hook's program runs for one of them with the fields that the scenario
 * names. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define MAX_NUMBER_OF_TENANTS 1024u

int sim_take_name(struct sim *s, char out[SIM_NAME_BYTES], const char *what)
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
	err = sim_take_name(s, p->name, "field");
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

int sim_tenant_statement(struct sim *s)
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
	err = sim_take_name(s, t->name, "tenant");
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

int sim_event(struct sim *s, const struct sim_hook *h)
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
