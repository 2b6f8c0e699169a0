/* Events: runs the program of a hook, for a tenant or for gbpfd, with the fields given in the
 * scenario. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

int sim_unknown_field(struct sim *s, const struct sim_hook *h, const char *at, const char *name)
{
	struct buf all = { 0 };
	struct nearest n;

	nearest_init(&n, name);
	for (const struct sim_field *f = sim_fields; f->name; f++) {
		if (f->hook == h->id) {
			nearest_offer(&n, f->name);
			buf_printf(&all, "%s%s", all.len ? ", " : "", f->name);
		}
	}
	sim_unknown(s, at, &n, &all, "the context of %s has no field '%s'", h->name, name);
	buf_finish(&all);
	return -EINVAL;
}

/* Finds the tenant of the event. Hooks of gbpfd other than admit have none. */
static int event_tenant(struct sim *s, const struct sim_hook *h, struct sim_tenant **ret)
{
	bool about_one = sim_field_named(h->id, "tenant", strlen("tenant"));
	size_t len;

	*ret = NULL;
	sim_blanks(s);
	len = sim_word(s);
	if (!about_one) {
		return sim_testbed_tenant(&s->testbed, s->at, len)
			       ? sim_wrong(
					 s, s->at, "It is written: HOOK field=value ...",
					 "%s concerns all tenants: no name of a tenant can follow",
					 h->name)
			       : 0;
	}
	if (len && s->at[len] != '=') {
		*ret = sim_testbed_tenant(&s->testbed, s->at, len);
		if (!*ret) {
			return sim_wrong(s, s->at, "Tenants are declared with: tenant NAME",
					 "there is no tenant '%.*s'", (int)len, s->at);
		}
		s->at += len;
		return 0;
	}
	if (s->testbed.n_tenants != 1) {
		return sim_wrong(s, s->at, "It is written: HOOK TENANT field=value ...",
				 s->testbed.n_tenants ? "it does not say which tenant"
						      : "there is no tenant yet");
	}
	*ret = &s->testbed.tenant[0];
	return 0;
}

/* Returns a field of the last event's context; 0 if its hook has no such field. */
static uint64_t last_field(const struct sim *s, const char *name)
{
	const struct sim_field *f = sim_field_named(s->last.hook->id, name, strlen(name));

	return f ? sim_field_get(f, s->last.ctx) : 0;
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

/* Prints "1.000000 s train submit lc_open=1 -> HOLD hold_ns=5ms": the fields that differ from the
 * defaults, and those that the program changed. */
static void trace(struct sim *s, const char *where, const void *defaults, const void *before)
{
	const struct sim_decision *d = &s->last;
	const char *name = sim_verdict_name(d->hook->id, d->verdict);

	fprintf(s->o->trace, "%3u  %.6f s  %-8s %s", s->line + 1, (double)sim_now() / 1e9, where,
		last_field(s, "rejoin") ? "rejoin" : d->hook->name);
	trace_fields(s, before, defaults);
	if (!d->filled) {
		fputs(" -> (built in)", s->o->trace);
	} else if (name) {
		fprintf(s->o->trace, " -> %s", name);
	} else {
		fprintf(s->o->trace, " -> %" PRId64, d->verdict);
	}
	trace_fields(s, d->ctx, before);
	fputc('\n', s->o->trace);
}

static int event_fields(struct sim *s, const struct sim_hook *h)
{
	while (sim_blanks(s), *s->at) {
		const struct sim_field *f;
		struct sim_pair p;
		int err = sim_next_pair(s, &p);

		if (err) {
			return err;
		}
		f = sim_field_named(h->id, p.name, strlen(p.name));
		if (!f) {
			return sim_unknown_field(s, h, p.at, p.name);
		}
		if (!sim_field_set(f, s->last.ctx, p.value.v)) {
			return sim_wrong(s, p.value_at, NULL, "the value does not fit '%s'",
					 p.name);
		}
	}
	return 0;
}

/* Finds the GPU of the event: that of its tenant; for gbpfd's hooks that concern all tenants of a
 * GPU the field gpu, which is read ahead, since the defaults of other fields depend on it. */
static int event_gpu(struct sim *s, const struct sim_hook *h, const struct sim_tenant *t,
		     uint32_t *ret)
{
	const struct sim_field *f = sim_field_named(h->id, "gpu", strlen("gpu"));
	const uint32_t none = UINT32_MAX;
	uint64_t random = s->random_state;
	const char *at = s->at;
	int err;

	*ret = t ? t->gpu : 0;
	if (t || !f || s->testbed.n_gpus == 1) {
		return 0;
	}
	sim_testbed_defaults(&s->testbed, h, NULL, 0, s->last.ctx);
	memcpy((char *)s->last.ctx + f->offset, &none, sizeof(none));
	err = event_fields(s, h);
	if (err) {
		return err;
	}
	*ret = (uint32_t)sim_field_get(f, s->last.ctx);
	s->at = at;
	s->random_state = random;
	return *ret == none ? sim_wrong(s, at, "It is written: HOOK gpu=N field=value ...",
					"it does not say on which GPU")
			    : sim_need_gpu(s, at, *ret);
}

/* Returns -EINVAL after a message if the fields, which begin at `at`, name another GPU than the
 * tenant's. */
static int check_gpu(struct sim *s, const struct sim_tenant *t, const char *at)
{
	return !t || s->testbed.n_gpus == 1 || last_field(s, "gpu") == t->gpu
		       ? 0
		       : sim_wrong(s, at, NULL, "tenant '%s' is on GPU %u", t->name, t->gpu);
}

/* Copies the result of admit to the tenant. One that runs already keeps its class and its lane. */
static void take_admitted(struct sim *s, struct sim_tenant *t)
{
	t->weight = (uint32_t)last_field(s, "weight");
	if (!last_field(s, "rejoin")) {
		t->class_id = (uint32_t)last_field(s, "class_id");
		t->lane = (uint32_t)last_field(s, "lane");
	}
}

/* Copies the slice that admit or queue_create set in the context. */
static void take_slice(struct sim *s, struct sim_tenant *t)
{
	if (last_field(s, "slice_us")) {
		t->slice_us = (uint32_t)last_field(s, "slice_us");
	}
}

/* Names the instance that runs an event, for traces and printed lines. */
static void name_instance(const struct sim *s, const struct sim_tenant *t, uint32_t gpu,
			  char out[SIM_NAME_BYTES])
{
	if (!t && s->testbed.n_gpus > 1) {
		snprintf(out, SIM_NAME_BYTES, "gbpfd on %u", gpu);
	} else {
		snprintf(out, SIM_NAME_BYTES, "%s", t ? t->name : "gbpfd");
	}
}

/* Runs the program of a hook with the context of the last event, which differed from the defaults
 * by what the scenario said. */
static int decide(struct sim *s, const struct sim_hook *h, struct sim_tenant *t, uint32_t gpu,
		  const void *defaults)
{
	uint64_t before[SIM_CTX_BYTES / 8];
	char where[SIM_NAME_BYTES];
	int err;

	s->result->events++;
	name_instance(s, t, gpu, where);
	memcpy(before, s->last.ctx, sizeof(before));
	s->ran = h->daemon ? &s->testbed.gpu[gpu].daemon : &t->in;
	s->last.verdict = sim_testbed_run(&s->testbed, h, s->ran, gpu, s->last.ctx);
	if (last_field(s, "rejoin")) {
		s->last.verdict = GBPF_ADMIT; /* QUEUE and REJECT count as ADMIT */
	}
	if (strcmp(h->name, "admit") == 0 && s->last.filled && s->last.verdict == 0) {
		take_admitted(s, t);
	}
	if (t) {
		take_slice(s, t);
	}
	if (s->o->trace) {
		trace(s, where, defaults, before);
	}
	err = sim_print_collect(s, where);
	return err ? err : sim_ring_collect(s);
}

/* Runs an event whose context has been filled with the defaults. */
static int run_event(struct sim *s, const struct sim_hook *h, struct sim_tenant *t, uint32_t gpu)
{
	uint64_t defaults[SIM_CTX_BYTES / 8];
	const char *at;
	int err;

	sim_blanks(s);
	at = s->at;
	memcpy(defaults, s->last.ctx, sizeof(defaults));
	err = event_fields(s, h);
	if (err || s->dry) {
		return err;
	}
	err = check_gpu(s, t, at);
	err = err ? err : sim_settle(s, h, at, defaults);
	return err ? err : decide(s, h, t, gpu, defaults);
}

static void begin(struct sim *s, const struct sim_hook *h)
{
	s->last.hook = h;
	s->last.line = s->line;
	s->last.filled = sim_testbed_fills(&s->testbed, h->id);
	s->last.no_fault = false;
}

static int begin_event(struct sim *s, const struct sim_hook *h, struct sim_tenant **ret,
		       uint32_t *ret_gpu)
{
	int err = event_tenant(s, h, ret);

	if (err) {
		return err;
	}
	begin(s, h);
	err = event_gpu(s, h, *ret, ret_gpu);
	if (!err) {
		sim_testbed_defaults(&s->testbed, h, *ret, *ret_gpu, s->last.ctx);
	}
	return err;
}

int sim_event(struct sim *s, const struct sim_hook *h)
{
	struct sim_tenant *t;
	uint32_t gpu;
	int err = begin_event(s, h, &t, &gpu);

	return err ? err : run_event(s, h, t, gpu);
}

int sim_rejoin(struct sim *s)
{
	const struct sim_hook *h = sim_hook_named("admit", 5);
	struct sim_tenant *t;
	uint32_t gpu;
	int err = begin_event(s, h, &t, &gpu);

	if (err) {
		return err;
	}
	sim_field_set(sim_field_named(h->id, "rejoin", 6), s->last.ctx, 1);
	sim_field_set(sim_field_named(h->id, "lanes", 5), s->last.ctx, 1u << t->lane);
	return run_event(s, h, t, gpu);
}

static void set_values(struct sim *s, const struct sim_field_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct sim_field *f =
			sim_field_named(s->last.hook->id, values[i].name, strlen(values[i].name));

		sim_field_set(f, s->last.ctx, values[i].value);
	}
}

int sim_ask(struct sim *s, const struct sim_hook *h, struct sim_tenant *t,
	    const struct sim_field_value *values, size_t n)
{
	uint64_t defaults[SIM_CTX_BYTES / 8];

	begin(s, h);
	sim_testbed_defaults(&s->testbed, h, t, t->gpu, s->last.ctx);
	memcpy(defaults, s->last.ctx, sizeof(defaults));
	set_values(s, values, n);
	return decide(s, h, t, t->gpu, defaults);
}

void sim_not_asked(struct sim *s, const struct sim_hook *h, const struct sim_tenant *t,
		   const struct sim_field_value *values, size_t n)
{
	begin(s, h);
	sim_testbed_defaults(&s->testbed, h, t, t->gpu, s->last.ctx);
	set_values(s, values, n);
	s->last.no_fault = true;
	s->last.verdict = -1;
}
